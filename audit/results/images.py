"""Samples under a filter, a page at a time, sorted by any column; missing values come last."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from audit.errors import UsageError
from audit.results.filters import (
    ColumnOf,
    Condition,
    column_named,
    list_columns,
    rows_where,
    table_of,
    used,
)
from audit.results.reader import reads
from audit.results.report_data import Card
from audit.run.store import Store, identifier
from audit.sources.tables import neutralise

CARD_OF = {
    "samples": ("uri", "split", "label", "n_bytes"),
    "features": (
        "width", "height", "format", "jpeg_quality", "sharpness", "status", "error_kind", "error",
        "content_hash", "pixel_hash",
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Order:
    """How a page is sorted: by a column, and by id among equals."""

    column: str = "id"
    descending: bool = False


@dataclass(frozen=True, slots=True)
class Edge:
    """A row at the edge of a page: where the next one begins."""

    value: Any
    id: str

    def to_link(self) -> str:
        """Return the edge as JSON."""
        return json.dumps([self.value, self.id], ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_link(cls, text: str) -> Edge | None:
        """Inverse of `to_link`; None for no text, UsageError for a damaged one."""
        if not text:
            return None
        try:
            value, name = json.loads(text)
        except (ValueError, TypeError, RecursionError):
            raise UsageError(
                "The page in this link is damaged: go to the first page and turn on from there."
            ) from None
        return cls(value, str(name))


@dataclass(frozen=True, slots=True)
class Page:
    """One page: its cards, and whether there are more before and after."""

    cards: tuple[Card, ...]
    before: bool = False
    after: bool = False

    @property
    def first(self) -> Edge | None:
        """The first row, from which to turn back."""
        return Edge(self.cards[0].value, self.cards[0].id) if self.cards else None

    @property
    def last(self) -> Edge | None:
        """The last row, from which to turn on."""
        return Edge(self.cards[-1].value, self.cards[-1].id) if self.cards else None


@reads()
def count_images(store: Store, conditions: Sequence[Condition] = ()) -> int:
    """Return how many samples the conditions leave."""
    _, rows, values = rows_where(store, conditions)
    return int(store.scalar(f"SELECT count(*) FROM {rows}", values))


@reads()
def list_ids(store: Store, conditions: Sequence[Condition] = ()) -> list[str]:
    """Return the ids of all samples that the conditions leave, sorted."""
    _, rows, values = rows_where(store, conditions)
    found: list[str] = store.query(f"SELECT i.id FROM {rows} ORDER BY i.id", values)["id"].to_list()
    return found


@reads()
def page(
    store: Store,
    conditions: Sequence[Condition] = (),
    order: Order | None = None,
    *,
    after: Edge | None = None,
    before: Edge | None = None,
    size: int = 24,
) -> Page:
    """Return the page after an edge, or the one before an edge, or the first."""
    order = order or Order()
    known, source, values = rows_where(store, conditions, order.column)
    by = column_named(known, order.column)
    back = before is not None
    edge = before or after
    beyond, more = _beyond(by, order, edge, back=back)
    way = "DESC" if order.descending != back else "ASC"
    sorting = f"i.id {way}"
    if by.name != "id":
        ends = ("FIRST", "DESC") if back else ("LAST", "ASC")
        sorting = f"{by.sql} {way} NULLS {ends[0]}, i.id {ends[1]}"
    # what the same table knows of a card comes along: DuckDB reads it for the rows it returns
    known_here = CARD_OF.get(table_of([*used(conditions), by.name]), ())
    also = "".join(f", i.{name}" for name in known_here)
    found = store.rows(
        f"SELECT i.id, {by.sql} AS value{also} FROM {source} "
        f"AND {beyond} ORDER BY {sorting} LIMIT {size + 1}",
        [*values, *more],
    )
    rows = found[:size][::-1] if back else found[:size]
    cut = len(found) > size
    return Page(
        tuple(_cards(store, {row["id"]: row for row in rows})),
        before=cut if back else edge is not None,
        after=True if back else cut,
    )


def _beyond(by: ColumnOf, order: Order, edge: Edge | None, *, back: bool) -> tuple[str, list[Any]]:
    """Return the condition that a row lies beyond the edge, in the direction of travel."""
    if edge is None:
        return "TRUE", []
    if by.name == "id":
        return f"i.id {'<' if order.descending != back else '>'} ?", [edge.id]
    further = "<" if order.descending != back else ">"
    tie = f"i.id {'<' if back else '>'} ?"
    if edge.value is None:  # among the missing ones, which come last
        at = f"({by.sql} IS NULL AND {tie})"
        return (f"({by.sql} IS NOT NULL OR {at})" if back else at), [edge.id]
    missing = "" if back else f" OR {by.sql} IS NULL"
    sql = f"({by.sql} {further} ? OR ({by.sql} = ? AND {tie}){missing})"
    return sql, [edge.value, edge.value, edge.id]


@reads()
def cards(store: Store, ids: Sequence[str]) -> list[Card]:
    """Return the cards of these samples, in this order; what the run does not hold is left out."""
    return _cards(store, {name: {"id": name} for name in ids})


def _cards(store: Store, begun: Mapping[str, dict[str, Any]]) -> list[Card]:
    """Complete rows by id to cards, from tables: the view would join millions of rows."""
    if not begun:
        return []
    held = set(next(iter(begun.values())))
    known = {name: dict(row) for name, row in begun.items()}
    if not held.issuperset(CARD_OF["samples"]):
        found = _rows(store, "samples", "id", list(begun))
        known = {row["id"]: known[row["id"]] | row for row in found}
    if known and not held.issuperset(CARD_OF["features"]):
        for row in _rows(store, "features", "sample_id", list(known)):
            known[row["id"]] |= row
    return [Card(**known[name]) for name in begun if name in known]


def _rows(store: Store, table: str, key: str, ids: Sequence[str]) -> list[dict[str, Any]]:
    names = ", ".join([f"{key} AS id", *CARD_OF[table]])
    marks = ", ".join("?" * len(ids))
    sql = f"SELECT {names} FROM {table} WHERE {key} BETWEEN ? AND ? AND {key} IN ({marks})"
    return store.rows(sql, [min(ids), max(ids), *ids])


@reads()
def export_csv(store: Store, conditions: Sequence[Condition] = ()) -> bytes:
    """Return every column of the samples under a filter as CSV, formulas in cells neutralised."""
    known, source, values = rows_where(store, conditions, *list_columns(store), "pixels")
    named = ", ".join(f"{c.sql} AS {identifier(c.name)}" for c in known.values())
    rows = store.query(f"SELECT {named}, i.uri AS path FROM {source} ORDER BY i.id", values)
    return neutralise(rows).write_csv().encode()


@reads()
def facts(store: Store, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return size, pixels, format and class of samples named by id or path, by that name."""
    if not names:
        return {}
    marks = ", ".join("?" * len(names))
    found = store.rows(
        'SELECT id, uri, n_bytes AS "bytes", width, height, format, label AS "class" FROM images '
        f"WHERE id IN ({marks}) OR uri IN ({marks})",
        [*names, *names],
    )
    wanted = set(names)
    return {
        row[key]: {k: v for k, v in row.items() if k not in ("id", "uri")}
        for row in found
        for key in ("id", "uri")
        if row[key] in wanted
    }
