"""One prepared watermark, set on any number of pictures."""

from __future__ import annotations

import os
import struct
import tempfile
import warnings
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from types import MappingProxyType

from PIL import Image

from node_agent.capabilities.image_watermark.classification import (
    HEAD_BYTES,
    ImageFormat,
    image_format,
    unsupported_format,
)
from node_agent.capabilities.image_watermark.font import WatermarkFont, bundled_font
from node_agent.capabilities.image_watermark.formats import bmp, gif, jpeg, png, tiff, webp
from node_agent.capabilities.image_watermark.job import Edited, Job
from node_agent.capabilities.image_watermark.options import ImageLimits, WatermarkOptions
from node_agent.capabilities.image_watermark.pattern import Pattern, Size, plan
from node_agent.capabilities.image_watermark.refusals import (
    ImageRefused,
    too_large,
    truncated,
    unreadable,
    unsupported,
)
from node_agent.capabilities.image_watermark.stamp import RecentlyUsed, TextPainter
from node_agent.capabilities.image_watermark.text import prepare_text

_EDITORS: Mapping[ImageFormat, Callable[[bytes, Job], Edited]] = MappingProxyType(
    {
        ImageFormat.JPEG: jpeg.edit,
        ImageFormat.PNG: png.edit,
        ImageFormat.GIF: gif.edit,
        ImageFormat.WEBP: webp.edit,
        ImageFormat.TIFF: tiff.edit,
        ImageFormat.BMP: bmp.edit,
    }
)
_PATTERNS_KEPT = 16
# What Pillow and the readers here raise on damaged bytes. No file is open at that point, so
# that an OSError is Pillow's word on the picture, never the disk's.
_DAMAGE = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    OSError,
    SyntaxError,
    TypeError,
    ValueError,
    struct.error,
    zlib.error,
)
_CUT_SHORT = ("truncated", "not enough", "unexpected end", "ended before")


@dataclass(frozen=True, slots=True)
class ImageResult:
    """What was written.

    width, height: in pixels, as seen.
    frames: frames, pages or pictures in the file.
    marked: False when the picture is too small to carry text.
    notes: what could not be kept, a sentence each.
    """

    format: ImageFormat
    width: int
    height: int
    frames: int
    marked: bool
    notes: tuple[str, ...]


class Watermarker:
    """A text with its look, checked and measured once.

    font: None takes the font that ships with the agent.
    Raises TextRefused when the text cannot be drawn as written, before any picture is read.
    Not safe for use by several threads at once; make one in each worker process.
    """

    def __init__(
        self,
        text: str,
        options: WatermarkOptions | None = None,
        limits: ImageLimits | None = None,
        font: WatermarkFont | None = None,
    ) -> None:
        self._options = options or WatermarkOptions()
        prepared = prepare_text(text)
        self._painter = TextPainter(prepared, font or bundled_font(), self._options.opacity)
        self._patterns: RecentlyUsed[Size, Pattern] = RecentlyUsed(_PATTERNS_KEPT)
        self._job = Job(self._pattern_for, limits or ImageLimits())

    def watermark_image(self, source: Path, destination: Path) -> ImageResult:
        """Write a watermarked copy of a picture, whole or not at all.

        The same input gives the same bytes. Raises ImageRefused when the picture is damaged,
        too large or of an unsupported kind; OSError when a file cannot be read or written.
        """
        self._job.limits.check_file(source.stat().st_size)
        edited = self.watermark_bytes(source.name, source.read_bytes())
        _write_atomically(destination, edited.data)
        return ImageResult(
            edited.format, edited.width, edited.height, edited.frames, edited.marked, edited.notes
        )

    def watermark_bytes(self, name: str, data: bytes) -> Edited:
        """Watermark a picture in memory; the name only helps to tell what it is.

        Raises ImageRefused.
        """
        editor = _EDITORS[_supported_format(name, data)]
        try:
            with warnings.catch_warnings():
                # Pillow warns of odd metadata, which is none of the text's business.
                warnings.simplefilter("ignore")
                edited = editor(data, self._job)
                # What is kept of a file may contradict what is new: then nobody could open it.
                Image.open(BytesIO(edited.data)).close()
                return edited
        except ImageRefused:
            raise
        except (MemoryError, Image.DecompressionBombError) as error:
            message = f"{name} needs more memory than there is: {error}"
            raise too_large(message) from error
        except _DAMAGE as error:
            raise _damaged(name, error) from error

    def _pattern_for(self, size: Size) -> Pattern:
        known = self._patterns.recall(size)
        if known is not None:
            return known
        return self._patterns.keep(size, plan(size, self._painter, self._options))


def _supported_format(name: str, data: bytes) -> ImageFormat:
    head = data[:HEAD_BYTES]
    other = unsupported_format(name, head)
    if other is not None:
        message = f"{name} is a picture in the format {other}, which is not supported"
        raise unsupported(message)
    found = image_format(head)
    if found is None:
        message = f"{name} is empty" if not data else f"{name} starts like no picture"
        raise unreadable(message)
    return found


def _damaged(name: str, error: Exception) -> ImageRefused:
    text = str(error) or type(error).__name__
    refusal = truncated if any(words in text for words in _CUT_SHORT) else unreadable
    return refusal(f"{name}: {text}")


def _write_atomically(destination: Path, data: bytes) -> None:
    handle, temporary = tempfile.mkstemp(
        prefix=f".{destination.name[:64]}.", dir=destination.parent
    )
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(temporary).replace(destination)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
