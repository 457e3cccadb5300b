"""The text drawn once: how light each of its pixels is, and how much of the picture it covers."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import TypeVar

from PIL import Image, ImageChops, ImageDraw, ImageFilter

from node_agent.capabilities.image_watermark.font import WatermarkFont

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

_MEASURED_AT_PX = 100
_OUTLINE_SHARE = 1 / 16
_OUTLINE_OPACITY_SHARE = 0.8
_STAMPS_KEPT = 8
_WHITE = 255


@dataclass(frozen=True, slots=True)
class Stamp:
    """White letters with a dark outline, so that they show on light and on dark ground.

    shade: "L", from 0 (outline) to 255 (letter).
    coverage: "L", the weight of the shade against the picture, 255 hiding it wholly.
    """

    shade: Image.Image
    coverage: Image.Image

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return self.coverage.size


class RecentlyUsed(OrderedDict[_Key, _Value]):
    """A dictionary that forgets what was unused for longest."""

    def __init__(self, kept: int) -> None:
        super().__init__()
        self._kept = kept

    def keep(self, key: _Key, value: _Value) -> _Value:
        """Store a value, and drop the oldest one if there are too many."""
        self[key] = value
        while len(self) > self._kept:
            self.popitem(last=False)
        return value

    def recall(self, key: _Key) -> _Value | None:
        """Find a value and mark it as used."""
        if key not in self:
            return None
        self.move_to_end(key)
        return self[key]


class TextPainter:
    """Draws one text at any size and angle, and keeps what it drew."""

    def __init__(self, text: str, font: WatermarkFont, opacity: float) -> None:
        self._text = text
        self._font = font
        self._layout = font.layout_for(text)
        self._opacity = opacity
        self._stamps: RecentlyUsed[tuple[int, float], Stamp] = RecentlyUsed(_STAMPS_KEPT)
        measured = font.at(_MEASURED_AT_PX, self._layout).getlength(text)
        self.width_in_ems = max(measured / _MEASURED_AT_PX, 1 / _MEASURED_AT_PX)

    def stamp(self, size_px: int, angle_degrees: float) -> Stamp:
        """Give the text with letters of a height in pixels, turned counter-clockwise."""
        key = (size_px, angle_degrees)
        return self._stamps.recall(key) or self._stamps.keep(key, self._draw(*key))

    def _draw(self, size_px: int, angle_degrees: float) -> Stamp:
        outline_px = max(1, round(size_px * _OUTLINE_SHARE))
        letters = self._write(size_px, outline_px, 0)
        outline = self._write(size_px, outline_px, outline_px)
        softened = outline.filter(ImageFilter.GaussianBlur(outline_px / 2))
        letter_weight = self._opacity * _WHITE
        outline_weight = letter_weight * _OUTLINE_OPACITY_SHARE
        # Letters lie within their outline, so the two weights add up to the letters' own.
        coverage = ImageChops.lighter(
            _scaled(softened, outline_weight), _scaled(letters, letter_weight)
        )
        return Stamp(_turned(letters, angle_degrees), _turned(coverage, angle_degrees))

    def _write(self, size_px: int, outline_px: int, stroke_px: int) -> Image.Image:
        """Both layers share one canvas, with room for the outline and its soft edge."""
        font = self._font.at(size_px, self._layout)
        left, top, right, bottom = font.getbbox(self._text)
        margin = 3 * outline_px
        width, height = math.ceil(right - left), math.ceil(bottom - top)
        canvas = Image.new("L", (width + 2 * margin, height + 2 * margin), 0)
        place = (margin - left, margin - top)
        pen = ImageDraw.Draw(canvas)
        pen.text(place, self._text, fill=_WHITE, font=font, stroke_width=stroke_px)
        return canvas


def _scaled(mask: Image.Image, weight: float) -> Image.Image:
    return mask.point([round(level * weight / _WHITE) for level in range(_WHITE + 1)])


def _turned(mask: Image.Image, angle_degrees: float) -> Image.Image:
    if angle_degrees == 0:
        return mask
    return mask.rotate(angle_degrees, Image.Resampling.BICUBIC, expand=True)
