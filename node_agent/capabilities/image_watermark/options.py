"""How the text is to look, and how large a picture may be."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from node_agent.capabilities.image_watermark.refusals import TextReason, TextRefused, too_large


class Layout(StrEnum):
    """Where the text goes."""

    TILE = "tile"
    CENTRE = "centre"
    TOP_LEFT = "top_left"
    TOP_RIGHT = "top_right"
    BOTTOM_LEFT = "bottom_left"
    BOTTOM_RIGHT = "bottom_right"


@dataclass(frozen=True, slots=True)
class WatermarkOptions:
    """Look of the watermark.

    opacity: of the letters, over 0 to 1; the dark outline is fainter in proportion, and
        letters of few pixels are stronger, up to twice, or they would be lost.
    relative_size: height of the letters as a share of the shorter side, over 0 to 1;
        text too long for the picture is made smaller.
    angle_degrees: counter-clockwise, -90 to 90; None tilts tiles and keeps the rest level.

    Raises TextRefused (OPTIONS_INVALID) naming the option and its value.
    """

    layout: Layout = Layout.TILE
    opacity: float = 0.4
    relative_size: float = 0.05
    angle_degrees: float | None = None

    def __post_init__(self) -> None:
        """Check the ranges."""
        _require("opacity", self.opacity, 0 < self.opacity <= 1, "over 0 and at most 1")
        size_in_range = 0 < self.relative_size <= 1
        _require("relative_size", self.relative_size, size_in_range, "over 0 and at most 1")
        if self.angle_degrees is not None:
            angle_in_range = -90 <= self.angle_degrees <= 90  # noqa: PLR2004  a right angle
            _require("angle_degrees", self.angle_degrees, angle_in_range, "from -90 to 90")


def _require(name: str, value: float, in_range: bool, rule: str) -> None:  # noqa: FBT001  a verdict
    if not in_range:
        raise TextRefused(TextReason.OPTIONS_INVALID, f"{name} is {value}; it must be {rule}")


@dataclass(frozen=True, slots=True)
class ImageLimits:
    """Bounds checked from the header, before a pixel is decoded.

    pixels_max: of one frame or page; the default is 178 megapixels, 512 MiB as RGB.
    frames_max: frames, pages or pictures in one file.
    pixels_total_max: of all frames together, so that a small animation cannot take hours.
    file_bytes_max: of the file itself.
    """

    pixels_max: int = 178_956_970
    frames_max: int = 1_000
    pixels_total_max: int = 10 * 178_956_970
    file_bytes_max: int = 1 << 30

    def check_size(self, width: int, height: int) -> None:
        """Refuse a frame of too many pixels."""
        if width * height > self.pixels_max:
            message = f"{width} x {height} pixels exceed the limit of {self.pixels_max}"
            raise too_large(message)

    def check_frames(self, count: int, pixels_total: int) -> None:
        """Refuse too many frames, or frames of too many pixels together."""
        if count > self.frames_max:
            message = f"{count} frames exceed the limit of {self.frames_max}"
            raise too_large(message)
        if pixels_total > self.pixels_total_max:
            message = f"{pixels_total} pixels in all frames exceed {self.pixels_total_max}"
            raise too_large(message)

    def check_file(self, size_bytes: int) -> None:
        """Refuse a file too large to be held in memory."""
        if size_bytes > self.file_bytes_max:
            message = f"{size_bytes} bytes exceed the limit of {self.file_bytes_max}"
            raise too_large(message)
