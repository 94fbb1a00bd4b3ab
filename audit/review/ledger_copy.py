"""The second copy of the ledger, RUN/decisions.chain: what tells that the ledger lost something.

One line per row, in the order of the commits, added and synced after each commit: digest, table,
last id of the other table, values as JSON, and a digest of the line itself, between tabs. The last
line is the head of the chain: a ledger without that row is older than it was, emptied or gone. And
because every line is whole in itself, a damaged ledger is restored from here.

A crash between commit and copy leaves the copy behind by some rows, which the next writer adds; it
never holds a row that was not committed. A line that a crash left without its end is cut off then.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import blake3

from audit.errors import DamagedError
from audit.review.ledger_file import COLUMNS, Row, row_text
from audit.run.digests import REPAIR, sync

NAME = "decisions.chain"
BLOCK = 1 << 16


@dataclass(frozen=True, slots=True)
class CopiedRow:
    """A row of the ledger as a line of the copy: `other` is the last id of the other table."""

    table: str
    row: Row
    digest: str
    other: int

    @property
    def id(self) -> int:
        """The id of the row."""
        return int(self.row[0])


def format_line(row: CopiedRow) -> bytes:
    """Return the line, with its own digest and its end."""
    text = f"{row.digest}\t{row.table}\t{row.other}\t{row_text(row.row)}"
    return f"{text}\t{_own_digest(text)}\n".encode()


def parse_line(line: bytes) -> CopiedRow | None:
    """Return the row of a line without its end, None where the line is damaged."""
    with contextlib.suppress(ValueError):
        text, own = line.decode().rsplit("\t", 1)
        if own == _own_digest(text):
            digest, table, other, values = text.split("\t")
            return CopiedRow(table, tuple(json.loads(values)), digest, int(other))
    return None


def _own_digest(text: str) -> str:
    return str(blake3.blake3(text.encode()).hexdigest()[:16])


class LedgerCopy:
    """The copy of one run's ledger; reading it never fails for what is in it."""

    def __init__(self, run: Path) -> None:
        """Name the copy of `run`; no file is made before the first decision."""
        self.path = run / NAME

    def last(self) -> CopiedRow | None:
        """Return the last whole row, None without one."""
        with contextlib.suppress(OSError):
            for block in self._ends():
                rows = map(parse_line, reversed(block.split(b"\n")[:-1]))
                if found := next((row for row in rows if row is not None), None):
                    return found
        return None

    def _ends(self) -> Iterator[bytes]:
        """Yield longer and longer ends of the file, at last all of it; lines may be long."""
        with self.path.open("rb") as file:
            size, length = file.seek(0, os.SEEK_END), BLOCK
            while True:
                file.seek(max(0, size - length))
                yield file.read()
                if length >= size:
                    return
                length *= 8

    def lines(self) -> list[CopiedRow | None]:
        """Return every row, None for a damaged line; a line without its end does not count.

        Raises OSError where it cannot be read; [] without a copy, and a folder is a damaged line.
        """
        if self.path.is_dir():
            return [None]
        if not self.path.exists():
            return []
        return [parse_line(line) for line in self.path.read_bytes().split(b"\n")[:-1]]

    def catch_up(self, con: sqlite3.Connection) -> None:
        """Add the rows of the ledger that it lacks; `con` keeps other writers out meanwhile."""
        last, after = self.last(), dict.fromkeys(COLUMNS, 0)
        for table in COLUMNS:
            if last is not None:
                after[table] = last.id if table == last.table else last.other
        self._append(b"".join(map(format_line, _rows_after(con, after))))

    def _append(self, text: bytes) -> None:
        if self.path.is_dir():
            raise DamagedError(f"{self.path} is damaged (it is a folder)", REPAIR)
        is_new = not self.path.exists()
        with self.path.open("ab") as file:
            file.truncate(self._length(file.tell()))
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if is_new:
            sync(self.path.parent)

    def _length(self, size: int) -> int:
        """Return the length up to the end of the last line that has one, bytes."""
        for block in self._ends():
            if b"\n" in block:
                return size - len(block) + block.rindex(b"\n") + 1
        return 0

    def write(self, rows: Iterable[CopiedRow]) -> None:
        """Replace the copy, atomically and on disk."""
        fresh = self.path.with_name(f"{NAME}.new")
        with fresh.open("wb") as file:
            file.writelines(map(format_line, rows))
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, self.path)
        sync(self.path.parent)


def rows_of(con: sqlite3.Connection) -> Iterator[CopiedRow]:
    """Yield the rows of a chained ledger as the copy holds them."""
    return _rows_after(con, dict.fromkeys(COLUMNS, 0))


def _rows_after(con: sqlite3.Connection, after: dict[str, int]) -> Iterator[CopiedRow]:
    last = dict(after)
    for table, names in COLUMNS.items():
        (other,) = COLUMNS.keys() - {table}
        columns = ", ".join((*names, "digest"))
        sql = f"SELECT {columns} FROM {table} WHERE id > ? ORDER BY id"
        for *row, digest in con.execute(sql, [after[table]]):
            yield CopiedRow(table, tuple(row), digest, last[other])
            last[table] = row[0]
