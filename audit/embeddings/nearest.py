"""The nearest neighbours by meaning: cosine over principal axes, copies left out.

The axes are scaled by the fourth root of their variance: as they are, a few axes of brightness
decide; whitened, noise does. Beyond `REFERENCES` pictures neighbours are looked for among that
many; below it they are exact. Points that are the same in every set (`Compared.codes`) are whole
numbers, so products of an earlier search stand where no picture came or went.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from audit.embeddings.ridge import Decomposition, Floats, Ints
from audit.machine.sharing import by_rows
from audit.neighbors.kernels.offers import offer_rows
from audit.neighbors.pair_cache import MIX_1, Fingerprints, KnownNeighbours, find_contained

AXES = 128
NEIGHBOURS = 20
ISOLATION = 10
"""The neighbour whose distance counts; fewer similar images than these can rank as isolated."""
REFERENCES, DISTANCE_REFERENCES = 30_000, 10_000
ROWS, COLUMNS = 512, 4096
MOST_CHANGED = 0.25
"""Share of rows to be compared anew from which all are."""


@dataclass(frozen=True, slots=True)
class Nearest:
    """`index` (n, k): row numbers, nearest first, -1 where there are fewer; `similarity` (n, k):
    cosines; `references`: among how many rows was looked.
    """

    index: Ints
    similarity: Floats
    references: int

    def times(self, factor: float) -> Nearest:
        """Return the same with other units of similarity."""
        return replace(self, similarity=self.similarity * np.float32(factor))


@dataclass(frozen=True, slots=True)
class Compared:
    """Points (n, d) that are compared: `directions`, whose products are cosines times `scale`, and
    `places`, whose distances count. `codes` (n,) name each row where its point is that of any set:
    references are the first by these, else drawn.
    """

    directions: Floats
    places: Floats
    scale: float = 1.0
    codes: Fingerprints | None = None

    def references(self, most: int) -> Ints:
        """Return the rows among which is looked, at most so many, in order."""
        n = len(self.places)
        if n <= most:
            return np.arange(n)
        if self.codes is None:
            return np.sort(np.random.default_rng(0).choice(n, most, replace=False))
        return np.sort(np.argsort(self.codes, kind="stable")[:most])


def compare_axes(decomposition: Decomposition) -> Compared:
    """Return what is compared of vectors that were turned to their principal axes."""
    places = np.ascontiguousarray(decomposition.turned[:, :AXES])
    return Compared(unit_length(scale_axes(decomposition)), places)


@dataclass(frozen=True, slots=True)
class KnownNearest:
    """What an earlier search found: the `near` of each row and the code of its group (n,)."""

    near: KnownNeighbours
    groups: Fingerprints

    @classmethod
    def of(cls, found: Nearest, codes: Fingerprints, groups: Ints) -> KnownNearest:
        """Keep what was found."""
        index = found.index.astype(np.int32)
        return cls(KnownNeighbours(codes, index, found.similarity), group_codes(codes, groups))


def group_codes(codes: Fingerprints, groups: Ints) -> Fingerprints:
    """Return for each row a code of the members of its group."""
    sums = np.zeros(int(groups.max(initial=-1)) + 1, np.uint64)
    np.add.at(sums, groups, (codes ^ (codes >> np.uint64(31))) * MIX_1)
    return np.asarray(sums[groups])


def nearest_rows(
    points: Compared, groups: Ints, k: int = NEIGHBOURS, known: KnownNearest | None = None
) -> Nearest:
    """Return the k nearest rows, by cosine, of every row that are not of its group.

    `known` is what an earlier search found of points with codes.
    """
    chosen = points.references(REFERENCES)
    offsets = np.zeros(len(groups), np.float32)
    again = None if known is None else _Again.of(points, groups, known, k, chosen, REFERENCES)
    if again is not None:  # a power of two: nothing is rounded
        again = replace(again, known=again.known.times(points.scale))
    found = _search_again(points.directions, offsets, groups, k, chosen, again)
    return found.times(1 / points.scale)


def nearest_places(
    points: Compared, groups: Ints, k: int, known: KnownNearest | None = None
) -> Nearest:
    """Return the k rows of other groups at the least distance; the `similarity` of y to x is
    x y - |y|^2 / 2, the largest of the nearest.
    """
    places, most = points.places, DISTANCE_REFERENCES
    squares = np.einsum("ij,ij->i", places, places)
    chosen = points.references(most)
    again = None if known is None else _Again.of(points, groups, known, k, chosen, most)
    return _search_again(places, squares / 2, groups, k, chosen, again)


def distance_scores(points: Compared, near: Nearest) -> npt.NDArray[np.float64]:
    """Return the log of the distance (n,) of every row to the last of those that are `near`."""
    squares = np.einsum("ij,ij->i", points.places, points.places)
    # |x - y|^2 / 2 = |x|^2 / 2 - (x y - |y|^2 / 2)
    apart = np.sqrt(np.maximum(squares[:, None] - 2 * near.similarity, 0))
    found = np.where(near.index >= 0, apart, 0).max(1, initial=0).astype(np.float64)
    return np.asarray(np.log(found + 1e-9 * found.max(initial=0.0) + 1e-300))


@dataclass(frozen=True, slots=True)
class _Again:
    """What an earlier search knows, by numbers of now; the rows to compare `anew` with all, and the
    references that are `fresh` to the others.
    """

    known: Nearest
    anew: Ints
    fresh: Ints

    @classmethod
    def of(
        cls, points: Compared, groups: Ints, known: KnownNearest, k: int, chosen: Ints, most: int
    ) -> _Again | None:
        """Return what can be used again; None where too much changed."""
        codes, before = points.codes, known.near.codes
        if codes is None or known.near.index.shape[1] != k:
            return None
        index, similarity, new, lost = known.near.carried_over(codes)
        refers = np.zeros(len(codes), np.bool_)
        refers[chosen] = True
        lost |= ((index >= 0) & ~refers[index]).any(axis=1)
        pairs = np.sort((before ^ (known.groups >> np.uint64(1))) * MIX_1)
        grouped = (codes ^ (group_codes(codes, groups) >> np.uint64(1))) * MIX_1
        anew = new | lost | ~find_contained(grouped, pairs)
        referred = np.sort(before)[:most]
        fresh = chosen[~find_contained(codes[chosen], referred)]
        if max(anew.mean(), len(fresh) / len(chosen)) > MOST_CHANGED:
            return None
        return cls(Nearest(index, similarity, len(chosen)), np.flatnonzero(anew), fresh)


def _search_again(
    points: Floats, offsets: Floats, groups: Ints, k: int, chosen: Ints, again: _Again | None
) -> Nearest:
    """Return for every row the k rows y of other groups with the largest x y - offset of y."""
    n = len(points)
    if again is None:
        return Nearest(*_search(points, offsets, groups, k, chosen, np.arange(n)), len(chosen))
    index, similarity = again.known.index.copy(), again.known.similarity.copy()
    found = _search(points, offsets, groups, k, chosen, again.anew)
    index[again.anew], similarity[again.anew] = found
    kept = np.setdiff1d(np.arange(n), again.anew)
    offered, value = _search(points, offsets, groups, k, again.fresh, kept)
    better = value[:, 0] >= similarity[kept, -1]
    rows = kept[better]
    both = np.hstack([index[rows], offered[better]])
    values = np.hstack([similarity[rows], value[better]])
    # the largest first, equals by number, as one search of all would list them
    order = np.argsort(both, axis=1, kind="stable")
    both, values = (np.take_along_axis(x, order, 1) for x in (both, values))
    order = np.argsort(-values, axis=1, kind="stable")[:, :k]
    index[rows] = np.take_along_axis(both, order, 1)
    similarity[rows] = np.take_along_axis(values, order, 1)
    return Nearest(index, similarity, len(chosen))


def _search(
    points: Floats, offsets: Floats, groups: Ints, k: int, chosen: Ints, asked: Ints
) -> tuple[Ints, Floats]:
    """Return for each of the rows `asked` the k of the rows `chosen`, and their values."""
    library, owners = np.ascontiguousarray(points[chosen]), groups[chosen]
    index = np.full((len(asked), k), -1, np.int64)
    similarity = np.full((len(asked), k), -np.inf, np.float32)

    def search(here: slice) -> None:
        rows = asked[here]
        for column in range(0, len(chosen), COLUMNS):
            columns = slice(column, column + COLUMNS)
            block = points[rows] @ library[columns].T
            block -= offsets[chosen[columns]]
            block[groups[rows, None] == owners[columns]] = -np.inf
            numbers = np.arange(column, column + block.shape[1])
            offer_rows(block, np.arange(len(rows)), numbers, similarity[here], index[here], -1)

    list(by_rows(search, len(asked), ROWS))
    index[similarity == -np.inf] = -1
    found = index >= 0
    index[found] = chosen[index[found]]
    return index, similarity


def unit_length(points: Floats) -> Floats:
    """Return points (n, d) scaled to length 1; those of none stay."""
    lengths = np.sqrt(np.einsum("ij,ij->i", points, points))[:, None]
    return np.asarray(points / (lengths + np.float32(1e-12)))


def scale_axes(decomposition: Decomposition) -> Floats:
    """Return the first axes (n, 128 or fewer), half way to whitening: a copy."""
    scale = np.maximum(decomposition.values[:AXES], 1e-12) ** -0.25
    return np.asarray(decomposition.turned[:, :AXES] * scale.astype(np.float32))


def vote_shares(
    nearest: Nearest, labels: Ints, groups: Ints, n_classes: int, rows: Ints
) -> tuple[Floats, Floats]:
    """Return the neighbours of `rows` by class (m, n_classes), and shares smoothed to be above 0.

    `labels` are those of all rows; -1 votes for nothing. What belongs together (`groups`, of all
    rows) has one vote, that of its nearest member. The shares are those without the row itself.
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
