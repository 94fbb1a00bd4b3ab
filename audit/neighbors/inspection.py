"""A second look: two pictures at 128 px, where their thumbnails cannot decide.

At 32 px two pages of one layout are one page, and a heavy caption hides a photograph. At 128 px
words differ and texture agrees, so the same registration is continued two octaves up, from the map
that the thumbnails gave, and gradients are correlated in 8x8 blocks. Where that map is wrong or
absent, ORB keypoints and RANSAC propose another [Rublee et al., ICCV 2011]. On
photographs non-pairs reach 0.5 at most and 99 in 100 copies lie above 0.65.

It opens two files and costs about 10 ms with decoding, so it is counted and bounded: the pairs
nearest to the threshold first. Pictures under 48 px hold nothing that the thumbnails did not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from audit.neighbors.align import orient
from audit.neighbors.thumbnails import border

Picture = npt.NDArray[np.uint8]

LOOK_SIDE = 128
LEAST_SIDE = 48
"""Shorter side (pixels, border cut) from which a second look can see more than the thumbnail."""
SAME_ABOVE = 0.6
"""Contrast and inner correlation from which two pictures are the same; non-pairs reach 0.3."""
LEAST_OVERLAP = 0.35
LEAST_TEXTURED = 10
"""Textured blocks of 64 under which a picture is too plain: the thumbnails' word stands."""


@dataclass(frozen=True, slots=True)
class Look:
    """What a second look saw.

    `contrast` is the median over textured blocks of the gradient correlation at 128 px, rescaled
    so that 0 is what the same two pictures reach when laid 12 px apart and 1 is identity; `inner`
    is the correlation over the overlap, a caption aside; `overlap` the share of the template;
    `matrix` maps the template to the other picture, in [-1, 1] coordinates. `decided` is False
    where the pictures are too small or too plain to tell.
    """

    same: bool
    decided: bool
    contrast: float
    inner: float
    overlap: float
    matrix: tuple[float, ...]


UNDECIDED = Look(False, False, 0.0, 0.0, 0.0, (0.0,) * 6)


def second_look(
    picture_a: Picture,
    picture_b: Picture,
    orientation: int = 0,
    matrix: npt.NDArray[np.float64] | None = None,
) -> Look:
    """Compare two pictures (uint8 RGB, any size) at 128 px.

    `orientation` and `matrix` are what `verify` found on the thumbnails, in the same order of the
    two pictures: the one of the smaller content hash first.
    """
    first, second = _prepare(picture_a), _prepare(picture_b)
    if first is None or second is None:
        return UNDECIDED
    laid = np.asarray(orient(second, orientation), np.float32)
    start = _as_pixels(np.zeros(6) if matrix is None else matrix)
    best = UNDECIDED
    for warp in _proposals(first, laid, start):
        look = _judge(first, laid, warp)
        best = max(best, look, key=lambda seen: (seen.same, seen.decided, seen.contrast))
        if best.same:
            break
    return best


def _proposals(
    first: npt.NDArray[np.float32],
    second: npt.NDArray[np.float32],
    start: npt.NDArray[np.float32],
) -> Iterator[npt.NDArray[np.float32]]:
    """Maps to try, the likeliest first; most pairs need only the first or second."""
    yield _refine(first, second, start, None)
    yield start
    # a caption pulls the whole picture towards it: look at the middle alone
    middle = np.zeros(second.shape, np.uint8)
    rim = LOOK_SIDE // 6
    middle[rim:-rim, rim:-rim] = 255
    yield _refine(first, second, start, middle)
    proposed = _keypoint_map(first, second)
    if proposed is not None:
        yield _refine(first, second, proposed, None)


def _prepare(picture: Picture) -> npt.NDArray[np.float32] | None:
    """Cut the border, make grey, 128x128; None where there is too little to see."""
    left, top, right, bottom = border(picture)
    height, width = picture.shape[:2]
    kept = picture[top : height - bottom, left : width - right]
    if min(kept.shape[:2]) < LEAST_SIDE:
        return None
    method = cv2.INTER_AREA if min(kept.shape[:2]) >= LOOK_SIDE else cv2.INTER_LINEAR
    small = cv2.resize(kept, (LOOK_SIDE, LOOK_SIDE), interpolation=method)
    grey = cv2.cvtColor(small, cv2.COLOR_RGB2GRAY).astype(np.float32)
    return grey if float(grey.std()) > 2.0 else None


def _as_pixels(p: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """Turn a map of [-1, 1] coordinates into one of pixels at 128 px."""
    half, middle = LOOK_SIDE / 2, (LOOK_SIDE - 1) / 2
    linear = np.array([[1 + p[0], p[1]], [p[3], 1 + p[4]]])
    shift = half * np.array([p[2], p[5]]) + middle - linear @ np.array([middle, middle])
    return np.concatenate([linear, shift[:, None]], axis=1).astype(np.float32)


def _as_unit(warp: npt.NDArray[np.float32]) -> tuple[float, ...]:
    """The inverse of `_as_pixels`."""
    half, middle = LOOK_SIDE / 2, (LOOK_SIDE - 1) / 2
    linear = warp[:, :2].astype(np.float64)
    shift = (warp[:, 2] - middle + linear @ np.array([middle, middle])) / half
    rows = linear - np.eye(2)
    return tuple(
        float(v) for v in (rows[0, 0], rows[0, 1], shift[0], rows[1, 0], rows[1, 1], shift[1])
    )


def _refine(
    first: npt.NDArray[np.float32],
    second: npt.NDArray[np.float32],
    warp: npt.NDArray[np.float32],
    mask: npt.NDArray[np.uint8] | None,
) -> npt.NDArray[np.float32]:
    """Register at 64, then 128 px (ECC); keep the last map that converged."""
    for side in (LOOK_SIDE // 2, LOOK_SIDE):
        scale = side / LOOK_SIDE
        a, b, seen = first, second, mask
        if side < LOOK_SIDE:
            a, b = cv2.pyrDown(first), cv2.pyrDown(second)
            seen = None if mask is None else np.ascontiguousarray(mask[::2, ::2])
        scaled = warp.copy()
        scaled[:, 2] = warp[:, 2] * scale
        criteria = (cv2.TERM_CRITERIA_EPS | cv2.TERM_CRITERIA_COUNT, 25, 1e-4)
        try:
            _, found = cv2.findTransformECC(a, b, scaled, cv2.MOTION_AFFINE, criteria, seen, 5)
        except cv2.error:
            # no convergence: the pictures have too little in common from here
            continue
        if _plausible(found):
            warp = found.copy()
            warp[:, 2] = found[:, 2] / scale
    return warp


def _plausible(warp: npt.NDArray[np.float32]) -> bool:
    """No collapse and no more than a threefold zoom."""
    return 0.3 < abs(float(np.linalg.det(warp[:, :2]))) < 3.3


def _keypoint_map(
    first: npt.NDArray[np.float32], second: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32] | None:
    """Propose a map from ORB matches that RANSAC finds consistent, or None."""
    orb = cv2.ORB.create(nfeatures=300, edgeThreshold=8, patchSize=16, fastThreshold=8, nlevels=4)
    points_a, words_a = orb.detectAndCompute(first.astype(np.uint8), None)
    points_b, words_b = orb.detectAndCompute(second.astype(np.uint8), None)
    if words_a is None or words_b is None or min(len(points_a), len(points_b)) < 8:
        return None
    matches = cv2.BFMatcher(cv2.NORM_HAMMING, crossCheck=True).match(words_a, words_b)
    if len(matches) < 8:
        return None
    source = np.array([points_a[m.queryIdx].pt for m in matches], np.float32)
    target = np.array([points_b[m.trainIdx].pt for m in matches], np.float32)
    cv2.setRNGSeed(0)
    warp, inside = cv2.estimateAffine2D(source, target, ransacReprojThreshold=3.0)
    if warp is None or int(inside.sum()) < 8 or not _plausible(warp):
        return None
    return np.asarray(warp, np.float32)


def _judge(
    first: npt.NDArray[np.float32],
    second: npt.NDArray[np.float32],
    warp: npt.NDArray[np.float32],
) -> Look:
    """Correlate gradients of the two through the map, whole and by 8x8 blocks of 16 px."""
    size = (LOOK_SIDE, LOOK_SIDE)
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    moved = cv2.warpAffine(second, warp, size, flags=flags, borderMode=cv2.BORDER_REPLICATE)
    ones = np.ones_like(second)
    seen = cv2.warpAffine(ones, warp, size, flags=flags) > 0.99
    inside = cv2.erode(seen.astype(np.uint8), np.ones((5, 5), np.uint8)) > 0
    overlap = float(inside.mean())
    if overlap < LEAST_OVERLAP:
        return Look(False, True, 0.0, 0.0, overlap, _as_unit(warp))
    blocks, inner, textured = _agreement(first, moved, inside)
    if textured < LEAST_TEXTURED:
        return Look(False, False, 0.0, 0.0, overlap, _as_unit(warp))
    # what lines of writing or a fence agree when laid wrongly is no evidence: take that away
    chance = max(
        _agreement(first, np.roll(moved, shift, axis), inside)[0]
        for shift in (-12, 12)
        for axis in (0, 1)
    )
    chance = min(max(chance, 0.0), 0.95)
    contrast = (blocks - chance) / (1 - chance)
    same = contrast >= SAME_ABOVE and inner >= SAME_ABOVE
    return Look(bool(same), True, contrast, inner, overlap, _as_unit(warp))


def _agreement(
    a: npt.NDArray[np.float32], b: npt.NDArray[np.float32], inside: npt.NDArray[np.bool_]
) -> tuple[float, float, int]:
    """Median block correlation, correlation without the worst outer strip, textured blocks."""
    pooled = [_pool(plane) for plane in (*_products(a, b, inside), inside.astype(np.float64))]
    ab, aa, bb, area = pooled
    energy = aa / max(aa.sum(), 1e-9) + bb / max(bb.sum(), 1e-9)
    seen = area >= 100
    if not seen.any():
        return 0.0, 0.0, 0
    textured = seen & (energy >= 0.25 * energy[seen].mean())
    if not textured.any():
        return 0.0, 0.0, 0
    local = ab[textured] / np.sqrt(np.maximum(aa * bb, 1e-9))[textured]
    return float(np.median(local)), _inner(ab, aa, bb), int(textured.sum())


def _inner(
    ab: npt.NDArray[np.float64], aa: npt.NDArray[np.float64], bb: npt.NDArray[np.float64]
) -> float:
    """Best correlation of the whole or of the whole less a quarter of it on one side."""
    cut = len(ab) // 4
    parts = [slice(None), slice(cut, None), slice(None, -cut)]
    found = [
        float(both.sum() / np.sqrt(max(one.sum() * other.sum(), 1e-9)))
        for turn in (False, True)
        for part in parts
        for both, one, other in [
            tuple((plane.T if turn else plane)[part] for plane in (ab, aa, bb))
        ]
    ]
    return max(found)


def _pool(plane: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Sum over 8x8 blocks of 16 px."""
    n = LOOK_SIDE // 16
    return np.asarray(plane.reshape(n, 16, n, 16).sum(axis=(1, 3)), np.float64)


def _products(
    a: npt.NDArray[np.float32], b: npt.NDArray[np.float32], inside: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.float64], ...]:
    """Pixelwise gradient products a.b, a.a and b.b, after light smoothing, zero outside."""
    planes = []
    for picture in (a, b):
        smooth = cv2.GaussianBlur(picture, (0, 0), 1.0)
        planes.append((cv2.Sobel(smooth, cv2.CV_32F, 1, 0), cv2.Sobel(smooth, cv2.CV_32F, 0, 1)))
    (ax, ay), (bx, by) = planes
    return tuple(
        np.where(inside, value, 0.0).astype(np.float64)
        for value in (ax * bx + ay * by, ax * ax + ay * ay, bx * bx + by * by)
    )
