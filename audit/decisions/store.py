"""Store decisions of reviewers as rows of RUN/decisions.sqlite that are only ever added.

An undo is a row that names the batch it undoes; triggers refuse updates and deletions. SQLite uses
a rollback journal, because WAL fails on network file systems, and every call opens the file again.

RUN/decisions.jsonl is a copy, one line for each batch or undo, synced after each commit. It shows
that decisions are lost, and `recovery` restores them from it. A crash can leave the copy some lines
behind; the next writer adds them.
"""

from __future__ import annotations

import getpass
import json
import os
import re
import shlex
import sqlite3
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

import blake3
import polars as pl

from audit.errors import AuditError, DamagedError, LockedError, RunError, UsageError
from audit.records import DECISIONS, TAGGING, Action
from audit.run.synced_files import sync
from dataset_preflight.foundation.files import refuse_special, regular

DATABASE = "decisions.sqlite"
COPY = "decisions.jsonl"
MAX_ROWS = 50_000  # rows of the database that are objects at once
BUSY_S = 30.0  # s that a writer waits for others
LABEL_RIGHT = '{"reviewed": "label"}'  # evidence of a keep that calls the label right
NAMED_SUBJECTS = 3  # subjects by which a batch is named
VERBS = {verb.value for verb in (*DECISIONS, *TAGGING)}
TAGS = pl.Schema(
    dict.fromkeys(("decision", "subject", "content_hash", "tag"), pl.String)
    | {"decision": pl.Int64, "given": pl.Boolean}
)
NAMED = {
    Action.RELABEL: "new class", Action.MOVE: "new split", Action.TAG: "tag", Action.UNTAG: "tag",
}  # fmt: skip
# Whether a row of `log` has a value that no decision has.
WRONG = """
    at IS NULL OR 'blob' IN (
        typeof(at), typeof(by), typeof(value), typeof(subject), typeof(kind), typeof(content_hash),
        typeof(note), typeof(evidence)
    ) OR CASE WHEN json_valid(evidence)
        THEN json_type(evidence) <> 'object' OR json_type(evidence, '$.members') <> 'array'
            OR EXISTS (SELECT 1 FROM json_each(evidence, '$.members') WHERE type <> 'array'
                OR json_array_length(value) <> 2 OR json_type(value, '$[0]') <> 'text')
        ELSE evidence IS NOT NULL END
"""
LOGGED = f"""
    SELECT id, at, by, verb, value, subject, kind, content_hash, note, undone, batch, evidence,
        {WRONG}
    FROM log
"""
_TEXTS = (
    "id", "at", "by", "verb", "value", "subject", "kind", "content_hash", "note", "evidence",
    "label", "split",
)  # fmt: skip
CURRENT = pl.Schema(
    dict.fromkeys(_TEXTS, pl.String)
    | {"id": pl.Int64, "dropped": pl.Boolean, "label_right": pl.Boolean}
)
ANSWERS = pl.Schema(dict.fromkeys(("kind", "subject", "by", "said", "at"), pl.String))

DECIDED = "NOT undone AND verb NOT IN ('tag', 'untag')"
# A sample may be relabelled, then moved, then kept: each of the three still holds. The last review
# of its label holds too.
HOLDS = f"""
    WITH latest AS (
        SELECT max(id) AS id, max(CASE verb WHEN 'relabel' THEN id END) AS relabel,
            max(CASE verb WHEN 'move' THEN id END) AS move,
            max(iif(verb = 'relabel' OR evidence = '{LABEL_RIGHT}', id, NULL)) AS review
        FROM log WHERE {DECIDED} GROUP BY kind, subject, content_hash
    )
    SELECT d.id, b.at, d.by, d.verb, d.value, d.subject, d.kind, d.content_hash, d.note, d.evidence,
        l.value, s.value, iif(d.verb = 'drop', true, false),
        iif(r.evidence = '{LABEL_RIGHT}', true, false)
    FROM latest JOIN decisions d USING (id) LEFT JOIN batches b ON b.id = d.batch
        LEFT JOIN decisions l ON l.id = latest.relabel
        LEFT JOIN decisions s ON s.id = latest.move
        LEFT JOIN decisions r ON r.id = latest.review
    ORDER BY d.id
"""
LAST_BY_PERSON = f"""
    WITH last AS (
        SELECT max(id) AS id, count(*) OVER (PARTITION BY kind, subject) AS people
        FROM log WHERE {DECIDED} GROUP BY kind, subject, by
    )
    SELECT d.kind, d.subject, d.by, d.verb || coalesce(' ' || d.value, ''), b.at
    FROM last JOIN decisions d USING (id) LEFT JOIN batches b ON b.id = d.batch
    WHERE people > 1 ORDER BY d.kind, d.subject, d.id
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


class DecisionStore:
    """The decisions of one run. Raises RunError, in a sentence, where they cannot be read or
    written.
    """

    def __init__(self, run: Path, clock: Callable[[], datetime] = _now) -> None:
        """Name the files of `run`; none is made before the first decision."""
        self.run, self.path, self.copy = run, run / DATABASE, run / COPY
        self._clock = clock

    def record(self, entries: Sequence[Entry]) -> list[Decision]:
        """Add the entries as one batch, all or none, and return them as recorded."""
        if not entries:
            return []
        with self.writing() as con:
            return self._add(con, entries)

    def record_once(
        self, by: str, key: str, request: str, entries: Callable[[], Sequence[Entry]]
    ) -> list[Decision]:
        """Record entries under a person's key, or return what an earlier call recorded under it.

        Raises UsageError where the earlier call had another `request`. Others can write while the
        entries are made.
        """
        refused, new = None, list[Entry]()
        try:
            new = list(entries())
        except AuditError as error:  # the run may lack what the earlier call recorded
            refused = error
        digest = digest_request(request)
        with self.writing() as con:
            sql = "SELECT id, request_digest FROM batches WHERE by = ? AND key = ?"
            row = con.execute(sql, [_text(by), key]).fetchone()
            if row is None:
                if refused is not None:
                    raise refused
                return self._add(con, new, (_text(by), key, digest))
            if row[1] != digest:
                raise UsageError(f"The key {key!r} was used for another decision: choose another.")
            rows = con.execute(f"{LOGGED} WHERE batch = ? ORDER BY id", [row[0]])
            return [self._decision(row) for row in rows]

    def _add(
        self, con: sqlite3.Connection, entries: Sequence[Entry],
        keyed: tuple[str, str | None, str | None] | None = None,
    ) -> list[Decision]:  # fmt: skip
        """Add a batch; `keyed`: person, key and digest of its request."""
        for entry in entries:
            _validate(entry)
        at, me = self._clock().isoformat(timespec="seconds"), whoami()
        batch, first = next_id(con, "batches"), next_id(con, "decisions")
        decisions = [
            Decision(
                number, at, _text(e.by or me), Action(e.verb), e.value and _text(e.value),
                e.subject, e.kind, e.content_hash, _text(e.note), False, str(batch),
                e.evidence,
            )
            for number, e in enumerate(entries, first)
        ]  # fmt: skip
        append_rows(con, "batches", [(batch, *(keyed or (decisions[0].by, None, None)), at)])
        names = COLUMNS["decisions"][2:]
        rows = [(d.id, batch, *(getattr(d, name) for name in names)) for d in decisions]
        append_rows(con, "decisions", rows)
        return decisions

    def undo(self, n: int = 1, by: str | None = None) -> list[Decision]:
        """Take back the last `n` batches of `by` (default: yours); newest first.

        Raises UsageError where there is nothing left to undo.
        """
        who = _text(by or whoami())
        if n < 1:
            raise UsageError(f"--undo undoes 1 batch or more, not {n}.")
        with self.writing() as con:
            batches = con.execute(
                "SELECT DISTINCT batch FROM log WHERE NOT undone AND by = ? "
                "ORDER BY batch DESC LIMIT ?",
                [who, n],
            ).fetchall()
            if batches:
                return self._take_back(con, who, [batch for (batch,) in batches])
            last = con.execute("SELECT by FROM log WHERE NOT undone ORDER BY id DESC LIMIT 1")
            other = last.fetchone()
            if other is None:
                raise UsageError(
                    "There is no decision left to undo: `audit decide RUN --log` shows them all."
                )
            raise UsageError(
                f"{who!r} has no decision left to undo. The last decision is by {other[0]!r}: give "
                "`--by` that name."
            )

    def undo_batch(self, batch: str, at: str, by: str | None = None) -> list[Decision]:
        """Take back one batch of `by` (default: yours), named by what `record` returned; newest
        first.

        Returns nothing where it was taken back already or is somebody else's, or where another has
        its number since: a run that was deleted and scanned again begins anew.
        """
        if not self.path.exists():
            return []
        who = _text(by or whoami())
        with self.writing() as con:
            found = con.execute(
                "SELECT 1 FROM log WHERE NOT undone AND batch = ? AND at = ? AND by = ? LIMIT 1",
                [int(batch), at, who],
            ).fetchone()
            return self._take_back(con, who, [int(batch)]) if found else []

    def _take_back(
        self, con: sqlite3.Connection, who: str, batches: Sequence[int]
    ) -> list[Decision]:
        at = self._clock().isoformat(timespec="seconds")
        first = next_id(con, "undos")
        rows = [(number, batch, who, at) for number, batch in enumerate(batches, first)]
        append_rows(con, "undos", rows)
        undone_rows = [
            row
            for batch in batches
            for row in con.execute(f"{LOGGED} WHERE batch = ? ORDER BY id DESC", [batch])
        ]
        # before the commit: an undo that cannot be reported is not recorded
        return [self._decision(row) for row in undone_rows]

    def log(self, limit: int | None = None, ids: Iterable[int] | None = None) -> list[Decision]:
        """Return the decisions (of these ids), undone ones too, newest first."""
        chosen = "" if ids is None else "WHERE id IN (SELECT value FROM json_each(?))"
        rows = self._read(
            f"{LOGGED} {chosen} ORDER BY id DESC LIMIT ?",
            [*([] if ids is None else [json.dumps(list(ids))]), -1 if limit is None else limit],
        )
        return [self._decision(row) for row in rows]

    def batches(self, by: str, limit: int) -> list[DecidedBatch]:
        """Return the latest batches of a person that are not undone, newest first."""
        sql = """
            SELECT batch, min(at), group_concat(DISTINCT verb), sum(kind = 'sample'),
                sum(kind = 'finding'), (
                    SELECT json_group_array(subject) FROM (
                        SELECT subject FROM decisions d WHERE d.batch = log.batch
                        ORDER BY kind DESC, id LIMIT ?
                    )
                )
            FROM log WHERE NOT undone AND by = ? GROUP BY batch ORDER BY batch DESC LIMIT ?
        """
        # samples come before findings
        return [
            DecidedBatch(
                str(batch), str(at), tuple(sorted(verbs.split(","))), samples, findings,
                tuple(json.loads(subjects)[: samples or NAMED_SUBJECTS]),
            )
            for batch, at, verbs, samples, findings, subjects in self._read(
                sql, [NAMED_SUBJECTS, _text(by), limit]
            )
        ]  # fmt: skip

    def count_by_person(self) -> dict[str, int]:
        """Return how many decisions of each person are not undone, the most first."""
        sql = "SELECT by, count(*) FROM log WHERE NOT undone GROUP BY by ORDER BY count(*) DESC, by"
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
        verbs = ", ".join(f"'{verb}'" for verb in sorted(VERBS))
        odd = f"{LOGGED} WHERE {DECIDED} AND ({WRONG} OR verb NOT IN ({verbs})) LIMIT 1"
        list(map(self._decision, self._read(odd, [])))
        parts = [pl.DataFrame(rows, CURRENT, orient="row") for rows in self._read_parts(HOLDS, [])]
        return pl.concat([CURRENT.to_frame(), *parts])

    def tags(self) -> pl.DataFrame:
        """Return what was tagged and untagged and not undone: (decision, subject, content_hash,
        tag, given), the oldest first; a sample may be told by two names, so the last does not win.
        """
        sql = f"{LOGGED} WHERE NOT undone AND verb IN ('tag', 'untag') ORDER BY id"
        rows = [
            (d.id, d.subject, d.content_hash, d.value, d.verb is Action.TAG)
            for d in map(self._decision, self._read(sql, []))
        ]
        return pl.DataFrame(rows, schema=TAGS, orient="row")

    def answers(self) -> pl.DataFrame:
        """Return what each person said last of what several decided, and nobody took back: (kind,
        subject, by, said, at), by subject and then the oldest first.
        """
        return pl.DataFrame(self._read(LAST_BY_PERSON, []), schema=ANSWERS, orient="row")

    def _read(self, sql: str, params: Sequence[object]) -> list[tuple[Any, ...]]:
        return [row for part in self._read_parts(sql, params) for row in part]

    def _read_parts(self, sql: str, params: Sequence[object]) -> Generator[list[tuple[Any, ...]]]:
        """Yield the rows, some thousands at a time: a million of them as objects take 1 GB."""
        with self.reading() as con:
            if con is not None:
                rows = con.execute(sql, params)
                while part := rows.fetchmany(MAX_ROWS):
                    yield part

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection | None]:
        """Open the database for reading; None where there is no decision yet."""
        copied = self._last_copied()
        if not self.path.exists():
            yield None
            return
        with self._open("rw") as con:
            con.execute("PRAGMA temp_store = MEMORY")  # the folder for others may be full
            # without tables: another process is about to make them
            yield con if self._has_tables(con, copied) else None

    def _last_copied(self) -> Ids | None:
        """Return what the copy has; refuses a run that is gone, or lost the database."""
        if not self.run.is_dir():
            raise self._gone()
        copied = last_copied(self.copy)  # first: a later commit is no loss
        if copied is not None and not self.path.exists():
            raise self.damaged("it is gone, and its copy has rows")
        return copied

    def _has_tables(self, con: sqlite3.Connection, copied: Ids | None) -> bool:
        """Say whether there are tables; DamagedError where they lack what the copy has."""
        if not con.execute("PRAGMA user_version").fetchone()[0]:
            if copied is not None:
                raise self.damaged("it is empty, and its copy has rows")
            return False
        for table, number in zip(COPIED, copied or (), strict=False):
            if next_id(con, table) <= number:
                raise self.damaged(f"it lacks row {number} of {table}, which was recorded")
        return True

    @contextmanager
    def writing(self, **attached: Path) -> Iterator[sqlite3.Connection]:
        """Open a transaction that is committed and copied at the end; `attached`: databases that it
        reads, by name.
        """
        copied = self._last_copied()
        with self._open("rwc") as con:
            con.execute("PRAGMA synchronous = FULL")
            for name, path in attached.items():
                con.execute(f"ATTACH ? AS {name}", [str(path)])
            # A deferred transaction takes its lock at the first write, and two that have both read
            # by then cannot both go on: one would fail without waiting.
            con.execute("BEGIN IMMEDIATE")
            try:
                if not self._has_tables(con, copied):
                    create_tables(con)
                yield con
            except BaseException:
                con.rollback()
                raise
            con.commit()
            with suppress(OSError, sqlite3.Error):  # the next writer adds what is missing
                self.write_copy(con)

    def write_copy(self, con: sqlite3.Connection) -> None:
        """Add what the copy lacks of the database; cuts off a line that has no end."""
        con.execute("BEGIN IMMEDIATE")  # two at once would add the same rows
        try:
            is_new = not self.copy.exists()
            if is_new:
                self.copy.touch()
            with open(self.copy, "r+b", opener=regular) as file:
                copied, end = _read_tail(file)
                text = b"".join(_lines_after(con, copied or (0, 0)))
                if text:
                    file.seek(file.truncate(end))
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
            if is_new:
                sync(self.run)
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
                self._check_version(con)
                yield con
        except UnicodeDecodeError:
            raise self.damaged("it contains text that is not valid UTF-8") from None
        except sqlite3.Error as error:
            raise self._explained(error) from None

    def _check_version(self, con: sqlite3.Connection) -> None:
        sql = (
            "SELECT user_version, EXISTS (SELECT 1 FROM sqlite_master WHERE name = 'batches') "
            "FROM pragma_user_version"
        )
        version, has_tables = con.execute(sql).fetchone()
        if version > VERSION:
            raise RunError(
                f"{self.path} was written by a newer version (decisions {version}, this one reads "
                f"{VERSION}): upgrade dataset-preflight."
            )
        if version == OLDER and not has_tables:
            old = shlex.quote(str(self.run))
            raise RunError(
                f"{self.path} was written by an older version: `audit scan SOURCE --out NEW "
                f"--decisions-from {old}` carries its decisions over to a new run."
            )
        if version != VERSION * has_tables:
            raise self.damaged("its version does not match its tables")

    def _explained(self, error: sqlite3.Error) -> RunError:
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
        if "NOTADB" in name or "CORRUPT" in name or name == "SQLITE_ERROR":  # the last: its tables
            return self.damaged(f"SQLite says: {error}")
        return RunError(f"{self.path} cannot be used ({error}): check its disk, then try again.")

    def damaged(self, why: str) -> DamagedError:
        """Return the error for a damaged database, with the remedy."""
        remedy = f"restore {DATABASE} from a backup, or move it away to begin anew."
        if last_copied(self.copy) is not None:
            run, copy = (shlex.quote(str(path)) for path in (self.run, self.copy))
            remedy = f"`audit decide {run} --from {copy}` restores the decisions."
        return DamagedError(f"{self.path} is damaged ({why})", remedy)

    @contextmanager
    def reading_evidence(self) -> Iterator[None]:
        """Report evidence of another form than decisions have as damage."""
        try:
            yield
        except (LookupError, TypeError, ValueError, AttributeError):
            raise self.damaged("the evidence of a decision was changed") from None

    def _decision(self, row: tuple[Any, ...]) -> Decision:
        if row[-1]:
            raise self.damaged(f"a value of decision {row[0]} was changed")
        if row[3] not in VERBS:
            raise RunError(
                f"Decision {row[0]} of {self.path} has the unknown verb {str(row[3])!r}: upgrade "
                "dataset-preflight, or check the file with `audit verify RUN`."
            )

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


def digest_request(request: str) -> str:
    """Return what tells one request from another under the same key."""
    return str(blake3.blake3(request.encode("utf-8", "backslashreplace")).hexdigest())


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


VERSION, OLDER = 3, 2  # of the tables; the earlier version that `recovery` reads
SCHEMA = """
    CREATE TABLE batches (
        id INTEGER PRIMARY KEY, by TEXT NOT NULL, key TEXT, request_digest TEXT, at TEXT NOT NULL,
        UNIQUE (by, key)
    );
    CREATE TABLE decisions (
        id INTEGER PRIMARY KEY, batch INTEGER NOT NULL REFERENCES batches, by TEXT NOT NULL,
        kind TEXT NOT NULL CHECK (kind IN ('sample', 'finding')), subject TEXT NOT NULL,
        content_hash TEXT, verb TEXT NOT NULL, value TEXT, note TEXT NOT NULL, evidence TEXT
    );
    CREATE TABLE undos (
        id INTEGER PRIMARY KEY, batch INTEGER NOT NULL UNIQUE REFERENCES batches,
        by TEXT NOT NULL, at TEXT NOT NULL
    );
    CREATE INDEX decisions_batch ON decisions (batch);
    CREATE VIEW log AS
        SELECT d.*, b.at, u.batch IS NOT NULL AS undone FROM decisions d
        LEFT JOIN batches b ON b.id = d.batch LEFT JOIN undos u ON u.batch = d.batch;
"""
APPEND_ONLY = (
    "CREATE TRIGGER {table}_{verb} BEFORE {verb} ON {table} "
    "BEGIN SELECT RAISE(ABORT, 'the decisions are append-only'); END"
)
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "batches": ("id", "by", "key", "request_digest", "at"),
    "decisions": (
        "id", "batch", "by", "kind", "subject", "content_hash", "verb", "value", "note", "evidence",
    ),
    "undos": ("id", "batch", "by", "at"),
}  # fmt: skip
COPIED = ("batches", "undos")  # tables whose rows are lines of the copy
Row = Sequence[Any]
Ids = tuple[int, int]  # the last id of each


def create_tables(con: sqlite3.Connection) -> None:
    """Make the tables of an empty database, within the transaction that is open."""
    # executescript would end the transaction.
    for statement in SCHEMA.split(";"):
        con.execute(statement)
    for table in COLUMNS:
        for verb in ("update", "delete"):
            con.execute(APPEND_ONLY.format(table=table, verb=verb))
    con.execute(f"PRAGMA user_version = {VERSION}")


def append_rows(con: sqlite3.Connection, table: str, rows: Iterable[Row]) -> None:
    """Add rows to a table, in the order of its `COLUMNS`."""
    marks = ", ".join("?" * len(COLUMNS[table]))
    con.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)


def next_id(con: sqlite3.Connection, table: str) -> int:
    """Return the id of the next row of a table."""
    return 1 + int(con.execute(f"SELECT coalesce(max(id), 0) FROM {table}").fetchone()[0])


BLOCK = 1 << 16
IDS = re.compile(rb"\[(\d{1,18}), (\d{1,18})\]\]\n")  # the end of a line


def last_copied(copy: Path) -> Ids | None:
    """Return the last batch and the last undo of a copy, None without a line."""
    with suppress(OSError), open(copy, "rb", opener=regular) as file:
        return _read_tail(file)[0]
    return None


def _read_tail(file: BinaryIO) -> tuple[Ids | None, int]:
    """Return the last ids, and where the last whole line ends; lines may be long."""
    size, length = file.seek(0, os.SEEK_END), BLOCK
    while True:
        start = max(0, size - length)
        file.seek(start)
        tail = file.read(size - start)
        ids = [(int(batch), int(undo)) for batch, undo in IDS.findall(tail)]
        if ids or not start:
            return ids[-1] if ids else None, start + tail.rfind(b"\n") + 1
        length *= 8


def _lines_after(con: sqlite3.Connection, copied: Ids) -> Iterator[bytes]:
    """Yield the batches, with their decisions, and the undos after some ids as lines."""
    last = dict(zip(COPIED, copied, strict=True))
    for table in COPIED:
        rows = con.execute(f"SELECT * FROM {table} WHERE id > ? ORDER BY id", [last[table]])
        for row in rows:
            last[table] = row[0]
            line = [table, row, decisions_of(con, table, row[0]), list(last.values())]
            yield f"{json.dumps(line, ensure_ascii=False)}\n".encode()


def decisions_of(con: sqlite3.Connection, table: str, number: int) -> list[Row]:
    """Return the rows of the decisions in the line of a batch; that of an undo has none."""
    sql = "SELECT * FROM decisions WHERE batch = ? AND ? = 'batches' ORDER BY id"
    return con.execute(sql, [number, table]).fetchall()
