"""Intervals, tests and effect sizes for counts: thin over scipy, each formula with its source.

scipy lacks limits for a share of a *finite* set and Wilson limits at a non-integer size; everything
else is delegated. All functions take scalars or arrays that broadcast and
return floats in the unit of their inputs (shares in [0, 1]). scipy is imported by the functions
that need it, because `scipy.stats` takes a second to import.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from audit.errors import UsageError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def z_value(confidence: float) -> float:
    """Return the two-sided normal quantile of a confidence level, 1.96 for 0.95."""
    check_level(confidence, "confidence")
    return -NormalDist().inv_cdf((1 - confidence) / 2)


def check_level(value: float, name: str) -> None:
    """Raise UsageError unless 0 < value < 1."""
    if not 0 < value < 1:
        raise UsageError(f"{name} is {value}: give a number between 0 and 1, such as 0.95.")


def wilson(successes: ArrayLike, n: ArrayLike, confidence: float = 0.95) -> tuple[Floats, Floats]:
    """Return Wilson's score limits for `successes` of `n`; both may be non-integer.

    Wilson (1927), JASA 22:209. At n = 0 the limits are 0 and 1; at n = inf they meet.
    """
    k, size = np.asarray(successes, float), np.asarray(n, float)
    share = np.divide(k, size, out=np.full(np.broadcast(k, size).shape, 0.5), where=size > 0)
    return wilson_share(share, size, confidence)


def wilson_share(share: ArrayLike, n: ArrayLike, confidence: float = 0.95) -> tuple[Floats, Floats]:
    """Return Wilson's limits for an observed `share` at an (effective) sample size `n`."""
    p, size = np.clip(share, 0.0, 1.0), np.maximum(np.asarray(n, float), 1e-12)
    z2 = z_value(confidence) ** 2
    centre = (p + z2 / (2 * size)) / (1 + z2 / size)
    half = np.sqrt(z2 * (p * (1 - p) / size + z2 / (4 * size**2))) / (1 + z2 / size)
    # Rounding must not push a limit past a count of none or all.
    low = np.where(p <= 0, 0.0, np.clip(centre - half, 0, 1))
    high = np.where(p >= 1, 1.0, np.clip(centre + half, 0, 1))
    return low, high


def clopper_pearson(
    successes: ArrayLike, n: ArrayLike, confidence: float = 0.95
) -> tuple[Floats, Floats]:
    """Return the exact binomial limits; non-integer counts interpolate (Korn and Graubard 1998).

    Clopper and Pearson (1934), Biometrika 26:404: coverage is never below `confidence`.
    """
    from scipy.special import betainccinv, betaincinv

    check_level(confidence, "confidence")
    # Binomial tails are beta integrals, so the limits are quantiles of two beta distributions.
    k, size = np.broadcast_arrays(np.asarray(successes, float), np.asarray(n, float))
    tail = (1 - confidence) / 2
    tiny = 1e-300  # beta parameters must be positive; the true limits at 0 and n are set below
    low = betaincinv(np.maximum(k, tiny), size - k + 1, tail)
    high = betainccinv(k + 1, np.maximum(size - k, tiny), tail)
    return np.where(k <= 0, 0.0, low), np.where(k >= size, 1.0, high)


def midp_limits(successes: float, n: float) -> tuple[float, float]:
    """Return the 95% mid-p limits of a share from `successes` of `n`, which may be non-integer.

    Lancaster (1961), JASA 56:223: the observed count is half in each tail. At 0 and n: Clopper and
    Pearson's one-sided limits at the same tail.
    """
    from scipy.special import betainc

    def at_least(k: float, p: float) -> float:
        return 1.0 if k <= 0 else 0.0 if k > n else float(betainc(k, n - k + 1, p))

    def above(k: float, p: float) -> float:
        return 0.0 if k >= n else float(betainc(k + 1, n - k, p))

    def solve(k: float, wanted: float) -> float:
        low, high = 0.0, 1.0
        for _ in range(60):
            p = (low + high) / 2
            more = (at_least(k, p) + above(k, p)) / 2 > wanted
            low, high = (low, p) if more else (p, high)
        return (low + high) / 2

    low = 0.0 if successes <= 0 else solve(successes, 0.025)
    return low, 1.0 if successes >= n else solve(successes, 0.975)


def hypergeometric_limits(
    successes: ArrayLike, n: ArrayLike, population: ArrayLike, confidence: float = 0.95
) -> tuple[Ints, Ints]:
    """Return exact limits for the number of successes among all `population` items.

    `successes` of `n` items drawn without replacement. The limits are the counts that neither
    one-sided test at (1 - confidence)/2 rejects: Konijn (1973), Statistical Theory of Sample Survey
    Design and Analysis; Buonaccorsi (1987), The American Statistician 41:215.
    """
    from scipy.stats import hypergeom

    check_level(confidence, "confidence")
    k, size, total = np.broadcast_arrays(
        *(np.asarray(a, np.int64) for a in (successes, n, population))
    )
    if np.any(size > total):
        raise UsageError("The sample is larger than the set: n must not exceed the population.")
    tail = (1 - confidence) / 2
    # The upper limit is the lower limit of the failures, counted from the other end: one search for
    # both, and the two tests are treated alike to the last digit.
    low = _first_true(lambda m: hypergeom.sf(k - 1, total, m, size) > tail, k, total - size + k)
    mirrored = _first_true(
        lambda m: hypergeom.sf(size - k - 1, total, m, size) > tail, size - k, total - k
    )
    return low, total - mirrored


def _first_true(accepts: Callable[[Ints], Any], low: Ints, high: Ints) -> Ints:
    # Vectorised bisection for the smallest count that a monotone predicate accepts.
    low, high = low.astype(np.int64), high.astype(np.int64)
    while np.any(low < high):
        middle = (low + high) // 2
        accepted = accepts(middle)
        low, high = np.where(accepted, low, middle + 1), np.where(accepted, middle, high)
        low = np.minimum(low, high)
    return high


def effective_n(n: ArrayLike, population: ArrayLike) -> Floats:
    """Return n (N-1)/(N-n), the independent draws that n of N are worth; infinite at n = N.

    Cochran (1977), Sampling Techniques, section 3.2: the finite-population correction as a size.
    """
    size, total = np.asarray(n, float), np.asarray(population, float)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(size >= total, np.inf, size * (total - 1) / (total - size))


def mcnemar(b: ArrayLike, c: ArrayLike) -> Floats:
    """Return the two-sided p-value that `b` and `c` discordant examples are equally likely.

    McNemar's score test, which the interval of `paired_difference` inverts.
    """
    from scipy.special import chdtrc

    first, second = np.asarray(b, float), np.asarray(c, float)
    return np.asarray(chdtrc(1, (first - second) ** 2 / np.maximum(first + second, 1)))


def paired_difference(
    gain: ArrayLike, loss: ArrayLike, n: ArrayLike, confidence: float = 0.95
) -> tuple[Floats, Floats]:
    """Return limits for gain - loss, two shares of discordant examples, at effective size `n`.

    The score interval of Tango (1998), Statistics in Medicine 17:891. Zero width at n = inf.
    """
    up, down, size = np.broadcast_arrays(*(np.asarray(a, float) for a in (gain, loss, n)))
    known, z = np.isinf(size), z_value(confidence)
    finite = np.where(known, 1.0, np.maximum(size, 1e-9))
    middle = up - down

    def limit(end: float) -> Floats:
        # halving the gap between the estimate and the end of the scale: to the last bits in 60
        inside, outside = middle.astype(float), np.full(middle.shape, end)
        for _ in range(60):
            tried = (inside + outside) / 2
            kept = np.abs(_tango_score(up, down, finite, tried)) <= z
            inside, outside = np.where(kept, tried, inside), np.where(kept, outside, tried)
        return np.asarray(np.where(known, middle, inside))

    return limit(-1.0), limit(1.0)


def _tango_score(up: Floats, down: Floats, n: Floats, difference: Floats) -> Floats:
    """Return the score of a difference: observed less assumed, over its standard error under it."""
    # the loss that is likeliest under the assumed difference: the root of a quadratic
    half = (up + down - (2 - up + down) * difference) / 4
    loss = half + np.sqrt(np.maximum(half**2 + down * difference * (1 - difference) / 2, 0.0))
    variance = np.maximum(2 * loss + difference * (1 - difference), 1e-15)
    return np.asarray((up - down - difference) * np.sqrt(n / variance))


def alpha_for_looks(confidence: float, looks: int) -> float:
    """Return the error rate left for one of `looks` comparisons fixed in advance: Bonferroni."""
    check_level(confidence, "confidence")
    if looks < 1:
        raise UsageError(
            f"[plan] comparisons is {looks}: give the number of planned comparisons, at least 1."
        )
    return (1 - confidence) / looks


def benjamini_hochberg(p_values: ArrayLike) -> Floats:
    """Return p-values adjusted to control the false discovery rate, in the input's order.

    Benjamini and Hochberg (1995), JRSS B 57:289.
    """
    p = np.asarray(p_values, float).ravel()
    order = np.argsort(-p, kind="stable")  # from the largest down, each at most the one above
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum.accumulate(p[order] * p.size / np.arange(p.size, 0, -1))
    return np.minimum(adjusted, 1.0)


def rarity(counts: ArrayLike, expected: ArrayLike) -> Floats:
    """Return the p-value that a count so small comes from chance, times the number of counts; 1
    where it is not below what is expected.

    Poisson: the cells of a table that was dealt at random; Bonferroni over its cells.
    """
    n, mean = np.asarray(counts, float), np.asarray(expected, float)
    chance, below = np.ones(n.shape), n < mean
    if below.any():
        from scipy.special import pdtr

        chance[below] = np.minimum(1.0, pdtr(n[below], mean[below]) * n.size)
    return chance


def hypergeometric_tails(
    inside: ArrayLike, n: ArrayLike, marked: ArrayLike, population: ArrayLike
) -> tuple[Floats, Floats]:
    """Return P(X <= inside) and P(X >= inside) of `n` draws, of a population with `marked` ones."""
    from scipy.special import betaln

    k, draws, good, size = np.broadcast_arrays(
        *(np.asarray(a, float) for a in (inside, n, marked, population))
    )

    def log_choose(of: Floats, some: Floats) -> Floats:
        return np.asarray(-np.log1p(of) - betaln(of - some + 1, some + 1))

    possible = (k >= np.maximum(0, draws + good - size)) & (k <= np.minimum(draws, good))
    at = np.clip(k, np.maximum(0, draws + good - size), np.minimum(draws, good))
    logs = log_choose(good, at) + log_choose(size - good, draws - at) - log_choose(size, draws)
    chance = np.where(possible, np.exp(logs), 0.0)
    up = k >= draws * good / np.maximum(size, 1)
    term, total, step = chance.copy(), chance.copy(), at.copy()
    while np.any(term > 1e-17 * np.maximum(total, 1e-300)):
        with np.errstate(divide="ignore", invalid="ignore"):  # of the direction not taken
            rise = (good - step) * (draws - step) / ((step + 1) * (size - good - draws + step + 1))
            fall = step * (size - good - draws + step) / ((good - step + 1) * (draws - step + 1))
        term = np.where(term > 0, term * np.where(up, rise, fall), 0.0)
        total, step = total + term, step + np.where(up, 1, -1)
    # an impossible count lies beyond one end: nothing is there, and everything on the other side
    rest = np.clip(1 - total + chance, 0.0, 1.0)
    return np.where(up, rest, total), np.where(up, total, rest)


def intraclass_correlation(values: ArrayLike, units: ArrayLike) -> float:
    """Return the ANOVA estimate of the correlation of two files of one unit, in [0, 1].

    Donner (1986), International Statistical Review 54:67. NaN if every unit has one file.
    """
    y = np.asarray(values, float)
    code = np.unique(np.asarray(units), return_inverse=True)[1]
    m = np.bincount(code).astype(float)
    k, n = m.size, y.size
    if k in (n, 1):
        return float("nan")
    # One-way analysis of variance; m0 is the unit size that makes unequal units balance.
    means = np.bincount(code, y) / m
    between = float((m * (means - y.mean()) ** 2).sum()) / (k - 1)
    within = float(((y - means[code]) ** 2).sum()) / (n - k)
    m0 = (n - (m**2).sum() / n) / (k - 1)
    total = between + (m0 - 1) * within
    # All values equal: files that are always alike, the cautious reading.
    return float(np.clip((between - within) / total, 0.0, 1.0)) if total > 0 else 1.0


def kappa_parts(a: Ints, b: Ints, share: Floats) -> tuple[float, float, Floats]:
    """Return the agreement of two raters' answers (n,), that of chance, and how much each thing
    moves (1 - chance) times kappa (Cohen 1960; Fleiss, Cohen and Everitt 1969).

    Answers are numbers from 0 on; `share` (n,), of sum 1, is what each thing counts. The influence
    is linear, through both marginal distributions; 0 where chance is all that there is.
    """
    levels = int(max(a.max(), b.max())) + 1
    of_a, of_b = (np.bincount(v, share, levels) for v in (a, b))
    chance, alike = float(of_a @ of_b), (a == b).astype(float)
    observed = float(share @ alike)
    if chance >= 1:
        return observed, chance, np.zeros(len(a))
    by_chance = of_b[a] + of_a[b] - 2 * chance
    return observed, chance, alike - observed - (1 - observed) / (1 - chance) * by_chance


def total_variation(p: ArrayLike, q: ArrayLike) -> float:
    """Return half the summed absolute difference of two distributions: 0 same, 1 disjoint."""
    first, second = np.asarray(p, float), np.asarray(q, float)
    return float(np.abs(first / first.sum() - second / second.sum()).sum() / 2)


def cramers_v(table: ArrayLike) -> float:
    """Return the bias-corrected association of a contingency table of counts, 0 none to 1.

    Bergsma (2013), Journal of the Korean Statistical Society 42:323.
    """
    counts = np.asarray(table, float)
    counts = counts[counts.sum(1) > 0][:, counts.sum(0) > 0]
    n, (r, k) = counts.sum(), counts.shape
    if n < 2 or min(r, k) < 2:
        return 0.0
    # Independent columns give phi2 = (k-1)(r-1)/(n-1) on average: what chance adds is taken out.
    expected = np.outer(counts.sum(1), counts.sum(0)) / n
    phi2 = float(((counts - expected) ** 2 / expected).sum()) / n
    phi2 = max(0.0, phi2 - (k - 1) * (r - 1) / (n - 1))
    r_fixed, k_fixed = r - (r - 1) ** 2 / (n - 1), k - (k - 1) ** 2 / (n - 1)
    limit = min(r_fixed, k_fixed) - 1
    return float(np.sqrt(phi2 / limit)) if limit > 0 else 0.0
