"""The nearest neighbours by meaning: cosine over principal axes, copies left out.

The axes are scaled by the fourth root of their variance, half way to whitening: as they are, a few
axes of brightness decide; whitened, noise does. Beyond `REFERENCES` pictures the neighbours of
every picture are looked for among that many, drawn by seed, because all pairs of a million are
a day's
work; below it they are exact. Costs n x references x 128 products.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from audit.embeddings.ridge import Decomposition
from audit.machine.compiled import compiled_on_first_call, usable_threads

Floats = npt.NDArray[np.float32]
Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]
AXES = 128
NEIGHBOURS = 20
REFERENCES, DISTANCE_REFERENCES = 30_000, 10_000
ROWS, COLUMNS = 512, 4096


@dataclass(frozen=True, slots=True)
class Nearest:
    """`index` (n, k): row numbers, nearest first, -1 where there are fewer; `similarity` (n, k):
    cosines; `references`: among how many rows was looked.
    """

    index: Ints
    similarity: Floats
    references: int


def nearest_rows(decomposition: Decomposition, groups: Ints, k: int = NEIGHBOURS) -> Nearest:
    """Return the k nearest rows, by cosine, of every row that are not of its group."""
    points = compared_points(decomposition)
    return _search(points, np.zeros(len(points), np.float32), groups, k, REFERENCES)


def kth_distances(decomposition: Decomposition, groups: Ints, k: int) -> Floats:
    """Return the distance (n,) of every row to the k-th nearest that is not of its group.

    To the last of them where there are fewer, 0 for a row without any. Distances, not cosines: a
    picture may be odd by its length alone. Axes as they are: to scale them makes small ones count
    as much as those in which a picture is odd.
    """
    points = np.ascontiguousarray(decomposition.turned[:, :AXES])
    squares = np.einsum("ij,ij->i", points, points)
    # |x - y|^2 / 2 = |x|^2 / 2 - (x y - |y|^2 / 2): the largest bracket is the nearest
    near = _search(points, squares / 2, groups, k, DISTANCE_REFERENCES)
    apart = np.sqrt(np.maximum(squares[:, None] - 2 * near.similarity, 0))
    return np.asarray(np.where(near.index >= 0, apart, 0).max(1, initial=0))


def _search(points: Floats, offsets: Floats, groups: Ints, k: int, references: int) -> Nearest:
    """Return for every row the k rows y of other groups with the largest x y - offset of y."""
    n = len(points)
    chosen = np.arange(n)
    if n > references:
        chosen = np.sort(np.random.default_rng(0).choice(n, references, replace=False))
    library, owners = np.ascontiguousarray(points[chosen]), groups[chosen]
    index = np.full((n, k), -1, np.int64)
    similarity = np.full((n, k), -np.inf, np.float32)

    def search(start: int) -> None:
        rows = slice(start, start + ROWS)
        for column in range(0, len(chosen), COLUMNS):
            columns = slice(column, column + COLUMNS)
            block = points[rows] @ library[columns].T
            block -= offsets[chosen[columns]]
            offer_neighbours(block, groups[rows], owners, column, index[rows], similarity[rows])

    with threadpool_limits(1, "blas"), ThreadPoolExecutor(usable_threads()) as pool:
        list(pool.map(search, range(0, n, ROWS)))
    found = index >= 0
    index[found] = chosen[index[found]]
    return Nearest(index, similarity, len(chosen))


@compiled_on_first_call
def offer_neighbours(
    block: Array, groups: Array, owners: Array, start: int, index: Array, similarity: Array
) -> None:
    """Put the entries of `block` (rows, columns) among the best of each row, largest first.

    Columns are numbered from `start`; those of a row's own group are passed over. Equal values go
    to the smaller number.
    """
    k = index.shape[1]
    for i in range(block.shape[0]):
        worst = similarity[i, k - 1]
        for j in range(block.shape[1]):
            x = block[i, j]
            if x > worst and owners[start + j] != groups[i]:
                place = k - 1
                while place > 0 and similarity[i, place - 1] < x:
                    similarity[i, place] = similarity[i, place - 1]
                    index[i, place] = index[i, place - 1]
                    place -= 1
                similarity[i, place] = x
                index[i, place] = start + j
                worst = similarity[i, k - 1]


def compared_points(decomposition: Decomposition) -> Floats:
    """Return the points (n, 128 or fewer) whose products are the cosines of `nearest_rows`."""
    points = scale_axes(decomposition)
    points /= np.sqrt(np.einsum("ij,ij->i", points, points))[:, None] + np.float32(1e-12)
    return points


def scale_axes(decomposition: Decomposition) -> Floats:
    """Return the first axes (n, 128 or fewer), half way to whitening: a copy."""
    scale = np.maximum(decomposition.values[:AXES], 1e-12) ** -0.25
    return np.asarray(decomposition.turned[:, :AXES] * scale.astype(np.float32))


def vote_shares(
    nearest: Nearest, labels: Ints, groups: Ints, n_classes: int, rows: Ints
) -> tuple[Floats, Floats]:
    """Return the neighbours of `rows` by class (m, n_classes), and shares smoothed to be above 0.

    `labels` are those of all rows; -1 votes for nothing. What belongs together (`groups`, of all
    rows) has one vote, that of its nearest member. The shares are as if each row were among those
    that may vote: without it, its own class is a little rarer, whatever the picture shows.
    """
    index = nearest.index[rows]
    voted = np.where(index >= 0, labels[index], -1)
    voted[_repeated(np.where(index >= 0, groups[index], -1))] = -1
    votes = np.zeros((len(rows), n_classes), np.float32)
    places = np.arange(len(rows))
    for column in voted.T:
        there = column >= 0
        votes[places[there], column[there]] += 1
    # half as many imagined neighbours as there may be real ones, spread over all classes
    imagined = index.shape[1] / 2
    counted = votes.sum(1, keepdims=True)
    own = np.where(labels >= 0, groups * (n_classes + 1) + labels, -1)
    _, member, held = np.unique(own, return_inverse=True, return_counts=True)
    sizes = np.bincount(labels[labels >= 0], minlength=n_classes)
    fair = votes.copy()
    of_class = sizes[labels[rows]]
    fair[places, labels[rows]] *= of_class / np.maximum(of_class - held[member[rows]], 1)
    return votes, (fair + imagined / n_classes) / (counted + imagined)


def _repeated(owners: Ints) -> npt.NDArray[np.bool_]:
    """Return which entries of (m, k) stand further left in their row as well."""
    order = np.argsort(owners, 1, kind="stable")
    same = np.diff(np.take_along_axis(owners, order, 1), axis=1) == 0
    found = np.zeros(owners.shape, np.bool_)
    np.put_along_axis(found, order[:, 1:], same, 1)
    return found
