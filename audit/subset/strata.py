"""Merging strata that are too small to say anything about their own variance.

A stratum from which one unit is drawn shows no variance, and intervals built on such strata cover
84 to 91 % instead of 95. So strata of one unit are joined to a neighbour, and on request the
smallest ones are joined until the sample gives every stratum two. The neighbour is the smallest
stratum of the same label, else the smallest of all; ties go to the name that sorts first. Loops run
over strata, never over rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from audit.subset.allocation import FIRST_UNITS


def merges(
    names: Sequence[str], sizes: Sequence[int], labels: Sequence[str], at_most: int | None = None
) -> dict[str, str]:
    """Return stratum name -> name of the merged stratum, for the strata that change.

    Strata of fewer than two units are always merged; `at_most` also limits how many are left.
    """
    groups = [[i] for i in range(len(names))]
    size = np.array(sizes, float)
    code = np.unique(np.array(labels), return_inverse=True)[1]
    alive = int((size > 0).sum())
    while alive > 1:
        smallest = int(np.argmin(np.where(size > 0, size, np.inf)))
        enough = size[smallest] >= FIRST_UNITS
        if enough and (at_most is None or alive <= at_most):
            break
        partner = _partner(smallest, size, code)
        groups[partner] += groups[smallest]
        size[partner] += size[smallest]
        code[partner] = code[partner] if code[partner] == code[smallest] else -1
        size[smallest], alive = 0, alive - 1
    return {
        names[i]: _joined([names[j] for j in group])
        for row, group in enumerate(groups)
        if size[row] > 0 and len(group) > 1
        for i in group
    }


def _partner(row: int, size: np.ndarray, code: np.ndarray) -> int:
    other = (size > 0) & (np.arange(size.size) != row)
    same = other & (code == code[row]) & (code[row] >= 0)
    return int(np.argmin(np.where(same if same.any() else other, size, np.inf)))


def _joined(members: list[str]) -> str:
    first, *rest = sorted(members)
    return f"{first} + {rest[0]}" if len(rest) == 1 else f"{first} + {len(rest)} more"
