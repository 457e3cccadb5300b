"""Unpacks an entry's data in bounded pieces, so that it can be counted and checked."""

import bz2
import itertools
import lzma
import struct
import zlib
from collections.abc import Iterator
from typing import Protocol

from node_agent.capabilities.archive_clean.entries import Entry
from node_agent.capabilities.archive_clean.limits import CHUNK_BYTES, CleanLimits
from node_agent.capabilities.archive_clean.records import (
    BZIP2,
    DEFLATED,
    FLAG_LZMA_END_MARKER,
    STORED,
)
from node_agent.capabilities.archive_clean.refusals import (
    ArchiveRefusedError,
    RefusalReason,
    quoted,
)

_LZMA_PROPERTIES = struct.Struct("<2xHBI")
_LZMA_PROPERTIES_BYTES, _LZMA_DICTIONARY_BYTES_MIN = 5, 4096

# bz2 reports broken data as OSError, which is why only decompress calls are guarded.
_BROKEN_DATA = (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError)


class _Decoder(Protocol):
    """What bz2 and lzma offer, and deflate with a little help."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


def inflated(entry: Entry, packed: Iterator[bytes], limits: CleanLimits) -> Iterator[bytes]:
    """The entry's content in pieces, from its packed bytes in pieces.

    Raises:
        ArchiveRefusedError: ARCHIVE_MALFORMED for a stream that is broken, ends early or goes on
            after its end; ARCHIVE_TOO_LARGE for an LZMA dictionary over the limit.
    """
    if entry.header.method == STORED:
        return packed
    return _decoded(entry, packed, limits)


def _decoded(entry: Entry, packed: Iterator[bytes], limits: CleanLimits) -> Iterator[bytes]:
    decoder, data = _start(entry, next(packed, b""), limits)
    for chunk in itertools.chain((data,), packed):
        if decoder.eof and chunk:
            raise _surplus(entry, chunk)
        yield _step(entry, decoder, chunk)
        while not decoder.eof and not decoder.needs_input:
            yield _step(entry, decoder, b"")
    if not decoder.eof:
        raise _malformed(entry, "ends before the end mark of its packed data")
    if decoder.unused_data:
        raise _surplus(entry, decoder.unused_data)


def _step(entry: Entry, decoder: _Decoder, data: bytes) -> bytes:
    if decoder.eof:
        return b""
    try:
        return decoder.decompress(data, CHUNK_BYTES)
    except _BROKEN_DATA as error:
        raise _malformed(entry, f"holds data that cannot be unpacked ({error})") from None


def _start(entry: Entry, first: bytes, limits: CleanLimits) -> tuple[_Decoder, bytes]:
    """The decoder for the entry's method, and what of the first bytes is data for it."""
    if entry.header.method == DEFLATED:
        return _Deflate(), first
    if entry.header.method == BZIP2:
        return bz2.BZ2Decompressor(), first
    raw_filter, data = _lzma_filter(entry, first, limits)
    try:
        decoder = lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=[raw_filter])
    except (lzma.LZMAError, ValueError) as error:
        raise _malformed(entry, f"has LZMA properties that cannot be ({error})") from None
    if entry.header.flags & FLAG_LZMA_END_MARKER:
        return decoder, data
    return _Counted(decoder, entry.header.size_bytes), data


def _lzma_filter(entry: Entry, first: bytes, limits: CleanLimits) -> tuple[dict[str, int], bytes]:
    """The filter that APPNOTE 5.8.8's header describes, and the data after the header."""
    if len(first) < _LZMA_PROPERTIES.size:
        raise _malformed(entry, "is too short for an LZMA header")
    length, packed_properties, dictionary = _LZMA_PROPERTIES.unpack_from(first)
    if length != _LZMA_PROPERTIES_BYTES:
        raise _malformed(entry, f"has LZMA properties of {length} bytes, not 5")
    # No stream refers back further than its own size, whatever window it asks for.
    dictionary = max(min(dictionary, entry.header.size_bytes), _LZMA_DICTIONARY_BYTES_MIN)
    if dictionary > limits.lzma_dictionary_bytes_max:
        raise ArchiveRefusedError(
            RefusalReason.TOO_LARGE,
            f"entry {quoted(entry.name)} needs an LZMA dictionary of {dictionary} bytes, over the"
            f" limit of {limits.lzma_dictionary_bytes_max}; pack it with a smaller one",
        )
    rest, lc = divmod(packed_properties, 9)
    pb, lp = divmod(rest, 5)
    properties = {"dict_size": dictionary, "lc": lc, "lp": lp, "pb": pb}
    return {"id": lzma.FILTER_LZMA1, **properties}, first[_LZMA_PROPERTIES.size :]


class _Deflate:
    """zlib with the interface of bz2: it keeps unread input, and says when it wants more."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(-zlib.MAX_WBITS)
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        piece = self._stream.decompress(self._stream.unconsumed_tail + data, max_length)
        # A full piece may leave output inside zlib even when all input is taken.
        self.needs_input = not self._stream.unconsumed_tail and len(piece) < max_length
        return piece


class _Counted:
    """LZMA without end marker: it is over when the declared size is reached.

    Asked for more, the decoder would make symbols up from the last bytes of the range coder.
    """

    def __init__(self, decoder: lzma.LZMADecompressor, size_bytes: int) -> None:
        self._decoder = decoder
        self._left = size_bytes
        self.unused_data = b""

    @property
    def eof(self) -> bool:
        return self._left == 0 or self._decoder.eof

    @property
    def needs_input(self) -> bool:
        return self._decoder.needs_input

    def decompress(self, data: bytes, max_length: int) -> bytes:
        piece = self._decoder.decompress(data, min(max_length, self._left))
        self._left -= len(piece)
        return piece


def _surplus(entry: Entry, data: bytes) -> ArchiveRefusedError:
    return _malformed(entry, f"goes on for {len(data)} bytes or more after its packed data's end")


def _malformed(entry: Entry, what: str) -> ArchiveRefusedError:
    return ArchiveRefusedError(
        RefusalReason.MALFORMED, f"entry {quoted(entry.name)} {what}; pack the files anew"
    )
