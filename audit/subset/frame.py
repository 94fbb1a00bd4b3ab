"""The eligible set F and its units: which files count, and what is drawn together.

The library's input is one plain polars frame, one row a file:

| column | type | meaning |
|---|---|---|
| sample_id | str | unique name of the file (required) |
| path | str | where it is (default: the id) |
| label | str | class; a file without one is left out, with that reason (required) |
| content_hash | str | hash of the bytes, hexadecimal; null: the id stands in |
| excluded_reason | str | why the file is not eligible; null: it is |
| duplicate_group | str | name of its group of pixel-identical files; null: none |
| suspected_mislabel | bool | kept, but marked; scores come with and without them |
| any other | | usable for `by` and `group` |

A *unit* is what one draw takes: a file; a duplicate group, which contributes one file that stands
for all m of its members; or a user's group (patient, video, scene), taken whole. Everything here is
joins and group-bys over columns: 10 million rows take a few seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from audit.errors import UsageError

REQUIRED = ("sample_id", "label")
DEFAULTS: dict[str, pl.Expr] = {
    "path": pl.col("sample_id"),
    "content_hash": pl.lit(None, pl.String),
    "excluded_reason": pl.lit(None, pl.String),
    "duplicate_group": pl.lit(None, pl.String),
    "suspected_mislabel": pl.lit(False),
}
NO_LABEL = "no label"
# Columns with more distinct numbers than this are cut into quarters instead of used as they are.
BIN_FROM_VALUES = 12
QUARTILES = (0.25, 0.5, 0.75)
MISSING = "(missing)"
# Marks the unit of a file that belongs to no group; no group name starts with it.
OWN = "\x00file "


@dataclass(frozen=True)
class Strata:
    """How files become strata: columns beside the label, cut points, and which strata are merged.

    `edges` holds the cut points of numeric columns, `merged` maps a stratum's name to the name of
    the stratum it was joined to.
    """

    by: tuple[str, ...] = ()
    edges: dict[str, tuple[float, ...]] = field(default_factory=dict)
    merged: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Eligible:
    """F (`files`, rows of the frame) and what was `excluded` (sample_id, path, reason)."""

    files: pl.DataFrame
    excluded: pl.DataFrame

    @property
    def n_all(self) -> int:
        """Files before exclusions."""
        return len(self.files) + len(self.excluded)


def eligible(
    frame: pl.DataFrame, deduplicated: bool = False, keep: Sequence[str] | None = None
) -> Eligible:
    """Return F: files with a label and no reason against them, optional columns filled in.

    `deduplicated` leaves one file of each duplicate group (the smallest hash) in F: the target is
    then the metric over distinct pictures. `keep` limits the columns beyond the named ones.
    """
    full = _checked(frame)
    if keep is not None:
        wanted = {*REQUIRED, *DEFAULTS, *keep}
        full = full.select(c for c in full.columns if c in wanted)
    reason = pl.coalesce(
        "excluded_reason", pl.when(pl.col("label").is_null()).then(pl.lit(NO_LABEL))
    )
    full = full.with_columns(reason=reason).drop("excluded_reason")
    if deduplicated:
        full = _without_copies(full)
    out = full.filter(pl.col("reason").is_not_null()).select("sample_id", "path", "reason")
    kept = full if out.is_empty() else full.filter(pl.col("reason").is_null())
    if kept.is_empty():
        raise UsageError(
            f"No file is eligible: all {len(full)} are excluded or have no label. Check the split "
            "name and the labels, or run `audit report` to see what was found."
        )
    return Eligible(kept.drop("reason"), out)


def _checked(frame: pl.DataFrame) -> pl.DataFrame:
    missing = [name for name in REQUIRED if name not in frame.columns]
    if missing:
        raise UsageError(
            f"The frame has no column {missing[0]!r}; it has {', '.join(frame.columns[:12])}. "
            "Rename the column that holds it."
        )
    fill = [value.alias(name) for name, value in DEFAULTS.items() if name not in frame.columns]
    full = frame.with_columns(fill).with_columns(
        pl.col("label").cast(pl.String), pl.col("suspected_mislabel").fill_null(False)
    )
    if full["sample_id"].null_count():
        raise UsageError("Some rows have no sample_id: give every file a unique id.")
    _check_unique(full["sample_id"])
    return full


def _check_unique(ids: pl.Series) -> None:
    # Distinct hashes prove distinct ids at a third of the memory; equal ones prove nothing.
    if ids.hash().n_unique() == len(ids):
        return
    repeated = len(ids) - ids.n_unique()
    if repeated:
        example = ids.filter(ids.is_duplicated())[0]
        raise UsageError(
            f"{repeated} sample ids occur more than once, such as {example!r}: ids must be unique."
        )


def _without_copies(full: pl.DataFrame) -> pl.DataFrame:
    grouped = full.filter(pl.col("duplicate_group").is_not_null() & pl.col("reason").is_null())
    kept = _representatives(grouped)["sample_id"]
    copy = pl.col("duplicate_group").is_not_null() & ~pl.col("sample_id").is_in(kept.implode())
    return full.with_columns(
        pl.when(pl.col("reason").is_null() & copy)
        .then(pl.lit("copy of a kept file (deduplicated estimand)"))
        .otherwise(pl.col("reason"))
        .alias("reason")
    )


def _representatives(grouped: pl.DataFrame, key: str = "content_hash") -> pl.DataFrame:
    # The member with the smallest hash names and represents its group; ties go to the smaller id.
    return grouped.sort("duplicate_group", key, "sample_id", nulls_last=True).unique(
        "duplicate_group", keep="first", maintain_order=True
    )


# ---- strata ----


def cut_points(files: pl.DataFrame, by: Sequence[str]) -> dict[str, tuple[float, ...]]:
    """Return quartile edges for the numeric columns in `by` that have many distinct values."""
    edges = {}
    for name in by:
        column = _column(files, name)
        if column.dtype.is_numeric() and column.n_unique() > BIN_FROM_VALUES:
            edges[name] = quantile_edges(column, QUARTILES)
    return edges


def quantile_edges(column: pl.Series, shares: Sequence[float]) -> tuple[float, ...]:
    """Return distinct quantiles, rounded to 6 digits so that every machine cuts alike."""
    values = (column.quantile(share, "nearest") for share in shares)
    return tuple(sorted({float(f"{v:.6g}") for v in values if v is not None}))


def _column(files: pl.DataFrame, name: str) -> pl.Series:
    if name not in files.columns:
        hidden = {"excluded_reason", "duplicate_group", "content_hash", "sample_id", "path"}
        raise UsageError(
            f"There is no column {name!r} to stratify or group by. There are: "
            f"{', '.join(c for c in files.columns if c not in hidden)}."
        )
    column = files[name]
    if column.dtype.is_float() and column.is_nan().any():
        raise UsageError(
            f"Column {name!r} is NaN for {int(column.is_nan().sum())} of {len(column)} files: fill "
            "the values in, set them to null, or choose another column."
        )
    return column


def stratum_names(files: pl.DataFrame, strata: Strata) -> pl.Series:
    """Return each file's stratum, merges applied: an Enum named `stratum`, its levels sorted."""
    columns = {"label": files["label"]}
    for name in strata.by:
        columns[name] = _binned(_column(files, name), strata.edges.get(name))
    table = pl.DataFrame(columns)
    distinct = table.unique().sort(table.columns)
    named = [_name(row, strata) for row in distinct.iter_rows(named=True)]
    levels = pl.Enum(sorted(set(named)))
    distinct = distinct.with_columns(pl.Series("stratum", named, levels))
    if len(columns) == 1:
        names = distinct["stratum"]
        return table["label"].replace_strict(distinct["label"], names).alias("stratum")
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


def _name(row: dict[str, Any], strata: Strata) -> str:
    name = " / ".join(
        str(row["label"]) if key == "label" else f"{key}={value}" for key, value in row.items()
    )
    return strata.merged.get(name, name)


# ---- units ----


@dataclass(frozen=True)
class Units:
    """The units of F, one row each, and the files they contain.

    `table`: unit_id, unit_key (what the permanent random number is hashed from), size (files it
    stands for), stratum (Enum), class (the majority label). `whole`: a user's groups, taken whole.
    `unit_of_file` maps rows of F to rows of `table`; None where every file is a unit.
    """

    table: pl.DataFrame
    whole: bool
    unit_of_file: np.ndarray | None

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


def units(files: pl.DataFrame, strata: Strata, group: str | None = None) -> Units:
    """Return the units of F under a stratification.

    A unit whose files lie in several strata goes to the one with most of them, ties to the name
    that sorts first.
    """
    stratum = stratum_names(files, strata)
    key = pl.coalesce("content_hash", "sample_id").alias("unit_key")
    if group is not None:
        full = files.select("sample_id", "label", key)
        return _user_groups(full.with_columns(stratum, unit=_group_key(files, group)))
    full = files.select("sample_id", "label", "duplicate_group", key).with_columns(stratum)
    if full["duplicate_group"].null_count() == len(full):
        table = full.select("unit_key", "stratum", "label", unit_id="sample_id")
        return Units(table.with_columns(size=pl.lit(1, pl.Int64)), False, None)
    return _files_and_copies(full)


def _files_and_copies(full: pl.DataFrame) -> Units:
    """Return files as units, each duplicate group as one unit in its representative's place."""
    full = full.with_row_index("row")
    copies = full.filter(pl.col("duplicate_group").is_not_null())
    named = _representatives(copies, "unit_key").select("duplicate_group", "row")
    groups = copies.group_by("duplicate_group").agg(size=pl.len().cast(pl.Int64))
    for column in ("stratum", "label"):
        groups = groups.join(_majority(copies, "duplicate_group", column), on="duplicate_group")
    groups = groups.join(named, on="duplicate_group").sort("row")
    stays = np.ones(len(full), bool)
    stays[copies["row"].to_numpy()] = False
    stays[groups["row"].to_numpy()] = True
    place = np.cumsum(stays) - 1  # row of the table for each row that stays
    unit_of_file = place.copy()
    home = copies.select("duplicate_group", "row").join(
        groups.select("duplicate_group", home="row"), on="duplicate_group"
    )
    unit_of_file[home["row"].to_numpy()] = place[home["home"].to_numpy()]
    table = full.select("unit_key", "stratum", "label", unit_id="sample_id").filter(
        pl.Series(stays)
    )
    at = pl.Series(place[groups["row"].to_numpy()])
    size = np.ones(len(table), np.int64)
    size[at.to_numpy()] = groups["size"].to_numpy()
    # Scattered, not joined: only the few groups differ from their representative's own row.
    changed = {"unit_id": "duplicate_group", "stratum": "stratum", "label": "label"}
    columns = [table[to].scatter(at, groups[name]) for to, name in changed.items()]
    table = table.with_columns(*columns, size=pl.Series(size))
    return Units(_present(table), False, unit_of_file)


def _present(table: pl.DataFrame) -> pl.DataFrame:
    # A stratum may have files but, after the majority vote, no unit: it does not exist for units.
    present = table["stratum"].unique().sort().cast(pl.String)
    levels = table["stratum"].dtype
    if isinstance(levels, pl.Enum) and len(present) == len(levels.categories):
        return table
    return table.with_columns(pl.col("stratum").cast(pl.String).cast(pl.Enum(present)))


def _group_key(files: pl.DataFrame, group: str) -> pl.Series:
    column = _column(files, group).cast(pl.String)
    # A file without a group is a unit by itself, apart from any group of the same name.
    return column.fill_null(OWN + files["sample_id"]) if column.null_count() else column


def _user_groups(full: pl.DataFrame) -> Units:
    """Return groups taken whole; a file without a group is one by itself."""
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
    named = table.select(
        "size",
        "stratum",
        "label",
        unit_id=pl.when(own).then("sample_id").otherwise("unit"),
        unit_key=pl.when(own).then("unit_key").otherwise("unit"),
    )
    return Units(_present(named), True, place[full["code"].to_numpy()])


def _majority(full: pl.DataFrame, unit: str, column: str) -> pl.DataFrame:
    counts = full.group_by(unit, column).agg(pl.len().alias("votes"))
    # Enum levels are sorted by name, so the physical order breaks ties by name for both columns.
    ranked = counts.sort(unit, "votes", column, descending=[False, True, False])
    return ranked.unique(unit, keep="first").select(unit, column)


def represented(files: pl.DataFrame, found: Units, taken: pl.Series) -> pl.DataFrame:
    """Return one row per (unit, file evaluated) of the units `taken`: row numbers in both tables.

    Duplicate groups are evaluated on their representative, user groups on every file.
    """
    if found.unit_of_file is None:
        return pl.DataFrame({"unit": taken, "file": taken})
    wanted = np.zeros(len(found.table), bool)
    wanted[taken.to_numpy()] = True
    rows = np.flatnonzero(wanted[found.unit_of_file])
    key = pl.coalesce("content_hash", "sample_id").alias("key")
    table = (
        files[rows]
        .select("sample_id", key)
        .with_columns(unit=pl.Series(found.unit_of_file[rows]), file=pl.Series(rows))
    )
    if not found.whole:
        table = table.sort("unit", "key", "sample_id").unique(
            "unit", keep="first", maintain_order=True
        )
    return table.select("unit", "file").sort("unit", "file")
