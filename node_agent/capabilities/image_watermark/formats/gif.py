"""GIF: frames painted in their own colour tables; timing, disposal and transparency stay.

A pixel without text keeps its colour exactly. Blended colours take the entries that a frame
does not use; when they are too few, the nearest colour serves.
"""

from __future__ import annotations

from dataclasses import dataclass

from PIL import Image, ImageChops

from node_agent.capabilities.image_watermark.classification import ImageFormat
from node_agent.capabilities.image_watermark.formats.gif_blocks import (
    Frame,
    read_gif,
    read_screen,
    write_frame,
)
from node_agent.capabilities.image_watermark.job import Edited, Job
from node_agent.capabilities.image_watermark.pattern import Pattern
from node_agent.capabilities.image_watermark.refusals import truncated, unreadable

_ENTRIES = 256
_TRAILER = b"\x3b"
_OPAQUE = 255
_CANDIDATES_MAX = 1 << 16

Colour = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Table:
    """A colour table under change: its colours, and which entries painted pixels may take."""

    colours: list[Colour]
    allowed: list[int]

    def packed(self) -> bytes:
        return bytes(level for colour in self.colours for level in colour)


def edit(data: bytes, job: Job) -> Edited:
    """Watermark a GIF."""
    job.limits.check_size(*read_screen(data))
    file = read_gif(data)
    frames = file.frames()
    if not frames:
        message = "the GIF holds no picture"
        raise unreadable(message)
    for frame in frames:
        job.limits.check_size(*frame.size)
    job.limits.check_frames(len(frames), sum(frame.width * frame.height for frame in frames))
    screen = (file.width, file.height) if file.width and file.height else frames[0].size
    pattern = job.pattern_for(screen)
    blocks = [_edited(b, pattern) if isinstance(b, Frame) else b for b in file.blocks]
    return Edited(
        data=b"".join((b"GIF89a", file.head[6:], *blocks, _TRAILER)),
        format=ImageFormat.GIF,
        width=screen[0],
        height=screen[1],
        frames=len(frames),
        marked=not pattern.is_empty,
    )


def _edited(frame: Frame, pattern: Pattern) -> bytes:
    """Frames without text, such as those of few changed pixels, are kept byte for byte."""
    indices = _decode(frame)
    masks = pattern.masks((frame.left, frame.top), frame.size)
    if masks is None:
        return frame.raw
    shade, coverage = masks
    if frame.transparent is not None:
        coverage = ImageChops.darker(coverage, _where(indices, frame.transparent, inside=0))
    if coverage.getbbox() is None:
        return frame.raw
    palette, painted = _painted(frame, indices, shade, coverage)
    # Pillow leaves the closing sub-block, a zero, to its caller.
    return write_frame(frame, palette, painted.tobytes("gif", "P", 8, 0) + b"\0")


def _decode(frame: Frame) -> Image.Image:
    """Indices as numbers ("L"), so that Pillow's arithmetic works on them."""
    if not frame.palette:
        message = "a GIF frame has no colour table"
        raise unreadable(message)
    try:
        indices = Image.frombytes(
            "P", frame.size, frame.data, "gif", frame.code_bits, int(frame.interlaced)
        )
    except ValueError as error:
        if "not enough" in str(error):
            message = "a GIF frame ends before its last row"
            raise truncated(message) from error
        message = f"the data of a GIF frame are damaged: {error}"
        raise unreadable(message) from error
    return Image.frombytes("L", frame.size, indices.tobytes())


def _where(plane: Image.Image, level: int, *, inside: int) -> Image.Image:
    """A mask of `inside` where the plane has that level, of its opposite elsewhere."""
    return plane.point(
        [inside if value == level else _OPAQUE - inside for value in range(_ENTRIES)]
    )


def _painted(
    frame: Frame, indices: Image.Image, shade: Image.Image, coverage: Image.Image
) -> tuple[bytes, Image.Image]:
    coloured = Image.frombytes("P", frame.size, indices.tobytes())
    coloured.putpalette(frame.palette.ljust(3 * _ENTRIES, b"\0"))
    mixed = coloured.convert("RGB")
    mixed.paste(Image.merge("RGB", (shade, shade, shade)), (0, 0), coverage)
    touched = coverage.point([0, *[_OPAQUE] * (_ENTRIES - 1)])
    table = _extended(frame, indices, _colours(mixed, touched))
    nearest = _nearest(mixed, table)
    painted = Image.composite(nearest, indices, touched)
    result = Image.frombytes("P", frame.size, painted.tobytes())
    return table.packed(), result


def _colours(mixed: Image.Image, touched: Image.Image) -> list[Colour]:
    """The distinct colours of the touched pixels."""
    layer = mixed.convert("RGBA")
    layer.putalpha(touched)
    hidden = Image.composite(layer, Image.new("RGBA", layer.size, (0, 0, 0, 0)), touched)
    found = hidden.getcolors(hidden.width * hidden.height) or []
    ranked = sorted(found, key=lambda entry: (-entry[0], entry[1]))
    colours = [colour for _, colour in ranked if isinstance(colour, tuple)]
    return [colour[:3] for colour in colours if colour[3]][:_CANDIDATES_MAX]


def _extended(frame: Frame, indices: Image.Image, wanted: list[Colour]) -> _Table:
    """Put the wanted colours, or as many groups of them as fit, into unused entries."""
    padded = frame.palette.ljust(3 * _ENTRIES, b"\0")
    colours: list[Colour] = [tuple(padded[at : at + 3]) for at in range(0, len(padded), 3)]
    used = {index for index, count in enumerate(indices.histogram()) if count}
    free = [i for i in range(_ENTRIES) if i not in used and i != frame.transparent]
    new = wanted if len(wanted) <= len(free) else _grouped(wanted, len(free))
    for index, colour in zip(free, new, strict=False):
        colours[index] = colour
    allowed = sorted((used - {frame.transparent}) | set(free[: len(new)]))
    return _Table(colours, allowed)


def _grouped(colours: list[Colour], count: int) -> list[Colour]:
    """Reduce many colours to a few that stand for them."""
    if count == 0:
        return []
    row = Image.new("RGB", (len(colours), 1))
    row.putdata(colours)
    palette = row.quantize(count, Image.Quantize.MEDIANCUT).getpalette() or []
    return [tuple(palette[at : at + 3]) for at in range(0, min(len(palette), 3 * count), 3)]


def _nearest(mixed: Image.Image, table: _Table) -> Image.Image:
    """For each pixel the index of the allowed entry that looks most like it."""
    target = Image.new("P", (1, 1))
    flat = [level for index in table.allowed for level in table.colours[index]]
    # Pillow fills a short table with black, so the first colour is repeated instead.
    target.putpalette(flat + flat[:3] * (_ENTRIES - len(table.allowed)))
    matched = mixed.quantize(palette=target, dither=Image.Dither.NONE)
    places = table.allowed + table.allowed[:1] * (_ENTRIES - len(table.allowed))
    return Image.frombytes("L", mixed.size, matched.tobytes()).point(places)
