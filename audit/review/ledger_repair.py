"""Restore a damaged ledger from its second copy, or the copy from the ledger.

A repair never invents a decision: it keeps the rows that their chain or their copy proves, with
their numbers, moves the damaged file aside and names what it could not keep.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from audit.errors import LockedError
from audit.review.ledger import LEDGER
from audit.review.ledger_check import FoundLedger, connect, count_rows, describe_lost, read_both
from audit.review.ledger_copy import NAME, LedgerCopy, rows_of
from audit.review.ledger_file import COLUMNS, append_rows, create_tables
from audit.run.digests import sync
from audit.run.healing import set_aside


def repair_ledger(run: Path) -> list[str]:
    """Restore the ledger and its copy from each other; returns what was done and what is lost.

    Decisions may be recorded meanwhile: raises LockedError, with nothing changed, where one was.
    """
    path, copy, found = run / LEDGER, LedgerCopy(run), read_both(run)
    before = _state(path)
    if not (found.is_damaged or found.is_copy_damaged):
        return []
    aside = set_aside(run)
    if copy.path.is_dir():
        shutil.move(copy.path, aside / NAME)
    elif copy.path.exists():
        shutil.copy2(copy.path, aside / NAME)
    done = []
    if found.is_damaged:
        fresh = _write_fresh(path, found)
        with _writers_kept_out(path):
            if _state(path) != before:
                raise LockedError(f"{path} was written meanwhile: repair it again.")
            _exchange(path, fresh, aside)
        done.append(
            f"{LEDGER}: {count_rows(found.kept)} kept; the damaged file is in {aside.name}/"
        )
        done += [f"lost: {text}" for text in describe_lost(found)]
        if not (found.kept or found.lost):
            done.append("lost: every decision; how many there were cannot be told")
    _copy_again(path, copy)
    return [*done, f"{NAME}: written again"]


def _state(path: Path) -> tuple[int, int, int] | None:
    with suppress(OSError):
        status = path.stat()
        return status.st_ino, status.st_size, status.st_mtime_ns
    return None


def _write_fresh(path: Path, found: FoundLedger) -> Path | None:
    """Write a ledger of the rows to keep beside the damaged one; None where there are none."""
    if not found.kept:
        return None
    fresh = path.with_name(f"{LEDGER}.new")
    fresh.unlink(missing_ok=True)
    with closing(connect(fresh, "rwc")) as con:
        con.execute("BEGIN IMMEDIATE")
        create_tables(con)
        for table in COLUMNS:
            append_rows(con, table, [row.row for row in found.kept if row.table == table])
        con.execute("COMMIT")
    return fresh


@contextmanager
def _writers_kept_out(path: Path) -> Iterator[None]:
    """Hold the ledger's lock where SQLite can open it at all; where not, nobody can write it.

    The file must not be opened otherwise meanwhile: closing it would give the lock back.
    """
    if not path.is_file():
        yield
        return
    with closing(connect(path)) as con:
        try:
            con.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise LockedError(f"{path} is being written: repair it again.") from None
        except (sqlite3.DatabaseError, UnicodeDecodeError):
            pass
        yield


def _exchange(path: Path, fresh: Path | None, aside: Path) -> None:
    """Put the fresh ledger in the place of the damaged one, which stays in `aside`."""
    journal = path.with_name(f"{LEDGER}-journal")
    if journal.exists():
        os.replace(journal, aside / journal.name)
    if path.exists() and fresh is not None:
        with suppress(OSError):  # some file systems have no links: then it is away for a moment
            os.link(path, aside / LEDGER)
    if path.exists() and not (aside / LEDGER).exists():
        os.replace(path, aside / LEDGER)
    if fresh is not None:
        os.replace(fresh, path)
    sync(path.parent)


def _copy_again(path: Path, copy: LedgerCopy) -> None:
    if not path.exists():
        copy.path.unlink(missing_ok=True)
        return
    with closing(connect(path)) as con:
        con.execute("BEGIN IMMEDIATE")
        copy.write(rows_of(con))
        con.execute("ROLLBACK")
