"""One prepared watermark for all tests, and what tells marked pixels from unmarked ones."""

from __future__ import annotations

import pytest
from PIL import Image

from node_agent.capabilities.image_watermark import Watermarker
from tests.unit.node_agent.image_watermark.pixels import untouched


@pytest.fixture(scope="session")
def watermarker() -> Watermarker:
    return Watermarker("水印 Sample")


@pytest.fixture(scope="session")
def ground(watermarker: Watermarker) -> object:
    """A function from a size to the mask of the pixels without text."""

    def mask(size: tuple[int, int]) -> Image.Image:
        return untouched(watermarker, size)

    return mask
