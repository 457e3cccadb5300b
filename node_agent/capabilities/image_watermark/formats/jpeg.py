"""JPEG and multi-picture JPEG: pixels written with the source's own tables, the rest kept.

Only the coded picture is Pillow's; comments, colour profiles, EXIF with its maker notes and
XMP of any length go over segment by segment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from io import BytesIO

from PIL import Image, JpegImagePlugin

from node_agent.capabilities.image_watermark.classification import ImageFormat
from node_agent.capabilities.image_watermark.exif import (
    EXIF_PREFIX,
    Turn,
    read_turn,
    upright_exif,
    upright_xmp,
)
from node_agent.capabilities.image_watermark.formats.jpeg_segments import (
    APP0,
    APP1,
    APP2,
    APP14,
    APP15,
    COMMENT,
    MPF_PREFIX,
    SOI,
    Head,
    MpEntry,
    MpIndex,
    Segment,
    read_head,
)
from node_agent.capabilities.image_watermark.job import Edited, Job
from node_agent.capabilities.image_watermark.paint import painted, turned
from node_agent.capabilities.image_watermark.refusals import unreadable, unsupported

_JFIF, _JFIF_BARE_BYTES = b"JFIF\0", 14
_XMP_PREFIX = b"http://ns.adobe.com/x"
_SAMPLE_BITS = 8
_LOSSLESS_MARKERS = frozenset((0xC3, 0xC5, 0xC6, 0xC7, 0xCB, 0xCD, 0xCE, 0xCF))
_FULL_CHROMA = 0
_FALLBACK_QUALITY = 92


def edit(data: bytes, job: Job) -> Edited:
    """Watermark a JPEG, with the further pictures behind it if there are any."""
    head = read_head(data)
    job.limits.check_size(*head.size)
    index = _index(head, len(data))
    if index is None or len(index.entries) == 1:
        return _edited_single(data, head, job)
    return _edited_several(data, head, index, job)


def _index(head: Head, file_bytes: int) -> MpIndex | None:
    try:
        return next((MpIndex(s, file_bytes) for s in head.segments if _is_index(s)), None)
    except ValueError:
        return None


def _is_index(segment: Segment) -> bool:
    return segment.marker == APP2 and segment.payload.startswith(MPF_PREFIX)


def _edited_single(data: bytes, head: Head, job: Job) -> Edited:
    """A picture by itself; an index that points nowhere goes."""
    turn = _turn(head)
    new = _repainted(data, head, job)
    size = turn.size(head.size)
    return Edited(
        data=new.packed(),
        format=ImageFormat.JPEG,
        width=size[0],
        height=size[1],
        marked=not job.pattern_for(size).is_empty,
    )


def _edited_several(data: bytes, head: Head, index: MpIndex, job: Job) -> Edited:
    entries = index.entries
    heads = [read_head(_part(data, entry)) for entry in entries]
    for each in heads:
        job.limits.check_size(*each.size)
    job.limits.check_frames(len(heads), sum(each.width * each.height for each in heads))
    single = _edited_single(data[: entries[0].size], heads[0], job)
    turn = _turn(head)
    if turn.is_needed and not all(entry.is_view for entry in entries[1:]):
        # A depth or gain map has to lie as its picture does, and has no orientation to tell how.
        note = f"{len(entries) - 1} further pictures left out, because the first was turned"
        return replace(single, notes=(note,))
    others = [_edited_other(_part(data, entry), entry, job) for entry in entries[1:]]
    first = _repainted(data[: entries[0].size], head, job, index)
    return replace(
        single,
        data=b"".join((first.indexed(index, [len(other) for other in others]), *others)),
        format=ImageFormat.MPO,
        frames=len(entries),
    )


def _part(data: bytes, entry: MpEntry) -> bytes:
    part = data[entry.start : entry.start + entry.size]
    if not part.startswith(SOI):
        message = "the multi-picture index points to something that is no JPEG"
        raise unreadable(message)
    return part


def _edited_other(part: bytes, entry: MpEntry, job: Job) -> bytes:
    head = read_head(part)
    if entry.is_view:
        return _repainted(part, head, job).packed()
    _decode(part, head)
    return part


@dataclass(frozen=True, slots=True)
class _Written:
    """Segments that were kept, and the coded picture that follows them."""

    segments: tuple[Segment, ...]
    coded: bytes

    def packed(self) -> bytes:
        return b"".join((SOI, *(segment.pack() for segment in self.segments), self.coded))

    def indexed(self, index: MpIndex, other_sizes: list[int]) -> bytes:
        """Pack with the index brought up to date; its own length does not change."""
        before, at = [], len(SOI)
        for segment in self.segments:
            if _is_index(segment):
                break
            before.append(segment)
            at += len(segment.pack())
        moved = index.moved([len(self.packed()), *other_sizes], at + 4)
        rest = self.segments[len(before) + 1 :]
        return replace(self, segments=(*before, moved, *rest)).packed()


def _repainted(data: bytes, head: Head, job: Job, index: MpIndex | None = None) -> _Written:
    picture = _decode(data, head)
    turn = _turn(head)
    options = _options(picture)
    upright = turned(picture, turn)
    upright = painted(upright, job.pattern_for(upright.size))
    if not isinstance(upright, Image.Image):
        message = f"a JPEG of {head.precision} bits"
        raise unsupported(message)
    out = BytesIO()
    upright.info = {}
    upright.save(out, "JPEG", **options)
    return _spliced(head, turn, out.getvalue(), keeps_index=index is not None)


def _decode(data: bytes, head: Head) -> JpegImagePlugin.JpegImageFile:
    if head.precision != _SAMPLE_BITS or head.frame_marker in _LOSSLESS_MARKERS:
        message = f"a JPEG of {head.precision} bits a sample, marker {head.frame_marker:#04x}"
        raise unsupported(message)
    picture = JpegImagePlugin.JpegImageFile(BytesIO(data))
    picture.load()
    return picture


def _options(picture: JpegImagePlugin.JpegImageFile) -> dict[str, object]:
    """Save options that repeat how the source was coded."""
    options: dict[str, object] = {"progressive": bool(picture.info.get("progressive"))}
    tables = [picture.quantization.get(component[3]) for component in picture.layer[:2]]
    if None in tables:
        options["quality"] = _FALLBACK_QUALITY
    else:
        options["qtables"] = tables
    if picture.mode == "RGB":
        sampling = JpegImagePlugin.get_sampling(picture)
        options["subsampling"] = sampling if sampling >= 0 else _FULL_CHROMA
        options["keep_rgb"] = picture.info.get("adobe_transform") == 0
    elif picture.mode == "CMYK":
        options["subsampling"] = _FULL_CHROMA
    return options


def _turn(head: Head) -> Turn:
    exif = next((s.payload for s in head.segments if _is_exif(s)), b"")
    return read_turn(exif)


def _is_exif(segment: Segment) -> bool:
    return segment.marker == APP1 and segment.payload.startswith(EXIF_PREFIX)


def _spliced(head: Head, turn: Turn, coded: bytes, *, keeps_index: bool) -> _Written:
    """Put the source's segments in place of Pillow's, but for those that tell how it coded."""
    jfif = [s for s in read_head(coded).segments if s.marker == APP0]
    own = next((s for s in head.segments if s.marker == APP0 and s.payload.startswith(_JFIF)), None)
    if jfif and own is not None:
        without_thumbnail = own.payload[: _JFIF_BARE_BYTES - 2] + b"\0\0"
        jfif = [replace(own, payload=without_thumbnail)]
    kept = _kept(head, turn, keeps_index=keeps_index)
    return _Written((*jfif, *kept), _without_app0(coded))


def _kept(head: Head, turn: Turn, *, keeps_index: bool) -> Iterator[Segment]:
    for segment in head.segments:
        is_side = APP1 <= segment.marker <= APP15 or segment.marker == COMMENT
        if not is_side or segment.marker == APP14 or (_is_index(segment) and not keeps_index):
            continue
        if _is_exif(segment):
            yield replace(segment, payload=upright_exif(segment.payload, turn.size(head.size)))
        elif turn.is_needed and segment.payload.startswith(_XMP_PREFIX):
            yield replace(segment, payload=upright_xmp(segment.payload))
        else:
            yield segment


def _without_app0(coded: bytes) -> bytes:
    """Pillow writes APP0, if it does, right after the start of the picture."""
    if coded[2:4] != bytes((0xFF, APP0)):
        return coded[2:]
    return coded[4 + int.from_bytes(coded[4:6], "big") :]
