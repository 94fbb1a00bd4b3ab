"""What a file's header tells, read from an image that Pillow opened and has not decoded.

Frames, depth, alpha, colour profile, EXIF orientation, time and camera, JPEG quality and
subsampling, whether the file ends where its data ends, and the memory that decoding takes. What
cannot be read is null, because a broken comment does not make a broken picture.
"""

from __future__ import annotations

import contextlib
import re
import struct
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image, ImageCms

MOST_FRAMES = (1 << 31) - 1  # what the column holds; a PNG may say one more
MOST_PAGES = 1_000_000  # of a TIFF, counted in .5 s; directories may overlap, one at each byte
ORIENTATION, EXIF_IFD, TIME, MAKE, MODEL, SERIAL = 0x0112, 0x8769, 0x9003, 0x010F, 0x0110, 0xA431
DEEP = {"1": 1, "I": 32, "F": 32, "I;16": 16, "I;16B": 16, "I;16L": 16, "I;16N": 16}
# Sampling factors (horizontal, vertical) of luma over chroma.
SUBSAMPLING = {
    (1, 1): "4:4:4", (2, 1): "4:2:2", (2, 2): "4:2:0", (4, 1): "4:1:1", (1, 2): "4:4:0",
    (4, 2): "4:1:0",
}  # fmt: skip


def header_columns(image: Image.Image, data: bytes) -> dict[str, Any]:
    """Return what the header of an opened, not yet decoded image tells, as in `FILE_COLUMNS`."""
    frames = _frames(image, data)
    columns: dict[str, Any] = {
        "bit_depth": _bit_depth(image, data),
        "frames": frames,
        "animated": frames > 1 and image.format in ("GIF", "PNG", "WEBP", "AVIF", "FLI"),
        "has_alpha": "A" in image.mode or "a" in image.mode or "transparency" in image.info,
        "icc_profile": _icc_name(image.info.get("icc_profile")),
        "progressive": bool(image.info.get("progressive") or image.info.get("interlace")),
        "orientation": 1,
    }
    columns |= exif_columns(image)
    if image.format in ("JPEG", "MPO"):
        columns |= _jpeg(image) | _jpeg_end(image, data)
    elif image.format == "PNG":
        columns |= _png_end(data)
    return columns


def _frames(image: Image.Image, data: bytes) -> int:
    if image.format == "TIFF":
        return _tiff_pages(data)
    try:
        return min(int(getattr(image, "n_frames", 1)), MOST_FRAMES)
    except Exception:  # noqa: BLE001 - a broken second frame does not break the first
        return 1


def _tiff_pages(data: bytes) -> int:
    """Return how many directories follow each other, up to one that is broken or was there."""
    order, big = "<" if data[:2] == b"II" else ">", 43 in data[2:4]
    number, offset = struct.Struct(order + "HQ"[big]), struct.Struct(order + "IQ"[big])
    seen: set[int] = set()
    with contextlib.suppress(struct.error):
        (at,) = offset.unpack_from(data, 8 if big else 4)
        while at and at not in seen and len(seen) < MOST_PAGES:
            (entries,) = number.unpack_from(data, at)
            (after,) = offset.unpack_from(data, at + number.size + entries * (20 if big else 12))
            seen.add(at)
            at = after
    return max(1, len(seen))


def _bit_depth(image: Image.Image, data: bytes) -> int:
    if image.format == "PNG" and len(data) > 24:
        return data[24]
    if image.format == "TIFF":
        with contextlib.suppress(Exception):
            bits = image.tag_v2.get(258, (8,))  # type: ignore[attr-defined]
            return int(bits[0] if isinstance(bits, tuple) else bits)
    return DEEP.get(image.mode, 8)


@lru_cache(maxsize=256)
def _icc_name(profile: bytes | None) -> str | None:
    if not profile:
        return None
    try:
        opened = ImageCms.ImageCmsProfile(BytesIO(profile))
        return ImageCms.getProfileDescription(opened).strip()[:100] or "unnamed"
    except Exception:  # noqa: BLE001 - a profile may hold anything
        return "unreadable"


def exif_columns(image: Image.Image) -> dict[str, Any]:
    """Return orientation, time and camera where the image's EXIF block, known so far, has them."""
    # Only what is known already: on PNG, `getexif` would decode the picture to find a late block.
    if not (image.info.get("exif") or image.format == "TIFF"):
        return {}
    try:
        exif = image.getexif()
        if not exif:
            return {}
        details = exif.get_ifd(EXIF_IFD)
        orientation = exif.get(ORIENTATION, 1)
        camera = [exif.get(MAKE), exif.get(MODEL), details.get(SERIAL)]
        return {
            "orientation": orientation if orientation in range(1, 9) else 1,
            "exif_time": _time(details.get(TIME)),
            "exif_camera": " ".join(str(p).strip("\0 ") for p in camera if p)[:120] or None,
        }
    except Exception:  # noqa: BLE001 - EXIF blocks are often damaged
        return {}


def _time(text: object) -> datetime | None:
    try:
        return datetime.strptime(str(text).strip("\0 "), "%Y:%m:%d %H:%M:%S")
    except ValueError:
        return None


def _jpeg(image: Image.Image) -> dict[str, Any]:
    tables = getattr(image, "quantization", None) or {}
    layers = getattr(image, "layer", None) or []
    columns: dict[str, Any] = {}
    if tables:
        # The sum falls strictly with quality, and one number per table finds the nearest; tables of
        # other encoders get the quality of the IJG table that is equally coarse.
        total = sum(tables[min(tables)])
        columns["jpeg_quality"] = int(np.argmin(np.abs(_table_sums() - total))) + 1
    if len(layers) == 3:
        (_, h, v, _), (_, ch, cv, _) = layers[0], layers[1]
        columns["jpeg_subsampling"] = SUBSAMPLING.get((h // max(ch, 1), v // max(cv, 1)), "other")
    return columns


# The luminance table of Annex K.1 of ITU-T T.81, scaled by quality as the IJG library does.
LUMINANCE = np.array([
     16,  11,  10,  16,  24,  40,  51,  61,
     12,  12,  14,  19,  26,  58,  60,  55,
     14,  13,  16,  24,  40,  57,  69,  56,
     14,  17,  22,  29,  51,  87,  80,  62,
     18,  22,  37,  56,  68, 109, 103,  77,
     24,  35,  55,  64,  81, 104, 113,  92,
     49,  64,  78,  87, 103, 121, 120, 101,
     72,  92,  95,  98, 112, 100, 103,  99,
], np.int64)  # fmt: skip


@lru_cache(maxsize=1)
def _table_sums() -> np.ndarray[Any, Any]:
    quality = np.arange(1, 101)
    # jpeg_quality_scaling() and jpeg_add_quant_table() of libjpeg's jcparam.c, in its integers
    scale = np.where(quality < 50, 5000 // quality, 200 - 2 * quality)
    tables = np.clip((LUMINANCE[None, :] * scale[:, None] + 50) // 100, 1, 255)
    return np.asarray(tables.sum(axis=1))


# Any marker that is not a stuffed 0xFF, a fill byte or a restart inside entropy-coded data.
MARKER = re.compile(rb"\xff[\x01-\xcf\xd8-\xfe]")


def _jpeg_end(image: Image.Image, data: bytes) -> dict[str, Any]:
    end = _eoi(data)
    if end is None:
        return {"missing_end": True, "trailing_bytes": 0}
    # Multi-picture files append whole pictures by design.
    return {"missing_end": False, "trailing_bytes": 0 if image.format == "MPO" else len(data) - end}


def _eoi(data: bytes) -> int | None:
    """Return the offset just after the end marker of the first picture, None without one."""
    position, in_scan = 2, False
    while True:
        if in_scan:
            match = MARKER.search(data, position)
            if match is None:
                return None
            position = match.start()
        if position + 4 > len(data):
            return position + 2 if data[position : position + 2] == b"\xff\xd9" else None
        marker = data[position + 1]
        if marker == 0xD9:
            return position + 2
        if data[position] != 0xFF:
            return None
        position += 2 + int.from_bytes(data[position + 2 : position + 4], "big")
        in_scan = in_scan or marker == 0xDA
        # The common case first: nearly every file has one scan and ends with its EOI.
        ended = in_scan and data.endswith(b"\xff\xd9")
        if ended and data.find(b"\xff\xd9", position) == len(data) - 2:
            return len(data)


def _png_end(data: bytes) -> dict[str, Any]:
    end = data.rfind(b"IEND")
    if end < 0:
        return {"missing_end": True, "trailing_bytes": 0}
    return {"missing_end": False, "trailing_bytes": max(0, len(data) - end - 8)}


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
