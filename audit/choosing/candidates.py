"""Who can be chosen: one picture of each group of copies, of those that are not chosen yet.

The set is that of `audit.subset.source`: unreadable files, copies of training pictures and pictures
with two labels are out, and so is what a decision dropped. Copies and near-duplicates are one unit,
for which the file with the smallest content hash stands; a unit with a file that is labelled or
chosen already is known, and is not asked for again.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from audit.decisions.waivers import apply_decisions
from audit.errors import UsageError
from audit.run.generations import open_run
from audit.subset.predictions import (
    IDS,
    LABELS,
    PROBABILITY,
    find_column,
    match,
    read_table,
    standard_columns,
)
from audit.subset.source import frame_from_run

UNITS = """
    SELECT i.id AS sample_id, i.pixel_hash, coalesce(g.representative, i.pixel_hash) AS unit
    FROM images i LEFT JOIN groups g ON g.pixel_hash = i.pixel_hash
    WHERE i.pixel_hash IS NOT NULL
"""
CLASS = "class"


@dataclass(frozen=True, slots=True)
class Candidates:
    """`free` and `known`: one row a unit, the columns of a subset's frame with `pixel_hash`,
    `unit` and `class` (its label, else the predicted one); `left_out`: files by reason.
    """

    free: pl.DataFrame
    known: pl.DataFrame
    left_out: dict[str, int]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What may be chosen: a split, the files of a list, those without a label; not what is chosen.

    `listed` and `chosen` are tables with an id column; `predictions` a table of a model's answers.
    """

    split: str | None = None
    listed: Path | None = None
    unlabelled: bool = False
    chosen: Path | None = None
    predictions: Path | None = None


def find_candidates(run: Path, wanted: Wanted) -> Candidates:
    """Return the units of a run; raises UsageError for a list or a split that cannot be."""
    frame = _with_decisions(run, frame_from_run(run, wanted.split))
    with open_run(run) as store:
        frame = frame.join(store.query(UNITS), on="sample_id", how="left", maintain_order="left")
    frame = frame.with_columns(pl.col("label").alias(CLASS))
    if wanted.predictions is not None:
        predicted = read_answers(wanted.predictions)
        answers = match(frame, predicted, wanted.predictions.name, "drop", "refuse-similar").table
        frame = pl.concat(
            [frame, answers.select(pl.exclude(*frame.columns, "key"))], how="horizontal"
        ).with_columns(pl.coalesce("label", "prediction").alias(CLASS))
    return _divide(frame, wanted)


def read_answers(path: Path) -> pl.DataFrame:
    """Read predictions as `audit subset` does, or as `audit scan` does: a column a class."""
    table = read_table(path, "predictions")
    if not any(c in LABELS or c.startswith(PROBABILITY) for c in table.columns):
        numbers = [c for c in table.columns if c not in IDS and table[c].dtype.is_numeric()]
        if len(numbers) > 1:
            table = table.rename({name: f"{PROBABILITY}{name}" for name in numbers})
    return standard_columns(table, path.name)


def _with_decisions(run: Path, frame: pl.DataFrame) -> pl.DataFrame:
    """Put decided labels in place; what was dropped is out."""
    effective = apply_decisions(run).effective.select(
        pl.col("id").alias("sample_id"), pl.col("label").alias("_label"), "dropped"
    )
    return (
        frame.join(effective, on="sample_id", how="left", maintain_order="left")
        .with_columns(
            pl.coalesce("_label", "label").alias("label"),
            pl.when("dropped").then(pl.lit("dropped by a decision"))
            .otherwise("excluded_reason").alias("excluded_reason"),
        )
        .drop("_label", "dropped")
    )  # fmt: skip


def _divide(frame: pl.DataFrame, wanted: Wanted) -> Candidates:
    known = pl.col("label").is_not_null() if wanted.unlabelled else pl.lit(value=False)
    if wanted.chosen is not None:
        known = known | _is_listed(frame, wanted.chosen, "earlier choice")
    listed = pl.lit(value=True)
    if wanted.listed is not None:
        listed = _is_listed(frame, wanted.listed, "list of examples")
    reason = pl.col("excluded_reason")
    frame = frame.with_columns(known.fill_null(value=False).alias("known"), listed.alias("listed"))
    usable = frame.filter(reason.is_null() & pl.col("unit").is_not_null())
    # as in a subset, the smallest hash stands for its copies, whatever they are called
    usable = usable.sort("content_hash", "sample_id", nulls_last=True)
    there = usable.filter("known")
    known_units = there.unique("unit", keep="first", maintain_order=True)
    rest = usable.filter(~pl.col("known"))
    new = rest.filter(~pl.col("unit").is_in(there["unit"].implode()))
    free = new.filter("listed").unique("unit", keep="first", maintain_order=True)
    left_out = dict(
        frame.filter(reason.is_not_null()).group_by("excluded_reason").len().sort("len").iter_rows()
    )
    left_out["a copy of one that is labelled or chosen"] = len(rest) - len(new)
    left_out["a copy of another candidate"] = int(new["listed"].sum()) - len(free)
    return Candidates(free, known_units, {k: n for k, n in left_out.items() if n})


def _is_listed(frame: pl.DataFrame, path: Path, what: str) -> pl.Expr:
    table = read_table(path, what)
    names = table[find_column(table, IDS, path.name, "id")].cast(pl.String).implode()
    places = frame["path"].str.strip_prefix("file://")
    found = frame["sample_id"].is_in(names) | frame["path"].is_in(names) | places.is_in(names)
    if not found.any():
        first = table.row(0)[0] if len(table) else "nothing"
        raise UsageError(
            f"{path} names no file of this run: it has {first!r}, and the run has "
            f"{frame['sample_id'][0]!r}."
        )
    return pl.lit(found)
