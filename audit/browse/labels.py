"""Class counts as a table: what is drawn of many classes is the extremes, and it says so."""

from __future__ import annotations

import polars as pl

from audit.browse.conditions import Condition, OneOf
from audit.report.contents import Dataset

MOST, FEWEST = 25, 15
ALL_FILES, NO_LABEL = "all files", "(no label)"


def label_table(data: Dataset) -> pl.DataFrame:
    """Return `class, split, files, share` (of the split), the largest classes first."""
    rows = [(c.label, c.split or ALL_FILES, c.n) for c in data.classes]
    frame = pl.DataFrame(
        rows, schema={"class": pl.String, "split": pl.String, "files": pl.Int64}, orient="row"
    )
    if frame["class"].null_count() == frame.height:
        return frame.clear()
    return (
        frame.with_columns(
            pl.col("class").fill_null(NO_LABEL),
            (pl.col("files") / pl.col("files").sum().over("split")).fill_nan(0.0).alias("share"),
            pl.col("files").sum().over("class").alias("total"),
        )
        .sort("total", "class", descending=[True, False], maintain_order=True)
        .drop("total")
    )


def bar_conditions(data: Dataset, name: str, split: str) -> list[Condition]:
    """Return the filter of a bar of the table, by the names that the table has; [] for no bar."""
    for c in data.classes:
        if (NO_LABEL if c.label is None else c.label, c.split or ALL_FILES) == (name, split):
            return [OneOf("label", (c.label,)), OneOf("split", (c.split,))]
    return []


def shown_classes(table: pl.DataFrame) -> tuple[pl.DataFrame, str]:
    """Return the rows to draw, and a sentence on what is not drawn ("" where all are)."""
    names = table["class"].unique(maintain_order=True)
    if len(names) <= MOST + FEWEST:
        return table, ""
    kept = pl.concat([names.head(MOST), names.tail(FEWEST)])
    said = (
        f"The {MOST} largest and {FEWEST} smallest of {len(names):,} classes are drawn; the table "
        "has all."
    )
    return table.filter(pl.col("class").is_in(kept.implode())), said


def class_by_split(table: pl.DataFrame) -> pl.DataFrame:
    """Return a row a class and a column a split, with their files; 0 where there are none."""
    # A split may be called as the first column is.
    taken = set(table["split"])
    name = next(n for n in ("class", "name of the class", *map(str, range(len(taken) + 1)))
                if n not in taken)  # fmt: skip
    named = table.rename({"class": "\0class"})
    wide = named.pivot("split", index="\0class", values="files").fill_null(0)
    return wide.rename({"\0class": name})
