"""Idle costs: CPU while nothing is asked for, and each statement that is sent nevertheless."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from foundation.clock import Clock
from tools.bench.cpu import CpuMeter
from tools.bench.facts import Facts

# As written by the embedded server's log_line_prefix: time, process id, application, database.
_LINE: Final = re.compile(
    r"^(?P<at>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}) UTC \[\d+\] (?P<application>\S+) \S+ "
    r"LOG:  (?:statement|execute [^:]*): (?P<text>.*(?:\n\t.*)*)$",
    re.MULTILINE,
)
# One pump serves three tables with the same statements: their names alone say too little.
_PUMPED: Final = re.compile(r"\b(outbox_events|callback_deliveries|artifact_commits)\b")
_NAME: Final = re.compile(r"/\* (\w+) \*/")
_TEXT_CHARS_MAX: Final = 40
_OURS: Final = "tdp-bench"


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement that was seen: when, from which pool, and its name (or how it begins)."""

    at: datetime
    application: str
    name: str


@dataclass(frozen=True, slots=True)
class Repeated:
    """How often a statement of one pool came, and the shortest time between two of them."""

    application: str
    name: str
    per_minute: float
    interval_min_s: float | None


@dataclass(frozen=True, slots=True)
class Idle:
    """Costs of a system at rest: percent of a core by process, statements by name."""

    seconds: float
    percent_of_core: Mapping[str, float]
    statements: tuple[Repeated, ...]

    @property
    def statements_per_minute(self) -> float:
        """All statements together, transaction control included."""
        return sum(one.per_minute for one in self.statements)


async def measure_idle(
    facts: Facts, log_file: Path, roots: Mapping[str, int], seconds: float, clock: Clock
) -> Idle:
    """Leave the system alone for `seconds`, and answer what it did meanwhile."""
    await facts.log_statements(every=True)
    before = await asyncio.to_thread(log_file.read_bytes)
    with CpuMeter(roots, clock) as meter:
        await asyncio.sleep(seconds)
    log = await asyncio.to_thread(log_file.read_bytes)
    text = log[len(before) :].decode(errors="replace")
    await facts.log_statements(every=False)
    return Idle(
        meter.use.wall_s,
        meter.use.percent_of_core(),
        repeated(statements(text), meter.use.wall_s),
    )


def statements(log: str) -> list[Statement]:
    """Read the statements out of a server's log, without those of the benchmark itself."""
    return [
        Statement(_moment(match["at"]), match["application"], _name(match["text"]))
        for match in _LINE.finditer(log)
        if match["application"] != _OURS
    ]


def repeated(seen: Iterable[Statement], seconds: float) -> tuple[Repeated, ...]:
    """Fold statements by pool and name, the most frequent first."""
    moments: defaultdict[tuple[str, str], list[datetime]] = defaultdict(list)
    for one in seen:
        moments[one.application, one.name].append(one.at)
    counts = Counter({key: len(at) for key, at in moments.items()})
    return tuple(
        Repeated(*key, 60 * count / seconds, _shortest_s(sorted(moments[key])))
        for key, count in counts.most_common()
    )


def _shortest_s(moments: list[datetime]) -> float | None:
    gaps = [(later - earlier).total_seconds() for earlier, later in itertools.pairwise(moments)]
    return min(gaps, default=None)


def _name(text: str) -> str:
    named, pumped = _NAME.match(text), _PUMPED.search(text)
    if named is None:
        return text.partition("\n")[0][:_TEXT_CHARS_MAX].strip().lower()
    return f"{named[1]} of {pumped[1]}" if pumped else named[1]


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(f"{text}+00:00")
