"""Small pictures are small, upright and made only of what is safe to decode."""

import io
import struct
import zlib

import pytest
from PIL import Image

from business_gateway.adapters.outbound.thumbnail_process import ThumbnailProcess
from business_gateway.thumbnail_child import EDGE_PX, thumbnail

_ORIENTATION = 0x0112
_TURNED_RIGHT = 6


def _picture(kind: str, size: tuple[int, int], mode: str = "RGB", orientation: int = 1) -> bytes:
    target = io.BytesIO()
    exif = Image.Exif()
    exif[_ORIENTATION] = orientation
    Image.new(mode, size, "teal").save(target, kind, exif=exif)
    return target.getvalue()


@pytest.mark.parametrize(
    ("kind", "mode"), [("JPEG", "RGB"), ("JPEG", "CMYK"), ("PNG", "RGBA"), ("WEBP", "RGB")]
)
def test_a_picture_is_made_to_fit(kind: str, mode: str) -> None:
    """Whatever its kind, the longer edge has EDGE_PX pixels, the other its share."""
    with Image.open(io.BytesIO(thumbnail(_picture(kind, (1600, 800), mode)))) as small:
        assert (small.format, small.size) == ("WEBP", (EDGE_PX, EDGE_PX // 2))


def test_a_turned_picture_stands_upright() -> None:
    """EXIF orientation is applied, since the small picture carries none."""
    turned = _picture("JPEG", (1600, 800), orientation=_TURNED_RIGHT)
    with Image.open(io.BytesIO(thumbnail(turned))) as small:
        assert small.size == (EDGE_PX // 2, EDGE_PX)


def test_a_bomb_is_refused_by_its_header(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many pixels are refused before any is decoded."""
    # As the child has it: the library's own bound must not be what refuses it here.
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    size = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    bomb = (
        b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", size) + _chunk(b"IDAT", b"") + _chunk(b"IEND", b"")
    )
    with pytest.raises(ValueError, match="60000 x 60000 pixels"):
        thumbnail(bomb)


def _chunk(kind: bytes, content: bytes) -> bytes:
    checksum = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)


async def test_a_child_makes_it_and_survives_nothing() -> None:
    """The process answers a picture, and None for bytes that are none."""
    maker = ThumbnailProcess()
    made = await maker.make(_picture("PNG", (900, 900)))
    assert made is not None
    assert made[8:12] == b"WEBP"
    assert await maker.make(b"this is no picture") is None
