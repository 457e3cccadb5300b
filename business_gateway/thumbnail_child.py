"""Makes one small picture from standard input to standard output, within hard limits.

Run as `python -m business_gateway.thumbnail_child`, one process a picture: whatever a damaged or
hostile picture does to the decoder ends with it.
"""

import io
import resource
import sys
from typing import Final

from PIL import Image, ImageOps

EDGE_PX: Final = 480
PIXELS_MAX: Final = 200_000_000
FORMATS: Final = ("BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP")
_MEMORY_BYTES_MAX: Final = 2 * 1024**3
_CPU_S_MAX: Final = 15
_QUALITY: Final = 78


def thumbnail(picture: bytes) -> bytes:
    """Return the picture's first frame, upright, within a square of EDGE_PX, as WebP.

    ValueError for a picture of too many pixels, else what the decoder raises.
    """
    with Image.open(io.BytesIO(picture), formats=FORMATS) as image:
        width, height = image.size
        if width * height > PIXELS_MAX:
            raise ValueError(f"the picture has {width} x {height} pixels")
        # Lets the JPEG decoder skip what the small picture does not need.
        image.draft("RGB", (EDGE_PX, EDGE_PX))
        upright = ImageOps.exif_transpose(image)
        small = upright.convert("RGBA" if upright.has_transparency_data else "RGB")
        small.thumbnail((EDGE_PX, EDGE_PX), Image.Resampling.LANCZOS)
        target = io.BytesIO()
        small.save(target, "WEBP", quality=_QUALITY, method=2)
        return target.getvalue()


def main() -> int:
    """Read, make, write; the status says whether it was done."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES_MAX, _MEMORY_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_S_MAX, _CPU_S_MAX))
    # The bound above is checked from the header, before anything is decoded.
    Image.MAX_IMAGE_PIXELS = None
    try:
        made = thumbnail(sys.stdin.buffer.read())
    except (OSError, SyntaxError, ValueError, MemoryError):
        return 1
    sys.stdout.buffer.write(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
