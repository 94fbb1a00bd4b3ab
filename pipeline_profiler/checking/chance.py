"""What chance alone gives: the distributions that the checks compare with.

Everything is a score in standard deviations against permutations of the same values, with the
false-alarm rate stated where it is used: a normal score above 5.5 comes once in 26 million.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

PERMUTATIONS = 400
FAR = 5.5  # standard deviations; one-sided normal probability 2e-8


def order_score(order: Sequence[int]) -> float:
    """Spearman's correlation of position and stored place, in deviations of its null (n - 1)."""
    places = np.asarray(order, dtype=float)
    if len(places) < 3 or places.std() == 0:
        return 0.0
    ranks = places.argsort(kind="stable").argsort(kind="stable")
    rho = float(np.corrcoef(np.arange(len(ranks)), ranks)[0, 1])
    return rho * math.sqrt(len(ranks) - 1)


def neighbour_score(labels: NDArray[Any], seed: int = 0) -> tuple[float, float, float]:
    """(score, observed, expected) share of neighbours with equal labels, against permutations."""
    rng = np.random.default_rng(seed)
    observed = float((labels[1:] == labels[:-1]).mean())
    null = [_equal_share(rng.permutation(labels)) for _ in range(PERMUTATIONS)]
    return _score(observed, null)


def _equal_share(labels: NDArray[Any]) -> float:
    return float((labels[1:] == labels[:-1]).mean())


def entropy_score(batches: Sequence[NDArray[Any]], seed: int = 0) -> tuple[float, float, float]:
    """(score, observed, expected) mean entropy of labels in a batch, in nats."""
    rng = np.random.default_rng(seed)
    whole = np.concatenate(list(batches))
    cuts = np.cumsum([len(b) for b in batches])[:-1]
    observed = _mean_entropy(batches)
    null = [_mean_entropy(np.split(rng.permutation(whole), cuts)) for _ in range(PERMUTATIONS // 4)]
    return _score(observed, null)


def _mean_entropy(batches: Sequence[NDArray[Any]]) -> float:
    total = 0.0
    for batch in batches:
        shares = np.unique(batch, return_counts=True)[1] / len(batch)
        total -= float((shares * np.log(shares)).sum())
    return total / len(batches)


def trend_score(values: NDArray[Any]) -> float:
    """Correlation of neighbours in a sequence of numbers, in deviations of its null."""
    centred = values - values.mean()
    power = float((centred**2).sum())
    if power == 0 or len(values) < 10:
        return 0.0
    return float((centred[1:] * centred[:-1]).sum() / power * math.sqrt(len(values)))


def _score(observed: float, null: Sequence[float]) -> tuple[float, float, float]:
    expected, spread = float(np.mean(null)), float(np.std(null))
    if spread == 0:
        return 0.0, observed, expected
    return (observed - expected) / spread, observed, expected


def entropy(counts: NDArray[Any]) -> float:
    """Of a distribution given by counts, in nats."""
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())
