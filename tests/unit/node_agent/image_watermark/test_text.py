"""Texts that can be drawn as written are; others are refused before a picture is read."""

from __future__ import annotations

import io
import pickle
import struct
from pathlib import Path

import pytest
from fontTools.ttLib import TTFont
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFont

from node_agent.capabilities.image_watermark import (
    Layout,
    TextReason,
    TextRefused,
    Watermarker,
    WatermarkFont,
    WatermarkOptions,
    bundled_font,
)
from node_agent.capabilities.image_watermark.cmap import read_coverage
from node_agent.capabilities.image_watermark.font import bundled_font_path
from node_agent.capabilities.image_watermark.lines import broken
from node_agent.capabilities.image_watermark.text import needs_shaping, prepare_text
from tests.cases.builders import image_builder as build
from tests.unit.node_agent.image_watermark.pixels import extremes


def refusal(text: str, font: WatermarkFont | None = None) -> str:
    with pytest.raises(TextRefused) as caught:
        Watermarker(text, font=font)
    return caught.value.reason


@pytest.mark.parametrize(
    "text", ["", "   ", "x" * 101, "two\nlines", "tab\tbed", "\u200b\u00a0\u2060", "\ud800", "\x07"]
)
def test_texts_that_are_no_line_of_letters_are_refused(text: str) -> None:
    """Empty, too long, broken, invisible and half characters are invalid."""
    assert refusal(text) == TextReason.TEXT_INVALID


def test_length_counts_characters_and_not_bytes() -> None:
    """A hundred Chinese characters are allowed, with blanks around them."""
    assert len(prepare_text("  " + "水" * 100 + " ")) == 100


@pytest.mark.parametrize("text", ["水印", "水印 مرحبا", "नमस्ते", "👍", "สวัสดี", "\ue000"])
def test_missing_glyphs_are_refused_and_named(text: str) -> None:
    """What the font lacks is named by its code point; what it has is drawn."""
    if text == "水印":
        Watermarker(text)
        return
    with pytest.raises(TextRefused, match=r"U\+[0-9A-F]{4,}") as caught:
        Watermarker(text)
    assert caught.value.reason == TextReason.TEXT_GLYPH_MISSING
    assert not caught.value.retryable


def test_scripts_that_join_need_a_shaper(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the shaper, a covered text whose parts join is refused; plain text is not."""
    monkeypatch.setattr("node_agent.capabilities.image_watermark.font.has_shaper", lambda: False)
    assert refusal("\u1112\u1161\u11ab\u1100\u1173\u11af\u302e") == TextReason.TEXT_SHAPER_MISSING
    assert refusal("ά") == TextReason.TEXT_SHAPER_MISSING
    Watermarker("한글 水印 ひらがな Ελλαδα Кириллица")


def test_accents_that_the_font_lacks_are_set_on_their_letters() -> None:
    """A letter with its accent is drawn from both when the font has no glyph for the pair."""
    pictures = [
        build.opened(Watermarker(text).watermark_bytes("a.png", white()).data).tobytes()
        for text in ("Ελλάδα", "Ελλαδα")
    ]
    assert pictures[0] != pictures[1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("水印 Sample", False), ("مرحبا", True), ("שלום", True), ("हिन्दी", True), ("e\u0301", True)],
)
def test_shaping_is_asked_for_where_letters_join_or_turn(text: str, expected: bool) -> None:  # noqa: FBT001  a table's column
    """Right-to-left, stacking and combining letters need shaping; ideographs do not."""
    assert needs_shaping(text) is expected


def test_composed_letters_need_no_shaper() -> None:
    """A letter written with a combining accent is composed first, and then drawn plainly."""
    assert not needs_shaping(prepare_text("cafe\u0301"))


@pytest.mark.parametrize("face", [0, 2, 5])
def test_coverage_agrees_with_a_font_library(face: int) -> None:
    """Every code point of the first three planes is judged as fontTools judges it."""
    with TTFont(bundled_font_path(), fontNumber=face, lazy=True) as collection:
        cmap = collection.getBestCmap()
    font = WatermarkFont(bundled_font_path(), face)
    assert all(font._covers(code) is (code in cmap) for code in range(0, 0x30000, 3))


def segment_font(tmp_path: Path) -> tuple[Path, dict[int, str]]:
    """The font cut down to a format 4 table with gaps and runs."""
    from fontTools.subset import Options, Subsetter

    options = Options()
    options.notdef_outline = True
    path = tmp_path / "small.otf"
    with TTFont(bundled_font_path(), fontNumber=2, lazy=True) as font:
        subsetter = Subsetter(options)
        subsetter.populate(text="ABCxyz0189水印章é§")
        subsetter.subset(font)
        font["cmap"].tables = [table for table in font["cmap"].tables if table.format == 4]
        font.save(path)
        return path, font["cmap"].tables[0].cmap


def test_a_font_of_ones_own_with_a_segment_table(tmp_path: Path) -> None:
    """The other kind of character table is read as well, and font_path decides what is covered."""
    path, cmap = segment_font(tmp_path)
    font = WatermarkFont(path)
    assert len(cmap) == 15
    assert all(font._covers(code) is (code in cmap) for code in range(0x10400))
    assert refusal("水墨", font=font) == TextReason.TEXT_GLYPH_MISSING
    Watermarker("水印", font=font)


@pytest.mark.parametrize(
    "content", [b"", b"no font at all", b"ttcf" + bytes(40), b"OTTO" + bytes(8)]
)
def test_files_that_are_no_fonts_are_refused(content: bytes, tmp_path: Path) -> None:
    """A damaged or missing font is a typed refusal that names the file."""
    path = tmp_path / "broken.otf"
    path.write_bytes(content)
    for candidate in (path, tmp_path / "absent.otf"):
        with pytest.raises(TextRefused, match=candidate.name) as caught:
            WatermarkFont(candidate)
        assert caught.value.reason == TextReason.FONT_UNUSABLE
    with pytest.raises(TextRefused):
        WatermarkFont(bundled_font_path(), 99)


def test_a_character_mapped_to_the_missing_glyph_is_missing() -> None:
    """Glyph 0 is the box itself, so a table that maps a letter to it does not cover the letter."""
    groups = struct.pack(">HHIII", 12, 0, 40, 0, 2)
    groups += struct.pack(">IIIIII", 0x41, 0x42, 0, 0x61, 0x62, 7)
    cmap = struct.pack(">HHHHI", 0, 1, 3, 10, 12) + groups
    font = struct.pack(">4sHHHH4sIII", b"OTTO", 1, 0, 0, 0, b"cmap", 0, 28, len(cmap)) + cmap
    covers = read_coverage(io.BytesIO(font), 0)
    assert [letter for letter in "@ABC`abc" if covers(ord(letter))] == ["B", "a", "b"]


def test_chinese_is_drawn_and_not_boxed() -> None:
    """Each ideograph has a shape of its own, unlike the box of a missing glyph."""
    face = bundled_font().at(60, ImageFont.Layout.BASIC)
    shapes = {bytes(face.getmask(letter)) for letter in "水印样张机密\ue000"}
    assert len(shapes) == 7
    stamps = {}
    for text in ("水印", "样张"):
        edited = Watermarker(text).watermark_bytes("a.png", white()).data
        stamps[text] = build.opened(edited).tobytes()
    assert stamps["水印"] != stamps["样张"]


def white(size: tuple[int, int] = (300, 200)) -> bytes:
    return build.saved(Image.new("L", size, 255), "PNG")


@pytest.mark.parametrize("ground", [0, 128, 255])
def test_text_shows_on_every_ground(ground: int, watermarker: Watermarker) -> None:
    """On black, grey and white the text stands out by a tenth of the scale at least."""
    data = build.saved(Image.new("L", (400, 300), ground), "PNG")
    low, high = extremes(build.opened(watermarker.watermark_bytes("a.png", data).data))
    assert max(ground - low, high - ground) > 25


def marked_box(
    layout: Layout, size: float = 0.05, angle: float | None = None
) -> tuple[int, int, int, int]:
    options = WatermarkOptions(layout, relative_size=size, angle_degrees=angle)
    marker = Watermarker("水印", options)
    edited = build.opened(marker.watermark_bytes("a.png", white()).data)
    box = edited.point([255 - level for level in range(256)]).getbbox()
    assert box is not None
    return box


def test_each_place_is_where_it_says() -> None:
    """Corners keep to their quarter, the centre is in the middle, tiles are everywhere."""
    left, top, right, bottom = marked_box(Layout.TOP_LEFT)
    assert right < 150
    assert bottom < 100
    left, top, right, bottom = marked_box(Layout.BOTTOM_RIGHT)
    assert left > 150
    assert top > 100
    assert marked_box(Layout.TOP_RIGHT)[0] > 150
    assert marked_box(Layout.BOTTOM_LEFT)[1] > 100
    left, top, right, bottom = marked_box(Layout.CENTRE, size=0.2)
    assert abs(left + right - 300) <= 6
    assert abs(top + bottom - 200) <= 6
    left, top, right, bottom = marked_box(Layout.TILE)
    assert right - left > 250
    assert bottom - top > 150


def test_size_and_angle_are_followed() -> None:
    """Letters grow with the option, and an upright text is higher than wide."""
    small, large = (marked_box(Layout.CENTRE, size=size) for size in (0.1, 0.4))
    assert large[3] - large[1] > 3 * (small[3] - small[1])
    turned = marked_box(Layout.CENTRE, size=0.2, angle=90)
    assert turned[3] - turned[1] > turned[2] - turned[0]


@pytest.mark.parametrize(
    ("opacity", "size", "angle", "name"),
    [
        (0, 0.1, 0, "opacity"),
        (1.1, 0.1, 0, "opacity"),
        (float("nan"), 0.1, 0, "opacity"),
        (0.5, 0, 0, "relative_size"),
        (0.5, 0.1, 91, "angle_degrees"),
    ],
)
def test_options_out_of_range_are_named(
    opacity: float, size: float, angle: float, name: str
) -> None:
    """A wrong option is refused with its name."""
    with pytest.raises(TextRefused, match=name) as caught:
        WatermarkOptions(Layout.TILE, opacity, size, angle)
    assert caught.value.reason == TextReason.OPTIONS_INVALID


@pytest.mark.parametrize("size", [(800, 600), (300, 200), (120, 400)])
def test_a_long_text_is_whole_on_the_picture(size: tuple[int, int]) -> None:
    """A sentence too long for one line is broken, so that the middle stamp fits wholly."""
    text = "机密文件 严禁外传 CONFIDENTIAL 仅供内部审阅使用"
    marker = Watermarker(text, WatermarkOptions(layout=Layout.CENTRE))
    pattern = marker._job.pattern_for(size)
    assert pattern.stamp is not None
    assert pattern.stamp.size[0] <= size[0]
    assert pattern.stamp.size[1] <= size[1]


@given(st.text(alphabet="水印，。「」ab c", min_size=1, max_size=60), st.integers(1, 6))
def test_lines_lose_nothing_but_blanks(text: str, count: int) -> None:
    """Breaking keeps every letter in order, and makes no more lines than asked for."""
    lines = broken(text, count)
    assert len(lines) <= count
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert not any(line.startswith(("，", "。", "」")) for line in lines[1:])


@settings(max_examples=200)
@given(st.text(max_size=110))
def test_any_text_is_drawn_or_refused(text: str) -> None:
    """No text makes anything but a watermark or a typed refusal."""
    try:
        marker = Watermarker(text)
    except TextRefused:
        return
    assert marker.watermark_bytes("a.png", white((40, 30))).marked


def test_refusals_cross_process_borders() -> None:
    """An error raised in a child process arrives with its reason and message."""
    error = TextRefused(TextReason.TEXT_INVALID, "why")
    again = pickle.loads(pickle.dumps(error))  # noqa: S301  our own bytes
    assert (type(again), again.reason, again.message) == (TextRefused, "TEXT_INVALID", "why")
