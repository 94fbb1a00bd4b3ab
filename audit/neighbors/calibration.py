"""The threshold comes from the user's own pictures, and so do the error rates that are printed.

Nearly all nearest neighbours are other pictures, so their scores show what accident looks like
*here*: an exponential tail above `START` [peaks over threshold: Pickands 1975]. The threshold is
the score at which 1 in 100 of the pairs that reach it are expected to be false, or 1 in 50 sets has
a false pair. Synthetic duplicates then show what this threshold finds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from audit.neighbors.dense import find_nearest_in
from audit.neighbors.descriptor import Descriptors, describe
from audit.neighbors.inspection import CONFIRMED, check_full_size
from audit.neighbors.strangers import weigh
from audit.neighbors.synthetic import TRANSFORMATIONS, Picture, make_duplicate
from audit.neighbors.verification import Floats, VerifiedPairs, verify
from audit.picture.signatures import Signatures, make_signature, stack_signatures
from audit.statistics.intervals import wilson_share

LOWEST_THRESHOLD = -1.0
"""Strangers of photographs hardly come near, and would let anything pass."""
HIGHEST_THRESHOLD = 14.0
"""No pair scores more: nothing but equal bytes and pixels is called the same."""
LOOK_ALIKE = 6.0
"""Threshold from which the report says that strangers of this set are hard to tell apart."""
SCORE_DECIMALS = 6
"""Decimals of stored scores and thresholds; the last ones of a sum hang on where arrays begin."""
FALSE_SHARE, FALSE_IN_A_SET = 0.01, 0.02
"""False pairs to expect among the pairs that reach the threshold, and where hardly any do."""
START, WINDOW = -3.0, 2.5
"""Where the tail of strangers begins at the lowest, and how far it is looked at: most copies lie
beyond."""
MOST_TAIL, STEP, AHEAD = 100, 0.25, 9
"""The tail begins at most so many strangers from its end; steps in which that is looked for, and
how many steps ahead it must go on to fall."""
USUAL_SLOPE, USUAL_WEIGHT = 1.0, 20
"""Decay of the tail per unit of log odds: of calibrated odds it is 1. It weighs as much as twenty
strangers, so that a handful of pictures cannot invent a tail of their own."""
LOWEST_SLOPE, HIGHEST_SLOPE = 0.5, 1.5
"""A tail that falls faster is not trusted to go on so: a few strangers are closer than the rest."""
SURE, MANY_COPIES, MOST_COPIES, FLATTER = 8.0, 50, 0.9, 1.5
"""Score that strangers of no set reach in numbers; pairs of a window there that say that copies are
many; the largest share of a window that may be copies then; and how many times the steepest fall a
fall may be to be that of strangers."""
KINDS = (*TRANSFORMATIONS, "combination")
LEAST_SOURCES, NARROW = 3, 0.1
"""Copies are made of so many pictures at least, then until the interval of the recall is so wide:
the copies of one picture are found or lost together."""
WEAK_UNDER = 0.9
"""Recall under which a change is named, where the upper end of its interval lies under it too."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """The threshold, and what to expect of it on these pictures.

    `threshold`: log odds from which a pair is called the same; `uncertainty`: its standard error.
    `false_expected`: false pairs at or above it. `strangers`: pairs in the tail that it comes from.
    `recall`: share of the `synthetic_copies` found, per change; `recall_age`: pictures that came or
    went since. `reason`: how the threshold came about.
    """

    threshold: float
    uncertainty: float
    false_expected: float
    strangers: int
    reason: str
    recall: Mapping[str, float] = field(default_factory=dict)
    synthetic_copies: int = 0
    recall_age: int = 0

    def sentences(self) -> tuple[str, ...]:
        """What to print: threshold, false pairs, recall."""
        lines = [self.reason, f"Expected false pairs: {self.false_expected:.2g} in this data set."]
        if self.threshold >= LOOK_ALIKE:
            lines.append(
                "Different images of this dataset are very similar, so only the clearest copies "
                "are reported. Equal bytes and equal pixels are always found."
            )
        if self.recall:
            each = self.synthetic_copies / len(self.recall)
            # with the chance in it: of four copies, one is lost by accident
            weak = sorted(
                (r, name)
                for name, r in self.recall.items()
                if wilson_share(r, each)[1] < WEAK_UNDER
            )
            named = ", ".join(f"{name} {r:.0%}" for r, name in weak[:4])
            worst = named or f"none significantly below {WEAK_UNDER:.0%}"
            aged = (
                f"; measured before {self.recall_age:,} images were added or removed"
                if self.recall_age
                else ""
            )
            lines.append(
                f"Expected recall on synthetic copies: {np.mean(list(self.recall.values())):.1%} "
                f"of {self.synthetic_copies} (weak: {worst}{aged})."
            )
        else:
            lines.append(
                "The recall of edited copies was not measured: run `audit recheck RUN --recall`."
            )
        return tuple(lines)


def calibrate(scores: Floats) -> Calibration:
    """Choose the threshold from the final scores (see `weigh`) of all candidate pairs.

    Those that were not weighed or aligned may be left out, or score anything below `START`.
    """
    tail = fit_tail(scores)
    ordered = np.sort(scores[scores >= LOWEST_THRESHOLD])
    # where to stop is asked at every pair: the more reach a threshold, the more may be false
    steps = np.unique(np.append(ordered, [LOWEST_THRESHOLD, HIGHEST_THRESHOLD]))
    reached = len(ordered) - np.searchsorted(ordered, steps)
    allowed = np.maximum(FALSE_SHARE * reached, FALSE_IN_A_SET)
    asked = np.maximum(tail.threshold(allowed), np.append(-np.inf, steps[:-1]))
    good = asked <= steps
    wanted = float(asked[good][0]) if good.any() else HIGHEST_THRESHOLD
    threshold = round(float(np.clip(wanted, LOWEST_THRESHOLD, HIGHEST_THRESHOLD)), SCORE_DECIMALS)
    uncertainty = tail.uncertainty(threshold)
    reason = (
        f"Threshold {threshold:+.2f} (log odds, +-{uncertainty:.1f}): of the nearest unrelated "
        f"images {tail.strangers:,} pairs score {tail.start:+.2f} or more, and their number falls "
        f"by {1 - np.exp(-tail.slope):.0%} per unit; up to 1 in {1 / FALSE_SHARE:.0f} "
        "reported pairs may be false."
    )
    return Calibration(
        threshold, uncertainty, round(float(tail.rate(threshold)), SCORE_DECIMALS), tail.strangers,
        reason,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tail:
    """So many `strangers` score above `start`, and their number decays at `slope` from there."""

    strangers: int
    slope: float
    start: float = START

    def rate(self, score: float) -> float:
        """Expected strangers at or above a score."""
        return float(self._number * np.exp(-self.slope * (score - self.start)))

    def threshold(self, false: Floats) -> Floats:
        """Scores that only so many strangers reach."""
        return np.asarray(self.start + np.log(self._number / false) / self.slope, np.float64)

    def uncertainty(self, score: float) -> float:
        """Standard error of a threshold: of the number, and of the slope."""
        steps = (score - self.start) / np.sqrt(self.strangers + USUAL_WEIGHT)
        return float(np.hypot(1 / (self.slope * np.sqrt(self._number)), steps))

    @property
    def _number(self) -> float:
        # none seen is no proof that there are none: a quarter of a stranger
        return max(self.strangers, 0.25)


def fit_tail(scores: Floats) -> Tail:
    """Fit a truncated exponential to what strangers score in a window above the tail's start.

    Where strangers are many, the tail begins beyond the score that most have, where `MOST_TAIL` are
    left. The emptiest window shows how many copies are in each. What falls more slowly than
    strangers do are copies: the tail begins before these are most of a window.
    """
    ordered = np.sort(scores)
    starts = np.arange(START, HIGHEST_THRESHOLD - WINDOW, STEP)
    counts = np.searchsorted(ordered, starts + WINDOW) - np.searchsorted(ordered, starts)
    mode = 0
    while counts[mode] > MOST_TAIL and counts[mode:][:AHEAD].max() > counts[mode] + 2 * np.sqrt(
        counts[mode]
    ):
        mode += 1  # amid the strangers: most of them score more
    # so many copies are in every window, if they spread over all scores; half of one at most
    k, copies = mode, min(int(counts[mode:].min()), int(counts[mode]) // 2)
    while (
        counts[k] - copies > MOST_TAIL
        and counts[k + 1 :][:AHEAD].min(initial=counts[k]) < counts[k]
    ):
        k += 1
    found = _fit_window(ordered, float(starts[k]), min(copies, int(counts[k]) // 2))
    beyond = np.flatnonzero((starts >= SURE) & (starts <= SURE + WINDOW / 2))
    if found.slope > LOWEST_SLOPE or counts[beyond].min() < MANY_COPIES or mode >= beyond[0]:
        return found
    k = mode + _end_of_fall(counts[mode:], beyond - mode)
    copies = min(int(counts[k : beyond[-1] + 1].min()), int(MOST_COPIES * counts[k]))
    return _fit_window(ordered, float(starts[k]), copies)


def _end_of_fall(counts: npt.NDArray[np.int64], beyond: npt.NDArray[np.intp]) -> int:
    """Return the last window in which strangers are what falls, where copies are many."""
    width, first = int(WINDOW / STEP), int(beyond[0])
    falls = counts[width : first + width] / np.maximum(counts[:first], 1)
    steep = int(np.flatnonzero(falls <= FLATTER * falls.min())[-1])
    copies = np.minimum.accumulate(counts[: beyond[-1] + 1][::-1])[::-1][:first]
    few = np.flatnonzero(counts[:first] - copies <= MOST_TAIL)
    return min(steep, int(few[0])) if len(few) else steep


def _fit_window(ordered: Floats, start: float, copies: int) -> Tail:
    """Fit the tail to the scores in the window from `start`, of which so many are copies."""
    first, last = np.searchsorted(ordered, (start, start + WINDOW))
    excess = ordered[first:last] - start
    strangers = len(excess) - copies
    # mean excess, shrunk towards the usual one as if that had been seen USUAL_WEIGHT times
    usual = 1 / USUAL_SLOPE - WINDOW / np.expm1(WINDOW * USUAL_SLOPE)
    total = max(float(excess.sum()) - copies * WINDOW / 2, 0.0)
    mean = (total + USUAL_WEIGHT * usual) / (strangers + USUAL_WEIGHT)
    slope = float(np.clip(_truncated_slope(mean, WINDOW), LOWEST_SLOPE, HIGHEST_SLOPE))
    return Tail(strangers, slope, start)


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
    table: Signatures,
    descriptors: Descriptors,
    pictures: Iterable[tuple[int, Picture]],
    *,
    pool: npt.NDArray[np.intp],
    neighbours: int = 12,
    uncertainty_band: float = 3.0,
    gated: bool = False,
) -> Calibration:
    """Add the expected recall: change some of the user's pictures in every known way.

    `pictures`: rows of `table` and their pictures (uint8 RGB, about 256 px), read until the
    interval of the recall is narrow. `pool`: rows that strangers are taken from. A copy is found if
    its source is among its nearest neighbours and the pair passes, after a full-resolution check
    within `uncertainty_band` above the threshold; `gated`: the gate included.
    """
    hits = []
    for row, picture in pictures:
        # seeded by row and change: one picture more moves no other's copy
        copies = [
            make_duplicate(picture, kind, np.random.default_rng([0, row, k]))
            for k, kind in enumerate(KINDS)
        ]
        near, verified = _search_copies(table, descriptors, row, copies, pool, neighbours, gated)
        above = verified.score - calibration.threshold
        passed = above >= 0
        for k in np.flatnonzero((above >= -CONFIRMED) & (above <= uncertainty_band)):
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
    table: Signatures,
    descriptors: Descriptors,
    row: int,
    copies: list[Picture],
    pool: npt.NDArray[np.intp],
    neighbours: int,
    gated: bool,
) -> tuple[npt.NDArray[np.int64], VerifiedPairs]:
    """Nearest rows of the copies of a row, and the pair of each copy with that row, weighed."""
    made = stack_signatures([make_signature(copy) for copy in copies])
    described = describe(made)
    near = find_nearest_in(described, descriptors, neighbours)
    pairs = np.stack([np.zeros(len(made), np.int64), 1 + np.arange(len(made))], axis=1)
    background = np.append(np.inf, near.similarity[:, -1]) if gated else None
    strangers = pool[pool != row]
    both = np.concatenate([table[[row]], made, table[strangers]])
    vectors = np.concatenate([descriptors[[row]], described, descriptors[strangers]])
    if background is not None:
        background = np.append(background, np.full(len(strangers), np.inf))
    verified = verify(both, vectors, pairs, np.arange(len(both)), background=background)
    return near.index, weigh(verified, both, vectors, np.arange(1 + len(made), len(both)))
