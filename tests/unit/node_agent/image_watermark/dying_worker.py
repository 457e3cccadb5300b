"""The worker, but that pictures whose name begins with "deadly" end the process."""

from __future__ import annotations

import os
from pathlib import Path

from node_agent.capabilities.image_watermark import worker
from node_agent.capabilities.image_watermark.watermarker import ImageResult, Watermarker


class DyingWatermarker(Watermarker):
    def watermark_image(self, source: Path, destination: Path) -> ImageResult:
        if source.name.startswith("deadly"):
            os._exit(139)
        return super().watermark_image(source, destination)


if __name__ == "__main__":
    setattr(worker, "Watermarker", DyingWatermarker)  # noqa: B010 - it is not exported
    worker.main()
