"""How sure are we: bootstrap intervals that stay honest with five repeats.

Stalls are heavy-tailed, so everything is a mean with a bootstrap interval, never a median.
Across repeats: BCa (Efron 1987), paired by block. With n=5 a plain percentile interval covers
far less than 95 %, so its levels are widened by the small-sample factor of Hesterberg (2015,
"What teachers should know about the bootstrap", expanded percentile interval). Inside one run,
step times repeat with the number of workers: moving blocks (Künsch 1989).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
LEVEL = 0.95
RESAMPLES = 4000
MOST_REPEATS = 200
_NORMAL = NormalDist()
_T_975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


@dataclass(frozen=True, slots=True)
class Interval:
    """A value with its 95 % interval; `n` is the number of repeats (or blocks) behind it."""

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


def t_quantile(df: int) -> float:
    """97.5 % quantile of Student's t: table to df 10, Cornish-Fisher expansion above."""
    if df <= len(_T_975):
        return _T_975[max(df, 1) - 1]
    z = _NORMAL.inv_cdf(0.5 + LEVEL / 2)
    return z + (z**3 + z) / (4 * df) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * df**2)


def mean_interval(values: Sequence[float], seed: int = 0) -> Interval:
    """BCa interval of a mean over repeats, expanded for small n.

    One value gives an infinite interval, two give Student's t; neither is a bootstrap's business.
    """
    x = np.asarray(values, dtype=np.float64)
    n = len(x)
    mean = float(x.mean()) if n else math.nan
    if n < 2:
        return Interval(mean, -math.inf, math.inf, n)
    if np.ptp(x) == 0:
        return Interval(mean, mean, mean, n)
    # two values have no shape to resample: normal theory is the honest answer
    if n == 2:
        half = t_quantile(1) * float(x.std(ddof=1)) / math.sqrt(2)
        return Interval(mean, mean - half, mean + half, n)
    low, high = _bca(x, np.random.default_rng(seed))
    return Interval(mean, min(low, mean), max(high, mean), n)


def _bca(x: Floats, rng: np.random.Generator) -> tuple[float, float]:
    n, mean = len(x), float(x.mean())
    means = x[rng.integers(0, n, (RESAMPLES, n))].mean(axis=1)
    # half of the ties, as a mean of few values often repeats exactly
    below = float(np.mean(means < mean) + np.mean(means == mean) / 2)
    # kept off 0 and 1, where the normal quantile is infinite
    bias = _NORMAL.inv_cdf(min(max(below, 1e-4), 1 - 1e-4))
    # jackknife: the mean without each repeat measures how skewness moves the ends (Efron 1987)
    jack = (x.sum() - x) / (n - 1)
    d = jack.mean() - jack
    spread = float((d**2).sum()) ** 1.5
    acceleration = float((d**3).sum()) / (6 * spread) if spread else 0.0
    # Student's t and the variance of n - 1 in place of the normal: with five repeats this alone
    # widens the interval by half (Hesterberg 2015)
    reach = math.sqrt(n / (n - 1)) * t_quantile(n - 1)
    ends = []
    for z in (bias - reach, bias + reach):
        # the denominator is held above 0.1: beyond it the correction would turn the ends around
        adjusted = bias + z / max(1 - acceleration * z, 0.1)
        ends.append(float(np.quantile(means, _NORMAL.cdf(adjusted))))
    return ends[0], ends[1]


def block_interval(
    values: Floats, block: int, statistic: Callable[[Floats], Floats] | None = None, seed: int = 0
) -> Interval:
    """Moving-block bootstrap inside one run.

    values: (n,) or (n, k), one row a step; statistic maps (resamples, n, ...) to (resamples,) and
    defaults to the mean. block >= workers x prefetch keeps the period of the workers intact.
    """
    x = np.asarray(values, dtype=np.float64)
    n = len(x)
    of = statistic or (lambda rows: rows.mean(axis=1))
    value = float(of(x[None])[0]) if n else math.nan
    # at least three blocks must fit, or every resample would be the run itself
    block = max(1, min(block, n // 3))
    if n < 6:
        return Interval(value, -math.inf, math.inf, n)
    rng = np.random.default_rng(seed)
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
    """How many more repeats would bring the interval's end past a bound that is `gap` away.

    The half width falls with the square root of n; at least one more is always named.
    """
    if not math.isfinite(interval.half_width):
        return 5
    if gap <= 0 or interval.half_width <= 0:
        return max(1, 3 * interval.n)
    need = interval.n * (interval.half_width / gap) ** 2
    return int(min(max(1, math.ceil(need - interval.n)), MOST_REPEATS))
