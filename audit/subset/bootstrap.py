"""Intervals for a user's own metric of a stratified, clustered subset: the rescaled bootstrap.

Rao and Wu (1988), JASA 83:231: from each stratum n_h - 1 of its n_h units are drawn with
replacement and the weights rescaled, w* = w (1 - L + L n_h/(n_h - 1) r) with r the times a unit was
drawn. With L = sqrt(1 - n_h/N_h) the spread of the replicates carries the finite-population
correction (full-set, zero at n_h = N_h); with L = 1 it does not (generalisation), and the stratum
sizes are redrawn too, because F's own composition owes to chance. Draws come from splitmix64, so a
subset and a seed give the same interval on every machine. A replicate is a vector of weights.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from audit.stats import Floats, Ints
from audit.subset.estimate import Estimand
from audit.subset.random_numbers import splitmix64

REPLICATES = 1000
# Values in one block of replicate weights: bounds the memory to about 32 MB.
BLOCK_VALUES = 4_000_000

WeightedMetric = Callable[[Floats], Floats]


def uniforms(count: int, stream: int) -> Floats:
    """Return `count` numbers in [0, 1) that depend on `stream` and the position alone."""
    # Counter-based: a number does not depend on how many were asked for before it.
    salt = splitmix64(np.array([stream % 2**64], np.uint64))
    bits = splitmix64(splitmix64(np.arange(count, dtype=np.uint64)) ^ salt)
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def replicate_weights(
    stratum: Ints, population: Floats, estimand: Estimand, replicates: int, stream: int
) -> Floats:
    """Return factors (replicates, units) that multiply the design weights.

    `stratum` codes each drawn unit, `population` is N_h.
    """
    units, count = stratum.size, population.size
    n = np.bincount(stratum, minlength=count)
    order = np.argsort(stratum, kind="stable")
    start = np.cumsum(n) - n
    # n - 1 of n units, not n: at L = 1 the replicates of a mean then have exactly s^2 / n.
    per_row = np.maximum(n - 1, 0)
    owner = np.repeat(np.arange(count), per_row)
    chance = uniforms(replicates * owner.size, 2 * stream).reshape(replicates, owner.size)
    # u n may round up to n itself: the last unit is the largest pick.
    pick = start[owner] + np.minimum((chance * n[owner]).astype(np.int64), n[owner] - 1)
    flat = (np.arange(replicates)[:, None] * units + order[pick]).ravel()
    times = np.bincount(flat, minlength=replicates * units).reshape(replicates, units)
    at_least_two = np.maximum(n, 2)
    fraction = n / np.maximum(population, 1)
    length = np.sqrt(1 - fraction) if estimand == "full-set" else np.ones(count)
    length = np.where(n > 1, length, 0.0)  # one unit cannot be resampled
    rescaled = length * at_least_two / (at_least_two - 1)
    factor = 1 - length[stratum] + rescaled[stratum] * times
    if estimand == "generalisation" and count > 1:
        factor *= _redrawn_sizes(population, replicates, stream)[:, stratum]
    return np.asarray(factor, float)


def _redrawn_sizes(population: Floats, replicates: int, stream: int) -> Floats:
    # Normal deviates with a Poisson's variance, rescaled to the total: the multinomial's variance
    # without drawing N units.
    from scipy.special import ndtri

    z = ndtri(
        np.clip(uniforms(replicates * population.size, 2 * stream + 1), 1e-12, 1 - 1e-12)
    ).reshape(replicates, population.size)
    sizes = np.maximum(population + z * np.sqrt(population), 0.0)
    return np.asarray(
        sizes / np.maximum(population, 1) * (population.sum() / sizes.sum(1)[:, None])
    )


def replicate_metric(
    metric: WeightedMetric,
    weight: Floats,
    unit: Ints,
    stratum: Ints,
    population: Floats,
    estimand: Estimand,
    replicates: int = REPLICATES,
    stream: int = 0,
) -> Floats:
    """Return the metric of `replicates` resampled subsets.

    `metric` maps weights of shape (rows, examples) to (rows,); `weight` and `unit` are per example,
    `stratum` per unit.
    """
    block = max(1, BLOCK_VALUES // max(unit.size, 1))
    parts = []
    for number, start in enumerate(range(0, replicates, block)):
        rows = min(block, replicates - start)
        factors = replicate_weights(stratum, population, estimand, rows, stream * 1000 + number)
        parts.append(metric(factors[:, unit] * weight))
    return np.concatenate(parts)
