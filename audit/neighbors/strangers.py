"""Weigh the agreement of a pair against what unrelated images of the dataset share.

Two pages of one form agree nearly everywhere and are no copies. So a ridge regression on the
unrelated images nearest to the template removes what they explain of the gradients of either image.
The correlation of the rest is the pair's *own agreement*. Unrelated images come from a sample, some
near by descriptor and some far. A near image that agrees with the template as only copies do is
left out, unless one in twenty does. The score is the log odds from both correlations.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from audit.neighbors.dense import similarity_table
from audit.neighbors.descriptor import Descriptors, compare_orientations
from audit.neighbors.kernels import plain
from audit.neighbors.pair_cache import MIX_1, MIX_2, Fingerprints
from audit.neighbors.verification import (
    LINKED,
    NO_MATCH,
    Floats,
    VerifiedPairs,
    align_pairs,
    circumstance_odds,
    log_odds,
    stretch_correlation,
)
from audit.picture.signatures import GREY_SIDE, Signatures

Rows = npt.NDArray[np.intp]
Planes = npt.NDArray[np.float32]

POOL = 300
"""Pictures of a set that strangers are taken from: a family of copies is a few of them at most."""
NEAREST = 4
RANKS = np.array([0, 1, 2, 3, 5, 7, 11, 15, 23, 31, 47, 63, 95, 127, 191, 255])
ALL_BITS = np.uint64(2**64 - 1)
FAMILY = 0.95
"""Agreement, beyond what far strangers explain, from which a near one counts as a copy."""
MOST_OF_FAMILY = 7
"""Ranks that a family may fill: more than one picture in twenty is no family but a kind."""
RIDGE = 0.1
BATCH = 32
"""Templates that are worked on at a time: 1 MB each."""
BIAS, BY_SIGNATURE, BY_OWN = -6.8, 0.2, 4.3
"""Beside these, map and resolution count in full (`circumstance_odds`): six free
numbers lay any outline of three straight edges over any other."""
STRIP = GREY_SIDE // 4


def choose_pool(usable: Rows, codes: Fingerprints) -> Rows:
    """Pick the rows that strangers are taken from, sorted: by the `codes` of all keys."""
    return np.sort(usable[np.argsort(codes[usable], kind="stable")[:POOL]])


def choose_strangers(
    templates: Rows, table: Signatures, descriptors: Descriptors, pool: Rows
) -> Rows:
    """Return the strangers (n, k) of templates (n,): as near as those of the `RANKS`.

    The four nearest, and the nearest of ever smaller parts of the pool, which are each template's
    own. So a picture that comes or goes changes the strangers of few templates.
    """
    near = similarity_table(descriptors[templates], descriptors[pool])
    free = templates[:, None] != pool
    drawn = (_digests(table[templates])[:, None] ^ _digests(table[pool])) * MIX_1
    drawn ^= drawn >> np.uint64(29)
    place = np.argsort(np.argsort(np.where(free, drawn * MIX_2, ALL_BITS), axis=1), axis=1)
    ranks = RANKS[: np.searchsorted(RANKS, len(pool) - 1)]
    chosen = np.empty((len(templates), len(ranks)), np.intp)
    for k, rank in enumerate(ranks[::-1]):  # the smallest part first
        size = len(pool) if rank < NEAREST else max(round(len(pool) / (rank + 1)), k + 1)
        chosen[:, k] = np.where(free & (place < size), near, -np.inf).argmax(axis=1)
        free[np.arange(len(templates)), chosen[:, k]] = False
    return np.asarray(pool[chosen[:, ::-1]])


def _digests(signatures: Signatures) -> Fingerprints:
    """Return 64 bits of each of (n,) signatures: the same in any table, to the last bit."""
    words = np.ascontiguousarray(signatures["grey"]).reshape(len(signatures), -1).view(np.uint64)
    factors = np.arange(1, words.shape[1] + 1, dtype=np.uint64) * MIX_1 | np.uint64(1)
    return np.asarray(((words ^ (words >> np.uint64(29))) * factors).sum(axis=1) * MIX_2)


def name_strangers(
    pairs: VerifiedPairs,
    table: Signatures,
    descriptors: Descriptors,
    pool: Rows,
    codes: Fingerprints,
) -> Fingerprints:
    """Return 64 bits of the strangers that each pair (m,) is weighed against, by their `codes`."""
    template = pairs.pairs[np.arange(len(pairs.pairs)), pairs.template]
    units, unit = np.unique(template, return_inverse=True)
    named = np.zeros(len(units), np.uint64)
    for column in codes[choose_strangers(units, table, descriptors, pool)].T:
        named = (named ^ column) * MIX_1
        named ^= named >> np.uint64(29)
    return np.asarray(named[unit.ravel()])


def weigh(
    verified: VerifiedPairs, table: Signatures, descriptors: Descriptors, pool: Rows
) -> VerifiedPairs:
    """Return the pairs with their final log odds; those below `LINKED` have `NO_MATCH` or less.

    `pool`: rows of `table` among which the strangers are (see `choose_pool`).
    """
    rows = np.flatnonzero(verified.score >= LINKED)
    score = np.minimum(verified.score, NO_MATCH)
    if len(rows):
        weighed = verified.take(rows)
        own = _own_agreement(weighed, table, descriptors, pool)
        given = circumstance_odds(weighed.matrix, weighed.orientation, _both(weighed, table))
        by_signature = BY_SIGNATURE * (weighed.score - given)
        odds = BIAS + by_signature + BY_OWN * stretch_correlation(own) + given
        score[rows] = np.maximum(odds, NO_MATCH)
    return replace(verified, score=score)


def _both(pairs: VerifiedPairs, table: Signatures) -> Signatures:
    """Return the signatures of pairs (m, 2), the template first."""
    rows, place = np.unique(pairs.pairs, return_inverse=True)
    two = table[rows][place.reshape(-1, 2)]
    return np.asarray(np.where(pairs.template[:, None] == 1, two[:, ::-1], two))


def _own_agreement(
    pairs: VerifiedPairs, table: Signatures, descriptors: Descriptors, pool: Rows
) -> Floats:
    """Return the own agreement of pairs (m,), by the templates that they share."""
    at = np.arange(len(pairs.pairs))
    template = pairs.pairs[at, pairs.template]
    other = pairs.pairs[at, 1 - pairs.template]
    size = _both(pairs, table)["size"].min(axis=(1, 2)).astype(np.float64)
    # a picture of 8 px is compared as one of 8 px: the other has detail that it cannot have
    soft = np.clip(np.rint(2 * (16 / size) ** 2), 1, 8).astype(np.int64)
    units, unit = np.unique(np.stack([template, soft], axis=1), axis=0, return_inverse=True)
    unit = unit.ravel()
    own = np.empty(len(at))
    for start in range(0, len(units), BATCH):
        some = np.flatnonzero((unit >= start) & (unit < start + BATCH))
        laid = _lay_strangers(units[start : start + BATCH], table, descriptors, pool)
        part = _lay(
            table[other[some]], np.arange(len(some)), pairs.orientation[some], pairs.matrix[some],
            soft[some],
        )  # fmt: skip
        for k, pair in enumerate(some):
            around = laid[unit[pair] - start]
            own[pair] = around.agreement(part[0][k], part[1][k], int(other[pair]))
    return own


@dataclass(frozen=True, slots=True)
class _Around:
    """A template's gradients (2, 1024), and the strangers laid over it: `rows`, `score` by
    signature, gradients (k, 2, 1024), and where they reach (k, 1024).
    """

    own: Planes
    rows: Rows
    score: Floats
    fields: Planes
    reach: npt.NDArray[np.bool_]

    def agreement(self, other: Planes, reach: npt.NDArray[np.bool_], row: int) -> float:
        """Own agreement with `other` (2, 1024), the picture of a row, where it reaches."""
        linked = (self.score >= LINKED) & (self.rows != row)
        far = np.flatnonzero((self.score < LINKED) & (self.rows != row))
        near = np.flatnonzero(linked)
        beyond = np.array([self._beyond(far, self.fields[k], self.reach[k]) for k in near])
        strange = near[beyond < FAMILY] if (beyond >= FAMILY).sum() <= MOST_OF_FAMILY else near
        return self._beyond(np.append(far, strange).astype(np.intp), other, reach)

    def _beyond(self, strangers: Rows, other: Planes, reach: npt.NDArray[np.bool_]) -> float:
        """Correlation of what these strangers do not explain."""
        two = np.stack([self.own[:, reach].ravel(), other[:, reach].ravel()])
        span = self.fields[strangers][:, :, reach].reshape(len(strangers), two.shape[1])
        span /= np.maximum(np.sqrt(np.einsum("ij,ij->i", span, span))[:, None], 1e-6)
        gram = span @ span.T + RIDGE * np.eye(len(span), dtype=np.float32)
        left = (two - np.linalg.solve(gram, span @ two.T).T @ span).astype(np.float32)
        return _correlate(left.reshape(2, 2, -1), reach)


def _correlate(two: Planes, reach: npt.NDArray[np.bool_]) -> float:
    """Correlate two fields over their overlap, or over that without one outer strip: captions."""
    products = np.stack([two[0] * two[1], two[0] ** 2, two[1] ** 2]).sum(axis=1)
    plane = np.zeros((3, GREY_SIDE * GREY_SIDE))
    plane[:, reach] = products
    whole, cells = plane.sum(axis=1), plane.reshape(3, GREY_SIDE, GREY_SIDE)
    strips = np.stack([
        cells[:, :STRIP].sum(axis=(1, 2)), cells[:, -STRIP:].sum(axis=(1, 2)),
        cells[:, :, :STRIP].sum(axis=(1, 2)), cells[:, :, -STRIP:].sum(axis=(1, 2)),
    ])  # fmt: skip
    kept = np.concatenate([whole[None], whole - strips])
    # a strip that holds most of the energy is the picture, not a caption
    counts = (kept[:, 1:] > 0.4 * whole[1:]).all(axis=1) | (np.arange(5) == 0)
    correlation = kept[:, 0] / np.sqrt(np.maximum(kept[:, 1] * kept[:, 2], 1e-9))
    return float(correlation[counts].max())


def _lay_strangers(
    units: npt.NDArray[np.int64], table: Signatures, descriptors: Descriptors, pool: Rows
) -> list[_Around]:
    """Align strangers of templates, (row, softening) each, and lay them over these."""
    templates, soft = units.T
    chosen = choose_strangers(templates, table, descriptors, pool)
    n, k = chosen.shape
    asked = np.stack([np.repeat(templates, k), chosen.ravel()], axis=1)
    rows, place = np.unique(np.concatenate([asked.ravel(), templates]), return_inverse=True)
    place = place.ravel().astype(np.int64)
    pairs, own = place[: 2 * n * k].reshape(-1, 2), place[2 * n * k :]
    part, described = table[rows], descriptors[rows]
    likeness = compare_orientations(described[pairs[:, 0]], described[pairs[:, 1]])
    turned = likeness.argmax(axis=1).astype(np.int64)
    grey, colour = np.ascontiguousarray(part["grey"]), np.ascontiguousarray(part["colour"])
    matrix, features = align_pairs(grey, colour, pairs, turned)
    score = log_odds(features, matrix, turned, part[pairs]).reshape(n, k)
    fields, reach = _lay(part, pairs[:, 1], turned, matrix, np.repeat(soft, k))
    upright = np.zeros(n, np.int64)
    laid, _ = _lay(part, own, upright, np.zeros((n, 6)), soft)
    part_of = [slice(i * k, (i + 1) * k) for i in range(n)]
    return [
        _Around(laid[i], chosen[i], score[i], fields[p], reach[p]) for i, p in enumerate(part_of)
    ]


def _lay(
    part: Signatures,
    rows: npt.NDArray[np.int64],
    orientation: npt.NDArray[np.int64],
    matrix: Floats,
    soft: npt.NDArray[np.int64],
) -> tuple[Planes, npt.NDArray[np.bool_]]:
    """Return gradients (m, 2, 1024) of pictures laid over their templates, and their reach."""
    planes = plain.lay_down(part["grey"][rows], orientation)
    for done in range(int(soft.max(initial=0))):
        planes[soft > done] = plain.soften(planes[soft > done])
    laid, valid = plain.warp(planes, matrix)
    sides = [np.s_[1:-1, 2:], np.s_[1:-1, :-2], np.s_[2:, 1:-1], np.s_[:-2, 1:-1]]
    right, left, below, above = (laid[:, *side] for side in sides)
    seen = np.prod([valid[:, *side] for side in sides], axis=0)
    fields = np.zeros((len(rows), 3, GREY_SIDE, GREY_SIDE), np.float32)
    fields[:, :, 1:-1, 1:-1] = np.stack([right - left, below - above, seen], 1) * seen[:, None]
    flat = fields.reshape(len(rows), 3, GREY_SIDE**2)
    return flat[:, :2], flat[:, 2] > 0
