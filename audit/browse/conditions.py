"""A filter as data: conditions that become SQL with parameters, and a text for a link.

A link comes from outside, so a condition names columns that the run must have, and its values are
only ever parameters.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from audit.browse.columns import ColumnOf, Kind, column
from audit.errors import UsageError
from audit.report.wording import number_text


@dataclass(frozen=True, slots=True)
class Between:
    """A number in [low, high]; a missing number is outside."""

    column: str
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of some texts; None stands for a missing value."""

    column: str
    values: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Contains:
    """A text that holds `text`, whatever the case of its letters."""

    column: str
    text: str


@dataclass(frozen=True, slots=True)
class Among:
    """One of some sample ids: what a lasso holds."""

    ids: tuple[str, ...]


Condition = Between | OneOf | Contains | Among
Where = tuple[str, list[Any]]


def where(known: Mapping[str, ColumnOf], conditions: Sequence[Condition]) -> Where:
    """Return the SQL condition (TRUE without any) and its parameters."""
    parts = [_one(known, condition) for condition in conditions]
    sql = " AND ".join(f"({text})" for text, _ in parts) or "TRUE"
    return sql, [value for _, values in parts for value in values]


def _one(known: Mapping[str, ColumnOf], condition: Condition) -> Where:
    match condition:
        case Between(name, low, high):
            if column(known, name).kind is not Kind.NUMBER:
                raise UsageError(
                    f"The column {name!r} holds no numbers, so this link's range of it means "
                    "nothing: clear the filters and choose again."
                )
            return f"{column(known, name).sql} BETWEEN ? AND ?", [low, high]
        case Contains(name, text):
            sql = f"contains(lower(CAST({column(known, name).sql} AS VARCHAR)), lower(?))"
            return sql, [text]
        case OneOf(name, values):
            return _one_of(column(known, name), values)
        case Among(ids):
            return "i.id IN (SELECT unnest(?))", [list(ids)]


def _one_of(column: ColumnOf, values: Sequence[str | None]) -> Where:
    # Plain texts are compared as they are stored: only then does the scan itself leave rows out.
    sql = column.sql if column.plain else f"CAST({column.sql} AS VARCHAR)"
    present = [value for value in values if value is not None]
    parts = [f"{sql} IN ({', '.join('?' * len(present))})"] if present else []
    parts += [f"{sql} IS NULL"] * (None in values)
    return " OR ".join(parts) or "FALSE", present


def used(conditions: Sequence[Condition]) -> list[str]:
    """Return the columns that the conditions name."""
    return [c.column for c in conditions if not isinstance(c, Among)]


def without(conditions: Sequence[Condition], name: str) -> list[Condition]:
    """Return the conditions that do not name this column."""
    return [c for c in conditions if isinstance(c, Among) or c.column != name]


def words_of(condition: Condition) -> str:
    """Return what a condition asks for, in a few words."""
    match condition:
        case Between(name, low, high):
            return f"{name} {number_text(low)} to {number_text(high)}"
        case OneOf(name, values):
            return f"{name}: {', '.join('(none)' if v is None else v for v in values)}"
        case Contains(name, text):
            return f"{name} has {text}"
        case Among(ids):
            return f"{len(ids):,} chosen pictures"


# Lists, not objects: each quote and brace takes three characters in a link.
def to_link(conditions: Sequence[Condition]) -> str:
    """Return the conditions as compact JSON; a lasso has its own place in a link."""
    rows: list[list[Any]] = []
    for condition in conditions:
        match condition:
            case Between(name, low, high):
                rows.append([name, "between", low, high])
            case OneOf(name, values):
                rows.append([name, "in", *values])
            case Contains(name, text):
                rows.append([name, "has", text])
    return json.dumps(rows, ensure_ascii=False, separators=(",", ":")) if rows else ""


def from_link(text: str) -> tuple[Condition, ...]:
    """Inverse of `to_link`; raises UsageError for a text that is no filter."""
    if not text:
        return ()
    try:
        return tuple(_read(row) for row in json.loads(text))
    except (ValueError, TypeError, IndexError, KeyError, OverflowError, RecursionError):
        raise UsageError(
            "The filter in this link is damaged: clear the filters and choose again."
        ) from None


def _read(row: Sequence[Any]) -> Condition:
    name, kind, *values = row
    match str(kind):
        case "between":
            low, high = float(values[0]), float(values[1])
            if math.isnan(low) or math.isnan(high):  # which JSON may hold, and no slider
                raise ValueError(kind)
            return Between(str(name), low, high)
        case "in":
            return OneOf(str(name), tuple(None if v is None else str(v) for v in values))
        case "has":
            return Contains(str(name), str(values[0]))
        case other:
            raise ValueError(other)
