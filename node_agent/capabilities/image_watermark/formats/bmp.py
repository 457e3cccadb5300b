"""BMP: read by Pillow, written by hand where it has opacity, which Pillow does not write."""

from __future__ import annotations

import struct
from io import BytesIO

from PIL import BmpImagePlugin, Image

from node_agent.capabilities.image_watermark.classification import ImageFormat
from node_agent.capabilities.image_watermark.job import Edited, Job
from node_agent.capabilities.image_watermark.paint import painted
from node_agent.capabilities.image_watermark.refusals import truncated, unsupported

_WIDER = {"1": "L", "P": "RGB"}
_HEADERS_BYTES = 14 + 108
_BITFIELDS = 3
_MASKS = (0x00FF0000, 0x0000FF00, 0x000000FF, 0xFF000000)
_SRGB = b"BGRs"


def edit(data: bytes, job: Job) -> Edited:
    """Watermark a BMP."""
    job.limits.check_size(*_size(data))
    source = BmpImagePlugin.BmpImageFile(BytesIO(data))
    job.limits.check_size(*source.size)
    source.load()
    resolution = source.info.get("dpi")
    mode = _WIDER.get(source.mode, source.mode)
    pattern = job.pattern_for(source.size)
    picture = painted(source if mode == source.mode else source.convert(mode), pattern)
    if not isinstance(picture, Image.Image):
        message = f"a BMP of mode {source.mode}"
        raise unsupported(message)
    return Edited(
        data=_with_alpha(picture) if mode == "RGBA" else _saved(picture, resolution),
        format=ImageFormat.BMP,
        width=picture.width,
        height=picture.height,
        marked=not pattern.is_empty,
        notes=() if mode == source.mode else (f"{source.mode} widened to {mode}",),
    )


def _size(data: bytes) -> tuple[int, int]:
    """A height below zero only tells the order of the rows."""
    if len(data) < 26:  # noqa: PLR2004  through the height of the shorter header
        message = "the BMP ends within its header"
        raise truncated(message)
    is_old = struct.unpack_from("<I", data, 14)[0] == 12  # noqa: PLR2004  BITMAPCOREHEADER
    width, height = struct.unpack_from("<HH" if is_old else "<ii", data, 18)
    return abs(width), abs(height)


def _saved(picture: Image.Image, resolution: object) -> bytes:
    out = BytesIO()
    picture.save(out, "BMP", **({} if resolution is None else {"dpi": resolution}))
    return out.getvalue()


def _with_alpha(picture: Image.Image) -> bytes:
    """BITMAPV4HEADER with a mask for each channel, rows from bottom to top."""
    rows = picture.tobytes("raw", "BGRA", 0, -1)
    head = struct.pack("<2sIHHI", b"BM", _HEADERS_BYTES + len(rows), 0, 0, _HEADERS_BYTES)
    info = struct.pack("<IiiHHIIiiII", 108, *picture.size, 1, 32, _BITFIELDS, len(rows), 0, 0, 0, 0)
    return b"".join((head, info, struct.pack("<4I", *_MASKS), _SRGB, bytes(48), rows))
