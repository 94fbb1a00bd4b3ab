"""Check the decisions of a run, restore them from their copy, and carry them over to a new run.

A restore moves the damaged database aside and replays RUN/decisions.jsonl, or a backup of that
file. Decisions of an older run are read from a copy of its files, so that nothing changes there.
"""

from __future__ import annotations

import json
import os
import sqlite3
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from itertools import count
from pathlib import Path

from audit.decisions.store import (
    COLUMNS,
    COPIED,
    COPY,
    DATABASE,
    LOGGED,
    OLDER,
    WRONG,
    DecisionStore,
    append_rows,
    create_tables,
    decisions_of,
    digest_request,
)
from audit.errors import DamagedError, RunError, UsageError
from audit.run.checked_parts import ABSENT, DAMAGED, SOUND, UNFINISHED, CheckedPart
from audit.run.synced_files import DRAFT, sync
from audit.run.writer_lock import claim_run
from dataset_preflight.foundation.files import read_regular, regular

REQUESTS = "requests.sqlite"  # of a run of the older version: the keys of its batches
# How rows of the older version become rows of this one. A request that recorded nothing names no
# batch there; it gets a batch of its own, so that its key is known.
CARRIED: Mapping[str, str] = {
    "batches": """
        SELECT d.batch, coalesce(k.by, d.by), k.key, iif(k.key IS NULL, NULL, digest(k.asked)), d.at
        FROM (SELECT min(id) AS id FROM old.decisions GROUP BY batch)
        JOIN old.decisions d USING (id)
        LEFT JOIN keyed.requests k ON k.batch = d.batch
        UNION ALL
        SELECT (SELECT coalesce(max(batch), 0) FROM old.decisions) + row_number() OVER (),
            by, key, digest(asked), (SELECT coalesce(max(at), '') FROM old.decisions)
        FROM keyed.requests WHERE batch = 0
    """,
    "decisions": """
        SELECT id, batch, by, kind, subject, content_hash, verb, value, note, evidence
        FROM old.decisions
    """,
    "undos": "SELECT id, batch, by, at FROM old.undos",
}
# What a line of the copy can raise that no writer wrote.
UNREADABLE = (ValueError, TypeError, LookupError, OverflowError, RecursionError, sqlite3.Error)


def check_decisions(run: Path) -> list[CheckedPart]:
    """Return the states of the database and of its copy.

    Raises RunError where another version wrote them, OSError where the machine cannot read them.
    """
    store = DecisionStore(run)
    try:
        if store.path.is_dir():
            raise store.damaged("it is a folder")
        with store.reading() as con:
            if con is None:
                return [
                    CheckedPart(DATABASE, ABSENT, "no decision yet"),
                    CheckedPart(COPY, ABSENT, "made by the next decision"),
                ]
            problem = con.execute("PRAGMA integrity_check(1)").fetchone()[0]
            if problem != "ok":
                raise store.damaged(f"SQLite says: {problem}")
            with open(store.path, "rb") as file:
                if file.read(20)[18:] != b"\1\1":  # a file with a rollback journal
                    raise store.damaged("its header is not that of decisions")
            if row := con.execute(f"{LOGGED} WHERE {WRONG} LIMIT 1").fetchone():
                raise store.damaged(f"a value of decision {row[0]} was changed")
            counts = count_rows(_count(con))
            return [CheckedPart(DATABASE, SOUND, counts), _check_copy(store.copy, con)]
    except DamagedError as error:
        why = error.what.partition(" is damaged ")[2].strip("()")
        lost = "nothing" if store.copy.exists() else "every decision (an unknown number)"
        remade = str(error).removeprefix(f"{error.what}: ").removesuffix(" restores the decisions.")
        return [CheckedPart(DATABASE, DAMAGED, why, lost, remade)]


def _check_copy(copy: Path, con: sqlite3.Connection) -> CheckedPart:
    remade = (
        f"the next decision, after you move {COPY} away. If {DATABASE} is wrong, move it away "
        f"instead, and restore it with `audit decide RUN --from RUN/{COPY}`"
    )
    if not copy.exists():
        return CheckedPart(COPY, UNFINISHED, "missing: the next decision writes it again")
    if not copy.is_file():
        return CheckedPart(COPY, DAMAGED, "it is not a file", "nothing", remade)
    stored = {table: con.execute(f"SELECT * FROM {table} ORDER BY id") for table in COPIED}
    number, last = 0, dict.fromkeys(COPIED, 0)
    with open(copy, "rb", opener=regular) as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                break  # the next decision cuts it off
            try:
                table, row, decisions, ids = json.loads(line)
                last[table] = row[0]
                rows = [next(stored[table], ()), *decisions_of(con, table, row[0])]
                same = rows == [tuple(r) for r in (row, *decisions)] and ids == [*last.values()]
            except UNREADABLE:
                same = False
            if not same:
                why = f"line {number:,} is damaged or differs from {DATABASE}"
                return CheckedPart(COPY, DAMAGED, why, "nothing", remade)
    missing = sum(1 for rows in stored.values() for _ in rows)
    if missing:
        why = f"{missing:,} lines are missing, as after a crash: the next decision adds them"
        return CheckedPart(COPY, UNFINISHED, why)
    return CheckedPart(COPY, SOUND, f"{number:,} lines")


def count_rows(totals: Mapping[str, int]) -> str:
    """Return how many decisions, batches and undos these are, in words."""
    batches, decisions, undos = totals.values()
    return (
        f"{decisions:,} decision{'s' * (decisions != 1)} in {batches:,} "
        f"batch{'es' * (batches != 1)} and {undos:,} undo{'s' * (undos != 1)}"
    )


def _count(con: sqlite3.Connection) -> dict[str, int]:
    counted = {t: con.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in COLUMNS}
    return {table: int(number) for table, number in counted.items()}


def restore_decisions(run: Path, copy: Path) -> str:
    """Replay a copy in place of a damaged database; returns in words what it wrote and moved.

    A decision that somebody records meanwhile is in the copy, so another restore finds it. Raises
    UsageError where there is no damage or the copy has no lines, OSError where it cannot be read.
    """
    store, fresh = DecisionStore(run), run / f".{DATABASE}{DRAFT}"
    if check_decisions(run)[0].state == SOUND:
        raise UsageError(f"{store.path} is not damaged. Nothing was changed.")
    lines = read_regular(copy).split(b"\n")[:-1]
    totals, left_out = _replay(fresh, lines)
    if len(lines) == left_out:
        fresh.unlink()
        raise UsageError(
            f"{store.path} cannot be restored: {copy} has no decisions. Nothing was changed."
        )
    moved = [_move_aside(store.path), _move_aside(run / f"{DATABASE}-journal")]
    os.replace(fresh, store.path)
    sync(run)
    if left_out or not (store.copy.exists() and store.copy.samefile(copy)):
        moved.append(_move_aside(store.copy))
    with store.writing():
        pass  # the end of a transaction writes the copy
    words = [f"Restored {count_rows(totals)}."]
    lines_text = f"{left_out:,} damaged line{'s' * (left_out != 1)}"
    words += [f"Left out {lines_text} of {copy}."] * bool(left_out)
    return " ".join([*words, *(f"The file before is now {path}." for path in moved if path)])


def _replay(path: Path, lines: Sequence[bytes]) -> tuple[dict[str, int], int]:
    """Write a database of these lines; returns its rows, and how many lines it refused."""
    path.unlink(missing_ok=True)
    left_out = 0
    with closing(sqlite3.connect(path, isolation_level=None)) as con:
        con.execute("PRAGMA foreign_keys = ON")  # refuses the undo of a batch that is lost
        con.execute("BEGIN")
        create_tables(con)
        for line in lines:
            con.execute("SAVEPOINT line")
            try:
                table, row, decisions, _ = json.loads(line)
                append_rows(con, table, [row])
                append_rows(con, "decisions", decisions)
            except UNREADABLE:
                con.execute("ROLLBACK TO line")
                left_out += 1
            con.execute("RELEASE line")
        con.execute("COMMIT")
        return _count(con), left_out


def _move_aside(path: Path) -> Path | None:
    """Rename a file to NAME.damaged-1, or the next number; None where there is no file."""
    if not os.path.lexists(path):
        return None
    names = (path.with_name(f"{path.name}.damaged-{number}") for number in count(1))
    return path.rename(next(name for name in names if not os.path.lexists(name)))


def import_decisions(old: Path, run: Path) -> str:
    """Carry the decisions of another run over to a new one; returns in words how many.

    Batches, keys and undos stay as they are. Nothing changes in `old`; `run` is made where it is
    absent, and may have the same decisions. Raises UsageError where it has others, RunError where
    the files of `old` cannot be read.
    """
    # read from a copy of its files: SQLite would finish there what a crash left
    with tempfile.TemporaryDirectory(prefix="audit-decisions-") as name:
        folder = Path(name)
        for path in (DATABASE, f"{DATABASE}-journal", COPY, REQUESTS, f"{REQUESTS}-journal"):
            if (old / path).is_file():
                (folder / path).write_bytes(read_regular(old / path))
        version = _read_version(folder, old)
        claim_run(run)
        selected = CARRIED
        if version != OLDER:
            selected = {table: f"SELECT * FROM old.{table}" for table in COLUMNS}
        store = DecisionStore(run)
        with store.writing(old=folder / DATABASE, keyed=folder / REQUESTS) as con:
            con.create_function("digest", 1, digest_request)
            lacking = (f"{sql} EXCEPT SELECT * FROM {table}" for table, sql in selected.items())
            if any(con.execute(sql).fetchone() for sql in lacking):
                if any(_count(con).values()):
                    raise UsageError(
                        f"{run} has other decisions than {old}: use a new folder with --out, or "
                        "leave --decisions-from out."
                    )
                for table, sql in selected.items():
                    con.execute(f"INSERT INTO {table} {sql}")
            totals = {
                table: con.execute(f"SELECT count(*) FROM ({sql})").fetchone()[0]
                for table, sql in selected.items()
            }
    return f"Carried over from {old}: {count_rows(totals)}."


def _read_version(folder: Path, old: Path) -> int:
    """Return the version of copied files that are whole."""
    try:
        with closing(sqlite3.connect(folder / REQUESTS)) as con:
            con.execute("CREATE TABLE IF NOT EXISTS requests (by, key, asked, batch)")
        with closing(sqlite3.connect(folder / DATABASE)) as con:
            version = int(con.execute("PRAGMA user_version").fetchone()[0])
            problem = con.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if version != OLDER:
            with DecisionStore(folder).reading() as found:
                problem = problem if found else "it has no decisions"
    except (sqlite3.Error, UnicodeDecodeError) as error:
        problem = str(error)
    except RunError as error:
        raise RunError(str(error).replace(str(folder), str(old))) from None
    if problem != "ok":
        raise RunError(
            f"The decisions of {old} cannot be carried over ({problem}): name the folder of a run "
            f"with an intact {DATABASE}."
        )
    return version
