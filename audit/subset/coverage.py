"""Coverage: pictures so chosen that the others are near to one of them.

Facility location: the next picture is the one that lowers the mean `cost` of the others most, in
which far ones weigh most. Greedy choices gain at least 63 % of what any choice could (Nemhauser,
Wolsey and Fisher 1978); of many pictures a random part is asked at each step (Mirzasoleiman et al.
2015, Lazier than lazy greedy). Points are of length 1, so distances lie within 0..2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
BLOCK, CENTRES = 4096, 1024
"""Rows and centres compared at once: 16 MB of products, however many pictures there are."""
STANDING = 8192
"""Points that stand for all others while one is chosen."""
LEAST_ASKED, ASKED_AT_ONCE, MISSED = 256, 512, 3.0
"""At each step so many candidates at least are asked, and -log(0.05) times n_points / n of them, so
that at most 5 % of the greedy gain is lost."""
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


def choose_covering(
    points: Floats, n: int, nearest: Floats, seed: int = 0
) -> tuple[Ints, npt.NDArray[np.float64]]:
    """Return `n` rows in the order of the choice, and the fall of the mean cost that each brought.

    `nearest` (n_points,) are cosines to what is chosen already (-1: nothing).
    """
    rng = np.random.default_rng(seed % 2**64)
    asked = min(len(points), max(LEAST_ASKED, math.ceil(MISSED * len(points) / n)))
    sample = np.arange(len(points))
    if len(points) > STANDING:
        sample = rng.choice(sample, STANDING, replace=False)
    others, left = np.ascontiguousarray(points[sample].T), cost(nearest[sample])
    free = rng.permutation(len(points))
    rows, gains = np.empty(n, np.int64), np.empty(n)
    for number in range(n):
        places = rng.choice(len(free), min(asked, len(free)), replace=False)
        # each block of candidates against all the sample: the products are in memory once
        blocks = np.array_split(places, math.ceil(len(places) / ASKED_AT_ONCE))
        costs = [cost(points[free[block]] @ others) for block in blocks]
        gained = np.concatenate([np.maximum(left - c, 0).mean(1, dtype=float) for c in costs])
        best = int(gained.argmax())
        rows[number], gains[number] = free[places[best]], gained[best]
        np.minimum(left, cost(points[rows[number]] @ others), out=left)
        free[places[best]] = free[-1]
        free = free[:-1]
    return rows, gains


def cost(cosines: Floats) -> Floats:
    """Return what it costs that points have these cosines to their nearest: 0 (there) to 1."""
    half = (1 - np.asarray(cosines, np.float32)) / 2
    return np.asarray(np.maximum(half, 0) * half * half, np.float32)


def measure_reach(points: Floats, chosen: Ints, nearest: Floats) -> Reach:
    """Return how far the points are from the chosen rows, or from what was chosen already."""
    cosines = np.maximum(nearest, likeness_to(points, points[chosen]))
    apart = np.sqrt(np.maximum(2 - 2 * cosines, 0))  # of points of length 1
    apart[chosen] = 0  # but for rounding
    largest, mean = float(apart.max(initial=0)), float(apart.mean()) if len(apart) else 0.0
    return Reach((largest,) * 3, (mean,) * 3)


def random_reach(points: Floats, n: int, nearest: Floats, seed: int) -> Reach:
    """Return the same of random choices of `n` rows."""
    rng = np.random.default_rng(seed % 2**64)
    affordable = int(MOST_PRODUCTS / max(n * len(points), 1))
    draws = max(min(DRAWS, affordable), FEWEST_DRAWS)
    found = [
        measure_reach(points, rng.choice(len(points), n, replace=False), nearest)
        for _ in range(draws)
    ]
    largest, mean = (
        (min(values), float(np.mean(values)), max(values))
        for values in zip(*((reach.largest[1], reach.mean[1]) for reach in found), strict=True)
    )
    return Reach(largest, mean, draws)
