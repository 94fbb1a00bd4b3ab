"""How likely each label is wrong: calibrated probabilities, and a share of labels set at random.

Two witnesses say which class a picture looks like: the scores of a model that did not see it, and
the labels of its nearest neighbours. A multinomial logistic model joins them,

    p(k | x) proportional to exp(a(x) * score_k + c(x) * log(votes_k) + b_k(x)),

and the labels follow it, except a share e of them that was set at random:

    P(label = k | x) = (1 - e) p(k | x) + e (1 - p(k | x)) / (K - 1).

All of it is fitted together by maximum likelihood. Classes that overlap make improbable labels
too, but of the kind that the logistic model explains: the more the picture looks like the other
class, the rarer. Labels set at random do not get rarer. The gain in likelihood from e > 0 is what
tells the two apart, and without it nothing is called wrong. The chance that a label is wrong is
then its share of the second term (Northcutt, Jiang and Chuang 2021, Confident Learning, JAIR 70,
count instead; their counts take overlap for noise).

How much the witnesses weigh depends on how unusual the picture is, t(x): log a and log c are linear
in t, and so is each b_k. Where classes have heavy tails, or one spreads wider than another, unusual
pictures are nobody's or the wide class's, whichever way they lean: posteriors of normal classes of
unlike spread have a term in the squared length, those of Student's t are damped by it. A model
without t takes such pictures for labels set at random.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from audit.embeddings.descent import minimise

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
FIT_CELLS = 400_000
"""Rows times classes that the fit looks at: rows are drawn by seed where there are more."""
LEAST_FIT_ROWS = 2_000
IMAGINED = 1.0
"""Labels set at random that are imagined beside the real ones, so that classes that separate
perfectly do not make the model certain without limit."""
SLOPE_PRIOR = 0.5
"""1 / variance of the slopes in t: a normal prior, so that rare classes do not follow chance."""
OFFSET_PRIOR = 1e-3
"""The same for offsets, of which only differences matter."""
WEIGHT_LIMIT = 9.0
FARTHEST = 4.0
"""Deviations of t beyond which a picture is not more unusual."""


@dataclass(frozen=True, slots=True)
class NoiseModel:
    """The fitted model of m witnesses and K classes.

    `weights` (2, m): logs of the weights, and their slopes in t; `offsets` (2, K) likewise;
    `share` of labels set at random, and `gain`, by how much the log likelihood is above that of
    share 0. `overlap` is the model with share 0.
    """

    weights: Floats
    offsets: Floats
    share: float
    gain: float
    overlap: NoiseModel | None = None

    def logits(self, witnesses: list[npt.NDArray[np.float32]], unusual: Floats) -> Floats:
        """Return log p(k | x), (n, K), up to a constant a row."""
        weigh = np.exp(np.minimum(self.weights[0] + unusual[:, None] * self.weights[1], 30.0))
        found = self.offsets[0] + unusual[:, None] * self.offsets[1]
        for column, part in enumerate(witnesses):
            found += weigh[:, column : column + 1] * part
        return np.asarray(found)

    def probabilities(self, witnesses: list[npt.NDArray[np.float32]], unusual: Floats) -> Floats:
        """Return p(k | x), (n, K), of the classes before labels are set at random."""
        logits = self.logits(witnesses, unusual)
        logits -= logits.max(1, keepdims=True)
        np.exp(logits, out=logits)
        logits /= logits.sum(1, keepdims=True)
        return logits

    def error_chances(self, own: Floats) -> Floats:
        """Return the chance that a label is wrong from p(own label | x)."""
        others = self.share * (1 - own) / max(self.offsets.shape[1] - 1, 1)
        return np.asarray(others / ((1 - self.share) * own + others + 1e-300))


def measure_unusual(vectors: npt.NDArray[np.float32]) -> Floats:
    """Return how unusual each vector is: the log of its length, in robust deviations from the
    median, at most 4.
    """
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))
    logs = np.log(lengths + 1e-9)
    middle = np.median(logs)
    # 1.4826: of a normal distribution, the median distance from the middle is one deviation
    deviation = 1.4826 * np.median(np.abs(logs - middle)) + 1e-3
    return np.asarray(np.clip((logs - middle) / deviation, -FARTHEST, FARTHEST))


def fit_noise_model(
    witnesses: list[npt.NDArray[np.float32]], unusual: Floats, labels: Ints, n_classes: int
) -> NoiseModel:
    """Fit weights, offsets and the share; `witnesses` are (n, K) each, larger for likelier, and
    `unusual` is t, (n,).
    """
    n = len(labels)
    rows = np.arange(n)
    limit = max(LEAST_FIT_ROWS, FIT_CELLS // n_classes)
    if n > limit:
        rows = np.sort(np.random.default_rng(0).choice(n, limit, replace=False))
    problem = _Likelihood(
        [part[rows].astype(np.float64) for part in witnesses], unusual[rows], labels[rows],
        n_classes,
    )  # fmt: skip
    clean, base = problem.maximise(None)
    free, best = problem.maximise(clean)
    overlap = NoiseModel(*problem.unpack(clean), 0.0, 0.0)
    if best <= base:
        return NoiseModel(overlap.weights, overlap.offsets, 0.0, 0.0, overlap)
    gain = (best - base) * n / len(rows)
    return NoiseModel(*problem.unpack(free), problem.share_of(free), gain, overlap)


class _Likelihood:
    """The log likelihood of labels as a function of weights, offsets and the share.

    A point holds logs of weights (m), their slopes (m), offsets (K), their slopes (K), and the
    logit of the share as a part of (K - 1) / K, at which labels say nothing of pictures.
    """

    def __init__(self, witnesses: list[Floats], unusual: Floats, labels: Ints, k: int) -> None:
        # scores come in any unit: the fit starts from one deviation
        self.scale = np.array([1 / (part.std() + 1e-9) for part in witnesses])
        self.witnesses = [part * s for part, s in zip(witnesses, self.scale, strict=True)]
        self.unusual, self.labels, self.k, self.m = unusual, labels, k, len(witnesses)
        self.rows = np.arange(len(labels))

    def unpack(self, point: Floats) -> tuple[Floats, Floats]:
        weights = point[: 2 * self.m].reshape(2, self.m).copy()
        weights[0] = np.minimum(weights[0], WEIGHT_LIMIT) + np.log(self.scale)
        return weights, point[2 * self.m : -1].reshape(2, self.k)

    def share_of(self, point: Floats) -> float:
        return float((self.k - 1) / self.k / (1 + np.exp(-np.clip(point[-1], -30, 30))))

    def maximise(self, clean: Floats | None) -> tuple[Floats, float]:
        """Return the best point and its log likelihood: of share 0, or from the best of those."""
        first = np.zeros(2 * (self.m + self.k) + 1)
        if clean is not None:
            first = clean.copy()
            first[-1] = np.log(0.02 / 0.98)
        point, value = minimise(lambda p: self.loss(p, clean is None), first)
        return point, -value * len(self.labels)

    def loss(self, point: Floats, clean: bool) -> tuple[float, Floats]:
        """Return the negative mean log likelihood, with the priors, and its gradient."""
        n, m, k, t = len(self.labels), self.m, self.k, self.unusual
        logs, slopes = np.minimum(point[:m], WEIGHT_LIMIT), point[m : 2 * m]
        offsets = point[2 * m : -1].reshape(2, k)
        weigh = np.exp(np.minimum(logs + t[:, None] * slopes, 30.0))
        share = 0.0 if clean else self.share_of(point)
        logits = offsets[0] + t[:, None] * offsets[1]
        for column, part in enumerate(self.witnesses):
            logits += weigh[:, column : column + 1] * part
        logits -= logits.max(1, keepdims=True)
        p = np.exp(logits)
        total = p.sum(1, keepdims=True)
        p /= total
        own = p[self.rows, self.labels]
        seen = (1 - share) * own + share * (1 - own) / (k - 1) + 1e-300
        slope = ((1 - share) - share / (k - 1)) * own / seen
        # the imagined labels: every class alike, spread over all pictures
        imagined = IMAGINED / n * (logits.mean(1) - np.log(total[:, 0]))
        pull = IMAGINED / n * (1 / k - p) - slope[:, None] * p
        pull[self.rows, self.labels] += slope
        value = np.log(seen).sum() + imagined.sum() - SLOPE_PRIOR / 2 * (slopes**2).sum()
        value -= (
            OFFSET_PRIOR / 2 * (offsets[0] ** 2).sum() + SLOPE_PRIOR / 2 * (offsets[1] ** 2).sum()
        )
        gradient = np.empty(len(point))
        for column, part in enumerate(self.witnesses):
            by_weight = weigh[:, column] * np.einsum("ij,ij->i", pull, part)
            gradient[column] = by_weight.sum()
            gradient[m + column] = by_weight @ t - SLOPE_PRIOR * slopes[column]
        gradient[:m][point[:m] > WEIGHT_LIMIT] = 0.0
        gradient[2 * m : 2 * m + k] = pull.sum(0) - OFFSET_PRIOR * offsets[0]
        gradient[2 * m + k : -1] = t @ pull - SLOPE_PRIOR * offsets[1]
        by_share = (((1 - own) / (k - 1) - own) / seen).sum()
        gradient[-1] = 0.0 if clean else by_share * share * (1 - share * k / (k - 1))
        return -value / n, -gradient / n
