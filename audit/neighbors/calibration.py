"""The threshold comes from the user's own pictures, and so do the error rates that are printed.

Non-pairs first: two rows drawn at random are almost never copies, so their scores show what
accident looks like *here*: high in a set of digits, low among holiday photographs. Up to two
million random pairs are ranked by descriptor; as many of the nearest as the search has candidates,
at most 20,000 (4,000 in a small set), are scored: the rest hardly reach the tail. In a small set
most of these are candidates themselves, and their scores are at hand. An exponential is fitted to
the tail [peaks over threshold: Pickands 1975; truncated at a score that accident hardly reaches, so
that real copies among the random pairs do not count as accidents] and the threshold is put where
the whole data set is expected to hold fewer false pairs than one for 250 pictures, within fixed
bounds.

Then synthetic duplicates: known changes of a few of the user's pictures show what this
threshold finds. Both numbers are expectations from a sample, and are given as such.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from audit.neighbors.candidates import number_pairs
from audit.neighbors.dense import find_nearest_in, similarity_table
from audit.neighbors.descriptor import describe
from audit.neighbors.inspection import check_full_size
from audit.neighbors.pair_cache import find_contained
from audit.neighbors.sharing import RowTable
from audit.neighbors.signatures import is_comparable, make_signature, stack_signatures
from audit.neighbors.synthetic import TRANSFORMATIONS, Picture, make_duplicate
from audit.neighbors.verification import (
    NO_MATCH,
    NOT_ALIGNED,
    Floats,
    Pairs,
    VerifiedPairs,
    verify,
)
from audit.stats import wilson_share

LOWEST_THRESHOLD = -1.5
HIGHEST_THRESHOLD = 4.0
"""Bounds of the threshold (log odds): beyond them a small sample would decide alone."""
FALSE_PAIRS_PER_IMAGE = 0.004
TRUNCATE_AT = 1.0
SAMPLE_ROWS = 1500
ALIGNED, ALIGNED_WITHOUT_GATE = 20_000, 4_000
"""Most pairs to align: a gate makes them cheap; a few thousand hold the highest scores already."""
LEAST_TAIL = 10
MOST_TAIL = 300
USUAL_SLOPE = 1.2
"""Decay of the tail per unit of log odds, as seen on photographs and CIFAR-10; it weighs as much as
`USUAL_WEIGHT` exceedances, so that a handful of pictures cannot invent a tail of their own."""
USUAL_WEIGHT = 20
KINDS = (*TRANSFORMATIONS, "combination")
LEAST_SOURCES, NARROW = 3, 0.1
"""Copies are made of so many pictures at least, then until the interval of the recall is so wide:
the copies of one picture are found or lost together."""
WEAK_UNDER = 0.9
"""Recall under which a change is named, where the upper end of its interval lies under it too."""


class ScoredPairs(Protocol):
    """Pairs of rows (m, 2) and their scores (m,)."""

    @property
    def pairs(self) -> Pairs:
        """Rows."""

    @property
    def score(self) -> Floats:
        """Log odds."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """The threshold, and what to expect of it on these pictures.

    `threshold`: log odds from which a pair is called the same. `false_per_million`: expected
    false pairs among a million random pairs. `false_expected`: the same for all pairs of the data
    set. `random_pairs`: how many were drawn. `recall`: share of synthetic copies found, per
    change (empty where no pictures were given); `synthetic_copies`: how many copies were made;
    `recall_age`: pictures that came or went since they were.
    `reason`: a sentence on how the threshold came about.
    """

    threshold: float
    false_per_million: float
    false_expected: float
    random_pairs: int
    reason: str
    recall: Mapping[str, float] = field(default_factory=dict)
    synthetic_copies: int = 0
    recall_age: int = 0

    @property
    def overall_recall(self) -> float:
        """Mean recall over transformations; not a number where none were made."""
        return float(np.mean(list(self.recall.values()))) if self.recall else float("nan")

    def sentences(self) -> tuple[str, ...]:
        """What to print: threshold, false pairs, recall."""
        lines = [
            self.reason,
            f"Expected false pairs: {self.false_per_million:.2g} per million random pairs, "
            f"{self.false_expected:.2g} in this data set.",
        ]
        if self.recall:
            each = self.synthetic_copies / len(self.recall)
            # with the chance in it: of four copies, one is lost by accident
            weak = sorted(
                (r, name)
                for name, r in self.recall.items()
                if wilson_share(r, each)[1] < WEAK_UNDER
            )
            named = ", ".join(f"{name} {r:.0%}" for r, name in weak[:4])
            worst = named or f"none surely under {WEAK_UNDER:.0%}"
            aged = f"; before {self.recall_age:,} pictures came or went" if self.recall_age else ""
            lines.append(
                f"Expected recall on synthetic copies: {self.overall_recall:.1%} of "
                f"{self.synthetic_copies} "
                f"(weak: {worst}{aged})."
            )
        return tuple(lines)


def calibrate(
    table: RowTable,
    descriptors: RowTable,
    ranks: npt.NDArray[np.int64],
    *,
    background: Floats | None = None,
    verified: ScoredPairs | None = None,
    wanted: int = ALIGNED,
    seed: int = 0,
) -> Calibration:
    """Choose the threshold from random pairs of `table` (see `verify` for the arguments).

    `verified` pairs are not aligned again; `wanted`: random pairs to score, within the bounds.
    """
    usable = np.flatnonzero(is_comparable(table))
    n = len(usable)
    # rows are drawn in the order of the keys: shuffling the input does not change the sample
    usable = usable[np.argsort(ranks[usable], kind="stable")]
    pairs, drawn = _nearest_random_pairs(
        descriptors, usable, ALIGNED_WITHOUT_GATE if background is None else ALIGNED, seed
    )
    # the others hardly reach the tail, but count among its pairs; those of them that happen to be
    # verified are left out as well, or the threshold would follow what was remembered
    scores = np.full(len(pairs), NOT_ALIGNED)
    pairs = pairs[:wanted]
    fresh = np.arange(len(pairs))
    if verified is not None:
        fresh = np.flatnonzero(~_look_up(scores, pairs, verified))
    scores[fresh] = verify(table, descriptors, pairs[fresh], ranks, background=background).score
    # a bound a picture, not a pair: what a reviewer has to look at grows with the pictures
    all_pairs = n * (n - 1) / 2
    allowed = max(0.5, FALSE_PAIRS_PER_IMAGE * n)
    tail = fit_tail(scores, drawn)
    if tail is None:
        return Calibration(
            LOWEST_THRESHOLD,
            0.0,
            0.0,
            drawn,
            f"Threshold {LOWEST_THRESHOLD:+.2f} (log odds, the lowest): of {drawn:,} random pairs "
            f"fewer than {LEAST_TAIL} resembled each other at all.",
        )
    fitting = tail.threshold(allowed / max(all_pairs, 1.0))
    threshold = float(np.clip(fitting, LOWEST_THRESHOLD, HIGHEST_THRESHOLD))
    rate = tail.rate(threshold)
    bound = "" if fitting == threshold else f" (asked for {fitting:+.2f}, held to the bounds)"
    reason = (
        f"Threshold {threshold:+.2f} (log odds){bound}: from the tail of {drawn:,} random pairs, "
        f"for at most {allowed:.1f} expected false pairs among {all_pairs:,.0f}."
    )
    return Calibration(threshold, rate * 1e6, rate * all_pairs, drawn, reason)


@dataclass(frozen=True, slots=True)
class Tail:
    """Share `share` of random pairs scores above `start`, and decays at `slope` from there."""

    start: float
    share: float
    slope: float

    def rate(self, score: float) -> float:
        """Expected share of random pairs at or above a score."""
        return float(min(1.0, self.share * np.exp(-self.slope * (score - self.start))))

    def threshold(self, rate: float) -> float:
        """Score that only this share of random pairs reaches."""
        return float(self.start + np.log(self.share / rate) / self.slope)


def _nearest_random_pairs(
    descriptors: RowTable, usable: npt.NDArray[np.intp], most: int, seed: int
) -> tuple[Pairs, int]:
    """Pairs of random rows, the `most` similar ones first, and how many they were picked from."""
    n = len(usable)
    if n < 2:
        return np.zeros((0, 2), np.int64), 0
    # up to 3,000 pictures all pairs of at most 2,000 of them, beyond that 1,500 x 1,500 disjoint
    # rows: about two million pairs either way
    rng = np.random.default_rng(seed)
    if n <= 2 * SAMPLE_ROWS:
        rows = columns = usable[np.sort(rng.permutation(n)[: min(n, SAMPLE_ROWS + 500)])]
        first, second = np.triu_indices(len(rows), 1)
    else:
        mixed = usable[rng.choice(n, 2 * SAMPLE_ROWS, replace=False)]
        rows, columns = np.sort(mixed[:SAMPLE_ROWS]), np.sort(mixed[SAMPLE_ROWS:])
        first, second = (a.ravel() for a in np.indices((len(rows), len(columns))))
    likeness = similarity_table(descriptors[rows], descriptors[columns])[first, second]
    # the score follows the similarity, so pairs beyond the nearest ones hardly reach the tail
    top = np.argsort(-likeness, kind="stable")[:most]
    return np.stack([rows[first[top]], columns[second[top]]], axis=1), len(first)


def _look_up(scores: Floats, pairs: Pairs, verified: ScoredPairs) -> npt.NDArray[np.bool_]:
    """Fill in the scores of the pairs that are `verified`; return which these are."""
    asked, codes = number_pairs(pairs), number_pairs(verified.pairs)
    rows = np.flatnonzero(find_contained(codes, np.sort(asked)))
    rows = rows[np.argsort(codes[rows])]
    place = np.searchsorted(codes[rows], asked)
    found = np.append(codes[rows], -1)[place] == asked
    scores[np.flatnonzero(found)] = verified.score[rows[place[found]]]
    return np.asarray(found, np.bool_)


def fit_tail(scores: Floats, drawn: int) -> Tail | None:
    """Fit a truncated exponential to the highest of the scores: 1 in 150, 10 to 300 of them.

    Of those that were aligned to the end it takes a quarter at most.
    """
    ordinary = np.sort(scores[(scores > NO_MATCH) & (scores < TRUNCATE_AT)])[::-1]
    if len(ordinary) < LEAST_TAIL:
        return None
    # 1 in 150: high enough for the exponential, enough scores to fit it
    m = min(MOST_TAIL, max(LEAST_TAIL, min(len(scores) // 150, len(ordinary) // 4)))
    start = float(ordinary[m - 1])
    span = TRUNCATE_AT - start
    excess = float((ordinary[:m] - start).mean())
    # an exponential cut at `span` has a mean below half of it; near that there is no decay to see
    if excess >= 0.4 * span:
        # the tail does not fall towards the truncation point: accidents pass it here (digits,
        # forms), so every score counts; real copies would have left a gap before theirs
        every = np.sort(scores[scores > NO_MATCH])[::-1]
        m = max(LEAST_TAIL, len(every) // 10)
        start = float(every[m - 1])
        slope = 1 / max(float((every[:m] - start).mean()), 0.05)
    else:
        slope = _truncated_slope(excess, span)
    # mean excess, shrunk towards the usual one as if that had been seen USUAL_WEIGHT times
    mean = (m / slope + USUAL_WEIGHT / USUAL_SLOPE) / (m + USUAL_WEIGHT)
    return Tail(start, m / drawn, 1 / mean)


def _truncated_slope(mean: float, span: float) -> float:
    """Rate of an exponential truncated at `span` with this mean, by bisection."""
    low, high = 1e-3, 50.0
    # the mean falls with the rate, so halving finds it: 60 times is to the last bit
    for _ in range(60):
        slope = 0.5 * (low + high)
        expected = 1 / slope - span / np.expm1(min(slope * span, 500.0))
        low, high = (slope, high) if expected > mean else (low, slope)
    return 0.5 * (low + high)


def measure_recall(
    calibration: Calibration,
    table: RowTable,
    descriptors: RowTable,
    pictures: Iterable[tuple[int, Picture]],
    *,
    neighbours: int = 12,
    uncertainty_band: float = 3.0,
    gated: bool = False,
    seed: int = 0,
) -> Calibration:
    """Add the expected recall: change some of the user's pictures in every known way.

    `pictures`: rows of `table` and their pictures (uint8 RGB, about 256 px), taken one by one until
    the interval of the recall is narrow; unchanged without any. A copy is found if its source is
    among its nearest neighbours in the whole table and the pair passes, with a full-resolution
    check where the score is within `uncertainty_band` of the threshold; `gated`: the gate included.
    """
    hits = []
    for row, picture in pictures:
        # seeded by row and change: one picture more moves no other's copy
        copies = [
            make_duplicate(picture, kind, np.random.default_rng([seed, row, k]))
            for k, kind in enumerate(KINDS)
        ]
        near, verified = _search_copies(table, descriptors, row, copies, neighbours, gated)
        passed = verified.score >= calibration.threshold
        for k in np.flatnonzero(np.abs(verified.score - calibration.threshold) <= uncertainty_band):
            pair = (picture, copies[k])
            check = check_full_size(
                *(pair if verified.template[k] == 0 else pair[::-1]),
                int(verified.orientation[k]),
                verified.matrix[k],
            )
            passed[k] = check.same if check.decided else passed[k]
        # found means proposed and passed: what verification accepts but nobody proposes is lost
        hits.append(passed & (near == row).any(axis=1))
        low, high = wilson_share(np.mean(hits), np.size(hits))
        if len(hits) >= LEAST_SOURCES and high - low <= NARROW:
            break
    if not hits:
        return calibration
    recall = dict(zip(KINDS, np.mean(hits, axis=0).tolist(), strict=True))
    return replace(calibration, recall=recall, synthetic_copies=np.size(hits))


def _search_copies(
    table: RowTable,
    descriptors: RowTable,
    row: int,
    copies: list[Picture],
    neighbours: int,
    gated: bool,
) -> tuple[npt.NDArray[np.int64], VerifiedPairs]:
    """Nearest rows of the copies of a row, and the pair of each copy with that row, verified."""
    made = stack_signatures([make_signature(copy) for copy in copies])
    described = describe(made)
    near = find_nearest_in(described, descriptors, neighbours)
    pairs = np.stack([np.zeros(len(made), np.int64), 1 + np.arange(len(made))], axis=1)
    background = np.append(np.inf, near.similarity[:, -1]) if gated else None
    verified = verify(
        np.concatenate([table[[row]], made]),
        np.concatenate([descriptors[[row]], described]),
        pairs,
        np.arange(1 + len(made)),
        background=background,
    )
    return near.index, verified
