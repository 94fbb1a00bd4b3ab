"""Mixes of classes whose units come whole: exact where that can be counted, else calibrated."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from audit.statistics import mixes
from audit.statistics.mixes import compare_mixes, never_drawn


def world(seed: int, units: int = 300, classes: int = 5) -> tuple[np.ndarray, ...]:
    """Units that hold many objects of few classes: far from objects of their own."""
    rng = np.random.default_rng(seed)
    there = rng.random((units, classes)) < 0.3
    unit, label = there.nonzero()
    return unit, label, 1 + rng.poisson(rng.gamma(0.5, 8, len(unit))), rng.random(units) < 0.3


@pytest.mark.parametrize("dealt", [5000, 0], ids=["dealt out", "normal"])
def test_a_random_split_is_no_shift_and_a_shift_is_one(
    dealt: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mixes, "DEALT", dealt)
    monkeypatch.setattr(mixes, "DRAWS", 500)
    p = [compare_mixes(*world(seed), 5).p for seed in range(60)]
    assert sum(x <= 0.1 for x in p) <= 12
    assert 0.35 < np.mean(p) < 0.65
    unit, label, n, here = world(0)
    moved = compare_mixes(unit, label, n * (1 + 9 * (here[unit] & (label == 1))), here, 5)
    assert moved.p < 0.01
    assert moved.total_variation > 3 * moved.by_chance
    assert moved.here.sum() + moved.there.sum() == (n * (1 + 9 * (here[unit] & (label == 1)))).sum()


def test_never_drawn_is_the_share_of_all_draws() -> None:
    draws = list(combinations(range(9), 4))
    for marked in range(10):
        share = np.mean([not set(draw) & set(range(marked)) for draw in draws])
        assert never_drawn(np.array([marked]), np.array([4]), 9)[0] == pytest.approx(share)
