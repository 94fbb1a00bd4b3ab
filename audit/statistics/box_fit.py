"""How boxes fit their pictures without a detector: an object differs from what is around its box.

The fit is how far light, fine detail and two colours differ between the box and a ring of three
tenths of its size around it, in deviations of the picture. The same boxes mirrored, moved, or laid
on another picture fit worse. A box needs an eighth of the picture in each direction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from audit.statistics.intervals import Floats, Ints

SIDE = 32
RING = 0.3  # of the box's side
LEAST = 4  # cells of a box, or of its ring, in each direction
FAINT = (4.0, 0.2, 3.0, 3.0)  # added to deviations: of light, log of detail, colours (levels)
MOVES = (2, 4, 6)  # cells: 6, 12 and 19 % of the picture
DIRECTIONS = {
    "right": (1, 0), "left": (-1, 0), "down": (0, 1), "up": (0, -1),
    "right and down": (1, 1), "left and up": (-1, -1),
    "right and up": (1, -1), "left and down": (-1, 1),
}  # fmt: skip
OPPOSITE = {
    name: next(other for other, to in DIRECTIONS.items() if to == (-dx, -dy))
    for name, (dx, dy) in DIRECTIONS.items()
}
SIZES = {"half as large": 0.5, "twice as large": 2.0}  # both sides, about the middle


class Alternative(NamedTuple):
    """How much better boxes fit elsewhere than where they lie: over units, paired.

    `z` is the standard score of the gain, `share` that of the units that gain, `n` the units.
    """

    name: str
    z: float
    share: float
    n: int


def integral_planes(grey: NDArray[np.uint8], colour: NDArray[np.uint8]) -> Floats:
    """Return summed planes (n, 4, 33, 33) of grey (n, 32, 32) and colour (n, 8, 8, 3) planes."""
    g = grey.astype(float)
    detail = np.zeros_like(g)
    detail[:, 1:-1, 1:-1] = np.abs(g[:, 1:-1, 2:] - g[:, 1:-1, :-2]) + np.abs(
        g[:, 2:, 1:-1] - g[:, :-2, 1:-1]
    )
    scale = SIDE // colour.shape[1]
    c = colour.astype(float).transpose(0, 3, 1, 2).repeat(scale, 2).repeat(scale, 3)
    planes = np.stack([g, np.log(detail + 4), c[:, 0] - c[:, 1], c[:, 2] - c[:, 1]], axis=1)
    spread = planes.std((2, 3), keepdims=True) + np.array(FAINT)[:, None, None]
    planes = (planes - planes.mean((2, 3), keepdims=True)) / spread
    sums = np.zeros((len(g), len(FAINT), SIDE + 1, SIDE + 1))
    sums[:, :, 1:, 1:] = planes.cumsum(2).cumsum(3)
    return sums


def fit_of_boxes(sums: Floats, picture: Ints, boxes: Floats) -> Floats:
    """Return the fit (m,) of boxes (m, 4: corners in cells); NaN where one has no ring or size."""
    x0, y0, x1, y1 = np.clip(np.rint(boxes), 0, SIDE).astype(int).T
    wide, high = (
        np.maximum(np.rint(RING * (boxes[:, 2 + at] - boxes[:, at])), 2).astype(int)
        for at in (0, 1)
    )
    inner, n_inner = _sum(sums, picture, x0, y0, x1, y1)
    ends = (x0 - wide, y0 - high, x1 + wide, y1 + high)
    outer, n_outer = _sum(sums, picture, *(np.clip(end, 0, SIDE) for end in ends))
    n_ring = n_outer - n_inner
    enough = (n_inner > LEAST) & (n_ring > LEAST)
    apart = inner / np.maximum(n_inner, 1)[:, None]
    apart -= (outer - inner) / np.maximum(n_ring, 1)[:, None]
    return np.where(enough, np.abs(apart).sum(1), np.nan)


def _sum(sums: Floats, at: Ints, x0: Ints, y0: Ints, x1: Ints, y1: Ints) -> tuple[Floats, Ints]:
    total = sums[at, :, y1, x1] - sums[at, :, y0, x1] - sums[at, :, y1, x0] + sums[at, :, y0, x0]
    return total, (x1 - x0) * (y1 - y0)


def _elsewhere(picture: Ints, boxes: Floats, n: int) -> Iterator[tuple[str, Ints, Floats]]:
    """Yield where else the boxes may belong: a name, the picture of each, the boxes."""
    x0, y0, x1, y1 = boxes.T
    yield "mirrored", picture, np.stack([SIDE - x1, y0, SIDE - x0, y1], axis=1)
    yield "upside down", picture, np.stack([x0, SIDE - y1, x1, SIDE - y0], axis=1)
    half_turn = np.stack([SIDE - x1, SIDE - y1, SIDE - x0, SIDE - y0], axis=1)
    yield "rotated by 180 degrees", picture, half_turn
    yield "with x and y exchanged", picture, np.stack([y0, x0, y1, x1], axis=1)
    yield "on the previous image", (picture - 1) % n, boxes
    yield "on the next image", (picture + 1) % n, boxes
    sides = np.stack([boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]] * 2, axis=1)
    for name, (dx, dy) in DIRECTIONS.items():
        way = np.array([dx, dy, dx, dy])
        for cells in MOVES:
            yield f"{cells / SIDE:.0%} further {name}", picture, boxes + cells * way
        yield f"half a box further {name}", picture, boxes + sides / 2 * way
    for name, size in SIZES.items():
        yield name, picture, boxes + (size - 1) / 2 * sides * np.array([-1, -1, 1, 1])


def gains_elsewhere(sums: Floats, picture: Ints, boxes: Floats) -> Mapping[str, Floats]:
    """Return by how much each box fits better elsewhere (m,), NaN where it has no place there.

    `picture` (m,) numbers rows of `sums`, which are in the order of the file.
    """
    here = fit_of_boxes(sums, picture, boxes)
    return {
        name: fit_of_boxes(sums, where, moved) - here
        for name, where, moved in _elsewhere(picture, boxes, len(sums))
    }


def better_elsewhere(gains: Mapping[str, Floats], unit: Ints) -> Iterator[Alternative]:
    """Yield how much better boxes fit elsewhere; those of one `unit`, a scene, count as one."""
    for name, gain in gains.items():
        known = np.isfinite(gain)
        _, code = np.unique(unit[known], return_inverse=True)
        mean = np.bincount(code, gain[known]) / np.bincount(code)
        if len(mean) < 3:
            continue
        error = mean.std(ddof=1) / np.sqrt(len(mean))
        z = float(mean.mean() / error) if error > 1e-9 else 0.0
        yield Alternative(name, z, float((mean > 0).mean()), len(mean))
