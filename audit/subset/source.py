"""The eligible set F: where files come from, which count in an evaluation, and why others do not.

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

`frame_from_run` makes it from a run: left out are files that cannot be read, files whose picture is
also in the training split (the same pixels, or a near-duplicate that the audit verified), and
pictures that carry two labels. Images with several labels of their own are refused: a metric here
compares one label with one prediction. `frame_from_list` makes it from a CSV or Parquet file with
an id and a class, without scan and picture. Filters and group-bys over columns: 10 million rows
take a few seconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from audit.errors import UsageError
from audit.results.evaluation import TRAIN, read_evaluation
from audit.results.results import open_results
from audit.sources.label_lists import read_lists
from audit.statistics.intervals import Ints
from audit.subset.predictions import IDS, SHOWN, UNLABELLED, find_column, read_table

REQUIRED = ("sample_id", "label")
DEFAULTS: dict[str, pl.Expr] = {
    "path": pl.col("sample_id"),
    "content_hash": pl.lit(None, pl.String),
    "excluded_reason": pl.lit(None, pl.String),
    "duplicate_group": pl.lit(None, pl.String),
    "suspected_mislabel": pl.lit(False),
}
MISSING = "(missing)"


@dataclass(frozen=True)
class EligibleSet:
    """F (`files`, rows of the frame) and what was `excluded` (sample_id, path, reason)."""

    files: pl.DataFrame
    excluded: pl.DataFrame

    @property
    def n_all(self) -> int:
        """Files before exclusions."""
        return len(self.files) + len(self.excluded)


def select_eligible(
    frame: pl.DataFrame, deduplicated: bool = False, keep: Sequence[str] | None = None
) -> EligibleSet:
    """Return F: files with a label and no reason against them, optional columns filled in.

    `deduplicated` leaves one file of each duplicate group (the smallest hash) in F: the target is
    then the metric over distinct pictures. `keep` limits the columns beyond the named ones.
    """
    full = _checked(frame)
    if keep is not None:
        wanted = {*REQUIRED, *DEFAULTS, *keep}
        full = full.select(c for c in full.columns if c in wanted)
    reason = pl.coalesce(
        "excluded_reason", pl.when(pl.col("label").is_null()).then(pl.lit("no label"))
    )
    full = full.with_columns(reason=reason).drop("excluded_reason")
    if deduplicated:
        in_group = pl.col("duplicate_group").is_not_null()
        originals = representatives(full.filter(in_group & pl.col("reason").is_null()))
        copy = in_group & ~pl.col("sample_id").is_in(originals["sample_id"].implode())
        why = pl.when(copy).then(pl.lit("copy of a kept file (deduplicated estimand)"))
        full = full.with_columns(reason=pl.coalesce("reason", why))
    excluded = full.filter(pl.col("reason").is_not_null()).select("sample_id", "path", "reason")
    files = full if excluded.is_empty() else full.filter(pl.col("reason").is_null())
    if files.is_empty():
        raise UsageError(
            f"No file is eligible: all {len(full)} are excluded or have no label. Check the split "
            "name and the labels, or run `audit report` to see what was found."
        )
    return EligibleSet(files.drop("reason"), excluded)


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
    ids = full["sample_id"]
    # Distinct hashes prove distinct ids at a third of the memory; equal ones prove nothing.
    if ids.hash().n_unique() < len(ids) and (repeated := len(ids) - ids.n_unique()):
        example = ids.filter(ids.is_duplicated())[0]
        raise UsageError(
            f"{repeated} sample ids occur more than once, such as {example!r}: ids must be unique."
        )
    return full


def representatives(grouped: pl.DataFrame, key: str = "content_hash") -> pl.DataFrame:
    """Return the one row of each duplicate group that names and represents it."""
    # The smallest hash does not depend on file names or on the order of the rows, and leaves the
    # chance to be drawn alone: the smallest of m random numbers would favour large groups.
    return grouped.sort("duplicate_group", key, "sample_id", nulls_last=True).unique(
        "duplicate_group", keep="first", maintain_order=True
    )


def rows_in_set(sample_ids: pl.Series, known: pl.Series) -> Ints:
    """Return the row in `known` of each sample of a subset; raises UsageError without one."""
    wanted, there = (ids.cast(pl.String).alias("id").to_frame() for ids in (sample_ids, known))
    there = there.with_row_index("row")
    rows = wanted.join(there, on="id", how="left", maintain_order="left")["row"]
    lost = wanted["id"].filter(rows.is_null())
    if len(lost):
        raise UsageError(
            f"{len(lost)} rows of the subset, such as {lost[0]!r}, are not in the set given with "
            "--from: give the one that it was drawn from."
        )
    return rows.cast(pl.Int64).to_numpy()


def checked_column(files: pl.DataFrame, name: str) -> pl.Series:
    """Return a column to stratify, group or compare by; raises UsageError if it is unusable."""
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


def check_single_labels(files: pl.DataFrame, cells: Iterable[str]) -> None:
    """Raise UsageError where the `label` of `files` is a list; `cells`: all labels of the set."""
    read = read_lists(cells).lists
    lists = {cell: labels for cell, labels in read.items() if len(labels) > 1}
    held = files.filter(pl.col("label").is_in(list(lists))).select("sample_id", "label")
    if len(held):
        example, cell = held.row(0)
        raise _several(len(held), len(files), example, lists[cell])


def _several(count: int, total: int, example: str, labels: Sequence[str]) -> UsageError:
    verb = "has" if count == 1 else "have"
    return UsageError(
        f"{count} of {total} images {verb} several labels, such as {example!r} "
        f"({', '.join(labels[:SHOWN])}), and a subset takes one label an image: for each class, "
        f"write a list with the columns id and label, the label {labels[0]!r} or 'other', and give "
        "it to `audit subset plan --from LIST`."
    )


# Columns of the `images` view that say where a file is or what it hashes to, not what it shows.
NOT_PROPERTIES = {
    "uri", "source", "mtime_ns", "ctime_ns", "pixel_hash", "phash", "dhash", "phash256", "error",
    "content_hash", "group_key", "split", "label", "id", "status", "error_kind", "error_at",
    "decoder_warnings", "picture", "shown", "excluded_reason",
}  # fmt: skip


def frame_from_run(
    run: Path,
    split: str | None = "test",
    extra: Sequence[str] = (),
    *,
    several: bool = False,
) -> pl.DataFrame:
    """Return the frame of this file for one split of a run (None: all files).

    `group` is the manifest's group column; measured features keep their names and can be used with
    `--by`. `extra` names further columns that must exist. `several`: admit images with several
    labels, whose label is then null.
    """
    read = read_evaluation(open_results(run))
    table, lists = read.images, read.label_lists
    known = sorted(s for s in table["split"].unique().to_list() if s is not None)
    if split is not None and split not in known:
        there = ", ".join(known) if known else "none: the layout has no splits, use --split all"
        raise UsageError(f"{run} has no split {split!r}; its splits: {there}.")
    absent = [name for name in extra if name not in table.columns]
    if absent:
        properties = ", ".join(c for c in table.columns if c not in NOT_PROPERTIES)
        raise UsageError(f"{run} has no column {absent[0]!r}; there are: {properties}.")
    frame = _frame(table, split, read.suspected, read.near_train)
    held = lists.filter(pl.col("sample_id").is_in(frame["sample_id"].implode()))
    if len(held) and not several:
        raise _several(len(held), len(frame), *held.row(0))
    return frame


def _frame(
    table: pl.DataFrame, split: str | None, suspected: set[str], near: set[str]
) -> pl.DataFrame:
    table = _with_reasons(table, near)
    if split is not None:
        table = table.filter(pl.col("split") == split)
    picture, copies = pl.col("picture"), pl.len().over("picture") > 1
    properties: list[Any] = [c for c in table.columns if c not in NOT_PROPERTIES]
    return table.select(
        pl.col("id").alias("sample_id"),
        pl.col("uri").alias("path"),
        "split",
        "label",
        pl.col("group_key").alias("group"),
        "content_hash",
        "excluded_reason",
        pl.when(pl.col("shown") & copies).then(picture).alias("duplicate_group"),
        pl.col("id").is_in(list(suspected)).alias("suspected_mislabel"),
        *properties,
    )


def _with_reasons(table: pl.DataFrame, near: set[str]) -> pl.DataFrame:
    # As in the duplicate checks, a picture is its pixels and its size. Looked for in all splits:
    # a leak is a matter between two of them.
    size = pl.format("{}x{}", "width", "height")
    table = table.with_columns(picture=pl.concat_str("pixel_hash", size, separator=" "))
    shown = pl.col("picture").is_not_null() & (pl.col("status") != "unreadable")
    train = pl.col("split").is_in(TRAIN)
    # The first reason that holds: an unreadable file is nothing else.
    reason = (
        pl.when(~shown.fill_null(False))
        .then(pl.lit("unreadable file"))
        .when(train.any().over("picture") & ~train)
        .then(pl.lit("also in the training split"))
        .when(pl.col("id").is_in(list(near)) & ~train)
        .then(pl.lit("a near-duplicate is in the training split (SPLIT001)"))
        .when(pl.col("label").drop_nulls().n_unique().over("picture") > 1)
        .then(pl.lit("identical images with different labels"))
    )
    return table.with_columns(shown=shown, excluded_reason=reason)


CLASSES = ("label", "class", "target", "y")


def frame_from_list(
    path: Path, split: str | None = None, extra: Sequence[str] = (), *, unlabelled: bool = False
) -> pl.DataFrame:
    """Return the frame of this file for a list of examples (split None: all of them).

    A list without a `split` column is one set. `extra` names columns that must exist.
    """
    table = read_table(path, "list of examples")
    table = table.rename({find_column(table, IDS, str(path), "id"): "sample_id"}).with_columns(
        pl.col("sample_id").cast(pl.String)
    )
    if not unlabelled:
        table = table.with_columns(label=_classes(table, path))
    cells = [] if unlabelled else table["label"].drop_nulls().unique().to_list()
    if split is not None and "split" in table.columns:
        given = table["split"].cast(pl.String)
        table = table.filter(given == split)
        if table.is_empty():
            there = ", ".join(given.unique().drop_nulls().sort()[:12])
            raise UsageError(f"{path} has no split {split!r}; its splits: {there}.")
    absent = [name for name in extra if name not in table.columns]
    if absent:
        raise UsageError(
            f"{path} has no column {absent[0]!r}; it has {', '.join(table.columns[:12])}."
        )
    if unlabelled:
        return table.with_columns(label=pl.lit(UNLABELLED))
    check_single_labels(table, cells)
    return table


def _classes(table: pl.DataFrame, path: Path) -> pl.Expr:
    label = next((c for c in CLASSES if c in table.columns), None)
    if label is None:
        raise UsageError(
            f"{path} has no class column ({', '.join(CLASSES)}): rename the one that holds it, or "
            "add --unlabelled to choose what to label."
        )
    if not isinstance(table.schema[label], pl.List):
        return pl.col(label).cast(pl.String)
    # JSON lines and Parquet hold lists themselves: as JSON they are read like those of a CSV file
    cells = pl.col(label).cast(pl.List(pl.String))
    text = cells.map_elements(lambda cell: json.dumps(list(cell)), return_dtype=pl.String)
    return pl.when(cells.list.len() > 1).then(text).otherwise(cells.list.first())
