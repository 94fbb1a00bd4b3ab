"""Copies that share the middle only: a vignette, a feathered frame, a replaced background.

Such a frame changes half of the gradients, but not the middle half of either side. Middles are
compared upright and in place: level relative to the surroundings, seen through the low frequencies
of a cosine transform, after what was trimmed is put back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import cv2
import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from audit.machine.sharing import by_rows
from audit.neighbors.descriptor import cosine_basis
from audit.neighbors.pair_cache import Fingerprints, KnownCentres, find_contained, places_of
from audit.neighbors.verification import Pairs, VerifiedPairs
from audit.picture.signatures import COLOUR_SIDE, GREY_SIDE, Flag, Signatures

Floats = npt.NDArray[np.float32]

SIDE = GREY_SIDE // 2
FREQUENCIES = 9
"""Cosines along each axis, the constant left out."""
BLOCK = 1024
CACHED = 256
"""Rows whose planes stay in a core's cache."""
HEAD = 20
"""Principal axes that bound the similarity of two middles, of 80."""
ROUNDING = 1e-5
PART = 65_536
SLACK, MOST_NEW, MOST_KEPT = 0.02, 0.05, 20
"""How far below the limit pairs are kept for the next search, up to which share of new pictures
these are used, and how many a picture at most."""
MOST_A_ROW = 4
FALSE_PAIRS_PER_IMAGE, LEAST_FALSE_PAIRS, MANY = 0.004, 0.05, 3000
"""False pairs that the limit allows for each picture; in fewer than many pictures in proportion
less, as one such pair is all that is said of a small set: in photographs it costs nothing."""
SAMPLE_ROWS = 1500
LEAST_ROWS = 50
"""With fewer pictures chance cannot be seen: the highest limit holds."""
LOWEST_LIMIT, HIGHEST_LIMIT = 0.85, 0.95
MOST_ALIKE = 0.02
"""Share of random pairs above the lowest limit from which the middle is what all have in common:
without them, what 1 in 100 of the rest reach is no longer what 1 in 100 strangers do."""
LEAST_TEXTURED = 8
"""Cells of 16 that must hold texture: an outline through the middle crosses six or seven."""
LEAST_SLOPE = 2.0
"""Grey levels a pixel under which a cell is plain: sensor noise and JPEG blocks stay below."""
SAME_CELL = 0.85
WEAK_SHARE, LEAST_WEAK_SLOPE, SAME_WEAK = 0.5, 0.7, 0.6
"""Half of the gradients are weaker than outlines; they must be there (grey levels a pixel) and
correlate. Rounding to whole levels makes slopes of 0.2 to 0.3, strangers correlate below 0.3."""

COLOURFUL, SAME_COLOURS = 6.0, 0.5
"""Levels by which colours of a middle differ from grey, from which they must agree (cosine): of 700
framed copies 98 in 100 do, all but one of photographs; the middles of pixel art agree by chance."""


def cut_centres(table: Signatures) -> Floats:
    """Return the middle half of either side of the untrimmed pictures, (n, 16, 16)."""
    edge = (GREY_SIDE - SIDE) // 2
    out = table["grey"][:, edge:-edge, edge:-edge].astype(np.float32)
    for row in np.flatnonzero(table["flags"] & Flag.TRIMMED):
        left, top, right, bottom = (float(v) for v in table["trim"][row])
        width, height = (float(v) for v in table["size"][row])
        x, y = GREY_SIDE / (width - left - right), GREY_SIDE / (height - top - bottom)
        # pixel centres of the middle, in pixels of the plane that trimming left
        step = np.array([width / GREY_SIDE * x, height / GREY_SIDE * y])
        first = np.array([(width / 4 - left) * x, (height / 4 - top) * y]) + step / 2 - 0.5
        warp = np.array([[step[0], 0, first[0]], [0, step[1], first[1]]])
        out[row] = cv2.warpAffine(
            table["grey"][row].astype(np.float32), warp, (SIDE, SIDE),
            flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP, borderMode=cv2.BORDER_REPLICATE,
        )  # fmt: skip
    return out


def describe_centres(centres: Floats) -> Floats:
    """Return unit vectors (n, 80) of the middles; a middle without contrast is all zeros."""
    n, blur = len(centres), _blurring()
    rest = centres - blur @ centres @ blur.T
    power = blur @ (rest * rest) @ blur.T
    local = rest / np.sqrt(power + 0.2 * power.mean(axis=(1, 2), keepdims=True) + 1.0)
    basis = cosine_basis(SIDE, FREQUENCIES)
    spectrum = basis @ local @ basis.T  # picture by picture: the same beside any others
    vectors = spectrum.reshape(n, -1)[:, 1:]
    length = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))[:, None]
    return np.asarray(vectors / np.maximum(length, 1e-4), np.float32)


@cache
def _blurring() -> Floats:
    """Return the matrix (16, 16) that takes the mean of 7 px, the picture mirrored at its edges."""
    out = np.zeros((SIDE, SIDE), np.float32)
    for shift in range(-3, 4):
        at = np.abs(np.arange(SIDE) + shift)
        np.add.at(out, (np.arange(SIDE), np.minimum(at, 2 * SIDE - 2 - at)), np.float32(1 / 7))
    return out


class SameCentres(NamedTuple):
    """Pairs of rows (m, 2), smaller first, whose middles are one texture, their similarity (m,),
    and whether the middles of these pictures tell strangers apart at all: else there are no pairs.
    `known`: what the next search can use.
    """

    pairs: Pairs
    similarity: Floats
    telling: bool = True
    known: KnownCentres | None = None


NONE = np.zeros((0, 2), np.int64), np.zeros(0, np.float32)


def find_same_centres(
    table: Signatures,
    *,
    new: int | None = None,
    codes: Fingerprints | None = None,
    known: KnownCentres | None = None,
) -> SameCentres:
    """Return pairs of rows whose middles are one texture: all pairs, or those with one of the first
    `new` rows and one of the rest.

    The similarity to ask for follows from the odds: `accident_limit`. Costs one product of all
    these pairs, but for those that an earlier search made (`known`; `codes` (n,) name pictures); at
    most `MOST_A_ROW` of a row are kept.
    """
    centres = cut_centres(table)
    # a plain middle with one outline agrees with any other of that outline: it has no vote
    counts = by_rows(lambda part: _count_textured(centres[part]), len(centres), CACHED)
    rows = np.flatnonzero(np.concatenate([*counts, []]) >= LEAST_TEXTURED)
    n_new = None if new is None else int(np.searchsorted(rows, new))
    if len(rows) < 2 or n_new == 0:
        return SameCentres(*NONE)
    described = by_rows(lambda part: describe_centres(centres[rows[part]]), len(rows), CACHED)
    vectors = np.concatenate(list(described))
    limit = accident_limit(vectors)
    if np.isinf(limit):
        return SameCentres(*NONE, telling=False)
    if codes is None:
        near, kept_for_later = find_near(vectors, limit, n_new), None
    else:
        named = codes[rows]
        near, floor = _find_near_again(vectors, limit, named, known)
        row, column = near.pairs.T
        kept_for_later = KnownCentres(named, named[row], named[column], near.similarity, floor)
        if len(row) > MOST_KEPT * len(rows):
            kept_for_later = None
    pairs, similarity = near.best(limit)
    if not len(pairs):
        return SameCentres(*NONE, known=kept_for_later)
    first, second = rows[pairs.T]
    kept = _agree(centres[first], centres[second]) & _same_colours(table[first], table[second])
    found = np.asarray(rows[pairs[kept]], np.int64)
    return SameCentres(found, similarity[kept], known=kept_for_later)


def framed_pairs(found: SameCentres, rows: npt.NDArray[np.intp]) -> dict[tuple[int, int], float]:
    """Return the similarity of middles by pair, in numbers of a larger table: `rows` are in it."""
    pairs = rows[found.pairs].tolist()
    return {(a, b): s for (a, b), s in zip(pairs, found.similarity.tolist(), strict=True)}


def describe_by_middles(
    verified: VerifiedPairs, framed: Mapping[tuple[int, int], float], threshold: float
) -> VerifiedPairs:
    """Describe pairs that only their middles prove by those: in place, a quarter in common."""
    if not framed:
        return verified
    asked = np.sort(verified.pairs, axis=1).tolist()
    middle = np.array([framed.get((a, b), -1.0) for a, b in asked])
    by_middle = (middle > 0) & (verified.score < threshold)
    return replace(
        verified,
        similarity=np.where(by_middle, middle, verified.similarity),
        overlap=np.where(by_middle, 0.25, verified.overlap),
        orientation=np.where(by_middle, 0, verified.orientation),
        matrix=np.where(by_middle[:, None], 0.0, verified.matrix),
    )


class NearCentres(NamedTuple):
    """Pairs of rows (m, 2), sorted, the one that asks first, and their similarity (m,)."""

    pairs: Pairs
    similarity: Floats

    def best(self, limit: float) -> tuple[Pairs, Floats]:
        """Return the best of each row that asks, at least so similar, smaller row first."""
        near = np.flatnonzero(self.similarity >= limit)
        near = near[_best_of_each(self.pairs[near, 0], self.similarity[near])]
        return np.sort(self.pairs[near], axis=1), self.similarity[near]


def find_near(vectors: Floats, limit: float, new: int | None) -> NearCentres:
    """Return pairs at least so similar, the larger row first; see `find_same_centres` for `new`."""
    pairs, similarity = [], []
    asked = len(vectors) if new is None else new
    bounded = _bounding(vectors)
    with threadpool_limits(limits=1, user_api="blas"):
        for start in range(0, asked, BLOCK):
            end = min(start + BLOCK, asked)
            # every pair once: columns up to the end of this block, the diagonal left out below
            first, last = (0, end) if new is None else (new, len(vectors))
            hopeful = (bounded[start:end] @ bounded[first:last].T).ravel() >= limit - ROUNDING
            row, column = np.divmod(np.flatnonzero(hopeful), last - first)
            row, column = row + start, column + first
            once = (row > column) | (new is not None)
            row, column = row[once], column[once]
            value = _similarity(vectors, row, column)
            near = value >= limit
            pairs.append(np.stack([row[near], column[near]], axis=1))
            similarity.append(value[near])
    return NearCentres(np.concatenate(pairs), np.concatenate(similarity))


def _find_near_again(
    vectors: Floats, limit: float, codes: Fingerprints, known: KnownCentres | None
) -> tuple[NearCentres, Floats]:
    """Return pairs of the rows called `codes`, and the similarity above which all are there: a
    little less than the limit, which moves with the pictures.
    """
    order = np.argsort(codes, kind="stable")
    new = np.zeros(0, np.intp)
    if known is not None:
        new = np.flatnonzero(~find_contained(codes, np.sort(known.codes)))
    if known is None or known.floor > limit or len(new) > MOST_NEW * len(codes):
        floor = np.float32(limit - SLACK)
        return find_near(vectors, float(floor), None), np.asarray(floor)
    both = (places_of(c, codes[order], order) for c in (known.first, known.second))
    kept = np.stack(list(both), axis=1)
    there = (kept >= 0).all(axis=1)
    value = (vectors[new] @ vectors.T).ravel()
    row, column = np.divmod(np.flatnonzero(value >= known.floor - ROUNDING), len(codes))
    row = new[row]
    once = (row > column) | ((row < column) & ~np.isin(column, new))
    pairs = np.sort(np.stack([row[once], column[once]], axis=1), axis=1)[:, ::-1]
    value = _similarity(vectors, pairs[:, 0], pairs[:, 1])
    near = value >= known.floor
    pairs = np.concatenate([kept[there], pairs[near]])
    value = np.concatenate([known.similarity[there], value[near]])
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    return NearCentres(pairs[order], value[order]), np.asarray(known.floor)


def _similarity(vectors: Floats, row: npt.NDArray[np.intp], column: npt.NDArray[np.intp]) -> Floats:
    """Return the products of pairs of vectors (m,), gathered a part at a time."""
    out = np.empty(len(row), np.float32)
    for start in range(0, len(row), PART):
        part = slice(start, start + PART)
        out[part] = np.einsum("ij,ij->i", vectors[row[part]], vectors[column[part]])
    return out


def _bounding(vectors: Floats) -> Floats:
    """Return short vectors (n, 21) whose products are never below those of `vectors`."""
    _, axes = np.linalg.eigh((vectors.T @ vectors).astype(np.float64))
    turned = vectors @ axes[:, ::-1].astype(np.float32)
    rest = np.sqrt(np.einsum("ij,ij->i", turned[:, HEAD:], turned[:, HEAD:]))
    return np.ascontiguousarray(np.hstack([turned[:, :HEAD], rest[:, None]]))


def accident_limit(vectors: Floats) -> float:
    """Similarity that hardly any two strangers of this data set are expected to reach; else inf.

    An exponential through what 1 in 10 and 1 in 100 random pairs reach, in Fisher's z, without what
    lies above the lowest limit: copies would raise it.
    """
    n = len(vectors)
    if n < LEAST_ROWS:
        return HIGHEST_LIMIT
    rows = np.random.default_rng(0).permutation(n)[:SAMPLE_ROWS]
    likeness = (vectors[rows] @ vectors[rows].T)[np.triu_indices(len(rows), 1)]
    if (likeness >= LOWEST_LIMIT).mean() > MOST_ALIKE:
        return np.inf
    often, seldom = np.arctanh(np.quantile(likeness[likeness < LOWEST_LIMIT], (0.9, 0.99)))
    allowed = max(LEAST_FALSE_PAIRS, FALSE_PAIRS_PER_IMAGE * n * min(1.0, n / MANY))
    decades = np.log10(n * (n - 1) / 2 / allowed) - 2
    limit = float(np.tanh(seldom + decades * (seldom - often)))
    return np.inf if limit > HIGHEST_LIMIT else max(limit, LOWEST_LIMIT)


def _best_of_each(row: npt.NDArray[np.intp], value: Floats) -> npt.NDArray[np.intp]:
    """Places of the `MOST_A_ROW` highest values of each row."""
    order = np.lexsort((-value, row))
    first = np.searchsorted(row[order], row[order])
    return order[np.arange(len(order)) - first < MOST_A_ROW]


def _cells(planes: Floats) -> Floats:
    """Sum over 4x4 cells of 4 px, (n, 16)."""
    return np.asarray(planes.reshape(-1, 4, 4, 4, 4).sum(axis=(2, 4)).reshape(-1, 16), np.float32)


def _slopes(centres: Floats) -> tuple[Floats, Floats]:
    """Central differences across and down, one-sided at the edges (as `np.gradient`, in place)."""
    down, across = np.empty_like(centres), np.empty_like(centres)
    for out, source in ((down, centres), (across.swapaxes(1, 2), centres.swapaxes(1, 2))):
        np.subtract(source[:, 2:], source[:, :-2], out=out[:, 1:-1])
        out[:, 1:-1] *= np.float32(0.5)
        np.subtract(source[:, 1], source[:, 0], out=out[:, 0])
        np.subtract(source[:, -1], source[:, -2], out=out[:, -1])
    return across, down


def _count_textured(centres: Floats) -> npt.NDArray[np.int64]:
    """Cells of 16 that hold structure of their own: not noise, not little beside the others."""
    across, down = _slopes(centres)
    energy = _cells(across * across + down * down)
    return np.asarray(_is_textured(energy).sum(axis=1), np.int64)


def _is_textured(energy: Floats) -> npt.NDArray[np.bool_]:
    """Which cells count: against the middle one, because an outline raises the mean."""
    usual = np.median(energy, axis=1, keepdims=True)
    return np.asarray(energy >= np.maximum(16 * LEAST_SLOPE**2, 0.2 * usual), np.bool_)


def _agree(first: Floats, second: Floats) -> npt.NDArray[np.bool_]:
    """Do the gradients agree in three of four textured cells, enough of which are textured?"""
    (ax, ay), (bx, by) = _slopes(first), _slopes(second)
    aa, bb, ab = _cells(ax * ax + ay * ay), _cells(bx * bx + by * by), _cells(ax * bx + ay * by)
    weight = np.sqrt(np.maximum(aa * bb, 1e-9))
    textured = _is_textured(weight)
    good = (textured & (ab / weight > SAME_CELL)).sum(axis=1)
    count = textured.sum(axis=1)
    same = (count >= LEAST_TEXTURED) & (good >= 0.75 * count)
    return np.asarray(same & _agree_beside_outlines(ax, ay, bx, by), np.bool_)


def _same_colours(first: Signatures, second: Signatures) -> npt.NDArray[np.bool_]:
    """Say where the colours of the middles agree, or one of them is nearly grey."""
    edge = COLOUR_SIDE // 4
    planes = [part["colour"][:, edge:-edge, edge:-edge].astype(np.float32) for part in
              (first, second)]  # fmt: skip
    one, other = (p - p.mean(axis=3, keepdims=True) for p in planes)
    axes = (1, 2, 3)
    squares = [(p * p).mean(axis=axes) for p in (one, other)]
    grey = np.minimum(*squares) < COLOURFUL**2
    common = (one * other).mean(axis=axes)
    return np.asarray(grey | (common >= SAME_COLOURS * np.sqrt(squares[0] * squares[1])), np.bool_)


def _agree_beside_outlines(ax: Floats, ay: Floats, bx: Floats, by: Floats) -> npt.NDArray[np.bool_]:
    """Do the weaker gradients agree as well: those that no outline makes?"""
    aa, bb, ab = ax * ax + ay * ay, bx * bx + by * by, ax * bx + ay * by
    weight = np.sqrt(aa * bb)
    strong = np.quantile(weight, WEAK_SHARE, axis=(1, 2), keepdims=True)
    weak = (weight <= strong).astype(np.float32)
    aa, bb, ab = ((weak * plane).mean(axis=(1, 2)) / WEAK_SHARE for plane in (aa, bb, ab))
    # two plain surfaces have nothing but noise to agree about
    enough = np.minimum(aa, bb) >= LEAST_WEAK_SLOPE**2
    return np.asarray(enough & (ab >= SAME_WEAK * np.sqrt(np.maximum(aa * bb, 1e-9))), np.bool_)
