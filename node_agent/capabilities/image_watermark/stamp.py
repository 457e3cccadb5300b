"""The text drawn once: how light each of its pixels is, and how much of the picture it covers."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import TypeVar

from PIL import Image, ImageChops, ImageDraw, ImageFilter

from node_agent.capabilities.image_watermark.font import WatermarkFont
from node_agent.capabilities.image_watermark.lines import broken

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

_MEASURED_AT_PX = 100
_OUTLINE_SHARE = 1 / 16
_OUTLINE_OPACITY_SHARE = 0.8
_STAMPS_KEPT = 8
_CRISP_PX, _SCALE_MAX = 64, 6
_SMALL_PX = 24
LINE_PITCH_EMS = 1.3
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


@dataclass(frozen=True, slots=True)
class TextBlock:
    """The text in a number of lines, measured in letter heights (ems)."""

    lines: tuple[str, ...]
    width_ems: float

    @property
    def height_ems(self) -> float:
        """From the top of the first line to the foot of the last."""
        return 1 + (len(self.lines) - 1) * LINE_PITCH_EMS


class TextPainter:
    """Draws one text at any size and angle, and keeps what it drew."""

    def __init__(self, text: str, font: WatermarkFont, opacity: float) -> None:
        self._font = font
        self._text, self._layout = font.prepared(text)
        self._opacity = opacity
        self._stamps: RecentlyUsed[tuple[TextBlock, int, float], Stamp] = RecentlyUsed(_STAMPS_KEPT)
        self._blocks: dict[int, TextBlock] = {}

    def block(self, line_count: int) -> TextBlock:
        """Break the text into at most so many lines."""
        if line_count not in self._blocks:
            lines = broken(self._text, line_count)
            face = self._font.at(_MEASURED_AT_PX, self._layout)
            widest = max(face.getlength(line) for line in lines)
            self._blocks[line_count] = TextBlock(lines, max(widest, 1) / _MEASURED_AT_PX)
        return self._blocks[line_count]

    def stamp(self, block: TextBlock, letter_px: int, angle_degrees: float) -> Stamp:
        """Give the block with letters of a height in pixels, turned counter-clockwise."""
        key = (block, letter_px, angle_degrees)
        return self._stamps.recall(key) or self._stamps.keep(key, self._draw(*key))

    def _draw(self, block: TextBlock, letter_px: int, angle_degrees: float) -> Stamp:
        """Small letters are drawn larger and scaled down, or turning would blur them."""
        scale = min(_SCALE_MAX, math.ceil(_CRISP_PX / letter_px))
        drawn_px = letter_px * scale
        outline_px = max(1, round(drawn_px * _OUTLINE_SHARE))
        letters = self._write(block, drawn_px, outline_px, 0)
        outline = self._write(block, drawn_px, outline_px, outline_px)
        softened = outline.filter(ImageFilter.GaussianBlur(outline_px / 2))
        letter_weight = self._weight(letter_px)
        coverage = ImageChops.lighter(
            _weighted(softened, letter_weight * _OUTLINE_OPACITY_SHARE),
            _weighted(letters, letter_weight),
        )
        return Stamp(
            _placed(letters, angle_degrees, scale), _placed(coverage, angle_degrees, scale)
        )

    def _weight(self, letter_px: int) -> float:
        """Strokes thinner than a pixel need more weight to be seen as clearly."""
        thinness = max(0.0, 1 - letter_px / _SMALL_PX)
        return min(1.0, self._opacity * (1 + thinness)) * _WHITE

    def _write(
        self, block: TextBlock, letter_px: int, outline_px: int, stroke_px: int
    ) -> Image.Image:
        """Both layers share one canvas, with room for the outline and its soft edge."""
        font = self._font.at(letter_px, self._layout)
        pitch = round(LINE_PITCH_EMS * letter_px)
        boxes = [font.getbbox(line) for line in block.lines]
        top = min(box[1] + pitch * row for row, box in enumerate(boxes))
        bottom = max(box[3] + pitch * row for row, box in enumerate(boxes))
        width = math.ceil(max(box[2] - box[0] for box in boxes))
        margin = 3 * outline_px
        size = (width + 2 * margin, math.ceil(bottom - top) + 2 * margin)
        canvas = Image.new("L", size, 0)
        pen = ImageDraw.Draw(canvas)
        for row, (line, box) in enumerate(zip(block.lines, boxes, strict=True)):
            left = margin - box[0] + (width - (box[2] - box[0])) / 2
            place = (left, margin - top + pitch * row)
            pen.text(place, line, fill=_WHITE, font=font, stroke_width=stroke_px)
        return canvas


def _weighted(mask: Image.Image, weight: float) -> Image.Image:
    return mask.point([round(level * weight / _WHITE) for level in range(_WHITE + 1)])


def _placed(mask: Image.Image, angle_degrees: float, scale: int) -> Image.Image:
    if angle_degrees != 0:
        mask = mask.rotate(angle_degrees, Image.Resampling.BICUBIC, expand=True)
    return mask.reduce(scale) if scale > 1 else mask
