"""Where the stamps of one picture go."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from PIL import Image, ImageChops

from node_agent.capabilities.image_watermark.options import Layout, WatermarkOptions
from node_agent.capabilities.image_watermark.stamp import Stamp, TextBlock, TextPainter

Point = tuple[int, int]
Size = tuple[int, int]

SHORT_SIDE_PX_MIN = 6
"""Below this no letter is more than a smudge, and the picture stays without text."""

_TILE_ANGLE_DEGREES = 30.0
_LETTER_PX_MIN = 10
# A strip is written along its long side: slanted text would show a letter or two at a time.
_STRIP_RATIO = 5
_STRIP_LETTER_SHARE = 0.7
_FRAME_SHARE = 0.9
_LINES_MAX = 6
_LARGE_ENOUGH_SHARE = 0.75
_ROW_GAP_EMS, _COLUMN_GAP_EMS = 3.0, 2.5
_MARGIN_EMS = 0.5
# Bounds the work for a strip of a hundred million pixels.
_STAMPS_ALONG_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Pattern:
    """One stamp and the corners (left, top) at which it is set on the picture."""

    stamp: Stamp | None
    corners: tuple[Point, ...]

    @property
    def is_empty(self) -> bool:
        """Tell whether the picture is too small to carry text."""
        return self.stamp is None or not self.corners

    def within(self, origin: Point, size: Size) -> Iterator[tuple[Stamp, Point]]:
        """Give the stamps that touch a part of the picture, with corners relative to it."""
        if self.stamp is None:
            return
        width, height = self.stamp.size
        for left, top in self.corners:
            x, y = left - origin[0], top - origin[1]
            if -width < x < size[0] and -height < y < size[1]:
                yield self.stamp, (x, y)

    def masks(self, origin: Point, size: Size) -> tuple[Image.Image, Image.Image] | None:
        """Give shade and coverage of a part of the picture, None where it carries no text."""
        shade, coverage = Image.new("L", size, 0), Image.new("L", size, 0)
        for stamp, (x, y) in self.within(origin, size):
            _lighten(shade, stamp.shade, (x, y))
            _lighten(coverage, stamp.coverage, (x, y))
        return None if coverage.getbbox() is None else (shade, coverage)


def _lighten(canvas: Image.Image, layer: Image.Image, corner: Point) -> None:
    """Slanted stamps have empty corners that overlap their neighbours, which must not be erased."""
    box = (
        max(corner[0], 0),
        max(corner[1], 0),
        min(corner[0] + layer.width, canvas.width),
        min(corner[1] + layer.height, canvas.height),
    )
    part = layer.crop(
        (box[0] - corner[0], box[1] - corner[1], box[2] - corner[0], box[3] - corner[1])
    )
    canvas.paste(ImageChops.lighter(canvas.crop(box), part), box[:2])


def plan(size: Size, painter: TextPainter, options: WatermarkOptions) -> Pattern:
    """Choose letter height, angle and places for a picture of that size, as seen upright."""
    if min(size) < SHORT_SIDE_PX_MIN:
        return Pattern(None, ())
    angle = _angle(size, options)
    block, letter_px = _fitted(size, painter, angle, options)
    stamp = painter.stamp(block, letter_px, angle)
    if options.layout is Layout.TILE:
        centres = _lattice(size, stamp, block, letter_px, angle)
    else:
        centres = [_single(size, stamp.size, letter_px, options.layout)]
    width, height = stamp.size
    corners = ((round(x - width / 2), round(y - height / 2)) for x, y in centres)
    return Pattern(stamp, tuple(corners))


def _is_strip(size: Size) -> bool:
    return max(size) > _STRIP_RATIO * min(size)


def _angle(size: Size, options: WatermarkOptions) -> float:
    if options.angle_degrees is not None:
        return options.angle_degrees
    if _is_strip(size):
        return 0.0 if size[0] > size[1] else 90.0
    return _TILE_ANGLE_DEGREES if options.layout is Layout.TILE else 0.0


def _fitted(
    size: Size, painter: TextPainter, angle: float, options: WatermarkOptions
) -> tuple[TextBlock, int]:
    """Letters as high as asked for, in as few lines as let the text fit the picture.

    When no number of lines does, the one with the largest letters is taken, and letters too
    small to be read are enlarged again: part of the text is then cut off, or in the next tile.
    """
    is_strip = _is_strip(size)
    share = max(options.relative_size, _STRIP_LETTER_SHARE if is_strip else 0)
    wanted = max(share * min(size), _LETTER_PX_MIN)
    blocks = [painter.block(count) for count in range(1, 2 if is_strip else _LINES_MAX + 1)]
    fitting = [(min(wanted, _fitting_px(size, block, angle)), block) for block in blocks]
    enough = _LARGE_ENOUGH_SHARE * wanted
    letter_px, block = next(
        (pair for pair in fitting if pair[0] >= enough), max(fitting, key=lambda pair: pair[0])
    )
    readable = min(_LETTER_PX_MIN, round(_STRIP_LETTER_SHARE * min(size)))
    return block, max(1, readable, int(letter_px))


def _fitting_px(size: Size, block: TextBlock, angle: float) -> float:
    """The letter height at which the slanted block's frame fits the picture."""
    cosine, sine = abs(math.cos(math.radians(angle))), abs(math.sin(math.radians(angle)))
    width = block.width_ems * cosine + block.height_ems * sine
    height = block.width_ems * sine + block.height_ems * cosine
    return _FRAME_SHARE * min(size[0] / width, size[1] / height)


def _lattice(
    size: Size, stamp: Stamp, block: TextBlock, letter_px: int, angle: float
) -> list[tuple[float, float]]:
    """Rows of text along the angle, every other one shifted by half, one text at the centre."""
    columns = (block.width_ems + _COLUMN_GAP_EMS) * letter_px
    rows = (block.height_ems + _ROW_GAP_EMS) * letter_px
    cosine, sine = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    along_reach = (size[0] * cosine + size[1] * abs(sine)) / 2 + max(stamp.size)
    down_reach = (size[0] * abs(sine) + size[1] * cosine) / 2 + max(stamp.size)
    columns *= max(1.0, 2 * along_reach / columns / _STAMPS_ALONG_MAX)
    rows *= max(1.0, 2 * down_reach / rows / _STAMPS_ALONG_MAX)
    centres = []
    for row in range(-int(down_reach / rows) - 1, int(down_reach / rows) + 2):
        for column in range(-int(along_reach / columns) - 1, int(along_reach / columns) + 2):
            along, down = (column + row % 2 / 2) * columns, row * rows
            x = size[0] / 2 + along * cosine + down * sine
            y = size[1] / 2 - along * sine + down * cosine
            if _touches(x, size[0], stamp.size[0]) and _touches(y, size[1], stamp.size[1]):
                centres.append((x, y))
    return centres


def _touches(centre: float, side: int, extent: int) -> bool:
    return -extent / 2 < centre < side + extent / 2


def _single(size: Size, stamp: Size, letter_px: int, layout: Layout) -> tuple[float, float]:
    if layout is Layout.CENTRE:
        return size[0] / 2, size[1] / 2
    margin = _MARGIN_EMS * letter_px
    near = (margin + stamp[0] / 2, margin + stamp[1] / 2)
    far = (size[0] - near[0], size[1] - near[1])
    x = near[0] if layout in (Layout.TOP_LEFT, Layout.BOTTOM_LEFT) else far[0]
    y = near[1] if layout in (Layout.TOP_LEFT, Layout.TOP_RIGHT) else far[1]
    return x, y
