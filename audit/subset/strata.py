"""Build strata and units, and the order in which strata give units.

A unit is a file, a duplicate group (one file stands for all m members), or a group of the user
taken whole. A stratum is a label times a level of every `by` column; numbers are cut into quarters.
A stratum with one unit is joined to the smallest of its label, else to the smallest of all. After
two units each, the next goes to the stratum with the largest N_h S_h / sqrt(k (k + 1)), k its units
so far: the exact optimum for every n, and nested (Wright 2012, The American Statistician 66:217).
S_h = 1 is proportional.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import polars as pl
from numpy.typing import NDArray

from audit.errors import UsageError
from audit.statistics.intervals import Floats, Ints
from audit.subset.source import MISSING, checked_column, representatives

# Columns with more distinct numbers than this are cut into quarters instead of used as they are.
BIN_FROM_VALUES = 12
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
            edges[name] = quantile_edges(column, (0.25, 0.5, 0.75))
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
    names = []
    for row in distinct.iter_rows(named=True):
        values = (str(v) if key == "label" else f"{key}={v}" for key, v in row.items())
        name = " / ".join(values)
        names.append(strata.merged.get(name, name))
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


def merged_names(
    names: Sequence[str], sizes: Sequence[int], labels: Sequence[str], at_most: int | None = None
) -> dict[str, str]:
    """Return stratum name -> name of the merged stratum where it changes: strata of fewer than two
    units are merged, and the smallest until `at_most` are left.
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
        other = (size > 0) & (np.arange(size.size) != smallest)
        same = other & (code == code[smallest]) & (code[smallest] >= 0)
        partner = int(np.argmin(np.where(same if same.any() else other, size, np.inf)))
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


def _joined(members: list[str]) -> str:
    first, *rest = sorted(members)
    return f"{first} + {rest[0]}" if len(rest) == 1 else f"{first} + {len(rest)} more"


SHOWN = 8
# Marks the unit of a file that belongs to no group; no group name starts with it.
OWN = "\x00file "


@dataclass(frozen=True)
class Units:
    """The units of F, one row each, and the files they contain.

    `table`: unit_id, unit_key (what the permanent random number is hashed from), size (files it
    stands for), stratum (Enum), class (the majority label). `whole`: a user's groups, taken whole.
    `unit_of_file` maps rows of F to rows of `table`.
    """

    table: pl.DataFrame
    whole: bool
    unit_of_file: Ints

    @property
    def sizes(self) -> np.ndarray:
        """Files that each unit stands for."""
        return self.table["size"].to_numpy()

    @property
    def codes(self) -> np.ndarray:
        """Stratum of each unit as a number into `strata`."""
        return self.table["stratum"].to_physical().to_numpy()

    @property
    def strata(self) -> list[str]:
        """Names of the strata, sorted."""
        levels = self.table["stratum"].dtype
        assert isinstance(levels, pl.Enum)
        return levels.categories.to_list()


def form_units(files: pl.DataFrame, strata: Strata, group: str | None = None) -> Units:
    """Return the units of F under a stratification.

    A unit whose files lie in several strata goes to the one with most of them, ties to the name
    that sorts first.
    """
    units = _formed(files, strata, group)
    large = pl.col("size") > strata.whole_above
    if not strata.whole_above or not units.table.select(large.any()).item():
        return units
    name = pl.when(large).then(pl.lit(strata.giants)).otherwise(pl.col("stratum").cast(pl.String))
    levels = units.table.select(name.unique().sort()).to_series()
    return replace(units, table=units.table.with_columns(stratum=name.cast(pl.Enum(levels))))


def _formed(files: pl.DataFrame, strata: Strata, group: str | None) -> Units:
    stratum = stratum_names(files, strata)
    key = pl.coalesce("content_hash", "sample_id").alias("unit_key")
    if group is not None:
        # A file without a group is a unit by itself, apart from any group of the same name.
        unit = checked_column(files, group).cast(pl.String)
        if unit.null_count():
            unit = unit.fill_null(OWN + files["sample_id"])
        full = files.select("sample_id", "label", key)
        return _user_groups(full.with_columns(stratum, unit=unit))
    full = files.select("sample_id", "label", "duplicate_group", key).with_columns(stratum)
    if full["duplicate_group"].null_count() == len(full):
        table = full.select("unit_key", "stratum", "label", unit_id="sample_id")
        return Units(table.with_columns(size=pl.lit(1, pl.Int64)), False, np.arange(len(full)))
    return _files_and_copies(full)


def _files_and_copies(full: pl.DataFrame) -> Units:
    """Return files as units, each duplicate group as one unit in its representative's place."""
    full = full.with_row_index("row")
    copies = full.filter(pl.col("duplicate_group").is_not_null())
    named = representatives(copies, "unit_key").select("duplicate_group", "row")
    groups = copies.group_by("duplicate_group").agg(size=pl.len().cast(pl.Int64))
    for column in ("stratum", "label"):
        groups = groups.join(_majority(copies, "duplicate_group", column), on="duplicate_group")
    groups = groups.join(named, on="duplicate_group").sort("row")
    is_unit = np.ones(len(full), bool)
    is_unit[copies["row"].to_numpy()] = False
    is_unit[groups["row"].to_numpy()] = True
    place = np.cumsum(is_unit) - 1  # row of the table for each row that is a unit
    unit_of_file = place.copy()
    home = copies.select("duplicate_group", "row").join(
        groups.select("duplicate_group", home="row"), on="duplicate_group"
    )
    unit_of_file[home["row"].to_numpy()] = place[home["home"].to_numpy()]
    table = full.select("unit_key", "stratum", "label", unit_id="sample_id").filter(
        pl.Series(is_unit)
    )
    at = pl.Series(place[groups["row"].to_numpy()])
    size = np.ones(len(table), np.int64)
    size[at.to_numpy()] = groups["size"].to_numpy()
    # Scattered, not joined: only the few groups differ from their representative's own row.
    changed = {"unit_id": "duplicate_group", "stratum": "stratum", "label": "label"}
    columns = [table[to].scatter(at, groups[name]) for to, name in changed.items()]
    table = table.with_columns(*columns, size=pl.Series(size))
    return Units(_without_empty_strata(table), False, unit_of_file)


def _without_empty_strata(table: pl.DataFrame) -> pl.DataFrame:
    # A stratum may have files but, after the majority vote, no unit: it does not exist for units.
    present = table["stratum"].unique().sort().cast(pl.String)
    levels = table["stratum"].dtype
    if isinstance(levels, pl.Enum) and len(present) == len(levels.categories):
        return table
    return table.with_columns(pl.col("stratum").cast(pl.String).cast(pl.Enum(present)))


def _user_groups(full: pl.DataFrame) -> Units:
    """Return groups taken whole; a file without a group is one by itself."""
    # Text is compared once, in this cast: the group-bys below work on integers.
    full = full.with_columns(code=pl.col("unit").cast(pl.Categorical).to_physical())
    table = full.group_by("code").agg(
        pl.col("unit").first(),
        size=pl.len().cast(pl.Int64),
        unit_key=pl.col("unit_key").min(),
        sample_id=pl.col("sample_id").min(),
    )
    for column in ("stratum", "label"):
        table = table.join(_majority(full, "code", column), on="code")
    table = table.sort("unit")
    place = np.zeros(int(full["code"].max()) + 1, np.int64)  # type: ignore[arg-type]
    place[table["code"].to_numpy()] = np.arange(len(table))
    own = pl.col("unit").str.starts_with(OWN)
    # A file without a group keeps its own name and hash, so that its random number stays what it
    # would be in a draw of single files.
    named = table.select(
        "size",
        "stratum",
        "label",
        unit_id=pl.when(own).then("sample_id").otherwise("unit"),
        unit_key=pl.when(own).then("unit_key").otherwise("unit"),
    )
    return Units(_without_empty_strata(named), True, place[full["code"].to_numpy()])


def _majority(full: pl.DataFrame, unit: str, column: str) -> pl.DataFrame:
    counts = full.group_by(unit, column).agg(pl.len().alias("votes"))
    # Enum levels are sorted by name, so the physical order breaks ties by name for both columns.
    ranked = counts.sort(unit, "votes", column, descending=[False, True, False])
    return ranked.unique(unit, keep="first").select(unit, column)


def evaluated_files(files: pl.DataFrame, units: Units, taken: pl.Series) -> pl.DataFrame:
    """Return the row numbers `unit` and `file` of the files that stand for the units `taken`."""
    if not units.whole and len(units.table) == len(files):  # every file is a unit
        return pl.DataFrame({"unit": taken, "file": taken})
    wanted = np.zeros(len(units.table), bool)
    wanted[taken.to_numpy()] = True
    rows = np.flatnonzero(wanted[units.unit_of_file])
    key = pl.coalesce("content_hash", "sample_id").alias("key")
    table = (
        files[rows]
        .select("sample_id", key)
        .with_columns(unit=pl.Series(units.unit_of_file[rows]), file=pl.Series(rows))
    )
    if not units.whole:
        table = table.sort("unit", "key", "sample_id").unique(
            "unit", keep="first", maintain_order=True
        )
    return table.select("unit", "file").sort("unit", "file")


def merged_strata(
    units: Units, strata: Strata, reasons: list[str], at_most: int | None = None
) -> Strata:
    """Return strata with those of one unit merged, or merged to `at_most`; `reasons` says it."""
    if at_most is not None and at_most < 1:
        raise UsageError("A subset needs at least 2 units, one stratum of two: ask for more.")
    counts = (
        units.table.group_by("stratum")
        .agg(pl.len().alias("units"), pl.col("label").mode().sort().first())
        .sort("stratum")
    )
    names = counts["stratum"].cast(pl.String).to_list()
    merged = merged_names(names, counts["units"].to_list(), counts["label"].to_list(), at_most)
    if not merged:
        return strata
    why = "one unit each" if at_most is None else f"more than {at_most} for this n"
    reasons.append(
        f"{len(merged)} strata were merged into {len(set(merged.values()))} ({why}; an interval "
        f"needs two units in every stratum): {listed(sorted(merged))}."
    )
    # A stratum merged before may be merged again: its old name must lead to the last one.
    earlier = {old: merged.get(new, new) for old, new in strata.merged.items()}
    return replace(strata, merged={**merged, **earlier})


def listed(names: Sequence[str]) -> str:
    """Return names joined by commas, the rest counted: `a, b and 3 more`."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


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
    """Return n_h for a subset of `n` units: how often each stratum occurs in `order_units`."""
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
