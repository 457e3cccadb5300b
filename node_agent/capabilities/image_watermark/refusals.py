"""Why a picture or a watermark text is refused: typed, final, and worded for the sender."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar


class ImageReason(StrEnum):
    """What is wrong with a picture."""

    IMAGE_UNREADABLE = "IMAGE_UNREADABLE"
    IMAGE_TRUNCATED = "IMAGE_TRUNCATED"
    IMAGE_TOO_LARGE = "IMAGE_TOO_LARGE"
    IMAGE_UNSUPPORTED_FORMAT = "IMAGE_UNSUPPORTED_FORMAT"


class TextReason(StrEnum):
    """What is wrong with a watermark text, its options or its font."""

    TEXT_INVALID = "TEXT_INVALID"
    TEXT_GLYPH_MISSING = "TEXT_GLYPH_MISSING"
    TEXT_SHAPER_MISSING = "TEXT_SHAPER_MISSING"
    FONT_UNUSABLE = "FONT_UNUSABLE"
    OPTIONS_INVALID = "OPTIONS_INVALID"


class WatermarkRefused(Exception):  # noqa: N818  a verdict on the input, not a fault
    """Base of both refusals; the same input is refused again, so neither is retryable."""

    retryable: ClassVar[bool] = False
    grpc_code: ClassVar[str] = "INVALID_ARGUMENT"

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message

    def __reduce__(self) -> tuple[type[WatermarkRefused], tuple[str, str]]:
        """Rebuild from both arguments, so that the error crosses a process boundary whole."""
        return type(self), (self.reason, self.message)


class ImageRefused(WatermarkRefused):
    """One picture cannot be watermarked; other pictures are not affected."""

    def __init__(self, reason: ImageReason | str, message: str) -> None:
        super().__init__(ImageReason(reason), message)


class TextRefused(WatermarkRefused):
    """The text cannot be drawn as written; no picture has been touched."""

    def __init__(self, reason: TextReason | str, message: str) -> None:
        super().__init__(TextReason(reason), message)


def unreadable(message: str) -> ImageRefused:
    """The bytes contradict their own format."""
    return ImageRefused(ImageReason.IMAGE_UNREADABLE, message)


def truncated(message: str) -> ImageRefused:
    """The file ends before its picture does."""
    return ImageRefused(ImageReason.IMAGE_TRUNCATED, message)


def too_large(message: str) -> ImageRefused:
    """The picture exceeds a limit."""
    return ImageRefused(ImageReason.IMAGE_TOO_LARGE, message)


def unsupported(message: str) -> ImageRefused:
    """A picture, but of a kind that cannot be written back without loss."""
    return ImageRefused(ImageReason.IMAGE_UNSUPPORTED_FORMAT, message)
