"""Association: tests of many properties against classes and splits, and a classifier on them.

Everything rests on ranks within strata (splits): no distribution is assumed, and a property that
differs between splits is not taken for one that differs between classes. The effect is the AUC
(0.5: none); its null is that of permutations within strata, by their exact mean and variance.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from audit.statistics.intervals import Floats, Ints, hypergeometric_tails, z_value

FOLDS = 5
BINS = 8  # a numeric property enters the classifier as so many equal parts
RIDGE = 10.0  # rows that each coefficient is held to zero by


class RankEffects(NamedTuple):
    """Of k classes by p columns: AUC against the rest, and its standard score under the null.

    `n` (k,) rows of the class and `rest` (k,) rows compared with them, over strata that have both.
    """

    auc: Floats
    z: Floats
    n: Floats
    rest: Floats


def midranks(values: Floats) -> Floats:
    """Return the ranks of each column, ties sharing their mean; NaN has the middle rank."""
    ranks = np.empty(values.shape)
    for column in range(values.shape[1]):
        x = values[:, column]
        known = np.isfinite(x)
        _, place, count = np.unique(x[known], return_inverse=True, return_counts=True)
        ranks[known, column] = (np.cumsum(count) - (count - 1) / 2)[place]
        ranks[known, column] += (len(x) - known.sum()) / 2
        ranks[~known, column] = (len(x) + 1) / 2
    return ranks


def auc_of(values: Floats, inside: NDArray[np.bool_]) -> float:
    """Return the AUC of values (n,) for the rows `inside` against the rest; 0.5 without either."""
    n, rest = int(inside.sum()), int((~inside).sum())
    if not n * rest:
        return 0.5
    ranks = midranks(values[:, None])[inside, 0]
    return float((ranks.sum() - n * (n + 1) / 2) / (n * rest))


def class_effects(values: Floats, classes: Ints, strata: Ints, n_classes: int) -> RankEffects:
    """Return how each column of (n, p) separates each class from the rest, within strata.

    Van Elteren (1960), with strata weighted by their pairs: one AUC over all comparable pairs.
    """
    p = values.shape[1]
    above, pairs, deviation, variance = (np.zeros((n_classes, p)) for _ in range(4))
    n, rest = np.zeros(n_classes), np.zeros(n_classes)
    for stratum in np.unique(strata):
        rows = np.flatnonzero(strata == stratum)
        ranks = midranks(values[rows])
        size = len(rows)
        inside = np.bincount(classes[rows], minlength=n_classes).astype(float)[:, None]
        sums = class_sums(ranks, classes[rows], n_classes)
        both = inside * (size - inside) > 0
        outside = np.where(both, size - inside, 0.0)
        above += np.where(both, sums - inside * (inside + 1) / 2, 0.0)
        pairs += inside * outside
        deviation += np.where(both, sums - inside * (size + 1) / 2, 0.0)
        variance += inside * outside / max(size - 1, 1) * ranks.var(0)
        n += np.where(both, inside, 0.0)[:, 0]
        rest += outside[:, 0]
    auc = np.divide(above, pairs, out=np.full((n_classes, p), 0.5), where=pairs > 0)
    spread = np.sqrt(variance)
    z = np.divide(deviation, spread, out=np.zeros((n_classes, p)), where=spread > 1e-9)
    return RankEffects(auc, z, n, rest)


def class_sums(values: NDArray[Any], classes: NDArray[Any], n_classes: int) -> NDArray[Any]:
    """Return the sum (k, p) of the rows (n, p) of each class, in the numbers of the rows."""
    order = np.argsort(classes, kind="stable")
    sums = np.zeros((n_classes, values.shape[1]), values.dtype)
    if len(order):
        present, start = np.unique(classes[order], return_index=True)
        sums[present] = np.add.reduceat(values[order], start, axis=0)
    return sums


def two_sided(z: Floats) -> Floats:
    """Return the p-value of standard scores."""
    # the library's own takes .12 s to import, which is much of a small scan
    tails = map(math.erfc, (np.abs(z) * math.sqrt(0.5)).ravel().tolist())
    return np.fromiter(tails, np.float64, np.size(z)).reshape(np.shape(z))


def level_p_values(inside: Floats, n: Floats, total: Floats, size: Floats) -> Floats:
    """Return the two-sided exact p-value that `inside` of `n` rows have a value of `total` rows."""
    lower, upper = hypergeometric_tails(*(np.round(a) for a in (inside, n, total, size)))
    return np.asarray(np.minimum(1.0, 2 * np.minimum(upper, lower)))


def auc_limits(
    auc: Floats, n: Floats, rest: Floats, confidence: float = 0.95
) -> tuple[Floats, Floats]:
    """Return limits for an AUC of n rows against `rest`, from its logit.

    Hanley and McNeil (1982), Radiology 143:29, for the variance; the logit keeps it within 0..1.
    """
    # Half a row on the wrong side: a sample that is separated wholly does not prove an AUC of 1.
    margin = 1 / (2 * np.maximum(np.minimum(n, rest), 1) + 1)
    area = np.clip(auc, margin, 1 - margin)
    strong = np.maximum(area, 1 - area)
    first, second = strong / (2 - strong), 2 * strong**2 / (1 + strong)
    variance = strong * (1 - strong)
    variance += (n - 1) * (first - strong**2) + (rest - 1) * (second - strong**2)
    error = np.sqrt(variance / np.maximum(n * rest, 1)) / (area * (1 - area))
    odds, half = np.log(area / (1 - area)), z_value(confidence) * error
    return 1 / (1 + np.exp(half - odds)), 1 / (1 + np.exp(-half - odds))


def weighted_shifts(first: Floats, second: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Return the Kolmogorov-Smirnov distance (p,) of each column of two samples, and its p-value.

    `first` is (n, p), `second` (m, p). `weights` (n,) give the first sample the class shares of the
    second. The asymptotic p-value has Kish's effective size; ties make it conservative (Noether
    1967).
    """
    p = first.shape[1]
    distance, p_value = np.zeros(p), np.ones(p)
    for column in range(p):
        x, y = first[:, column], second[:, column]
        known, known_y = np.isfinite(x), np.isfinite(y)
        w = weights[known]
        if not w.sum() or not known_y.any():
            continue
        size = w.sum() ** 2 / (w**2).sum()
        points = np.concatenate([x[known], y[known_y]])
        steps = np.concatenate([w / w.sum(), np.full(known_y.sum(), -1 / known_y.sum())])
        order = np.argsort(points, kind="stable")
        ends = np.append(np.flatnonzero(np.diff(points[order])), len(points) - 1)
        distance[column] = np.abs(np.cumsum(steps[order])[ends]).max()
        p_value[column] = shift_p_values(distance[column], size, known_y.sum())
    return distance, p_value


def split_shifts(values: Floats, steps: Floats) -> Floats:
    """Return the Kolmogorov-Smirnov distance (splits, p) of two sides of each of several splits.

    `values` (n, p); `steps` (splits, n) is the size of the other side for the rows of one side,
    less the size of this one for those of the other, 0 for the rest. The distance is times the
    product of both sizes, so that sums are whole numbers.
    """
    found = np.zeros((len(steps), values.shape[1]))
    for column in range(values.shape[1]):
        order = np.argsort(values[:, column])
        ends = np.append(np.flatnonzero(np.diff(values[order, column])), len(order) - 1)
        found[:, column] = np.abs(np.cumsum(steps[:, order], axis=1)[:, ends]).max(1)
    return found


def shift_p_values(distance: Floats, n: Floats, other: Floats) -> Floats:
    """Return the asymptotic p-value of such a distance of samples of these sizes."""
    from scipy.special import kolmogorov

    root = np.sqrt(n * other / (n + other))
    # Stephens (1970): a small-sample correction of the asymptotic law.
    return np.asarray(kolmogorov((root + 0.12 + 0.11 / root) * distance))


def unit_folds(units: Ints, folds: int = FOLDS) -> Ints:
    """Return the fold of each row; the rows of a unit share theirs."""
    _, code = np.unique(units, return_inverse=True)
    shuffled = np.random.default_rng(0).permutation(int(code.max(initial=-1)) + 1)
    return np.asarray(shuffled[code] % folds, np.int64)


def binned(values: Floats, levels: NDArray[np.bool_]) -> Floats:
    """Return columns for the classifier: 0/1 as they are, numbers as ranks and as `BINS` parts."""
    parts = [values[:, levels]]
    for column in np.flatnonzero(~levels):
        x = values[:, column]
        known = np.isfinite(x)
        edges = np.unique(np.nanquantile(x, np.arange(1, BINS) / BINS)) if known.any() else x[:0]
        parts.append((known[:, None] & (x[:, None] > edges[None, :])).astype(float))
        parts.append((~known[:, None]).astype(float))
    return np.concatenate(parts, axis=1) if parts else np.empty((len(values), 0))


def fold_scores(
    columns: Floats, classes: Ints, fold: Ints, n_classes: int
) -> Iterator[tuple[Ints, Floats]]:
    """Yield rows with the score (rows, k) of each class by a ridge that never saw their fold."""
    rows = [np.flatnonzero(fold == k) for k in np.unique(fold)]
    # what the folds sum to is that of all less the fold's own: each row enters one product
    grams, sums, sizes = (np.array(each) for each in zip(*(
        (columns[r].T @ columns[r], class_sums(columns[r], classes[r], n_classes),
         np.bincount(classes[r], minlength=n_classes)) for r in rows
    ), strict=True))  # fmt: skip
    for k, own in enumerate(rows):
        size = sizes.sum(0) - sizes[k]
        if not size.any():
            continue
        of_class, n = sums.sum(0) - sums[k], size.sum()
        mean = of_class.sum(0) / n
        gram = grams.sum(0) - grams[k] - n * np.outer(mean, mean) + RIDGE * np.eye(len(mean))
        # rows are centred, so the classes' own means drop out of the right-hand side
        weights = np.linalg.solve(gram, (of_class - np.outer(size, mean)).T)
        for block in np.array_split(own, 1 + len(own) * n_classes // 10**7):
            yield block, (columns[block] - mean) @ weights + size / n
