"""The ledger: what reviewers decided, as rows of RUN/decisions.sqlite that are only ever added.

Nothing is updated or deleted (triggers refuse it): an undo is a row that names the batch it takes
back, and what holds now is derived. SQLite, because many processes may decide at once and a bulk
decision must be whole or absent; a rollback journal and not WAL, which fails on network file
systems; `BEGIN IMMEDIATE`, so that a writer waits for its turn instead of failing half-way. Every
call opens the file again (0.3 ms): no thread shares a connection, and a run that was deleted or
became read-only meanwhile is noticed. Rows are chained by digests (`ledger_file`), and a second
copy beside the file (`ledger_copy`) tells a reader at once that the ledger was emptied or exchanged
for an older one. One decision costs three syncs of the disk, 100,000 in one batch three seconds.
"""

from __future__ import annotations

import getpass
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

from audit.errors import DamagedError, LockedError, RunError, UsageError
from audit.records import DECISIONS, TAGGING, Action
from audit.review.ledger_copy import CopiedRow, LedgerCopy
from audit.review.ledger_file import (
    VERSION,
    append_rows,
    create_tables,
    is_chained,
    migrate_tables,
    next_id,
)
from audit.review.ledger_row import find_wrong_value

LEDGER = "decisions.sqlite"
REPAIR = "`audit verify RUN --repair` restores what can be, and says what cannot."
BUSY_S = 30.0  # s that a writer waits for others
VERBS = {verb.value for verb in (*DECISIONS, *TAGGING)}
TAGS = pl.Schema(
    {
        "decision": pl.Int64, "subject": pl.String, "content_hash": pl.String, "tag": pl.String,
        "given": pl.Boolean,
    }
)  # fmt: skip
NAMED = {
    Action.RELABEL: "new class", Action.MOVE: "new split", Action.TAG: "tag", Action.UNTAG: "tag",
}  # fmt: skip
LOGGED = (
    "SELECT d.id, d.at, d.by, d.verb, d.value, d.subject, d.kind, d.content_hash, d.note, "
    "u.batch IS NOT NULL, d.batch, d.evidence FROM decisions d LEFT JOIN undos u USING (batch)"
)
CURRENT = pl.Schema(
    {
        "id": pl.Int64, "at": pl.String, "by": pl.String, "verb": pl.String, "value": pl.String,
        "subject": pl.String, "kind": pl.String, "content_hash": pl.String, "note": pl.String,
        "evidence": pl.String, "label": pl.String, "split": pl.String, "dropped": pl.Boolean,
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Entry:
    """A decision to record: `kind` is sample or finding, `subject` a sample id or a fingerprint.

    `value` is the class of a relabel or of a fix, or the split of a move; `evidence` (JSON) is what
    a waived finding said, so that the waiver can lapse when it says worse, and what a fix changes.
    """

    kind: str
    subject: str
    content_hash: str | None
    verb: Action
    value: str | None = None
    note: str = ""
    by: str | None = None
    evidence: str | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """A recorded decision; `at` is ISO 8601 in UTC, `batch` names what was recorded together."""

    id: int
    at: str
    by: str
    verb: Action
    value: str | None
    subject: str
    kind: str
    content_hash: str | None
    note: str
    undone: bool
    batch: str
    evidence: str | None = None


def _now() -> datetime:
    return datetime.now(UTC)


class Ledger:
    """The ledger of one run. Raises RunError, in a sentence, where it cannot be read or written."""

    def __init__(self, run: Path, clock: Callable[[], datetime] = _now) -> None:
        """Name the ledger of `run`; no file is made before the first decision."""
        self.run, self.path, self.copy = run, run / LEDGER, LedgerCopy(run)
        self._clock = clock

    # ---- writing ----

    def record(self, entries: Sequence[Entry]) -> list[Decision]:
        """Add the entries as one batch, all or none, and return them as recorded."""
        if not entries:
            return []
        for entry in entries:
            _validate(entry)
        at, me = self._clock().isoformat(timespec="seconds"), whoami()
        with self._writing() as con:
            first = next_id(con, "decisions")
            decisions = [
                Decision(
                    number, at, _text(e.by or me), Action(e.verb), e.value and _text(e.value),
                    e.subject, e.kind, e.content_hash, _text(e.note), False, str(first),
                    e.evidence,
                )
                for number, e in enumerate(entries, first)
            ]  # fmt: skip
            append_rows(con, "decisions", list(map(_row, decisions)))
        return decisions

    def undo(self, n: int = 1, by: str | None = None, *, anyone: bool = False) -> list[Decision]:
        """Take back the last `n` batches of `by` (default: yours), or of `anyone`; newest first.

        Raises UsageError where there is nothing left to undo.
        """
        who = _text(by or whoami())
        if n < 1:
            raise UsageError(f"undo takes back 1 batch or more, not {n}.")
        mine = "" if anyone else "AND d.by = ?"
        with self._writing() as con:
            batches = con.execute(
                "SELECT DISTINCT d.batch FROM decisions d LEFT JOIN undos u USING (batch) "
                f"WHERE u.batch IS NULL {mine} ORDER BY d.batch DESC LIMIT ?",
                [n] if anyone else [who, n],
            ).fetchall()
            if not batches:
                raise self._nothing_to_undo(con, who, anyone)
            at = self._clock().isoformat(timespec="seconds")
            first = next_id(con, "undos")
            rows = [(number, at, who, batch) for number, (batch,) in enumerate(batches, first)]
            append_rows(con, "undos", rows)
            undone_rows = [
                row
                for (batch,) in batches
                for row in con.execute(f"{LOGGED} WHERE batch = ? ORDER BY d.id DESC", [batch])
            ]
            # before the commit: an undo that cannot be reported is not recorded
            return [self._decision(row) for row in undone_rows]

    def _nothing_to_undo(self, con: sqlite3.Connection, who: str, anyone: bool) -> UsageError:
        other = con.execute(
            "SELECT d.by FROM decisions d LEFT JOIN undos u USING (batch) WHERE u.batch IS NULL "
            "ORDER BY d.id DESC LIMIT 1"
        ).fetchone()
        if anyone or other is None:
            return UsageError("There is no decision left to undo: `audit log RUN` shows them all.")
        return UsageError(
            f"{who!r} has no decision left to undo; the last one is by {other[0]!r}: "
            "give `--by` that name, or `--anyone`."
        )

    # ---- reading ----

    def log(self, limit: int | None = None) -> list[Decision]:
        """Return the decisions, undone ones too, newest first."""
        rows = self._read(f"{LOGGED} ORDER BY d.id DESC LIMIT ?", [-1 if limit is None else limit])
        return [self._decision(row) for row in rows]

    def revision(self) -> str:
        """Return a text that changes with every decision and every undo: a cache key."""
        sql = "SELECT (SELECT max(id) FROM decisions), (SELECT max(id) FROM undos)"
        rows = self._read(sql, [])
        return "/".join(str(number or 0) for number in rows[0]) if rows else "0/0"

    def current(self) -> pl.DataFrame:
        """Return what holds: one row per subject (kind, subject, content_hash) decided, by id.

        `verb`, `value`, `note`, `by`, `at`, `id` are of its last decision. `dropped` says whether
        that is a drop; `label` and `split` are those of its last relabel and its last move, which
        a later keep or drop does not forget. `evidence`: of a waiver.
        """
        rows = self._read(
            f"{LOGGED} WHERE u.batch IS NULL AND d.verb NOT IN ('tag', 'untag') ORDER BY d.id", []
        )
        names = [
            "id", "at", "by", "verb", "value", "subject", "kind", "content_hash", "note",
            "undone", "batch", "evidence",
        ]  # fmt: skip
        for row in rows:
            self._check(row)
        schema = {name: CURRENT.get(name, pl.Int64()) for name in names}
        try:
            frame = pl.DataFrame(rows, schema=schema, orient="row")
        except (TypeError, OverflowError, pl.exceptions.PolarsError):
            raise self._damaged("a value is of another kind than was written") from None
        last = pl.exclude("kind", "subject", "content_hash").last()
        # A sample may be relabelled, then moved, then kept: each of the three still holds.
        values = [
            pl.col("value").filter(pl.col("verb") == verb.value).last().alias(name)
            for name, verb in (("label", Action.RELABEL), ("split", Action.MOVE))
        ]
        grouped = frame.group_by("kind", "subject", "content_hash").agg(last, *values)
        dropped = (pl.col("verb") == Action.DROP.value).alias("dropped")
        return grouped.with_columns(dropped).select(CURRENT.names()).sort("id")

    def tags(self) -> pl.DataFrame:
        """Return what was tagged and untagged and not undone: (decision, subject, content_hash,
        tag, given), the oldest first; a sample may be told by two names, so the last does not win.
        """
        sql = f"{LOGGED} WHERE u.batch IS NULL AND d.verb IN ('tag', 'untag') ORDER BY d.id"
        rows = [
            (d.id, d.subject, d.content_hash, d.value, d.verb is Action.TAG)
            for d in map(self._decision, self._read(sql, []))
        ]
        return pl.DataFrame(rows, schema=TAGS, orient="row")

    # ---- the file ----

    def _read(self, sql: str, params: Sequence[object]) -> list[tuple[Any, ...]]:
        if not self.run.is_dir():
            raise self._gone()
        last = self.copy.last()  # first: what is committed meanwhile is no loss
        if not self.path.exists():
            if last is not None:
                raise self._damaged(f"it is gone, and {_counted(last)} were recorded")
            return []
        with self._open("rw") as con:
            version = con.execute("PRAGMA user_version").fetchone()[0]
            self._compare(con, version, last)
            # version 0: another process is about to make the tables
            return con.execute(sql, params).fetchall() if version else []

    def _compare(self, con: sqlite3.Connection, version: int, last: CopiedRow | None) -> None:
        """Raise DamagedError where the ledger lacks the last row of its copy."""
        if last is None:
            return
        if version == 0:
            raise self._damaged(f"it is empty, and {_counted(last)} were recorded")
        found = None
        if version > 1 and last.table in ("decisions", "undos"):
            sql = f"SELECT digest FROM {last.table} WHERE id = ?"
            found = con.execute(sql, [last.id]).fetchone()
        if found != (last.digest,):
            what = f"row {last.id} of {last.table}"
            raise self._damaged(f"it lacks {what}, which was recorded, or holds another")

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        if not self.run.is_dir():
            raise self._gone()
        last, inode = self.copy.last(), self._inode()
        with self._open("rwc") as con:
            # A deferred transaction takes its lock at the first write, and two that have both read
            # by then cannot both go on: one would fail without waiting.
            con.execute("BEGIN IMMEDIATE")
            try:
                if inode not in (None, self._inode()):
                    raise LockedError(
                        f"{self.path} was repaired meanwhile: nothing was recorded; try again."
                    )
                self._prepare(con, last)
                yield con
            except BaseException:
                con.rollback()
                raise
            con.commit()
            self._copy(con)

    def _inode(self) -> int | None:
        with suppress(OSError):
            return self.path.stat().st_ino
        return None

    def _prepare(self, con: sqlite3.Connection, last: CopiedRow | None) -> None:
        """Make the tables of a new ledger, chain those of version 1."""
        version = con.execute("PRAGMA user_version").fetchone()[0]
        self._compare(con, version, last)
        if version == 0:
            create_tables(con)
        elif version == 1:
            if is_chained(con):
                raise self._damaged("its version is not that of its tables")
            migrate_tables(con)

    def _copy(self, con: sqlite3.Connection) -> None:
        """Bring the copy up to the ledger; what fails here is made up for by the next writer."""
        with suppress(OSError, sqlite3.Error):
            con.execute("BEGIN IMMEDIATE")  # two copying at once would add the same rows
            try:
                self.copy.catch_up(con)
            finally:
                con.rollback()

    @contextmanager
    def _open(self, mode: str) -> Iterator[sqlite3.Connection]:
        address = f"{self.path.absolute().as_uri()}?mode={mode}"
        try:
            with closing(
                sqlite3.connect(address, uri=True, timeout=BUSY_S, isolation_level=None)
            ) as con:
                version = con.execute("PRAGMA user_version").fetchone()[0]
                if version > VERSION:
                    raise RunError(
                        f"{self.path} was written by a newer version (ledger {version}, this one "
                        f"reads {VERSION}): upgrade with `pip install -U dataset-preflight`."
                    )
                yield con
        except UnicodeDecodeError:
            raise self._damaged("it holds text that is no text") from None
        except sqlite3.Error as error:
            raise self._explained(error) from None

    def _explained(self, error: sqlite3.Error) -> RunError:
        """Return the sentence for what SQLite reports."""
        if not self.run.is_dir():
            return self._gone()
        name = getattr(error, "sqlite_errorname", None) or str(error)
        if "BUSY" in name or "LOCKED" in name:
            return LockedError(
                f"Another process has been writing {self.path} for {BUSY_S:.0f} s: nothing was "
                "recorded; try again when it is done."
            )
        if "READONLY" in name or "CANTOPEN" in name or "PERM" in name:
            return RunError(
                f"{self.path} cannot be written, so nothing was recorded: get write access to it "
                "and its folder, or decide on a copy of the run."
            )
        if "NOTADB" in name or "CORRUPT" in name:
            return self._damaged(f"SQLite says: {error}")
        return RunError(f"{self.path} cannot be used ({error}): check its disk, then try again.")

    def _damaged(self, why: str) -> DamagedError:
        return DamagedError(f"{self.path} is damaged ({why})", REPAIR)

    def _unknown(self, number: object, verb: object) -> RunError:
        return RunError(
            f"{self.path} holds a decision, number {number}, whose verb {str(verb)!r} is unknown: "
            "a newer version wrote it (`pip install -U dataset-preflight`) or it is damaged "
            "(`audit verify RUN`)."
        )

    def _check(self, row: tuple[Any, ...]) -> None:
        if wrong := find_wrong_value(row):
            raise self._damaged(f"the {wrong} of decision {row[0]} is not what was written")
        if row[3] not in VERBS:
            raise self._unknown(row[0], row[3])

    def _decision(self, row: tuple[Any, ...]) -> Decision:
        number, at, by, verb, value, subject, kind, content, note, undone, batch, evidence = row
        self._check(row)
        return Decision(
            number, at, by, Action(verb), value, subject, kind, content, note, bool(undone),
            str(batch), evidence,
        )  # fmt: skip

    def _gone(self) -> RunError:
        return RunError(
            f"There is no run at {self.run}: it was moved or deleted, or the path is wrong."
        )


def whoami() -> str:
    """Return the login name, `unknown` where the system has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return "unknown"


def _counted(last: CopiedRow) -> str:
    """Return how many decisions there were, by the last row of the copy."""
    number = last.id if last.table == "decisions" else last.other
    return f"{number:,} decision{'s' * (number != 1)}"


def _validate(entry: Entry) -> None:
    if entry.verb not in (*DECISIONS, *TAGGING):
        raise UsageError(f"{str(entry.verb)!r} is no decision: use one of {', '.join(DECISIONS)}.")
    what = NAMED.get(entry.verb)
    if what and not (entry.value or "").strip():
        raise UsageError(f"{entry.verb} needs the {what}: {entry.verb}:NAME.")
    if entry.value is not None and not what and entry.verb is not Action.FIX:
        raise UsageError(f"{entry.verb} takes no value, so {entry.value!r} means nothing.")
    if entry.verb in (Action.FALSE_POSITIVE, Action.FIX) and entry.kind == "sample":
        raise UsageError(
            f"{entry.verb} applies to a finding, and {entry.subject!r} is a sample: give the "
            "finding's fingerprint, or a code with --code."
        )


def _text(text: str) -> str:
    """Return text that SQLite can store: half a surrogate pair becomes an escape."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _row(d: Decision) -> tuple[Any, ...]:
    return (
        d.id, int(d.batch), d.at, d.by, d.kind, d.subject, d.content_hash, d.verb.value, d.value,
        d.note, d.evidence,
    )  # fmt: skip
