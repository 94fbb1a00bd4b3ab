"""The columns of a run that a person can filter, sort and draw, and of which kind each is.

They are read from the run itself: a feature or a manifest column that appears in a later version
appears here by itself, with the kind that its type gives it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from audit.errors import UsageError
from audit.picture.features import MEASURED
from audit.run.statistics_tables import BOX_STATISTICS_TABLES
from audit.run.store import Store, identifier
from audit.run.tables import OTHER_TABLES, SAMPLES

NUMBERS = ("DOUBLE", "FLOAT", "INTEGER", "BIGINT", "SMALLINT", "TINYINT", "HUGEINT", "DECIMAL")
# Numbers that say nothing by their size: hashes, times in nanoseconds.
CODED = frozenset({"phash", "dhash", "mtime_ns", "ctime_ns"})
HIDDEN = frozenset({"subject", "phash256", "content_hash", "pixel_hash", "uri", *CODED})
DERIVED = {
    "pixels": "width x height of the shown picture, px",
    "aspect": "width / height of the shown picture",
}
DOCS = {c.name: c.doc for c in (*SAMPLES, *MEASURED, *BOX_STATISTICS_TABLES["box_images"])}
DOCS |= DERIVED
METADATA = "manifest"
MAP = "map"
MAP_DOCS = {c.name: c.doc for c in OTHER_TABLES["embedding_map"] if c.name != "sample_id"}
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
    """A column as the app offers it: `sql` names it in `source_of`, `doc` says what it holds, and
    `plain` that it is stored as text.
    """

    name: str
    kind: Kind
    sql: str
    doc: str = ""
    plain: bool = False


def list_columns(store: Store) -> Mapping[str, ColumnOf]:
    """Return every column of images and manifest by name, in the order of the store."""
    found: dict[str, ColumnOf] = {}
    for name, kind in store.columns("images").items():
        if name not in HIDDEN:
            found[name] = ColumnOf(
                name, _kind(name, kind), f"i.{identifier(name)}", DOCS.get(name, ""),
                kind == "VARCHAR",
            )  # fmt: skip
    for name, kind in store.columns("metadata").items():
        if name != "sample_id":
            key = f"{METADATA}.{name}"
            doc = f"column {name} of the manifest"
            found[key] = ColumnOf(
                key, _kind(name, kind), f"m.{identifier(name)}", doc, kind == "VARCHAR"
            )
    if store.scalar("SELECT EXISTS (FROM embedding_map)"):
        for name, doc in MAP_DOCS.items():
            found[f"{MAP}.{name}"] = ColumnOf(f"{MAP}.{name}", Kind.NUMBER, f"e.{name}", doc)
    return found


def source_of(store: Store, names: Iterable[str] = ()) -> str:
    """Return the FROM clause, as `i` (and `m`, `e`), that holds the named columns and `id`.

    Where one table has them all, it is read alone: joining a million rows takes ten times as long
    as reading one column of them.
    """
    wanted = set(names)
    joined = [
        f"LEFT JOIN {table} {short} ON {short}.sample_id = i.id"
        for prefix, table, short in ((METADATA, "metadata", "m"), (MAP, "embedding_map", "e"))
        if any(name.startswith(f"{prefix}.") for name in wanted)
    ]
    if joined:
        return f"images i {' '.join(joined)}"
    sources = {"samples": "samples i", "features": "(SELECT *, sample_id AS id FROM features) i"}
    return sources.get(table_of(wanted), "images i")


def table_of(names: Iterable[str]) -> str:
    """Return the one table that has all the named columns, samples before features; "" for none."""
    wanted = set(names)
    return "samples" if wanted <= OF_SAMPLES else "features" if wanted <= OF_FEATURES else ""


def column(known: Mapping[str, ColumnOf], name: str) -> ColumnOf:
    """Return a column by name; raises UsageError that says which there are."""
    if name not in known:
        raise UsageError(f"This run has no column {name!r}; it has {', '.join(known)}.")
    return known[name]


def choices(store: Store, one: ColumnOf) -> list[str | None]:
    """Return the values of a column, the most frequent first; [] where there are over 1,000."""
    sql = (
        f"SELECT CAST({one.sql} AS VARCHAR) AS v, count(*) AS n FROM {source_of(store, [one.name])}"
        f" GROUP BY 1 ORDER BY n DESC, v LIMIT {FEW + 1}"
    )
    found: list[str | None] = store.query(sql)["v"].to_list()
    return found if len(found) <= FEW else []


def _kind(name: str, type_: str) -> Kind:
    if type_.split("(")[0] in NUMBERS:
        return Kind.NUMBER
    text = name in ("id", "error", "decoder_warnings") or type_.startswith("TIMESTAMP")
    return Kind.TEXT if text else Kind.CHOICE
