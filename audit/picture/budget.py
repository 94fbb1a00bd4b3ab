"""How much memory decoding a file takes at its peak, known from its header before it is decoded.

Measured as the growth of the resident memory from bytes to features, per pixel: what the decoder
itself keeps differs most. WebP holds two canvases beside the frame, JPEG 2000 four bytes a sample
and both of its representations. `tests/audit/picture/test_budget.py` measures it again.
"""

from __future__ import annotations

from collections.abc import Mapping

from PIL import Image

# Bytes per pixel of the header, the largest that was measured in any mode, rounded up.
BYTES_PER_PIXEL: Mapping[str, int] = {"JPEG": 9, "MPO": 9, "GIF": 12, "WEBP": 22, "AVIF": 18}
JPEG2000_BYTES_PER_SAMPLE = 7
OTHERS = 16


def decode_memory(image: Image.Image) -> int:
    """Return the most bytes that decoding and measuring an opened image takes."""
    per_pixel = BYTES_PER_PIXEL.get(image.format or "", OTHERS)
    if image.format == "JPEG2000":
        per_pixel = JPEG2000_BYTES_PER_SAMPLE * len(image.getbands())
    return image.width * image.height * per_pixel
