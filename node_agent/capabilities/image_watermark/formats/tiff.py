"""TIFF: every page painted and written with its own compression and descriptive tags."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO

from PIL import ImageChops, TiffImagePlugin

from node_agent.capabilities.image_watermark.classification import ImageFormat
from node_agent.capabilities.image_watermark.deep import Channel, DeepPicture, grey_of
from node_agent.capabilities.image_watermark.formats.tiff_deep import is_deep, read_deep, write_deep
from node_agent.capabilities.image_watermark.job import Edited, Job
from node_agent.capabilities.image_watermark.paint import PAINTABLE_MODES, Picture, painted
from node_agent.capabilities.image_watermark.refusals import unsupported

_BITS, _PHOTOMETRIC, _SUB_DIRECTORIES, _DNG = 258, 262, 330, 50706
_WHITE_IS_ZERO = 0
_REDUCED = 254
_BITS_KEPT = frozenset((1, 2, 4, 8, 16, 32))
_WIDER = {"1": "L", "P": "RGB", "PA": "RGBA", "RGBX": "RGB", "YCbCr": "RGB"}
_LOSSLESS = {name: name for name in ("raw", "packbits", "tiff_lzw", "tiff_adobe_deflate")} | {
    "tiff_deflate": "tiff_adobe_deflate"
}
_JPEG_MODES = frozenset(("L", "RGB"))
_JPEG_QUALITY = 92
# Tags that describe the picture rather than how it is stored.
_KEPT_TAGS = (
    _REDUCED,
    269,  # DocumentName
    270,  # ImageDescription
    271,  # Make
    272,  # Model
    282,  # XResolution
    283,  # YResolution
    285,  # PageName
    286,  # XPosition
    287,  # YPosition
    296,  # ResolutionUnit
    297,  # PageNumber
    305,  # Software
    306,  # DateTime
    315,  # Artist
    316,  # HostComputer
    700,  # XMP
    33432,  # Copyright
    33550,  # GeoTIFF pixel scale
    33723,  # IPTC
    33922,  # GeoTIFF tie points
    34377,  # Photoshop
    34675,  # ICC profile
    34735,  # GeoTIFF keys
    34736,
    34737,
)


def edit(data: bytes, job: Job) -> Edited:
    """Watermark all pages of a TIFF."""
    sizes = _checked_sizes(data, job)
    out = BytesIO()
    notes: dict[str, None] = {}
    marked = False
    with TiffImagePlugin.AppendingTiffWriter(out) as pages:
        for number in range(len(sizes)):
            page, is_marked = _edited_page(data, number, job, notes)
            pages.write(page)
            pages.newFrame()
            marked = marked or is_marked
    return Edited(
        data=out.getvalue(),
        format=ImageFormat.TIFF,
        width=sizes[0][0],
        height=sizes[0][1],
        frames=len(sizes),
        marked=marked,
        notes=tuple(notes),
    )


def _opened(data: bytes, number: int = 0) -> TiffImagePlugin.TiffImageFile:
    """Open a page; layouts that Pillow does not know are told from damage."""
    try:
        file = TiffImagePlugin.TiffImageFile(BytesIO(data))
        file.seek(number)
    except SyntaxError as error:
        if "unknown" not in str(error):
            raise
        message = f"page {number + 1} of the TIFF has a pixel layout that is not supported"
        raise unsupported(message) from error
    return file


def _checked_sizes(data: bytes, job: Job) -> list[tuple[int, int]]:
    """Walk through the directories, without pixels, and check each page against the limits."""
    file = _opened(data)
    sizes = []
    while True:
        job.limits.check_size(*file.size)
        sizes.append(file.size)
        job.limits.check_frames(len(sizes), sum(width * height for width, height in sizes))
        _check_layout(file)
        try:
            file.seek(len(sizes))
        except EOFError:
            return sizes
        except SyntaxError as error:
            message = f"page {len(sizes) + 1} of the TIFF: {error}"
            raise unsupported(message) from error


def _check_layout(file: TiffImagePlugin.TiffImageFile) -> None:
    is_raw = _DNG in file.tag_v2 or (
        _SUB_DIRECTORIES in file.tag_v2 and file.tag_v2.get(_REDUCED, 0) & 1
    )
    bits = file.tag_v2.get(_BITS, (1,))
    if is_raw or not _BITS_KEPT.issuperset(bits):
        message = f"a TIFF of {'camera raw data' if is_raw else f'{bits} bits a sample'}"
        raise unsupported(message)


def _edited_page(data: bytes, number: int, job: Job, notes: dict[str, None]) -> tuple[bytes, bool]:
    source = _opened(data, number)
    tags = _kept_tags(source)
    compression = str(source.info.get("compression", "raw"))
    picture = _read(data, number, source, notes)
    pattern = job.pattern_for(picture.size)
    picture = painted(picture, pattern)
    return _written(picture, tags, compression, notes), not pattern.is_empty


def _kept_tags(source: TiffImagePlugin.TiffImageFile) -> TiffImagePlugin.ImageFileDirectory_v2:
    tags = TiffImagePlugin.ImageFileDirectory_v2()
    for tag in _KEPT_TAGS:
        if tag in source.tag_v2:
            tags[tag] = source.tag_v2[tag]
            tags.tagtype[tag] = source.tag_v2.tagtype[tag]
    return tags


def _read(
    data: bytes, number: int, source: TiffImagePlugin.TiffImageFile, notes: dict[str, None]
) -> Picture:
    """Pillow turns the page upright while it reads it."""
    if is_deep(source):
        return read_deep(lambda: _opened(data, number))
    photometric = source.tag_v2.get(_PHOTOMETRIC)
    source.load()
    if source.mode in ("I;16", "I;16B"):
        grey = grey_of(source)
        # Pillow inverts such pages at 8 bits only, and writes them as "black is zero".
        return _inverted(grey) if photometric == _WHITE_IS_ZERO else grey
    mode = _WIDER.get(source.mode, source.mode)
    if mode not in PAINTABLE_MODES:
        message = f"a TIFF of mode {source.mode}"
        raise unsupported(message)
    if mode != source.mode:
        notes[f"{source.mode} widened to {mode}"] = None
        return source.convert(mode)
    return source.copy()


def _inverted(picture: DeepPicture) -> DeepPicture:
    invert = ImageChops.invert
    colours = tuple(Channel(invert(c.high), invert(c.low)) for c in picture.colours)
    return replace(picture, colours=colours)


def _written(
    picture: Picture,
    tags: TiffImagePlugin.ImageFileDirectory_v2,
    compression: str,
    notes: dict[str, None],
) -> bytes:
    options: dict[str, object] = {"tiffinfo": tags, "compression": _LOSSLESS.get(compression)}
    mode = None if isinstance(picture, DeepPicture) else picture.mode
    if compression == "jpeg" and mode in _JPEG_MODES:
        options |= {"compression": "jpeg", "quality": _JPEG_QUALITY}
    elif compression not in _LOSSLESS:
        options["compression"] = "tiff_adobe_deflate"
        notes[f"compression {compression} changed to deflate"] = None
    if isinstance(picture, DeepPicture):
        return write_deep(picture, options)
    out = BytesIO()
    picture.info = {}
    picture.save(out, "TIFF", **options)
    return out.getvalue()
