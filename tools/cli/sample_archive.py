"""The messy sample ZIP of the demo: photographs among what Macs, PCs and editors leave behind."""

import io
import zipfile
from pathlib import Path
from typing import Final

from PIL import Image, ImageDraw

_TIME: Final = (2031, 5, 20, 9, 30, 0)
_JUNK: Final[dict[str, bytes]] = {
    ".DS_Store": b"\x00\x00\x00\x01Bud1" + bytes(64),
    "__MACOSX/旅行照片/._故宫.jpg": b"\x00\x05\x16\x07" + bytes(60),
    "旅行照片/.DS_Store": b"\x00\x00\x00\x01Bud1" + bytes(64),
    "旅行照片/Thumbs.db": b"\xd0\xcf\x11\xe0" + bytes(60),
    "旅行照片/北京/desktop.ini": b"[.ShellClassInfo]\r\nIconResource=folder.ico,0\r\n",
    "sketches/.git/HEAD": b"ref: refs/heads/main\n",
    "sketches/logo.png~": b"an editor's backup",
}
_FOLDERS: Final = ("旅行照片/空文件夹/",)
_NOTES: Final = "这些照片摄于 2031 年春天。\nThe logo has a transparent background.\n"


def write_sample(path: Path) -> None:
    """Write the sample: the same bytes each time."""
    with zipfile.ZipFile(path, "w") as archive:
        for name in _FOLDERS:
            archive.writestr(_entry(name), b"")
        for name, data in {**_JUNK, **_kept()}.items():
            archive.writestr(_entry(name), data)


def _kept() -> dict[str, bytes]:
    return {
        "旅行照片/故宫.jpg": _jpeg(_landscape(1200, 800, (214, 120, 70), (120, 24, 20))),
        "旅行照片/北京/长城 日出.jpg": _jpeg(_landscape(900, 1200, (250, 200, 120), (40, 70, 50))),
        "sketches/logo.png": _png(_logo(640)),
        "旅行照片/说明.txt": _NOTES.encode(),
    }


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _TIME)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o755 << 16 if name.endswith("/") else 0o644 << 16
    return entry


def _landscape(
    width: int, height: int, sky: tuple[int, int, int], ground: tuple[int, int, int]
) -> Image.Image:
    """A sky that fades, a sun, and hills."""
    fade = Image.linear_gradient("L").resize((width, height))
    picture = Image.composite(
        Image.new("RGB", (width, height), ground), Image.new("RGB", (width, height), sky), fade
    )
    pen = ImageDraw.Draw(picture)
    radius = width // 12
    centre_x, centre_y = width * 2 // 3, height // 3
    pen.ellipse(
        (centre_x - radius, centre_y - radius, centre_x + radius, centre_y + radius),
        fill=(255, 236, 190),
    )
    for step in range(5):
        left, top = width * step // 5 - width // 8, height * 2 // 3 + step % 2 * height // 12
        shade = tuple(max(0, one - 12 * step) for one in ground)
        pen.ellipse((left, top, left + width // 2, height + height // 3), fill=shade)
    return picture


def _logo(size: int) -> Image.Image:
    """Rings on a transparent ground, half transparent themselves."""
    picture = Image.new("RGBA", (size, size), (0, 0, 0, 0))
    pen = ImageDraw.Draw(picture)
    for step, colour in enumerate(((30, 90, 200), (240, 150, 30), (30, 150, 90))):
        margin = size // 10 + step * size // 8
        pen.ellipse(
            (margin, margin, size - margin, size - margin),
            outline=(*colour, 200),
            width=size // 16,
        )
    return picture


def _jpeg(picture: Image.Image) -> bytes:
    data = io.BytesIO()
    picture.save(data, "JPEG", quality=88)
    return data.getvalue()


def _png(picture: Image.Image) -> bytes:
    data = io.BytesIO()
    picture.save(data, "PNG")
    return data.getvalue()
