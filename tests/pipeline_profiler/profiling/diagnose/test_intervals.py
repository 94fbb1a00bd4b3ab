"""Intervals: known values, coverage, and what little data gives."""

import math

import numpy as np
import pytest

from pipeline_profiler.profiling.diagnose.intervals import (
    Interval,
    block_interval,
    difference_interval,
    mean_interval,
    ratio_of_sums,
    repeats_to_settle,
    saved_share,
    t_quantile,
)


@pytest.mark.parametrize(
    ("df", "value"), [(1, 12.706), (4, 2.776), (10, 2.228), (30, 2.0423), (2.5, 3.575)]
)
def test_t_quantiles_match_the_tables(df: float, value: float) -> None:
    assert t_quantile(df) == pytest.approx(value, abs=0.02 if df % 1 else 2e-3)


@pytest.mark.parametrize("repeats", [3, 4, 5, 8])
def test_few_repeats_cover_as_promised(repeats: int) -> None:
    """95 % of the intervals hold the true share; 1,500 draws leave 1.7 % of chance (3 sigma)."""
    rng = np.random.default_rng(repeats)
    draws, hits, shared = 1500, 0, 0.05
    for _ in range(draws):
        block = rng.lognormal(0, shared, repeats)
        pairs = [20 * block, 30 * block] * rng.lognormal(0, 0.02, (2, repeats))
        found = saved_share(list(zip(*pairs.tolist(), strict=True)))
        hits += found.low <= 1 / 3 <= found.high
    assert hits / draws == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize(("a", "b"), [(3, 3), (5, 5), (3, 8)])
def test_equal_sessions_differ_in_five_percent(a: int, b: int) -> None:
    rng = np.random.default_rng(a)
    draws, told = 1500, 0
    for _ in range(draws):
        found = difference_interval(rng.normal(0, 1, a).tolist(), rng.normal(0, 1, b).tolist())
        told += not found.low <= 0 <= found.high
    assert 0.02 <= told / draws <= 0.07


def test_an_end_beyond_all_numbers_is_unknown() -> None:
    assert saved_share([(1.0, 1e9), (1e9, 1.0)]).low == -math.inf


def test_one_repeat_says_nothing_and_equal_ones_everything() -> None:
    alone = mean_interval([0.4])
    assert (alone.value, alone.low, alone.high) == (0.4, -math.inf, math.inf)
    share = saved_share([(2.0, 3.0)])
    assert (share.value, share.low, share.high) == (pytest.approx(1 / 3), -math.inf, math.inf)
    same = mean_interval([0.4, 0.4, 0.4])
    assert (same.low, same.high) == pytest.approx((0.4, 0.4))


def test_blocks_keep_the_period_of_the_workers() -> None:
    """A sawtooth of period 4: blocks of 4 know its mean well, blocks of 1 do not."""
    saw = np.tile([0.0, 0.0, 0.0, 8.0], 50)
    wide, narrow = block_interval(saw, 1), block_interval(saw, 4)
    assert narrow.value == wide.value == 2.0
    assert narrow.half_width < wide.half_width / 3


def test_ratio_is_of_sums_not_a_mean_of_ratios() -> None:
    rows = np.array([[1.0, 10.0], [9.0, 10.0]] * 10)
    assert block_interval(rows, 2, ratio_of_sums).value == pytest.approx(0.5)


def test_unknown_ends_are_none() -> None:
    data = mean_interval([0.4]).as_dict()
    assert data == {"share": 0.4, "low": None, "high": None, "n": 1}


def test_more_repeats_grow_with_the_square_of_the_width() -> None:
    assert repeats_to_settle(Interval(0.06, 0.02, 0.10, 5), 0.01) == 75
    assert repeats_to_settle(Interval(0.10, 0.04, 0.16, 5), 0.05) == 3
    assert repeats_to_settle(Interval(0.1, -math.inf, math.inf, 1), 0.05) == 5
