"""The order in which labels are worth looking at: those that are probably wrong first.

Errors that follow the classes (a truck is called a car, never a cat) look like classes that overlap
to one share of wrong labels for all. For the order of the list, not for its end, every pair of
classes has its own share, held near the common one by a prior.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
PAIR_PRIOR = 100.0
"""Imagined pictures a class that hold its own shares of confusion near the common one."""
PAIR_ROUNDS = 20
TINY = 1e-9


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
