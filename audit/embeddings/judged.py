"""Judge labels from vectors, or from the user's own probabilities: arrays in, arrays out.

Built for the scan, and for anybody who has vectors and labels as arrays
(`benchmarks/vectors.py` calls it with pictures that never were a dataset).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from audit.checking.label_facts import LEAST_AGREED
from audit.embeddings.label_noise import (
    NoiseModel,
    find_hump,
    find_strays,
    fit_noise_model,
    law_weights,
    measure_unusual,
    rate_labels,
)
from audit.embeddings.nearest import Nearest, vote_shares
from audit.embeddings.ridge import Decomposition, Floats, Ints, decompose, left_out_scores

SURE_GAIN = 4.0
"""Log likelihood from which wrong labels are told from overlap: p = 0.002."""
PLAUSIBLE_LOSS = 6.0
"""Log likelihood below the best law of error beyond which another law is left out of intervals."""
LEAST_WEIGHT = 0.1
"""How much such a law counts that is kept all the same."""
SURELY = 2.33
"""Standard errors by which the share of wrong labels may be smaller than found where somebody is
accused: 99 % on one side. A few hundred labels tell 2 % hardly from 8 %."""
MANY = 3000
"""Labels from which on fewer standard errors do, in proportion: a model that is fitted to fewer
believes too much of itself and finds shares several times too large, which their number mends. So
a forecast too is lower by as large a share of these errors as labels are lacking."""
LISTED_SHARE = 0.5
"""Share of a review list that is expected to be wrong."""
LONGEST = 1.5
"""Vectors that are so many times as long as the median one count as so long: a model of least
squares would follow the few that are longer."""


@dataclass(frozen=True, slots=True)
class WrongCount:
    """How many of the first `n` labels are wrong: about `wrong`, from `low` to `high`."""

    n: int
    wrong: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class JudgedLabels:
    """What is known of n labels in K classes.

    `gain`: by how much wrong labels explain what is seen better than overlap (log likelihood);
    `quality` (n,): 0..1, low for those to look at first; `probability` (n,): of the label;
    `suggested` (n,): the most probable other class, and its `suggested_probability`; `chances` (l,
    n): of being wrong under each law of error, with its weight in `weights` and gain in `gains`
    (l,); `error_chance` (n,): the mean over laws; `surely` (n,): that at the least likely share of
    errors, to accuse by; `votes` (n, 2): neighbours with the given and with the suggested label, of
    `neighbours` (n,); `accuracy`: share of labels that the model would give as well; `agreed`: how
    surely it knows anything of labels (`agreement`).
    """

    gain: float
    quality: npt.NDArray[np.float64]
    probability: npt.NDArray[np.float64]
    suggested: Ints
    suggested_probability: npt.NDArray[np.float64]
    chances: npt.NDArray[np.float64]
    weights: npt.NDArray[np.float64]
    gains: npt.NDArray[np.float64]
    error_chance: npt.NDArray[np.float64]
    surely: npt.NDArray[np.float64]
    votes: Ints
    neighbours: Ints
    accuracy: float
    agreed: float

    def order(self) -> Ints:
        """Return the rows, those to look at first in front."""
        return np.argsort(self.quality, kind="stable")

    def forecast(self, n: int) -> WrongCount:
        """Return how many of the first n labels are wrong, with an interval of about 95 %.

        It spans the laws of error that may hold. Under each, labels are wrong independently, and
        the share of errors is z = sqrt(2 gain) standard errors from 0, as of a normal likelihood.
        """
        first = self.chances[:, self.order()[:n]]
        wrong = first.sum(1)
        unsure = wrong**2 / np.maximum(2 * self.gains, 1)
        spread = 1.96 * np.sqrt((first * (1 - first)).sum(1) + unsure)
        plausible = self.gains >= self.gains.max() - PLAUSIBLE_LOSS
        plausible |= self.weights >= LEAST_WEIGHT
        return WrongCount(
            n,
            float(self.error_chance[self.order()[:n]].sum()),
            float(np.maximum(wrong - spread, 0)[plausible].min()),
            float(np.minimum(wrong + spread, n)[plausible].max()),
        )

    def review_list(self) -> WrongCount:
        """Return the longest start of the order of which half is expected to be wrong."""
        shares = np.cumsum(self.error_chance[self.order()]) / np.arange(1, len(self.quality) + 1)
        half = np.flatnonzero(shares >= LISTED_SHARE)
        return self.forecast(int(half[-1]) + 1 if len(half) else 0)


def judge_vectors(
    views: Floats,
    nearest: Nearest,
    labels: Ints,
    groups: Ints,
    n_classes: int,
    decomposition: Decomposition | None = None,
) -> JudgedLabels:
    """Judge labels (n,) in 0..n_classes-1 by a model that did not see their group, and neighbours.

    `views` (v, n, d) are vectors of one or more views. Rows with the label -1 neither teach nor
    vote. A `decomposition` of the mean of the views is used again if it is the one that is needed.
    """
    rows = np.flatnonzero(labels >= 0)
    whole = len(rows) == len(labels)
    seen = views if whole else views[:, rows]  # a copy
    unusual = measure_unusual(seen[0] if len(seen) == 1 else seen.mean(0))
    known = decomposition if whole and len(views) == 1 else None
    scores = score_views(seen, labels[rows], groups[rows], n_classes, known)
    # Least squares of 0 and 1 gives a class the discriminant of its mean times its share, which
    # favours large classes (Hastie, Tibshirani and Buja 1994, JASA 89).
    scores /= np.maximum(np.bincount(labels[rows], minlength=n_classes), 1) * n_classes / len(rows)
    votes, smooth = vote_shares(nearest, labels, groups, n_classes, rows)
    return _conclude([scores, np.log(smooth)], unusual, labels[rows], groups[rows], votes)


def score_views(
    views: Floats,
    labels: Ints,
    groups: Ints,
    n_classes: int,
    decomposition: Decomposition | None = None,
) -> Floats:
    """Return the scores (n, n_classes) of pictures without their group, the mean over views."""
    v, n, d = views.shape
    every = views.reshape(v * n, d)
    centred = every - every.mean(0, dtype=np.float64).astype(np.float32)
    del views, every
    bounded = bound_lengths(centred)
    if decomposition is None or bounded:
        decomposition = decompose(centred)
    del centred
    scores = left_out_scores(decomposition, np.tile(labels, v), np.tile(groups, v), n_classes)
    return np.asarray(scores.reshape(v, n, n_classes).mean(0))


def bound_lengths(vectors: Floats) -> bool:
    """Shorten the longest of vectors (n, d) and give columns mean 0, in place; say if any was."""
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
    limit = np.float32(LONGEST) * np.median(lengths)
    if not (lengths > limit).any():
        return False
    vectors *= np.minimum(1, limit / np.maximum(lengths, 1e-12))[:, None]
    vectors -= vectors.mean(0, dtype=np.float64).astype(np.float32)
    return True


def judge_probabilities(
    probabilities: Floats, labels: Ints, votes: Floats | None = None
) -> JudgedLabels:
    """Judge labels by the user's own probabilities (n, K), as they come from out of fold."""
    witness = np.log(np.maximum(probabilities, 1e-6)).astype(np.float32)
    counted = np.zeros_like(probabilities) if votes is None else votes
    alone = np.arange(len(labels))
    return _conclude([witness], np.zeros(len(labels)), labels, alone, counted)


def agreement(witness: Floats, labels: Ints, groups: Ints) -> float:
    """Return how surely a witness (n, K) that saw no label of a row's group agrees with labels.

    In standard deviations of what labels give that are dealt anew to the groups. Each pair of rows
    counts twice, so the variance is twice that of independent terms, counted by group (as for join
    counts: Cliff and Ord 1981, Spatial Processes).
    """
    shares = np.bincount(labels, minlength=witness.shape[1]) / len(labels)
    spoken = witness[np.arange(len(labels)), labels] - witness @ shares
    owner = np.unique(groups, return_inverse=True)[1]
    by_group = np.bincount(owner, spoken)
    return float(by_group.sum() / np.sqrt(2 * (by_group**2).sum() + 1e-300))


def _conclude(
    witnesses: list[Floats],
    unusual: npt.NDArray[np.float64],
    labels: Ints,
    groups: Ints,
    votes: Floats,
) -> JudgedLabels:
    rows = np.arange(len(labels))
    agreed = max(agreement(witness, labels, groups) for witness in witnesses)
    overlap, laws = fit_noise_model(witnesses, unusual, labels, votes.shape[1])
    hump = find_hump(overlap.logits(witnesses, unusual), labels)
    if len(witnesses) > 1:  # one alone may have any tail
        hump = max(hump, find_strays(witnesses, labels), key=lambda one: one.gain)
    p, chances, weights = _average(overlap, laws, witnesses, unusual, labels)
    gains = np.array([law.gain for law in laws] or [0.0])
    gain = max(hump.gain, float(gains.max()))
    to_forecast, to_accuse = errors_less(len(labels))
    likely = weights @ with_share_less(chances, gains, to_forecast)
    surely = weights @ with_share_less(chances, gains, to_accuse)
    if hump.gain >= SURE_GAIN and agreed >= LEAST_AGREED:
        chances = np.where(hump.beyond, np.maximum(chances, hump.chance), chances)
        likely, surely = (
            np.where(hump.beyond, np.maximum(chance, hump.chance), chance)
            for chance in (likely, surely)
        )
    own = p[rows, labels]
    others = p.copy()
    others[rows, labels] = -1.0
    suggested = others.argmax(1)
    return JudgedLabels(
        gain if agreed >= LEAST_AGREED else 0.0,
        rate_labels(p, labels, float((weights @ chances).mean()), told=gain >= SURE_GAIN),
        own,
        suggested,
        p[rows, suggested],
        chances if agreed >= LEAST_AGREED else np.zeros_like(chances),
        weights,
        gains,
        likely if agreed >= LEAST_AGREED else np.zeros_like(likely),
        surely if agreed >= LEAST_AGREED else np.zeros_like(surely),
        np.stack([votes[rows, labels], votes[rows, suggested]], 1).astype(np.int64),
        votes.sum(1).astype(np.int64),
        float((own >= p.max(1)).mean()),
        agreed,
    )


def errors_less(n: int) -> tuple[float, float]:
    """Return by how many standard errors n labels lower the share: to forecast, and to accuse."""
    return SURELY * max(0.0, 1 - n / MANY), SURELY * min(1.0, MANY / n)


def with_share_less(
    chances: npt.NDArray[np.float64], gains: npt.NDArray[np.float64], errors: float
) -> npt.NDArray[np.float64]:
    """Return chances (l, n) of being wrong where each law's share is less by standard errors.

    The share is z = sqrt(2 gain) standard errors from 0; the odds of being wrong grow with it.
    """
    least = np.maximum(1 - errors / np.sqrt(2 * np.maximum(gains, 1e-9)), 0)[:, None]
    odds = least * chances / np.maximum(1 - chances, 1e-12)
    return np.asarray(odds / (1 + odds))


def _average(
    overlap: NoiseModel,
    laws: list[NoiseModel],
    witnesses: list[Floats],
    unusual: npt.NDArray[np.float64],
    labels: Ints,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return p (n, K), chances (l, n) and weights (l,): of the laws, or of overlap without any."""
    if not laws:
        return (
            overlap.probabilities(witnesses, unusual), np.zeros((1, len(labels))), np.ones(1)
        )  # fmt: skip
    weights, chances = law_weights(laws), np.empty((len(laws), len(labels)))
    mean = np.zeros(0)
    for number, law in enumerate(laws):
        p = law.probabilities(witnesses, unusual)
        chances[number] = law.error_chances(p, labels)
        mean = weights[number] * p if not number else mean + weights[number] * p
    return mean, chances, weights
