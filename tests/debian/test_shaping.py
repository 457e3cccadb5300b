"""Letters that join, with a font of Debian's that has them."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from PIL import Image, ImageChops, ImageDraw, ImageFont

from node_agent.capabilities.image_watermark import Watermarker, WatermarkFont
from node_agent.capabilities.image_watermark.font import has_shaper

pytestmark = pytest.mark.debian
FONT = Path("/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf")
# The word as it is written, and the joined forms of its letters as they are seen, left to right.
ARABIC = "\u0645\u0631\u062d\u0628\u0627"
ARABIC_FORMS = "\ufe8e\ufe92\ufea3\ufeae\ufee3"


def drawn(text: str, layout: ImageFont.Layout) -> Image.Image:
    """The text in black on white."""
    image = Image.new("L", (400, 120), 255)
    face = WatermarkFont(FONT).at(60, layout)
    ImageDraw.Draw(image).text((10, 10), text, font=face, fill=0)
    return image


def differing_px(one: Image.Image, other: Image.Image) -> int:
    """How many pixels differ by half of the scale or more."""
    return sum(ImageChops.difference(one, other).histogram()[128:])


def test_this_machine_can_shape() -> None:
    """Otherwise the tests below would show nothing."""
    assert has_shaper()


def test_arabic_is_joined_and_runs_to_the_left() -> None:
    """It looks as its joined forms do, and not as its letters one by one."""
    text, layout = WatermarkFont(FONT).prepared(ARABIC)
    shaped = drawn(text, layout)
    joined, apart = (drawn(one, ImageFont.Layout.BASIC) for one in (ARABIC_FORMS, ARABIC))
    # Fractions of a pixel differ, shapes do not.
    assert differing_px(shaped, joined) < 100
    assert differing_px(shaped, apart) > 1_000


def test_a_watermark_in_arabic_is_drawn() -> None:
    """With a font that covers it, nothing is refused."""
    page = io.BytesIO()
    Image.new("L", (300, 200), 255).save(page, "PNG")
    watermarker = Watermarker(ARABIC, font=WatermarkFont(FONT))
    marked = watermarker.watermark_bytes("a.png", page.getvalue())
    assert marked.marked
    shades = Image.open(io.BytesIO(marked.data)).convert("L").histogram()
    assert sum(shades[:250]) > 100
