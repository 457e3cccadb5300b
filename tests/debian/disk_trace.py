"""What a process wrote and synced, from strace's record of it, and what a power cut would leave."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

TRACED: Final = "pwrite64,ftruncate,fsync,fdatasync,write,unlink"
SECTOR_BYTES: Final = 512
_LINE: Final = re.compile(r"^(?P<pid>\d+) +(?P<rest>.*)$")
_CALL: Final = re.compile(
    r'^(?P<name>\w+)\((?:(?P<fd>\d+)<(?P<path>[^>]*)>|"[^"]*")(?P<rest>.*)\) += \d+'
)
_DATA: Final = re.compile(
    r'^, "(?P<hex>(?:\\x[0-9a-f]{2})*)", (?P<length>\d+)(?:, (?P<offset>\d+))?$'
)


@dataclass(frozen=True, slots=True)
class Wrote:
    """Bytes at an offset of a file."""

    file: str
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Cut:
    """A file was made this long."""

    file: str
    length: int


@dataclass(frozen=True, slots=True)
class Synced:
    """All of a file is on disk."""

    file: str


@dataclass(frozen=True, slots=True)
class Told:
    """The process told somebody that everything up to a number is stored."""

    number: int


Step = Wrote | Cut | Synced | Told


def steps_of(trace: Path, folder: Path) -> Iterator[Step]:
    """Yield what was done to the files of a folder, and what was told on standard output."""
    for call in _calls(trace):
        found = _CALL.match(call)
        if found is None:
            continue
        path = bytes.fromhex((found["path"] or "").replace("\\x", "")).decode("utf-8", "replace")
        file = path.removeprefix(f"{folder}/")
        if found["name"] == "write" and found["fd"] == "1":
            yield Told(int(_bytes(found["rest"])[0]))
        elif path.startswith(f"{folder}/"):
            yield from _step(found["name"], file, found["rest"])


def _step(name: str, file: str, rest: str) -> Iterator[Step]:
    if name == "pwrite64":
        data, offset = _bytes(rest)
        yield Wrote(file, offset, data)
    elif name == "ftruncate":
        yield Cut(file, int(rest.removeprefix(", ")))
    elif name in {"fsync", "fdatasync"}:
        yield Synced(file)
    else:
        raise AssertionError(f"{name} of {file} is not understood here")


def _bytes(rest: str) -> tuple[bytes, int]:
    found = _DATA.match(rest)
    assert found is not None, rest[:200]
    data = bytes.fromhex(found["hex"].replace("\\x", ""))
    assert len(data) == int(found["length"]), "strace shortened what was written"
    return data, int(found["offset"] or 0)


def _calls(trace: Path) -> Iterator[str]:
    """Yield whole calls in the order of their ends: strace breaks those that overlap in two."""
    begun: dict[str, str] = {}
    for line in trace.read_text("ascii").splitlines():
        found = _LINE.match(line)
        if found is None:
            continue
        pid, rest = found["pid"], found["rest"]
        if rest.endswith("<unfinished ...>"):
            begun[pid] = rest.removesuffix("<unfinished ...>").rstrip()
        elif rest.startswith("<... "):
            yield begun.pop(pid) + rest.partition(" resumed>")[2]
        else:
            yield rest


class Disk:
    """The files as they are durable, and the writes that no sync has made so yet."""

    def __init__(self, before: Mapping[str, bytes]) -> None:
        self._durable = {name: bytearray(content) for name, content in before.items()}
        self._unsynced: list[Wrote | Cut] = []

    def take(self, step: Step) -> None:
        """Go on by a step."""
        if isinstance(step, Synced):
            for one in self._unsynced:
                if one.file == step.file:
                    _apply(self._durable, one)
            self._unsynced = [one for one in self._unsynced if one.file != step.file]
        elif not isinstance(step, Told):
            self._unsynced.append(step)

    def after_power_cut(self, random: Random | None) -> dict[str, bytes]:
        """Return what is left: all that was synced.

        Of the rest nothing is, or with `random` any part: whole writes or some of their sectors,
        and later ones without earlier ones.
        """
        files = self._durable
        if random is not None:
            files = {name: bytearray(content) for name, content in files.items()}
            for step in self._unsynced:
                if random.random() < 0.5:
                    _apply(files, _torn(step, random))
        return {name: bytes(content) for name, content in files.items()}


def _torn(step: Wrote | Cut, random: Random) -> Wrote | Cut:
    if isinstance(step, Cut) or random.random() < 0.5:
        return step
    kept = random.randint(0, len(step.data) // SECTOR_BYTES) * SECTOR_BYTES
    return Wrote(step.file, step.offset, step.data[:kept])


def _apply(files: dict[str, bytearray], step: Wrote | Cut) -> None:
    content = files.setdefault(step.file, bytearray())
    if isinstance(step, Cut):
        del content[step.length :]
        content.extend(bytes(step.length - len(content)))
        return
    content.extend(bytes(max(step.offset - len(content), 0)))
    content[step.offset : step.offset + len(step.data)] = step.data
