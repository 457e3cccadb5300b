"""PNG and animated PNG: each frame is painted where it lies; all other chunks stay.

Because the text has a fixed place and never touches opacity, painting the frames one by one
gives the same as painting the composed pictures, and timing, disposal and blending can stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count

from node_agent.capabilities.image_watermark.classification import ImageFormat
from node_agent.capabilities.image_watermark.exif import Turn, read_turn, upright_exif
from node_agent.capabilities.image_watermark.formats import png_pixels
from node_agent.capabilities.image_watermark.formats.png_chunks import (
    PALETTE,
    SIGNATURE,
    Chunk,
    FrameControl,
    Header,
    read_chunks,
    read_header,
)
from node_agent.capabilities.image_watermark.job import Edited, Job
from node_agent.capabilities.image_watermark.paint import painted, turned
from node_agent.capabilities.image_watermark.refusals import truncated, unreadable

# Written in terms of the old colour type.
_OF_COLOUR_TYPE = frozenset((b"PLTE", b"tRNS", b"bKGD", b"hIST", b"sBIT"))
_IDAT_BYTES_MAX = 1 << 30


@dataclass(slots=True)
class _Frame:
    """Image data, and for a frame of the animation where they go."""

    control: FrameControl | None
    is_default: bool = False
    parts: list[bytes] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _File:
    """Chunks in order, image data gathered into frames."""

    header: Header
    items: tuple[Chunk | _Frame, ...]

    def frames(self) -> list[_Frame]:
        """Give the default picture and the frames of the animation."""
        return [item for item in self.items if isinstance(item, _Frame)]

    def payload(self, kind: bytes) -> bytes | None:
        """Give the content of the first chunk of a kind."""
        found = (i.payload for i in self.items if isinstance(i, Chunk) and i.kind == kind)
        return next(found, None)


def edit(data: bytes, job: Job) -> Edited:
    """Watermark a PNG."""
    header = read_header(data)
    job.limits.check_size(*header.size)
    chunks, notes = read_chunks(data)
    file = _gathered(header, chunks)
    frames = file.frames()
    sizes = [_box(frame, header) for frame in frames]
    job.limits.check_frames(len(frames), sum((b[2] - b[0]) * (b[3] - b[1]) for b in sizes))
    turn = read_turn(file.payload(b"eXIf") or b"")
    size = turn.size(header.size)
    pattern = job.pattern_for(size)
    new_header, items = _edited_items(file, turn, job)
    if new_header.colour != header.colour and header.colour == PALETTE:
        notes.append("palette widened to true colour")
    return Edited(
        data=_packed(replace(new_header, width=size[0], height=size[1]), items, size),
        format=ImageFormat.PNG,
        width=size[0],
        height=size[1],
        frames=_shown_frames(frames),
        marked=not pattern.is_empty,
        notes=tuple(notes),
    )


def _shown_frames(frames: list[_Frame]) -> int:
    """A default picture without frame control is not part of the animation."""
    animated = sum(frame.control is not None for frame in frames)
    return animated or 1


def _gathered(header: Header, chunks: list[Chunk]) -> _File:
    items: list[Chunk | _Frame] = []
    control: FrameControl | None = None
    frame: _Frame | None = None
    for chunk in chunks[1:]:
        if chunk.kind == b"fcTL":
            control, frame = FrameControl.read(chunk.payload), None
        elif chunk.kind in (b"IDAT", b"fdAT"):
            is_default = chunk.kind == b"IDAT"
            if frame is None or frame.is_default != is_default:
                frame = _Frame(control, is_default)
                items.append(frame)
            frame.parts.append(chunk.payload if is_default else chunk.payload[4:])
        else:
            items.append(chunk)
    file = _File(header, tuple(items))
    _check_frames(file)
    return file


def _check_frames(file: _File) -> None:
    frames = file.frames()
    if sum(frame.is_default for frame in frames) != 1:
        message = "the PNG has no image data, or has them in several places"
        raise unreadable(message)
    announced = file.payload(b"acTL")
    present = sum(frame.control is not None for frame in frames)
    if announced is not None and int.from_bytes(announced[:4], "big") != present:
        message = f"{int.from_bytes(announced[:4], 'big')} frames announced, {present} present"
        raise truncated(message)
    for frame in frames:
        _check_box(frame, file.header)


def _check_box(frame: _Frame, header: Header) -> None:
    left, top, right, bottom = _box(frame, header)
    fits = left < right <= header.width and top < bottom <= header.height
    if not fits or (frame.is_default and (right - left, bottom - top) != header.size):
        message = f"a frame at {(left, top, right, bottom)} does not fit {header.size}"
        raise unreadable(message)
    if not frame.is_default and frame.control is None:
        message = "frame data without frame control"
        raise unreadable(message)


def _box(frame: _Frame, header: Header) -> tuple[int, int, int, int]:
    return (0, 0, *header.size) if frame.control is None else frame.control.box


def _edited_items(file: _File, turn: Turn, job: Job) -> tuple[Header, list[Chunk | _Frame]]:
    edited = {id(frame): _edited_frame(file, frame, turn, job) for frame in file.frames()}
    new_header = next(header for header, frame in edited.values() if frame.is_default)
    changes_colour = (new_header.colour, new_header.depth) != (
        file.header.colour,
        file.header.depth,
    )
    dropped = _OF_COLOUR_TYPE if changes_colour else frozenset[bytes]()
    items = [
        edited[id(item)][1] if isinstance(item, _Frame) else item
        for item in file.items
        if isinstance(item, _Frame) or item.kind not in dropped
    ]
    return new_header, items


def _edited_frame(file: _File, frame: _Frame, turn: Turn, job: Job) -> tuple[Header, _Frame]:
    box = _box(frame, file.header)
    header = png_pixels.resized(file.header, (box[2] - box[0], box[3] - box[1]))
    palette, transparency = file.payload(b"PLTE") or b"", file.payload(b"tRNS")
    picture = png_pixels.decode(header, b"".join(frame.parts), palette, transparency)
    corner = turn.corner(box, file.header.size)
    pattern = job.pattern_for(turn.size(file.header.size))
    picture = painted(turned(picture, turn), pattern, corner)
    new_header, packed = png_pixels.encode(picture)
    control = frame.control
    if control is not None:
        width, height = picture.size
        control = replace(control, width=width, height=height, left=corner[0], top=corner[1])
    return new_header, _Frame(control, frame.is_default, [packed])


def _packed(header: Header, items: list[Chunk | _Frame], size: tuple[int, int]) -> bytes:
    sequence = count()
    chunks = [header.chunk()]
    for item in items:
        if isinstance(item, _Frame):
            chunks += _frame_chunks(item, sequence)
        elif item.kind == b"eXIf":
            chunks.append(Chunk(item.kind, upright_exif(item.payload, size)))
        else:
            chunks.append(item)
    return SIGNATURE + b"".join(chunk.pack() for chunk in chunks)


def _frame_chunks(frame: _Frame, sequence: Iterator[int]) -> Iterator[Chunk]:
    if frame.control is not None:
        yield frame.control.chunk(next(sequence))
    data = b"".join(frame.parts)
    for start in range(0, len(data), _IDAT_BYTES_MAX):
        part = data[start : start + _IDAT_BYTES_MAX]
        if frame.is_default:
            yield Chunk(b"IDAT", part)
        else:
            yield Chunk(b"fdAT", next(sequence).to_bytes(4, "big") + part)
