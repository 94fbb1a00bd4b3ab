"""One picture large, with its boxes, and the difference of two, laid over each other first.

A difference image of two copies that are not laid over each other shows edges everywhere and says
nothing. So the second picture is laid down in the best of the eight orientations and registered
with the arithmetic of `audit.neighbors` before it is subtracted. About 50 ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from audit.browse.boxes import Box
from audit.browse.drawing import draw_boxes
from audit.browse.images import Card
from audit.neighbors.affine import lay_over, refine_map
from audit.neighbors.orientations import INVERSE, ORIENTATIONS, orient
from audit.picture.pixels import Pixels
from audit.report.thumbnails import Thumbnail, jpeg, preview_sample

LONGEST = 1200  # px
COMPARED = 480  # px
SEARCHED = 64  # px
GAIN = 4
# The search begins at no map at all, so it takes more steps than a full-resolution check.
ECC_STEPS, ECC_PRECISION = 60, 1e-5
LEAST_COVER = 0.982  # share of a pixel: below it the edge itself would show as a difference
Plane = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class PictureDifference:
    """Two pictures and their difference as JPEGs of one size, or the reason why there is none.

    `mean` is the mean absolute difference where both reach, in grey levels (0..255); `covered` the
    share of the first picture that the second covers; `said` how the second was laid down.
    """

    first: bytes = b""
    second: bytes = b""
    difference: bytes = b""
    mean: float = 0.0
    covered: float = 0.0
    said: str = ""
    error: str = ""


def view(card: Card, boxes: Sequence[Box] = (), longest: int = LONGEST) -> Thumbnail:
    """Return the picture of a sample with its boxes, or the reason why there is none."""
    preview, said = preview_sample(card, longest)
    if preview.pixels is None:
        return Thumbnail(error=said)
    small = preview.pixels
    if boxes:
        small = draw_boxes(small, small.shape[1] / preview.width, boxes)
    return Thumbnail(jpeg(small, 88), note=said)


def difference(first: Card, second: Card) -> PictureDifference:
    """Return two pictures and what differs between them (times 4), the second laid over the first.

    Never raises for what is in the files.
    """
    a, b = (preview_sample(card, COMPARED)[0] for card in (first, second))
    if a.pixels is None or b.pixels is None:
        return PictureDifference(error=a.error or b.error)
    return _compare(a.pixels, b.pixels)


def _compare(a: Pixels, b: Pixels) -> PictureDifference:
    oriented, way = _best_orientation(a, b)
    laid, covered = _register(a, oriented)
    gap = np.abs(a.astype(np.int16) - laid.astype(np.int16)).astype(np.float32)
    gap[~covered] = 0
    shown = np.clip(gap * GAIN, 0, 255).astype(np.uint8)
    shown[~covered] = (shown[~covered] // 2) + 60
    mean = float(gap[covered].mean()) if covered.any() else 255.0
    return PictureDifference(
        jpeg(a, 90), jpeg(b, 90), jpeg(shown, 90), mean, float(covered.mean()), way
    )


def _best_orientation(a: Pixels, b: Pixels) -> tuple[Pixels, str]:
    """Return `b` as it lies best over `a`, and the turn that takes it there."""
    target = _plane(a, (SEARCHED, SEARCHED))
    # orient(b, k) undoes change k, so change k is what the inverse of k does to b
    laid = [orient(b, int(inverse)) for inverse in INVERSE]
    gaps = [np.abs(_plane(one, (SEARCHED, SEARCHED)) - target).mean() for one in laid]
    best = int(np.argmin(gaps))
    return laid[best], ORIENTATIONS[best]


def _plane(pixels: Pixels, size: tuple[int, int]) -> Plane:
    """Return the luma at a size, with mean and deviation taken out: light does not count."""
    grey = cv2.cvtColor(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA), cv2.COLOR_RGB2GRAY)
    plane = grey.astype(np.float32)
    return np.asarray((plane - plane.mean()) / (plane.std() + 1.0), np.float32)


def _register(a: Pixels, b: Pixels) -> tuple[Pixels, npt.NDArray[np.bool_]]:
    """Return `b` laid over `a`, and where it reaches; stretched to fit where no map is found."""
    height, width = a.shape[:2]
    fitted = cv2.resize(b, (width, height), interpolation=cv2.INTER_AREA)
    template, other = (_plane(picture, (width, height)) for picture in (a, fitted))
    start = np.eye(2, 3, dtype=np.float32)
    warp = refine_map(template, other, start, steps=ECC_STEPS, precision=ECC_PRECISION)
    if warp is None:
        return fitted, np.ones((height, width), bool)
    return lay_over(fitted, warp, (width, height), least_cover=LEAST_COVER)
