"""Comparing pictures where the text is, and where it is not."""

from __future__ import annotations

import io
from pathlib import Path

from PIL import Image, ImageChops

from node_agent.capabilities.image_watermark import Watermarker

CASES = Path(__file__).parents[3] / "cases"


def untouched(watermarker: Watermarker, size: tuple[int, int]) -> Image.Image:
    """255 where the watermark of a picture of that size leaves pixels alone."""
    masks = watermarker._job.pattern_for(size).masks((0, 0), size)
    if masks is None:
        return Image.new("L", size, 255)
    return masks[1].point([255, *[0] * 255])


def difference(before: Image.Image, after: Image.Image, mask: Image.Image) -> int:
    """The largest difference of any channel within the mask."""
    assert before.size == after.size
    planes = zip(before.split(), after.split(), strict=True)
    apart = (ImageChops.difference(left, right) for left, right in planes)
    return max(highest(ImageChops.darker(each, mask)) for each in apart)


def extremes(plane: Image.Image) -> tuple[float, float]:
    """The lowest and the highest value of a picture of one channel."""
    low, high = plane.getextrema()
    assert isinstance(low, (int, float))
    assert isinstance(high, (int, float))
    return low, high


def highest(plane: Image.Image) -> int:
    """The highest value of a picture of one channel."""
    return int(extremes(plane)[1])


def frames(data: bytes, mode: str = "RGBA") -> list[Image.Image]:
    """All frames as they are seen."""
    picture = Image.open(io.BytesIO(data))
    seen = []
    for number in range(getattr(picture, "n_frames", 1)):
        picture.seek(number)
        seen.append(picture.convert(mode))
    return seen


def visible(picture: Image.Image) -> Image.Image:
    """The picture on white, so that hidden colours do not count."""
    ground = Image.new("RGBA", picture.size, (255, 255, 255, 255))
    return Image.alpha_composite(ground, picture.convert("RGBA"))
