"""The files that pictures come from: the entries of a ZIP, checked as they are unpacked."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from node_agent.capabilities.archive_clean.entries import Entry, read_archive
from node_agent.capabilities.archive_clean.inflate import inflated
from node_agent.capabilities.archive_clean.limits import CleanLimits
from node_agent.capabilities.archive_clean.refusals import (
    ArchiveRefusedError,
    RefusalReason,
    quoted,
)
from node_agent.capabilities.archive_clean.source import ArchiveSource
from node_agent.capabilities.image_watermark.classification import (
    HEAD_BYTES,
    FileKind,
    ImageFormat,
    classify,
    image_format,
)

MEDIA_TYPES = {
    ImageFormat.JPEG: "image/jpeg",
    ImageFormat.MPO: "image/jpeg",
    ImageFormat.PNG: "image/png",
    ImageFormat.GIF: "image/gif",
    ImageFormat.WEBP: "image/webp",
    ImageFormat.TIFF: "image/tiff",
    ImageFormat.BMP: "image/bmp",
}
_SUFFIX_CHARACTERS_MAX = 12


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of the archive, what becomes of it, and its place in the archive's order.

    `media_type` is what its first bytes announce; empty where they announce no format that is
    written.
    """

    index: int
    path: str
    kind: FileKind
    media_type: str
    size_bytes: int
    entry: Entry

    @property
    def work_name(self) -> str:
        """A name for it on disk that keeps its ending, by which some formats are told."""
        suffix = PurePosixPath(self.path).suffix
        plain = suffix if suffix.isascii() and len(suffix) <= _SUFFIX_CHARACTERS_MAX else ""
        return f"picture-{self.index}{plain}"


class SourceArchive:
    """A ZIP on disk under the same rules as archive.clean's: nothing unsound is unpacked.

    Raises ArchiveRefusedError. Several threads may use it at once.
    """

    def __init__(self, file: Path, limits: CleanLimits) -> None:
        """Take the file; it is opened for each use."""
        self._file = file
        self._limits = limits

    def files(self) -> list[SourceFile]:
        """Every file in the archive's order, each told by its first bytes and its name."""
        with self._file.open("rb") as archive_file:
            source = ArchiveSource(archive_file)
            entries = read_archive(source, self._limits).entries
            files = [entry for entry in entries if not entry.is_directory]
            return [self._file_of(source, index, entry) for index, entry in enumerate(files)]

    def unpack(self, file: SourceFile, destination: Path, alive: Callable[[], None]) -> None:
        """Write the file's content, counted and checked against its CRC."""
        size_bytes, crc = 0, 0
        with self._file.open("rb") as archive_file, destination.open("wb") as target:
            source = ArchiveSource(archive_file)
            for piece in self._content(source, file.entry):
                size_bytes += len(piece)
                if size_bytes > file.size_bytes:
                    break
                crc = zlib.crc32(piece, crc)
                target.write(piece)
                alive()
        if (size_bytes, crc) != (file.size_bytes, file.entry.header.crc):
            raise ArchiveRefusedError(
                RefusalReason.CRC_MISMATCH,
                f"entry {quoted(file.path)} does not unpack to what its header declares:"
                " its data was damaged; upload the archive again or pack it anew",
            )

    def _file_of(self, source: ArchiveSource, index: int, entry: Entry) -> SourceFile:
        head = self._head(source, entry)
        found = image_format(head)
        return SourceFile(
            index=index,
            path=entry.path,
            kind=classify(entry.path, head),
            media_type=MEDIA_TYPES[found] if found is not None else "",
            size_bytes=entry.header.size_bytes,
            entry=entry,
        )

    def _head(self, source: ArchiveSource, entry: Entry) -> bytes:
        head = b""
        for piece in self._content(source, entry):
            head += piece[:HEAD_BYTES]
            if len(head) >= HEAD_BYTES:
                break
        return head[:HEAD_BYTES]

    def _content(self, source: ArchiveSource, entry: Entry) -> Iterator[bytes]:
        start, length = entry.placement.data_offset, entry.header.packed_size_bytes
        return inflated(entry, source.chunks(start, length), self._limits)
