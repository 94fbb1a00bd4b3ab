"""Units: what one draw takes, and the files it stands for.

A unit is a file; a duplicate group, which contributes one file that stands for all m of its
members; or a user's group (patient, video, scene), taken whole. Two copies of one picture, or two
pictures of one patient, are not two independent answers: as units they cannot be counted as such.
Joins and group-bys over columns: 10 million rows take a few seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from audit.subset.frame import checked_column, representatives
from audit.subset.strata import Strata, stratum_names

# Marks the unit of a file that belongs to no group; no group name starts with it.
OWN = "\x00file "


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


def _group_key(files: pl.DataFrame, group: str) -> pl.Series:
    column = checked_column(files, group).cast(pl.String)
    # A file without a group is a unit by itself, apart from any group of the same name.
    return column.fill_null(OWN + files["sample_id"]) if column.null_count() else column


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
    """Return one row per (unit, file evaluated) of the units `taken`: row numbers in both tables.

    Duplicate groups are evaluated on their representative, user groups on every file.
    """
    if units.unit_of_file is None:
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
