"""Intervals: known values, coverage, and what little data gives."""

import math

import numpy as np
import pytest

from pipeline_profiler.diagnose.intervals import (
    Interval,
    block_interval,
    mean_interval,
    ratio_of_sums,
    repeats_to_settle,
    t_quantile,
)


@pytest.mark.parametrize(("df", "value"), [(1, 12.706), (4, 2.776), (10, 2.228), (30, 2.0423)])
def test_t_quantiles_match_the_tables(df: int, value: float) -> None:
    assert t_quantile(df) == pytest.approx(value, abs=2e-3)


@pytest.mark.parametrize("draw", ["normal", "exponential"])
def test_five_repeats_cover_as_promised(draw: str) -> None:
    """At least 90 % of the 95 % intervals hold the true mean; a plain percentile gives 80-84 %."""
    rng = np.random.default_rng(1)
    truth = 1.0 if draw == "exponential" else 0.0
    hits = 0
    for i in range(300):
        sample = rng.exponential(1, 5) if draw == "exponential" else rng.normal(0, 1, 5)
        found = mean_interval(sample.tolist(), seed=i)
        hits += found.low <= truth <= found.high
    assert hits / 300 >= (0.90 if draw == "normal" else 0.85)


def test_one_repeat_says_nothing_and_equal_ones_everything() -> None:
    alone = mean_interval([0.4])
    assert (alone.value, alone.low, alone.high) == (0.4, -math.inf, math.inf)
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
