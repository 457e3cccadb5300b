"""GIF as a list of blocks: frames apart from everything that is kept as it is.

Source: GIF89a specification, sections 17 to 27.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from node_agent.capabilities.image_watermark.refusals import truncated, unreadable

_EXTENSION, _IMAGE, _TRAILER = 0x21, 0x2C, 0x3B
_GRAPHIC_CONTROL = 0xF9
_HAS_TABLE, _INTERLACED, _TABLE_BITS = 0x80, 0x40, 0x07
_TRANSPARENT = 0x01
_SCREEN_BYTES = 13
_CODE_BITS_MAX = 11


@dataclass(frozen=True, slots=True)
class Frame:
    """One image block.

    palette: the colour table in force, its own or that of the file.
    transparent: the index that shows what is below, or None.
    data: LZW codes in sub-blocks, with their closing zero.
    """

    left: int
    top: int
    width: int
    height: int
    interlaced: bool
    palette: bytes
    transparent: int | None
    code_bits: int
    data: bytes
    raw: bytes

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return self.width, self.height


@dataclass(frozen=True, slots=True)
class GifFile:
    """The logical screen, and the blocks behind it: bytes that are kept, and frames."""

    head: bytes
    width: int
    height: int
    blocks: tuple[bytes | Frame, ...]

    def frames(self) -> list[Frame]:
        """Give the frames in order."""
        return [block for block in self.blocks if isinstance(block, Frame)]


def read_screen(data: bytes) -> tuple[int, int]:
    """Read the size of the logical screen without looking further."""
    if len(data) < _SCREEN_BYTES:
        message = "the GIF ends within its header"
        raise truncated(message)
    width, height = struct.unpack_from("<HH", data, 6)
    return width, height


def read_gif(data: bytes) -> GifFile:
    """Take the file apart; raises ImageRefused when it ends early or holds an unknown block."""
    width, height = read_screen(data)
    try:
        return _Reader(data).file(width, height)
    except (IndexError, struct.error) as error:
        message = "the GIF ends within a block"
        raise truncated(message) from error


def write_frame(frame: Frame, palette: bytes, data: bytes) -> bytes:
    """Write an image block with a colour table of its own, 256 entries, and 8-bit LZW data."""
    place = struct.pack("<BHHHH", _IMAGE, frame.left, frame.top, frame.width, frame.height)
    return b"".join((place, bytes([_HAS_TABLE | 7]), palette.ljust(768, b"\0"), b"\x08", data))


class _Reader:
    """Walks through the blocks."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = _SCREEN_BYTES
        self._global = b""
        self._transparent: int | None = None

    def file(self, width: int, height: int) -> GifFile:
        flags = self._data[10]
        if flags & _HAS_TABLE:
            self._global = self._take(3 << ((flags & _TABLE_BITS) + 1))
        head = self._data[: self._at]
        blocks: list[bytes | Frame] = []
        while (kind := self._data[self._at]) != _TRAILER:
            if kind == _IMAGE:
                blocks.append(self._frame())
            elif kind == _EXTENSION:
                blocks.append(self._extension())
            else:
                message = f"byte {kind:#04x} at {self._at} starts no GIF block"
                raise unreadable(message)
        return GifFile(head, width, height, tuple(blocks))

    def _take(self, size: int) -> bytes:
        part = self._data[self._at : self._at + size]
        if len(part) < size:
            raise IndexError(self._at)
        self._at += size
        return part

    def _sub_blocks(self) -> bytes:
        start = self._at
        while size := self._data[self._at]:
            self._at += 1 + size
        self._at += 1
        return self._data[start : self._at]

    def _extension(self) -> bytes:
        start = self._at
        label = self._data[start + 1]
        self._at += 2
        content = self._sub_blocks()
        if label == _GRAPHIC_CONTROL:
            self._transparent = content[4] if content[1] & _TRANSPARENT else None
        return self._data[start : self._at]

    def _frame(self) -> Frame:
        start = self._at
        left, top, width, height, flags = struct.unpack("<HHHHB", self._take(10)[1:])
        palette = self._global
        if flags & _HAS_TABLE:
            palette = self._take(3 << ((flags & _TABLE_BITS) + 1))
        (code_bits,) = self._take(1)
        data = self._sub_blocks()
        if not 1 <= code_bits <= _CODE_BITS_MAX or 0 in (width, height):
            message = f"a GIF frame of {width} x {height} pixels with {code_bits}-bit codes"
            raise unreadable(message)
        frame = Frame(
            left,
            top,
            width,
            height,
            interlaced=bool(flags & _INTERLACED),
            palette=palette,
            transparent=self._transparent,
            code_bits=code_bits,
            data=data,
            raw=self._data[start : self._at],
        )
        self._transparent = None
        return frame
