"""Intervals of few windows: exact values, and what holds for any windows."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_profiler.precision import estimate
from pipeline_profiler.profiling.diagnose.intervals import Interval, t_quantile

ALTERNATING = [1.0, 4.0, 1.0, 4.0, 1.0, 4.0]  # mean 2; each neighbour on the other side of it
WINDOWS = st.lists(st.floats(0.1, 1000), min_size=estimate.MIN_WINDOWS, max_size=24)


def log_half(interval: Interval) -> float:
    return math.log1p(estimate.relative_half_width(interval))


def test_alternating_windows_have_the_plain_interval_of_student() -> None:
    found = estimate.window_mean(ALTERNATING)
    assert (found.value, found.n) == (pytest.approx(2), 6)
    # sd of the logs ln 2 x sqrt(6 / 5), over sqrt(6): .3100
    assert log_half(found) == pytest.approx(2.5706 * 0.3100, rel=1e-3)


def test_windows_that_agree_with_their_neighbours_widen_the_interval_twofold() -> None:
    runs = sorted(ALTERNATING)  # r = .5, without its bias (6 x .5 + 1) / 3, held at .6
    ratio = log_half(estimate.window_mean(runs)) / log_half(estimate.window_mean(ALTERNATING))
    assert ratio == pytest.approx(2)


@pytest.mark.parametrize(("repeats", "miss"), [(1, 0.05), (2, 0.03), (4, 0.05)])
def test_only_looks_that_select_narrow_intervals_have_a_level_of_their_own(
    repeats: int, miss: float
) -> None:
    found, df = estimate.window_mean(ALTERNATING * repeats), 6 * repeats - 1
    assert log_half(found) == pytest.approx(t_quantile(df, miss) * math.log(2) / math.sqrt(df))


@pytest.mark.parametrize("values", [[], [2.0], [2.0, 8.0]])
def test_fewer_than_three_windows_have_no_interval(values: list[float]) -> None:
    for found in (estimate.window_mean(values), estimate.unpaired_ratio(values, ALTERNATING)):
        assert (found.low, found.high) == (-math.inf, math.inf)
        assert estimate.relative_half_width(found) == math.inf
        assert estimate.is_inconclusive(found)
        assert not estimate.is_settled(found, 6)
    assert estimate.windows_to_settle(estimate.window_mean(values)) == 6 - len(values)


@given(WINDOWS, st.floats(0.1, 10))
def test_intervals_hold_their_value_scale_and_invert(values: list[float], factor: float) -> None:
    found = estimate.window_mean(values)
    assert found.low / (1 + 1e-9) <= found.value <= found.high * (1 + 1e-9)
    scaled = estimate.window_mean([v * factor for v in values])
    inverse = estimate.window_mean([1 / v for v in values])
    for other, ends in ((scaled, (found.low * factor, found.high * factor)),
                        (inverse, (1 / found.high, 1 / found.low))):  # fmt: skip
        assert (other.low, other.high) == pytest.approx(ends, rel=1e-5)


def test_pairs_are_the_common_rounds_in_their_order() -> None:
    below = dict.fromkeys(range(9), 2.0)
    above = {r: 2 * ALTERNATING[r] for r in (0, 2, 4, 1, 3, 5)} | {20: 1.0}
    assert estimate.paired_ratio(above, below) == estimate.window_mean(ALTERNATING)
    assert estimate.paired_ratio({1: 2.0}, {2: 2.0}) is None


def test_unpaired_ratio_is_welch_of_the_logs() -> None:
    found = estimate.unpaired_ratio(ALTERNATING, [1.0, 1.0, 1.0])
    # all of the variance is that of the first sample: its interval, at 5 degrees of freedom
    assert found == estimate.Interval(*[pytest.approx(v) for v in (2, found.low, found.high)], 9)
    assert log_half(found) == pytest.approx(log_half(estimate.window_mean(ALTERNATING)))
    equal = estimate.unpaired_ratio([3.0] * 4, [2.0] * 3)
    assert (equal.value, equal.low, equal.high) == pytest.approx((1.5, 1.5, 1.5))


def test_a_cell_stops_at_its_looks_only() -> None:
    def of(half: float) -> Interval:
        return Interval(1.0, 1 / (1 + half), 1 + half, 6)

    settled = {(r, h) for r in range(1, 26) for h in (0.04, 0.09, 0.11)
               if estimate.is_settled(of(h), r)}  # fmt: skip
    assert settled == {(6, 0.04)} | {(r, h) for r in (8, 12, 16, 20, 24) for h in (0.04, 0.09)}
    assert [estimate.is_inconclusive(of(h)) for h in (0.24, 0.26)] == [False, True]
    assert estimate.windows_to_settle(of(1.1**2 - 1)) == 18  # twice as wide: four times as many
    assert estimate.windows_to_settle(of(0.1)) == estimate.windows_to_settle(of(0.01)) == 0
