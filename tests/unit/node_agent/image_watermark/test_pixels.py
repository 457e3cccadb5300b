"""Outside the text nothing changes but by the format's own loss; inside it something does."""

from __future__ import annotations

import io
import struct

import pytest
from PIL import Image, ImageFilter, JpegImagePlugin, TiffImagePlugin

from node_agent.capabilities.image_watermark import Watermarker
from tests.cases.builders import image_builder as build
from tests.unit.node_agent.image_watermark.pixels import difference, frames, untouched, visible

SIZE = (320, 200)


def everywhere(size: tuple[int, int]) -> Image.Image:
    return Image.new("L", size, 255)


def half_clear() -> Image.Image:
    picture = build.busy(*SIZE).convert("RGBA")
    picture.putalpha(Image.linear_gradient("L").resize(SIZE))
    return picture


LOSSLESS: dict[str, tuple[str, Image.Image, dict[str, object]]] = {
    "png-rgb": ("PNG", build.busy(*SIZE), {}),
    "png-grey": ("PNG", build.busy(*SIZE).convert("L"), {}),
    "png-grey-alpha": ("PNG", half_clear().convert("LA"), {}),
    "png-rgba": ("PNG", half_clear(), {}),
    "png-palette": ("PNG", build.busy(*SIZE).quantize(200), {}),
    "png-two-bit": ("PNG", build.quadrants(*SIZE).quantize(4), {"bits": 2}),
    "png-bilevel": ("PNG", build.busy(*SIZE).convert("1"), {}),
    "webp-lossless": ("WEBP", half_clear(), {"lossless": True, "exact": True}),
    "gif": ("GIF", build.quadrants(*SIZE).quantize(4), {}),
    "gif-full-palette": ("GIF", build.busy(*SIZE).quantize(256), {}),
    "bmp": ("BMP", build.busy(*SIZE), {}),
    "bmp-palette": ("BMP", build.busy(*SIZE).quantize(256), {}),
    "bmp-bilevel": ("BMP", build.busy(*SIZE).convert("1"), {}),
    "tiff-raw": ("TIFF", build.busy(*SIZE), {}),
    "tiff-lzw-alpha": ("TIFF", half_clear(), {"compression": "tiff_lzw"}),
    "tiff-packbits-palette": ("TIFF", build.busy(*SIZE).quantize(99), {"compression": "packbits"}),
    "tiff-deflate-inks": (
        "TIFF",
        build.busy(*SIZE).convert("CMYK"),
        {"compression": "tiff_adobe_deflate"},
    ),
    "tiff-lab": ("TIFF", Image.new("LAB", SIZE, (120, 140, 90)), {}),
    "tiff-float": ("TIFF", build.busy(*SIZE).convert("F"), {}),
    "tiff-integer": ("TIFF", build.busy(*SIZE).convert("I"), {}),
}


@pytest.mark.parametrize("name", LOSSLESS)
def test_lossless_formats_keep_every_pixel_outside_the_text(
    name: str, watermarker: Watermarker
) -> None:
    """Where no text is, a lossless picture comes back as it was; where it is, it shows."""
    file_format, picture, options = LOSSLESS[name]
    data = build.saved(picture, file_format, **options)
    edited = watermarker.watermark_bytes("a", data)
    before, after = build.opened(data), build.opened(edited.data)
    if before.mode != after.mode:
        mode = "RGBA" if "A" in before.mode or "transparency" in before.info else "RGB"
        before, after = before.convert(mode), after.convert(mode)
    assert edited.marked
    if before.mode in ("I", "F"):
        before, after = before.convert("L"), after.convert("L")
    assert difference(before, after, untouched(watermarker, SIZE)) == 0
    assert difference(before, after, everywhere(SIZE)) > 25


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize("options", [{"quality": 70}, {"quality": 95, "subsampling": 0}])
def test_jpeg_loses_no_more_than_coding_it_again_would(
    mode: str, options: dict[str, int], watermarker: Watermarker
) -> None:
    """Blocks without text come out as if the source had been saved again with its own tables."""
    data = build.saved(build.busy(*SIZE).convert(mode), "JPEG", **options)
    before = build.opened(data)
    again = build.opened(build.saved(before, "JPEG", quality="keep"))
    after = build.opened(watermarker.watermark_bytes("a.jpg", data).data)
    assert difference(again, after, clear_blocks(watermarker)) == 0
    assert difference(before, after, everywhere(SIZE)) > 25


def clear_blocks(watermarker: Watermarker) -> Image.Image:
    """Coding units of 16 x 16 that the text leaves alone, less the edges that neighbours blur."""
    padded = Image.new("L", (320, 208), 255)
    padded.paste(untouched(watermarker, SIZE), (0, 0))
    blocks = padded.reduce(16).point([0] * 255 + [255])
    inner = blocks.resize(padded.size, Image.Resampling.NEAREST).filter(ImageFilter.MinFilter(3))
    assert inner.getextrema() == (0, 255)
    return inner.crop((0, 0, *SIZE))


def test_jpeg_is_coded_as_its_source_was(watermarker: Watermarker) -> None:
    """Quantization, subsampling and progressive scans are those of the source."""
    options = {"quality": 71, "subsampling": 1, "progressive": True}
    data = build.saved(build.busy(), "JPEG", **options)
    before = build.opened(data)
    after = build.opened(watermarker.watermark_bytes("a.jpg", data).data)
    assert isinstance(before, JpegImagePlugin.JpegImageFile)
    assert isinstance(after, JpegImagePlugin.JpegImageFile)
    assert after.quantization == before.quantization
    assert after.info.get("progressive")
    assert [c[1:3] for c in after.layer] == [(2, 1), (1, 1), (1, 1)]


def test_opacity_is_never_touched(watermarker: Watermarker) -> None:
    """Clear pixels stay clear and half clear ones half clear, under the text too."""
    data = build.saved(half_clear(), "PNG")
    after = build.opened(watermarker.watermark_bytes("a.png", data).data)
    assert after.getchannel("A").tobytes() == half_clear().getchannel("A").tobytes()


@pytest.mark.parametrize(("depth", "key"), [(1, 1), (2, 2), (4, 5), (8, 77)], ids=str)
def test_grey_colour_key_of_any_depth_becomes_opacity(
    depth: int, key: int, watermarker: Watermarker
) -> None:
    """The transparent shade is found at each depth, and all other shades are opaque."""
    row = bytes(
        sum(key << shift for shift in range(0, 8, depth)) if depth < 8 else key for _ in range(40)
    )
    other = bytes(40)
    before = build.chunk(b"tRNS", struct.pack(">H", key))
    width = 40 * 8 // depth
    data = build.png(width, 64, depth, build.GREY, [row] * 32 + [other] * 32, before=before)
    after = build.opened(watermarker.watermark_bytes("a.png", data).data).convert("RGBA")
    alpha = after.getchannel("A")
    assert alpha.crop((0, 0, width, 32)).getextrema() == (0, 0)
    assert alpha.crop((0, 32, width, 64)).getextrema() == (255, 255)


def test_truecolour_key_becomes_opacity(watermarker: Watermarker) -> None:
    """Only pixels that match the key in all three channels are clear."""
    rows = [bytes((1, 2, 3) * 40 + (1, 2, 4) * 40)] * 64
    before = build.chunk(b"tRNS", struct.pack(">HHH", 1, 2, 3))
    data = build.png(80, 64, 8, build.TRUECOLOUR, rows, before=before)
    alpha = build.opened(watermarker.watermark_bytes("a.png", data).data).getchannel("A")
    assert alpha.crop((0, 0, 40, 64)).getextrema() == (0, 0)
    assert alpha.crop((40, 0, 80, 64)).getextrema() == (255, 255)


@pytest.mark.parametrize(
    "colour", [build.GREY, build.GREY_ALPHA, build.TRUECOLOUR, build.TRUECOLOUR_ALPHA]
)
def test_deep_png_keeps_every_bit_outside_the_text(colour: int, watermarker: Watermarker) -> None:
    """Samples of 16 bits are unchanged outside the text, differ inside, and opacity stays."""
    size = (97, 61)
    edited = watermarker.watermark_bytes("a.png", build.deep_png(*size, colour))
    channels, rows = build.png_samples(edited.data)
    assert edited.data[25] == colour
    compare_deep(rows, channels, size, watermarker, has_alpha=colour in (4, 6))


def tags_of(data: bytes) -> TiffImagePlugin.ImageFileDirectory_v2:
    return TiffImagePlugin.TiffImageFile(io.BytesIO(data)).tag_v2


def compare_deep(
    rows: list[tuple[int, ...]],
    channels: int,
    size: tuple[int, int],
    watermarker: Watermarker,
    *,
    has_alpha: bool = False,
) -> None:
    clear = untouched(watermarker, size).tobytes()
    changed = 0
    for y, (row, old) in enumerate(zip(rows, build.deep_samples(*size, channels), strict=True)):
        for x in range(size[0]):
            new_pixel, old_pixel = (r[x * channels : (x + 1) * channels] for r in (row, old))
            if clear[y * size[0] + x]:
                assert new_pixel == old_pixel
            changed += new_pixel != old_pixel
            assert not has_alpha or new_pixel[-1] == old_pixel[-1]
    assert changed > 100


def test_deep_png_colour_key_becomes_opacity(watermarker: Watermarker) -> None:
    """A 16-bit key clears the pixels that match it in both bytes."""
    key = build.deep_samples(97, 61, 1)[10][20]
    before = build.chunk(b"tRNS", struct.pack(">H", key))
    data = build.deep_png(97, 61, build.GREY, before=before)
    channels, rows = build.png_samples(watermarker.watermark_bytes("a.png", data).data)
    assert channels == 2
    assert rows[10][2 * 20 + 1] == 0
    assert rows[10][2 * 21 + 1] == 65535


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("channels", [3, 4])
def test_deep_tiff_keeps_every_bit_outside_the_text(
    channels: int, order: str, watermarker: Watermarker
) -> None:
    """Colour and ink TIFFs of 16 bits come back with 16 bits, whatever their byte order."""
    size = (97, 61)
    edited = watermarker.watermark_bytes("a.tif", build.deep_tiff(*size, channels, order))
    tags = tags_of(edited.data)
    assert tags[258] == (16,) * channels
    body = b"".join(
        edited.data[at : at + count] for at, count in zip(tags[273], tags[279], strict=True)
    )
    samples = struct.unpack(f"<{size[0] * size[1] * channels}H", body)
    stride = size[0] * channels
    rows = [samples[at : at + stride] for at in range(0, len(samples), stride)]
    compare_deep(rows, channels, size, watermarker)


def test_deep_tiff_survives_a_second_watermark(watermarker: Watermarker) -> None:
    """What is written is read again as 16-bit colour."""
    once = watermarker.watermark_bytes("a.tif", build.deep_tiff(97, 61, 3)).data
    twice = watermarker.watermark_bytes("a.tif", once).data
    picture = build.opened(twice)
    assert picture.size == (97, 61)
    assert tags_of(twice)[258] == (16, 16, 16)


def test_white_is_zero_is_not_inverted(watermarker: Watermarker) -> None:
    """A 16-bit page that counts from white looks the same afterwards."""
    picture = Image.frombytes("I;16", (96, 64), struct.pack("<H", 1000) * 96 * 64)
    data = build.saved(picture, "TIFF", tiffinfo={262: 0})
    edited = watermarker.watermark_bytes("a.tif", data).data
    after = build.opened(edited)
    assert tags_of(edited)[262] == 1
    index = untouched(watermarker, (96, 64)).tobytes().index(b"\xff")
    assert after.getpixel((index % 96, index // 96)) == 65535 - 1000


def moving(ground: tuple[int, int, int, int]) -> list[Image.Image]:
    pictures = []
    for number in range(4):
        picture = Image.new("RGBA", (200, 120), ground)
        colour = (build.RED, build.GREEN, build.BLUE, build.YELLOW)[number]
        picture.paste((*colour, 255), (number * 40, 30, number * 40 + 60, 90))
        pictures.append(picture)
    return pictures


ANIMATIONS: dict[str, tuple[str, dict[str, object], int]] = {
    "gif-2": ("GIF", {"duration": [100, 200, 300, 400], "loop": 0, "disposal": 2}, 0),
    "gif-1": ("GIF", {"duration": 80, "loop": 2, "disposal": 1}, 255),
    "png-0": ("PNG", {"duration": 150, "loop": 3, "disposal": 0, "blend": 1}, 255),
    "png-1": ("PNG", {"duration": 150, "loop": 0, "disposal": 1}, 0),
    "webp": ("WEBP", {"duration": [120, 60, 70, 80], "loop": 5, "lossless": True}, 0),
    "webp-opaque": ("WEBP", {"duration": 90, "loop": 0, "lossless": True}, 255),
}


@pytest.mark.parametrize("name", ANIMATIONS)
def test_animations_keep_their_frames_and_their_timing(name: str, watermarker: Watermarker) -> None:
    """Each frame as seen is unchanged outside the text and changed inside; timing stays."""
    file_format, options, opacity = ANIMATIONS[name]
    first, *rest = moving((255, 255, 255, opacity))
    data = build.saved(first, file_format, save_all=True, append_images=rest, **options)
    edited = watermarker.watermark_bytes("a", data)
    before, after = frames(data), frames(edited.data)
    assert len(before) == len(after) == edited.frames == 4
    assert timing(data) == timing(edited.data)
    mask = untouched(watermarker, first.size)
    for old, new in zip(before, after, strict=True):
        assert old.getchannel("A").tobytes() == new.getchannel("A").tobytes()
        assert difference(visible(old), visible(new), mask) == 0
        assert difference(visible(old), visible(new), everywhere(first.size)) > 25


def timing(data: bytes) -> list[tuple[object, ...]]:
    picture = Image.open(io.BytesIO(data))
    found: list[tuple[object, ...]] = []
    for number in range(getattr(picture, "n_frames", 1)):
        picture.seek(number)
        picture.load()
        keys = ("duration", "loop", "disposal", "blend")
        method = getattr(picture, "disposal_method", None)
        found.append((*(picture.info.get(key) for key in keys), method))
    return found


def test_painting_frames_is_painting_what_is_seen(watermarker: Watermarker) -> None:
    """Half-clear frames laid over one another show the text as if painted after composing."""
    clear = [picture.copy() for picture in moving((0, 0, 0, 0))]
    for picture in clear:
        picture.putalpha(picture.getchannel("A").point([level // 2 for level in range(256)]))
    first = Image.new("RGBA", (200, 120), (90, 120, 200, 255))
    data = build.saved(
        first, "PNG", save_all=True, append_images=clear, disposal=0, blend=1, duration=50
    )
    stills = [
        build.opened(watermarker.watermark_bytes("a.png", build.saved(frame, "PNG")).data)
        for frame in frames(data)
    ]
    moved = frames(watermarker.watermark_bytes("a.png", data).data)
    assert len(moved) == len(stills)
    for left, right in zip(stills, moved, strict=True):
        assert difference(visible(left), visible(right), everywhere(first.size)) <= 3


def test_same_input_gives_the_same_bytes() -> None:
    """Two watermarks made apart from each other write identical files."""
    for file_format in ("JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP"):
        data = build.saved(build.busy(), file_format)
        left, right = (Watermarker("水印").watermark_bytes("a", data).data for _ in range(2))
        assert left == right
