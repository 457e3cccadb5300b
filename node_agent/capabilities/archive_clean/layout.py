"""Where each entry's bytes lie: local headers, data and descriptors must tile the file.

The file is cut at the entries' offsets. In each piece there must be the local header that the
central one describes, its data, a descriptor if announced, and nothing else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from node_agent.capabilities.archive_clean.names import NameDecoder
from node_agent.capabilities.archive_clean.records import (
    FLAG_DESCRIPTOR,
    FLAG_ENCRYPTED,
    FLAG_UTF8,
    FULL_32,
    LOCAL,
    LOCAL_MAGIC,
    CentralHeader,
    LocalHeader,
    RecordError,
    descriptor_forms,
    local_variable_length,
    parse_local,
)
from node_agent.capabilities.archive_clean.refusals import (
    ArchiveRefusedError,
    RefusalReason,
    quoted,
)
from node_agent.capabilities.archive_clean.source import ArchiveSource

_DESCRIPTOR_BYTES_MAX = 24


@dataclass(frozen=True, slots=True)
class Placement:
    """Where an entry's packed data starts, and the extra fields of its local header."""

    data_offset: int
    local_extra: Mapping[int, bytes]


def place(
    source: ArchiveSource,
    directory_offset: int,
    names: Sequence[str],
    headers: Sequence[CentralHeader],
    decoder: NameDecoder,
) -> list[Placement]:
    """The placement of each entry, in the order given; raises ArchiveRefusedError."""
    order = sorted(range(len(headers)), key=lambda index: headers[index].offset)
    starts = [headers[index].offset for index in order]
    _check_bounds(starts, directory_offset)
    ends = [*starts, directory_offset][1:]
    placements: dict[int, Placement] = {}
    for index, end in zip(order, ends, strict=True):
        placements[index] = _Piece(source, names[index], headers[index], end).placement(decoder)
    return [placements[index] for index in range(len(headers))]


def _check_bounds(starts: Sequence[int], directory_offset: int) -> None:
    first = starts[0] if starts else directory_offset
    if first != 0:
        raise _malformed(
            f"the archive is malformed: {first} bytes come before its first entry; pack the files"
            " anew, not as a self-extracting program"
        )
    if starts and starts[-1] >= directory_offset:
        raise _malformed(
            f"the archive is malformed: an entry is said to start at byte {starts[-1]}, behind the"
            f" start of the central directory at byte {directory_offset}; pack the files anew"
        )


class _Piece:
    """The bytes from one entry's offset to the next one's, and what is wrong with them."""

    def __init__(self, source: ArchiveSource, name: str, header: CentralHeader, end: int) -> None:
        self._source = source
        self._name = name
        self._header = header
        self._end = end

    def placement(self, decoder: NameDecoder) -> Placement:
        header = self._header
        if header.offset + LOCAL.size > self._end:
            raise self._overlapping(header.offset + LOCAL.size)
        local = self._local_header()
        self._check_agreement(local)
        if decoder.local_name(local, self._name) != self._name:
            raise self._malformed("has another name in the Unicode field of its local header")
        data_offset = header.offset + local.header_size_bytes
        self._check_tail(data_offset + header.packed_size_bytes, local)
        return Placement(data_offset, local.extra)

    def _local_header(self) -> LocalHeader:
        offset = self._header.offset
        fixed = self._source.read(offset, LOCAL.size)
        if not fixed.startswith(LOCAL_MAGIC):
            raise self._malformed(f"has no local header at byte {offset}")
        length = local_variable_length(fixed)
        if offset + LOCAL.size + length > self._end:
            raise self._overlapping(offset + LOCAL.size + length)
        try:
            return parse_local(fixed, self._source.read(offset + LOCAL.size, length))
        except RecordError as error:
            raise self._malformed(f"has a broken local header: {error}") from None

    def _check_agreement(self, local: LocalHeader) -> None:
        """What the two headers both say must be the same, or readers differ on the file."""
        header = self._header
        if local.raw_name != header.raw_name:
            raise self._malformed(f"is called {quoted(local.raw_name)} in its local header")
        differing = local.flags ^ header.flags
        if local.flags & FLAG_ENCRYPTED:
            raise self._malformed("is encrypted by its local header alone")
        if differing & FLAG_UTF8 and not header.raw_name.isascii():
            raise self._malformed("is named in UTF-8 by one of its two headers only")
        for field in ("method", "crc", "packed_size_bytes", "size_bytes"):
            here, there = getattr(local, field), getattr(header, field)
            if here != there and not (field != "method" and _left_open(local, here)):
                raise self._malformed(
                    f"says {field} {here} in its local header and {there} in the central directory"
                )

    def _check_tail(self, data_end: int, local: LocalHeader) -> None:
        rest = self._end - data_end
        if rest < 0:
            raise self._overlapping(data_end)
        described = (local.flags | self._header.flags) & FLAG_DESCRIPTOR
        if not rest and not (described and _is_open(local, self._header)):
            return
        if described and rest <= _DESCRIPTOR_BYTES_MAX:
            found = self._source.read(data_end, rest)
            if found in descriptor_forms(self._header):
                return
            raise self._malformed(f"is followed by {rest} bytes that are no data descriptor for it")
        raise self._malformed(f"is followed by {rest} bytes that belong to no record")

    def _overlapping(self, needed_end: int) -> ArchiveRefusedError:
        return ArchiveRefusedError(
            RefusalReason.OVERLAPPING_ENTRIES,
            f"entry {quoted(self._name)} takes the bytes from {self._header.offset} to"
            f" {needed_end}, and the next record starts at {self._end}; pack the files anew",
        )

    def _malformed(self, what: str) -> ArchiveRefusedError:
        return _malformed(f"entry {quoted(self._name)} {what}; pack the files anew")


def _left_open(local: LocalHeader, value: int) -> bool:
    """Whether the local header may leave this value to the data descriptor."""
    return bool(local.flags & FLAG_DESCRIPTOR) and value in {0, FULL_32}


def _is_open(local: LocalHeader, header: CentralHeader) -> bool:
    """Whether the local header leaves out what only a descriptor can then say."""
    said = (local.crc, local.packed_size_bytes, local.size_bytes)
    return said != (header.crc, header.packed_size_bytes, header.size_bytes)


def _malformed(message: str) -> ArchiveRefusedError:
    return ArchiveRefusedError(RefusalReason.MALFORMED, message)
