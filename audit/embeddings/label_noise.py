"""Estimate how likely each label is wrong, under several models of label errors.

A multinomial logistic model joins cross-validated scores and the votes of nearest neighbours,

    p(k | x) proportional to exp(a(x) * score_k + c(x) * log(votes_k) + b_k(x)),

where log a, log c and b_k are linear in t(x), how unusual the image is. A share e of the labels
is wrong and follows p less closely:

    P(label = k | x) = (1 - e) p(k | x) + e h(k | x),    h proportional to p to the power of g.

All parameters are fitted by maximum likelihood for a few values of g. Without a gain in likelihood
from e > 0 no label is called wrong, because overlapping classes explain the disagreement. Source of
the task: Northcutt, Jiang and Chuang 2021, Confident Learning, JAIR 70. `find_hump` and
`find_strays` cover wrong labels among separated classes; `rate_labels` ranks labels for review.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from audit.statistics.intervals import Floats, Ints

FIT_CELLS = 400_000
"""Rows times classes that the fit looks at: rows are drawn by seed where there are more."""
LEAST_FIT_ROWS = 2_000
BLOCK_CELLS = 60_000
"""Rows times classes that are looked at together: half a megabyte an array."""
LIKENESS = {0.0: 0.0, 0.25: 4.0, 0.5: 8.0}
"""The laws of error that are tried, and the log of how much each is trusted before any label is
seen: people err towards what looks alike, so blind errors are believed in where they explain much
more."""
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
    """The fitted model of m witnesses and K classes under one law of error.

    `weights` (2, m): logs of the weights, and their slopes in t; `offsets` (2, K) likewise;
    `share` e of labels that follow the look less, `likeness` g of their law, and `gain`, by how
    much the log likelihood is above that of share 0.
    """

    weights: Floats
    offsets: Floats
    share: float = 0.0
    likeness: float = 0.0
    gain: float = 0.0

    def logits(self, witnesses: list[npt.NDArray[np.float32]], unusual: Floats) -> Floats:
        """Return log p(k | x), (n, K), up to a constant a row."""
        weigh = np.exp(np.minimum(self.weights[0] + unusual[:, None] * self.weights[1], 30.0))
        found = self.offsets[0] + unusual[:, None] * self.offsets[1]
        for column, part in enumerate(witnesses):
            found += weigh[:, column : column + 1] * part
        return np.asarray(found)

    def probabilities(self, witnesses: list[npt.NDArray[np.float32]], unusual: Floats) -> Floats:
        """Return p(k | x), (n, K), of the classes before any error."""
        return _normalised(self.logits(witnesses, unusual))

    def error_chances(self, p: Floats, labels: Ints) -> Floats:
        """Return the chance (n,) that each label is wrong from p(k | x), (n, K)."""
        rows = np.arange(len(labels))
        own = p[rows, labels]
        law = _normalised(self.likeness * np.log(p + 1e-300))[rows, labels]
        seen = (1 - self.share) * own + self.share * law + 1e-300
        return np.asarray(self.share * law * (1 - own) / seen)


def _normalised(logits: Floats) -> Floats:
    """Return probabilities from logits (n, K), which are lost."""
    logits -= logits.max(1, keepdims=True)
    np.exp(logits, out=logits)
    logits /= logits.sum(1, keepdims=True)
    return logits


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
) -> tuple[NoiseModel, list[NoiseModel]]:
    """Return the model with share 0, and one for each likeness that explains more.

    `witnesses` are (n, K) each, larger for likelier, and `unusual` is t, (n,).
    """
    n = len(labels)
    rows = np.arange(n)
    limit = max(LEAST_FIT_ROWS, FIT_CELLS // n_classes)
    if n > limit:
        rows = np.sort(np.random.default_rng(0).choice(n, limit, replace=False))
    problem = _Likelihood(
        [part[rows] for part in witnesses], unusual[rows], labels[rows], n_classes
    )
    clean, base = problem.maximise(None, 0.0)
    overlap, laws = NoiseModel(*problem.unpack(clean)), list[NoiseModel]()
    for likeness in LIKENESS:
        free, best = problem.maximise(clean, likeness)
        if best > base:
            gain = (best - base) * n / len(rows)
            laws.append(NoiseModel(*problem.unpack(free), problem.share_of(free), likeness, gain))
    return overlap, laws


def law_weights(laws: list[NoiseModel]) -> Floats:
    """Return how much each law counts, in all 1: by its likelihood and what is known of people."""
    logs = np.array([law.gain + LIKENESS[law.likeness] for law in laws])
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum())


class _Likelihood:
    """The log likelihood of labels as a function of weights, offsets and the share.

    A point holds logs of weights (m), their slopes (m), offsets (K), their slopes (K), and the
    logit of the share.
    """

    def __init__(
        self, witnesses: list[npt.NDArray[np.float32]], unusual: Floats, labels: Ints, k: int
    ) -> None:
        # scores come in any unit: the fit starts from one deviation
        self.scale = np.array([1 / (part.std(dtype=np.float64) + 1e-9) for part in witnesses])
        # one class a row: sums over classes go over whole rows, and a block stays in the cache
        self.witnesses = [
            np.ascontiguousarray(part.T, np.float64) * s
            for part, s in zip(witnesses, self.scale, strict=True)
        ]
        self.unusual, self.labels, self.k, self.m = unusual, labels, k, len(witnesses)

    def unpack(self, point: Floats) -> tuple[Floats, Floats]:
        weights = point[: 2 * self.m].reshape(2, self.m).copy()
        weights[0] = np.minimum(weights[0], WEIGHT_LIMIT) + np.log(self.scale)
        return weights, point[2 * self.m : -1].reshape(2, self.k)

    def share_of(self, point: Floats) -> float:
        return float(1 / (1 + np.exp(-np.clip(point[-1], -30, 30))))

    def maximise(self, clean: Floats | None, likeness: float) -> tuple[Floats, float]:
        """Return the best point and its log likelihood: of share 0, or from the best of those."""
        first = np.zeros(2 * (self.m + self.k) + 1)
        if clean is not None:
            first = clean.copy()
            first[-1] = np.log(0.05 / 0.95)
        point, value = minimise(lambda p: self.loss(p, clean is None, likeness), first)
        return point, -value * len(self.labels)

    def loss(self, point: Floats, clean: bool, likeness: float) -> tuple[float, Floats]:
        """Return the negative mean log likelihood, with the priors, and its gradient."""
        n, m, k = len(self.labels), self.m, self.k
        share = 0.0 if clean else self.share_of(point)
        slopes, (offsets, tilts) = point[m : 2 * m], point[2 * m : -1].reshape(2, k)
        value = -SLOPE_PRIOR / 2 * ((slopes**2).sum() + (tilts**2).sum())
        value -= OFFSET_PRIOR / 2 * (offsets**2).sum()
        gradient = np.zeros(len(point))
        step = max(1, BLOCK_CELLS // k)
        for start in range(0, n, step):
            value += self._add_block(slice(start, start + step), point, share, likeness, gradient)
        gradient[:m][point[:m] > WEIGHT_LIMIT] = 0.0
        gradient[m : 2 * m] -= SLOPE_PRIOR * slopes
        gradient[2 * m : 2 * m + k] -= OFFSET_PRIOR * offsets
        gradient[2 * m + k : -1] -= SLOPE_PRIOR * tilts
        return -value / n, -gradient / n

    def _add_block(
        self, block: slice, point: Floats, share: float, likeness: float, gradient: Floats
    ) -> float:
        """Return the log likelihood of some rows, and add its gradient, without the priors."""
        m, k, imagine = self.m, self.k, IMAGINED / len(self.labels)
        t, labels = self.unusual[block], self.labels[block]
        parts = [part[:, block] for part in self.witnesses]
        rows = np.arange(len(labels))
        logs, slopes = np.minimum(point[:m], WEIGHT_LIMIT), point[m : 2 * m]
        weigh = np.exp(np.minimum(logs[:, None] + slopes[:, None] * t, 30.0))
        logits = point[2 * m : 2 * m + k, None] + point[2 * m + k : -1, None] * t
        for weight, part in zip(weigh, parts, strict=True):
            logits += weight * part
        logits -= logits.max(0)
        p = np.exp(logits)
        total = p.sum(0)
        p /= total
        right, wrong, law = (1 - share) * p[labels, rows], np.zeros(len(labels)), p
        if share:
            law = np.exp(likeness * logits)
            law /= law.sum(0)
            wrong = share * law[labels, rows]
        seen = right + wrong + 1e-300
        right, wrong = right / seen, wrong / seen
        if share:
            gradient[-1] += (wrong * (1 - share) - right * share).sum()
        wrong *= likeness
        # the imagined labels: every class alike, spread over all pictures
        imagined = imagine * (logits.mean(0) - np.log(total))
        pull = imagine / k - (imagine + right) * p
        if share and likeness:
            pull -= wrong * law
        pull[labels, rows] += right + wrong
        for column, (weight, part) in enumerate(zip(weigh, parts, strict=True)):
            by_weight = weight * np.einsum("ij,ij->j", pull, part)
            gradient[column] += by_weight.sum()
            gradient[m + column] += by_weight @ t
        gradient[2 * m : 2 * m + k] += pull.sum(1)
        gradient[2 * m + k : -1] += pull @ t
        return float(np.log(seen).sum() + imagined.sum())


# L-BFGS (Liu and Nocedal 1989, Mathematical Programming 45:503) with a backtracking line search:
# scipy.optimize takes half a second to import.

REMEMBERED = 10
"""Steps whose curvature is kept."""
LEAST_GAIN = 2e-9
"""A step that lowers the value by less than this share of it is the last."""
FLAT = 1e-6
"""A largest entry of the gradient at which the bottom is reached."""


def minimise(
    loss: Callable[[Floats], tuple[float, Floats]], start: Floats, steps: int = 150
) -> tuple[Floats, float]:
    """Return the point (p,) with the least value of `loss`, and that value.

    `loss` returns the value and its gradient (p,).
    """
    point = start.astype(np.float64)
    value, gradient = loss(point)
    past: list[tuple[Floats, Floats]] = []
    for _ in range(steps):
        if np.abs(gradient).max(initial=0.0) < FLAT:
            break
        found = _line_search(loss, point, value, gradient, _direction(gradient, past))
        if found is None:
            break
        new, new_value, new_gradient = found
        step, turn = new - point, new_gradient - gradient
        if step @ turn > 1e-12 * (turn @ turn):  # else the curvature seen is none of a bottom
            past = [*past[1 - REMEMBERED :], (step, turn)]
        gained = value - new_value
        point, value, gradient = new, new_value, new_gradient
        if gained < LEAST_GAIN * max(abs(value), 1e-3):
            break
    return point, value


def _direction(gradient: Floats, past: list[tuple[Floats, Floats]]) -> Floats:
    """Return the way down: the gradient, corrected by the curvature of past steps."""
    way = -gradient
    shares = []
    for step, turn in reversed(past):
        shares.append(share := (step @ way) / (step @ turn))
        way = way - share * turn
    if past:
        step, turn = past[-1]
        way = way * ((step @ turn) / (turn @ turn))
    else:
        way = way / max(float(np.abs(way).max()), 1.0)
    for (step, turn), share in zip(past, reversed(shares), strict=True):
        way = way + (share - (turn @ way) / (step @ turn)) * step
    return way


def _line_search(
    loss: Callable[[Floats], tuple[float, Floats]],
    point: Floats,
    value: float,
    gradient: Floats,
    way: Floats,
) -> tuple[Floats, float, Floats] | None:
    """Return the first point along the way that is low enough (Armijo), or None."""
    slope = float(gradient @ way)
    if slope >= 0:
        way, slope = -gradient, -float(gradient @ gradient)
    length = 1.0
    for _ in range(30):
        new = point + length * way
        new_value, new_gradient = loss(new)
        if np.isfinite(new_value) and new_value <= value + 1e-4 * length * slope:
            return new, new_value, new_gradient
        length /= 2
    return None


# For each class, pictures are counted by how far their margin (log odds of the label against the
# best other class) falls below that of the class: from c to 3 c, and beyond 3 c, where c is at
# least half the way to the border and 1.5 robust deviations. If the variance is finite, a ninth of
# what is beyond c or less lies beyond 3 c (a Pareto tail of index 2). An exact binomial tests that,
# and what goes beyond an eighth of those on the way is counted as wrong.

TAIL = 1 / 9
"""Share of what is beyond c that a tail of finite variance has beyond 3 c, at most."""
LEAST_ODDS = 1.0
"""Log odds against its label that a picture beyond has: what looks as much like its own class as
like another is no evidence, however narrow the classes are."""
LEAST_DEVIATIONS = 1.5
"""Robust deviations at which a tail may begin: before that, the body of the class is counted."""


@dataclass(frozen=True, slots=True)
class Hump:
    """`beyond` (n,) says which labels lie where another class is; `gain`: how much that tells, on
    the scale of a log likelihood (4: p = 0.002); `chance` that each of them is wrong, 0..1.
    """

    beyond: npt.NDArray[np.bool_]
    gain: float
    chance: float


def find_hump(logits: Floats, labels: Ints) -> Hump:
    """Return the labels that lie beyond the tail of their class; `logits` are (n, K)."""
    margins = _margins(logits, labels)[0]
    between, beyond = (np.zeros(len(labels), np.bool_) for _ in range(2))
    for label in np.unique(labels).tolist():
        here = np.flatnonzero(labels == label)
        middle = float(np.median(margins[here]))
        # 1.4826: of a normal distribution, the median distance from the middle is one deviation
        deviation = 1.4826 * float(np.median(np.abs(margins[here] - middle)))
        step = max(middle / 2, LEAST_DEVIATIONS * deviation)
        if middle > 0:  # else the model does not know this class
            below = middle - margins[here]
            between[here] = (below > step) & (below <= 3 * step)
            beyond[here] = (below > 3 * step) & (margins[here] < -LEAST_ODDS)
    on_the_way = int(between.sum())
    n = on_the_way + int(beyond.sum())
    return _conclude(beyond, n, n * TAIL, on_the_way * TAIL / (1 - TAIL))


def _margins(logits: npt.NDArray[Any], labels: Ints) -> tuple[Floats, Ints]:
    """Return by how much (n,) each label is ahead of the best other class, and that class."""
    rows = np.arange(len(labels))
    others = logits.astype(np.float64)
    own = others[rows, labels]
    others[rows, labels] = -np.inf
    rival = others.argmax(1)
    return own - others[rows, rival], rival


def _conclude(beyond: npt.NDArray[np.bool_], of: int, expected: float, by_nature: float) -> Hump:
    """Test how many are `beyond`, `of` so many, against the number that is `expected` there.

    `by_nature`: how many of those found are no errors.
    """
    from scipy.special import bdtrc, ndtri

    found = int(beyond.sum())
    if not found:
        return Hump(beyond, 0.0, 0.0)
    p = max(float(bdtrc(found - 1, of, expected / of)), 1e-300)
    z = max(-float(ndtri(p)), 0.0)
    return Hump(beyond, z * z / 2, max(0.0, 1 - by_nature / found))


# A hump may lie in the tail of a class of which a tenth lies half way to the border; but a tail
# hardly leads to the middle of another class. A stray is deeper in another class than half of those
# that are filed there, by the model's scores, and than a quarter by its neighbours. With
# log-concave margins, a share t^s at most of those beyond the border lies s times as far again, t
# being the share beyond it. Below an accuracy of 0.9 nobody is accused. By Hoeffding (1956), Annals
# of Mathematical Statistics 27:713, a binomial with the mean of chances bounds the tail of a sum of
# unequal ones.

DEEP_BESIDE = 0.25
"""Share of a class that its neighbours find less typical of it than a stray of another."""
KNOWN = 0.9
"""Share of labels that the model names, from which classes lie apart."""
HELD_BY = 20.0
"""Imagined pictures a class that hold its share beyond the border near that of all classes."""


def find_strays(witnesses: list[npt.NDArray[np.float32]], labels: Ints) -> Hump:
    """Return the labels of pictures that all witnesses (n, K) find typical of one other class."""
    rows, n_classes = np.arange(len(labels)), witnesses[0].shape[1]
    margins, rival = _margins(witnesses[0], labels)
    middle = _class_quantiles(margins, labels, n_classes, 0.5)
    beyond = margins < 0
    stray = beyond & (middle[labels] > 0) & (middle[rival] > 0) & (-margins >= middle[rival])
    if beyond.mean() > 1 - KNOWN:
        return Hump(np.zeros_like(stray), 0.0, 0.0)
    for part in witnesses[1:]:
        least = _class_quantiles(_margins(part, labels)[0], labels, n_classes, DEEP_BESIDE)
        stray &= part[rows, rival] - part[rows, labels] >= least[rival]
    at = np.flatnonzero(beyond)
    own, counts = labels[at], np.bincount(labels, minlength=n_classes)
    others = np.bincount(own, minlength=n_classes)[own] - 1
    common = len(at) / len(labels)
    share = np.minimum(2 * (others + HELD_BY * common) / (counts[own] + HELD_BY), 1)
    again = np.maximum(middle[rival[at]], 0) / np.maximum(middle[own], 1e-9)
    expected = float((share**again).sum())
    found = _conclude(stray, len(at), min(expected, len(at)), expected)
    return found if stray.sum() >= expected + 1 else Hump(np.zeros_like(stray), 0.0, 0.0)


def _class_quantiles(values: Floats, labels: Ints, n_classes: int, share: float) -> Floats:
    """Return the quantile of each class, below 0 of a class without any."""
    found = np.full(n_classes, -1.0)
    order = np.argsort(labels, kind="stable")
    present, first = np.unique(labels[order], return_index=True)
    for label, start, stop in zip(present, first, [*first[1:], len(labels)], strict=True):
        found[label] = np.quantile(values[order[start:stop]], share)
    return found


# Errors that follow the classes (a truck is called a car, never a cat) look like classes that
# overlap to the laws above. Where these find no error, every pair of classes has its own share of
# confusion for the order of the list, not for its end, held near the common one by a prior.

PAIR_PRIOR = 100.0
"""Imagined pictures a class that hold its own shares of confusion near the common one."""
PAIR_ROUNDS = 20
TINY = 1e-9


def rate_labels(p: Floats, labels: Ints, share: float, *, told: bool) -> Floats:
    """Return the quality of each label, 0 to 1: low for those to look at first.

    Where errors are `told` from overlap, the probability of the label. Else the mean log odds of
    that and of the chance that the label is right with a share of confusion for each pair of
    classes.
    """
    own = p[np.arange(len(labels)), labels]
    if told:
        return own
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
