"""Tells pictures from other files by their first bytes, and by name where these say nothing."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from enum import StrEnum
from pathlib import PurePosixPath
from typing import TypeVar

_Name = TypeVar("_Name", bound=str)

HEAD_BYTES = 64
"""How much of a file `classify` wants to see."""


class FileKind(StrEnum):
    """What image.watermark does with a file."""

    IMAGE = "image"
    PASS_THROUGH = "pass_through"  # noqa: S105  no password


class ImageFormat(StrEnum):
    """Formats that are read and written; the values are Pillow's names."""

    JPEG = "JPEG"
    MPO = "MPO"
    PNG = "PNG"
    GIF = "GIF"
    WEBP = "WEBP"
    TIFF = "TIFF"
    BMP = "BMP"


_MAGIC = {
    b"\xff\xd8\xff": ImageFormat.JPEG,
    b"\x89PNG\r\n\x1a\n": ImageFormat.PNG,
    b"GIF87a": ImageFormat.GIF,
    b"GIF89a": ImageFormat.GIF,
    b"II*\0": ImageFormat.TIFF,
    b"MM\0*": ImageFormat.TIFF,
    b"II+\0": ImageFormat.TIFF,
    b"MM\0+": ImageFormat.TIFF,
}
_UNSUPPORTED_MAGIC = {
    b"8BPS": "Photoshop",
    b"\0\0\0\x0cjP  \r\n\x87\n": "JPEG 2000",
    b"\xffO\xffQ": "JPEG 2000 codestream",
    b"\xff\x0a": "JPEG XL",
    b"\0\0\0\x0cJXL \r\n\x87\n": "JPEG XL",
    b"v/1\x01": "OpenEXR",
    b"DDS ": "DirectDraw surface",
    b"qoif": "QOI",
    b"FUJIFILMCCD-RAW": "Fujifilm raw",
    b"II\x1a\0\0\0HEAPCCDR": "Canon raw",
    b"IIU\0": "Panasonic raw",
    b"IIRO": "Olympus raw",
}
_UNSUPPORTED_BRANDS = {
    **dict.fromkeys((b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis"), "HEIC"),
    **dict.fromkeys((b"mif1", b"msf1", b"mif2"), "HEIF"),
    **dict.fromkeys((b"avif", b"avis"), "AVIF"),
    b"crx ": "Canon raw",
}
_IMAGE_ENDINGS = frozenset(
    (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".apng", ".gif", ".webp", ".tif", ".tiff", ".bmp")
)
_UNSUPPORTED_ENDINGS = {
    **dict.fromkeys((".heic", ".heif", ".hif"), "HEIC"),
    **dict.fromkeys(
        (".dng", ".nef", ".cr2", ".cr3", ".arw", ".orf", ".rw2", ".raf", ".pef"), "raw"
    ),
    **dict.fromkeys((".jp2", ".j2k", ".jpf", ".jpx"), "JPEG 2000"),
    ".avif": "AVIF",
    ".jxl": "JPEG XL",
    ".psd": "Photoshop",
}
_BMP_HEADER_BYTES = frozenset((12, 16, 40, 52, 56, 64, 108, 124))


def classify(name: str, head: bytes) -> FileKind:
    """Say whether a file is a picture to be watermarked, or refused as one, or passed through.

    name: the file's path or name; only its ending is looked at, and only when the content
        matches no known picture format.
    head: its first HEAD_BYTES bytes, fewer if it is shorter.

    Icons are passed through: they hold several sizes of one sign, none with room for text.
    """
    known = image_format(head) is not None or unsupported_format(name, head) is not None
    return FileKind.IMAGE if known or ending(name) in _IMAGE_ENDINGS else FileKind.PASS_THROUGH


def is_image(name: str, head: bytes) -> bool:
    """Tell whether `classify` calls the file a picture."""
    return classify(name, head) is FileKind.IMAGE


def image_format(head: bytes) -> ImageFormat | None:
    """Name the supported format that the first bytes announce."""
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return ImageFormat.WEBP
    if _is_bmp(head):
        return ImageFormat.BMP
    return _matching(_MAGIC, head)


def unsupported_format(name: str, head: bytes) -> str | None:
    """Name a picture format that is known but cannot be written back."""
    if head[4:8] == b"ftyp":
        brand = _UNSUPPORTED_BRANDS.get(head[8:12])
        if brand is not None:
            return brand
    found = _matching(_UNSUPPORTED_MAGIC, head)
    if found is not None:
        return found
    is_other = image_format(head) not in (None, ImageFormat.TIFF)
    return None if is_other else _UNSUPPORTED_ENDINGS.get(ending(name))


def ending(name: str) -> str:
    """Give the name's ending in lower case, with its dot."""
    return PurePosixPath(name).suffix.lower()


def _matching(table: Mapping[bytes, _Name], head: bytes) -> _Name | None:
    return next((name for magic, name in table.items() if head.startswith(magic)), None)


def _is_bmp(head: bytes) -> bool:
    """Two letters are too little: text may begin with them too."""
    if head[:2] != b"BM" or len(head) < 18:  # noqa: PLR2004  up to the header's length field
        return False
    return bool(struct.unpack_from("<I", head, 14)[0] in _BMP_HEADER_BYTES)
