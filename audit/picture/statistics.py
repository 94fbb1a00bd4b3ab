"""Statistics of feature pictures in one pass over the pixels: a kernel, and its plain form.

The plain form makes the same numbers from arrays of OpenCV, Pillow and numpy, in seven times the
time. `audit/kernels/statistics.c` says how sharpness and noise are defined.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from audit.kernels.library import find_kernel
from audit.picture.pixels import Pixels

NUMBERS = (
    "brightness", "contrast", "saturation", "red", "green", "blue", "sharpness", "edge_density",
    "noise", "border_red", "border_green", "border_blue", "border_spread",
)  # fmt: skip
Array = npt.NDArray[Any]
Counts = npt.NDArray[np.int64]
RIPPLES = 1024  # levels of the second difference that are counted apart
SECOND_DIFFERENCE = np.array([1, -2, 1], np.float32)
INVERSES = np.array([0] + [((1 << 32) + value // 2) // value for value in range(1, 256)])
VALUES = np.arange(256)


def measure_stack(stack: Pixels) -> tuple[Pixels, npt.NDArray[np.float64], Counts, Counts]:
    """Return luma (Pillow's L), NUMBERS, and the counts of luma and of channel spread.

    `stack` is (n, h, w, 3); they are (n, h, w), (n, 13), (n, 256), (n, 256). Sharpness is -1 where
    a picture is flat.
    """
    n, height, width = stack.shape[:3]
    luma = np.empty((n, height, width), np.uint8)
    numbers = np.empty((n, len(NUMBERS)))
    counts, spreads = np.empty((n, 256), np.int64), np.empty((n, 256), np.int64)
    if kernel := find_kernel("fill_statistics"):
        scratch = np.empty((4, width), np.int16)
        kernel(stack, luma, numbers, counts, spreads, scratch)
    else:
        for at in range(n):
            luma[at], numbers[at], counts[at], spreads[at] = _measure(stack[at])
    return luma, numbers, counts, spreads


def _measure(rgb: Pixels) -> tuple[Pixels, list[float], Counts, Counts]:
    import cv2
    from PIL import Image

    luma: Pixels = np.asarray(Image.fromarray(rgb).convert("L"))
    planes = cv2.split(rgb)
    high = np.asarray(cv2.max(cv2.max(planes[0], planes[1]), planes[2]))
    spread = np.asarray(high - cv2.min(cv2.min(planes[0], planes[1]), planes[2]))
    counts = np.bincount(luma.ravel(), minlength=256)
    by_high = np.bincount(high.ravel(), spread.ravel(), 256).astype(np.int64)
    mean = float(VALUES @ counts) / luma.size
    variance = float(VALUES * VALUES @ counts) / luma.size - mean * mean
    numbers = [
        mean / 255,
        max(variance, 0.0) ** 0.5 / 255,
        int(by_high @ INVERSES) / (luma.size * float(1 << 32)),
        *(int(cv2.sumElems(plane)[0]) / luma.size / 255 for plane in planes),
        *_structure(luma),
        *_border(rgb, luma),
    ]
    return luma, numbers, counts, np.bincount(spread.ravel(), minlength=256)


def _structure(luma: Pixels) -> tuple[float, float, float]:
    """Return sharpness or -1, edge density, noise."""
    import cv2

    height, width = luma.shape
    if height < 4 or width < 4:
        return -1.0, 0.0, 0.0
    wide = luma.astype(np.int16)
    mean = np.asarray(cv2.boxFilter(wide, cv2.CV_16S, (3, 3), normalize=False))
    mean[0] = mean[-1] = mean[:, 0] = mean[:, -1] = 0
    inside, right, below = _neighbours(wide)
    across, down = 9 * np.abs(inside - right), 9 * np.abs(inside - below)
    inside, right, below = _neighbours(mean)
    removed = np.maximum(across - np.abs(inside - right), 0).sum(dtype=np.int64)
    removed += np.maximum(down - np.abs(inside - below), 0).sum(dtype=np.int64)
    before = int(across.sum(dtype=np.int64) + down.sum(dtype=np.int64))
    edges = np.count_nonzero(np.maximum(across, down) > 9 * 16)
    second = cv2.sepFilter2D(luma, cv2.CV_16S, SECOND_DIFFERENCE, SECOND_DIFFERENCE)
    ripples = np.minimum(np.abs(second[1 : height - 2 : 2, 1 : width - 2]), RIPPLES - 1)
    median = median_of(np.bincount(ripples.ravel(), minlength=RIPPLES)[None])[0]
    return (
        int(removed) / before if before else -1.0,
        edges / ((height - 3) * (width - 3)),
        float(median) / (6 * 0.6745 * 255),
    )


def _neighbours(plane: Array) -> tuple[Array, Array, Array]:
    """Return the inside of a plane, and the same one pixel to the right and one below."""
    return plane[1:-2, 1:-2], plane[1:-2, 2:-1], plane[2:-1, 1:-2]


def _border(rgb: Pixels, luma: Pixels) -> tuple[float, float, float, float]:
    """Return mean red, green, blue and the spread of luma of the outermost 2 px all around."""
    outside = np.ones(luma.shape, np.bool_)
    if luma.shape[1] > 4:
        outside[2:-2, 2:-2] = False
    grey = luma[outside].astype(np.int64)
    mean = int(grey.sum()) / grey.size
    variance = int((grey * grey).sum()) / grey.size - mean * mean
    red, green, blue = rgb[outside].sum(0, dtype=np.int64) / (255.0 * grey.size)
    return float(red), float(green), float(blue), max(variance, 0.0) ** 0.5 / 255


def median_of(counts: Counts) -> npt.NDArray[np.float64]:
    """Return the medians of histograms (n, values), interpolated within the bin of value +- 1/2."""
    totals, cumulated = counts.sum(1), counts.cumsum(1)
    at = (2 * cumulated >= totals[:, None]).argmax(1)
    rows = np.arange(len(counts))
    own = counts[rows, at]
    inside = (totals / 2 - (cumulated[rows, at] - own)) / np.maximum(own, 1)
    return np.asarray(np.maximum(0.0, at - 0.5 + inside))
