"""Redrawing a plan many times, compiled: distances of random subsets from the full set.

One partial Fisher-Yates shuffle per stratum and redraw; shuffling an already shuffled order stays
uniform, so the order is not reset. A module of its own because importing numba is slow.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def redraw_distances(
    chance: Floats,
    order: Ints,
    start: Ints,
    n_h: Ints,
    end: Ints,
    weight: Floats,
    table_start: Ints,
    level: Ints,
    files: Floats,
    target: Floats,
) -> Floats:
    """Return the total variation from `target` of one redraw per row of `chance`.

    `order` holds the units by stratum (changed in place), stratum h at start[h]:end[h]; unit u has
    `files` of `level` at table_start[u]:table_start[u + 1].
    """
    redraws, result = chance.shape[0], np.empty(chance.shape[0])
    total = np.empty(target.size)
    for r in range(redraws):
        total[:] = 0.0
        used = 0
        for h in range(n_h.size):
            left = end[h] - start[h]
            for k in range(n_h[h]):
                # chance < 1, but its product with a large count may round up to the count.
                pick = min(int(chance[r, used] * (left - k)), left - k - 1)
                here, there = start[h] + k, start[h] + k + pick
                order[here], order[there] = order[there], order[here]
                used += 1
                # Weighted as a later score would: N_h / n_h for each file of the unit.
                unit = order[here]
                for row in range(table_start[unit], table_start[unit + 1]):
                    total[level[row]] += weight[h] * files[row]
        result[r] = np.abs(total / total.sum() - target / target.sum()).sum() / 2
    return result
