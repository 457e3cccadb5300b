"""Orientation in EXIF and XMP: found, applied by others, and reset in place.

The block is edited where it lies instead of being written anew, because maker notes hold
offsets of their own that a rewrite would break. Layout: TIFF 6.0 section 2, EXIF 2.32
clauses 4.5 and 4.6; turns: the orientation tag 0x0112.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

from PIL import Image

UPRIGHT = 1
EXIF_PREFIX = b"Exif\0\0"
_ORIENTATION, _EXIF_DIRECTORY = 0x0112, 0x8769
_PIXEL_WIDTH, _PIXEL_HEIGHT = 0xA002, 0xA003
_THUMBNAIL_OFFSET, _THUMBNAIL_BYTES = 0x0201, 0x0202
_SHORT, _LONG = 3, 4
_ENTRIES_MAX = 4_096

_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_LYING = frozenset((5, 6, 7, 8))
_XMP_ORIENTATION = re.compile(rb"(tiff:Orientation\s*(?:=\s*[\"']|>)\s*)[2-8]")

Box = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Turn:
    """How stored pixels become the picture as it is seen."""

    orientation: int = UPRIGHT

    @property
    def is_needed(self) -> bool:
        """Tell whether anything has to move."""
        return self.orientation in _TURNS

    @property
    def transpose(self) -> Image.Transpose | None:
        """Pillow's name for the turn."""
        return _TURNS.get(self.orientation)

    def size(self, stored: tuple[int, int]) -> tuple[int, int]:
        """Width and height as seen."""
        return (stored[1], stored[0]) if self.orientation in _LYING else stored

    def corner(self, box: Box, stored: tuple[int, int]) -> tuple[int, int]:
        """Give the left top corner, as seen, of a stored box (left, top, right, bottom)."""
        left, top, right, bottom = box
        width, height = stored
        from_right, from_bottom = width - right, height - bottom
        return {
            2: (from_right, top),
            3: (from_right, from_bottom),
            4: (left, from_bottom),
            5: (top, left),
            6: (from_bottom, left),
            7: (from_bottom, from_right),
            8: (top, from_right),
        }.get(self.orientation, (left, top))


class _Block:
    """An EXIF block and its directories, each entry found once."""

    def __init__(self, block: bytes) -> None:
        self.bytes = bytearray(block)
        self.order = {b"II*\0": "<", b"MM\0*": ">"}[bytes(block[:4])]

    def directory(self, offset: int) -> tuple[dict[int, int], int]:
        """Map the tags of a directory to their entries' places, and find its link to the next."""
        (count,) = struct.unpack_from(f"{self.order}H", self.bytes, offset)
        places = [offset + 2 + 12 * index for index in range(min(count, _ENTRIES_MAX))]
        entries = {struct.unpack_from(f"{self.order}H", self.bytes, at)[0]: at for at in places}
        return entries, offset + 2 + 12 * count

    def number(self, entry: int) -> int:
        """Read an entry that holds one SHORT or LONG."""
        (kind,) = struct.unpack_from(f"{self.order}H", self.bytes, entry + 2)
        (value,) = struct.unpack_from(
            self.order + {_SHORT: "H", _LONG: "I"}[kind], self.bytes, entry + 8
        )
        return int(value)

    def set_number(self, entry: int, value: int) -> None:
        """Write an entry that holds one SHORT or LONG, keeping its type."""
        (kind,) = struct.unpack_from(f"{self.order}H", self.bytes, entry + 2)
        struct.pack_into(self.order + {_SHORT: "H", _LONG: "I"}[kind], self.bytes, entry + 8, value)

    def link(self, place: int) -> int:
        """Read a directory's offset."""
        (offset,) = struct.unpack_from(f"{self.order}I", self.bytes, place)
        return int(offset)


_MALFORMED = (KeyError, IndexError, struct.error)


def read_turn(exif: bytes) -> Turn:
    """Find the turn that an EXIF block asks for; a damaged block or odd value asks for none."""
    try:
        block = _Block(_bare(exif))
        entries, _ = block.directory(block.link(4))
        return Turn(block.number(entries[_ORIENTATION]))
    except _MALFORMED:
        return Turn()


def upright_exif(exif: bytes, size: tuple[int, int]) -> bytes:
    """Say that the picture is upright and of that size, and drop the thumbnail without the text.

    A block that cannot be read is given back as it is.
    """
    prefix = exif[: len(exif) - len(_bare(exif))]
    try:
        block = _Block(_bare(exif))
        entries, next_link = block.directory(block.link(4))
        if _ORIENTATION in entries:
            block.set_number(entries[_ORIENTATION], UPRIGHT)
        _drop_thumbnail(block, next_link)
        if _EXIF_DIRECTORY in entries:
            _set_size(block, block.number(entries[_EXIF_DIRECTORY]), size)
    except _MALFORMED:
        return exif
    return prefix + bytes(block.bytes)


def upright_xmp(xmp: bytes) -> bytes:
    """Reset the orientation that XMP repeats, without changing its length."""
    return _XMP_ORIENTATION.sub(rb"\g<1>1", xmp)


def _bare(exif: bytes) -> bytes:
    return exif.removeprefix(EXIF_PREFIX)


def _drop_thumbnail(block: _Block, next_link: int) -> None:
    offset = block.link(next_link)
    if offset == 0:
        return
    entries, _ = block.directory(offset)
    struct.pack_into(f"{block.order}I", block.bytes, next_link, 0)
    if _THUMBNAIL_OFFSET in entries and _THUMBNAIL_BYTES in entries:
        start = block.number(entries[_THUMBNAIL_OFFSET])
        end = min(len(block.bytes), start + block.number(entries[_THUMBNAIL_BYTES]))
        block.bytes[start:end] = bytes(max(0, end - start))


def _set_size(block: _Block, offset: int, size: tuple[int, int]) -> None:
    entries, _ = block.directory(offset)
    for tag, value in zip((_PIXEL_WIDTH, _PIXEL_HEIGHT), size, strict=True):
        if tag in entries:
            block.set_number(entries[tag], value)
