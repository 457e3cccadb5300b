"""Writes pictures, and the parts of picture files that Pillow cannot write, byte by byte.

Layouts: PNG third edition clauses 5, 8 and 11; JPEG markers in ITU-T T.81 annex B; EXIF 2.32
clause 4.5 for directories.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterable, Sequence

from PIL import Image, ImageDraw

RED, GREEN, BLUE, YELLOW = (220, 40, 40), (40, 160, 60), (40, 70, 200), (240, 210, 60)
GREY, TRUECOLOUR, PALETTE, GREY_ALPHA, TRUECOLOUR_ALPHA = 0, 2, 3, 4, 6

# From the picture as it should be seen to the pixels stored under an EXIF orientation.
_STORED_AS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}


def quadrants(width: int = 96, height: int = 64) -> Image.Image:
    """Four coloured quarters, so that every turn and mirror image shows."""
    picture = Image.new("RGB", (width, height), RED)
    middle_x, middle_y = width // 2, height // 2
    picture.paste(GREEN, (middle_x, 0, width, middle_y))
    picture.paste(BLUE, (0, middle_y, middle_x, height))
    picture.paste(YELLOW, (middle_x, middle_y, width, height))
    return picture


def busy(width: int = 160, height: int = 120) -> Image.Image:
    """Quarters under stripes and rings: many colours, much to compress."""
    picture = quadrants(width, height)
    pen = ImageDraw.Draw(picture)
    for step in range(0, width, 5):
        pen.line([(step, 0), (width - step, height)], fill=(step % 256, 255 - step % 256, 128))
    for radius in range(5, height // 2, 7):
        box = [width // 2 - radius, height // 2 - radius, width // 2 + radius, height // 2 + radius]
        pen.ellipse(box, outline=(255, 255, 255))
    return picture


def stored_for(orientation: int, upright: Image.Image) -> Image.Image:
    """The pixels that an orientation turns back into the upright picture."""
    turn = _STORED_AS.get(orientation)
    return upright if turn is None else upright.transpose(turn)


def saved(picture: Image.Image, file_format: str, **options: object) -> bytes:
    """The picture as a file."""
    out = io.BytesIO()
    picture.save(out, file_format, **options)
    return out.getvalue()


def opened(data: bytes) -> Image.Image:
    """The file as a picture, its first frame loaded."""
    picture = Image.open(io.BytesIO(data))
    picture.load()
    return picture


def tiff_block(
    entries: Iterable[tuple[int, int, int, bytes]], following: int = 0, start: int = 8
) -> bytes:
    """An EXIF block of one directory: (tag, type, count, value) each, and a link to the next."""
    rows = sorted(entries)
    tail_start = start + 2 + 12 * len(rows) + 4
    directory, tail = struct.pack("<H", len(rows)), b""
    for tag, kind, count, value in rows:
        place = value.ljust(4, b"\0")
        if len(value) > 4:
            place = struct.pack("<I", tail_start + len(tail))
            tail += value + b"\0" * (len(value) % 2)
        directory += struct.pack("<HHI", tag, kind, count) + place
    header = b"II*\0" + struct.pack("<I", start)
    return header.ljust(start, b"\0") + directory + struct.pack("<I", following) + tail


def orientation_block(orientation: int) -> bytes:
    """EXIF with nothing but an orientation."""
    return tiff_block([(0x0112, 3, 1, struct.pack("<H", orientation))])


def with_segment(jpeg: bytes, marker: int, payload: bytes) -> bytes:
    """The JPEG with a segment right after its start."""
    segment = b"\xff" + bytes([marker]) + struct.pack(">H", len(payload) + 2) + payload
    return jpeg[:2] + segment + jpeg[2:]


def with_exif(jpeg: bytes, block: bytes) -> bytes:
    """The JPEG with an EXIF segment in front."""
    return with_segment(jpeg, 0xE1, b"Exif\0\0" + block)


def chunk(kind: bytes, payload: bytes = b"", crc: int | None = None) -> bytes:
    """One PNG chunk, with a wrong checksum when one is given."""
    checksum = zlib.crc32(kind + payload) if crc is None else crc
    return struct.pack(">I", len(payload)) + kind + payload + struct.pack(">I", checksum)


def png(
    width: int,
    height: int,
    depth: int,
    colour: int,
    rows: Sequence[bytes],
    *,
    before: bytes = b"",
    after: bytes = b"",
) -> bytes:
    """A PNG of unfiltered rows, with chunks before and after the image data."""
    data = chunk(b"IDAT", zlib.compress(b"".join(b"\0" + row for row in rows), 9))
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + before + data + after + chunk(b"IEND")


def deep_samples(width: int, height: int, channels: int) -> list[tuple[int, ...]]:
    """Rows of 16-bit samples whose low bytes carry detail that 8 bits would lose."""
    return [
        tuple(
            (x * 611 + y * 1009 + c * 7919) % 65536 for x in range(width) for c in range(channels)
        )
        for y in range(height)
    ]


def deep_png(width: int, height: int, colour: int, *, before: bytes = b"") -> bytes:
    """A PNG of 16-bit samples."""
    channels = {GREY: 1, GREY_ALPHA: 2, TRUECOLOUR: 3, TRUECOLOUR_ALPHA: 4}[colour]
    samples = deep_samples(width, height, channels)
    rows = [struct.pack(f">{len(row)}H", *row) for row in samples]
    return png(width, height, 16, colour, rows, before=before)


def png_samples(data: bytes) -> tuple[int, list[tuple[int, ...]]]:
    """Samples in a pixel, and rows of 16-bit samples, of a PNG filtered by none or by "up"."""
    width, _height, depth, colour = struct.unpack_from(">IIBB", data, 16)
    assert depth == 16
    channels = {GREY: 1, GREY_ALPHA: 2, TRUECOLOUR: 3, TRUECOLOUR_ALPHA: 4}[colour]
    stride, rows = 2 * channels * width, []
    above = bytes(stride)
    raw = zlib.decompress(
        b"".join(payload for kind, payload in png_chunks(data) if kind == b"IDAT")
    )
    for start in range(0, len(raw), stride + 1):
        above = _unfiltered(raw[start], raw[start + 1 : start + 1 + stride], above, 2 * channels)
        rows.append(struct.unpack(f">{stride // 2}H", above))
    return channels, rows


def _unfiltered(kind: int, row: bytes, above: bytes, step: int) -> bytes:
    """PNG third edition, clause 9.2."""
    out = bytearray()
    for index, byte in enumerate(row):
        left = out[index - step] if index >= step else 0
        corner = above[index - step] if index >= step else 0
        up = above[index]
        guess = left + up - corner
        paeth = min((left, up, corner), key=lambda value: abs(guess - value))
        out.append((byte + (0, left, up, (left + up) // 2, paeth)[kind]) % 256)
    return bytes(out)


def png_chunks(data: bytes) -> list[tuple[bytes, bytes]]:
    """Kinds and contents of the chunks."""
    found, at = [], 8
    while at < len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        found.append((kind, data[at + 8 : at + 8 + size]))
        at += 12 + size
    return found


def deep_tiff(width: int, height: int, channels: int, order: str = "<") -> bytes:
    """An uncompressed TIFF of 16-bit samples: 3 channels of light, 4 inks."""
    samples = deep_samples(width, height, channels)
    body = b"".join(struct.pack(f"{order}{len(row)}H", *row) for row in samples)
    bits = struct.pack(f"{order}{channels}H", *[16] * channels)
    photometric = {3: 2, 4: 5}[channels]
    entries = [
        (256, 4, 1, width),
        (257, 4, 1, height),
        (258, 3, channels, 8 + len(body)),
        (259, 3, 1, 1),
        (262, 3, 1, photometric),
        (273, 4, 1, 8),
        (277, 3, 1, channels),
        (278, 4, 1, height),
        (279, 4, 1, len(body)),
        (284, 3, 1, 1),
    ]
    table = struct.pack(f"{order}H", len(entries))
    for tag, kind, count, value in entries:
        packed = struct.pack(
            f"{order}HH" if kind == 3 and count == 1 else f"{order}I",
            *([value, 0] if kind == 3 and count == 1 else [value]),
        )
        table += struct.pack(f"{order}HHI", tag, kind, count) + packed
    mark = b"II*\0" if order == "<" else b"MM\0*"
    head = mark + struct.pack(f"{order}I", 8 + len(body) + len(bits))
    return head + body + bits + table + bytes(4)
