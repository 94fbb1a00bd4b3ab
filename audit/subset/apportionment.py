"""Who gets the next unit: exact integer allocation to strata, one unit at a time, vectorised.

Every stratum first gets two units (one unit gives no variance). Then each next unit goes to the
stratum with the largest N_h S_h / sqrt(k (k + 1)), k being the units it has. Stopping that sequence
at any n is the *exact* optimum for that n, which rounding Neyman's shares is not, and it makes
subsets nested: Wright (2012), The American Statistician 66:217, who shows it is the method that
apportions the U.S. House of Representatives. S_h = 1 gives proportional allocation.

Cost: O(H log) for sizes and O(n log n) for the sequence; the rows of the set are never visited.
IEEE division and square root are exactly rounded, so the order is the same on every machine.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from audit.stats import Floats, Ints

FIRST_UNITS = 2
# Units per stratum that are looked at one by one around the threshold.
EDGE = 6


def order_units(sizes: Ints, scale: Floats, n: int, first: int = FIRST_UNITS) -> tuple[Ints, Ints]:
    """Return the strata of the first `n` units in order, and each unit's number in its stratum.

    `sizes` are N_h (units), `scale` S_h > 0. Ties go to the stratum that comes first. Stratum h
    takes at most N_h units; `n` must not exceed their sum.
    """
    counts = _candidate_counts(sizes, scale, n, first)
    stratum = np.repeat(np.arange(sizes.size), counts)
    number = np.arange(stratum.size) - np.repeat(np.cumsum(counts) - counts, counts)  # from 0
    weight = (sizes * scale)[stratum]
    k = np.maximum(number, 1).astype(np.float64)
    priority = weight / np.sqrt(k * (k + 1))
    rounds = np.minimum(number, first)  # the first units of all strata precede any third
    order = np.lexsort((number, stratum, -priority, rounds))[:n]
    return stratum[order].astype(np.int64), number[order].astype(np.int64)


def allocate(sizes: Ints, scale: Floats, n: int, first: int = FIRST_UNITS) -> Ints:
    """Return n_h for a subset of `n` units: how often each stratum occurs in `order_units`.

    Only the few units next to the threshold are put in order, so the cost does not grow with n.
    """
    if n >= sizes.sum():
        return sizes.astype(np.int64)
    if sizes.size == 1:
        return np.array([n], np.int64)
    floor = np.minimum(sizes, first)
    if n <= floor.sum():
        few = np.bincount(order_units(sizes, scale, n, first)[0], minlength=sizes.size)
        return np.asarray(few, np.int64)
    most = _candidate_counts(sizes, scale, n, first)
    sure = np.maximum(most - EDGE, floor)
    # A stratum's last few candidates are the only ones that another stratum can outbid.
    while sure.sum() > n:  # ties at the threshold: more units than usual are at the edge
        sure = np.maximum(sure - EDGE, floor)
    stratum = np.repeat(np.arange(sizes.size), most - sure)
    at_edge = most - sure
    number = np.arange(stratum.size) - np.repeat(np.cumsum(at_edge) - at_edge, at_edge)
    k = np.maximum(number + sure[stratum], 1).astype(np.float64)
    priority = (sizes * scale)[stratum] / np.sqrt(k * (k + 1))
    edge = np.lexsort((k, stratum, -priority))[: n - int(sure.sum())]
    return np.asarray(sure + np.bincount(stratum[edge], minlength=sizes.size), np.int64)


def _candidate_counts(sizes: Ints, scale: Floats, n: int, first: int) -> Ints:
    # Units whose priority is at least a threshold, the threshold bisected until they are enough.
    weight = sizes * scale
    floor = np.minimum(sizes, first)
    # A lower threshold never means fewer units, so bisection is safe; the result need not be tight.
    low, high = 0.0, float(weight.max()) if weight.size else 1.0
    for _ in range(200):
        middle = (low + high) / 2
        if _at_least(weight, sizes, floor, middle).sum() >= n:
            low = middle
        else:
            high = middle
        if high - low <= 1e-12 * high:
            break
    # Two more per stratum than the threshold needs: rounding may not lose a unit at the edge.
    return np.minimum(_at_least(weight, sizes, floor, low) + 2, sizes)


def _at_least(weight: Floats, sizes: Ints, floor: Ints, threshold: float) -> Ints:
    # N S / sqrt(k (k + 1)) >= threshold, solved for k: the positive root of k^2 + k = (N S / t)^2.
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        last = (np.sqrt(1 + 4 * (weight / threshold) ** 2) - 1) / 2 if threshold > 0 else np.inf
    units = np.minimum(np.floor(np.broadcast_to(last, weight.shape)) + 1, sizes)
    return np.asarray(np.maximum(floor, units), np.int64)


def scale_for_classes(sizes: Ints, classes: Ints, wanted: Floats) -> Floats:
    """Return the S_h that steer `order_units` to `wanted` units per class instead of to N_h.

    `classes` numbers the class of each stratum, `wanted` is per class. Within a class the strata
    share in proportion to N_h. Classes that want nothing keep only their first units for long.
    """
    in_class = np.bincount(classes, sizes, minlength=wanted.size)
    share: NDArray[np.float64] = wanted / np.maximum(in_class, 1)
    # S_h must stay above 0, or the last units of such a class would never be handed out.
    return np.asarray(np.maximum(share, share.max() * 1e-9)[classes], float)
