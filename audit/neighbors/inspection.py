"""The full-resolution check: two files compared at 128 px, where their signatures cannot decide.

At 32 px two pages of one layout are one page, and a heavy caption hides a photograph. At 128 px
words differ and texture agrees, so the registration is continued two octaves up, from the map
that the signatures gave, and gradients are correlated in 8x8 blocks. Where that map is wrong or
absent, ORB keypoints and RANSAC propose another [Rublee et al., ICCV 2011]. On
photographs non-pairs reach 0.5 at most and 99 in 100 copies lie above 0.65.

It opens two files and costs about 10 ms with decoding, so it is counted and bounded: the pairs
nearest to the threshold first. Pictures under 48 px hold nothing that the signatures did not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from audit.neighbors.affine import lay_over, map_in_pixels, map_in_units, refine_map
from audit.neighbors.orientations import orient
from audit.neighbors.signatures import find_border

Picture = npt.NDArray[np.uint8]
Plane = npt.NDArray[np.float32]

CHECK_SIDE = 128
LEAST_SIDE = 48
"""Shorter side (pixels, border cut) from which a file can show more than its signature."""
SAME_ABOVE = 0.6
"""Contrast and inner correlation from which two pictures are the same; non-pairs reach 0.3."""
LEAST_OVERLAP = 0.35
LEAST_TEXTURED = 10
"""Textured blocks of 64 under which a picture is too plain: the signatures' score stands."""
PROMISING = 0.25
"""Median block correlation after the coarse step from which the fine one is worth its price: nine
in ten strangers stay under 0.2; no copy that the fine step went on to prove lay under 0.48."""
# Few steps: the signatures' map is nearly right, and where it is wrong more steps do not repair it.
ECC_STEPS, ECC_PRECISION = 25, 1e-4


@dataclass(frozen=True, slots=True)
class FullSizeCheck:
    """What a full-resolution check found.

    `contrast` is the median over textured blocks of the gradient correlation at 128 px, rescaled
    so that 0 is what the same two pictures reach when laid 12 px apart and 1 is identity (not
    rescaled where it is too low either way); `inner` is the correlation over the overlap, a caption
    aside; `overlap` the share of the template; `matrix` maps the template to the other picture, in
    [-1, 1] coordinates. `decided` is False where the pictures are too small or too plain to tell.
    """

    same: bool
    decided: bool
    contrast: float
    inner: float
    overlap: float
    matrix: tuple[float, ...]


UNDECIDED = FullSizeCheck(False, False, 0.0, 0.0, 0.0, (0.0,) * 6)


def check_full_size(
    picture_a: Picture,
    picture_b: Picture,
    orientation: int = 0,
    matrix: npt.NDArray[np.float64] | None = None,
) -> FullSizeCheck:
    """Compare two pictures (uint8 RGB, any size) at 128 px.

    `orientation` and `matrix` are what `verify` found on the signatures, in the same order of the
    two pictures: the one of the smaller content hash first.
    """
    first, second = _prepare(picture_a), _prepare(picture_b)
    if first is None or second is None:
        return UNDECIDED
    laid = orient(second, orientation)
    start = _start_map(matrix)
    best = UNDECIDED
    for warp in _proposals(first, laid, start):
        check = _compare(first, laid, warp)
        best = max(best, check, key=lambda one: (one.same, one.decided, one.contrast))
        if best.same:
            break
    return best


def _proposals(
    first: Plane,
    second: Plane,
    start: Plane,
) -> Iterator[Plane]:
    """Maps to try, the cheapest first; most pairs that are the same need the first or second."""
    yield start
    yield _refine(first, second, start, None)
    # a caption pulls the whole picture towards it: register by the middle alone
    middle = np.zeros(second.shape, np.uint8)
    rim = CHECK_SIDE // 6
    middle[rim:-rim, rim:-rim] = 255
    yield _refine(first, second, start, middle)
    proposed = _keypoint_map(first, second)
    if proposed is not None:
        yield _refine(first, second, proposed, None)


def _prepare(picture: Picture) -> Plane | None:
    """Cut the border, make grey, 128x128; None where there is too little to see."""
    left, top, right, bottom = find_border(picture)
    height, width = picture.shape[:2]
    inner = picture[top : height - bottom, left : width - right]
    if min(inner.shape[:2]) < LEAST_SIDE:
        return None
    # squashed to a square like the signatures, or the map between those would not fit here
    method = cv2.INTER_AREA if min(inner.shape[:2]) >= CHECK_SIDE else cv2.INTER_LINEAR
    small = cv2.resize(inner, (CHECK_SIDE, CHECK_SIDE), interpolation=method)
    grey = cv2.cvtColor(small, cv2.COLOR_RGB2GRAY).astype(np.float32)
    # under 2 levels there is sensor noise and nothing else, which correlates with anything
    return grey if float(grey.std()) > 2.0 else None


def _start_map(matrix: npt.NDArray[np.float64] | None) -> Plane:
    """The signatures' map, or none at all, in pixels at 128 px."""
    return map_in_pixels(np.zeros(6) if matrix is None else matrix, CHECK_SIDE).astype(np.float32)


def _refine(first: Plane, second: Plane, warp: Plane, mask: npt.NDArray[np.uint8] | None) -> Plane:
    """Register at 64 px, then at 128 where that promises something; keep the last map."""
    # a map from 32 px may be off by a pixel of those, four of these: the coarser step comes first
    for side in (CHECK_SIDE // 2, CHECK_SIDE):
        scale = side / CHECK_SIDE
        if side == CHECK_SIDE and _agreement(first, *_lay(second, warp))[0] < PROMISING:
            break
        a, b, counted = first, second, mask
        if side < CHECK_SIDE:
            a, b = cv2.pyrDown(first), cv2.pyrDown(second)
            counted = None if mask is None else np.ascontiguousarray(mask[::2, ::2])
        scaled = warp.copy()
        scaled[:, 2] = warp[:, 2] * scale
        refined = refine_map(a, b, scaled, steps=ECC_STEPS, precision=ECC_PRECISION, mask=counted)
        if refined is not None and _is_plausible(refined):
            warp = refined.copy()
            warp[:, 2] = refined[:, 2] / scale
    return warp


def _is_plausible(warp: Plane) -> bool:
    """No collapse and no more than a threefold zoom in area."""
    return 0.3 < abs(float(np.linalg.det(warp[:, :2]))) < 3.3


def _keypoint_map(first: Plane, second: Plane) -> Plane | None:
    """Propose a map from ORB matches that RANSAC finds consistent, or None."""
    # small patches and few levels: at 128 px the usual 31-px patch would not fit near an edge
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
    # RANSAC draws from OpenCV's global generator: seeded, or two scans would differ
    cv2.setRNGSeed(0)
    warp, inside = cv2.estimateAffine2D(source, target, ransacReprojThreshold=3.0)
    if warp is None or int(inside.sum()) < 8 or not _is_plausible(warp):
        return None
    return np.asarray(warp, np.float32)


def _compare(first: Plane, second: Plane, warp: Plane) -> FullSizeCheck:
    """Correlate gradients of the two through the map, whole and by 8x8 blocks of 16 px."""
    moved, inside = _lay(second, warp)
    overlap = float(inside.mean())
    if overlap < LEAST_OVERLAP:
        return FullSizeCheck(False, True, 0.0, 0.0, overlap, map_in_units(warp, CHECK_SIDE))
    blocks, inner, textured = _agreement(first, moved, inside)
    if textured < LEAST_TEXTURED:
        return FullSizeCheck(False, False, 0.0, 0.0, overlap, map_in_units(warp, CHECK_SIDE))
    if min(blocks, inner) < SAME_ABOVE:  # what is taken away below can only lower it
        return FullSizeCheck(False, True, blocks, inner, overlap, map_in_units(warp, CHECK_SIDE))
    # what lines of writing or a fence agree when laid wrongly is no evidence: take that away.
    # 12 px is beyond the width of a stroke at this size, so nothing agrees by being blurred
    chance = max(
        _agreement(first, np.roll(moved, shift, axis), inside)[0]
        for shift in (-12, 12)
        for axis in (0, 1)
    )
    chance = min(max(chance, 0.0), 0.95)
    contrast = (blocks - chance) / (1 - chance)
    same = contrast >= SAME_ABOVE and inner >= SAME_ABOVE
    return FullSizeCheck(bool(same), True, contrast, inner, overlap, map_in_units(warp, CHECK_SIDE))


def _lay(second: Plane, warp: Plane) -> tuple[Plane, npt.NDArray[np.bool_]]:
    """Lay a picture over its template; return it, and which pixels count."""
    moved, reached = lay_over(second, warp, (CHECK_SIDE, CHECK_SIDE))
    # the repeated edge makes gradients that neither picture has: two pixels along it are left out
    return moved, cv2.erode(reached.astype(np.uint8), np.ones((5, 5), np.uint8)) > 0


def _agreement(a: Plane, b: Plane, inside: npt.NDArray[np.bool_]) -> tuple[float, float, int]:
    """Median block correlation, correlation without the worst outer strip, textured blocks."""
    pooled = [_pool(plane) for plane in (*_products(a, b, inside), inside.astype(np.float64))]
    ab, aa, bb, area = pooled
    energy = aa / max(aa.sum(), 1e-9) + bb / max(bb.sum(), 1e-9)
    # 100 of a block's 256 pixels: fewer and one edge decides its correlation
    covered = area >= 100
    if not covered.any():
        return 0.0, 0.0, 0
    # a sky correlates with any other sky by its noise: only blocks with texture have a vote
    textured = covered & (energy >= 0.25 * energy[covered].mean())
    if not textured.any():
        return 0.0, 0.0, 0
    # the median: a caption may spoil a third of the blocks and change nothing
    local = ab[textured] / np.sqrt(np.maximum(aa * bb, 1e-9))[textured]
    return float(np.median(local)), _inner(ab, aa, bb), int(textured.sum())


def _inner(
    ab: npt.NDArray[np.float64], aa: npt.NDArray[np.float64], bb: npt.NDArray[np.float64]
) -> float:
    """Best correlation of the whole or of the whole less a quarter of it on one side."""
    cut = len(ab) // 4
    parts = [slice(None), slice(cut, None), slice(None, -cut)]
    correlations = [
        float(both.sum() / np.sqrt(max(one.sum() * other.sum(), 1e-9)))
        for across in (False, True)
        for part in parts
        for both, one, other in [
            tuple((plane.T if across else plane)[part] for plane in (ab, aa, bb))
        ]
    ]
    return max(correlations)


def _pool(plane: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Sum over 8x8 blocks of 16 px."""
    n = CHECK_SIDE // 16
    return np.asarray(plane.reshape(n, 16, n, 16).sum(axis=(1, 3)), np.float64)


def _products(
    a: Plane, b: Plane, inside: npt.NDArray[np.bool_]
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
