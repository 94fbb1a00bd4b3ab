"""Affine maps between two pictures at full size: convert, refine, lay one over the other.

OpenCV's ECC [Evangelidis and Psarakis, PAMI 2008] maximises the correlation itself, so brightness
and contrast do not count. Signatures are registered in coordinates of [-1, 1]; maps here are 2x3 as
OpenCV takes them, from the template's pixels to the other picture's.
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

Plane = npt.NDArray[np.float32]
SMOOTHING = 5
"""Side (pixels) of the Gaussian that ECC smooths both pictures with: without it the search stops
at the first edge that happens to fit."""


def map_in_pixels(p: npt.NDArray[np.float64], side: int) -> npt.NDArray[np.float64]:
    """Turn a map of [-1, 1] coordinates into one of pixels (2, 3) of a square picture."""
    # pixel centres: column c lies at (c + 0.5) / half - 1, so the middle is at (side - 1) / 2
    half, middle = side / 2, (side - 1) / 2
    linear = np.array([[1 + p[0], p[1]], [p[3], 1 + p[4]]])
    shift = half * np.array([p[2], p[5]]) + middle - linear @ np.array([middle, middle])
    return np.concatenate([linear, shift[:, None]], axis=1)


def refine_map(
    template: Plane,
    other: Plane,
    start: Plane,
    *,
    steps: int,
    precision: float,
    mask: npt.NDArray[np.uint8] | None = None,
) -> Plane | None:
    """Register two planes by ECC from the map `start`; None where the search does not converge.

    It stops after `steps` or where the correlation grows by less than `precision`; `mask` says
    which pixels of the other picture count.
    """
    criteria = (cv2.TERM_CRITERIA_EPS | cv2.TERM_CRITERIA_COUNT, steps, precision)
    try:
        _, warp = cv2.findTransformECC(
            template, other, start.copy(), cv2.MOTION_AFFINE, criteria, mask, SMOOTHING
        )
    except cv2.error:
        # the two have too little in common from here, or one of them is flat
        return None
    return np.asarray(warp, np.float32)


def lay_over(
    picture: npt.NDArray[Any],
    warp: npt.NDArray[Any],
    size: tuple[int, int],
    *,
    least_cover: float = 0.99,
) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Lay a picture over its template by a map in pixels; return it, and where it reaches.

    `size`: width and height of the template. A pixel is reached where at least `least_cover` of
    it comes from within the picture.
    """
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    # edges are repeated, so that a half-covered pixel does not look like a dark line
    laid = cv2.warpAffine(picture, warp, size, flags=flags, borderMode=cv2.BORDER_REPLICATE)
    ones = np.ones(picture.shape[:2], np.float32)
    return laid, cv2.warpAffine(ones, warp, size, flags=flags) > least_cover
