"""What recurs at one place in the pictures of a class: a stamp, a logo, a date.

The mean of many pictures keeps what stands at the same place in all of them (Dekel, Rubinstein, Liu
and Freeman 2017, On the effectiveness of visible watermarks, CVPR): here the mean fine detail of
the class less that of the others, each place weighed by its variance. The pattern is taken from
four fifths of the pictures and looked for in the last. Only the rim is looked at, and what recurs
in the middle too is a subject that reaches the rim.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from audit.statistics.association import auc_of, class_sums
from audit.statistics.intervals import Ints

Floats = NDArray[np.float32]
SIDE = 32
PARTS = {
    "top left": (slice(0, 8), slice(0, 16)),
    "top right": (slice(0, 8), slice(16, 32)),
    "left edge": (slice(8, 24), slice(0, 8)),
    "right edge": (slice(8, 24), slice(24, 32)),
    "bottom left": (slice(24, 32), slice(0, 16)),
    "bottom right": (slice(24, 32), slice(16, 32)),
}
MIDDLE = slice(8, 24), slice(8, 24)
MOST_IN_MIDDLE = 0.2
"""Share of a mark's strength that the middle may have, place by place: a stamp ends within the rim,
and is the stronger for it."""
FOLDS = 5
STRONG = 15.0
"""Levels of detail above which more is no more: one sharp edge is not to outweigh ten pictures."""
FAINT = 0.02  # added to variances: places where all pictures are plain
LEAST_SCORE = 2.0  # standard errors by which a place must differ to be part of the pattern
LEAST_SURE = 3.5
"""Standard errors by which an AUC lies above a half: of 1,000 classes of 20 pictures, hundreds
reach any AUC that is worth a look."""
AT_ONCE = 500  # classes that are looked for together: the scores of more fill the memory
MANY_CLASSES = 10  # from which most have no mark, and show how far an AUC strays by chance
DEALS = 10  # of labels, which show it where classes are fewer


class Recurring(NamedTuple):
    """A class (its number), a part of the rim, and how much each picture has of its pattern."""

    label: int
    part: str
    scores: NDArray[np.float64]  # (n,)


def fine_detail(grey: NDArray[np.uint8]) -> Floats:
    """Return the detail (n, 32, 32) of grey planes, -1..1; 0 on the outermost line."""
    g = grey.astype(np.float32)
    fine = np.zeros_like(g)
    fine[:, 1:-1, 1:-1] = (
        4 * g[:, 1:-1, 1:-1] - g[:, :-2, 1:-1] - g[:, 2:, 1:-1] - g[:, 1:-1, :-2] - g[:, 1:-1, 2:]
    )
    return np.asarray(np.tanh(fine / STRONG))


def find_recurring(detail: Floats, label: Ints, classes: int, least: float) -> list[Recurring]:
    """Return the parts in which a class has a pattern of its own that its unseen pictures show.

    `detail` (n, 32, 32); `least` is the AUC of the pattern, among pictures it was not made of.
    """
    fold = np.random.default_rng(0).integers(FOLDS, size=len(label))
    inside = np.maximum(np.bincount(label, minlength=classes), 1)
    error = np.sqrt((len(label) + 1) / (12 * inside * np.maximum(len(label) - inside, 1)))
    planes = [detail[:, rows, columns].reshape(len(detail), -1) for rows, columns in PARTS.values()]
    patterns = [_patterns(plane, label, fold, classes) for plane in planes]
    aucs = _aucs(planes, patterns, fold, label, classes)
    asked = np.maximum(least, 0.5 + LEAST_SURE * error)
    if not (aucs >= asked).any():
        return []
    # of a fold, the pictures of a class share one pattern: AUCs spread more than of strangers
    strayed = aucs if classes >= MANY_CLASSES else _dealt(planes, fold, label, classes)
    spread = 1.4826 * np.median(np.abs(strayed - 0.5) / error)
    asked = np.maximum(least, 0.5 + LEAST_SURE * max(spread, 1.0) * error)
    total, variance = detail.sum(0, dtype=np.float64), detail.var(0)
    found = []
    for at, part in enumerate(PARTS):
        chosen = np.flatnonzero(aucs[at] >= asked)
        sure = [_surely_differs(detail[label == k], total, variance, len(label)) for k in chosen]
        # what goes on in the middle of the pictures of a class is its subject
        rims = [one[MIDDLE].mean() <= MOST_IN_MIDDLE * one[PARTS[part]].mean() for one in sure]
        chosen = chosen[rims]
        scores = _scores(planes[at], fold, patterns[at], chosen).astype(np.float64)
        found += [Recurring(int(k), part, scores[:, i]) for i, k in enumerate(chosen)]
    return found


def _surely_differs(
    own: Floats, total: NDArray[np.float64], variance: Floats, n: int
) -> NDArray[np.float64]:
    """Return how strong the detail (32, 32) is that a class surely has and the others have not.

    Standard errors beyond `LEAST_SCORE`, squared. `own`: the detail of its pictures; `total` and
    `variance`: of all `n`.
    """
    rest = max(n - len(own), 1)
    mean = own.mean(0, dtype=np.float64)
    others = (total - mean * len(own)) / rest
    error = np.sqrt((variance + FAINT) * (1 / len(own) + 1 / rest))
    sure = np.maximum(np.abs(mean - others) / error - LEAST_SCORE, 0) ** 2
    return np.where(np.abs(mean) <= np.abs(others), 0.0, sure)


Pattern = tuple[NDArray[np.float64], NDArray[np.float64]]


def _aucs(
    planes: list[Floats], patterns: list[list[Pattern]], fold: Ints, label: Ints, classes: int
) -> NDArray[np.float64]:
    """Return the AUC (parts, k) of the pattern of each class at each part."""
    aucs = np.empty((len(planes), classes))
    for at, plane in enumerate(planes):
        for start in range(0, classes, AT_ONCE):
            chosen = np.arange(start, min(start + AT_ONCE, classes))
            scores = _scores(plane, fold, patterns[at], chosen).astype(np.float64)
            aucs[at, chosen] = [auc_of(scores[:, k - start], label == k) for k in chosen]
    return aucs


def _dealt(planes: list[Floats], fold: Ints, label: Ints, classes: int) -> NDArray[np.float64]:
    """Return the AUCs (deals, parts, k) of labels that were dealt to the pictures by chance."""
    rng, found = np.random.default_rng(1), []
    for _ in range(DEALS):
        dealt = rng.permutation(label)
        patterns = [_patterns(plane, dealt, fold, classes) for plane in planes]
        found.append(_aucs(planes, patterns, fold, dealt, classes))
    return np.stack(found)


def _patterns(plane: Floats, label: Ints, fold: Ints, classes: int) -> list[Pattern]:
    """Return, made without each fold, the pattern of each class (k, places) of unit spread, and
    what a picture in the middle between class and others has of it (k,).
    """
    sums = np.zeros((FOLDS, classes, plane.shape[1]))
    squares = np.zeros((FOLDS, plane.shape[1]))
    counts = np.zeros((FOLDS, classes))
    for k in range(FOLDS):
        here = fold == k
        sums[k] = class_sums(plane[here].astype(np.float64), label[here], classes)
        squares[k] = np.square(plane[here]).sum(0)
        counts[k] = np.bincount(label[here], minlength=classes)
    found = []
    for k in range(FOLDS):
        own = sums.sum(0) - sums[k]
        n = (counts.sum(0) - counts[k])[:, None]
        total, of = own.sum(0), n.sum()
        rest = np.maximum(of - n, 1)
        mean, others = own / np.maximum(n, 1), (total - own) / rest
        variance = (squares.sum(0) - squares[k]) / of - (total / of) ** 2 + FAINT
        error = np.sqrt(variance * (1 / np.maximum(n, 1) + 1 / rest))
        sure = np.clip(np.abs(mean - others) / error - LEAST_SCORE, 0, 1)
        sure[np.abs(mean) <= np.abs(others)] = 0  # what the others have is not this class's mark
        pattern = (mean - others) / variance * sure
        scale = np.sqrt((np.square(pattern) * variance).sum(1)) + 1e-9
        middle = ((mean + others) / 2 * pattern).sum(1)
        found.append((pattern / scale[:, None], middle / scale))
    return found


def _scores(plane: Floats, fold: Ints, patterns: list[Pattern], chosen: Ints) -> Floats:
    """Return what each picture (n) has of the pattern of some classes, made without its fold."""
    scores = np.zeros((len(plane), len(chosen)), np.float32)
    for k, (pattern, middle) in enumerate(patterns):
        here = fold == k
        scores[here] = plane[here] @ pattern[chosen].T - middle[chosen]
    return scores
