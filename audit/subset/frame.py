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
    """F with what was left out: `files` (rows of the frame), `excluded` (sample_id, path, reason)."""

    files: pl.DataFrame
    excluded: pl.DataFrame

    @property
    def n_all(self) -> int:
        """Files before exclusions."""
        return len(self.files) + len(self.excluded)


def eligible(frame: pl.DataFrame, deduplicated: bool = False) -> Eligible:
    """Return F: files with a label and no reason against them, optional columns filled in.

    `deduplicated` leaves one file of each duplicate group (the smallest hash) in F: the target is
    then the metric over distinct pictures.
    """
    full = _checked(frame)
    reason = (
        pl.when(pl.col("excluded_reason").is_not_null())
        .then(pl.col("excluded_reason"))
        .when(pl.col("label").is_null())
        .then(pl.lit(NO_LABEL))
        .alias("reason")
    )
    full = full.with_columns(reason)
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
    repeated = len(full) - full["sample_id"].n_unique()
    if repeated:
        example = full.filter(pl.col("sample_id").is_duplicated())["sample_id"][0]
        raise UsageError(
            f"{repeated} sample ids occur more than once, such as {example!r}: ids must be unique."
        )
    if full["sample_id"].null_count():
        raise UsageError("Some rows have no sample_id: give every file a unique id.")
    return full


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


def _representatives(grouped: pl.DataFrame) -> pl.DataFrame:
    # The member with the smallest hash names and represents its group; ties go to the smaller id.
    return grouped.sort("duplicate_group", "content_hash", "sample_id", nulls_last=True).unique(
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
    """Return each file's stratum as a categorical of readable names, merges applied."""
    columns = {"label": files["label"]}
    for name in strata.by:
        columns[name] = _binned(_column(files, name), strata.edges.get(name))
    table = pl.DataFrame(columns)
    distinct = table.unique().sort(table.columns)
    named = [_name(row, strata) for row in distinct.iter_rows(named=True)]
    levels = pl.Enum(sorted(set(named)))
    distinct = distinct.with_columns(pl.Series("stratum", named, levels))
    if len(columns) == 1:
        return table["label"].replace_strict(distinct["label"], distinct["stratum"])
    return table.join(
        distinct, on=table.columns, how="left", maintain_order="left", nulls_equal=True
    )["stratum"]


def _binned(column: pl.Series, edges: tuple[float, ...] | None) -> pl.Series:
    if edges is None:
        return column.cast(pl.String).fill_null(MISSING)
    bounds = ["-inf", *(f"{e:g}" for e in edges), "inf"]
    names = [f"({a}, {b}]" for a, b in zip(bounds, bounds[1:], strict=False)]
    return column.cut(list(edges), labels=names).cast(pl.String).fill_null(MISSING)


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
    `unit_of_file` maps rows of F to rows of `table`; -1 for the copies that are represented.
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
        return self.table["stratum"].cat.get_categories().to_list()


def units(files: pl.DataFrame, strata: Strata, group: str | None = None) -> Units:
    """Return the units of F under a stratification.

    A unit whose files lie in several strata goes to the one with most of them, ties to the name
    that sorts first.
    """
    stratum = stratum_names(files, strata)
    key = pl.col("content_hash").fill_null(pl.col("sample_id")).alias("unit_key")
    full = files.select("sample_id", "label", "duplicate_group", key).with_columns(stratum=stratum)
    if group is not None:
        full = full.with_columns(unit=_group_key(files, group))
        return _grouped(full, "unit", whole=True)
    if full["duplicate_group"].null_count() == len(full):
        table = full.select("unit_key", "stratum", unit_id="sample_id", label="label")
        return Units(table.with_columns(size=pl.lit(1, pl.Int64)), False, None)
    own = pl.lit(OWN) + pl.col("sample_id")
    full = full.with_columns(unit=pl.coalesce("duplicate_group", own))
    return _grouped(full, "unit", whole=False)


def _group_key(files: pl.DataFrame, group: str) -> pl.Series:
    column = _column(files, group).cast(pl.String)
    # A file without a group is a unit by itself, apart from any group of the same name.
    return column.fill_null(OWN + files["sample_id"]) if column.null_count() else column


def _grouped(full: pl.DataFrame, unit: str, whole: bool) -> Units:
    sizes = full.group_by(unit).agg(
        size=pl.len().cast(pl.Int64),
        unit_key=pl.col("unit_key").min(),
        sample_id=pl.col("sample_id").min(),
    )
    majority = _majority(full, unit, "stratum").join(_majority(full, unit, "label"), on=unit)
    table = sizes.join(majority, on=unit).sort(unit)
    own = pl.col(unit).str.starts_with(OWN)
    name = pl.when(own).then(pl.col("sample_id")).otherwise(pl.col(unit)).alias("unit_id")
    key = pl.when(own | ~pl.lit(whole)).then(pl.col("unit_key")).otherwise(pl.col(unit))
    index = full.select(unit).join(
        table.select(unit).with_row_index("row"), on=unit, how="left", maintain_order="left"
    )["row"]
    table = table.select(name, key.alias("unit_key"), "size", "stratum", "label")
    return Units(table, whole, index.cast(pl.Int64).to_numpy())


def _majority(full: pl.DataFrame, unit: str, column: str) -> pl.DataFrame:
    counts = full.group_by(unit, column).agg(pl.len().alias("votes"))
    # Enum levels are sorted by name, so the physical order breaks ties by name for both columns.
    ranked = counts.sort(unit, "votes", column, descending=[False, True, False])
    return ranked.unique(unit, keep="first").select(unit, column)


def represented(files: pl.DataFrame, found: Units) -> pl.DataFrame:
    """Return one row per (unit, file that is evaluated): unit (row of `table`), file (row of F).

    Duplicate groups are evaluated on their representative, user groups on every file.
    """
    if found.unit_of_file is None:
        rows = pl.arange(0, len(files), eager=True)
        return pl.DataFrame({"unit": rows, "file": rows})
    table = files.select("sample_id", "content_hash").with_columns(
        unit=pl.Series(found.unit_of_file), file=pl.arange(0, len(files))
    )
    if not found.whole:
        table = table.sort("unit", "content_hash", "sample_id", nulls_last=True).unique(
            "unit", keep="first", maintain_order=True
        )
    return table.select("unit", "file").sort("unit", "file")
