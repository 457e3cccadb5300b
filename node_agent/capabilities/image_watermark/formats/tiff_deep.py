"""TIFF pages of 16 bits a sample in several channels, which Pillow reads and writes by halves.

Reading asks Pillow for the high and for the low bytes in turn. Writing saves the samples as
one wide grey page, under any compression that Pillow knows, and then tells the directory
what they are. Layout: TIFF 6.0, section 2.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from io import BytesIO

from PIL import Image, TiffImagePlugin

from node_agent.capabilities.image_watermark.deep import Channel, DeepPicture
from node_agent.capabilities.image_watermark.refusals import unsupported

_WIDTH, _BITS, _PHOTOMETRIC, _SAMPLES, _EXTRA = 256, 258, 262, 277, 338
_RGB, _SEPARATED, _GREY, _BLACK_IS_ZERO = 2, 5, 1, 1
_PHOTOMETRICS = {1: _BLACK_IS_ZERO, 3: _RGB, 4: _SEPARATED}
_UNASSOCIATED_ALPHA = 2
_SHORT = 3
_NATIVE = "L" if sys.byteorder == "little" else "B"
_OTHER_BYTE = {"L": "B", "B": "L", "N": "B" if _NATIVE == "L" else "L"}

Opened = Callable[[], TiffImagePlugin.TiffImageFile]


def is_deep(page: TiffImagePlugin.TiffImageFile) -> bool:
    """Tell whether Pillow would drop the low bytes of the page's channels."""
    bits = page.tag_v2.get(_BITS, (1,))
    return len(bits) > 1 and set(bits) == {16}


def read_deep(opened: Opened) -> DeepPicture:
    """Read a page; `opened` opens it anew each time, since one reading yields half of the bytes."""
    highs = _loaded(opened(), low=False)
    lows = _loaded(opened(), low=True)
    pairs = zip(highs.split(), lows.split(), strict=True)
    channels = tuple(Channel(high, low) for high, low in pairs)
    return DeepPicture.of(channels, has_alpha=highs.mode == "RGBA")


def _loaded(page: TiffImagePlugin.TiffImageFile, *, low: bool) -> Image.Image:
    tiles = []
    for tile in page.tile:
        layout, *rest = tile.args if isinstance(tile.args, tuple) else (tile.args,)
        name, _, order = str(layout).partition(";16")
        if name not in ("RGB", "RGBX", "RGBA", "CMYK") or order not in _OTHER_BYTE:
            message = f"a TIFF of 16-bit samples laid out as {layout}"
            raise unsupported(message)
        wanted = _OTHER_BYTE[order] if low else order
        arguments = (f"{name};16{wanted}", *rest)
        tiles.append(tile._replace(args=arguments))
    page.tile = tiles
    page.load()
    return page


def write_deep(picture: DeepPicture, options: dict[str, object]) -> bytes:
    """Write a page of its own file, little-endian; `options` are Pillow's for saving."""
    planes = [plane for channel in picture.channels for plane in (channel.low, channel.high)]
    samples = bytearray(len(planes) * picture.size[0] * picture.size[1])
    for index, plane in enumerate(planes):
        samples[index :: len(planes)] = plane.tobytes()
    wide = (len(picture.channels) * picture.size[0], picture.size[1])
    out = BytesIO()
    Image.frombytes("I;16", wide, bytes(samples)).save(out, "TIFF", **options)
    return _relabelled(out.getvalue(), picture)


def _relabelled(page: bytes, picture: DeepPicture) -> bytes:
    """Put a new directory behind the page; what the old one points to stays in place."""
    (directory,) = struct.unpack_from("<I", page, 4)
    (count,) = struct.unpack_from("<H", page, directory)
    raw = [page[directory + 2 + 12 * i : directory + 14 + 12 * i] for i in range(count)]
    entries = {struct.unpack_from("<H", entry)[0]: entry for entry in raw}
    samples = len(picture.channels)
    bits = struct.pack(f"<{samples}H", *[16] * samples)
    bits_at = len(page) + len(page) % 2
    entries[_WIDTH] = struct.pack("<HHII", _WIDTH, 4, 1, picture.size[0])
    if samples > 2:  # noqa: PLR2004  more do not fit into the entry itself
        entries[_BITS] = struct.pack("<HHII", _BITS, _SHORT, samples, bits_at)
    else:
        entries[_BITS] = struct.pack("<HHI", _BITS, _SHORT, samples) + bits.ljust(4, b"\0")
    entries[_PHOTOMETRIC] = _short(_PHOTOMETRIC, _PHOTOMETRICS[len(picture.colours)])
    entries[_SAMPLES] = _short(_SAMPLES, samples)
    if picture.alpha is not None:
        entries[_EXTRA] = _short(_EXTRA, _UNASSOCIATED_ALPHA)
    body = page.ljust(bits_at, b"\0") + bits
    table = struct.pack("<H", len(entries)) + b"".join(entries[tag] for tag in sorted(entries))
    return body[:4] + struct.pack("<I", len(body)) + body[8:] + table + bytes(4)


def _short(tag: int, value: int) -> bytes:
    return struct.pack("<HHIHH", tag, _SHORT, 1, value, 0)
