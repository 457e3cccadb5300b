"""What every format module is given, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from node_agent.capabilities.image_watermark.classification import ImageFormat
from node_agent.capabilities.image_watermark.options import ImageLimits
from node_agent.capabilities.image_watermark.pattern import Pattern, Size


@dataclass(frozen=True, slots=True)
class Job:
    """The watermark and the bounds, the same for all pictures.

    pattern_for: where the text goes on a picture of that size, as seen upright.
    """

    pattern_for: Callable[[Size], Pattern]
    limits: ImageLimits


@dataclass(frozen=True, slots=True)
class Edited:
    """A watermarked file.

    width, height: as seen, of the first frame or of the canvas.
    marked: False when the picture is too small to carry text.
    notes: what could not be kept, a sentence each.
    """

    data: bytes
    format: ImageFormat
    width: int
    height: int
    frames: int = 1
    marked: bool = True
    notes: tuple[str, ...] = ()
