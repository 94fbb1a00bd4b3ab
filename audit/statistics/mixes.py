"""Mixes: whether splits hold classes of objects in other shares than chance gives whole units.

The null deals whole units out again: up to `DEALT` units that is done; beyond, the sum over the
units of a split is normal, with the covariance that dealing out has.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from audit.statistics.intervals import Floats, Ints

Mask = NDArray[np.bool_]
DRAWS = 2000  # p-values down to 1 / 2001
DEALT, AT_ONCE = 5000, 250


class Mix(NamedTuple):
    """The total variation between two mixes, what chance makes of it on average, and its p-value.

    `there` and `here` are the objects of each class.
    """

    there: Floats
    here: Floats
    total_variation: float
    by_chance: float
    p: float


def compare_mixes(unit: Ints, label: Ints, n: Ints, here: Mask, n_classes: int) -> Mix:
    """Compare the mix of classes of the units in `here` with that of the others.

    A row is a unit (place in `here`), a class and a number of objects.
    """
    from scipy.sparse import csr_array

    held = csr_array((n.astype(float), (unit, label)), shape=(len(here), n_classes))
    total = np.asarray(held.sum(0)).ravel()
    mine = np.asarray(held[np.flatnonzero(here)].sum(0)).ravel()
    seen = float(_apart(mine[None], total)[0])
    deal = _dealt if len(here) <= DEALT else _normal
    apart = deal(held, total, int(here.sum()))
    p = float((1 + (apart >= seen - 1e-12).sum()) / (len(apart) + 1))
    return Mix(total - mine, mine, seen, float(apart.mean()), p)


def _apart(mine: Floats, total: Floats) -> Floats:
    """Return the total variation of each row of counts from what it leaves of the total."""
    rest = total - mine
    sizes, others = (np.maximum(x.sum(1, keepdims=True), 1e-12) for x in (mine, rest))
    return np.asarray(np.abs(mine / sizes - rest / others).sum(1) / 2)


def _dealt(held: Any, total: Floats, size: int) -> Floats:
    """Return the total variation of `DRAWS` splits of whole units, `size` of them."""
    rng, units = np.random.default_rng(0), held.shape[0]
    turned, found = held.T.tocsr(), []
    for _ in range(0, DRAWS, AT_ONCE):
        keys = rng.random((AT_ONCE, units))
        chosen = np.zeros((units, AT_ONCE))
        np.put_along_axis(chosen, np.argpartition(keys, size - 1, axis=1)[:, :size].T, 1.0, axis=0)
        found.append(_apart((turned @ chosen).T, total))
    return np.concatenate(found)


def _normal(held: Any, total: Floats, size: int) -> Floats:
    units, classes = held.shape
    share = total / total.sum()
    many = np.asarray(held.sum(1)).ravel()
    cross = np.asarray(held.T @ many).ravel()
    product = (held.T @ held).toarray()
    spread = (
        product - np.outer(share, cross) - np.outer(cross, share)
        + np.outer(share, share) * float(many @ many)
    )  # fmt: skip
    rest = units - size
    spread *= size * rest / (units * max(units - 1, 1))
    # the difference of the two shares is the sum over the units, over the objects of either side
    scale = (1 / size + 1 / rest) / (total.sum() / units)
    values, vectors = np.linalg.eigh(spread)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    drawn = np.random.default_rng(0).normal(size=(DRAWS, classes)) @ root.T
    return np.asarray(np.abs(drawn).sum(1) * scale / 2)


def never_drawn(marked: Ints, drawn: Ints, population: int) -> Floats:
    """Return the probability that none of `marked` is among `drawn` of a population."""
    from scipy.special import gammaln

    n, m, k = float(population), np.asarray(marked, float), np.asarray(drawn, float)
    rest = np.maximum(n - m - k, 0.0)
    chance = np.exp(gammaln(n - m + 1) - gammaln(rest + 1) - gammaln(n + 1) + gammaln(n - k + 1))
    return np.where(n - m < k, 0.0, chance)
