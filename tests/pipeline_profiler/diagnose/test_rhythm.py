"""A step's own rhythm is found, and nothing is called one that is noise."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from pipeline_profiler.diagnose.rhythm import find_rhythm, without_rhythm

MS = 1_000_000


def step_times(n: int, every: int, more: float, seed: int = 0) -> NDArray[np.int64]:
    """Nanoseconds of `n` steps of 20 ms, each `every`-th longer by `more`; one in a hundred off."""
    rng = np.random.default_rng(seed)
    walls = 20.0 * (1 + 0.01 * rng.standard_normal(n))
    walls[every - 1 :: every] += more
    return (walls * MS).astype(np.int64)


@pytest.mark.parametrize(("every", "more"), [(2, 10.0), (4, 30.0), (10, 140.0), (4, -8.0)])
@pytest.mark.parametrize("seed", range(3))
def test_the_smallest_round_is_found(every: int, more: float, seed: int) -> None:
    assert find_rhythm(step_times(45, every, more, seed)) == every


def test_a_long_run_is_looked_at_in_part() -> None:
    walls = np.concatenate([step_times(1500, 4, 30.0), step_times(200_000, 7, 30.0)])
    assert find_rhythm(walls) == 4


def test_a_round_that_was_seen_twice_is_none() -> None:
    assert find_rhythm(step_times(22, 10, 140.0)) == 1


@pytest.mark.parametrize("n", [0, 1, 8, 20, 30, 120])
def test_noise_has_no_rhythm(n: int) -> None:
    found = []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        kinds = (rng.lognormal(3, 0.5, n), 20 + rng.pareto(1.5, n), np.full(n, 20.0))
        found += [find_rhythm((walls * MS).astype(np.int64)) > 1 for walls in kinds]
    assert sum(found) <= 1


def test_spikes_at_random_have_no_rhythm() -> None:
    for seed in range(200):
        walls = np.where(np.random.default_rng(seed).random(60) < 0.1, 160.0, 20.0)
        assert find_rhythm((walls * MS).astype(np.int64)) == 1


def test_without_its_rhythm_a_step_keeps_its_mean_and_loses_its_swing() -> None:
    walls = step_times(48, 4, 30.0)
    flat = without_rhythm(walls, 4)
    assert flat.mean() == pytest.approx(walls.mean())
    assert flat.std() < 0.02 * flat.mean() < 0.2 * walls.std()
    assert without_rhythm(walls, 1) == pytest.approx(walls)
    assert len(without_rhythm(walls[:0], 4)) == 0
