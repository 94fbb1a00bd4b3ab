"""The columns of a run, and filters over them as data: SQL with parameters, and text for a link.

A link comes from outside: columns must exist in the run, and values are only ever parameters.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from audit.checking.label_facts import CALIBRATED_SCORES
from audit.errors import UsageError
from audit.picture.features import MEASURED
from audit.results.formatting import number_text
from audit.results.reader import reads
from audit.run.annotation_tables import ANNOTATION_TABLES, BOX_STATISTICS_TABLES
from audit.run.store import Store, identifier
from audit.run.tables import OTHER_TABLES, SAMPLES

NUMBERS = ("DOUBLE", "FLOAT", "INTEGER", "BIGINT", "SMALLINT", "TINYINT", "HUGEINT", "DECIMAL")
# Numbers that say nothing by their size: hashes, times in nanoseconds.
CODED = frozenset({"phash", "dhash", "mtime_ns", "ctime_ns"})
HIDDEN = frozenset({"subject", "phash256", "content_hash", "pixel_hash", "uri", *CODED})
DERIVED = {
    "pixels": "width x height of the shown image, px",
    "aspect": "width / height of the shown image",
}
DOCS = {c.name: c.doc for c in (*SAMPLES, *MEASURED, *BOX_STATISTICS_TABLES["box_images"])}
DOCS |= DERIVED
METADATA = "manifest"
_NEAREST = "(SELECT sample_id, similarity FROM vector_neighbours WHERE position = 0)"
# Scores that a run may hold beside its images, by the first part of their names: table, short name,
# columns.
SCORES = {
    "map": ("embedding_map", "e", OTHER_TABLES["embedding_map"]),
    "label": (CALIBRATED_SCORES, "l", OTHER_TABLES["label_scores"]),
    "boxes": ("box_quality", "b", ANNOTATION_TABLES["box_quality"]),
    "nearest": (
        _NEAREST, "v", [c for c in OTHER_TABLES["vector_neighbours"] if c.name == "similarity"]
    ),
}  # fmt: skip
PREFIXES = {METADATA, *SCORES}
OF_SAMPLES = {c.name for c in SAMPLES}
OF_FEATURES = {c.name for c in MEASURED} | {"id"}
FEW = 1000  # distinct texts up to which a column is offered as a choice


class Kind(StrEnum):
    """How a column is filtered: by a range, by a choice, by a part of its text."""

    NUMBER = "number"
    CHOICE = "choice"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class ColumnOf:
    """A column in the app: `sql` names it in `source_of`; `plain`: stored as text."""

    name: str
    kind: Kind
    sql: str
    doc: str = ""
    plain: bool = False


@reads()
def list_columns(store: Store) -> Mapping[str, ColumnOf]:
    """Return every column of images and manifest by name, in the order of the store."""
    columns = [
        ("", "i", name, kind, DOCS.get(name, ""))
        for name, kind in store.columns("images").items()
        if name not in HIDDEN
    ]
    columns += [
        (f"{METADATA}.", "m", name, kind, f"column {name} of the manifest")
        for name, kind in store.columns("metadata").items()
    ]
    for prefix, (table, short, scores) in SCORES.items():
        if store.scalar(f"SELECT EXISTS (FROM {table})"):
            columns += [(f"{prefix}.", short, c.name, c.type, c.doc) for c in scores]
    return {
        f"{prefix}{name}": ColumnOf(
            f"{prefix}{name}", _kind(name, kind), f"{short}.{identifier(name)}", doc,
            kind == "VARCHAR",
        )
        for prefix, short, name, kind, doc in columns
        if name != "sample_id"
    }  # fmt: skip


def source_of(store: Store, names: Iterable[str] = ()) -> str:
    """Return the FROM clause, as `i` (and others, joined), that holds the named columns and `id`.

    A single table is read without a join.
    """
    wanted = set(names)
    joined = [
        f"LEFT JOIN {table} {short} ON {short}.sample_id = i.id"
        for prefix, (table, short, _) in {METADATA: ("metadata", "m", ()), **SCORES}.items()
        if any(name.startswith(f"{prefix}.") for name in wanted)
    ]
    sources = {"samples": "samples i", "features": "(SELECT *, sample_id AS id FROM features) i"}
    plain = {name for name in wanted if "." not in name or name.split(".")[0] not in PREFIXES}
    return " ".join([sources.get(table_of(plain), "images i"), *joined])


def table_of(names: Iterable[str]) -> str:
    """Return the one table that has all the named columns, samples before features; "" for none."""
    wanted = set(names)
    return "samples" if wanted <= OF_SAMPLES else "features" if wanted <= OF_FEATURES else ""


def column_named(known: Mapping[str, ColumnOf], name: str) -> ColumnOf:
    """Return a column by name; raises UsageError that says which there are."""
    if name not in known:
        raise UsageError(f"This run has no column {name!r}; it has {', '.join(known)}.")
    return known[name]


@reads()
def choices(store: Store, name: str) -> list[str | None]:
    """Return the values of a column, the most frequent first; [] where there are over 1,000."""
    by = column_named(list_columns(store), name)
    sql = (
        f"SELECT CAST({by.sql} AS VARCHAR) AS v, count(*) AS n FROM {source_of(store, [name])}"
        f" GROUP BY 1 ORDER BY n DESC, v LIMIT {FEW + 1}"
    )
    found: list[str | None] = store.query(sql)["v"].to_list()
    return found if len(found) <= FEW else []


def _kind(name: str, type_: str) -> Kind:
    if type_.split("(")[0] in NUMBERS:
        return Kind.NUMBER
    text = name in ("id", "error", "decoder_warnings") or type_.startswith("TIMESTAMP")
    return Kind.TEXT if text else Kind.CHOICE


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


def all_of(parts: Sequence[Where]) -> Where:
    """Return that all of some conditions hold, TRUE without any, and the parameters."""
    sql = " AND ".join(f"({text})" for text, _ in parts) or "TRUE"
    return sql, [value for _, values in parts for value in values]


def rows_where(
    store: Store, conditions: Sequence[Condition], *names: str
) -> tuple[Mapping[str, ColumnOf], str, list[Any]]:
    """Return the columns of a run, SQL of the rows that meet the conditions, and its parameters."""
    known = list_columns(store)
    sql, values = all_of([_one(known, condition) for condition in conditions])
    return known, f"{source_of(store, [*used(conditions), *names])} WHERE ({sql})", values


def _one(known: Mapping[str, ColumnOf], condition: Condition) -> Where:
    match condition:
        case Between(name, low, high):
            if column_named(known, name).kind is not Kind.NUMBER:
                raise UsageError(
                    f"The column {name!r} holds no numbers, so this link's range of it means "
                    "nothing: clear the filters and choose again."
                )
            return f"{column_named(known, name).sql} BETWEEN ? AND ?", [low, high]
        case Contains(name, text):
            sql = f"contains(lower(CAST({column_named(known, name).sql} AS VARCHAR)), lower(?))"
            return sql, [text]
        case OneOf(name, values):
            return _one_of(column_named(known, name), values)
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
            return f"{len(ids):,} chosen images"


# Lists, not objects, for short links.
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
