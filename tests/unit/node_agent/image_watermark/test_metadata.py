"""What a picture carries beside its pixels survives, and orientation is told once."""

from __future__ import annotations

import io
import struct

import pytest
from PIL import Image, JpegImagePlugin, TiffImagePlugin

from node_agent.capabilities.image_watermark import ImageFormat, Watermarker
from node_agent.capabilities.image_watermark.exif import Turn
from node_agent.capabilities.image_watermark.formats.jpeg_segments import MpIndex, read_head
from tests.cases.builders import image_builder as build
from tests.unit.node_agent.image_watermark.pixels import CASES, difference, frames, untouched

XMP = b'http://ns.adobe.com/xap/1.0/\0<x:xmpmeta><rdf tiff:Orientation="6" a="8"/></x:xmpmeta>'


def segments(data: bytes) -> list[tuple[int, bytes]]:
    return [(segment.marker, segment.payload) for segment in read_head(data).segments]


def test_segments_of_a_jpeg_go_over_byte_by_byte(watermarker: Watermarker) -> None:
    """Comment, IPTC, profile and unknown segments are the same; Pillow's own are not doubled."""
    data = build.saved(build.busy(), "JPEG")
    extra = [
        (0xFE, b"made by hand"),
        (0xED, b"Photoshop 3.0\0abc"),
        (0xE2, b"ICC_PROFILE\0\1\1" + bytes(99)),
    ]
    for marker, payload in extra:
        data = build.with_segment(data, marker, payload)
    found = segments(watermarker.watermark_bytes("a.jpg", data).data)
    assert all(item in found for item in extra)
    assert [marker for marker, _ in found].count(0xE0) == 1


def exif_with_thumbnail() -> tuple[bytes, bytes]:
    thumbnail = build.saved(build.quadrants(32, 24), "JPEG")
    size = build.tiff_block(
        [(0xA002, 4, 1, struct.pack("<I", 96)), (0xA003, 4, 1, struct.pack("<I", 64))], start=200
    )[200:]
    note = (0x927C, 7, 6, b"maker!")
    head = build.tiff_block(
        [
            (0x0112, 3, 1, struct.pack("<H", 6)),
            (0x8769, 4, 1, struct.pack("<I", 200)),
            note,
        ],
        following=300,
    )
    second = build.tiff_block(
        [
            (0x0201, 4, 1, struct.pack("<I", 400)),
            (0x0202, 4, 1, struct.pack("<I", len(thumbnail))),
        ],
        start=300,
    )[300:]
    block = bytearray(400) + thumbnail
    for at, part in ((0, head), (200, size), (300, second)):
        block[at : at + len(part)] = part
    return bytes(block), thumbnail


def test_exif_is_edited_where_it_lies(watermarker: Watermarker) -> None:
    """Orientation and size are set, the bare thumbnail goes, maker notes stay at their offset."""
    block, thumbnail = exif_with_thumbnail()
    stored = build.stored_for(6, build.quadrants())
    data = build.with_exif(build.saved(stored, "JPEG"), block)
    data = build.with_segment(data, 0xE1, XMP)
    edited = watermarker.watermark_bytes("a.jpg", data).data
    exif = build.opened(edited).getexif()
    assert (exif[0x0112], exif[0x927C]) == (1, b"maker!")
    assert exif.get_ifd(0x8769)[0xA002] == 96
    assert thumbnail[:40] not in edited
    assert dict(segments(edited))[0xE1].startswith(b"Exif") or XMP in edited
    assert b'tiff:Orientation="1" a="8"' in edited
    assert edited.index(b"maker!") - edited.index(b"Exif\0\0") == data.index(
        b"maker!"
    ) - data.index(b"Exif\0\0")


@pytest.mark.parametrize("orientation", range(1, 9))
def test_boxes_turn_with_their_picture(orientation: int) -> None:
    """A box on the stored picture is found where the turned picture shows it."""
    box, stored = (10, 20, 30, 25), Image.new("L", (96, 64), 0)
    stored.paste(255, box)
    turn = Turn(orientation)
    transpose = turn.transpose
    seen = stored if transpose is None else stored.transpose(transpose)
    found = seen.getbbox()
    assert found is not None
    assert found[:2] == turn.corner(box, stored.size)
    assert seen.size == turn.size(stored.size)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_every_orientation_is_applied_once(
    file_format: str, orientation: int, watermarker: Watermarker
) -> None:
    """Whatever the format and the turn, the picture is seen upright and says so."""
    upright = build.quadrants(120, 80)
    stored = build.stored_for(orientation, upright)
    options: dict[str, object] = {}
    if file_format == "JPEG":
        options = {"quality": 95, "subsampling": 0}
    elif file_format == "WEBP":
        options = {"lossless": True}
    if file_format == "TIFF":
        options["tiffinfo"] = {0x0112: orientation}
    else:
        options["exif"] = b"Exif\0\0" + build.orientation_block(orientation)
    data = build.saved(stored, file_format, **options)
    after = build.opened(watermarker.watermark_bytes("a", data).data)
    assert after.getexif().get(0x0112, 1) == 1
    tolerance = 90 if file_format == "JPEG" else 0
    mask = untouched(watermarker, (120, 80))
    assert difference(upright, after.convert("RGB"), mask) <= tolerance


def test_frames_of_a_lying_animation_turn_with_it(watermarker: Watermarker) -> None:
    """Small frames of an animated PNG land where the turned canvas shows them."""
    first = Image.new("RGB", (120, 80), "white")
    second = first.copy()
    second.paste((200, 0, 0), (10, 20, 30, 36))
    data = build.saved(first, "PNG", save_all=True, append_images=[second], duration=50)
    exif = build.chunk(b"eXIf", build.orientation_block(6))
    edited = watermarker.watermark_bytes("a.png", data[:33] + exif + data[33:])
    assert (edited.width, edited.height, edited.frames) == (80, 120, 2)
    _, seen = frames(edited.data, "RGB")
    wanted = second.transpose(Image.Transpose.ROTATE_270)
    assert difference(wanted, seen, untouched(watermarker, (80, 120))) == 0


def test_chunks_of_a_png_go_over_byte_by_byte(watermarker: Watermarker) -> None:
    """Texts, times, gamma, an unknown chunk: all there, in their order; the palette's own go."""
    data = (CASES / "image/png-text-chunks.png").read_bytes()
    extra = build.chunk(b"gAMA", struct.pack(">I", 45455)) + build.chunk(b"prVt", b"own")
    data = data[:33] + extra + data[33:]
    edited = watermarker.watermark_bytes("a.png", data).data
    kept = [item for item in build.png_chunks(data) if item[0] != b"IDAT"]
    assert [item for item in build.png_chunks(edited) if item[0] != b"IDAT"] == kept


def test_chunks_in_terms_of_a_palette_go_with_it(watermarker: Watermarker) -> None:
    """A palette, its opacities and a ground given as an index mean nothing in true colour."""
    data = (CASES / "image/png-palette-trns.png").read_bytes()
    at = data.index(b"IDAT") - 4
    data = data[:at] + build.chunk(b"bKGD", b"\2") + data[at:]
    edited = watermarker.watermark_bytes("a.png", data)
    kinds = [kind for kind, _ in build.png_chunks(edited.data)]
    assert kinds == [b"IHDR", b"IDAT", b"IEND"]
    assert edited.notes == ("palette widened to true colour",)


def test_a_damaged_side_chunk_is_left_out_and_noted(watermarker: Watermarker) -> None:
    """A wrong checksum on a text costs the text, not the picture."""
    data = build.saved(build.quadrants(), "PNG")
    data = data[:33] + build.chunk(b"tEXt", b"Title\0x", crc=7) + data[33:]
    edited = watermarker.watermark_bytes("a.png", data)
    assert b"tEXt" not in dict(build.png_chunks(edited.data))
    assert edited.notes == ("damaged tEXt chunk left out",)


def test_profile_and_xmp_of_a_webp_stay(watermarker: Watermarker) -> None:
    """ICC profile, EXIF and XMP are in the new file, byte for byte."""
    options = {"icc_profile": bytes(range(200)), "xmp": b"<x/>", "exif": build.orientation_block(1)}
    data = build.saved(build.quadrants(), "WEBP", **options)
    after = build.opened(watermarker.watermark_bytes("a.webp", data).data)
    assert {key: after.info[key] for key in options} == options


@pytest.mark.parametrize(
    "compression", ["raw", "packbits", "tiff_lzw", "tiff_adobe_deflate", "jpeg"]
)
def test_tiff_keeps_compression_and_description(compression: str, watermarker: Watermarker) -> None:
    """A page is packed as it was, and says what it said, profile and resolution included."""
    tags = {270: "Four quarters", 305: "by hand", 315: "Ann"}
    data = build.saved(
        build.quadrants(),
        "TIFF",
        compression=compression,
        tiffinfo=tags,
        icc_profile=bytes(150),
        dpi=(300, 300),
    )
    after = TiffImagePlugin.TiffImageFile(
        io.BytesIO(watermarker.watermark_bytes("a.tif", data).data)
    )
    assert after.info["compression"] == compression
    assert {tag: after.tag_v2[tag] for tag in tags} == tags
    assert after.info["icc_profile"] == bytes(150)
    assert after.info["dpi"] == (300, 300)


def test_pages_of_a_tiff_are_each_marked(watermarker: Watermarker) -> None:
    """Pages of different size carry a text of their own."""
    data = (CASES / "image/tiff-multipage.tif").read_bytes()
    before, after = (
        frames(data, "RGB"),
        frames(watermarker.watermark_bytes("a.tif", data).data, "RGB"),
    )
    assert [page.size for page in after] == [(96, 64), (64, 96), (80, 80)]
    for old, new in zip(before, after, strict=True):
        assert difference(old, new, untouched(watermarker, old.size)) == 0
        assert old.tobytes() != new.tobytes()


def mpo(kind: int, orientation: int = 1) -> bytes:
    """Two pictures, the second of a multi-picture type."""
    first = build.stored_for(orientation, build.quadrants(120, 80))
    exif = b"Exif\0\0" + build.orientation_block(orientation)
    second = build.busy(60, 40)
    data = build.saved(first, "MPO", save_all=True, append_images=[second], exif=exif)
    entries = MpIndex(
        next(s for s in read_head(data).segments if s.payload[:4] == b"MPF\0"), len(data)
    ).entries
    attribute = data.index(struct.pack("<II", 0, entries[1].size), data.index(b"MPF\0"))
    return data[:attribute] + struct.pack("<I", kind) + data[attribute + 4 :]


def test_a_second_picture_that_is_data_stays_as_it_is(watermarker: Watermarker) -> None:
    """A depth or gain map behind the first picture is not painted, and found by its index."""
    data = mpo(0)
    edited = watermarker.watermark_bytes("a.jpg", data)
    before, after = frames(data, "RGB"), frames(edited.data, "RGB")
    assert (edited.format, edited.frames) == (ImageFormat.MPO, 2)
    assert before[1].tobytes() == after[1].tobytes()
    assert before[0].tobytes() != after[0].tobytes()


def test_a_second_view_of_the_scene_is_marked_too(watermarker: Watermarker) -> None:
    """A preview or the other lens would show the scene without the text."""
    data = mpo(0x020002)
    before, after = (
        frames(each, "RGB") for each in (data, watermarker.watermark_bytes("a.jpg", data).data)
    )
    mask = Image.new("L", (60, 40), 255)
    assert difference(before[1], after[1], mask) > 25


def test_a_map_that_cannot_be_turned_is_left_out_and_noted(watermarker: Watermarker) -> None:
    """When the first picture is turned, its map would lie wrong: a plain JPEG comes out."""
    edited = watermarker.watermark_bytes("a.jpg", mpo(0, orientation=6))
    picture = build.opened(edited.data)
    assert (picture.format, picture.size, edited.frames) == ("JPEG", (120, 80), 1)
    assert len(edited.notes) == 1


def test_rgb_coded_jpeg_stays_rgb(watermarker: Watermarker) -> None:
    """A JPEG that stores red, green and blue as such is read and written so."""
    data = build.saved(build.quadrants(), "JPEG", keep_rgb=True, quality=95)
    edited = watermarker.watermark_bytes("a.jpg", data).data
    after = build.opened(edited)
    assert isinstance(after, JpegImagePlugin.JpegImageFile)
    assert after.info["adobe_transform"] == 0
    assert difference(build.quadrants(), after, untouched(watermarker, (96, 64))) < 60


def test_bitmap_with_opacity_keeps_it(watermarker: Watermarker) -> None:
    """A 32-bit bitmap with an opacity mask still has one afterwards, and can be marked again."""
    head = struct.pack("<2sIHHI", b"BM", 122 + 4 * 400, 0, 0, 122)
    info = struct.pack("<IiiHHIIiiII", 108, 20, -20, 1, 32, 3, 1600, 0, 0, 0, 0)
    masks = struct.pack("<4I", 0xFF0000, 0xFF00, 0xFF, 0xFF000000) + b"BGRs" + bytes(48)
    data = head + info + masks + bytes((10, 20, 30, 77)) * 400
    once = watermarker.watermark_bytes("a.bmp", data).data
    twice = build.opened(watermarker.watermark_bytes("a.bmp", once).data)
    assert twice.mode == "RGBA"
    assert twice.getchannel("A").getextrema() == (77, 77)
