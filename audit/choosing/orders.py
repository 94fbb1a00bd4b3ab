"""The orders of doubt and of rarity: which candidate comes first, and why."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from audit.errors import UsageError
from audit.subset.probabilities import PROBABILITY

Doubt = Literal["margin", "entropy"]
Numbers = npt.NDArray[np.float64]


def doubt_of(candidates: pl.DataFrame, measure: Doubt) -> Numbers:
    """Return how doubtful a model is of each candidate, 0..1; NaN without a prediction.

    margin: one less the lead of the likeliest class over the next. entropy: of the probabilities,
    as a share of that of an even guess. Where only a confidence is given: one less that.
    """
    names = [c for c in candidates.columns if c.startswith(PROBABILITY)]
    if len(names) > 1:
        values = candidates.select(names).cast(pl.Float64).fill_null(np.nan).to_numpy()
        return _margin(values) if measure == "margin" else _entropy(values)
    if "confidence" not in candidates.columns:
        raise UsageError(
            "--by uncertainty needs how sure a model is: give --predictions with a `confidence` "
            "column, or with one prob_<class> column a class."
        )
    if measure == "entropy":
        raise UsageError(
            "--doubt entropy needs one prob_<class> column a class in --predictions; a confidence "
            "alone gives the margin."
        )
    return 1 - candidates["confidence"].fill_null(np.nan).to_numpy()


def _margin(values: Numbers) -> Numbers:
    best = np.sort(values, axis=1)
    return np.asarray(1 - (best[:, -1] - best[:, -2]))


def _entropy(values: Numbers) -> Numbers:
    logs = np.log(np.where(values > 0, values, 1))
    total: Numbers = -(values * logs).sum(1) / np.log(values.shape[1])
    return total


def fill_rarest(cells: list[str], known: Mapping[str, int], n: int) -> npt.NDArray[np.int64]:
    """Return `n` places in `cells`, each of the cell that has fewest by then, in order of place.

    `known`: how many each cell has already. A cell without a candidate left is passed over.
    """
    waiting: dict[str, list[int]] = {}
    for place, cell in enumerate(cells):
        waiting.setdefault(cell, []).append(place)
    for places in waiting.values():
        places.reverse()
    heap = [(known.get(cell, 0), cell) for cell in waiting]
    heapq.heapify(heap)
    chosen: list[int] = []
    while heap and len(chosen) < n:
        count, cell = heap[0]
        chosen.append(waiting[cell].pop())
        if waiting[cell]:
            heapq.heapreplace(heap, (count + 1, cell))
        else:
            heapq.heappop(heap)
    return np.array(chosen, np.int64)
