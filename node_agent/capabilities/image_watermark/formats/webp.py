"""WebP, still and animated: each bitstream is painted and coded anew, lossless as lossless.

Animation frames stay where they are, with their timing, disposal and blending; see png.py
for why this gives the same as painting the composed pictures. Source: RFC 9649, section 2.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO

from PIL import Image, WebPImagePlugin

from node_agent.capabilities.image_watermark.classification import ImageFormat
from node_agent.capabilities.image_watermark.exif import (
    Turn,
    read_turn,
    upright_exif,
    upright_xmp,
)
from node_agent.capabilities.image_watermark.job import Edited, Job
from node_agent.capabilities.image_watermark.paint import painted, turned
from node_agent.capabilities.image_watermark.refusals import truncated, unreadable, unsupported

_STREAMS = frozenset((b"VP8 ", b"VP8L", b"ALPH"))
_FRAME_HEADER_BYTES = 16
_LOSSY_QUALITY = 92
_HAS_ALPHA = 0x10
_RIFF_HEADER_BYTES = 12
_SIZE_14_BITS = 0x3FFF

Size = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A RIFF chunk."""

    kind: bytes
    payload: bytes

    def pack(self) -> bytes:
        """Write it out, padded to an even length."""
        padding = b"\0" * (len(self.payload) % 2)
        return b"".join((self.kind, struct.pack("<I", len(self.payload)), self.payload, padding))


@dataclass(frozen=True, slots=True)
class _Frame:
    """ANMF: a place on the canvas, timing that is kept, and a bitstream."""

    left: int
    top: int
    size: Size
    timing: bytes
    streams: tuple[_Chunk, ...]

    @property
    def box(self) -> tuple[int, int, int, int]:
        """Left, top, right and bottom on the canvas."""
        return self.left, self.top, self.left + self.size[0], self.top + self.size[1]

    @classmethod
    def read(cls, payload: bytes) -> _Frame:
        """Take it from a chunk's content; places are stored halved, sizes less one."""
        if len(payload) < _FRAME_HEADER_BYTES:
            message = "a frame of the WebP ends within its header"
            raise truncated(message)
        left, top, width, height = (_uint24(payload, at) for at in (0, 3, 6, 9))
        streams = tuple(c for c in _chunks(payload[_FRAME_HEADER_BYTES:]) if c.kind in _STREAMS)
        return cls(2 * left, 2 * top, (width + 1, height + 1), payload[12:16], streams)

    def chunk(self) -> _Chunk:
        """Write it out."""
        numbers = (self.left // 2, self.top // 2, self.size[0] - 1, self.size[1] - 1)
        place = b"".join(number.to_bytes(3, "little") for number in numbers)
        body = b"".join(stream.pack() for stream in self.streams)
        return _Chunk(b"ANMF", place + self.timing + body)


def edit(data: bytes, job: Job) -> Edited:
    """Watermark a WebP."""
    _check_length(data)
    chunks = list(_chunks(data[_RIFF_HEADER_BYTES : 8 + _declared(data)]))
    canvas = _canvas(chunks)
    job.limits.check_size(*canvas)
    turn = read_turn(next((c.payload for c in chunks if c.kind == b"EXIF"), b""))
    size = turn.size(canvas)
    frames = [_Frame.read(c.payload) for c in chunks if c.kind == b"ANMF"]
    job.limits.check_frames(len(frames), sum(f.size[0] * f.size[1] for f in frames))
    if frames:
        edited = iter([_edited_frame(f, canvas, turn, job).chunk() for f in frames])
        new = [next(edited) if c.kind == b"ANMF" else c for c in chunks]
    else:
        new = _edited_still(chunks, turn, job)
    kept = [_upright(chunk, size, turn) for chunk in new]
    return Edited(
        data=_packed(kept),
        format=ImageFormat.WEBP,
        width=size[0],
        height=size[1],
        frames=max(1, len(frames)),
        marked=not job.pattern_for(size).is_empty,
    )


def _declared(data: bytes) -> int:
    return int.from_bytes(data[4:8], "little")


def _check_length(data: bytes) -> None:
    if 8 + _declared(data) > len(data):
        message = f"the WebP announces {8 + _declared(data)} bytes and has {len(data)}"
        raise truncated(message)


def _chunks(body: bytes) -> Iterator[_Chunk]:
    at = 0
    while at + 8 <= len(body):
        kind, size = struct.unpack_from("<4sI", body, at)
        payload = body[at + 8 : at + 8 + size]
        if len(payload) < size:
            message = f"the WebP ends within its {kind.decode('ascii', 'backslashreplace')} chunk"
            raise truncated(message)
        yield _Chunk(kind, payload)
        at += 8 + size + size % 2


def _uint24(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 3], "little")


def _canvas(chunks: list[_Chunk]) -> Size:
    first = chunks[0] if chunks else _Chunk(b"none", b"")
    if first.kind == b"VP8X" and len(first.payload) >= 10:  # noqa: PLR2004  its fixed length
        return _uint24(first.payload, 4) + 1, _uint24(first.payload, 7) + 1
    return _stream_size(first)


def _stream_size(stream: _Chunk) -> Size:
    if stream.kind == b"VP8L" and len(stream.payload) >= 5:  # noqa: PLR2004  signature and sizes
        bits = int.from_bytes(stream.payload[1:5], "little")
        return (bits & _SIZE_14_BITS) + 1, (bits >> 14 & _SIZE_14_BITS) + 1
    if stream.kind == b"VP8 " and len(stream.payload) >= 10:  # noqa: PLR2004  key frame header
        width, height = struct.unpack_from("<HH", stream.payload, 6)
        return width & _SIZE_14_BITS, height & _SIZE_14_BITS
    message = "the WebP starts with no picture"
    raise unreadable(message)


def _edited_still(chunks: list[_Chunk], turn: Turn, job: Job) -> list[_Chunk]:
    streams = tuple(chunk for chunk in chunks if chunk.kind in _STREAMS)
    picture = turned(_decode(streams), turn)
    picture = painted(picture, job.pattern_for(picture.size))
    first = next(index for index, chunk in enumerate(chunks) if chunk.kind in _STREAMS)
    rest = [chunk for chunk in chunks[first:] if chunk.kind not in _STREAMS]
    return [*chunks[:first], *_encode(picture, streams), *rest]


def _edited_frame(frame: _Frame, canvas: Size, turn: Turn, job: Job) -> _Frame:
    picture = turned(_decode(frame.streams), turn)
    left, top = turn.corner(frame.box, canvas)
    if left % 2 or top % 2:
        message = (
            f"an animated WebP of orientation {turn.orientation}, whose frames cannot be turned"
        )
        raise unsupported(message)
    picture = painted(picture, job.pattern_for(turn.size(canvas)), (left, top))
    return _Frame(left, top, picture.size, frame.timing, _encode(picture, frame.streams))


def _decode(streams: tuple[_Chunk, ...]) -> Image.Image:
    """Each bitstream is read as a file of its own, so that Pillow composes nothing."""
    if not streams or streams[-1].kind == b"ALPH":
        message = "a WebP frame without picture data"
        raise unreadable(message)
    size = _stream_size(streams[-1])
    chunks = [*streams]
    if len(streams) > 1:
        sides = b"".join((side - 1).to_bytes(3, "little") for side in size)
        chunks.insert(0, _Chunk(b"VP8X", bytes((_HAS_ALPHA, 0, 0, 0)) + sides))
    picture = WebPImagePlugin.WebPImageFile(BytesIO(_packed(chunks)))
    picture.load()
    return picture


def _encode(picture: object, streams: tuple[_Chunk, ...]) -> tuple[_Chunk, ...]:
    if not isinstance(picture, Image.Image):
        message = "a WebP deeper than 8 bits"
        raise unsupported(message)
    out = BytesIO()
    is_lossless = any(stream.kind == b"VP8L" for stream in streams)
    quality = 75 if is_lossless else _LOSSY_QUALITY
    picture.info = {}
    picture.save(out, "WEBP", lossless=is_lossless, exact=is_lossless, quality=quality, method=4)
    written = _chunks(out.getvalue()[_RIFF_HEADER_BYTES:])
    return tuple(chunk for chunk in written if chunk.kind in _STREAMS)


def _upright(chunk: _Chunk, size: Size, turn: Turn) -> _Chunk:
    if chunk.kind == b"EXIF":
        return _Chunk(chunk.kind, upright_exif(chunk.payload, size))
    if chunk.kind == b"XMP " and turn.is_needed:
        return _Chunk(chunk.kind, upright_xmp(chunk.payload))
    if chunk.kind == b"VP8X" and turn.is_needed:
        sides = b"".join((side - 1).to_bytes(3, "little") for side in size)
        return _Chunk(chunk.kind, chunk.payload[:4] + sides)
    return chunk


def _packed(chunks: list[_Chunk]) -> bytes:
    body = b"".join(chunk.pack() for chunk in chunks)
    return b"".join((b"RIFF", struct.pack("<I", 4 + len(body)), b"WEBP", body))
