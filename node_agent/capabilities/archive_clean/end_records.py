"""Finds the central directory: exactly one end record, at the very end, free of doubt."""

from dataclasses import dataclass

from node_agent.capabilities.archive_clean.records import (
    END,
    END64,
    END64_MAGIC,
    END_MAGIC,
    FULL_16,
    FULL_32,
    LOCAL_MAGIC,
    LOCATOR64,
    LOCATOR64_MAGIC,
)
from node_agent.capabilities.archive_clean.refusals import ArchiveRefusedError, RefusalReason
from node_agent.capabilities.archive_clean.source import ArchiveSource

_TAIL_BYTES_MAX = END.size + FULL_16
_END64_BODY_BYTES = END64.size - 12


@dataclass(frozen=True, slots=True)
class DirectoryPlace:
    """Where the central directory lies, how many entries it announces, and the comment."""

    entries: int
    offset: int
    size_bytes: int
    comment: bytes


@dataclass(frozen=True, slots=True)
class _End:
    disk: int
    directory_disk: int
    entries_here: int
    entries: int
    size_bytes: int
    offset: int


def find_directory(source: ArchiveSource) -> DirectoryPlace:
    """The place of the central directory.

    Raises:
        ArchiveRefusedError: ARCHIVE_NOT_ZIP, ARCHIVE_TRUNCATED or ARCHIVE_MALFORMED.
    """
    start = max(0, source.size_bytes - _TAIL_BYTES_MAX)
    tail = source.read(start, source.size_bytes - start)
    at = _end_record(source, tail, start)
    comment = tail[at + END.size :]
    end = _parsed(tail, at)
    end, directory_end = _with_zip64(source, end, start + at)
    _check_disks(end)
    _check_bounds(end, directory_end)
    return DirectoryPlace(end.entries, end.offset, end.size_bytes, comment)


def _end_record(source: ArchiveSource, tail: bytes, start: int) -> int:
    """Position in the tail of the one end record whose comment ends with the file."""
    candidates = _candidates(tail)
    fitting = [at for at in candidates if _record_end(tail, at) == len(tail)]
    if not fitting:
        raise _no_end_record(source, tail, start, candidates)
    if len(fitting) > 1 or END_MAGIC in tail[fitting[0] + 4 :]:
        raise _malformed(
            "several end records could be meant, the comment holding another one;"
            " which files the archive has would depend on the reader"
        )
    return fitting[0]


def _candidates(tail: bytes) -> list[int]:
    found, at = [], tail.find(END_MAGIC)
    while at != -1 and at + END.size <= len(tail):
        found.append(at)
        at = tail.find(END_MAGIC, at + 1)
    return found


def _record_end(tail: bytes, at: int) -> int:
    return at + END.size + int.from_bytes(tail[at + 20 : at + 22], "little")


def _no_end_record(
    source: ArchiveSource, tail: bytes, start: int, candidates: list[int]
) -> ArchiveRefusedError:
    """Tell a cut archive from one with data behind it, and both from what is no ZIP."""
    for at in candidates:
        end = _parsed(tail, at)
        # A nested archive's record does not fit: its offsets do not count what is before it.
        if end.offset + end.size_bytes != start + at and end.offset != FULL_32:
            continue
        surplus = len(tail) - _record_end(tail, at)
        if surplus > 0:
            return _malformed(f"{surplus} bytes follow the end record")
        return ArchiveRefusedError(
            RefusalReason.TRUNCATED,
            f"the archive's comment lacks its last {-surplus} bytes; upload it again, whole",
        )
    head = source.read(0, min(4, source.size_bytes))
    if head in {LOCAL_MAGIC, END_MAGIC, END64_MAGIC}:
        return ArchiveRefusedError(
            RefusalReason.TRUNCATED,
            f"the file starts as a ZIP and ends, after {source.size_bytes} bytes, without an end"
            " record; upload it again, whole",
        )
    return ArchiveRefusedError(
        RefusalReason.NOT_ZIP,
        f"the file ({source.size_bytes} bytes, starting with {head!r}) is not a ZIP archive;"
        " upload a ZIP, not a renamed file of another kind",
    )


def _parsed(tail: bytes, at: int) -> _End:
    _, disk, directory_disk, here, entries, size, offset, _ = END.unpack_from(tail, at)
    return _End(disk, directory_disk, here, entries, size, offset)


def _with_zip64(source: ArchiveSource, narrow: _End, end_at: int) -> tuple[_End, int]:
    """The end record with Zip64 values, if any, and where the directory has to end."""
    locator_at = end_at - LOCATOR64.size
    if locator_at < 0 or source.read(locator_at, 4) != LOCATOR64_MAGIC:
        return narrow, end_at
    _, disk, end64_at, disks = LOCATOR64.unpack(source.read(locator_at, LOCATOR64.size))
    if disk != 0 or disks > 1:
        raise _malformed(f"the Zip64 locator names disk {disk} of {disks}")
    if end64_at + END64.size != locator_at or source.read(end64_at, 4) != END64_MAGIC:
        raise _malformed(f"no Zip64 end record of {END64.size} bytes lies at byte {end64_at}")
    fields = END64.unpack(source.read(end64_at, END64.size))
    if fields[1] != _END64_BODY_BYTES:
        raise _malformed(f"the Zip64 end record announces {fields[1]} bytes of itself, not 44")
    wide = _End(*fields[4:])
    _check_same(narrow, wide)
    return wide, end64_at


def _check_same(narrow: _End, wide: _End) -> None:
    for name, full in (
        ("disk", FULL_16),
        ("directory_disk", FULL_16),
        ("entries_here", FULL_16),
        ("entries", FULL_16),
        ("size_bytes", FULL_32),
        ("offset", FULL_32),
    ):
        old, new = getattr(narrow, name), getattr(wide, name)
        if old not in {new, full}:
            raise _malformed(f"the two end records disagree: {name} is {old} or {new}")


def _check_disks(end: _End) -> None:
    if end.disk or end.directory_disk or end.entries_here != end.entries:
        raise _malformed(
            f"it is one volume of a split archive (disk {end.disk}, {end.entries_here} of"
            f" {end.entries} entries)"
        )


def _check_bounds(end: _End, directory_end: int) -> None:
    found = end.offset + end.size_bytes
    if found > directory_end:
        raise _malformed(
            f"its central directory (offset {end.offset}, {end.size_bytes} bytes) would end at"
            f" byte {found}, beyond the end record at byte {directory_end}"
        )
    if found < directory_end:
        raise _malformed(
            f"{directory_end - found} bytes belong to no record: data was put before the archive,"
            " or between its central directory and its end record"
        )


def _malformed(what: str) -> ArchiveRefusedError:
    return ArchiveRefusedError(
        RefusalReason.MALFORMED,
        f"the archive is malformed: {what}; pack the files anew and upload that",
    )
