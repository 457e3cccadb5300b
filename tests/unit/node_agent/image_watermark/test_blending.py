"""Every mode shows the same text: the blend is one formula, whatever the samples are."""

from __future__ import annotations

import struct

import pytest
from PIL import Image, ImageChops

from node_agent.capabilities.image_watermark import Watermarker
from node_agent.capabilities.image_watermark.formats.jpeg_segments import APP14, read_head
from tests.cases.builders import image_builder as build
from tests.unit.node_agent.image_watermark.pixels import CASES, difference, frames

SIZE = (240, 160)
WHOLE = Image.new("L", SIZE, 255)


def grey_marked(watermarker: Watermarker, level: int) -> Image.Image:
    data = build.saved(Image.new("L", SIZE, level), "PNG")
    return build.opened(watermarker.watermark_bytes("a.png", data).data)


@pytest.mark.parametrize("level", [0, 100, 255])
def test_masks_and_stamps_paint_alike(level: int) -> None:
    """The mask of a part, which GIF and deep pictures use, is what pasting stamps does.

    The text is long, so that slanted stamps reach into the frames of their neighbours.
    """
    marker = Watermarker("CONFIDENTIAL 水印 SAMPLE")
    size = (640, 480)
    masks = marker._job.pattern_for(size).masks((0, 0), size)
    assert masks is not None
    ground = Image.new("L", size, level)
    edited = build.opened(marker.watermark_bytes("a.png", build.saved(ground, "PNG")).data)
    by_mask = Image.composite(masks[0], ground, masks[1])
    assert difference(by_mask, edited, Image.new("L", size, 255)) <= 2


@pytest.mark.parametrize("origin", [(0, 0), (33, 50), (-20, 7)])
def test_a_part_of_the_mask_is_the_mask_of_a_part(
    origin: tuple[int, int], watermarker: Watermarker
) -> None:
    """A frame at any place gets the text that the canvas has there."""
    pattern = watermarker._job.pattern_for(SIZE)
    whole, part = pattern.masks((-40, -40), (320, 240)), pattern.masks(origin, (90, 60))
    assert whole is not None
    assert part is not None
    left, top = origin[0] + 40, origin[1] + 40
    for large, small in zip(whole, part, strict=True):
        cut = large.crop((left, top, left + 90, top + 60))
        assert ImageChops.difference(cut, small).getbbox() is None


@pytest.mark.parametrize("level", [0, 128, 255])
def test_deep_samples_are_blended_as_shallow_ones(level: int, watermarker: Watermarker) -> None:
    """The high bytes of a 16-bit picture are those of its 8-bit twin, to within rounding."""
    rows = [struct.pack(f">{SIZE[0]}H", *[level * 257] * SIZE[0])] * SIZE[1]
    data = build.png(*SIZE, 16, build.GREY, rows)
    _, samples = build.png_samples(watermarker.watermark_bytes("a.png", data).data)
    high = Image.frombytes("L", SIZE, bytes(value >> 8 for row in samples for value in row))
    assert difference(high, grey_marked(watermarker, level), WHOLE) <= 2


@pytest.mark.parametrize("level", [0, 128, 255])
def test_inks_show_the_same_text_as_light(level: int, watermarker: Watermarker) -> None:
    """Black ink less the text looks like grey light with it: white letters, dark outline."""
    picture = Image.new("CMYK", SIZE, (0, 0, 0, 255 - level))
    data = build.saved(picture, "TIFF")
    after = build.opened(watermarker.watermark_bytes("a.tif", data).data)
    seen = ImageChops.invert(after.getchannel("K"))
    assert difference(seen, grey_marked(watermarker, level), WHOLE) <= 2
    assert after.getchannel("C").getextrema() == (0, 0)


def test_deep_inks_show_the_same_text_as_shallow_ones(watermarker: Watermarker) -> None:
    """Of four deep inks only black carries the outline, and all give way to the letters."""
    size = (97, 61)
    deep = build.opened(watermarker.watermark_bytes("a.tif", build.deep_tiff(*size, 4)).data)
    flat = build.opened(build.deep_tiff(*size, 4))
    data = build.saved(flat, "TIFF")
    shallow = build.opened(watermarker.watermark_bytes("a.tif", data).data)
    assert difference(deep, shallow, Image.new("L", size, 255)) <= 3


@pytest.mark.parametrize("mode", ["F", "I"])
def test_numbers_are_blended_between_their_extremes(mode: str, watermarker: Watermarker) -> None:
    """Letters take the lightest and outlines the darkest value of the page."""
    ramp = Image.linear_gradient("L").resize(SIZE)
    data = build.saved(ramp.convert(mode), "TIFF")
    after = build.opened(watermarker.watermark_bytes("a.tif", data).data).convert("L")
    twin = build.opened(watermarker.watermark_bytes("a.png", build.saved(ramp, "PNG")).data)
    assert difference(after, twin, WHOLE) <= 3


def test_no_pixel_of_a_full_palette_becomes_clear(watermarker: Watermarker) -> None:
    """With all 256 entries in use, no blended colour falls on the transparent one."""
    picture = Image.linear_gradient("L").resize((512, 256)).transpose(Image.Transpose.ROTATE_90)
    picture = Image.frombytes("P", picture.size, picture.tobytes())
    picture.putpalette([level for grey in range(256) for level in (grey, grey, grey)])
    data = build.saved(picture, "GIF", transparency=120, optimize=False)
    before, after = (
        frames(each)[0].getchannel("A")
        for each in (data, watermarker.watermark_bytes("a.gif", data).data)
    )
    assert before.getextrema() == (0, 255)
    assert before.tobytes() == after.tobytes()


def test_jpeg_says_once_how_its_colours_are_coded(watermarker: Watermarker) -> None:
    """The Adobe segment is the new file's own; two of them could contradict each other."""
    data = (CASES / "image/jpeg-cmyk-adobe.jpg").read_bytes()
    head = read_head(watermarker.watermark_bytes("a.jpg", data).data)
    assert [segment.marker for segment in head.segments].count(APP14) == 1
