"""Perceptual hashes, equal to `imagehash` bit for bit and about four times as fast.

A kernel makes three Lanczos reductions with Pillow's fixed-point arithmetic (22 fractional bits,
columns first, 8-bit rounding between the passes), so `phash` and `dhash` are identical. Others are
made by the library: `[measure] hashes = ["whash", ...]` in audit.toml stores each as a column of
`features`, at 1 to 10 ms an image (crop_resistant 100 ms) beside 1.5 ms for all the rest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from audit.kernels.library import Kernel, find_kernel
from audit.picture.pixels import Pixels
from audit.records import Column

Luma = npt.NDArray[np.uint8]
Bits = npt.NDArray[np.uint8]
Bounds = npt.NDArray[np.int64]
Weights = npt.NDArray[np.int32]

PRECISION = 22  # bits: 8 bits of a pixel and 2 of overshoot leave that many of an int32
LOBES = 3.0


def reduce_luma(luma: Luma) -> tuple[Luma, Luma, Luma]:
    """Return luma (n, h, w) as small as dhash, phash and phash256 take it."""
    wide = _abreast(luma)
    return lanczos(luma, 9, 8, wide), lanczos(luma, 32, 32, wide), lanczos(luma, 64, 64, wide)


def hash_bits(steps: Luma, coarse: Luma, fine: Luma) -> dict[str, Any]:
    """Return phash, dhash (uint64) and phash256 (64 hex digits) of pictures that were reduced.

    phash: the lowest frequencies of a type-II DCT against their median; dhash: each pixel against
    its left neighbour. As `imagehash.phash(picture)`, `.phash(picture, hash_size=16)`, `.dhash`.
    """
    rising = (steps[:, :, 1:] > steps[:, :, :-1]).reshape(len(steps), -1)
    return {
        "phash": _as_numbers(_dct_bits(coarse, 8)),
        "dhash": _as_numbers(np.packbits(rising, axis=1)),
        "phash256": [bits.tobytes().hex() for bits in _dct_bits(fine, 16)],
    }


def _as_numbers(packed: Bits) -> npt.NDArray[np.uint64]:
    return packed.view(">u8").ravel().astype(np.uint64)


def _dct_bits(pixels: Luma, size: int) -> Bits:
    """Return the packed bits of pictures (n, side, side)."""
    n, side = pixels.shape[:2]
    # Two small matrix products give the lowest frequencies alone, faster than a full transform.
    basis = _basis(side, size)
    frequencies = (basis @ pixels.astype(np.float64) @ basis.T).reshape(n, -1)
    middle = size * size // 2
    halves = np.partition(frequencies, (middle - 1, middle), axis=1)[:, middle - 1 : middle + 1]
    apart = frequencies - halves.mean(axis=1, keepdims=True)
    bits = apart > 0
    # where rounding could decide the sign, the transform is exactly that of imagehash
    for row in np.flatnonzero(np.abs(apart).min(axis=1) < 1e-6):
        bits[row] = _library_bits(pixels[row], size)
    return np.packbits(bits, axis=1)


def _library_bits(pixels: Luma, size: int) -> npt.NDArray[np.bool_]:
    """Return the bits of one picture by the library's own transform; loading it takes 0.3 s."""
    if (pixels == pixels[0, 0]).all():  # the transform: a mean and exact zeros, median zero
        return np.arange(size * size) < bool(pixels[0, 0])
    import scipy.fft

    frequencies = scipy.fft.dct(scipy.fft.dct(pixels, axis=0), axis=1)[:size, :size]
    return np.asarray(frequencies > np.median(frequencies)).ravel()


@lru_cache(maxsize=4)
def _basis(side: int, size: int) -> npt.NDArray[np.float64]:
    """Return the `size` lowest rows of the unnormalised type-II DCT of length `side`."""
    frequency, place = np.arange(size)[:, None], np.arange(side)[None, :]
    return 2.0 * np.cos(np.pi * frequency * (2 * place + 1) / (2 * side))


def lanczos(luma: Luma, width: int, height: int, wide: Luma | None = None) -> Luma:
    """Return (n, height, width) as Pillow's `resize(..., LANCZOS)`; `wide`: `_abreast(luma)`."""
    kernel = find_kernel("reduce_rows")
    if kernel is None:
        return _lanczos_by_pillow(luma, width, height)
    n = len(luma)
    across, down = _weights(luma.shape[2], width), _weights(luma.shape[1], height)
    # Pillow 13 starts with the rows of pictures that shrink much more in height than in width.
    if luma.shape[1] - height > 2 * max(luma.shape[2] - width, 0):
        upright = np.ascontiguousarray(luma.swapaxes(0, 1)).reshape(luma.shape[1], -1)
        low = _reduce_rows(kernel, upright, *down).reshape(height, n, -1)
        turned = _abreast(np.ascontiguousarray(low.swapaxes(0, 1)))
        narrow = _reduce_rows(kernel, turned, *across)
        return np.ascontiguousarray(narrow.reshape(width, n, height).transpose(1, 2, 0))
    narrow = _reduce_rows(kernel, _abreast(luma) if wide is None else wide, *across)
    turned = np.ascontiguousarray(narrow.reshape(width, n, -1).transpose(2, 1, 0))
    flat = turned.reshape(luma.shape[1], -1)
    resized = _reduce_rows(kernel, flat, *down).reshape(height, n, width)
    return np.ascontiguousarray(resized.swapaxes(0, 1))


def _lanczos_by_pillow(luma: Luma, width: int, height: int) -> Luma:
    from PIL import Image

    resized = np.empty((len(luma), height, width), np.uint8)
    for at, picture in enumerate(luma):
        image = Image.fromarray(picture)
        resized[at] = np.asarray(image.resize((width, height), Image.Resampling.LANCZOS))
    return resized


def _abreast(luma: Luma) -> Luma:
    """Return the columns of pictures (n, h, w) as the rows of one, (w, n * h)."""
    import cv2

    return np.asarray(cv2.transpose(luma.reshape(-1, luma.shape[2])), np.uint8)


@lru_cache(maxsize=8192)
def _weights(size: int, target: int) -> tuple[Bounds, Weights]:
    """Return (first source pixel and count: (target, 2), weights: (target, taps) int32)."""
    scale = size / target
    # Shrinking widens the kernel, so that every source pixel has a part; enlarging does not.
    widened = max(scale, 1.0)
    support = LOBES * widened
    center = (np.arange(target) + 0.5) * scale
    first = np.maximum((center - support + 0.5).astype(np.int64), 0)
    count = np.minimum((center + support + 0.5).astype(np.int64), size) - first
    tap = np.arange(2 * math.ceil(support) + 1)
    raw = _kernel((tap + first[:, None] - center[:, None] + 0.5) / widened)
    raw[tap >= count[:, None]] = 0.0
    # summed in order, then rounded half away from zero, as Pillow does
    fixed = raw / np.cumsum(raw, axis=1)[:, -1:] * (1 << PRECISION)
    weights = np.trunc(fixed + np.copysign(0.5, fixed)).astype(np.int32)
    return np.stack([first, count], axis=1), weights


def _kernel(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return Lanczos' kernel; 0 beyond its lobes."""
    a, b = x * math.pi, x / LOBES * math.pi
    safe = np.where(x == 0.0, 1.0, a * b)
    value = np.where(x == 0.0, 1.0, np.sin(a) * np.sin(b) / safe)
    return np.where((x >= -LOBES) & (x < LOBES), value, 0.0)


def _reduce_rows(kernel: Kernel, luma: Luma, bounds: Bounds, weights: Weights) -> Luma:
    """Return uint8 (target, width): rows of uint8 (height, width) by fixed-point weights."""
    reduced = np.empty((len(bounds), luma.shape[1]), np.uint8)
    kernel(luma, bounds, weights, reduced)
    return reduced


LIBRARY_HASHES: tuple[Column, ...] = (
    Column("whash", "UBIGINT", "imagehash.whash (64 bits, Haar) of the feature image"),
    Column("average_hash", "UBIGINT", "imagehash.average_hash (64 bits) of the feature image"),
    Column("phash_simple", "UBIGINT", "imagehash.phash_simple (64 bits) of the feature image"),
    Column("dhash_vertical", "UBIGINT", "imagehash.dhash_vertical (64 bits), feature image"),
    Column("colorhash", "VARCHAR", "imagehash.colorhash (42 bits) of the feature image, hex"),
    Column("crop_resistant", "VARCHAR", "imagehash.crop_resistant_hash: a dhash (hex) a segment"),
)
# Columns whose bits can be compared, as further candidates of the near-duplicate search.
COMPARABLE_HASHES = tuple(column.name for column in LIBRARY_HASHES if column.type == "UBIGINT")


def library_columns(names: Sequence[str]) -> tuple[Column, ...]:
    """Return the columns of these hashes, in the order of LIBRARY_HASHES."""
    return tuple(column for column in LIBRARY_HASHES if column.name in names)


def compute_library_hashes(picture: Pixels, names: Sequence[str]) -> dict[str, int | str]:
    """Return these hashes of a feature picture, uint8 (h, w, 3), by column name."""
    if not names:
        return {}
    import imagehash
    from PIL import Image

    image = Image.fromarray(picture)
    values: dict[str, int | str] = {}
    for column in library_columns(names):
        function = "crop_resistant_hash" if column.name == "crop_resistant" else column.name
        text = str(getattr(imagehash, function)(image))
        # the library prints the bits row by row, most significant first: so does big-endian hex
        values[column.name] = int(text, 16) if column.type == "UBIGINT" else text
    return values
