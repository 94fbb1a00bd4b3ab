"""Coverage: what it promises, against brute force and against chance."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from audit.choosing import coverage
from audit.choosing.coverage import choose_covering, cost, likeness_to, measure_reach, random_reach


def points(n: int, d: int = 3, seed: int = 0) -> np.ndarray:
    """Points of length 1."""
    rows = np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


NOTHING = np.full(14, -1, np.float32)


def test_the_gain_is_near_the_best_that_any_choice_has() -> None:
    for seed in range(5):
        of = points(14, seed=seed)
        least = min(
            cost(likeness_to(of, of[list(rows)])).mean()
            for rows in itertools.combinations(range(14), 3)
        )
        rows, gains = choose_covering(of, 3, NOTHING)
        reached = cost(likeness_to(of, of[rows])).mean()
        assert 1 - reached >= (1 - 1 / np.e) * (1 - least)
        assert np.isclose(gains.sum(), 1 - reached, atol=1e-5)


def test_what_is_known_counts_as_chosen() -> None:
    of = np.repeat(points(3), [6, 6, 2], axis=0)
    near = likeness_to(of, of[[0, 6]])
    rows, gains = choose_covering(of, 2, near)
    assert rows[0] >= 12, "the first is of the only cluster that nothing covers"
    assert gains[0] > 1e-3
    assert gains[1] < 1e-5, "then nothing is left to cover"
    assert len(set(choose_covering(of, 14, near)[0].tolist())) == 14


def test_a_choice_comes_nearer_than_chance_also_where_few_are_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(coverage, "STANDING", 200)
    monkeypatch.setattr(coverage, "LEAST_ASKED", 16)
    monkeypatch.setattr(coverage, "ASKED_AT_ONCE", 7)
    of, near = points(600, d=8), np.full(600, -1, np.float32)
    rows, _ = choose_covering(of, 30, near)
    assert len(set(rows.tolist())) == 30
    chance = random_reach(of, 30, near, 1)
    assert measure_reach(of, rows, near).mean[1] < chance.mean[0]


def test_blocks_change_nothing() -> None:
    of, centres = points(coverage.BLOCK + 7, seed=1), points(coverage.CENTRES + 5, seed=2)
    assert np.allclose(likeness_to(of, centres), (of @ centres.T).max(1), atol=1e-6)


def test_random_choices_are_a_range_and_repeat() -> None:
    of = points(300)
    near = np.full(300, -1, np.float32)
    one, again = random_reach(of, 10, near, 1), random_reach(of, 10, near, 1)
    assert one == again
    assert one != random_reach(of, 10, near, 2)
    assert one.largest[0] < one.largest[1] < one.largest[2]
    rows, _ = choose_covering(of, 10, near)
    assert measure_reach(of, rows, near).mean[1] < one.mean[0]
