"""How a column is distributed under a filter: bars, extremes, points, and what a lasso holds.

Everything is counted in the store; only bars and at most 20,000 points leave it. The sample of
points is chosen by a hash of the id, so the same filter gives the same points tomorrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from audit.browse.columns import Kind, column, list_columns, source_of
from audit.browse.conditions import Condition, used, where
from audit.browse.images import Card, Order, page
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


def extent(store: Store, name: str) -> Extent:
    """Return the range of a number column; `whole` where it holds integers."""
    by = column(list_columns(store), name)
    sql = (
        f"SELECT min({by.sql})::DOUBLE, max({by.sql})::DOUBLE, "
        f"coalesce(bool_and({by.sql} = floor({by.sql})), false) FROM {source_of(store, [name])}"
    )
    low, high, whole = store.query(sql).row(0)
    return Extent(low, high, bool(whole))


def histogram(store: Store, name: str, conditions: Sequence[Condition] = ()) -> pl.DataFrame:
    """Return bars: for a number `low, high, files`, else `value, files` (the 30 most frequent)."""
    known = list_columns(store)
    by = column(known, name)
    sql, values = where(known, conditions)
    source = source_of(store, [*used(conditions), name])
    if by.kind is not Kind.NUMBER:
        return store.query(
            f"SELECT coalesce(CAST({by.sql} AS VARCHAR), '(none)') AS value, count(*) AS files "
            f"FROM {source} WHERE {sql} GROUP BY 1 ORDER BY files DESC, value LIMIT {CHOICES}",
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
        f"FROM {source} WHERE ({sql}) AND {by.sql} IS NOT NULL GROUP BY 1",
        [bounds.low, width, *values],
    )
    grid = pl.DataFrame({"bin": pl.Series(range(bins), dtype=pl.Int32)})
    return grid.join(counted, on="bin", how="left").select(
        low=bounds.low + pl.col("bin") * width,
        high=bounds.low + (pl.col("bin") + 1) * width,
        files=pl.col("files").fill_null(0),
    )


def extremes(
    store: Store, name: str, conditions: Sequence[Condition] = (), n: int = 8
) -> tuple[tuple[Card, ...], tuple[Card, ...]]:
    """Return the `n` samples with the least and with the greatest value under the filter."""
    least = page(store, conditions, Order(name), size=n)
    greatest = page(store, conditions, Order(name, descending=True), size=n)
    return tuple(c for c in least.cards if c.value is not None), tuple(
        c for c in greatest.cards if c.value is not None
    )


@dataclass(frozen=True, slots=True)
class Points:
    """A sample of the filter's rows (`id, x, y, colour`) and how many rows there were."""

    rows: pl.DataFrame
    total: int


def scatter_points(
    store: Store,
    x: str,
    y: str,
    colour: str,
    conditions: Sequence[Condition] = (),
    limit: int = POINTS,
) -> Points:
    """Return up to `limit` rows that have both numbers, chosen by a hash of their ids."""
    known = list_columns(store)
    a, b, c = (column(known, name) for name in (x, y, colour))
    sql, values = where(known, conditions)
    source = source_of(store, [*used(conditions), x, y, colour])
    having = f"({sql}) AND {a.sql} IS NOT NULL AND {b.sql} IS NOT NULL"
    total = int(store.scalar(f"SELECT count(*) FROM {source} WHERE {having}", values))
    rows = store.query(
        f"SELECT i.id, {a.sql}::DOUBLE AS x, {b.sql}::DOUBLE AS y, "
        f"coalesce(CAST({c.sql} AS VARCHAR), '(none)') AS colour FROM {source} WHERE {having} "
        f"ORDER BY hash(i.id), i.id LIMIT {limit}",
        values,
    )
    return Points(rows, total)


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
    known = list_columns(store)
    sql, values = where(known, conditions)
    source = source_of(store, [*used(conditions), x, y])
    parts, ends = [f"({sql})"], []
    for name, numbers in zip((x, y), zip(*polygon, strict=True), strict=True):
        parts.append(f"{column(known, name).sql} BETWEEN ? AND ?")
        ends += [min(numbers), max(numbers)]
    rows = store.query(
        f"SELECT i.id, {column(known, x).sql}::DOUBLE AS x, {column(known, y).sql}::DOUBLE AS y "
        f"FROM {source} WHERE {' AND '.join(parts)} ORDER BY i.id",
        [*values, *ends],
    )
    return inside(rows, polygon)


def inside(rows: pl.DataFrame, polygon: Sequence[tuple[float, float]]) -> tuple[str, ...]:
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
