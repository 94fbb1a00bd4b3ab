"""From stored samples to the shown picture: depth, palette, orientation, alpha, and the pixel hash.

The policy is written in `audit.picture.decode`. Pictures are taken from Pillow and composited in
strips of rows: whole intermediate copies would take twice the memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash
from PIL import Image, ImageCms

Pixels = npt.NDArray[np.uint8]

GREY = 128
GREY_SLACK = 3
STRIP = 256  # rows
LAB, SRGB = ImageCms.createProfile("LAB"), ImageCms.createProfile("sRGB")


@dataclass(frozen=True, slots=True)
class Picture:
    """The shown picture: `rgb` uint8 (height, width, 3), on white; `alpha` (h, w) where used."""

    rgb: Pixels
    alpha: Pixels | None


def eight_bits(image: Image.Image, columns: dict[str, Any]) -> Pixels:
    """Return uint8 pixels (h, w), (h, w, 3) or (h, w, 4) by `audit.picture.decode`'s policy."""
    if image.mode == "F" or image.mode.startswith("I"):
        samples = np.array(image)
        columns["pixel_hash"] = _hash_pixels(samples)
        return _scaled(samples)
    mode, convert = image.mode, None
    if image.mode in ("P", "PA", "LA", "La", "RGBa") or "transparency" in image.info:
        mode = "RGBA" if columns.get("has_alpha") else "RGB"
    elif image.mode == "1":
        mode = "L"
    elif image.mode == "LAB":
        mode, convert = "RGB", _from_lab
    elif image.mode not in ("L", "RGB", "RGBA"):
        mode = "RGB"
    return _in_strips(image, mode, convert)


def _from_lab(strip: Image.Image) -> Image.Image:
    return ImageCms.profileToProfile(strip, LAB, SRGB, outputMode="RGB") or strip


def _in_strips(
    image: Image.Image, mode: str, convert: Callable[[Image.Image], Image.Image] | None
) -> Pixels:
    width, height = image.size
    channels = () if mode == "L" else (len(mode),)
    pixels = np.empty((height, width, *channels), np.uint8)
    for top in range(0, height, STRIP):
        strip = image.crop((0, top, width, min(top + STRIP, height)))
        if convert is not None:
            strip = convert(strip)
        elif strip.mode != mode or "transparency" in strip.info:
            strip = strip.convert(mode)
        pixels[top : top + STRIP] = np.asarray(strip)
    return pixels


def _scaled(samples: npt.NDArray[Any]) -> Pixels:
    parts = [slice(top, top + STRIP) for top in range(0, samples.shape[0], STRIP)]
    least = min((float(_finite(samples[rows]).min()) for rows in parts), default=0.0)
    greatest = max((float(_finite(samples[rows]).max()) for rows in parts), default=0.0)
    low, high = min(least, 0.0), max(greatest, 0.0)
    eight = np.empty(samples.shape, np.uint8)
    for rows in parts:
        values = _finite(samples[rows])
        if samples.dtype.kind in "iu" and low >= 0 and high <= 65535:
            scaled = values / 257.0  # 65535 / 255: white stays white
        elif samples.dtype.kind == "f" and low >= 0 and high <= 1:
            scaled = values * 255.0
        else:
            scaled = (values - least) * (255.0 / max(high - least, 1e-12))
        eight[rows] = np.clip(np.rint(scaled), 0, 255).astype(np.uint8)
    return eight


def _finite(samples: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    # Not a number, and infinity, become 0: they must not decide the range of all other values.
    return np.nan_to_num(samples.astype(np.float32), posinf=0.0, neginf=0.0)


# EXIF orientation -> (transpose, flip rows, flip columns), applied in this order.
ORIENT = {
    2: (False, False, True), 3: (False, True, True), 4: (False, True, False),
    5: (True, False, False), 6: (True, False, True), 7: (True, True, True), 8: (True, True, False),
}  # fmt: skip


def compose_picture(stored: Pixels, columns: dict[str, Any]) -> Picture:
    """Return the shown picture of stored pixels; fills its size, tail and hash into `columns`."""
    pixels = stored[:, :, 0] if stored.ndim == 3 and stored.shape[2] == 1 else stored
    columns["grey_tail"] = grey_tail(pixels)
    if columns["orientation"] != 1:
        pixels = orient_pixels(pixels, columns["orientation"])
    columns["height"], columns["width"] = pixels.shape[:2]
    picture = _composited(pixels)
    if "pixel_hash" not in columns:
        columns["pixel_hash"] = _hash_pixels(picture.rgb, picture.alpha)
    return picture


def orient_pixels(pixels: Pixels, orientation: int) -> Pixels:
    """Return the pixels turned as EXIF `orientation` (2..8) asks."""
    transpose, rows, columns = ORIENT[orientation]
    turned: Pixels = pixels.swapaxes(0, 1) if transpose else pixels
    return np.ascontiguousarray(turned[:: -1 if rows else 1, :: -1 if columns else 1])


def _composited(pixels: Pixels) -> Picture:
    if pixels.ndim == 2:
        import cv2

        return Picture(cv2.cvtColor(pixels, cv2.COLOR_GRAY2RGB), None)
    if pixels.shape[2] == 3:
        return Picture(pixels, None)
    alpha = np.ascontiguousarray(pixels[:, :, 3])
    if int(alpha.min()) == 255:
        return Picture(np.ascontiguousarray(pixels[:, :, :3]), None)
    rgb = np.empty((*alpha.shape, 3), np.uint8)
    for top in range(0, alpha.shape[0], STRIP):
        rows = slice(top, top + STRIP)
        weight = alpha[rows, :, None].astype(np.uint16)
        # At most 255 * 255, which fits in 16 bits; 127 rounds the division to the nearest.
        mixed = pixels[rows, :, :3] * weight + 255 * (255 - weight)
        rgb[rows] = (mixed + 127) // 255
    return Picture(rgb, alpha)


def _hash_pixels(pixels: npt.NDArray[Any], alpha: Pixels | None = None) -> str:
    # The shape goes in first: the same bytes in another shape are another picture.
    shape = f"{pixels.shape}{pixels.dtype}{alpha is not None}"
    state = xxhash.xxh3_128(shape.encode())
    state.update(np.ascontiguousarray(pixels).data)
    if alpha is not None:
        state.update(alpha.data)
    return str(state.hexdigest())


def grey_tail(pixels: Pixels) -> float:
    """Return the share of the height, from the bottom, that is flat 128 grey in 8-pixel blocks.

    A block row counts while at least 60 % of its blocks hold one value within 128 +- 3 in every
    channel; whole blocks only, so a picture narrower than 16 px gives 0.
    """
    height, width = pixels.shape[:2]
    columns = width // 8
    if columns < 2 or height < 16:
        return 0.0
    # Nearly every picture leaves here. Below the range the unsigned difference wraps around.
    last = pixels[-1] - np.uint8(GREY - GREY_SLACK) <= 2 * GREY_SLACK
    if 2 * np.count_nonzero(last) < last.size:
        return 0.0
    tail = 0
    for bottom in range(height, 7, -8):
        rows = pixels[bottom - 8 : bottom, : columns * 8]
        blocks = rows.reshape(8, columns, -1)
        low, high = blocks.min((0, 2)), blocks.max((0, 2))
        # 3 levels of slack: saving the grey again as JPEG moves it by that much.
        flat = (low >= GREY - GREY_SLACK) & (high <= GREY + GREY_SLACK)
        # Not all: in the row where the data ended, the blocks before the break are real.
        if flat.mean() < 0.6:
            break
        tail += 8
    return float(tail / height)
