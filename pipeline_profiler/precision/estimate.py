"""Intervals of times and ratios from short timed windows, and when a cell may stop.

A window's value is its median period in ms. Windows of a cell are seconds apart and in time order:
the host's pace has states that last, so neighbouring windows can agree more than distant windows.
`benchmarks/precision_coverage.py` measures the coverage with and without the stop rule.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from pipeline_profiler.profiling.diagnose.intervals import (
    MISS,
    MOST_LOG,
    Floats,
    Interval,
    t_quantile,
)

LOOKS = (6, 8, 12, 16, 20, 24)  # rounds after which a cell may stop
MIN_WINDOWS = 3  # fewer have no interval
EARLY_HALF_WIDTH, HALF_WIDTH = 0.05, 0.10  # at the first look, at later looks
MAX_HALF_WIDTH = 0.25  # above it a figure is inconclusive
# At a look between the first and the last, a narrow interval ends the measurement: it is selected.
# At this level of its own, it misses in 5% of the measurements that end there.
LATER_MISS = 0.03
MAX_CORRELATION = 0.6  # widens an interval twofold; few windows cannot prove more


def window_mean(values: Sequence[float]) -> Interval:
    """Return the geometric mean of positive values in time order, with its 95% CI.

    Student's t of the logarithms, widened by their lag-1 autocorrelation. Infinite ends below
    `MIN_WINDOWS` values; NaN of none.
    """
    logs = np.log(np.asarray(values, dtype=np.float64))
    n = len(logs)
    half = (
        t_quantile(n - 1, _miss(n)) * math.sqrt(_variance(logs)) if n >= MIN_WINDOWS else math.inf
    )
    return _exp_interval(float(logs.mean()) if n else math.nan, half, n)


def paired_ratio(above: Mapping[int, float], below: Mapping[int, float]) -> Interval | None:
    """Return the geometric mean of above / below over the rounds of both; None without any."""
    rounds = sorted(above.keys() & below.keys())
    return window_mean([above[r] / below[r] for r in rounds]) if rounds else None


def unpaired_ratio(above: Sequence[float], below: Sequence[float]) -> Interval:
    """Return the ratio of the geometric means of independent samples, each in time order.

    Welch's interval of the logarithms, each variance widened by its own lag-1 autocorrelation.
    Infinite ends where a sample has fewer than `MIN_WINDOWS` values.
    """
    samples = [np.log(np.asarray(values, dtype=np.float64)) for values in (above, below)]
    sizes = [len(logs) for logs in samples]
    middle = float(samples[0].mean() - samples[1].mean()) if min(sizes) else math.nan
    if min(sizes) < MIN_WINDOWS:
        return _exp_interval(middle, math.inf, sum(sizes))
    parts = [_variance(logs) for logs in samples]
    # Welch's degrees of freedom; without any variance they multiply zero
    of_parts = sum(part**2 / (n - 1) for part, n in zip(parts, sizes, strict=True)) or 1.0
    t = t_quantile(sum(parts) ** 2 / of_parts, _miss(max(sizes)))
    return _exp_interval(middle, t * math.sqrt(sum(parts)), sum(sizes))


def relative_half_width(interval: Interval) -> float:
    """Return half of the width on the log scale as a share of the value; inf without ends."""
    if not (interval.low > 0 and math.isfinite(interval.high)):
        return math.inf
    return math.expm1(math.log(interval.high / interval.low) / 2)


def is_settled(interval: Interval, rounds: int) -> bool:
    """Return whether a cell may stop after these rounds; False between looks."""
    target = EARLY_HALF_WIDTH if rounds == LOOKS[0] else HALF_WIDTH
    return rounds in LOOKS and relative_half_width(interval) < target


def is_inconclusive(interval: Interval) -> bool:
    """Return whether the interval is too wide to report its value as a result."""
    return relative_half_width(interval) > MAX_HALF_WIDTH


def windows_to_settle(interval: Interval) -> int:
    """Return how many more windows reach `HALF_WIDTH`; without ends, the first look."""
    half = relative_half_width(interval)
    if math.isinf(half):
        return max(1, LOOKS[0] - interval.n)
    need = interval.n * (math.log1p(half) / math.log1p(HALF_WIDTH)) ** 2
    return max(0, math.ceil(need - interval.n - 1e-6))  # rounding needs no window


def _miss(windows: int) -> float:
    return LATER_MISS if LOOKS[0] < windows < LOOKS[-1] else MISS


def _variance(logs: Floats) -> float:
    """Return the variance of the mean of correlated values, of `MIN_WINDOWS` at least."""
    n, apart = len(logs), logs - logs.mean()
    squares = float(apart @ apart)
    if squares == 0:
        return 0.0
    # n values estimate a correlation r as r - (1 + 3 r) / n on average (Kendall 1954)
    unbiased = (n * float(apart[1:] @ apart[:-1]) / squares + 1) / max(n - 3, 1)
    r = min(max(unbiased, 0.0), MAX_CORRELATION)
    return squares / (n - 1) / n * (1 + r) / (1 - r)


def _exp_interval(middle: float, half: float, n: int) -> Interval:
    value = math.exp(middle)
    if half > MOST_LOG:
        return Interval(value, -math.inf, math.inf, n)
    return Interval(value, math.exp(middle - half), math.exp(middle + half), n)
