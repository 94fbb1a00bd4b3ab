"""Coverage: pictures so chosen that no other is far from one of them.

Farthest first (Gonzalez 1985, Clustering to minimize the maximum intercluster distance): the next
picture is the one farthest from all that are chosen. Its largest distance is at most twice the
least that any choice of that size can have. It goes to odd pictures first, by design; the mean
distance says what it does for the others. Points are of length 1, so distances lie within 0..2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
BLOCK, CENTRES = 4096, 1024
"""Rows and centres compared at once: 16 MB of products, however many pictures there are."""
DRAWS, FEWEST_DRAWS = 20, 5
MOST_PRODUCTS = 4e9
"""Comparisons that all random choices may cost; larger choices are compared with fewer of them."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Distance to the nearest chosen picture: the largest and the mean, each (low, value, high).

    Of random choices the value is the mean over them, and the limits are the least and the most.
    """

    largest: tuple[float, float, float]
    mean: tuple[float, float, float]
    draws: int = 1


def likeness_to(points: Floats, centres: Floats) -> Floats:
    """Return the cosine (n,) of each point to its nearest centre, -1 where there is none."""
    found = np.full(len(points), -1, np.float32)
    for start in range(0, len(points), BLOCK):
        rows = slice(start, start + BLOCK)
        for column in range(0, len(centres), CENTRES):
            products = points[rows] @ centres[column : column + CENTRES].T
            np.maximum(found[rows], products.max(1), out=found[rows])
    return found


def choose_farthest(points: Floats, n: int, nearest: Floats, start: int) -> tuple[Ints, Floats]:
    """Return `n` rows, each the farthest from those before it, and the distance each one had.

    `nearest` (n_points,) are cosines to what is chosen already (-1: nothing); `start` is the first
    row where nothing is.
    """
    near = nearest.copy()
    rows, apart = np.empty(n, np.int64), np.empty(n, np.float32)
    known = bool((near > -1).any())
    taken = np.zeros(len(points), np.bool_)
    for number in range(n):
        free = np.where(taken, np.float32(np.inf), near)
        row = start if not number and not known else int(free.argmin())
        rows[number], apart[number] = row, near[row]
        taken[row] = True
        np.maximum(near, points @ points[row], out=near)
    return rows, distances(apart)


def distances(cosines: Floats) -> Floats:
    """Return the distances of points of length 1 with these cosines."""
    return np.asarray(np.sqrt(np.maximum(2 - 2 * cosines, 0)), np.float32)


def measure_reach(points: Floats, chosen: Ints, nearest: Floats) -> Reach:
    """Return how far the points are from the chosen rows, or from what was chosen already."""
    apart = distances(np.maximum(nearest, likeness_to(points, points[chosen])))
    # rounding leaves a chosen point a little beside itself
    apart[chosen] = 0
    largest, mean = float(apart.max(initial=0)), float(apart.mean()) if len(apart) else 0.0
    return Reach((largest,) * 3, (mean,) * 3)


def random_reach(points: Floats, n: int, nearest: Floats, seed: int) -> Reach:
    """Return the same of random choices of `n` rows."""
    rng = np.random.default_rng(seed)
    affordable = int(MOST_PRODUCTS / max(n * len(points), 1))
    draws = max(min(DRAWS, affordable), FEWEST_DRAWS)
    found = [
        measure_reach(points, rng.choice(len(points), n, replace=False), nearest)
        for _ in range(draws)
    ]
    return Reach(_over([f.largest[1] for f in found]), _over([f.mean[1] for f in found]), draws)


def _over(values: list[float]) -> tuple[float, float, float]:
    return min(values), float(np.mean(values)), max(values)
