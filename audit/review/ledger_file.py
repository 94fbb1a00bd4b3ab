"""The file of the ledger: its tables, the chain of its rows, and the migration of version 1.

Every row of `decisions` and `undos` has a digest over its values and the digest of the row before
it in the same table. A byte that flips in a row, a row that is gone and a row that was slipped in
all break the chain at that place. Version 1 (0.1) had no digests: its rows are copied into chained
tables by the first transaction that writes; until then it is read as it is.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

import blake3

VERSION = 2
SCHEMA = """
    CREATE TABLE decisions (
        id INTEGER PRIMARY KEY, batch INTEGER NOT NULL, at TEXT NOT NULL, by TEXT NOT NULL,
        kind TEXT NOT NULL CHECK (kind IN ('sample', 'finding')), subject TEXT NOT NULL,
        content_hash TEXT, verb TEXT NOT NULL, value TEXT, note TEXT NOT NULL, evidence TEXT,
        digest TEXT NOT NULL
    );
    CREATE TABLE undos (
        id INTEGER PRIMARY KEY, at TEXT NOT NULL, by TEXT NOT NULL, batch INTEGER NOT NULL UNIQUE,
        digest TEXT NOT NULL
    );
    CREATE INDEX decisions_batch ON decisions (batch);
"""
APPEND_ONLY = (
    "CREATE TRIGGER {table}_{verb} BEFORE {verb} ON {table} "
    "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"
)
# What a digest is over, in this order, the id first.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "decisions": (
        "id", "batch", "at", "by", "kind", "subject", "content_hash", "verb", "value", "note",
        "evidence",
    ),
    "undos": ("id", "at", "by", "batch"),
}  # fmt: skip
Row = tuple[Any, ...]


def row_text(row: Sequence[Any]) -> str:
    """Return a row's values as JSON: what its digest is over and what the copy holds."""
    try:
        return json.dumps(list(row))
    except TypeError:  # a value of a damaged row is of a kind that no ledger has
        return json.dumps(list(row), default=repr)


def link_row(previous: str, table: str, text: str) -> str:
    """Return the digest of a row (`row_text`) after the row with the digest `previous`."""
    return str(blake3.blake3(f"{previous}\t{table}\t{text}".encode()).hexdigest())


def create_tables(con: sqlite3.Connection) -> None:
    """Make the tables of an empty ledger, within the transaction that is open."""
    # executescript would end the transaction.
    for statement in SCHEMA.split(";"):
        con.execute(statement)
    for table in COLUMNS:
        for verb in ("update", "delete"):
            con.execute(APPEND_ONLY.format(table=table, verb=verb))
    con.execute(f"PRAGMA user_version = {VERSION}")


def append_rows(con: sqlite3.Connection, table: str, rows: Sequence[Row]) -> None:
    """Add rows to a table, chained to its last one."""
    last = con.execute(f"SELECT digest FROM {table} ORDER BY id DESC LIMIT 1").fetchone()
    previous, chained = last[0] if last else "", []
    for row in rows:
        previous = link_row(previous, table, row_text(row))
        chained.append((*row, previous))
    names = ", ".join((*COLUMNS[table], "digest"))
    marks = ", ".join("?" * (len(COLUMNS[table]) + 1))
    con.executemany(f"INSERT INTO {table} ({names}) VALUES ({marks})", chained)


def next_id(con: sqlite3.Connection, table: str) -> int:
    """Return the id of the next row of a table."""
    return 1 + int(con.execute(f"SELECT coalesce(max(id), 0) FROM {table}").fetchone()[0])


def is_chained(con: sqlite3.Connection) -> bool:
    """Say whether the decisions have digests, whatever the version in the header says."""
    return any(row[1] == "digest" for row in con.execute("PRAGMA table_info(decisions)"))


def migrate_tables(con: sqlite3.Connection) -> None:
    """Chain the rows of version 1, within the transaction that is open."""
    rows = {
        table: con.execute(f"SELECT {', '.join(names)} FROM {table} ORDER BY id").fetchall()
        for table, names in COLUMNS.items()
    }
    for table in COLUMNS:
        con.execute(f"DROP TABLE {table}")  # its triggers and indexes go with it
    create_tables(con)
    for table, old in rows.items():
        append_rows(con, table, old)
