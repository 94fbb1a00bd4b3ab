"""The threshold comes from the user's own pictures, and so do the error rates that are printed.

Non-pairs first: two rows drawn at random are almost never copies, so their scores show what
accident looks like *here*: high in a set of digits, low among holiday photographs. Up to two
million random pairs are ranked by descriptor; the nearest 20,000 of them are aligned and scored
(the rest cannot reach the tail). An exponential is fitted to the tail [peaks over threshold:
Pickands 1975; truncated at a score that accident hardly reaches, so that real copies among the
random pairs do not count as accidents] and the threshold is put where the whole data set is
expected to hold fewer false pairs than one for 160 pictures, within fixed bounds.

Then planted copies: known transformations of a few of the user's pictures show what this
threshold finds. Both numbers are expectations from a sample, and are given as such.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from audit.neighbors.dense import similarity_table
from audit.neighbors.descriptor import Descriptors
from audit.neighbors.thumbnails import Signatures, comparable
from audit.neighbors.verification import NO_MATCH, Floats, verify

LOWEST_THRESHOLD = -1.5
HIGHEST_THRESHOLD = 4.0
"""Bounds of the threshold (log odds): beyond them a small sample would decide alone."""
FALSE_PAIRS_PER_IMAGE = 0.006
TRUNCATE_AT = 1.0
SAMPLE_ROWS = 1500
ALIGNED = 20_000
LEAST_TAIL = 30


@dataclass(frozen=True, slots=True)
class Calibration:
    """The threshold, and what to expect of it on these pictures.

    `threshold`: log odds from which a pair is called the same. `false_per_million`: expected
    false pairs among a million random pairs. `false_expected`: the same for all pairs of the data
    set. `random_pairs`: how many were drawn. `recall`: share of planted copies found, per
    transformation (empty where no pictures were given); `planted`: how many copies were planted.
    `reason`: a sentence on how the threshold came about.
    """

    threshold: float
    false_per_million: float
    false_expected: float
    random_pairs: int
    reason: str
    recall: Mapping[str, float] = field(default_factory=dict)
    planted: int = 0

    @property
    def overall_recall(self) -> float:
        """Mean recall over transformations; not a number where none were planted."""
        return float(np.mean(list(self.recall.values()))) if self.recall else float("nan")

    def sentences(self) -> tuple[str, ...]:
        """What to print: threshold, false pairs, recall."""
        lines = [
            self.reason,
            f"Expected false pairs: {self.false_per_million:.2g} per million random pairs, "
            f"{self.false_expected:.2g} in this data set.",
        ]
        if self.recall:
            weak = sorted((r, name) for name, r in self.recall.items() if r < 0.9)
            worst = ", ".join(f"{name} {r:.0%}" for r, name in weak[:4]) or "none under 90 %"
            lines.append(
                f"Expected recall on planted copies: {self.overall_recall:.1%} of {self.planted} "
                f"(weak: {worst})."
            )
        return tuple(lines)


def calibrate(
    table: Signatures,
    descriptors: Descriptors,
    ranks: npt.NDArray[np.int64],
    *,
    seed: int = 0,
) -> Calibration:
    """Choose the threshold from random pairs of `table` (see `verify` for the arguments)."""
    usable = np.flatnonzero(comparable(table))
    n = len(usable)
    # rows are drawn in the order of the keys: shuffling the input does not change the sample
    usable = usable[np.argsort(ranks[usable], kind="stable")]
    scores, drawn = _random_scores(table, descriptors, ranks, usable, seed)
    all_pairs = n * (n - 1) / 2
    allowed = max(0.5, FALSE_PAIRS_PER_IMAGE * n)
    tail = _fit_tail(scores, drawn)
    if tail is None:
        return Calibration(
            LOWEST_THRESHOLD,
            0.0,
            0.0,
            drawn,
            f"Threshold {LOWEST_THRESHOLD:+.2f} (log odds, the lowest): of {drawn:,} random pairs "
            f"fewer than {LEAST_TAIL} resembled each other at all.",
        )
    wanted = tail.threshold(allowed / max(all_pairs, 1.0))
    threshold = float(np.clip(wanted, LOWEST_THRESHOLD, HIGHEST_THRESHOLD))
    rate = tail.rate(threshold)
    bound = "" if wanted == threshold else f" (asked for {wanted:+.2f}, held to the bounds)"
    reason = (
        f"Threshold {threshold:+.2f} (log odds){bound}: from the tail of {drawn:,} random pairs, "
        f"for at most {allowed:.1f} expected false pairs among {all_pairs:,.0f}."
    )
    return Calibration(threshold, rate * 1e6, rate * all_pairs, drawn, reason)


@dataclass(frozen=True, slots=True)
class _Tail:
    """Share `share` of random pairs scores above `start`, and decays at `slope` from there."""

    start: float
    share: float
    slope: float

    def rate(self, score: float) -> float:
        """Expected share of random pairs at or above a score."""
        return float(self.share * np.exp(-self.slope * (score - self.start)))

    def threshold(self, rate: float) -> float:
        """Score that only this share of random pairs reaches."""
        return float(self.start + np.log(self.share / rate) / self.slope)


def _random_scores(
    table: Signatures,
    descriptors: Descriptors,
    ranks: npt.NDArray[np.int64],
    usable: npt.NDArray[np.intp],
    seed: int,
) -> tuple[Floats, int]:
    """Scores of the most similar random pairs, and how many pairs they were picked from."""
    n = len(usable)
    if n < 2:
        return np.zeros(0), 0
    rng = np.random.default_rng(seed)
    if n <= 2 * SAMPLE_ROWS:
        rows = columns = usable[np.sort(rng.permutation(n)[: min(n, SAMPLE_ROWS + 500)])]
        first, second = np.triu_indices(len(rows), 1)
    else:
        mixed = usable[rng.choice(n, 2 * SAMPLE_ROWS, replace=False)]
        rows, columns = np.sort(mixed[:SAMPLE_ROWS]), np.sort(mixed[SAMPLE_ROWS:])
        first, second = (a.ravel() for a in np.indices((len(rows), len(columns))))
    likeness = similarity_table(descriptors[rows], descriptors[columns])[first, second]
    top = np.argsort(-likeness, kind="stable")[:ALIGNED]
    pairs = np.stack([rows[first[top]], columns[second[top]]], axis=1)
    return verify(table, descriptors, pairs, ranks).score, len(first)


def _fit_tail(scores: Floats, drawn: int) -> _Tail | None:
    """Fit a truncated exponential above the score that 300 (at least 30) random pairs reach."""
    ordinary = np.sort(scores[(scores > NO_MATCH) & (scores < TRUNCATE_AT)])[::-1]
    beyond = int((scores >= TRUNCATE_AT).sum())
    if len(ordinary) < LEAST_TAIL:
        return None
    m = min(300, max(LEAST_TAIL, len(ordinary) // 4))
    start = float(ordinary[m - 1])
    span = TRUNCATE_AT - start
    excess = float((ordinary[:m] - start).mean())
    if excess >= 0.4 * span or beyond > m:
        # accidents do reach the truncation point here (digits, forms): use every score
        every = np.sort(scores[scores > NO_MATCH])[::-1]
        m = max(LEAST_TAIL, len(every) // 10)
        start = float(every[m - 1])
        return _Tail(start, m / drawn, 1 / max(float((every[:m] - start).mean()), 0.05))
    return _Tail(start, m / drawn, _truncated_slope(excess, span))


def _truncated_slope(mean: float, span: float) -> float:
    """Rate of an exponential truncated at `span` with this mean, by bisection."""
    low, high = 1e-3, 50.0
    for _ in range(60):
        slope = 0.5 * (low + high)
        expected = 1 / slope - span / np.expm1(min(slope * span, 500.0))
        low, high = (slope, high) if expected > mean else (low, slope)
    return 0.5 * (low + high)
