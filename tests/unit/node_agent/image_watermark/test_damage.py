"""Damaged, hostile and oversized files end in a typed refusal, quickly and without leftovers."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import pytest
from PIL import Image

from node_agent.capabilities.image_watermark import (
    FileKind,
    ImageLimits,
    ImageReason,
    ImageRefused,
    Watermarker,
    classify,
)
from tests.cases.builders import image_builder as build
from tests.unit.node_agent.image_watermark.pixels import CASES

SMALL = sorted(
    path
    for path in (CASES / "image").iterdir()
    if path.stat().st_size < 40_000 and path.suffix not in (".txt", ".svg", ".heic", ".ico")
)


def verdict(watermarker: Watermarker, data: bytes) -> str:
    try:
        watermarker.watermark_bytes("a", data)
    except ImageRefused as refusal:
        return refusal.reason
    return "ok"


@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.name)
def test_a_file_cut_anywhere_is_refused_or_whole(path: Path, watermarker: Watermarker) -> None:
    """Of a file cut at any place a picture comes out only when all of its pixels are there."""
    data = path.read_bytes()
    for end in range(0, len(data), max(1, len(data) // 40)):
        assert verdict(watermarker, data[:end]) in {"ok", *ImageReason}


def test_a_file_that_contradicts_itself_gives_no_result(watermarker: Watermarker) -> None:
    """What is kept of it would contradict what is new, and no program could open that."""
    data = bytearray((CASES / "image/webp-orientation-6.webp").read_bytes())
    # The canvas' width less one, which the picture in it does not have.
    data[24] ^= 0x05
    assert verdict(watermarker, bytes(data)) == ImageReason.IMAGE_UNREADABLE


def test_limits_hold_at_their_edge() -> None:
    """A picture of exactly the limit passes; one pixel more is too large."""
    marker = Watermarker("水", limits=ImageLimits(pixels_max=96 * 64))
    for file_format in ("JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP"):
        assert verdict(marker, build.saved(build.quadrants(96, 64), file_format)) == "ok"
        larger = build.saved(build.quadrants(97, 64), file_format)
        assert verdict(marker, larger) == ImageReason.IMAGE_TOO_LARGE


@pytest.mark.parametrize("file_format", ["GIF", "PNG", "WEBP", "TIFF"])
def test_frames_are_counted(file_format: str) -> None:
    """Ten frames pass a limit of ten and fail one of nine, and so do their pixels together."""
    pictures = [Image.new("RGB", (20, 20), (number * 20, 0, 0)) for number in range(10)]
    data = build.saved(pictures[0], file_format, save_all=True, append_images=pictures[1:])
    assert verdict(Watermarker("水", limits=ImageLimits(frames_max=10)), data) == "ok"
    for limits in (ImageLimits(frames_max=9), ImageLimits(pixels_total_max=500)):
        assert verdict(Watermarker("水", limits=limits), data) == ImageReason.IMAGE_TOO_LARGE


def bomb_headers() -> dict[str, bytes]:
    wide = struct.pack("<I", 60_000)
    return {
        "png": build.png(60_000, 60_000, 8, 2, [bytes(30)]),
        "jpeg": build.saved(build.quadrants(), "JPEG").replace(
            b"\x00\x40\x00\x60", b"\xea\x60\xea\x60", 1
        ),
        "bmp": (b := build.saved(build.quadrants(), "BMP"))[:18] + wide * 2 + b[26:],
        "webp": b"RIFF\x16\0\0\0WEBPVP8L\x0a\0\0\0\x2f" + b"\xff" * 4 + bytes(5),
        "tiff": build.saved(build.quadrants(), "TIFF").replace(
            struct.pack("<HHII", 256, 4, 1, 96), struct.pack("<HHII", 256, 4, 1, 60_000_000)
        ),
    }


@pytest.mark.parametrize("name", bomb_headers())
def test_bombs_are_refused_from_their_header(name: str, watermarker: Watermarker) -> None:
    """Gigapixels announced by a small file are refused before memory is asked for."""
    started = time.monotonic()
    assert verdict(watermarker, bomb_headers()[name]) == ImageReason.IMAGE_TOO_LARGE
    assert time.monotonic() - started < 1


def test_files_beyond_the_limit_are_not_read(tmp_path: Path) -> None:
    """A file larger than the limit is refused by its size alone."""
    marker = Watermarker("水", limits=ImageLimits(file_bytes_max=100))
    source = tmp_path / "a.png"
    source.write_bytes(bytes(101))
    with pytest.raises(ImageRefused) as caught:
        marker.watermark_image(source, tmp_path / "b.png")
    assert caught.value.reason == ImageReason.IMAGE_TOO_LARGE


def test_nothing_is_left_behind(watermarker: Watermarker, tmp_path: Path) -> None:
    """A refused picture writes nothing; one that cannot be stored is no picture's fault."""
    with pytest.raises(ImageRefused):
        watermarker.watermark_image(CASES / "image/png-truncated.png", tmp_path / "out.png")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "x").touch()
    with pytest.raises(OSError, match="taken"):
        watermarker.watermark_image(CASES / "image/png-rgba.png", tmp_path / "taken")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_an_older_output_is_replaced_whole(watermarker: Watermarker, tmp_path: Path) -> None:
    """A destination that exists is replaced; its folder holds nothing else."""
    destination = tmp_path / "out.png"
    destination.write_bytes(b"old")
    result = watermarker.watermark_image(CASES / "image/png-rgba.png", destination)
    assert (result.width, result.height, result.frames, result.marked) == (96, 64, 1, True)
    assert build.opened(destination.read_bytes()).size == (96, 64)
    assert [path.name for path in tmp_path.iterdir()] == ["out.png"]


UNSUPPORTED = {
    "a.heic": b"\0\0\0\x18ftypheic",
    "a.avif": b"\0\0\0\x18ftypavif",
    "b.jpg": b"\0\0\0\x18ftypheic",
    "a.psd": b"8BPS\0\1",
    "a.jp2": b"\0\0\0\x0cjP  \r\n\x87\n",
    "a.nef": b"MM\0*\0\0\0\x08",
    "a.jxl": b"\xff\x0a",
    "a.cr3": b"",
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_other_picture_formats_are_named(name: str, watermarker: Watermarker) -> None:
    """A format that is known but not written is a refusal that names it, never "damaged"."""
    assert classify(name, UNSUPPORTED[name]) is FileKind.IMAGE
    with pytest.raises(ImageRefused) as caught:
        watermarker.watermark_bytes(name, UNSUPPORTED[name])
    assert caught.value.reason == ImageReason.IMAGE_UNSUPPORTED_FORMAT


@pytest.mark.parametrize(
    ("name", "head", "kind"),
    [
        ("notes.txt", b"BMW is a car maker, and this is a text", FileKind.PASS_THROUGH),
        ("drawing.svg", b"<svg xmlns=", FileKind.PASS_THROUGH),
        ("favicon.ico", b"\0\0\1\0\3\0", FileKind.PASS_THROUGH),
        ("paper.pdf", b"%PDF-1.7", FileKind.PASS_THROUGH),
        ("film.mp4", b"\0\0\0\x18ftypmp42", FileKind.PASS_THROUGH),
        ("photo", b"\xff\xd8\xff\xe0", FileKind.IMAGE),
        ("PHOTO.JPG", b"", FileKind.IMAGE),
        ("folder.png/readme", b"text", FileKind.PASS_THROUGH),
    ],
)
def test_content_counts_before_the_name(name: str, head: bytes, kind: FileKind) -> None:
    """Pictures are told by their bytes, and by an ending only when these say nothing."""
    assert classify(name, head) is kind


def test_deep_and_lossless_jpegs_are_unsupported(watermarker: Watermarker) -> None:
    """A JPEG of 12 bits or of the lossless process is named as such, not called damaged."""
    data = build.saved(build.quadrants(), "JPEG")
    at = data.index(b"\xff\xc0\x00\x11\x08")
    for change in (b"\xff\xc0\x00\x11\x0c", b"\xff\xc3\x00\x11\x08"):
        changed = data[:at] + change + data[at + 5 :]
        assert verdict(watermarker, changed) == ImageReason.IMAGE_UNSUPPORTED_FORMAT


def test_camera_raw_and_odd_depths_are_unsupported(watermarker: Watermarker) -> None:
    """TIFF-based raw files and samples of 12 bits would lose what they are for."""
    raw = build.saved(build.quadrants(), "TIFF", tiffinfo={50706: b"\1\4\0\0"})
    assert verdict(watermarker, raw) == ImageReason.IMAGE_UNSUPPORTED_FORMAT
    grey = build.saved(Image.new("L", (20, 20)), "TIFF")
    entry = struct.pack("<HHIHH", 258, 3, 1, 8, 0)
    assert entry in grey
    odd = grey.replace(entry, struct.pack("<HHIHH", 258, 3, 1, 12, 0))
    assert verdict(watermarker, odd) == ImageReason.IMAGE_UNSUPPORTED_FORMAT
