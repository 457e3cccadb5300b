"""The manifest: what a clean archive holds, what was left out and why, and what is odd."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from node_agent.capabilities.archive_clean.entries import Entry
from node_agent.capabilities.archive_clean.junk import RemovalReason
from node_agent.capabilities.archive_clean.paths import name_warnings

MANIFEST_VERSION = 1


class WarningCode(StrEnum):
    """What is odd about something that was kept all the same."""

    WINDOWS_DEVICE_NAME = "WINDOWS_DEVICE_NAME"
    BIDIRECTIONAL_OVERRIDE = "BIDIRECTIONAL_OVERRIDE"
    COMMENT_DROPPED = "COMMENT_DROPPED"


@dataclass(frozen=True, slots=True)
class KeptEntry:
    """An entry of the clean archive; `crc32` and `sha256` are lower-case hex of its content."""

    name: str
    is_directory: bool
    size_bytes: int
    packed_size_bytes: int
    crc32: str
    sha256: str
    warnings: tuple[WarningCode, ...]


@dataclass(frozen=True, slots=True)
class RemovedEntry:
    """An entry that was left out; sizes and CRC are as declared, its data was not read."""

    name: str
    reason: RemovalReason
    size_bytes: int
    packed_size_bytes: int
    crc32: str


@dataclass(frozen=True, slots=True)
class CleanReport:
    """Everything about one clean, in central directory order.

    `name_encoding` is the code page that unmarked names were decoded from, None if there were
    no such names.
    """

    kept: tuple[KeptEntry, ...]
    removed: tuple[RemovedEntry, ...]
    name_encoding: str | None
    source_size_bytes: int
    clean_size_bytes: int

    def as_document(self) -> dict[str, Any]:
        """The manifest as JSON-ready values."""
        content = sum(entry.size_bytes for entry in self.kept)
        return {"manifest_version": MANIFEST_VERSION, **asdict(self), "content_size_bytes": content}


def kept_entry(entry: Entry, sha256: str) -> KeptEntry:
    """The manifest's line for a kept entry."""
    header = entry.header
    return KeptEntry(
        name=entry.path,
        is_directory=entry.is_directory,
        size_bytes=header.size_bytes,
        packed_size_bytes=header.packed_size_bytes,
        crc32=f"{header.crc:08x}",
        sha256=sha256,
        warnings=tuple(_warnings(entry)),
    )


def removed_entry(entry: Entry, reason: RemovalReason) -> RemovedEntry:
    """The manifest's line for a removed entry; the root folder is shown as it was stored."""
    header = entry.header
    return RemovedEntry(
        name=entry.path or entry.name,
        reason=reason,
        size_bytes=header.size_bytes,
        packed_size_bytes=header.packed_size_bytes,
        crc32=f"{header.crc:08x}",
    )


def _warnings(entry: Entry) -> Iterable[WarningCode]:
    yield from (WarningCode(warning.value) for warning in name_warnings(entry.path))
    if entry.comment is None:
        yield WarningCode.COMMENT_DROPPED
