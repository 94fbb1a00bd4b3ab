"""The table of runs: its file, and its rows chosen, sorted and written.

SQLite, because many processes append; a rollback journal, because WAL fails on network file
systems. An application id marks the file, and other databases are refused.
"""

from __future__ import annotations

import json
import math
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from pipeline_profiler.profiling.record.errors import ProfileError
from pipeline_profiler.runs.row import VARIABLE, RunRow

APPLICATION, VERSION = 0x50505254, 1  # "PPRT"
BUSY_S = 10.0  # that a writer waits for others
MOST_TEXT, MOST_ROWS = 1_000_000, 20_000
TYPES = {"value": "REAL", "trials": "INTEGER"}
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
        insert = f"INSERT INTO runs ({', '.join(COLUMNS)}) VALUES ({marks})"
        cursor = connection.execute(insert, values)
        connection.execute("COMMIT")
        return int(cursor.lastrowid or 0)


def append_note(path: Path, number: int, note: str) -> None:
    """Add a line to the note of a row; ProfileError where there is no such row."""
    read_row(path, number)
    update = "UPDATE runs SET note = ltrim(note || char(10) || ?, char(10)) WHERE id = ?"
    with _opened(path, "rw") as connection:
        connection.execute(update, (note, number))


def read_rows(path: Path, word: str = "") -> list[RunRow]:
    """Return every row without its diff, the latest last; `word`: in any text, without case."""
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


@contextmanager
def _opened(path: Path, mode: str) -> Iterator[sqlite3.Connection]:
    """A connection in autocommit mode; what SQLite raises becomes a sentence."""
    try:
        if mode == "rwc":
            path.parent.mkdir(parents=True, exist_ok=True)
            # diffs may hold what is nobody else's business: the file is the user's alone
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        elif mode == "rw" and not os.access(path, os.W_OK):
            mode = "ro"  # a table of somebody else can be read
        address = f"{path.resolve().as_uri()}?mode={mode}"
        opened = sqlite3.connect(address, uri=True, timeout=BUSY_S, isolation_level=None)
        with closing(opened) as connection:
            yield connection
    except (sqlite3.Error, OSError, ValueError, OverflowError) as error:
        raise ProfileError(_explained(path, error)) from None


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
            f"with --set record.file=FILE or {VARIABLE}."
        )
    if application == APPLICATION and tables:
        return True
    if tables or application:
        raise ProfileError(
            f"{path} is a database of another program: choose another file with "
            f"--set record.file=FILE or {VARIABLE}."
        )
    return False


def _explained(path: Path, error: Exception) -> str:
    said = getattr(error, "strerror", None) or " ".join(str(error).split())[:120]
    if isinstance(error, sqlite3.OperationalError) and "locked" in said:
        return f"{path} is locked by another process for more than {BUSY_S:.0f} s: try again."
    if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
        return (
            f"{path} is no table of runs, or a damaged one ({said}): choose another file with "
            f"--set record.file=FILE or {VARIABLE}, or move it away."
        )
    return (
        f"{path} cannot be opened as the table of runs ({said}): choose another with --set "
        "record.file=FILE."
    )


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


SORTS = ("time", "study", "command", "verdict", "value", "trials")
SHOWN = ("id", "time", "study", "command", "verdict", "trials", "best", "note", "file")
WIDEST = {"study": 18, "verdict": 20, "best": 30, "note": 32, "file": 32}
EMPTY = "No run is recorded yet: each measurement and run of checks adds a row."


def sort_rows(rows: Sequence[RunRow], by: str = "time", reverse: bool = False) -> list[RunRow]:
    """Sorted by a column, rows without a value last; ProfileError for an unknown column."""
    if by not in SORTS:
        raise ProfileError(f"--sort takes one of {', '.join(SORTS)}, not '{by}'.")
    known = [row for row in rows if getattr(row, by) not in (None, "")]
    known.sort(key=lambda row: (getattr(row, by), row.id), reverse=reverse)
    return known + [row for row in rows if getattr(row, by) in (None, "")]


def rows_json(rows: Sequence[RunRow], file: str) -> str:
    """The document `runs/1`; diffs are left out (a single row has its own)."""
    runs = [{k: v for k, v in row.as_dict().items() if k != "git_diff"} for row in rows]
    document = {"schema": "runs/1", "generator": "pipeline-profiler", "file": file, "runs": runs}
    return json.dumps(document, indent=1, allow_nan=False)


def rows_text(rows: Sequence[RunRow]) -> str:
    """A table for a terminal."""
    if not rows:
        return EMPTY
    cells = [SHOWN, *(_cells(row) for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(SHOWN))]
    return "\n".join(
        "  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    )


def _cells(row: RunRow) -> tuple[str, ...]:
    trials = "" if row.trials is None else str(row.trials)
    short = row.time[:16].replace("T", " ")
    texts = (
        str(row.id), short, row.study, row.command, row.verdict, trials, best_figure(row),
        row.note, row.file,
    )  # fmt: skip
    return tuple(_cell(column, text) for column, text in zip(SHOWN, texts, strict=True))


def best_figure(row: RunRow) -> str:
    """`metric value`, such as `stall share 0.31`."""
    return "" if row.value is None else f"{row.metric} {row.value:.4g}".strip()


def _cell(column: str, text: str) -> str:
    """One line; long paths lose their head, other texts their tail."""
    text, most = " ".join(text.split()), WIDEST.get(column, 1000)
    if len(text) <= most:
        return text
    return f"…{text[1 - most :]}" if column == "file" else f"{text[: most - 1]}…"


def row_text(row: RunRow) -> str:
    """Everything of one row, its diff at the end."""
    data = row.as_dict()
    diff = str(data.pop("git_diff"))
    rows = [(name, value) for name, value in data.items() if value not in ("", None)]
    width = max(len(name) for name, _ in rows)
    lines = [
        f"{name.replace('_', ' '):<{width}}  " + str(value).replace("\n", "\n" + " " * (width + 2))
        for name, value in rows
    ]
    return "\n".join([*lines, "", diff.rstrip() or "No uncommitted changes are recorded."])
