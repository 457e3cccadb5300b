"""Every example picture has the outcome that its record promises."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from node_agent.capabilities.image_watermark import (
    HEAD_BYTES,
    ImageRefused,
    Watermarker,
    is_image,
)
from tests.unit.node_agent.image_watermark.pixels import (
    CASES,
    difference,
    extremes,
    frames,
    untouched,
)

RECORDS: list[dict[str, Any]] = [
    record
    for record in json.loads((CASES / "cases.json").read_text("utf-8"))
    if record["file"].startswith("image/")
]
FAMILIES = {
    "gray": {"L", "LA", "I;16", "RGB", "RGBA"},
    "rgb": {"RGB", "RGBA"},
    "cmyk": {"CMYK"},
    "palette": {"P", "RGB", "RGBA"},
    "bilevel": {"1", "L", "RGB"},
}
CORNER_COLOURS = ((220, 40, 40), (40, 160, 60), (40, 70, 200), (240, 210, 60))


def outcome(watermarker: Watermarker, file: Path, destination: Path) -> str:
    data = file.read_bytes()
    if not is_image(file.name, data[:HEAD_BYTES]):
        return "passed_through"
    try:
        watermarker.watermark_image(file, destination)
    except ImageRefused as refusal:
        return refusal.reason
    return "ok"


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record["file"][6:])
def test_case_has_its_outcome(
    record: dict[str, Any], watermarker: Watermarker, tmp_path: Path
) -> None:
    """An example is watermarked with all it carries, or refused, or passed through, as recorded."""
    expect, destination = record["expect"], tmp_path / "out"
    found = outcome(watermarker, CASES / record["file"], destination)
    wanted = expect["reason"] if expect["outcome"] == "refused" else expect["outcome"]
    assert found in (wanted, *expect.get("accept_also", []))
    assert destination.exists() == (found == "ok")
    if found == "ok":
        check_output(CASES / record["file"], destination, expect)


def check_output(source: Path, destination: Path, expect: dict[str, Any]) -> None:
    with Image.open(source) as before, Image.open(destination) as after:
        assert after.format == expect["format"]
        assert after.mode in FAMILIES[expect["mode_family"]]
        assert list(after.size) == expect["size"]
        assert getattr(after, "n_frames", 1) == expect["frames"]
        assert after.info.get("icc_profile") == before.info.get("icc_profile")
        assert ("icc_profile" in after.info) is expect["icc"]
        assert bit_depth(destination) >= expect["bit_depth"]
        assert after.getexif().get(0x0112, 1) == 1
        assert has_alpha(destination) is expect["alpha"]
        for number in range(expect["frames"]):
            after.seek(number)
            after.load()
    if expect["notes"].startswith("Seen upright: red top left"):
        check_corners(destination)


def bit_depth(file: Path) -> int:
    data = file.read_bytes()
    if data.startswith(b"\x89PNG"):
        return data[24]
    with Image.open(file) as picture:
        return 16 if picture.mode == "I;16" else 8


def has_alpha(file: Path) -> bool:
    opacities = (frame.getchannel("A") for frame in frames(file.read_bytes()))
    return any(extremes(opacity)[0] < 255 for opacity in opacities)


def check_corners(file: Path) -> None:
    """Whole quarters count, so that neither the text nor compression matters."""
    (picture, *_) = frames(file.read_bytes(), "RGB")
    width, height = picture.size
    places = ((0, 0), (width // 2, 0), (0, height // 2), (width // 2, height // 2))
    for (left, top), colour in zip(places, CORNER_COLOURS, strict=True):
        quarter = picture.crop((left, top, left + width // 2, top + height // 2))
        common = quarter.resize((1, 1), Image.Resampling.BOX).getpixel((0, 0))
        assert isinstance(common, tuple)
        assert max(abs(a - b) for a, b in zip(common, colour, strict=True)) < 60


def test_cases_are_all_there() -> None:
    """Each record has its file beside it, so none is left out by a wrong path."""
    assert len(RECORDS) == 59
    assert all((CASES / record["file"]).exists() for record in RECORDS)


@pytest.mark.parametrize("number", [5, 6])
def test_lying_grey_and_colour_are_turned_once(number: int, watermarker: Watermarker) -> None:
    """A lying picture comes out as its upright twin would, to within compression."""
    lying = (CASES / f"image/jpeg-orientation-{number}.jpg").read_bytes()
    upright = (CASES / "image/jpeg-orientation-1.jpg").read_bytes()
    (left,) = frames(watermarker.watermark_bytes("a.jpg", lying).data, "RGB")
    (right,) = frames(watermarker.watermark_bytes("a.jpg", upright).data, "RGB")
    assert difference(left, right, Image.new("L", left.size, 255)) < 60


def test_grey_shades_are_where_they_should_be(watermarker: Watermarker) -> None:
    """Grey and lying at once: the four shades are seen in their quarters."""
    data = (CASES / "image/jpeg-grey-orientation-6.jpg").read_bytes()
    picture = Image.open(io.BytesIO(watermarker.watermark_bytes("a.jpg", data).data))
    mask = untouched(watermarker, picture.size)
    wanted = Image.new("L", (96, 64), 94)
    wanted.paste(113, (48, 0, 96, 32))
    wanted.paste(76, (0, 32, 48, 64))
    wanted.paste(202, (48, 32, 96, 64))
    assert difference(picture, wanted, mask) < 30


@pytest.mark.parametrize(("name", "tolerance"), [("jpeg-cmyk-adobe.jpg", 40), ("tiff-cmyk.tif", 0)])
def test_inks_are_not_inverted(name: str, tolerance: int, watermarker: Watermarker) -> None:
    """Outside the text the inks are those of the source, in JPEG as in TIFF."""
    data = (CASES / "image" / name).read_bytes()
    before, after = (
        Image.open(io.BytesIO(each))
        for each in (data, watermarker.watermark_bytes(name, data).data)
    )
    assert difference(before, after, untouched(watermarker, before.size)) <= tolerance
