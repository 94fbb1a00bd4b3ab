"""Scores against chance: how often a random order is called wrong, and what is seen."""

from __future__ import annotations

import numpy as np

from pipeline_profiler.checks.chance import (
    FAR,
    entropy,
    entropy_score,
    neighbour_score,
    order_score,
    trend_score,
)


def test_random_orders_stay_far_from_the_bound() -> None:
    rng = np.random.default_rng(0)
    scores = [order_score(rng.permutation(200).tolist()) for _ in range(2000)]
    assert abs(np.std(scores) - 1) < 0.06  # the null has deviation 1, as the bound assumes
    assert np.abs(scores).max() < FAR


def test_labels_in_random_order_stay_far_from_the_bound() -> None:
    rng = np.random.default_rng(1)
    labels = [rng.choice(4, 128, p=[0.7, 0.1, 0.1, 0.1]) for _ in range(60)]
    assert max(neighbour_score(row)[0] for row in labels) < 4.5
    lows = [entropy_score(np.split(row, 8))[0] for row in labels]
    assert min(lows) > -4.5
    assert max(trend_score(rng.normal(size=128)) for _ in range(500)) < 4.5


def test_orders_that_follow_the_storage_are_far_beyond() -> None:
    assert order_score(range(100)) > 9
    assert order_score(range(100, 0, -1)) < -9
    assert neighbour_score(np.repeat(np.arange(4), 32))[0] > 20
    assert entropy_score([np.full(16, i) for i in range(8)])[0] < -20
    assert trend_score(np.arange(100.0)) > 8


def test_entropy_has_its_known_values() -> None:
    assert abs(entropy(np.array([5, 5, 5, 5])) - np.log(4)) < 1e-12
    assert entropy(np.array([7, 0])) == 0
    assert abs(entropy(np.array([1, 3])) - 0.5623) < 1e-4
