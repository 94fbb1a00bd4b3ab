"""Annotated pictures, those with findings first: filtered by class, size, split and check, paged.

An index of one narrow row a picture is made when first asked for, once a generation, in the memory
of this process; a filter by class or size asks the table of boxes for the pictures concerned. On
two million boxes the index takes about a second, a page a fifth of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from audit.browse.boxes import SIZE, Box, load_boxes
from audit.browse.images import Card, cards
from audit.records import Severity
from audit.run.store import Store

INDEX = "memory.main.box_index"
SIZES = ("small", "medium", "large")
UNLISTED = "(not in the list)"
FAMILY = "BOX"
_INDEX_SQL = f"""
    CREATE OR REPLACE TABLE {INDEX} AS
    WITH worst AS (
        SELECT m.sample_id, count(*) AS findings, list_sort(list(DISTINCT f.code)) AS codes,
            min(CASE f.severity WHEN 'error' THEN 0 WHEN 'warning' THEN 1 ELSE 2 END) AS rank
        FROM findings f JOIN finding_samples m USING (fingerprint)
        WHERE starts_with(f.code, '{FAMILY}') GROUP BY m.sample_id
    )
    SELECT row_number() OVER (ORDER BY w.rank NULLS LAST, w.findings DESC, b.sample_id) AS place,
        b.sample_id, b.n_boxes, s.split, w.rank, coalesce(w.findings, 0) AS findings,
        coalesce(w.codes, []) AS codes
    FROM box_images b JOIN samples s ON s.id = b.sample_id
    LEFT JOIN worst w ON w.sample_id = b.sample_id
    ORDER BY place
"""


@dataclass(frozen=True, slots=True)
class BoxFilter:
    """Which pictures: with a box of a class and size, in a split, with a finding; "" for any."""

    label: str = ""
    size: str = ""
    split: str = ""
    code: str = ""

    def holds(self, box: Box) -> bool:
        """Say whether a box is one of those asked for."""
        wanted = "" if self.label == UNLISTED else self.label
        right_class = not self.label or box.label == wanted
        return right_class and (not self.size or box.size == self.size)


@dataclass(frozen=True, slots=True)
class AnnotatedPicture:
    """A picture of a page, its boxes, and what the checks of boxes say of it."""

    place: int
    card: Card
    boxes: tuple[Box, ...]
    severity: Severity | None
    findings: int
    codes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AnnotatedPage:
    """A page of pictures, whether there are more before and after, and how many fit in all."""

    pictures: tuple[AnnotatedPicture, ...]
    before: bool
    after: bool
    total: int


@dataclass(frozen=True, slots=True)
class BoxChoices:
    """What can be chosen: classes (the most frequent first), splits, codes of findings."""

    labels: tuple[str, ...]
    splits: tuple[str, ...]
    codes: tuple[str, ...]


def has_annotations(store: Store) -> bool:
    """Say whether the run has annotated pictures."""
    return bool(store.columns("box_images")) and store.scalar("SELECT 1 FROM box_images LIMIT 1")


def box_choices(store: Store) -> BoxChoices:
    """Return what the filters offer."""
    labels = store.query(
        "SELECT label FROM box_classes GROUP BY label ORDER BY sum(boxes) DESC, label"
    )["label"].to_list()
    splits = store.query(
        f"SELECT DISTINCT split FROM {_index(store)} WHERE split IS NOT NULL ORDER BY split"
    )["split"].to_list()
    codes = store.query(f"SELECT DISTINCT unnest(codes) AS code FROM {INDEX} ORDER BY code")
    named = tuple(UNLISTED if label is None else label for label in labels)
    return BoxChoices(named, tuple(splits), tuple(codes["code"].to_list()))


def annotated_page(
    store: Store, filters: BoxFilter, *, start: int = 0, back: bool = False, size: int = 24
) -> AnnotatedPage:
    """Return the pictures from place `start` on, or (back) those before it, worst first.

    A place that the filter has not gives the first page.
    """
    sql, values = _where(filters)
    beyond, way = ("x.place < ?", "DESC") if back else ("x.place >= ?", "ASC")
    # One pass finds the page, how many there are and whether some lie before: a filter may ask all
    # boxes.
    rows = store.rows(
        f"WITH fit AS MATERIALIZED (SELECT * FROM {_index(store)} x WHERE {sql}) "
        "SELECT x.*, (SELECT min(place) FROM fit) AS first, (SELECT count(*) FROM fit) AS total "
        "FROM fit x "
        f"WHERE {beyond} ORDER BY x.place {way} LIMIT {size + 1}",
        [*values, start],
    )
    if not rows and start:
        return annotated_page(store, filters, size=size)
    more = len(rows) > size
    shown = sorted(rows[:size], key=lambda row: int(row["place"]))
    before = more if back else bool(shown) and shown[0]["place"] > shown[0]["first"]
    total = shown[0]["total"] if shown else 0
    return AnnotatedPage(_pictures(store, shown), before, True if back else more, total)


def _pictures(store: Store, rows: Sequence[dict[str, Any]]) -> tuple[AnnotatedPicture, ...]:
    ids = [row["sample_id"] for row in rows]
    boxes, known = load_boxes(store, ids), {card.id: card for card in cards(store, ids)}
    severities = list(Severity)
    return tuple(
        AnnotatedPicture(
            row["place"], known[row["sample_id"]], boxes.get(row["sample_id"], ()),
            None if row["rank"] is None else severities[row["rank"]], row["findings"],
            tuple(row["codes"]),
        )
        for row in rows
        if row["sample_id"] in known
    )  # fmt: skip


def _index(store: Store) -> str:
    if not store.scalar(
        "SELECT count(*) FROM duckdb_tables() WHERE database_name = 'memory' "
        "AND table_name = 'box_index'"
    ):
        store.execute(_INDEX_SQL)
    return INDEX


def _where(filters: BoxFilter) -> tuple[str, list[Any]]:
    parts, values = ["TRUE"], list[Any]()
    if filters.split:
        parts.append("x.split = ?")
        values.append(filters.split)
    if filters.code:
        parts.append("list_contains(x.codes, ?)")
        values.append(filters.code)
    if filters.label or filters.size:
        inner, more = _boxes_where(filters)
        parts.append(f"x.sample_id IN (SELECT sample_id FROM boxes WHERE {inner})")
        values += more
    return " AND ".join(parts), values


def _boxes_where(filters: BoxFilter) -> tuple[str, list[Any]]:
    parts, values = [], list[Any]()
    if filters.label == UNLISTED:
        parts.append("label IS NULL")
    elif filters.label:
        parts.append("label = ?")
        values.append(filters.label)
    if filters.size:
        parts.append(f"{SIZE} = ?")
        values.append(filters.size)
    return " AND ".join(parts), values
