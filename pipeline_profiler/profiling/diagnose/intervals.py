"""Confidence intervals that hold 95% of the time with three repeats as with eight.

Across repeats: Student's t of the logarithm of a ratio inside each block; two sessions: Welch;
inside one run: moving blocks (Kuensch 1989). A measurement that may stop early uses repeated
intervals (Jennison and Turnbull 1989) with levels of Lan and DeMets 1983 (Pocock type).
`benchmarks/profiler.py` measures the coverage.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
LEVEL = 0.95
MISS = 1 - LEVEL
FIRST_LOOK = 3  # blocks
# probability that the interval of the first, second and last look misses: .05 ln(1 + (e - 1) n / 5)
# spent at n = 3, 4, 5 blocks, for the joint distribution of their t statistics (16 million draws)
LOOK_MISS = (0.0354, 0.0180, 0.0151)
MOST_REPEATS = 200
MOST_LOG = 50.0  # of a ratio: beyond it an end is unknown, not large
MOST_DEGREES = 1000.0  # of freedom: beyond it Student's t is the normal distribution


@dataclass(frozen=True, slots=True)
class Interval:
    """A value with its 95% CI; `n` is the number of repeats (or blocks) behind it."""

    value: float
    low: float
    high: float
    n: int = 0

    def widened(self, by: float) -> Interval:
        """The interval with a known systematic uncertainty added on both sides."""
        return Interval(self.value, self.low - by, self.high + by, self.n)

    def scaled(self, factor: float) -> Interval:
        """The interval in another unit."""
        ends = sorted((self.low * factor, self.high * factor))
        return Interval(self.value * factor, ends[0], ends[1], self.n)

    def as_dict(self) -> dict[str, float | int | None]:
        """Plain data for the session; an unknown end is None."""
        ends = {"low": self.low, "high": self.high}
        known = {k: v if math.isfinite(v) else None for k, v in ends.items()}
        return {"share": self.value if math.isfinite(self.value) else None, **known, "n": self.n}

    @property
    def half_width(self) -> float:
        """Half the length of the interval."""
        return (self.high - self.low) / 2


def miss_of(blocks: int, early_stop: bool) -> float:
    """Return the probability that the interval misses, by the looks taken at so many blocks."""
    looks = blocks - FIRST_LOOK if early_stop else -1
    return LOOK_MISS[min(looks, len(LOOK_MISS) - 1)] if looks >= 0 else MISS


@lru_cache(maxsize=256)
def t_quantile(df: float, miss: float = MISS) -> float:
    """The value that Student's t exceeds on either side with probability `miss`.

    With t = sqrt(df) tan(a) the density of the angle a is proportional to cos(a) ** (df - 1).
    """
    df = min(max(df, 1.0), MOST_DEGREES)
    angle = np.linspace(0, math.pi / 2, 8001)
    density = np.cos(angle) ** (df - 1)
    below = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    return math.sqrt(df) * math.tan(float(np.interp((1 - miss) * below[-1], below, angle)))


def mean_interval(values: Sequence[float], miss: float = MISS) -> Interval:
    """Student's interval of a mean over repeats; of one value it is infinite."""
    x = np.asarray(values, dtype=np.float64)
    n = len(x)
    mean = float(x.mean()) if n else math.nan
    if n < 2:
        return Interval(mean, -math.inf, math.inf, n)
    half = t_quantile(n - 1, miss) * float(x.std(ddof=1)) / math.sqrt(n)
    return Interval(mean, mean - half, mean + half, n)


def geometric_mean(values: Iterable[float], miss: float = MISS) -> Interval:
    """Student's interval of a mean of positive values over repeats, by their logarithms."""
    logs = mean_interval([math.log(value) for value in values], miss)
    ends = (logs.value, logs.low, logs.high)
    value, low, high = (math.inf if end > MOST_LOG else math.exp(end) for end in ends)
    return Interval(value, low, high, logs.n)


def saved_share(pairs: Sequence[tuple[float, float]], miss: float = MISS) -> Interval:
    """1 - first / second over pairs of positive periods, averaged as logarithms."""
    left = geometric_mean((first / second for first, second in pairs), miss)
    high = 1 - left.low if left.n > 1 else math.inf
    return Interval(1 - left.value, 1 - left.high, high, left.n)


def difference_interval(a: Sequence[float], b: Sequence[float]) -> Interval:
    """Mean of `a` less mean of `b`, unpaired: Welch's interval; two values of each at least."""
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    parts = (float(x.var(ddof=1)) / len(x), float(y.var(ddof=1)) / len(y))
    middle, variance = float(x.mean() - y.mean()), sum(parts)
    if variance == 0:
        return Interval(middle, middle, middle, len(x) + len(y))
    df = variance**2 / (parts[0] ** 2 / (len(x) - 1) + parts[1] ** 2 / (len(y) - 1))
    half = t_quantile(df) * math.sqrt(variance)
    return Interval(middle, middle - half, middle + half, len(x) + len(y))


def block_interval(
    values: Floats, block: int, statistic: Callable[[Floats], Floats] | None = None
) -> Interval:
    """Return the moving-block bootstrap interval inside one run.

    values: (n,) or (n, k), a row per step; statistic maps (resamples, n, ...) to (resamples,).
    block >= workers x prefetch keeps the period of the workers.
    """
    x = np.asarray(values, dtype=np.float64)
    n = len(x)
    of = statistic or (lambda rows: rows.mean(axis=1))
    value = float(of(x[None])[0]) if n else math.nan
    # at least three blocks must fit, or every resample would be the run itself
    block = max(1, min(block, n // 3))
    if n < 6:
        return Interval(value, -math.inf, math.inf, n)
    rng = np.random.default_rng(0)
    starts = rng.integers(0, n - block + 1, (500, -(-n // block)))
    rows = (starts[:, :, None] + np.arange(block)).reshape(500, -1)[:, :n]
    low, high = np.quantile(of(x[rows]), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    # a skewed resample may leave the value outside: an interval must hold its own estimate
    return Interval(value, min(float(low), value), max(float(high), value), -(-n // block))


def ratio_of_sums(rows: Floats) -> Floats:
    """Statistic for `block_interval`: sum of column 0 over sum of column 1."""
    sums: Floats = rows.sum(axis=1)
    return sums[:, 0] / sums[:, 1]


def repeats_to_settle(interval: Interval, gap: float) -> int:
    """Return how many more repeats move the interval's end by `gap`, at least one."""
    if not math.isfinite(interval.half_width):
        return 5
    if gap <= 0 or interval.half_width <= 0:
        return max(1, 3 * interval.n)
    need = interval.n * (interval.half_width / gap) ** 2
    return int(min(max(1, math.ceil(need - interval.n)), MOST_REPEATS))
