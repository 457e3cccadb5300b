"""The capability image.watermark: a text set on every picture of an archive."""

from node_agent.capabilities.image_watermark.capability import image_watermark as capability
from node_agent.capabilities.image_watermark.classification import (
    HEAD_BYTES,
    FileKind,
    ImageFormat,
    classify,
    is_image,
)
from node_agent.capabilities.image_watermark.font import WatermarkFont, bundled_font
from node_agent.capabilities.image_watermark.options import ImageLimits, Layout, WatermarkOptions
from node_agent.capabilities.image_watermark.refusals import (
    ImageReason,
    ImageRefused,
    TextReason,
    TextRefused,
    WatermarkRefused,
)
from node_agent.capabilities.image_watermark.watermarker import ImageResult, Watermarker

__all__ = [
    "HEAD_BYTES",
    "FileKind",
    "ImageFormat",
    "ImageLimits",
    "ImageReason",
    "ImageRefused",
    "ImageResult",
    "Layout",
    "TextReason",
    "TextRefused",
    "WatermarkFont",
    "WatermarkOptions",
    "WatermarkRefused",
    "Watermarker",
    "bundled_font",
    "capability",
    "classify",
    "is_image",
]
