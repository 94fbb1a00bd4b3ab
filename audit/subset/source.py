"""From a run to the frame that subsets are planned on: one query, one group-by, nothing decided.

What is left out of an evaluation set, and why, is written here and nowhere else: files that cannot
be read, files whose picture is also in the training split (the same pixels, or a near-duplicate
that the audit verified), and pictures that carry two labels. Exact copies within the split become
duplicate groups. Suspected mislabels are marked and stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from audit.errors import UsageError
from audit.run.generations import open_run
from audit.run.store import Store, identifier

UNREADABLE = "unreadable file"
TRAIN = ["train", "training"]
IN_TRAIN = "also in the training split"
NEAR_TRAIN = "a near-duplicate is in the training split (SPLIT001)"
CONFLICT = "identical pictures with different labels"
# Columns of the `images` view that say where a file is or what it hashes to, not what it shows.
NOT_PROPERTIES = {
    "uri", "source", "mtime_ns", "ctime_ns", "pixel_hash", "phash", "dhash", "phash256", "error",
    "content_hash", "group_key", "split", "label", "id", "status", "error_kind", "error_at",
    "decoder_warnings", "picture", "shown", "conflict", "leaked", "beside", "excluded_reason",
}  # fmt: skip


def frame_from_run(
    run: Path, split: str | None = "test", extra: Sequence[str] = ()
) -> pl.DataFrame:
    """Return the frame of `audit.subset.frame` for one split of a run (None: all files).

    `group` is the manifest's group column; measured features keep their names and can be used with
    `--by`. `extra` names further columns that must exist.
    """
    with open_run(run) as store:
        table = _images(store)
        suspected, near = _suspected(store), _near_train(store)
    known = sorted(s for s in table["split"].unique().to_list() if s is not None)
    if split is not None and split not in known:
        there = ", ".join(known) if known else "none: the layout has no splits, use --split all"
        raise UsageError(f"{run} has no split {split!r}; its splits: {there}.")
    absent = [name for name in extra if name not in table.columns]
    if absent:
        properties = ", ".join(c for c in table.columns if c not in NOT_PROPERTIES)
        raise UsageError(f"{run} has no column {absent[0]!r}; there are: {properties}.")
    return _frame(table, split, suspected, near)


def _images(store: Store) -> pl.DataFrame:
    wanted = [c for c in store.columns("images") if c not in {"mtime_ns", "ctime_ns"}]
    return store.query(f"SELECT {', '.join(map(identifier, wanted))} FROM images ORDER BY id")


def _suspected(store: Store) -> set[str]:
    rows = store.rows(
        "SELECT DISTINCT s.sample_id FROM findings f JOIN finding_samples s USING (fingerprint) "
        # A subject `id@hash` is about one picture; renaming a whole class is not a mislabel of it.
        "WHERE f.action = 'relabel' AND f.subject LIKE '%@%'"
    )
    return {str(row["sample_id"]) for row in rows}


def _near_train(store: Store) -> set[str]:
    rows = store.rows(
        "SELECT DISTINCT s.sample_id FROM findings f JOIN finding_samples s USING (fingerprint) "
        "WHERE f.code = 'SPLIT001' AND f.fingerprint IN ("
        "SELECT t.fingerprint FROM finding_samples t JOIN images i ON i.id = t.sample_id "
        "WHERE list_contains(?, i.split))",
        [TRAIN],
    )
    return {str(row["sample_id"]) for row in rows}


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
    picture = pl.col("picture")
    shown = picture.is_not_null() & (pl.col("status") != "unreadable")
    labels = pl.col("label").drop_nulls().n_unique().over("picture")
    train = pl.col("split").is_in(TRAIN).any().over("picture")
    beside = pl.col("id").is_in(list(near)) & ~pl.col("split").is_in(TRAIN)
    table = table.with_columns(
        shown=shown,
        conflict=(shown & (labels > 1)).fill_null(False),
        leaked=(shown & train & ~pl.col("split").is_in(TRAIN)).fill_null(False),
        beside=(shown & beside).fill_null(False),
    )
    # The first reason that holds: an unreadable file is nothing else.
    reason = (
        pl.when(~pl.col("shown").fill_null(False))
        .then(pl.lit(UNREADABLE))
        .when("leaked")
        .then(pl.lit(IN_TRAIN))
        .when("beside")
        .then(pl.lit(NEAR_TRAIN))
        .when("conflict")
        .then(pl.lit(CONFLICT))
    )
    return table.with_columns(reason.alias("excluded_reason"))
