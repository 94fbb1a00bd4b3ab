"""How a column is distributed under a filter, and classes over splits: bars, extremes, points.

A hash of the id chooses the points, so that a filter always gives the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from audit.results.boxes import read_box_labels
from audit.results.filters import (
    Between,
    Condition,
    Kind,
    OneOf,
    column_named,
    list_columns,
    rows_where,
    source_of,
)
from audit.results.images import Order, page
from audit.results.reader import reads
from audit.results.report_data import Card, Dataset
from audit.run.store import Store

BINS = 40
POINTS = 20_000
CHOICES = 30


@dataclass(frozen=True, slots=True)
class Extent:
    """Least and greatest value of a number column over the whole run, None without values."""

    low: float | None
    high: float | None
    whole: bool = False


@reads()
def extent(store: Store, name: str) -> Extent:
    """Return the extent of a number column, and whether all of its values are whole."""
    by = column_named(list_columns(store), name)
    sql = (
        f"SELECT min({by.sql})::DOUBLE, max({by.sql})::DOUBLE, "
        f"coalesce(bool_and({by.sql} = floor({by.sql})), false) FROM {source_of(store, [name])}"
    )
    low, high, whole = store.query(sql).row(0)
    return Extent(low, high, bool(whole))


@reads()
def histogram(store: Store, name: str, conditions: Sequence[Condition] = ()) -> pl.DataFrame:
    """Return bars: for a number `low, high, files`, else `value, files` (the 30 most frequent)."""
    known, source, values = rows_where(store, conditions, name)
    by = column_named(known, name)
    if by.kind is not Kind.NUMBER:
        return store.query(
            f"SELECT coalesce(CAST({by.sql} AS VARCHAR), '(none)') AS value, count(*) AS files "
            f"FROM {source} GROUP BY 1 ORDER BY files DESC, value LIMIT {CHOICES}",
            values,
        )
    bounds = extent(store, name)
    if bounds.low is None or bounds.high is None:
        return pl.DataFrame(schema={"low": pl.Float64, "high": pl.Float64, "files": pl.Int64})
    bins = BINS if bounds.high > bounds.low else 1
    width = (bounds.high - bounds.low) / bins or abs(bounds.low) or 1.0  # one value: one bar
    # Bins over the whole column, whatever the filter: bars stay where they are while it changes.
    counted = store.query(
        f"SELECT least(floor(({by.sql} - ?) / ?), {bins - 1})::INTEGER AS bin, count(*) AS files "
        f"FROM {source} AND {by.sql} IS NOT NULL GROUP BY 1",
        [bounds.low, width, *values],
    )
    grid = pl.DataFrame({"bin": pl.Series(range(bins), dtype=pl.Int32)})
    return grid.join(counted, on="bin", how="left").select(
        low=bounds.low + pl.col("bin") * width,
        high=bounds.low + (pl.col("bin") + 1) * width,
        files=pl.col("files").fill_null(0),
    )


@reads()
def extremes(
    store: Store, name: str, conditions: Sequence[Condition] = (), n: int = 8
) -> tuple[tuple[Card, ...], tuple[Card, ...]]:
    """Return the `n` samples with the least and with the greatest value under the filter."""
    ends = (page(store, conditions, Order(name, way), size=n) for way in (False, True))
    least, greatest = (tuple(c for c in end.cards if c.value is not None) for end in ends)
    return least, greatest


@dataclass(frozen=True, slots=True)
class Points:
    """A sample of the filter's rows (`id, x, y, colour`) and how many rows there were."""

    rows: pl.DataFrame
    total: int


@reads()
def scatter_points(
    store: Store,
    x: str,
    y: str,
    colour: str,
    conditions: Sequence[Condition] = (),
    limit: int = POINTS,
) -> Points:
    """Return up to `limit` rows that have both numbers, chosen by a hash of their ids."""
    known, source, values = rows_where(store, conditions, x, y, colour)
    a, b, c = (column_named(known, name) for name in (x, y, colour))
    source += f" AND {a.sql} IS NOT NULL AND {b.sql} IS NOT NULL"
    total = int(store.scalar(f"SELECT count(*) FROM {source}", values))
    rows = store.query(
        f"SELECT i.id, {a.sql}::DOUBLE AS x, {b.sql}::DOUBLE AS y, "
        f"coalesce(CAST({c.sql} AS VARCHAR), '(none)') AS colour FROM {source} "
        f"ORDER BY hash(i.id), i.id LIMIT {limit}",
        values,
    )
    return Points(rows, total)


@reads()
def ids_inside(
    store: Store,
    x: str,
    y: str,
    polygon: Sequence[tuple[float, float]],
    conditions: Sequence[Condition] = (),
) -> tuple[str, ...]:
    """Return the ids of all rows of the filter inside a polygon, also of those not drawn."""
    if len(polygon) < 3:
        return ()
    # Between the ends of the polygon, so that the scan leaves out what is far from it.
    ends = [
        Between(name, min(numbers), max(numbers))
        for name, numbers in zip((x, y), zip(*polygon, strict=True), strict=True)
    ]
    known, source, values = rows_where(store, [*conditions, *ends])
    rows = store.query(
        f"SELECT i.id, {column_named(known, x).sql}::DOUBLE AS x, "
        f"{column_named(known, y).sql}::DOUBLE AS y FROM {source} ORDER BY i.id",
        values,
    )
    return rows_inside(rows, polygon)


def rows_inside(rows: pl.DataFrame, polygon: Sequence[tuple[float, float]]) -> tuple[str, ...]:
    """Return the ids of the points inside a polygon, by the even-odd rule."""
    if len(polygon) < 3 or rows.is_empty():
        return ()
    x, y = rows["x"].to_numpy(), rows["y"].to_numpy()
    odd = np.zeros(len(x), bool)
    for (x1, y1), (x2, y2) in zip(polygon, [*polygon[1:], polygon[0]], strict=True):
        if y1 == y2:
            continue
        crosses = (y1 > y) != (y2 > y)
        odd ^= crosses & (x < (x2 - x1) * (y - y1) / (y2 - y1) + x1)
    return tuple(rows["id"].filter(pl.Series(odd)).to_list())


MOST, FEWEST = 25, 15
ALL_FILES, NO_LABEL = "all files", "(no label)"


@reads()
def class_order(store: Store) -> list[str]:
    """Return all classes in the order of their colours: of objects, then pictures, by frequency."""
    of_pictures = store.query(
        "SELECT label FROM samples WHERE label IS NOT NULL GROUP BY label "
        "ORDER BY count(*) DESC, label"
    )["label"]
    return list(dict.fromkeys([*read_box_labels(store), *of_pictures]))


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
