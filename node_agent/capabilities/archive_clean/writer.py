"""Writes the clean archive: packed bytes as they were, headers new and free of doubt.

Names are UTF-8, flagged as such when not ASCII; sizes and CRC stand in the local header, so no
data descriptor is needed; Zip64 is used where a value demands it and nowhere else. A name that is
not ASCII stands in an Info-ZIP Unicode field too: unzip 6.0 takes the flag for nothing where the
entry says that DOS made it.
"""

import struct
import zlib
from collections.abc import Mapping
from typing import BinaryIO

from node_agent.capabilities.archive_clean.entries import Entry
from node_agent.capabilities.archive_clean.records import (
    BZIP2,
    CENTRAL,
    CENTRAL_MAGIC,
    END,
    END64,
    END64_MAGIC,
    END_MAGIC,
    EXTRA_NTFS,
    EXTRA_TIMESTAMP,
    EXTRA_UNICODE_PATH,
    EXTRA_ZIP64,
    FLAG_UTF8,
    FLAGS_OF_METHOD,
    FULL_16,
    FULL_32,
    LOCAL,
    LOCAL_MAGIC,
    LOCATOR64,
    LOCATOR64_MAGIC,
    LZMA,
    packed_extra,
)

_VERSION_DEFAULT, _VERSION_ZIP64 = 20, 45
_VERSION_OF_METHOD = {BZIP2: 46, LZMA: 63}

# Time stamps mean the same under any name; other extra fields repeat what headers say, name
# local users, or are unknown and could contradict the rest.
_EXTRA_KEPT = frozenset({EXTRA_NTFS, EXTRA_TIMESTAMP})


class ArchiveWriter:
    """Appends entries to an open file, then the central directory."""

    def __init__(self, file: BinaryIO) -> None:
        """Start at the file's beginning; offsets are counted, never asked for."""
        self._file = file
        self._offset = 0
        self._directory: list[bytes] = []

    @property
    def written_bytes(self) -> int:
        """How long the archive is so far."""
        return self._offset

    def begin(self, entry: Entry) -> None:
        """Write the local header; the packed data must follow, whole, by `data`."""
        self._directory.append(central_record(entry, self._offset))
        self.data(local_record(entry))

    def data(self, chunk: bytes) -> None:
        """Write packed data."""
        self._file.write(chunk)
        self._offset += len(chunk)

    def finish(self, comment: bytes) -> None:
        """Write the central directory, the end records and the archive's comment."""
        start = self._offset
        for record in self._directory:
            self.data(record)
        self.data(end_records(len(self._directory), self._offset - start, start, comment))


def local_record(entry: Entry) -> bytes:
    """The local header with name and extra fields."""
    header = entry.header
    sizes = (header.size_bytes, header.packed_size_bytes)
    # A local Zip64 field has both sizes or is not there at all (APPNOTE 4.5.3).
    wide = sizes if max(sizes) >= FULL_32 else ()
    size, packed = (FULL_32, FULL_32) if wide else sizes
    name = entry.path.encode()
    extra = _extra(wide, name, entry.placement.local_extra)
    fixed = LOCAL.pack(
        LOCAL_MAGIC,
        _version(entry, is_wide=bool(wide)),
        _flags(entry),
        header.method,
        header.time,
        header.date,
        header.crc,
        packed,
        size,
        len(name),
        len(extra),
    )
    return fixed + name + extra


def central_record(entry: Entry, offset: int) -> bytes:
    """The central header of the entry whose local header starts at the offset."""
    header = entry.header
    values = (header.size_bytes, header.packed_size_bytes, offset)
    wide = tuple(value for value in values if value >= FULL_32)
    size, packed, start = (min(value, FULL_32) for value in values)
    name = entry.path.encode()
    extra = _extra(wide, name, header.extra)
    comment = _comment(entry)
    fixed = CENTRAL.pack(
        CENTRAL_MAGIC,
        header.made_by,
        _version(entry, is_wide=bool(wide)),
        _flags(entry),
        header.method,
        header.time,
        header.date,
        header.crc,
        packed,
        size,
        len(name),
        len(extra),
        len(comment),
        0,
        header.internal_attributes,
        header.external_attributes,
        start,
    )
    return fixed + name + extra + comment


def end_records(entries: int, size_bytes: int, offset: int, comment: bytes) -> bytes:
    """The end record, after Zip64 ones if the plain one cannot hold a value."""
    narrow = (min(entries, FULL_16), min(size_bytes, FULL_32), min(offset, FULL_32))
    end = END.pack(END_MAGIC, 0, 0, narrow[0], *narrow, len(comment)) + comment
    if entries < FULL_16 and size_bytes < FULL_32 and offset < FULL_32:
        return end
    version = _VERSION_ZIP64
    body = END64.size - 12
    wide = (entries, entries, size_bytes, offset)
    end64 = END64.pack(END64_MAGIC, body, version, version, 0, 0, *wide)
    return end64 + LOCATOR64.pack(LOCATOR64_MAGIC, 0, offset + size_bytes, 1) + end


def _extra(wide: tuple[int, ...], name: bytes, blocks: Mapping[int, bytes]) -> bytes:
    kept = {kind: payload for kind, payload in blocks.items() if kind in _EXTRA_KEPT}
    if not name.isascii():
        kept[EXTRA_UNICODE_PATH] = struct.pack("<BI", 1, zlib.crc32(name)) + name
    if not wide:
        return packed_extra(kept)
    zip64 = b"".join(value.to_bytes(8, "little") for value in wide)
    return packed_extra({EXTRA_ZIP64: zip64, **kept})


def _version(entry: Entry, *, is_wide: bool) -> int:
    needed = _VERSION_OF_METHOD.get(entry.header.method, _VERSION_DEFAULT)
    return max(needed, _VERSION_ZIP64) if is_wide else needed


def _flags(entry: Entry) -> int:
    text = entry.path + (entry.comment or "")
    return entry.header.flags & FLAGS_OF_METHOD | (0 if text.isascii() else FLAG_UTF8)


def _comment(entry: Entry) -> bytes:
    """The comment in UTF-8, unless that makes it too long for its field."""
    encoded = (entry.comment or "").encode()
    return encoded if len(encoded) <= FULL_16 else b""
