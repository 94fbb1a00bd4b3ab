"""Store decisions of reviewers as rows of RUN/decisions.sqlite that are only ever added.

An undo is a row that names the batch it undoes; triggers refuse updates and deletions. SQLite uses
a rollback journal, because WAL fails on network file systems, and every call opens the file again.
Every row has a digest over its values and the digest of the row before it, so a changed, missing or
inserted row breaks the chain (`ledger_check`).

RUN/decisions.chain is a second copy, one line a row in the order of commits, synced after each
commit. It shows a lost ledger and restores a damaged one. A crash can leave the copy some rows
behind; the next writer adds them.
"""

from __future__ import annotations

import getpass
import json
import os
import sqlite3
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import blake3
import polars as pl

from audit.errors import AuditError, DamagedError, LockedError, RunError, UsageError
from audit.records import DECISIONS, TAGGING, Action, Severity
from audit.run.digests import REPAIR as REMAKE
from audit.run.digests import sync, write_synced
from preflight.files import read_regular, refuse_special, regular

LEDGER = "decisions.sqlite"
REQUESTS = "requests.sqlite"  # beside it: which requests had a key, and what was recorded for them
KEYED = """
    CREATE TABLE IF NOT EXISTS keyed.requests (
        by TEXT, key TEXT, asked TEXT NOT NULL, batch INTEGER NOT NULL, PRIMARY KEY (by, key)
    )
"""
REPAIR = "`audit verify RUN --repair` restores intact decisions and reports lost decisions."
PART = 50_000  # rows of the ledger that are objects at once
BUSY_S = 30.0  # s that a writer waits for others
LABEL_RIGHT = '{"reviewed": "label"}'  # evidence of a keep that calls the label right
NAMED_SUBJECTS = 3  # subjects by which a batch is named
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
        "label_right": pl.Boolean,
    }
)  # fmt: skip
SAID = pl.Schema(dict.fromkeys(("kind", "subject", "by", "said", "at"), pl.String))

DECIDED = "u.batch IS NULL AND d.verb NOT IN ('tag', 'untag')"
# A sample may be relabelled, then moved, then kept: each of the three still holds. The last review
# of its label holds too.
HOLDS = f"""
    WITH latest AS (
        SELECT max(d.id) AS id, max(CASE d.verb WHEN 'relabel' THEN d.id END) AS relabel,
            max(CASE d.verb WHEN 'move' THEN d.id END) AS move,
            max(iif(d.verb = 'relabel' OR d.evidence = '{LABEL_RIGHT}', d.id, NULL)) AS review
        FROM decisions d LEFT JOIN undos u USING (batch)
        WHERE {DECIDED} GROUP BY d.kind, d.subject, d.content_hash
    )
    SELECT d.id, d.at, d.by, d.verb, d.value, d.subject, d.kind, d.content_hash, d.note, d.evidence,
        l.value, s.value, iif(d.verb = 'drop', true, false),
        iif(r.evidence = '{LABEL_RIGHT}', true, false)
    FROM latest JOIN decisions d USING (id) LEFT JOIN decisions l ON l.id = latest.relabel
        LEFT JOIN decisions s ON s.id = latest.move
        LEFT JOIN decisions r ON r.id = latest.review
    ORDER BY d.id
"""
ANSWERS = f"""
    WITH last AS (
        SELECT max(d.id) AS id, count(*) OVER (PARTITION BY d.kind, d.subject) AS people
        FROM decisions d LEFT JOIN undos u USING (batch)
        WHERE {DECIDED} GROUP BY d.kind, d.subject, d.by
    )
    SELECT d.kind, d.subject, d.by, d.verb || coalesce(' ' || d.value, ''), d.at
    FROM last JOIN decisions d USING (id) WHERE people > 1 ORDER BY d.kind, d.subject, d.id
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """A decision to record: `kind` is sample or finding, `subject` a sample id or a fingerprint.

    `value` is the class of a relabel or of a fix, or the split of a move; `evidence` (JSON) is what
    a waived finding said, so that the waiver can lapse when it says worse, what a fix changes, or
    `LABEL_RIGHT`.
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
    """A recorded decision, as `LOGGED` has it; `at` is ISO 8601 in UTC, `batch` names what was
    recorded together.
    """

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


@dataclass(frozen=True, slots=True)
class DecidedBatch:
    """What was recorded together: its verbs, how many samples and findings, and the first few
    samples (findings, where it names no sample); `at` is ISO 8601 in UTC.
    """

    batch: str
    at: str
    verbs: tuple[str, ...]
    samples: int
    findings: int
    subjects: tuple[str, ...]


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
        with self._writing() as con:
            return self._add(con, entries)

    def record_once(
        self, by: str, key: str, asked: str, entries: Callable[[], Sequence[Entry]]
    ) -> list[Decision]:
        """Record entries under a person's key, or return what was recorded under it before.

        `asked` says what was asked for: raises UsageError where it was something else before. Key
        and entries are written in one transaction of both files, or not at all. Others can write
        while the entries are made.
        """
        refused, new = None, list[Entry]()
        try:
            new = list(entries())
        except AuditError as error:  # what was recorded before may be gone from the run since
            refused = error
        with self._writing(keyed=True) as con:
            con.execute(KEYED)
            sql = "SELECT asked, batch FROM keyed.requests WHERE by = ? AND key = ?"
            row = con.execute(sql, [by, key]).fetchone()
            if row is None:
                if refused is not None:
                    raise refused
                decided = self._add(con, new)
                batch = decided[0].batch if decided else 0
                con.execute(
                    "INSERT INTO keyed.requests VALUES (?, ?, ?, ?)", [by, key, asked, batch]
                )
                return decided
            if row[0] != asked:
                raise UsageError(f"The key {key!r} was used for another decision: choose another.")
            rows = con.execute(f"{LOGGED} WHERE batch = ? ORDER BY d.id", [row[1]])
            return [self._decision(one) for one in rows]

    def _add(self, con: sqlite3.Connection, entries: Sequence[Entry]) -> list[Decision]:
        for entry in entries:
            _validate(entry)
        at, me = self._clock().isoformat(timespec="seconds"), whoami()
        first = next_id(con, "decisions")
        decisions = [
            Decision(
                number, at, _text(e.by or me), Action(e.verb), e.value and _text(e.value),
                e.subject, e.kind, e.content_hash, _text(e.note), False, str(first),
                e.evidence,
            )
            for number, e in enumerate(entries, first)
        ]  # fmt: skip
        names = COLUMNS["decisions"][2:]
        rows = [(d.id, first, *(getattr(d, name) for name in names)) for d in decisions]
        append_rows(con, "decisions", rows)
        return decisions

    def undo(self, n: int = 1, by: str | None = None, *, anyone: bool = False) -> list[Decision]:
        """Take back the last `n` batches of `by` (default: yours), or of `anyone`; newest first.

        Raises UsageError where there is nothing left to undo.
        """
        who = _text(by or whoami())
        if n < 1:
            raise UsageError(f"--undo undoes 1 batch or more, not {n}.")
        mine = "" if anyone else "AND d.by = ?"
        with self._writing() as con:
            batches = con.execute(
                "SELECT DISTINCT d.batch FROM decisions d LEFT JOIN undos u USING (batch) "
                f"WHERE u.batch IS NULL {mine} ORDER BY d.batch DESC LIMIT ?",
                [n] if anyone else [who, n],
            ).fetchall()
            if not batches:
                raise self._nothing_to_undo(con, who, anyone)
            return self._take_back(con, who, [batch for (batch,) in batches])

    def undo_batch(self, batch: str, at: str, by: str | None = None) -> list[Decision]:
        """Take back one batch of `by` (default: yours), named by what `record` returned; newest
        first.

        Returns nothing where it was taken back already or is somebody else's, or where another has
        its number since: a run that was deleted and scanned again begins anew.
        """
        if not self.path.exists():
            return []
        who = _text(by or whoami())
        with self._writing() as con:
            found = con.execute(
                "SELECT 1 FROM decisions d LEFT JOIN undos u USING (batch) "
                "WHERE u.batch IS NULL AND batch = ? AND d.at = ? AND d.by = ? LIMIT 1",
                [int(batch), at, who],
            ).fetchone()
            return self._take_back(con, who, [int(batch)]) if found else []

    def _take_back(
        self, con: sqlite3.Connection, who: str, batches: Sequence[int]
    ) -> list[Decision]:
        at = self._clock().isoformat(timespec="seconds")
        first = next_id(con, "undos")
        rows = [(number, at, who, batch) for number, batch in enumerate(batches, first)]
        append_rows(con, "undos", rows)
        undone_rows = [
            row
            for batch in batches
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
            return UsageError(
                "There is no decision left to undo: `audit decide RUN --log` shows them all."
            )
        return UsageError(
            f"{who!r} has no decision left to undo. The last decision is by {other[0]!r}: give "
            "`--by` that name, or `--anyone`."
        )

    # ---- reading ----

    def log(self, limit: int | None = None, ids: Iterable[int] | None = None) -> list[Decision]:
        """Return the decisions (of these ids), undone ones too, newest first."""
        chosen = "" if ids is None else "WHERE d.id IN (SELECT value FROM json_each(?))"
        rows = self._read(
            f"{LOGGED} {chosen} ORDER BY d.id DESC LIMIT ?",
            [*([] if ids is None else [json.dumps(list(ids))]), -1 if limit is None else limit],
        )
        return [self._decision(row) for row in rows]

    def batches(self, by: str, limit: int) -> list[DecidedBatch]:
        """Return the latest batches of a person that are not undone, newest first."""
        sql = (
            "SELECT batch, min(d.at), group_concat(DISTINCT d.verb), sum(d.kind = 'sample'), "
            "sum(d.kind = 'finding') FROM decisions d LEFT JOIN undos u USING (batch) "
            "WHERE u.batch IS NULL AND d.by = ? GROUP BY batch ORDER BY batch DESC LIMIT ?"
        )
        named = "SELECT subject FROM decisions WHERE batch = ? AND kind = ? ORDER BY id LIMIT ?"
        found = []
        for batch, at, verbs, samples, findings in self._read(sql, [_text(by), limit]):
            kind = "sample" if samples else "finding"
            subjects = [str(s) for (s,) in self._read(named, [batch, kind, NAMED_SUBJECTS])]
            said = tuple(sorted(str(verbs).split(",")))
            found.append(
                DecidedBatch(str(batch), str(at), said, samples, findings, tuple(subjects))
            )
        return found

    def count_by_person(self) -> dict[str, int]:
        """Return how many decisions of each person are not undone, the most first."""
        sql = (
            "SELECT d.by, count(*) FROM decisions d LEFT JOIN undos u USING (batch) "
            "WHERE u.batch IS NULL GROUP BY d.by ORDER BY count(*) DESC, d.by"
        )
        return {str(by): int(n) for by, n in self._read(sql, [])}

    def has_news(self, revision: str, by: str) -> bool:
        """Say whether somebody other than `by` decided or took back after a revision."""
        decided, undone = (int(part) for part in revision.split("/"))
        sql = (
            "SELECT EXISTS (SELECT 1 FROM decisions WHERE id > ? AND by <> ?) "
            "OR EXISTS (SELECT 1 FROM undos WHERE id > ? AND by <> ?)"
        )
        return self._read(sql, [decided, _text(by), undone, _text(by)]) == [(1,)]

    def revision(self) -> str:
        """Return a text that changes with every decision and every undo: a cache key."""
        sql = "SELECT (SELECT max(id) FROM decisions), (SELECT max(id) FROM undos)"
        rows = self._read(sql, [])
        return "/".join(str(number or 0) for number in rows[0]) if rows else "0/0"

    def current(self) -> pl.DataFrame:
        """Return what holds: one row per subject (kind, subject, content_hash) decided, by id.

        `verb`, `value`, `note`, `by`, `at`, `id` are of its last decision. `dropped` says whether
        that is a drop; `label` and `split` are those of its last relabel and its last move, which
        a later keep or drop does not forget; `label_right` says whether the last review of its
        label called it right. `evidence`: of a waiver.
        """
        for row in self._read(f"{LOGGED} WHERE {DECIDED} AND ({TO_CHECK})", []):
            self._check(row)
        try:
            parts = [
                pl.DataFrame(rows, CURRENT, orient="row") for rows in self._read_parts(HOLDS, [])
            ]
        except (TypeError, OverflowError, pl.exceptions.PolarsError):
            raise self._damaged("a value has another type than the written value") from None
        return pl.concat([CURRENT.to_frame(), *parts])

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

    def answers(self) -> pl.DataFrame:
        """Return what each person said last of what several decided, and nobody took back: (kind,
        subject, by, said, at), by subject and then the oldest first.
        """
        return pl.DataFrame(self._read(ANSWERS, []), schema=SAID, orient="row")

    # ---- the file ----

    def _read(self, sql: str, params: Sequence[object]) -> list[tuple[Any, ...]]:
        return [row for part in self._read_parts(sql, params) for row in part]

    def _read_parts(self, sql: str, params: Sequence[object]) -> Generator[list[tuple[Any, ...]]]:
        """Yield the rows, some thousands at a time: a million of them as objects take 1 GB."""
        if not self.run.is_dir():
            raise self._gone()
        last = self.copy.last()  # first: what is committed meanwhile is no loss
        if not self.path.exists():
            if last is not None:
                raise self._damaged(f"it is gone, and {_counted(last)} were recorded")
            return
        with self._open("rw") as con:
            # without tables: another process is about to make them
            if self._has_tables(con, last):
                con.execute("PRAGMA temp_store = MEMORY")  # the folder for others may be full
                rows = con.execute(sql, params)
                while part := rows.fetchmany(PART):
                    yield part

    def _has_tables(self, con: sqlite3.Connection, last: CopiedRow | None) -> bool:
        """Say whether there are tables; DamagedError where they lack the last row of the copy."""
        has_tables = bool(con.execute("PRAGMA user_version").fetchone()[0])
        if last is None:
            return has_tables
        if not has_tables:
            raise self._damaged(f"it is empty, and {_counted(last)} were recorded")
        found = None
        if last.table in COLUMNS:
            sql = f"SELECT digest FROM {last.table} WHERE id = ?"
            found = con.execute(sql, [last.id]).fetchone()
        if found != (last.digest,):
            what = f"row {last.id} of {last.table}"
            raise self._damaged(
                f"it lacks {what}, which was recorded, or contains a different decision"
            )
        return True

    @contextmanager
    def _writing(self, *, keyed: bool = False) -> Iterator[sqlite3.Connection]:
        if not self.run.is_dir():
            raise self._gone()
        last, inode = self.copy.last(), self._inode()
        with self._open("rwc") as con:
            if keyed:
                con.execute("ATTACH ? AS keyed", [str(self.run / REQUESTS)])
            # A deferred transaction takes its lock at the first write, and two that have both read
            # by then cannot both go on: one would fail without waiting.
            con.execute("BEGIN IMMEDIATE")
            try:
                if inode not in (None, self._inode()):
                    raise LockedError(
                        f"{self.path} was repaired meanwhile: nothing was recorded; try again."
                    )
                if not self._has_tables(con, last):
                    create_tables(con)
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
            refuse_special(self.path)
            with closing(
                sqlite3.connect(address, uri=True, timeout=BUSY_S, isolation_level=None)
            ) as con:
                version = con.execute("PRAGMA user_version").fetchone()[0]
                if version > VERSION:
                    raise RunError(
                        f"{self.path} was written by a newer version (ledger {version}, this one "
                        f"reads {VERSION}): upgrade dataset-preflight."
                    )
                if version not in (0, VERSION):
                    raise self._damaged("its version does not match its tables")
                yield con
        except UnicodeDecodeError:
            raise self._damaged("it contains text that is not valid UTF-8") from None
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
                f"{self.path} cannot be written, so nothing was recorded. Get write access to the "
                "file and its folder, or decide on a copy of the run."
            )
        if "NOTADB" in name or "CORRUPT" in name:
            return self._damaged(f"SQLite says: {error}")
        return RunError(f"{self.path} cannot be used ({error}): check its disk, then try again.")

    def _damaged(self, why: str) -> DamagedError:
        return DamagedError(f"{self.path} is damaged ({why})", REPAIR)

    def _check(self, row: tuple[Any, ...]) -> None:
        if wrong := find_wrong_value(row):
            raise self._damaged(f"the {wrong} of decision {row[0]} was changed")
        if row[3] not in VERBS:
            raise RunError(
                f"Decision {row[0]} of {self.path} has the unknown verb {str(row[3])!r}: a newer "
                "version of dataset-preflight wrote it, or it is damaged (`audit verify RUN`)."
            )

    def _decision(self, row: tuple[Any, ...]) -> Decision:
        self._check(row)
        verb, undone, batch = Action(row[3]), bool(row[9]), str(row[10])
        return Decision(*(*row[:3], verb, *row[4:9], undone, batch, row[11]))

    def _gone(self) -> RunError:
        return RunError(
            f"There is no run at {self.run}: the run was moved or deleted, or the path is wrong."
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
        raise UsageError(
            f"{str(entry.verb)!r} is not a decision: use one of {', '.join(DECISIONS)}."
        )
    what = NAMED.get(entry.verb)
    if what and not (entry.value or "").strip():
        raise UsageError(f"{entry.verb} needs the {what}: {entry.verb}:NAME.")
    if entry.value is not None and not what and entry.verb is not Action.FIX:
        raise UsageError(f"{entry.verb} takes no value: leave {entry.value!r} out.")
    if entry.verb in (Action.FALSE_POSITIVE, Action.FIX) and entry.kind == "sample":
        raise UsageError(
            f"{entry.verb} applies to a finding, and {entry.subject!r} is a sample: give the "
            "finding's fingerprint, or a code with --code."
        )


def _text(text: str) -> str:
    """Return text that SQLite can store: half a surrogate pair becomes an escape."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


# ---- the file ----


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
FIRST: Mapping[str, int] = dict.fromkeys(COLUMNS, 0)
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


# ---- rows ----


KINDS: Mapping[str, Any] = {
    **dict.fromkeys(("at", "by", "subject", "kind", "note"), str),
    **dict.fromkeys(("value", "content_hash", "evidence"), str | None),
}
# Rows of `LOGGED` that may be wrong: SQLite looks at all in a tenth of the time that Python takes.
TO_CHECK = " OR ".join(
    [
        "d.evidence IS NOT NULL",
        f"coalesce(d.verb NOT IN ({str(sorted(VERBS))[1:-1]}), true)",
        *(f"typeof(d.{n}) NOT IN ('text', '{'text' if k is str else 'null'}')"
          for n, k in KINDS.items()),
    ]
)  # fmt: skip
SEVERITIES = {severity.value for severity in Severity}
FIXES = {"clip", "box", "drop", "size"}


def find_wrong_value(row: Sequence[Any]) -> str | None:
    """Return the name of the first value of a row of `LOGGED` that no ledger holds, None where all
    are sound.
    """
    values = dict(zip(Decision.__slots__, row, strict=True))
    if not isinstance(values["id"], int):
        return "id"
    for name, kinds in KINDS.items():
        if not isinstance(values[name], kinds):
            return name
    evidence = values["evidence"]
    return None if evidence is None or _is_evidence(evidence) else "evidence"


def _is_evidence(text: str) -> bool:
    """Say whether this may be what a decision kept of a finding, or the keeper of a drop."""
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return False
    if not isinstance(found, dict):
        return False
    members = found.get("members", [])
    return (
        isinstance(members, list)
        and all(_is_member(one) for one in (*members, found.get("keeper", ["", ""])))
        and ("members" not in found or isinstance(found.get("code"), str))
        and isinstance(found.get("subject", ""), str)
        and isinstance(found.get("evidence", {}), dict)
        and type(found.get("n_samples", 0)) is int
        and found.get("severity", Severity.INFO.value) in SEVERITIES
        and isinstance(found.get("fixes", []), list)
        and all(_is_fix(one) for one in found.get("fixes", []))
    )


def _is_fix(one: object) -> bool:
    """Say whether it may be what a decision changes of one annotation, class or entry."""
    if not isinstance(one, dict) or not {"what", "file", "before", "after"} <= one.keys():
        return False
    what, before, after = one["what"], one["before"], one["after"]
    if what == "rename":
        return isinstance(before, str) and isinstance(after, str)
    if not isinstance(one.get("image_key"), str):
        return False
    if what == "class":
        return isinstance(before, str | None) and isinstance(after, str)
    n = 2 if what == "size" else 4
    good = _is_numbers(before, n) and (what == "drop" or _is_numbers(after, n))
    return good and what in FIXES and _is_numbers(one.get("within", [0, 0]), 2)


def _is_numbers(value: object, n: int) -> bool:
    return (
        isinstance(value, list) and len(value) == n and all(type(v) in (int, float) for v in value)
    )


def _is_member(one: object) -> bool:
    """Say whether it is a sample id with a content hash, which a sample without bytes lacks."""
    return (
        isinstance(one, list)
        and len(one) == 2
        and isinstance(one[0], str)
        and isinstance(one[1], str | None)
    )


# ---- the second copy ----


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
    with suppress(ValueError):
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
        with suppress(OSError):
            for block in self._ends():
                rows = map(parse_line, reversed(block.split(b"\n")[:-1]))
                if found := next((row for row in rows if row is not None), None):
                    return found
        return None

    def _ends(self) -> Iterator[bytes]:
        """Yield longer and longer ends of the file, at last all of it; lines may be long."""
        with open(self.path, "rb", opener=regular) as file:
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
        return [parse_line(line) for line in read_regular(self.path).split(b"\n")[:-1]]

    def catch_up(self, con: sqlite3.Connection) -> None:
        """Add the rows of the ledger that it lacks; `con` keeps other writers out meanwhile."""
        last, after = self.last(), dict(FIRST)
        for table in COLUMNS:
            if last is not None:
                after[table] = last.id if table == last.table else last.other
        self._append(b"".join(map(format_line, rows_after(con, after))))

    def _append(self, text: bytes) -> None:
        if self.path.is_dir():
            raise DamagedError(f"{self.path} is damaged (it is a folder)", REMAKE)
        is_new = not self.path.exists()
        with self.path.open("ab") as file:
            size = file.tell()
            ends = (block for block in self._ends() if b"\n" in block)
            block = next(ends, b"")  # a line that has no end is cut off
            file.truncate(size - len(block) + block.rindex(b"\n") + 1 if block else 0)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if is_new:
            sync(self.path.parent)

    def write(self, rows: Iterable[CopiedRow]) -> None:
        """Replace the copy, atomically and on disk."""
        write_synced(self.path, b"".join(map(format_line, rows)))


def rows_after(con: sqlite3.Connection, after: Mapping[str, int] = FIRST) -> Iterator[CopiedRow]:
    """Yield the rows of a chained ledger after some ids, as the copy holds them."""
    last = dict(after)
    for table, names in COLUMNS.items():
        (other,) = COLUMNS.keys() - {table}
        columns = ", ".join((*names, "digest"))
        sql = f"SELECT {columns} FROM {table} WHERE id > ? ORDER BY id"
        for *row, digest in con.execute(sql, [after[table]]):
            yield CopiedRow(table, tuple(row), digest, last[other])
            last[table] = row[0]
