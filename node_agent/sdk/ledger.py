"""The artifacts that an attempt has uploaded, on disk, so that a resumed attempt counts right."""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

from node_agent.core.execution.ports import UploadedArtifact

REPORT_COUNT_MAX: Final = 100
Report = Callable[[Sequence[UploadedArtifact]], Awaitable[None]]


class ArtifactLedger:
    """Appends a line for each upload and for each report; reports in batches.

    A line is on disk before a checkpoint that may rest on it is, so after a restart what had
    not been reported is reported then. In the window of a crash one artifact may be reported
    twice, with the same path.
    """

    def __init__(self, file: Path, report: Report) -> None:
        """Read what an earlier process of the same attempt has written, if any."""
        self._file = file
        self._report = report
        self._entries: dict[str, UploadedArtifact] = {}
        self._unreported: dict[str, UploadedArtifact] = {}
        self._unsynced: list[dict[str, Any]] = []
        self._lock = asyncio.Lock()
        self._recover()

    @property
    def count(self) -> int:
        """How many different paths were uploaded."""
        return len(self._entries)

    async def record(self, artifact: UploadedArtifact) -> None:
        """Note an upload; a full batch is reported."""
        self._entries[artifact.relative_path] = artifact
        self._unreported[artifact.relative_path] = artifact
        self._unsynced.append(_line(artifact))
        if len(self._unreported) >= REPORT_COUNT_MAX:
            await self.report()

    async def sync(self) -> None:
        """Have every noted upload on disk when it returns."""
        async with self._lock:
            await self._write()

    async def report(self) -> None:
        """Have every noted upload reported when it returns."""
        async with self._lock:
            await self._write()
            while self._unreported:
                batch = list(self._unreported.values())[:REPORT_COUNT_MAX]
                await self._report(batch)
                for artifact in batch:
                    if self._unreported.get(artifact.relative_path) is artifact:
                        del self._unreported[artifact.relative_path]
                reported = [artifact.relative_path for artifact in batch]
                self._unsynced.append({"reported": reported})

    async def _write(self) -> None:
        lines, self._unsynced = self._unsynced, []
        if lines:
            await asyncio.to_thread(_append, self._file, lines)

    def _recover(self) -> None:
        for line in _read_lines(self._file):
            if "reported" in line:
                for path in line["reported"]:
                    self._unreported.pop(path, None)
            else:
                artifact = _artifact(line)
                self._entries[artifact.relative_path] = artifact
                self._unreported[artifact.relative_path] = artifact


def _append(file: Path, lines: Sequence[dict[str, Any]]) -> None:
    with file.open("a", encoding="utf-8") as ledger:
        ledger.writelines(json.dumps(line) + "\n" for line in lines)
        ledger.flush()
        os.fsync(ledger.fileno())


def _read_lines(file: Path) -> list[dict[str, Any]]:
    """All whole lines; what a power loss cut is dropped from the file too."""
    if not file.exists():
        return []
    data = file.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        os.truncate(file, len(whole))
    return [json.loads(line) for line in whole.splitlines()]


def _line(artifact: UploadedArtifact) -> dict[str, Any]:
    return {
        "relative_path": artifact.relative_path,
        "resource_ref": artifact.resource_ref,
        "size_bytes": artifact.size_bytes,
        "sha256": artifact.sha256.hex(),
        "media_type": artifact.media_type,
    }


def _artifact(line: dict[str, Any]) -> UploadedArtifact:
    return UploadedArtifact(**{**line, "sha256": bytes.fromhex(line["sha256"])})
