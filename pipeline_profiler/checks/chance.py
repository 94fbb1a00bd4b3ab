"""Scores of an order, in standard deviations against permutations of the same values."""

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


def neighbour_score(labels: NDArray[Any]) -> tuple[float, float, float]:
    """(score, observed, expected) share of neighbours with equal labels, against permutations."""
    rng = np.random.default_rng(0)
    rows = [labels, *(rng.permutation(labels) for _ in range(PERMUTATIONS))]
    observed, *null = (float((row[1:] == row[:-1]).mean()) for row in rows)
    expected, spread = float(np.mean(null)), float(np.std(null))
    return (observed - expected) / spread if spread else 0.0, observed, expected
