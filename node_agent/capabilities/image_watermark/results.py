"""What became of each file: kept in a journal that a restart reads, and told in the manifest."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from node_agent.capabilities.image_watermark.result_zip import ResultZip, ZippedFile

MANIFEST_VERSION: Final = 1


class FileStatus(StrEnum):
    """What became of one file."""

    WATERMARKED = "WATERMARKED"
    TOO_SMALL = "TOO_SMALL"
    FAILED = "FAILED"
    PASSED_THROUGH = "PASSED_THROUGH"


class FileResult(BaseModel):
    """One file; `sha256` is lower-case hex of the result, `zipped` its place in images.zip."""

    path: str
    status: FileStatus
    source_size_bytes: int
    reason: str = ""
    message: str = ""
    resource_ref: str = ""
    size_bytes: int = 0
    sha256: str = ""
    media_type: str = ""
    width: int = 0
    height: int = 0
    frames: int = 0
    notes: tuple[str, ...] = ()
    zipped: ZippedFile | None = None


class WorkCheckpoint(BaseModel):
    """How much of the journal and of the ZIP a resumed attempt may build on."""

    file_count: int
    journal_bytes: int
    zip_bytes: int


class ResultJournal:
    """Results in the order of the archive, a line each, on disk with the ZIP they are in."""

    def __init__(self, folder: Path) -> None:
        """Take the folder of both; nothing is read yet."""
        self._file = folder / "results.jsonl"
        self.zip = ResultZip(folder / "images.zip")
        self.results: list[FileResult] = []

    def recover(self, saved: WorkCheckpoint | None) -> None:
        """Stand where the checkpoint was saved, or at the start if that cannot be."""
        if saved is None or not self._recovered(saved):
            self._file.write_bytes(b"")
            self.zip.cut(0)
            self.results = []

    def add(self, result: FileResult) -> None:
        """Append a result; on disk when this returns."""
        with self._file.open("ab") as journal:
            journal.write(result.model_dump_json().encode() + b"\n")
            journal.flush()
            os.fsync(journal.fileno())
        self.results.append(result)

    def checkpoint(self) -> WorkCheckpoint:
        """What to save so that a resumed attempt goes on from here."""
        return WorkCheckpoint(
            file_count=len(self.results),
            journal_bytes=self._file.stat().st_size,
            zip_bytes=self.zip.size_bytes(),
        )

    def zipped(self) -> list[ZippedFile]:
        """Every file of the ZIP."""
        return [result.zipped for result in self.results if result.zipped is not None]

    def _recovered(self, saved: WorkCheckpoint) -> bool:
        if not self._file.exists() or self.zip.size_bytes() < saved.zip_bytes:
            return False
        data = self._file.read_bytes()[: saved.journal_bytes]
        try:
            results = [FileResult.model_validate_json(line) for line in data.splitlines()]
        except ValueError:
            return False
        if len(results) != saved.file_count:
            return False
        os.truncate(self._file, saved.journal_bytes)
        self.zip.cut(saved.zip_bytes)
        self.results = results
        return True


def counts(results: Sequence[FileResult]) -> Counter[FileStatus]:
    """How many files came to each end."""
    return Counter(result.status for result in results)


def manifest(text: str, results: Sequence[FileResult]) -> dict[str, Any]:
    """The manifest as JSON-ready values."""
    count = counts(results)
    return {
        "manifest_version": MANIFEST_VERSION,
        "text": text,
        "watermarked_count": count[FileStatus.WATERMARKED],
        "too_small_count": count[FileStatus.TOO_SMALL],
        "failed_count": count[FileStatus.FAILED],
        "passed_through_count": count[FileStatus.PASSED_THROUGH],
        "files": [
            result.model_dump(mode="json", exclude={"zipped"}, exclude_defaults=True)
            for result in results
        ],
    }
