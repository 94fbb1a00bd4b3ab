"""Verify the ledger against its chain and its second copy, and restore each from the other.

The ledger and RUN/decisions.chain hold every row twice, each with its place in the chain, so damage
to one is found, and what it hit is known from the other. What the chain shows: that no row was
changed, lost or slipped in by accident, or by somebody who changed one of the two files. What it
cannot show: that somebody wrote both anew, because nothing secret goes into a digest. Checking
100,000 decisions takes about three seconds.

A repair never invents a decision: it keeps the rows that their chain or their copy proves, with
their numbers, moves the damaged file aside and names what it could not keep.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from audit.decisions.ledger import (
    BUSY_S,
    COLUMNS,
    LEDGER,
    NAME,
    VERSION,
    CopiedRow,
    LedgerCopy,
    append_rows,
    create_tables,
    link_row,
    parse_line,
    row_text,
    rows_after,
)
from audit.errors import LockedError, RunError
from audit.run.digests import DRAFT, sync
from audit.run.healing import ABSENT, DAMAGED, SOUND, UNFINISHED, CheckedPart, set_aside
from preflight.files import regular

REPAIR = "`audit verify RUN --repair`"
Key = tuple[str, int]  # table and id
# Python cannot even decode a message of SQLite that quotes damaged text.
UNREADABLE = (sqlite3.Error, UnicodeDecodeError)
# Of the file's header, what every ledger has alike. SQLite counts the rest up or passes over it.
FIXED = (slice(0, 24), slice(44, 48), slice(52, 60), slice(64, 68))


@dataclass(slots=True)
class FoundLedger:
    """What both files hold, and what of it is proven.

    `stored` and `copied` are the rows as they were found, by table and id; `kept` those to keep, in
    order; `lost` those that nothing proves; `problems` what is wrong with the file itself.
    """

    exists: bool = True
    stored: dict[Key, CopiedRow] = field(default_factory=dict)
    copied: dict[Key, CopiedRow] = field(default_factory=dict)
    kept: list[CopiedRow] = field(default_factory=list)
    lost: list[Key] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    bad_lines: int = 0

    @property
    def restored(self) -> list[Key]:
        """The rows that the ledger lacks or holds otherwise, and the copy has."""
        return [_key(row) for row in self.kept if not _same(self.stored.get(_key(row)), row)]

    @property
    def is_damaged(self) -> bool:
        """Whether the ledger itself is."""
        return bool(self.problems or self.lost or self.restored)

    @property
    def behind(self) -> list[CopiedRow]:
        """The rows that the copy lacks at its end, as after a crash."""
        last = {name: max((i for t, i in self.copied if t == name), default=0) for name in COLUMNS}
        return [r for r in self.kept if _key(r) not in self.copied and r.id > last[r.table]]

    @property
    def is_copy_damaged(self) -> bool:
        """Whether the copy is: a bad line, a line that is gone or another one than was written.

        Rows that are missing at its end count where there are more than one commit wrote: after a
        crash, the next writer would have added them.
        """
        late = {_key(row) for row in self.behind}
        rows = [row for row in self.kept if _key(row) not in late]
        commits = {(r.table, r.row[1]) for r in self.behind}
        return (
            bool(self.bad_lines)
            or any(not _same(self.copied.get(_key(row)), row) for row in rows)
            or len(commits) > 1
        )


def _key(row: CopiedRow) -> Key:
    return row.table, row.id


def _same(found: CopiedRow | None, row: CopiedRow) -> bool:
    return found is not None and (found.row, found.digest) == (row.row, row.digest)


def read_both(run: Path) -> FoundLedger:
    """Read the ledger and its copy to their ends; never raises for what is in them.

    Raises RunError where a newer version wrote the ledger, OSError where the machine cannot read.
    """
    found = FoundLedger()
    for row in LedgerCopy(run).lines():
        if row is None or row.table not in COLUMNS:
            found.bad_lines += 1
        else:
            found.copied[_key(row)] = row
    _read_ledger(run, found)
    _prove(found)
    return found


def _count_if_equal(run: Path) -> Counter[str]:
    """Return how many rows of each table ledger and copy have where they are equal and chained.

    Nothing otherwise: what is wrong is then found with all rows in memory, 3 kB each.
    """
    counts, previous = Counter[str](), dict.fromkeys(COLUMNS, "")
    found = FoundLedger()
    try:
        with (
            _open_readable(run / LEDGER, found) as con,
            open(run / NAME, "rb", opener=regular) as copy,
        ):
            _read_version(con, run / LEDGER, found)
            stored = {
                table: con.execute(f"SELECT {', '.join(names)}, digest FROM {table} ORDER BY id")
                for table, names in COLUMNS.items()
            }
            for line in copy:
                row = parse_line(line[:-1]) if line.endswith(b"\n") else None
                if row is None or next(stored[row.table], None) != (*row.row, row.digest):
                    return Counter()
                if link_row(previous[row.table], row.table, row_text(row.row)) != row.digest:
                    return Counter()
                previous[row.table] = row.digest
                counts[row.table] += 1
            more = any(next(rows, None) for rows in stored.values())
            sound = con.execute("PRAGMA integrity_check(1)").fetchone()[0] == "ok"
    except (OSError, KeyError, *UNREADABLE):
        return Counter()
    return counts if sound and not more and not found.problems else Counter()


def _read_ledger(run: Path, found: FoundLedger) -> None:
    path = run / LEDGER
    found.exists = path.is_file()
    if not found.exists or not path.stat().st_size:
        if found.copied:
            found.problems.append("it is empty" if found.exists else "it is gone")
        return
    try:
        with _open_readable(path, found) as con:
            _read_version(con, path, found)
            for row in _rows_found(con, found):
                found.stored[_key(row)] = row
            problem = con.execute("PRAGMA integrity_check(1)").fetchone()[0]
            if problem != "ok":
                found.problems.append(f"SQLite says: {problem}")
    except UNREADABLE as error:
        found.problems.append(f"SQLite says: {error}")


def _read_version(con: sqlite3.Connection, path: Path, found: FoundLedger) -> None:
    """Find out the version, from the tables where the header says another one."""
    version = con.execute("PRAGMA user_version").fetchone()[0]
    as_made = _tables(con) == _template()[1]
    if version > VERSION and not as_made:
        raise RunError(
            f"{path} was written by a newer version (ledger {version}, this one reads "
            f"{VERSION}): upgrade dataset-preflight."
        )
    if not as_made:
        found.problems.append("its tables are not those of a decision log")
    elif version != VERSION:
        found.problems.append("its version does not match its tables")


@contextmanager
def _open_readable(path: Path, found: FoundLedger) -> Iterator[sqlite3.Connection]:
    """Open the ledger; where its header is damaged, a copy with the header that ledgers have."""
    with open(path, "rb", opener=regular) as file:
        header = bytearray(file.read(100))
    made, _ = _template()
    wrong = [part for part in FIXED if header[part] != made[part]]
    if not wrong:
        with closing(connect(path)) as con:
            yield con
        return
    found.problems.append("its header is damaged")
    for part in wrong:
        header[part] = made[part]
    with tempfile.TemporaryDirectory() as folder:
        corrected = Path(folder) / LEDGER
        shutil.copyfile(path, corrected)
        with corrected.open("r+b") as file:
            file.write(header)
        with closing(connect(corrected)) as con:
            yield con


def connect(path: Path, mode: str = "rw") -> sqlite3.Connection:
    """Open a ledger file for checking: text that is no UTF-8 is escaped instead of an error."""
    address = f"{path.absolute().as_uri()}?mode={mode}"
    con = sqlite3.connect(address, uri=True, timeout=BUSY_S, isolation_level=None)
    con.text_factory = lambda content: content.decode("utf-8", "backslashreplace")
    return con


@cache
def _template() -> tuple[bytes, list[tuple[str, ...]]]:
    """Return the header and the tables of a new ledger."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as con:
        create_tables(con)
        return con.serialize()[:100], _tables(con)


def _tables(con: sqlite3.Connection) -> list[tuple[str, ...]]:
    return con.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY 2").fetchall()


def _rows_found(con: sqlite3.Connection, found: FoundLedger) -> Iterator[CopiedRow]:
    for table, names in COLUMNS.items():
        sql = f"SELECT {', '.join(names)}, digest FROM {table} NOT INDEXED"
        try:
            rows = con.execute(f"{sql} ORDER BY id").fetchall()
        except UNREADABLE as error:
            found.problems.append(f"SQLite says: {error}")
            rows = list(_rows_one_by_one(con, sql, table, found))
        for *row, linked in rows:
            if isinstance(row[0], int):  # it is not where the definition of the table is damaged
                yield CopiedRow(table, tuple(row), str(linked), 0)


def _rows_one_by_one(
    con: sqlite3.Connection, sql: str, table: str, found: FoundLedger
) -> Iterator[tuple[object, ...]]:
    """Yield the rows that can be reached by their id: a damaged page hides its own only."""
    highest = max((number for name, number in found.copied if name == table), default=0)
    with suppress(*UNREADABLE, TypeError):
        highest = max(highest, con.execute(f"SELECT max(id) FROM {table}").fetchone()[0])
    for number in range(1, highest + 1):
        with suppress(*UNREADABLE):
            yield from con.execute(f"{sql} WHERE id = ?", [number]).fetchall()


def _prove(found: FoundLedger) -> None:
    """Sort the rows into those that their chain or their copy proves, and those lost."""
    for table in COLUMNS:
        previous = ""
        for key in sorted({k for k in (*found.stored, *found.copied) if k[0] == table}):
            stored, copied = found.stored.get(key), found.copied.get(key)
            row = _proven(previous, [row for row in (stored, copied) if row]) or copied
            if row is not None:
                found.kept.append(row)
                previous = row.digest
            else:
                found.lost.append(key)
                previous = stored.digest if stored else previous


def _proven(previous: str, rows: list[CopiedRow]) -> CopiedRow | None:
    """Return the row whose values give the digest that one of the two files has."""
    for row in rows:
        digest = link_row(previous, row.table, row_text(row.row))
        if digest == row.digest:
            return row
        if digest in {other.digest for other in rows}:
            return replace(row, digest=digest)
    return None


# ---- what is reported ----


def check_ledger(run: Path) -> list[CheckedPart]:
    """Return the states of the ledger and of its copy."""
    if sound := _count_if_equal(run):
        held = _counted(sound["decisions"], sound["undos"])
        rows = f"{sound.total():,} rows"
        return [CheckedPart(LEDGER, SOUND, held), CheckedPart(NAME, SOUND, rows)]
    found = read_both(run)
    return [_ledger_part(found), _copy_part(found)]


def _ledger_part(found: FoundLedger) -> CheckedPart:
    if not (found.exists or found.is_damaged):
        return CheckedPart(LEDGER, ABSENT, "no decision yet")
    held = count_rows(found.kept)
    if not found.is_damaged:
        return CheckedPart(LEDGER, SOUND, held)
    said = list(dict.fromkeys(found.problems))
    said += [f"{len(found.restored):,} rows differ or are missing"] * bool(found.restored)
    said += [f"{len(found.lost):,} rows were changed"] * bool(found.lost)
    lost = "; ".join(describe_lost(found)) or "nothing"
    if not (found.kept or found.lost):
        lost = "every decision (an unknown number)"
    return CheckedPart(LEDGER, DAMAGED, "; ".join(said), lost, f"{REPAIR}, which keeps {held}")


def _copy_part(found: FoundLedger) -> CheckedPart:
    if found.is_copy_damaged:
        said = [f"{found.bad_lines:,} lines are damaged"] * bool(found.bad_lines)
        said = said or ["it has missing or extra rows"]
        return CheckedPart(NAME, DAMAGED, said[0], "nothing", REPAIR)
    if found.behind:
        said = [
            f"{len(found.behind):,} rows are missing, as after a crash: the next decision adds them"
        ]
        return CheckedPart(NAME, UNFINISHED, said[0])
    if not found.copied:
        return CheckedPart(NAME, ABSENT, "made by the next decision")
    return CheckedPart(NAME, SOUND, f"{len(found.copied):,} rows")


def count_rows(rows: list[CopiedRow]) -> str:
    """Return how many decisions and undos these are, in words."""
    undos = sum(row.table == "undos" for row in rows)
    return _counted(len(rows) - undos, undos)


def _counted(made: int, undos: int) -> str:
    return f"{made:,} decision{'s' * (made != 1)} and {undos:,} undo{'s' * (undos != 1)}"


def describe_lost(found: FoundLedger) -> list[str]:
    """Return one text per lost row, with what the damaged row says."""
    texts = []
    for table, number in found.lost:
        row = found.stored.get((table, number))
        values = dict(zip(COLUMNS[table], row.row, strict=True)) if row else {}
        if table == "undos":
            texts.append(f"undo {number} (batch {values.get('batch')}, which counts again)")
        else:
            said = [str(values.get(name)) for name in ("verb", "value", "subject", "by")]
            texts.append(f"decision {number} ({' '.join(word for word in said if word != 'None')})")
    return texts


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
            done.append("lost: every decision (an unknown number)")
    if path.exists():
        with closing(connect(path)) as con:
            con.execute("BEGIN IMMEDIATE")
            copy.write(rows_after(con))
            con.execute("ROLLBACK")
    else:
        copy.path.unlink(missing_ok=True)
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
    fresh = path.with_name(f".{LEDGER}{DRAFT}")
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
