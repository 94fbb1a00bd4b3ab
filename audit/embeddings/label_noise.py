"""How likely each label is wrong: calibrated probabilities, and a share of labels set at random.

Two witnesses say which class a picture looks like: the scores of a model that did not see it, and
the labels of its nearest neighbours. A multinomial logistic model joins them,

    p(k | x) proportional to exp(a * score_k + c * log(votes_k) + b_k),

and the labels follow it, except a share e of them that was set at random:

    P(label = k | x) = (1 - e) p(k | x) + e (1 - p(k | x)) / (K - 1).

a, b, c and e are fitted together by maximum likelihood. Classes that overlap make improbable labels
too, but of the kind that the logistic model explains: the more the picture looks like the other
class, the rarer. Labels set at random do not get rarer. The gain in likelihood from e > 0 is what
tells the two apart, and without it nothing is called wrong. The chance that a label is wrong is
then its share of the second term (Northcutt, Jiang and Chuang 2021, Confident Learning, JAIR 70,
count instead; their counts take overlap for noise).

Errors that follow the classes (a truck is called a car, never a cat) look like overlap to e. For
the order of the list, not for its end, a second estimate lets every pair of classes have its own
share, held near the common one by a prior.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
FIT_CELLS = 400_000
"""Rows times classes that the fit looks at: rows are drawn by seed where there are more."""
LEAST_FIT_ROWS = 2_000
IMAGINED = 1.0
"""Labels set at random that are imagined beside the real ones, so that classes that separate
perfectly do not make the model certain without limit."""
PAIR_PRIOR = 100.0
"""Imagined pictures a class that hold its own shares of confusion near the common one."""
PAIR_ROUNDS = 20
PLAUSIBLE_RATIO = 3.0
"""How many times steadier than those of normal classes log odds may be: simulated overlapping
classes of any kind stay below 2, those that lie apart reach 50 and more."""
MOST_STEEPENING = 10.0
WEIGHT_LIMIT = 9.0
TINY = 1e-9


@dataclass(frozen=True, slots=True)
class NoiseModel:
    """The fitted model: `weights` of the witnesses, `offsets` of the classes, the `share` of labels
    set at random, its limits (95 %), and `gain`, by how much the log likelihood is above that
    of share 0.
    """

    weights: Floats
    offsets: Floats
    share: float
    share_low: float
    share_high: float
    gain: float

    def probabilities(self, witnesses: list[npt.NDArray[np.float32]]) -> Floats:
        """Return p(k | x), (n, K), of the classes before labels are set at random."""
        logits = self.offsets + sum(
            w * part.astype(np.float64) for w, part in zip(self.weights, witnesses, strict=True)
        )
        logits -= logits.max(1, keepdims=True)
        np.exp(logits, out=logits)
        logits /= logits.sum(1, keepdims=True)
        return np.asarray(logits)

    def error_chances(self, own: Floats) -> Floats:
        """Return the chance that a label is wrong from p(own label | x)."""
        others = self.share * (1 - own) / max(len(self.offsets) - 1, 1)
        return np.asarray(others / ((1 - self.share) * own + others + 1e-300))


def fit_noise_model(
    witnesses: list[npt.NDArray[np.float32]], labels: Ints, n_classes: int
) -> NoiseModel:
    """Fit weights, offsets and the share; `witnesses` are (n, K) each, larger for likelier."""
    n = len(labels)
    rows = np.arange(n)
    limit = max(LEAST_FIT_ROWS, FIT_CELLS // n_classes)
    if n > limit:
        rows = np.sort(np.random.default_rng(0).choice(n, limit, replace=False))
    problem = _Likelihood(
        [part[rows].astype(np.float64) for part in witnesses], labels[rows], n_classes
    )
    clean, base = problem.maximise(0.0)
    steepest = problem.required_steepness(clean)
    if steepest > 1:
        clean, base = problem.steepen(clean, steepest)
    free, best = problem.maximise(None, clean, at_least=clean if steepest > 1 else None)
    share = problem.share_of(free)
    gain = max(best - base, 0.0) * n / len(rows)
    if best <= base:
        free, share = clean, 0.0
    low, high = problem.limits(free, share, max(best, base), base)
    weights, offsets = problem.unpack(free)
    return NoiseModel(weights, offsets, share, low, high, gain)


class _Likelihood:
    """The log likelihood of labels as a function of log weights, offsets and logit of the share."""

    def __init__(self, witnesses: list[Floats], labels: Ints, n_classes: int) -> None:
        self.witnesses, self.labels, self.k = witnesses, labels, n_classes
        self.rows = np.arange(len(labels))
        # scores come in any unit: the fit starts from one deviation
        self.scale = np.array([1 / (part.std() + 1e-9) for part in witnesses])

    def unpack(self, point: Floats) -> tuple[Floats, Floats]:
        m = len(self.witnesses)
        return np.exp(point[:m]) * self.scale, np.append(point[m : m + self.k - 1], 0.0)

    @staticmethod
    def share_of(point: Floats) -> float:
        return float(1 / (1 + np.exp(-point[-1])))

    def required_steepness(self, clean: Floats) -> float:
        """Return by how much the weights of the clean model fall short of what the margins show.

        Where two normal classes overlap, log odds m with mean M and variance V have V = 2 M. Odds
        that are much steadier than that, with labels that contradict them, are those of classes
        lying apart with a few labels set at random, of which the clean model makes overlap.
        """
        weights, offsets = self.unpack(clean)
        logits = offsets + sum(w * part for w, part in zip(weights, self.witnesses, strict=True))
        own = logits[self.rows, self.labels].copy()
        logits[self.rows, self.labels] = -np.inf
        margins = own - logits.max(1)
        middle = float(np.median(margins))
        # 1.4826: of a normal distribution, the median distance from the middle is one deviation
        spread = 1.4826 * float(np.median(np.abs(margins - middle)))
        ratio = 2 * middle / (spread**2 + TINY)
        return min(ratio / PLAUSIBLE_RATIO, MOST_STEEPENING)

    def steepen(self, clean: Floats, factor: float) -> tuple[Floats, float]:
        """Return the point with its log odds `factor` times as large, and its log likelihood."""
        m, point = len(self.witnesses), clean.copy()
        point[:m] = np.minimum(point[:m] + np.log(factor), WEIGHT_LIMIT)
        point[m:-1] *= factor
        return point, -self.loss(point, True)[0] * len(self.labels)

    def maximise(
        self, share: float | None, start: Floats | None = None, at_least: Floats | None = None
    ) -> tuple[Floats, float]:
        """Return the best point and its log likelihood; `share` fixes the share, and weights do not
        fall below those of `at_least`.
        """
        from scipy.optimize import minimize

        m = len(self.witnesses)
        first = np.zeros(m + self.k) if start is None else start.copy()
        first[-1] = np.log(0.02 / 0.98) if share is None else _logit(share)
        limits = [(-WEIGHT_LIMIT, WEIGHT_LIMIT)] * m + [(-99.0, 99.0)] * (self.k - 1)
        limits += [(-12.0, 2.0)]
        if at_least is not None:
            limits[:m] = [(float(low), WEIGHT_LIMIT) for low in at_least[:m]]
        if share is not None:
            limits[-1] = (first[-1], first[-1])
        found = minimize(
            self.loss, first, args=(share == 0.0,), jac=True, method="L-BFGS-B", bounds=limits,
            options={"maxiter": 150},
        )  # fmt: skip
        return found.x, -float(found.fun) * len(self.labels)

    def loss(self, point: Floats, clean: bool) -> tuple[float, Floats]:
        """Return the negative mean log likelihood and its gradient."""
        n, m, k = len(self.labels), len(self.witnesses), self.k
        weights, offsets = self.unpack(point)
        share = 0.0 if clean else self.share_of(point)
        logits = offsets + sum(w * part for w, part in zip(weights, self.witnesses, strict=True))
        logits -= logits.max(1, keepdims=True)
        p = np.exp(logits)
        total = p.sum(1, keepdims=True)
        p /= total
        own = p[self.rows, self.labels]
        seen = (1 - share) * own + share * (1 - own) / (k - 1) + 1e-300
        slope = ((1 - share) - share / (k - 1)) * own / seen
        pull = -slope[:, None] * p
        pull[self.rows, self.labels] += slope
        # the imagined labels: every class alike, spread over all pictures
        logs = logits - np.log(total)
        imagined = IMAGINED / n * logs.mean(1)
        pull += IMAGINED / n * (1 / k - p)
        value = np.log(seen).sum() + imagined.sum()
        gradient = np.empty(m + k)
        for i, part in enumerate(self.witnesses):
            gradient[i] = weights[i] * np.einsum("ij,ij->", pull, part)
        gradient[m : m + k - 1] = pull.sum(0)[: k - 1]
        by_share = ((1 - own) / (k - 1) - own) / seen
        gradient[-1] = 0.0 if clean else by_share.sum() * share * (1 - share)
        return -value / n, -gradient / n

    def limits(self, point: Floats, share: float, best: float, base: float) -> tuple[float, float]:
        """Return where the likelihood of the share has fallen by 1.92, all else fixed."""
        own = self._own(point)
        ratio = (1 - own) / (self.k - 1)

        def profile(e: float) -> float:
            return float(np.log((1 - e) * own + e * ratio + 1e-300).sum())

        top = profile(share)
        grid = np.concatenate([[0.0], np.geomspace(1e-5, 0.9, 200)])
        inside = [e for e in grid if profile(float(e)) >= top - 1.92] or [share]
        low = 0.0 if best - base < 1.92 else float(min(inside))
        return min(low, share), float(max(max(inside), share))

    def _own(self, point: Floats) -> Floats:
        weights, offsets = self.unpack(point)
        logits = offsets + sum(w * part for w, part in zip(weights, self.witnesses, strict=True))
        logits -= logits.max(1, keepdims=True)
        p = np.exp(logits)
        return np.asarray(p[self.rows, self.labels] / p.sum(1))


def _logit(share: float) -> float:
    return float(np.log(max(share, 1e-6) / (1 - share)))


def rate_labels(p: Floats, labels: Ints, share: float) -> Floats:
    """Return the quality of each label, 0 to 1: low for those to look at first.

    The mean, on the scale of log odds, of the probability of the label and of the chance that it
    is right where each pair of classes has its own share of confusion.
    """
    rows = np.arange(len(labels))
    own = p[rows, labels]
    confused = _confusion_chances(p, labels, max(share, 0.01))
    log_odds = (_log_odds(own) + _log_odds(1 - confused)) / 2
    return np.asarray(1 / (1 + np.exp(-log_odds)))


def _confusion_chances(p: Floats, labels: Ints, share: float) -> Floats:
    """Return the chance that a label is wrong by a table (true, given), fitted by EM."""
    n_classes = p.shape[1]
    table = _even_table(n_classes, share)
    order = np.argsort(labels, kind="stable")
    present, first = np.unique(labels[order], return_index=True)
    for _ in range(PAIR_ROUNDS):
        counts = np.zeros((n_classes, n_classes))
        for given, start, stop in zip(present, first, [*first[1:], len(labels)], strict=True):
            true = p[order[start:stop]] * table[:, given]
            true /= true.sum(1, keepdims=True) + 1e-300
            counts[:, given] = true.sum(0)
        common = 1 - float(np.trace(counts)) / counts.sum()
        table = counts + PAIR_PRIOR * _even_table(n_classes, max(common, 1e-4))
        table /= table.sum(1, keepdims=True)
    rows = np.arange(len(labels))
    right = p[rows, labels] * table[labels, labels]
    every = np.einsum("ij,ij->i", p, table[:, labels].T)
    return np.asarray(1 - right / (every + 1e-300))


def _even_table(n_classes: int, share: float) -> Floats:
    table = np.full((n_classes, n_classes), share / max(n_classes - 1, 1))
    np.fill_diagonal(table, 1 - share)
    return table


def _log_odds(chance: Floats) -> Floats:
    inside = np.clip(chance, TINY, 1 - TINY)
    return np.asarray(np.log(inside) - np.log1p(-inside))
