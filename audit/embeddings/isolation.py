"""Pictures that are far from all others: k-NN distances, and what chance makes of the largest.

The score of a picture is the logarithm of its distance to its tenth nearest picture, copies left
out: nine pictures of one odd kind do not hide each other. The largest score always is the largest;
whether it is too large is asked of the spacings below it (`audit.statistics.outlying`), of a
logarithm, which turns distances with tails of any power into exponential ones.

Asked of the whole dataset (half of the error rate) and of each class of 50 pictures and more by the
scores of its own (the other half): what is common among all pictures may be rare in a class.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from audit.embeddings.nearest import Compared, Nearest, kth_distances, nearest_places
from audit.embeddings.ridge import Decomposition
from audit.statistics.outlying import LEAST, chances_of_largest

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
K = 10
"""The neighbour whose distance counts: so many pictures alike, less one, can be outliers."""


class Isolated(NamedTuple):
    """A picture far from the others: its row, among whom (class number, -1: all), of how many.

    `chance` that any picture of a dataset without outliers lies so far; `distance` to its tenth
    nearest, the largest of the `rest` and the `typical` one, in one unit.
    """

    row: int
    group: int
    n: int
    chance: float
    distance: float
    rest: float
    typical: float


def distance_scores(
    points: Compared | Decomposition, groups: Ints, near: Nearest | None = None
) -> Floats:
    """Return the log of the distance (n,) of each row to the tenth nearest of other groups.

    `near` are these (`nearest_places`), where the caller has them.
    """
    found = kth_distances(points, near or nearest_places(points, groups, K)).astype(np.float64)
    return np.asarray(np.log(found + 1e-9 * found.max(initial=0.0) + 1e-300))


def find_isolated(scores: Floats, labels: Ints, units: Ints, most: float) -> list[Isolated]:
    """Return the rows whose chance is at most `most`, the most isolated first.

    `labels` (n,) are class numbers, -1 for none; rows of one unit (near-duplicates) count once, by
    the member that is nearest to others, and are found together.
    """
    first = np.lexsort((scores, units))
    first = first[np.append(True, np.diff(units[first]) != 0)] if len(first) else first
    found: dict[int, Isolated] = {}
    strata = list(_strata(labels[first]))
    for group, places in strata:
        rows = first[places]
        # half of the rate for the dataset, half for all classes
        tests = 2 if group < 0 else 2 * (len(strata) - 1)
        order = rows[np.argsort(-scores[rows], kind="stable")]
        chances = np.minimum(chances_of_largest(scores[order]) * tests, 1.0)
        rest = float(np.exp(scores[order[min(int((chances <= most).sum()), len(order) - 1)]]))
        typical = float(np.exp(np.median(scores[order])))
        for row, chance in zip(order.tolist(), chances.tolist(), strict=False):
            if chance <= most and (row not in found or chance < found[row].chance):
                distance = float(np.exp(scores[row]))
                found[row] = Isolated(row, group, len(rows), chance, distance, rest, typical)
    members = [
        one._replace(row=int(row))
        for one in found.values()
        for row in np.flatnonzero(units == units[one.row])
    ]
    return sorted(members, key=lambda one: (-one.distance / one.typical, one.row))


def _strata(labels: Ints) -> Iterator[tuple[int, Ints]]:
    """Yield class numbers, -1 for all, with the places of their pictures."""
    if len(labels) >= LEAST:
        yield -1, np.arange(len(labels))
    counts = np.bincount(labels[labels >= 0])
    large = np.flatnonzero(counts >= LEAST)
    if len(large) > 1 or (len(large) and counts.sum() < len(labels)):
        for number in large.tolist():
            yield number, np.flatnonzero(labels == number)
