"""A set from any list: CSV or Parquet with one row an example, no scan and no picture.

A list has an id (`sample_id`, `id`, `path`, `file` or `filename`), a class (`label`, `class`,
`target` or `y`) and optionally `split` and any columns to stratify or group by; the columns of
`audit.subset.frame` keep their meaning. Without classes (`unlabelled`) every example has the class
`UNLABELLED`, and the strata are those of `--by`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from audit.errors import UsageError
from audit.subset.frame import UNLABELLED
from audit.subset.predictions import IDS, read_table

CLASSES = ("label", "class", "target", "y")


def frame_from_list(
    path: Path, split: str | None = None, extra: Sequence[str] = (), *, unlabelled: bool = False
) -> pl.DataFrame:
    """Return the frame of `audit.subset.frame` for a list of examples (split None: all of them).

    A list without a `split` column is one set. `extra` names columns that must exist.
    """
    table = read_table(path, "list of examples")
    key = next((c for c in IDS if c in table.columns), None)
    if key is None:
        raise UsageError(
            f"{path} has no id column: it has {', '.join(table.columns[:12])}. Name one of them "
            f"{IDS[0]!r}."
        )
    table = table.rename({key: "sample_id"}).with_columns(pl.col("sample_id").cast(pl.String))
    table = _of_split(table, split, path)
    absent = [name for name in extra if name not in table.columns]
    if absent:
        raise UsageError(
            f"{path} has no column {absent[0]!r}; it has {', '.join(table.columns[:12])}."
        )
    return table.with_columns(label=pl.lit(UNLABELLED) if unlabelled else _classes(table, path))


def _of_split(table: pl.DataFrame, split: str | None, path: Path) -> pl.DataFrame:
    if split is None or "split" not in table.columns:
        return table
    chosen = table.filter(pl.col("split").cast(pl.String) == split)
    if chosen.is_empty():
        there = ", ".join(table["split"].cast(pl.String).unique().drop_nulls().sort()[:12])
        raise UsageError(f"{path} has no split {split!r}; its splits: {there}.")
    return chosen


def _classes(table: pl.DataFrame, path: Path) -> pl.Expr:
    label = next((c for c in CLASSES if c in table.columns), None)
    if label is None:
        raise UsageError(
            f"{path} has no class column ({', '.join(CLASSES)}): rename the one that holds it, or "
            "add --unlabelled to choose what to label."
        )
    return pl.col(label).cast(pl.String)
