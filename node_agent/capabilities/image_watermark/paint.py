"""Sets the text on pictures of every mode; opacity and other channels stay as they are."""

from __future__ import annotations

from PIL import Image

from node_agent.capabilities.image_watermark.deep import DeepPicture, numbers_painted
from node_agent.capabilities.image_watermark.exif import Turn
from node_agent.capabilities.image_watermark.pattern import Pattern, Point
from node_agent.capabilities.image_watermark.stamp import Stamp

Picture = Image.Image | DeepPicture
PAINTABLE_MODES = frozenset(("L", "LA", "RGB", "RGBA", "CMYK", "LAB", "I", "F"))

_OPAQUE = 255
_NEUTRAL = 128
_INVERTED = [255 - level for level in range(256)]


def turned(picture: Picture, turn: Turn) -> Picture:
    """Give the picture as it is seen."""
    if isinstance(picture, DeepPicture):
        return picture.turned(turn)
    return picture if turn.transpose is None else picture.transpose(turn.transpose)


def painted(picture: Picture, pattern: Pattern, origin: Point = (0, 0)) -> Picture:
    """Give the picture with the text; `origin` is its own place on the canvas of the pattern.

    The mode stays. The picture handed over may be changed in place.
    """
    if pattern.is_empty:
        return picture
    if isinstance(picture, DeepPicture):
        return picture.painted(pattern, origin)
    if picture.mode in ("I", "F"):
        return numbers_painted(picture, pattern, origin)
    return _pasted(picture, pattern, origin)


def _pasted(picture: Image.Image, pattern: Pattern, origin: Point) -> Image.Image:
    if picture.mode == "LA":
        grey, opacity = picture.split()
        return Image.merge("LA", (_pasted(grey, pattern, origin), opacity))
    alpha = picture.getchannel("A") if picture.mode == "RGBA" else None
    for stamp, corner in pattern.within(origin, picture.size):
        picture.paste(_ink(stamp, picture.mode), corner, stamp.coverage)
    if alpha is not None:
        picture.putalpha(alpha)
    return picture


def _ink(stamp: Stamp, mode: str) -> Image.Image:
    """The stamp's shade in the colours of the mode."""
    shade, size = stamp.shade, stamp.size
    if mode == "L":
        return shade
    if mode == "CMYK":
        none = Image.new("L", size, 0)
        return Image.merge(mode, (none, none, none, shade.point(_INVERTED)))
    if mode == "LAB":
        neutral = Image.new("L", size, _NEUTRAL)
        return Image.merge(mode, (shade, neutral, neutral))
    if mode == "RGBA":
        return Image.merge(mode, (shade, shade, shade, Image.new("L", size, _OPAQUE)))
    return Image.merge("RGB", (shade, shade, shade))
