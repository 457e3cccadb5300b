"""JPEG as a list of segments up to its first scan, and the index of pictures behind it.

Sources: ITU-T T.81 annex B for markers; CIPA DC-007 for the multi-picture index.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

from node_agent.capabilities.image_watermark.refusals import truncated, unreadable

SOI = b"\xff\xd8"
APP0, APP1, APP2, APP14, APP15, COMMENT = 0xE0, 0xE1, 0xE2, 0xEE, 0xEF, 0xFE
MPF_PREFIX = b"MPF\0"
_SCAN, _END = 0xDA, 0xD9
_FRAME_MARKERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_STANDALONE = frozenset((0x01, *range(0xD0, 0xD8)))
_MP_ENTRIES = 0xB002
_MP_ENTRY = "IIIHH"
_MP_ENTRY_BYTES = 16


@dataclass(frozen=True, slots=True)
class Segment:
    """One marker with its content; `start` is where the content lies in the file."""

    marker: int
    payload: bytes
    start: int = 0

    def pack(self) -> bytes:
        """Write it out."""
        size = struct.pack(">H", len(self.payload) + 2)
        return b"".join((b"\xff", bytes([self.marker]), size, self.payload))


@dataclass(frozen=True, slots=True)
class Head:
    """What comes before the first scan."""

    width: int
    height: int
    precision: int
    components: int
    frame_marker: int
    segments: tuple[Segment, ...]

    @property
    def size(self) -> tuple[int, int]:
        """Width and height as stored."""
        return self.width, self.height


def read_head(data: bytes) -> Head:
    """Walk through the segments up to the first scan.

    Raises ImageRefused when the file ends before it, or gives no picture size.
    """
    segments = _segments(data)
    frame = next((s for s in segments if s.marker in _FRAME_MARKERS), None)
    if frame is None or len(frame.payload) < 6:  # noqa: PLR2004  up to the component count
        message = "no frame header before the first scan"
        raise unreadable(message)
    precision, height, width, components = struct.unpack_from(">BHHB", frame.payload)
    if 0 in (width, height):
        message = f"the JPEG announces a picture of {width} x {height}"
        raise unreadable(message)
    return Head(width, height, precision, components, frame.marker, tuple(segments))


def _segments(data: bytes) -> list[Segment]:
    found: list[Segment] = []
    at = 2
    while True:
        if at + 4 > len(data):
            message = "the JPEG ends before its first scan"
            raise truncated(message)
        if data[at] != 0xFF:  # noqa: PLR2004  every marker starts so
            message = f"byte {data[at]:#04x} at {at} where a marker was due"
            raise unreadable(message)
        marker = data[at + 1]
        if marker == 0xFF or marker in _STANDALONE:  # noqa: PLR2004  filling
            at += 1 if marker == 0xFF else 2  # noqa: PLR2004
            continue
        if marker == _SCAN:
            return found
        if marker == _END:
            message = "the JPEG ends without a picture"
            raise unreadable(message)
        (size,) = struct.unpack_from(">H", data, at + 2)
        found.append(Segment(marker, data[at + 4 : at + 2 + size], at + 4))
        at += 2 + max(size, 2)


@dataclass(frozen=True, slots=True)
class MpEntry:
    """One picture of a multi-picture file; `start` counts from the start of the file."""

    attribute: int
    size: int
    start: int

    @property
    def is_view(self) -> bool:
        """Tell whether it shows the scene again: a preview, a panorama's part, another lens.

        Others (depth, gain maps) are data about the first picture, where text would do harm.
        """
        return (self.attribute >> 16) & 0xFF in (1, 2)


class MpIndex:
    """The index in the first picture's APP2 segment; ValueError when it makes no sense."""

    def __init__(self, segment: Segment, file_bytes: int) -> None:
        self._segment = segment
        self._base = segment.start + len(MPF_PREFIX)
        body = segment.payload[len(MPF_PREFIX) :]
        try:
            self._order = {b"II*\0": "<", b"MM\0*": ">"}[body[:4]]
            self._count, self._place = self._entries_place(body)
            self.entries = [self._entry(body, index) for index in range(self._count)]
        except (KeyError, struct.error) as error:
            message = f"no readable multi-picture index: {error!r}"
            raise ValueError(message) from error
        if self._count == 0 or any(e.start + e.size > file_bytes for e in self.entries):
            message = f"{self._count} pictures in the index, or one beyond the end of the file"
            raise ValueError(message)

    def _entries_place(self, body: bytes) -> tuple[int, int]:
        (directory,) = struct.unpack_from(f"{self._order}I", body, 4)
        (count,) = struct.unpack_from(f"{self._order}H", body, directory)
        for index in range(count):
            fields = struct.unpack_from(f"{self._order}HHII", body, directory + 2 + 12 * index)
            if fields[0] == _MP_ENTRIES:
                return fields[2] // _MP_ENTRY_BYTES, fields[3]
        return 0, 0

    def _entry(self, body: bytes, index: int) -> MpEntry:
        place = self._place + _MP_ENTRY_BYTES * index
        attribute, size, offset, *_ = struct.unpack_from(self._order + _MP_ENTRY, body, place)
        # The first picture's offset is written as 0; the others' count from the index.
        return MpEntry(attribute, size, self._base + offset if offset else 0)

    def moved(self, sizes: list[int], base: int) -> Segment:
        """Write new sizes for pictures that follow one another, the index now lying at `base`."""
        payload = bytearray(self._segment.payload)
        start = 0
        for index, size in enumerate(sizes):
            place = len(MPF_PREFIX) + self._place + _MP_ENTRY_BYTES * index + 4
            offset = start - base - len(MPF_PREFIX) if index else 0
            struct.pack_into(f"{self._order}II", payload, place, size, offset)
            start += size
        return replace(self._segment, payload=bytes(payload))
