"""Drawn pictures: what tells two of them apart may be one stroke.

Dials, charts, cards or letters of one hand agree by any average. So of drawings, pictures of plain
areas with edges between, a copy is what differs nowhere, laid over each other and blurred against
the noise of compression.
"""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt

from audit.picture.signatures import Signatures

Picture = npt.NDArray[np.uint8]

AROUND = np.ones((3, 3), np.uint8)
DRAWN = ((6, 0.3, 0.0), (18, 0.0, 0.95))
"""Levels within which a pixel agrees with those around it where all is of one colour (JPEG of a
quality of 75 stays below 6, of a lower one below 18), the share of such plain pixels, less that of
textured ones, from which a picture is a drawing, and what four colours are of the plain at least.
"""
SEEMS = 0.25
"""Share of a signature's pixels, level to both sides, from which its picture may be a drawing; so
may what has a border of one colour."""
SIDE, BLUR = 128, 2.0
"""Side (pixels) at which drawings are compared, and the blur, in pixels of the smaller picture."""
MOST_LIGHT, MOST_COLOUR, CLOSELY = 10.0, 12.0, 0.6
"""Levels that blurred copies differ by at most, in light and in colour (which JPEG halves, so that
it is blurred twice as much), and the share of them that copies at a quality of 75 keep to."""


def is_drawn(picture: Picture) -> bool:
    """Say whether a picture (uint8 RGB) is of plain areas, with edges but no texture between."""
    spread = (cv2.dilate(picture, AROUND) - cv2.erode(picture, AROUND)).max(axis=2)
    colour = (picture >> 5).astype(np.int64) @ np.array([64, 8, 1])
    for level, least, few in DRAWN:
        plain = spread <= level
        textured = cv2.erode((~plain).astype(np.uint8), AROUND)
        four = np.sort(np.bincount(colour[plain], minlength=4))[-4:].sum()
        if plain.mean() - textured.mean() >= least and four >= few * plain.sum():
            return True
    return False


def seem_drawn(some: Signatures) -> npt.NDArray[np.bool_]:
    """Say which pictures may be drawings, by their signatures: 3 in 100 of CIFAR-10 may."""
    grey = some["grey"].astype(np.int16)
    steps = [np.abs(np.diff(grey, axis=axis)) <= 2 for axis in (1, 2)]
    level = (steps[0][:, :, 1:] & steps[1][:, 1:]).mean(axis=(1, 2))
    return np.asarray((level >= SEEMS) | some["trim"].any(axis=1), np.bool_)


def agree_everywhere(
    first: Picture,
    second: Picture,
    inside: npt.NDArray[np.bool_] | None = None,
    *,
    side: int = 0,
    relit: bool = False,
    share: float = 1.0,
) -> bool:
    """Say whether two pictures, brought to one size, are equal at every place.

    `inside` (128, 128): the places that count; `side`: of the smaller one as it was, where it was
    brought to that size before; `relit`: up to one change of light; `share`: of the levels that
    they may differ by.
    """
    soft = BLUR * max(1.0, SIDE / (side or min(*first.shape[:2], *second.shape[:2])))
    a, b = (
        cv2.cvtColor(to_square(picture), cv2.COLOR_RGB2YCrCb).astype(np.float32)
        for picture in (first, second)
    )
    counts = np.ones((SIDE, SIDE), np.bool_) if inside is None else inside
    if relit:
        x, y = (cv2.GaussianBlur(plane[:, :, 0], (0, 0), soft)[counts] for plane in (b, a))
        covariance = float(((x - x.mean()) * (y - y.mean())).mean())
        gain = float(np.clip(covariance / max(float(x.var()), 1e-3), 0.5, 2.0))
        b = (b - [x.mean(), 128, 128]) * gain + [y.mean(), 128, 128]
    difference = np.where(counts[:, :, None], a - b, 0).astype(np.float32)
    light = np.abs(cv2.GaussianBlur(difference[:, :, 0], (0, 0), soft)).max()
    colour = np.abs(cv2.GaussianBlur(difference[:, :, 1:], (0, 0), 2 * soft)).max()
    return bool(light <= share * MOST_LIGHT and colour <= share * MOST_COLOUR)


def to_square(picture: Picture) -> Picture:
    """Squash a picture to a square like that of the signatures, whose maps then fit."""
    method = cv2.INTER_AREA if min(picture.shape[:2]) >= SIDE else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(picture, (SIDE, SIDE), interpolation=method), np.uint8)
