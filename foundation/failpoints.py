"""Named points where a test makes the process die, fail, lose a reply or stall.

A process declares its names in one table and installs it at start-up; the code then says
`await failpoint("engine.commit.after")`. Nothing happens unless TDP_FAILPOINTS names the
point: `name=action` or `name=action@N` (the N-th hit only), separated by `;`. Actions:
`kill` (SIGKILL to itself), `raise`, `drop_reply` (the work is done, its answer is lost) and
`sleep:SECONDS`. TDP_FAILPOINT_HITS names a file to which each point appends its name the
first time it is hit, so that a crash matrix can tell which points it never reached.
"""

import asyncio
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from foundation.errors import InternalError, UnavailableError

FAILPOINTS_VARIABLE: Final = "TDP_FAILPOINTS"
FAILPOINT_HITS_VARIABLE: Final = "TDP_FAILPOINT_HITS"
_NAME_SHAPE = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)+")
_RULE_SHAPE = re.compile(
    r"(?P<name>[^=@;]+)=(?P<action>kill|raise|drop_reply|sleep)"
    r"(:(?P<seconds>[0-9]+(\.[0-9]+)?))?(@(?P<hit>[1-9][0-9]*))?"
)


class FailpointAction(StrEnum):
    """What happens at an armed failpoint."""

    KILL = "kill"
    RAISE = "raise"
    DROP_REPLY = "drop_reply"
    SLEEP = "sleep"


class FailpointRaisedError(InternalError):
    """The fault that action `raise` injects."""

    reason = "FAILPOINT_RAISED"


class ReplyDroppedError(UnavailableError, ConnectionError):
    """The fault that action `drop_reply` injects: done, but the answer never arrives.

    It is a ConnectionError too, so that it takes the path of a connection lost after the
    work was done; a gRPC server answers it with UNAVAILABLE.
    """

    reason = "REPLY_DROPPED"


@dataclass(frozen=True, slots=True)
class FailpointRule:
    """One armed point: what to do, for how many seconds, at which hit (None: at each)."""

    name: str
    action: FailpointAction
    sleep_s: float = 0.0
    hit_number: int | None = None


class Failpoints:
    """The table of one process: its declared names, its armed rules, and its hits."""

    __slots__ = ("_hits_path", "_rules", "hits", "names")

    def __init__(
        self, names: Iterable[str], rules: str = "", hits_path: Path | None = None
    ) -> None:
        """Declare `names` and arm `rules`; ValueError on a malformed or unknown name."""
        self.names = _checked_names(names)
        self._rules = {rule.name: rule for rule in parse_rules(rules)}
        self._hits_path = hits_path
        self.hits: Counter[str] = Counter()
        for name in self._rules:
            self._check_declared(name)

    def due_rule(self, name: str) -> FailpointRule | None:
        """Count a hit of `name` and return the rule to act on now, if any."""
        self._check_declared(name)
        self.hits[name] += 1
        if self._hits_path is not None and self.hits[name] == 1:
            _append_line(self._hits_path, name)
        rule = self._rules.get(name)
        if rule is None or rule.hit_number not in (None, self.hits[name]):
            return None
        return rule

    def _check_declared(self, name: str) -> None:
        if name not in self.names:
            message = f"failpoint {name!r} is not declared in this process's table: add it there"
            raise ValueError(message)


class _Installed:
    """Holds the process's table; None until start-up, which makes every point free."""

    table: Failpoints | None = None


def install_failpoints(names: Iterable[str], environ: Mapping[str, str]) -> Failpoints:
    """Declare the process's failpoints and arm those the environment names; at start-up only."""
    hits_file = environ.get(FAILPOINT_HITS_VARIABLE)
    table = Failpoints(
        names, environ.get(FAILPOINTS_VARIABLE, ""), Path(hits_file) if hits_file else None
    )
    _Installed.table = table
    return table


def uninstall_failpoints() -> None:
    """Forget the table, so that every point does nothing again (for tests)."""
    _Installed.table = None


async def failpoint(name: str) -> None:
    """Act as the rule armed for `name` says; nothing when none is, or before start-up.

    Raises ValueError for a name that the installed table does not declare.
    """
    if _Installed.table is None:
        return
    rule = _Installed.table.due_rule(name)
    if rule is None:
        return
    if rule.action is FailpointAction.SLEEP:
        await asyncio.sleep(rule.sleep_s)
    else:
        _strike(rule)


def failpoint_in_thread(name: str) -> None:
    """Do the same as `failpoint` from a child thread; a sleep blocks that thread."""
    if _Installed.table is None:
        return
    rule = _Installed.table.due_rule(name)
    if rule is None:
        return
    if rule.action is FailpointAction.SLEEP:
        time.sleep(rule.sleep_s)
    else:
        _strike(rule)


def parse_rules(text: str) -> tuple[FailpointRule, ...]:
    """Parse the value of TDP_FAILPOINTS; ValueError says which part is wrong."""
    parts = (part.strip() for part in text.split(";"))
    return tuple(_parse_rule(part) for part in parts if part)


def _parse_rule(part: str) -> FailpointRule:
    match = _RULE_SHAPE.fullmatch(part)
    sleeps = match is not None and match["action"] == FailpointAction.SLEEP
    if match is None or sleeps is (match["seconds"] is None):
        message = (
            f"failpoint rule {part!r} is not NAME=ACTION or NAME=ACTION@N with ACTION one of "
            "kill, raise, drop_reply, sleep:SECONDS"
        )
        raise ValueError(message)
    return FailpointRule(
        match["name"].strip(),
        FailpointAction(match["action"]),
        float(match["seconds"] or 0.0),
        int(match["hit"]) if match["hit"] else None,
    )


def _strike(rule: FailpointRule) -> None:
    if rule.action is FailpointAction.KILL:
        os.kill(os.getpid(), signal.SIGKILL)
    if rule.action is FailpointAction.DROP_REPLY:
        message = f"the reply was dropped by failpoint {rule.name}: retry with the same key"
        raise ReplyDroppedError(message)
    message = f"failpoint {rule.name} raised, as {FAILPOINTS_VARIABLE} asks"
    raise FailpointRaisedError(message)


def _checked_names(names: Iterable[str]) -> frozenset[str]:
    declared = list(names)
    for name in declared:
        if not _NAME_SHAPE.fullmatch(name):
            message = f"failpoint name {name!r} is not dotted lower case (engine.commit.after)"
            raise ValueError(message)
    repeated = [name for name, count in Counter(declared).items() if count > 1]
    if repeated:
        message = f"failpoints declared more than once: {', '.join(sorted(repeated))}"
        raise ValueError(message)
    return frozenset(declared)


def _append_line(path: Path, line: str) -> None:
    with path.open("ab", buffering=0) as file:
        file.write(f"{line}\n".encode())
