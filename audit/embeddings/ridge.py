"""Class scores out of fold, in closed form: nothing is judged by a model that saw its copy.

With H the hat matrix, y the labels and p = H y the fit, the left-out predictions of group G are (I
- H_GG)^-1 (p_G - H_GG y_G) (Cook and Weisberg 1982, Residuals and Influence in Regression). One
decomposition serves every group, every penalty and any labels. The intercept counts as one more
column.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from audit.machine.sharing import by_rows

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
PENALTIES = 10.0 ** np.arange(-4.5, 0.01, 0.5)
"""Tried, as shares of the largest eigenvalue; the best by the squared error left out is kept."""
BLOCK = 16_384
GROUP_CELLS = 2_000_000
"""Entries of the blocks of the hat matrix that are solved at once."""


@dataclass(frozen=True, slots=True)
class Decomposition:
    """Vectors turned to their principal axes: `turned` (n, r) float32, largest first, and
    `values` (r,), the squared length of each column.
    """

    turned: Floats
    values: npt.NDArray[np.float64]


def decompose(vectors: Floats) -> Decomposition:
    """Turn vectors (n, d), whose columns have mean 0, to their principal axes."""
    n, d = vectors.shape
    if n < d:
        values, axes = np.linalg.eigh((vectors @ vectors.T).astype(np.float64))
        values = np.maximum(values, 0)
    else:
        gram = np.zeros((d, d))
        for part in by_rows(lambda rows: vectors[rows].T @ vectors[rows], n, BLOCK):
            gram += part
        values, axes = np.linalg.eigh(gram)
    kept = np.flatnonzero(values > max(float(values.max(initial=0.0)), 1e-12) * 1e-7)[::-1]
    # the axes that are kept alone: all, and then a copy of some, would take twice as much
    axes, values = axes[:, kept], values[kept]
    main = np.ascontiguousarray(axes if n >= d else axes * np.sqrt(values), np.float32)
    return Decomposition(_product(vectors, main) if n >= d else main, values)


def _product(rows: Floats, matrix: Floats) -> Floats:
    out = np.empty((len(rows), matrix.shape[1]), np.float32)
    list(by_rows(lambda part: np.matmul(rows[part], matrix, out=out[part]), len(rows), BLOCK))
    return out


def left_out_scores(
    decomposition: Decomposition, labels: Ints, groups: Ints, n_classes: int
) -> Floats:
    """Return (n, n_classes) predictions of the class columns, every group left out as a whole.

    `labels` (n,) in 0..n_classes-1; `groups` (n,) any numbers, equal within a group.
    """
    shares = np.bincount(labels, minlength=n_classes) / len(labels)
    members = _shared_groups(groups)
    best, error = None, np.inf
    sums = _class_sums(decomposition.turned, labels, n_classes)
    # the class means are the intercept; its own row enters through 1 / n
    sums -= np.outer(decomposition.turned.sum(0, dtype=np.float64), shares)
    penalties = PENALTIES * (decomposition.values.max(initial=0.0) + 1e-12)
    leverages = _leverages(decomposition, penalties)
    for penalty, leverage in zip(penalties.tolist(), leverages, strict=True):
        scores = _predict(decomposition, sums, labels, shares, members, penalty, leverage)
        found = _squared_error(scores, labels, shares)
        if found < error:
            best, error = scores, found
    assert best is not None
    best += (shares + _missing_from_rest(labels, groups, shares)).astype(np.float32)
    return best


def _missing_from_rest(
    labels: Ints, groups: Ints, shares: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return (n, K): the shares of the classes, less those among the rows of other groups."""
    owner, counts = np.unique(groups, return_inverse=True, return_counts=True)[1:]
    held = np.zeros((len(counts), len(shares)))
    np.add.at(held, (owner, labels), 1)
    rest = np.maximum(len(labels) - counts, 1)[:, None]
    return np.asarray(((held - counts[:, None] * shares) / rest)[owner])


def _class_sums(turned: Floats, labels: Ints, n_classes: int) -> npt.NDArray[np.float64]:
    """Return (r, n_classes): the sum of the rows of each class."""
    sums = np.zeros((n_classes, turned.shape[1]))
    order = np.argsort(labels, kind="stable")
    present, first = np.unique(labels[order], return_index=True)
    for number, start, stop in zip(present, first, [*first[1:], len(labels)], strict=True):
        sums[number] = turned[order[start:stop]].sum(0, dtype=np.float64)
    return sums.T


def _shared_groups(groups: Ints) -> list[Ints]:
    """Return the rows of groups of two and more, (number of groups, size) a batch."""
    order = np.argsort(groups, kind="stable")
    first = np.flatnonzero(np.append(True, np.diff(groups[order]) != 0))
    sizes = np.diff(np.append(first, len(groups)))
    batches = []
    for size in np.unique(sizes[sizes > 1]).tolist():
        starts = first[sizes == size]
        step = max(1, GROUP_CELLS // size**2)
        batches += [
            order[starts[i : i + step, None] + np.arange(size)] for i in range(0, len(starts), step)
        ]
    return batches


def _leverages(
    decomposition: Decomposition, penalties: npt.NDArray[np.float64]
) -> npt.NDArray[np.float32]:
    """Return the diagonals (p, n) of the hat matrices, with the intercept."""
    weights = (1 / (decomposition.values[:, None] + penalties)).astype(np.float32)
    turned = decomposition.turned
    found = by_rows(lambda rows: (turned[rows] ** 2 @ weights).T, len(turned), BLOCK)
    return np.concatenate(list(found), axis=1) + np.float32(1 / len(turned))


def _predict(
    decomposition: Decomposition,
    sums: npt.NDArray[np.float64],
    labels: Ints,
    shares: npt.NDArray[np.float64],
    members: list[Ints],
    penalty: float,
    leverage: npt.NDArray[np.float32],
) -> Floats:
    """Return centred predictions with each group left out."""
    n, weights = len(labels), 1 / (decomposition.values + penalty)
    slopes = (weights[:, None] * sums).astype(np.float32)
    scores = _product(decomposition.turned, slopes)
    fitted = [scores[rows].astype(np.float64) for rows in members]
    rest = np.maximum(1 - leverage, np.float32(1e-6))
    scores += leverage[:, None] * shares.astype(np.float32)
    scores[np.arange(n), labels] -= leverage
    scores /= rest[:, None]
    one_hot = np.eye(len(shares)) - shares
    for rows, fit in zip(members, fitted, strict=True):
        if rows.shape[1] > decomposition.turned.shape[1]:  # fewer columns than rows to solve for
            for group in rows:
                scores[group] = _without(
                    decomposition, sums, one_hot[labels[group]], group, penalty
                )
            continue
        part = decomposition.turned[rows].astype(np.float64)
        hat = (part * weights) @ part.transpose(0, 2, 1) + 1 / n
        system = np.eye(rows.shape[1]) * (1 + 1e-9) - hat
        scores[rows] = np.linalg.solve(system, fit - hat @ one_hot[labels[rows]])
    return scores


def _without(
    decomposition: Decomposition,
    sums: npt.NDArray[np.float64],
    targets: npt.NDArray[np.float64],
    group: Ints,
    penalty: float,
) -> npt.NDArray[np.float64]:
    """Return the predictions of a large group by the ridge that is fitted to the other rows."""
    n = len(decomposition.turned)
    part = decomposition.turned[group].astype(np.float64)
    part = np.hstack([part, np.ones((len(group), 1))])
    # of all rows: the columns have mean 0, so the intercept stands apart
    gram = np.diag(np.append(decomposition.values + penalty, n))
    gram -= part.T @ part
    gram[-1, -1] += 1e-9 * n  # a group of all rows leaves none
    right = np.vstack([sums, np.zeros((1, sums.shape[1]))]) - part.T @ targets
    return np.asarray(part @ np.linalg.solve(gram, right))


def _squared_error(scores: Floats, labels: Ints, shares: npt.NDArray[np.float64]) -> float:
    own = scores[np.arange(len(labels)), labels]
    # |s - y|^2 with y one-hot less the shares, without making y
    squares: Any = np.einsum("ij,ij->", scores, scores, dtype=np.float64)
    cross = float(own.sum(dtype=np.float64)) - float(
        (scores.sum(0, dtype=np.float64) * shares).sum()
    )
    return float(squares) - 2 * cross
