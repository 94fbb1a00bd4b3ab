"""Strata: how files become strata, and which strata are too small to stand alone.

A stratum is a label times a level of every `by` column; numbers are cut into quarters. If only one
unit is drawn from a stratum, it shows no variance, and intervals built on such strata cover 84 to
91 % instead of 95. So strata of one unit are joined to a neighbour, and on request the smallest
ones are joined until the sample gives every stratum two. The neighbour is the smallest stratum of
the same label, else the smallest of all; ties go to the name that sorts first. Loops run over
strata, never over rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from audit.subset.apportionment import FIRST_UNITS
from audit.subset.frame import MISSING, checked_column

# Columns with more distinct numbers than this are cut into quarters instead of used as they are.
BIN_FROM_VALUES = 12
QUARTILES = (0.25, 0.5, 0.75)
# The one stratum of a set that is not stratified.
ALL = "all"


@dataclass(frozen=True)
class Strata:
    """How files become strata: columns beside the label, cut points, and which strata are merged.

    `edges` holds the cut points of numeric columns, `merged` maps a stratum's name to the name of
    the stratum it was joined to; `label` False leaves the label out of the strata. Units of more
    than `whole_above` files are a stratum of their own, which is taken whole (0: none are).
    """

    by: tuple[str, ...] = ()
    edges: dict[str, tuple[float, ...]] = field(default_factory=dict)
    merged: dict[str, str] = field(default_factory=dict)
    label: bool = True
    whole_above: int = 0

    @property
    def giants(self) -> str:
        """Name of the stratum that is taken whole."""
        return f"units of more than {self.whole_above} files"


def cut_points(files: pl.DataFrame, by: Sequence[str]) -> dict[str, tuple[float, ...]]:
    """Return quartile edges for the numeric columns in `by` that have many distinct values."""
    edges = {}
    for name in by:
        column = checked_column(files, name)
        if column.dtype.is_numeric() and column.n_unique() > BIN_FROM_VALUES:
            edges[name] = quantile_edges(column, QUARTILES)
    return edges


def quantile_edges(column: pl.Series, shares: Sequence[float]) -> tuple[float, ...]:
    """Return distinct quantiles, rounded to 6 digits so that every machine cuts alike."""
    values = (column.quantile(share, "nearest") for share in shares)
    return tuple(sorted({float(f"{v:.6g}") for v in values if v is not None}))


def stratum_names(files: pl.DataFrame, strata: Strata) -> pl.Series:
    """Return each file's stratum, merges applied: an Enum named `stratum`, its levels sorted."""
    columns = {"label": files["label"]} if strata.label else {}
    for name in strata.by:
        columns[name] = _binned(checked_column(files, name), strata.edges.get(name))
    if not columns:
        return pl.Series("stratum", [ALL], pl.Enum([ALL])).new_from_index(0, len(files))
    table = pl.DataFrame(columns)
    # Names are made once per distinct combination, not once per row.
    distinct = table.unique().sort(table.columns)
    names = [_stratum_name(row, strata) for row in distinct.iter_rows(named=True)]
    # Sorted levels make the code of a stratum, and every tie, the same for any order of the rows.
    levels = pl.Enum(sorted(set(names)))
    distinct = distinct.with_columns(pl.Series("stratum", names, levels))
    if list(columns) == ["label"]:
        return (
            table["label"].replace_strict(distinct["label"], distinct["stratum"]).alias("stratum")
        )
    return table.join(
        distinct, on=table.columns, how="left", maintain_order="left", nulls_equal=True
    )["stratum"]


def _binned(column: pl.Series, edges: tuple[float, ...] | None) -> pl.Series:
    if edges is None:
        return column.cast(pl.String).fill_null(MISSING)
    bounds = ["-inf", *(f"{e:g}" for e in edges), "inf"]
    names = [f"({a}, {b}]" for a, b in pairwise(bounds)]
    place = np.searchsorted(np.array(edges), column.cast(pl.Float64).fill_null(0.0).to_numpy())
    binned = pl.Series(names).gather(pl.Series(place))
    return binned.zip_with(column.is_not_null(), pl.Series([MISSING]))


def _stratum_name(row: dict[str, Any], strata: Strata) -> str:
    name = " / ".join(
        str(row["label"]) if key == "label" else f"{key}={value}" for key, value in row.items()
    )
    return strata.merged.get(name, name)


# ---- merging ----


def merged_names(
    names: Sequence[str], sizes: Sequence[int], labels: Sequence[str], at_most: int | None = None
) -> dict[str, str]:
    """Return stratum name -> name of the merged stratum, for the strata that change.

    Strata of fewer than two units are always merged; `at_most` also limits how many are left.
    """
    groups = [[i] for i in range(len(names))]
    size = np.array(sizes, float)
    code = np.unique(np.array(labels), return_inverse=True)[1]
    alive = int((size > 0).sum())
    # The smallest first: each step then moves the fewest units out of their own stratum.
    while alive > 1:
        smallest = int(np.argmin(np.where(size > 0, size, np.inf)))
        enough = size[smallest] >= FIRST_UNITS
        if enough and (at_most is None or alive <= at_most):
            break
        partner = _partner(smallest, size, code)
        groups[partner] += groups[smallest]
        size[partner] += size[smallest]
        # A stratum of several labels is nobody's neighbour of the same label any more.
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
