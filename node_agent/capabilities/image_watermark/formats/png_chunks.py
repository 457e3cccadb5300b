"""PNG as a list of chunks: checked, and kept as they are unless they describe the pixels.

Source: W3C PNG third edition, clauses 5 (chunks) and 11 (what is in them).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from node_agent.capabilities.image_watermark.refusals import truncated, unreadable, unsupported

SIGNATURE = b"\x89PNG\r\n\x1a\n"
GREY, TRUECOLOUR, PALETTE, GREY_ALPHA, TRUECOLOUR_ALPHA = 0, 2, 3, 4, 6
_CHANNELS = {GREY: 1, TRUECOLOUR: 3, PALETTE: 1, GREY_ALPHA: 2, TRUECOLOUR_ALPHA: 4}
_DEPTHS = {
    GREY: (1, 2, 4, 8, 16),
    TRUECOLOUR: (8, 16),
    PALETTE: (1, 2, 4, 8),
    GREY_ALPHA: (8, 16),
    TRUECOLOUR_ALPHA: (8, 16),
}
_KNOWN_CRITICAL = frozenset((b"IHDR", b"PLTE", b"IDAT", b"IEND"))
_ANIMATION = frozenset((b"acTL", b"fcTL", b"fdAT"))
_HEADER = struct.Struct(">IIBBBBB")
_FRAME_CONTROL = struct.Struct(">IIIIIHHBB")


@dataclass(frozen=True, slots=True)
class Chunk:
    """One chunk: its four letters and its content."""

    kind: bytes
    payload: bytes

    def pack(self) -> bytes:
        """Write it out with length and checksum."""
        checksum = zlib.crc32(self.kind + self.payload)
        size = struct.pack(">I", len(self.payload))
        return b"".join((size, self.kind, self.payload, struct.pack(">I", checksum)))


@dataclass(frozen=True, slots=True)
class Header:
    """IHDR."""

    width: int
    height: int
    depth: int
    colour: int
    interlaced: bool = False

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return self.width, self.height

    @property
    def channels(self) -> int:
        """Samples in a pixel."""
        return _CHANNELS[self.colour]

    def chunk(self) -> Chunk:
        """Write it out."""
        fields = (self.width, self.height, self.depth, self.colour, 0, 0, int(self.interlaced))
        return Chunk(b"IHDR", _HEADER.pack(*fields))


@dataclass(frozen=True, slots=True)
class FrameControl:
    """FcTL: where a frame of an animation goes; `timing` (delay, disposal, blending) is kept."""

    width: int
    height: int
    left: int
    top: int
    timing: tuple[int, int, int, int]

    @property
    def box(self) -> tuple[int, int, int, int]:
        """Left, top, right and bottom on the canvas."""
        return self.left, self.top, self.left + self.width, self.top + self.height

    @classmethod
    def read(cls, payload: bytes) -> FrameControl:
        """Take it from a chunk's content."""
        _sequence, width, height, left, top, *timing = _FRAME_CONTROL.unpack(payload)
        numerator, denominator, disposal, blending = timing
        return cls(width, height, left, top, (numerator, denominator, disposal, blending))

    def chunk(self, sequence: int) -> Chunk:
        """Write it out under a new sequence number."""
        fields = (sequence, self.width, self.height, self.left, self.top, *self.timing)
        return Chunk(b"fcTL", _FRAME_CONTROL.pack(*fields))


def read_header(data: bytes) -> Header:
    """Read IHDR without looking further."""
    if len(data) < len(SIGNATURE) + 8 + _HEADER.size:
        message = "the PNG ends within its header"
        raise truncated(message)
    width, height, depth, colour, compression, filtering, interlace = _HEADER.unpack_from(data, 16)
    if data[12:16] != b"IHDR" or depth not in _DEPTHS.get(colour, ()) or 0 in (width, height):
        message = f"no valid PNG header: {width} x {height}, depth {depth}, colour type {colour}"
        raise unreadable(message)
    if compression or filtering or interlace > 1:
        message = "the PNG uses a compression, filter or interlace method that no standard knows"
        raise unreadable(message)
    return Header(width, height, depth, colour, bool(interlace))


def read_chunks(data: bytes) -> tuple[list[Chunk], list[str]]:
    """Take the file apart; the second list tells which side information was damaged and left out.

    Raises ImageRefused when a chunk needed for the pixels is damaged, or the file ends early.
    """
    chunks, notes = [], []
    for kind, payload, is_sound in _walk(data):
        if not is_sound and (_is_critical(kind) or kind in _ANIMATION):
            message = f"the checksum of {_named(kind)} does not fit: the file was damaged"
            raise unreadable(message)
        if _is_critical(kind) and kind not in _KNOWN_CRITICAL:
            message = f"the PNG needs a reader that knows {_named(kind)}"
            raise unsupported(message)
        if is_sound:
            chunks.append(Chunk(kind, payload))
        else:
            notes.append(f"damaged {_named(kind)} chunk left out")
    return chunks, notes


def _walk(data: bytes) -> Iterator[tuple[bytes, bytes, bool]]:
    view, offset = memoryview(data), len(SIGNATURE)
    while True:
        start = offset + 8
        if start > len(data):
            message = "the PNG ends before its IEND chunk"
            raise truncated(message)
        (size,) = struct.unpack_from(">I", data, offset)
        kind, end = data[offset + 4 : start], start + size
        if end + 4 > len(data):
            message = f"the PNG ends within its {_named(kind)} chunk"
            raise truncated(message)
        (checksum,) = struct.unpack_from(">I", data, end)
        yield kind, bytes(view[start:end]), zlib.crc32(view[offset + 4 : end]) == checksum
        if kind == b"IEND":
            return
        offset = end + 4


def _is_critical(kind: bytes) -> bool:
    """A capital first letter: bit 5 of the first byte is clear."""
    return not kind[0] & 0x20


def _named(kind: bytes) -> str:
    return kind.decode("ascii", "backslashreplace")
