"""Farthest first: what it promises, against brute force and against chance."""

from __future__ import annotations

import itertools

import numpy as np

from audit.choosing import coverage
from audit.choosing.coverage import choose_farthest, likeness_to, measure_reach, random_reach


def points(n: int, d: int = 3, seed: int = 0) -> np.ndarray:
    """Points of length 1."""
    rows = np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


NOTHING = np.full(14, -1, np.float32)


def test_the_largest_distance_is_at_most_twice_the_least_possible() -> None:
    for seed in range(5):
        of = points(14, seed=seed)
        best = min(
            measure_reach(of, np.array(rows), NOTHING).largest[1]
            for rows in itertools.combinations(range(14), 3)
        )
        rows, _ = choose_farthest(of, 3, NOTHING, 0)
        assert measure_reach(of, rows, NOTHING).largest[1] <= 2 * best + 1e-5


def test_what_is_known_counts_as_chosen() -> None:
    of = np.repeat(points(3), [6, 6, 2], axis=0)
    near = likeness_to(of, of[[0, 6]])
    rows, apart = choose_farthest(of, 2, near, 5)
    assert rows[0] >= 12, "the first is of the only cluster that nothing covers"
    assert apart[0] > 0.1
    assert apart[1] < 1e-3, "then nothing is left to cover"
    assert len(set(choose_farthest(of, 14, near, 0)[0])) == 14


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
    rows, _ = choose_farthest(of, 10, near, 0)
    assert measure_reach(of, rows, near).largest[1] < one.largest[0]
