"""Scores of an order, in standard deviations against permutations of the same values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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


def neighbour_score(labels: NDArray[Any]) -> tuple[float, float, float]:
    """(score, observed, expected) share of neighbours with equal labels, against permutations."""
    return _score(lambda row: float((row[1:] == row[:-1]).mean()), labels, PERMUTATIONS)


def entropy_score(batches: Sequence[NDArray[Any]]) -> tuple[float, float, float]:
    """(score, observed, expected) mean entropy of labels in a batch, in nats."""
    cuts = np.cumsum([len(b) for b in batches])[:-1]

    def mean_entropy(labels: NDArray[Any]) -> float:
        counts = [np.unique(part, return_counts=True)[1] for part in np.split(labels, cuts)]
        return sum(map(entropy, counts)) / len(counts)

    return _score(mean_entropy, np.concatenate(list(batches)), PERMUTATIONS // 4)


def _score(
    measure: Callable[[NDArray[Any]], float], values: NDArray[Any], permutations: int
) -> tuple[float, float, float]:
    rng, observed = np.random.default_rng(0), measure(values)
    null = [measure(rng.permutation(values)) for _ in range(permutations)]
    expected, spread = float(np.mean(null)), float(np.std(null))
    if spread == 0:
        return 0.0, observed, expected
    return (observed - expected) / spread, observed, expected


def entropy(counts: NDArray[Any]) -> float:
    """Of a distribution given by counts, in nats."""
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())
