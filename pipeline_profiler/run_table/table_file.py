"""The file of the table: SQLite, so that many processes append at once and a kill leaves no half.

SQLite and not Parquet: a row is added in one transaction, while a Parquet file is written anew for
each row, and of two writers one would lose its row. A rollback journal and not WAL, which fails on
network file systems. The file carries an application id: a database of somebody else is never
written to. Standard library only.
"""

from __future__ import annotations

import math
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from pipeline_profiler.record.errors import ProfileError
from pipeline_profiler.run_table.location import VARIABLE
from pipeline_profiler.run_table.row import RunRow

APPLICATION, VERSION = 0x50505254, 1  # "PPRT"
BUSY_S = 10.0  # that a writer waits for others
MOST_TEXT, MOST_ROWS = 1_000_000, 20_000
TYPES = {"value": "REAL", "seconds": "REAL", "trials": "INTEGER", "exit_code": "INTEGER"}
COLUMNS = tuple(f.name for f in fields(RunRow) if f.name not in ("id", "git_diff_lines"))
LINES = "length(git_diff) - length(replace(git_diff, char(10), ''))"
EVERY_TEXT = " || char(10) || ".join(f"coalesce({name}, '')" for name in COLUMNS)


def append_row(path: Path, row: RunRow) -> int:
    """Add a row and return its id; ProfileError in a sentence where the file does not take it."""
    marks = ", ".join("?" for _ in COLUMNS)
    with _opened(path, "rwc") as connection:
        connection.execute("BEGIN IMMEDIATE")
        _prepare(connection, path)
        values = [_stored(getattr(row, name)) for name in COLUMNS]
        cursor = connection.execute(
            f"INSERT INTO runs ({', '.join(COLUMNS)}) VALUES ({marks})", values
        )
        connection.execute("COMMIT")
        return int(cursor.lastrowid or 0)


def append_note(path: Path, number: int, note: str) -> RunRow:
    """Add a line to the note of a row; ProfileError where there is no such row."""
    row = read_row(path, number)
    lines = f"{row.note}\n{note}" if row.note else note
    with _opened(path, "rw") as connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(
            "UPDATE runs SET note = CASE WHEN note = '' THEN ? ELSE note || char(10) || ? END "
            "WHERE id = ?",
            (note, note, number),
        )
        connection.execute("COMMIT")
    return RunRow(**{**row.as_dict(), "note": lines})


def read_rows(path: Path, word: str = "") -> list[RunRow]:
    """Every row without its diff, the latest last; no rows where there is no file yet.

    word: rows with this word only, in any text and in the diff, upper or lower case alike.
    """
    if not path.exists():
        return []
    where = f"WHERE instr(lower({EVERY_TEXT}), ?)" if word else ""
    return _selected(path, where, (word.lower(),) if word else (), diffs=False)


def read_row(path: Path, number: int) -> RunRow:
    """One row; ProfileError where there is none of that number."""
    rows = _selected(path, "WHERE id = ?", (number,), diffs=True) if path.exists() else []
    if not rows:
        raise ProfileError(f"{path} has no run {number}: `pipeline-profiler runs` lists them.")
    return rows[0]


def _selected(path: Path, where: str, values: tuple[Any, ...], diffs: bool) -> list[RunRow]:
    columns = [f"'' AS {n}" if n == "git_diff" and not diffs else n for n in COLUMNS]
    query = f"SELECT id, {LINES}, {', '.join(columns)} FROM runs {where} ORDER BY id DESC LIMIT ?"
    with _opened(path, "rw") as connection:
        if not _is_ours(connection, path):
            return []
        rows = connection.execute(query, (*values, MOST_ROWS)).fetchall()
    return [
        RunRow(
            id=int(number),
            git_diff_lines=int(lines or 0),
            **{name: _read(name, value) for name, value in zip(COLUMNS, held, strict=True)},
        )
        for number, lines, *held in reversed(rows)
    ]


# ---- the file ----


@contextmanager
def _opened(path: Path, mode: str) -> Iterator[sqlite3.Connection]:
    """A connection in autocommit mode; what SQLite raises becomes a sentence."""
    try:
        if mode == "rwc":
            path.parent.mkdir(parents=True, exist_ok=True)
            _make_private(path)
        elif mode == "rw" and not os.access(path, os.W_OK):
            mode = "ro"  # a table of somebody else can be read
        address = f"{path.resolve().as_uri()}?mode={mode}"
        with closing(
            sqlite3.connect(address, uri=True, timeout=BUSY_S, isolation_level=None)
        ) as connection:
            yield connection
    except (sqlite3.Error, OSError, ValueError, OverflowError) as error:
        raise ProfileError(_explained(path, error)) from None


def _make_private(path: Path) -> None:
    """Diffs may hold what is nobody else's business: the file is the user's alone."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Create the table in an empty file; inside the writer's transaction, so that one creates."""
    if _is_ours(connection, path):
        return
    columns = ", ".join(f"{name} {TYPES.get(name, 'TEXT')}" for name in COLUMNS)
    connection.execute(f"CREATE TABLE runs (id INTEGER PRIMARY KEY AUTOINCREMENT, {columns})")
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def _is_ours(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether the table is there; False for an empty file, ProfileError for a foreign one."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application == APPLICATION and version > VERSION:
        raise ProfileError(
            f"{path} was written by a newer pipeline-profiler: upgrade, or choose another file "
            f"with --runs or {VARIABLE}."
        )
    if application == APPLICATION and tables:
        return True
    if tables or application:
        raise ProfileError(
            f"{path} is a database of another program: choose another file with --runs or "
            f"{VARIABLE}."
        )
    return False


def _explained(path: Path, error: Exception) -> str:
    said = getattr(error, "strerror", None) or " ".join(str(error).split())[:120]
    if isinstance(error, sqlite3.OperationalError) and "locked" in said:
        return f"{path} is locked by another process for more than {BUSY_S:.0f} s: try again."
    if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
        return (
            f"{path} is no table of runs, or a damaged one ({said}): choose another file with "
            f"--runs or {VARIABLE}, or move it away."
        )
    return f"{path} cannot be opened as the table of runs ({said}): choose another with --runs."


# ---- values ----


def _stored(value: Any) -> Any:
    """What SQLite takes: no lone surrogates, no endless texts, no NaN."""
    if isinstance(value, str):
        return value[:MOST_TEXT].encode("utf-8", "backslashreplace").decode()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _read(name: str, value: Any) -> Any:
    """A column's value in its type, whatever the file holds there."""
    kind = TYPES.get(name)
    if kind is None:
        return "" if value is None else str(value)[:MOST_TEXT]
    try:
        number = float(value) if kind == "REAL" else int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
