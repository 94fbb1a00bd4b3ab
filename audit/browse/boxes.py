"""Boxes of an image, from whatever table a source stored them in.

A run holds boxes where its source had them. The table and its columns are found by their names, so
a run of a version without boxes simply has none.
"""

from __future__ import annotations

from dataclasses import dataclass

from audit.run.store import Store, identifier

TABLES = ("boxes", "annotations")
SPELLINGS = (("x", "y", "width", "height"), ("x", "y", "w", "h"))
CORNERS = (("x_min", "y_min", "x_max", "y_max"), ("x1", "y1", "x2", "y2"))


@dataclass(frozen=True, slots=True)
class Box:
    """A box in px of the shown picture: top left corner and size."""

    label: str
    x: float
    y: float
    width: float
    height: float


def load_boxes(store: Store, sample: str) -> tuple[Box, ...]:
    """Return the boxes of a sample, () where the run has none."""
    for table in TABLES:
        there = _columns(store, table)
        numbers = _numbers(there)
        if numbers and "sample_id" in there:
            label = "label" if "label" in there else "''"
            rows = store.query(
                f"SELECT coalesce(CAST({label} AS VARCHAR), ''), {numbers} "
                f"FROM {identifier(table)} WHERE sample_id = ?",
                [sample],
            )
            return tuple(Box(*row) for row in rows.iter_rows() if None not in row)
    return ()


def _columns(store: Store, table: str) -> set[str]:
    # Not DESCRIBE: where there is no such table, DuckDB would look for a Python variable.
    found = store.query("SELECT column_name FROM duckdb_columns() WHERE table_name = ?", [table])
    return set(found["column_name"])


def _numbers(there: set[str]) -> str:
    for names in SPELLINGS:
        if set(names) <= there:
            return ", ".join(f"{name}::DOUBLE AS {name}" for name in names)
    for left, top, right, bottom in CORNERS:
        if {left, top, right, bottom} <= there:
            return (
                f"{left}::DOUBLE, {top}::DOUBLE, ({right} - {left})::DOUBLE, "
                f"({bottom} - {top})::DOUBLE"
            )
    return ""
