"""Cleans one archive: check all of it, copy what stays and verify it, report on everything."""

import hashlib
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from node_agent.capabilities.archive_clean.entries import Archive, Entry, read_archive
from node_agent.capabilities.archive_clean.inflate import inflated
from node_agent.capabilities.archive_clean.limits import CleanLimits
from node_agent.capabilities.archive_clean.refusals import (
    ArchiveRefusedError,
    CleanCancelledError,
    RefusalReason,
    quoted,
)
from node_agent.capabilities.archive_clean.replacing import replacing
from node_agent.capabilities.archive_clean.report import (
    CleanReport,
    KeptEntry,
    kept_entry,
    removed_entry,
)
from node_agent.capabilities.archive_clean.selection import CleanOptions, Selection, select
from node_agent.capabilities.archive_clean.source import ArchiveSource
from node_agent.capabilities.archive_clean.writer import ArchiveWriter


def clean_archive(
    source: Path,
    destination: Path,
    options: CleanOptions,
    limits: CleanLimits,
    *,
    progress: Callable[[float], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> CleanReport:
    """Write a clean copy of the ZIP at `source` to `destination`, and report what was done.

    Synchronous and bound by CPU and disk; memory stays below 100 MiB whatever the archive's
    size. `progress` is told the share done, from 0.0 up to 1.0, at most once a per cent;
    `cancelled` is asked before every chunk. The destination appears whole or not at all.

    Raises:
        ArchiveRefusedError: the archive is bad; the reason says how.
        CleanCancelledError: `cancelled` returned true.
        OSError: reading or writing failed.
    """
    with source.open("rb") as file:
        archive_source = ArchiveSource(file)
        archive = read_archive(archive_source, limits, options.name_encoding)
        selection = select(archive.entries, options)
        watch = _Watch(_packed_bytes(selection), progress, cancelled)
        with replacing(destination) as target:
            writer = ArchiveWriter(target)
            copier = _Copier(archive_source, writer, limits, watch)
            kept = tuple(copier.copy(entry) for entry in selection.kept)
            writer.finish(archive.comment)
        watch.finish()
    return _report(archive, selection, kept, archive_source.size_bytes, writer.written_bytes)


def _packed_bytes(selection: Selection) -> int:
    return sum(entry.header.packed_size_bytes for entry in selection.kept)


def _report(
    archive: Archive,
    selection: Selection,
    kept: tuple[KeptEntry, ...],
    source_size_bytes: int,
    clean_size_bytes: int,
) -> CleanReport:
    return CleanReport(
        kept=kept,
        removed=tuple(removed_entry(entry, reason) for entry, reason in selection.removed),
        name_encoding=archive.name_encoding,
        source_size_bytes=source_size_bytes,
        clean_size_bytes=clean_size_bytes,
    )


class _Watch:
    """Counts what is done, tells it on, and stops the work when asked to."""

    def __init__(
        self,
        total_bytes: int,
        progress: Callable[[float], None] | None,
        cancelled: Callable[[], bool] | None,
    ) -> None:
        self._total_bytes = total_bytes
        self._progress = progress
        self._cancelled = cancelled
        self._done_bytes = 0
        self._told_percent = -1

    def advance(self, done_bytes: int) -> None:
        if self._cancelled is not None and self._cancelled():
            raise CleanCancelledError("the clean was cancelled; start it again to get a result")
        self._done_bytes += done_bytes
        self._tell(self._done_bytes / max(self._total_bytes, 1))

    def finish(self) -> None:
        self._tell(1.0)

    def _tell(self, share: float) -> None:
        percent = int(share * 100)
        if self._progress is not None and percent > self._told_percent:
            self._told_percent = percent
            self._progress(share)


class _Copier:
    """Copies packed bytes and, in the same pass, unpacks them to see that they are right."""

    def __init__(
        self, source: ArchiveSource, writer: ArchiveWriter, limits: CleanLimits, watch: _Watch
    ) -> None:
        self._source = source
        self._writer = writer
        self._limits = limits
        self._watch = watch

    def copy(self, entry: Entry) -> KeptEntry:
        self._watch.advance(0)
        self._writer.begin(entry)
        size, crc, digest = 0, 0, hashlib.sha256()
        for piece in inflated(entry, self._packed(entry), self._limits):
            size += len(piece)
            if size > entry.header.size_bytes:
                break
            crc = zlib.crc32(piece, crc)
            digest.update(piece)
        _check(entry, size, crc)
        return kept_entry(entry, digest.hexdigest())

    def _packed(self, entry: Entry) -> Iterator[bytes]:
        """The packed bytes, each chunk written before it is handed on."""
        start, length = entry.placement.data_offset, entry.header.packed_size_bytes
        for chunk in self._source.chunks(start, length):
            self._watch.advance(len(chunk))
            self._writer.data(chunk)
            yield chunk


def _check(entry: Entry, size_bytes: int, crc: int) -> None:
    """What was unpacked must be what the headers declare."""
    if size_bytes != entry.header.size_bytes:
        relation = "more" if size_bytes > entry.header.size_bytes else "less"
        raise ArchiveRefusedError(
            RefusalReason.MALFORMED,
            f"entry {quoted(entry.name)} unpacks to {relation} than the"
            f" {entry.header.size_bytes} bytes declared (stopped at {size_bytes}); pack it anew",
        )
    if crc != entry.header.crc:
        raise ArchiveRefusedError(
            RefusalReason.CRC_MISMATCH,
            f"entry {quoted(entry.name)} has CRC {crc:08x}, not {entry.header.crc:08x} as declared:"
            " its data was damaged; upload the archive again or pack it anew",
        )
