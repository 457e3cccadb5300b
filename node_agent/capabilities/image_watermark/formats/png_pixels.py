"""Pixels of a PNG, of any depth and colour type, to and from a picture.

Pillow's "zip" codec undoes and applies filters and interlace for whatever row layout it is
told; for 16 bits it is asked for the high and for the low bytes in turn.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace

from PIL import Image, ImageChops

from node_agent.capabilities.image_watermark.deep import Channel, DeepPicture
from node_agent.capabilities.image_watermark.formats.png_chunks import (
    GREY,
    GREY_ALPHA,
    PALETTE,
    TRUECOLOUR,
    TRUECOLOUR_ALPHA,
    Header,
)
from node_agent.capabilities.image_watermark.paint import Picture
from node_agent.capabilities.image_watermark.refusals import truncated, unreadable

_DEEP = 16
_LEVEL = 6
_STRIP_BYTES = 1 << 22
_SUB, _UP = 1, 2
# Row layouts (Pillow's raw modes) of depths up to 8.
_MODES = {
    (1, GREY): ("1", "1"),
    (2, GREY): ("L", "L;2"),
    (4, GREY): ("L", "L;4"),
    (8, GREY): ("L", "L"),
    (8, TRUECOLOUR): ("RGB", "RGB"),
    (1, PALETTE): ("P", "P;1"),
    (2, PALETTE): ("P", "P;2"),
    (4, PALETTE): ("P", "P;4"),
    (8, PALETTE): ("P", "P"),
    (8, GREY_ALPHA): ("LA", "LA"),
    (8, TRUECOLOUR_ALPHA): ("RGBA", "RGBA"),
}
_COLOURS = {"L": GREY, "LA": GREY_ALPHA, "RGB": TRUECOLOUR, "RGBA": TRUECOLOUR_ALPHA}
_DEEP_COLOURS = {1: GREY, 2: GREY_ALPHA, 3: TRUECOLOUR, 4: TRUECOLOUR_ALPHA}


def decode(header: Header, data: bytes, palette: bytes, transparency: bytes | None) -> Picture:
    """Unpack IDAT content; a palette and a transparent colour become channels of their own.

    palette, transparency: contents of PLTE and tRNS.
    """
    if header.depth == _DEEP:
        return _decode_deep(header, data, transparency)
    mode, layout = _MODES[header.depth, header.colour]
    picture = _unpacked(header, data, mode, layout)
    if header.colour == PALETTE:
        return _looked_up(picture, palette, transparency)
    if mode == "1":
        picture = picture.convert("L")
    if transparency is None:
        return picture
    return _keyed(picture, _key(header, transparency))


def _unpacked(header: Header, data: bytes, mode: str, layout: str) -> Image.Image:
    try:
        return Image.frombytes(mode, header.size, data, "zip", layout, int(header.interlaced))
    except ValueError as error:
        if "not enough" in str(error):
            message = "the image data end before the last row"
            raise truncated(message) from error
        message = f"the image data are damaged: {error}"
        raise unreadable(message) from error


def _looked_up(picture: Image.Image, palette: bytes, transparency: bytes | None) -> Image.Image:
    if not palette or len(palette) % 3:
        message = f"a palette of {len(palette)} bytes is not a list of colours"
        raise unreadable(message)
    picture.putpalette(palette[:768])
    if transparency is None:
        return picture.convert("RGB")
    opacities = transparency[:256].ljust(256, b"\xff")
    alpha = Image.frombytes("L", picture.size, picture.tobytes()).point(list(opacities))
    coloured = picture.convert("RGB")
    coloured.putalpha(alpha)
    return coloured


def _key(header: Header, transparency: bytes) -> tuple[int, ...]:
    """The transparent colour in the range of the unpacked samples."""
    count = header.channels
    if len(transparency) < 2 * count:
        message = f"a transparent colour of {len(transparency)} bytes is cut short"
        raise unreadable(message)
    widest = (1 << header.depth) - 1
    factor = 1 if header.depth >= 8 else 255 // widest  # noqa: PLR2004  bits of a byte
    return tuple(
        (value & widest) * factor for value in struct.unpack_from(f">{count}H", transparency)
    )


def _keyed(picture: Image.Image, key: tuple[int, ...]) -> Image.Image:
    picture.putalpha(_unlike(picture.split(), key))
    return picture


def _unlike(planes: tuple[Image.Image, ...], key: tuple[int, ...]) -> Image.Image:
    """0 where every plane has its key's value, 255 elsewhere."""
    masks = [
        plane.point([255 * (level != value) for level in range(256)])
        for plane, value in zip(planes, key, strict=True)
    ]
    whole = masks[0]
    for mask in masks[1:]:
        whole = ImageChops.lighter(whole, mask)
    return whole


def _decode_deep(header: Header, data: bytes, transparency: bytes | None) -> DeepPicture:
    channels = _deep_channels(header, data)
    has_alpha = header.colour in (GREY_ALPHA, TRUECOLOUR_ALPHA)
    if has_alpha or transparency is None:
        return DeepPicture.of(channels, has_alpha=has_alpha)
    key = _key(header, transparency)
    planes = tuple(plane for channel in channels for plane in (channel.high, channel.low))
    alpha = _unlike(planes, tuple(part for value in key for part in divmod(value, 256)))
    return DeepPicture(channels, Channel(alpha, alpha.copy()))


def _deep_channels(header: Header, data: bytes) -> tuple[Channel, ...]:
    """Two bytes of grey are read as two channels; for colour, Pillow keeps one byte of each two."""
    if header.colour in (GREY, GREY_ALPHA):
        mode = "LA" if header.colour == GREY else "RGBA"
        planes = _unpacked(header, data, mode, mode).split()
        return tuple(Channel(*planes[at : at + 2]) for at in range(0, len(planes), 2))
    mode = "RGB" if header.colour == TRUECOLOUR else "RGBA"
    highs = _unpacked(header, data, mode, f"{mode};16B").split()
    # Little-endian samples have their high byte second, where these have the low one.
    lows = _unpacked(header, data, mode, f"{mode};16L").split()
    return tuple(Channel(high, low) for high, low in zip(highs, lows, strict=True))


def encode(picture: Picture) -> tuple[Header, bytes]:
    """Pack a picture: its header, and the content of IDAT."""
    if isinstance(picture, DeepPicture):
        header = Header(*picture.size, _DEEP, _DEEP_COLOURS[len(picture.channels)])
        return header, _encode_deep(picture)
    header = Header(*picture.size, 8, _COLOURS[picture.mode])
    return header, picture.tobytes("zip", picture.mode, 0, _LEVEL, -1, b"")


def _encode_deep(picture: DeepPicture) -> bytes:
    """Filter and compress strips of rows, their bytes seen as one wide grey picture."""
    planes = [plane for channel in picture.channels for plane in (channel.high, channel.low)]
    stride = len(planes) * picture.size[0]
    rows_max = max(1, _STRIP_BYTES // stride)
    packer, above = zlib.compressobj(_LEVEL), Image.new("L", (stride, 1), 0)
    parts = []
    for top in range(0, picture.size[1], rows_max):
        bottom = min(picture.size[1], top + rows_max)
        rows = _interleaved([plane.crop((0, top, plane.width, bottom)) for plane in planes])
        parts.append(packer.compress(_filtered(rows, above)))
        above = rows.crop((0, rows.height - 1, stride, rows.height))
    return b"".join((*parts, packer.flush()))


def _interleaved(planes: list[Image.Image]) -> Image.Image:
    samples = bytearray(len(planes) * planes[0].width * planes[0].height)
    for index, plane in enumerate(planes):
        samples[index :: len(planes)] = plane.tobytes()
    return Image.frombytes("L", (len(planes) * planes[0].width, planes[0].height), bytes(samples))


def _filtered(rows: Image.Image, above: Image.Image) -> bytes:
    """Filter "up": each byte less the one above it."""
    shifted = Image.new("L", rows.size)
    shifted.paste(above, (0, 0))
    shifted.paste(rows.crop((0, 0, rows.width, rows.height - 1)), (0, 1))
    filtered = Image.new("L", (rows.width + 1, rows.height), _UP)
    filtered.paste(ImageChops.subtract_modulo(rows, shifted), (1, 0))
    return filtered.tobytes()


def resized(header: Header, size: tuple[int, int]) -> Header:
    """Give the header of a frame that is smaller than its canvas."""
    return replace(header, width=size[0], height=size[1])
