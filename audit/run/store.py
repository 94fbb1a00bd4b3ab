"""The DuckDB store: schema, append, read. The only file that imports duckdb.

A version has two databases (`audit.run.run_version`): `measurements.duckdb` holds what the source
listed and a scan measured, `findings.duckdb` what the checks reported. Thumbnails and embeddings
are files beside them.
"""

from __future__ import annotations

import contextlib
import errno
import re
import tempfile
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast
from uuid import uuid4

import duckdb

from audit.errors import DamagedError, LockedError, RunError, UsageError
from audit.machine.executors import give_back_freed_memory
from audit.records import Column, Finding, polars_type, rows_frame
from audit.run.tables import FINDINGS_TABLES, OTHER_TABLES, SAMPLES, VIEWS
from dataset_preflight.foundation.cores import usable_cores
from dataset_preflight.foundation.files import refuse_special
from dataset_preflight.foundation.text import text_fault

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

# Readable by the DuckDB shells since 1.2 (February 2025), which is what package managers ship.
STORAGE_VERSION = "v1.2.0"
MEMORY_LIMIT, LEAST_MEMORY = "1GB", "64MB"
BRIEF_BELOW = 3_000  # rows: planning a query costs more than running it
USER_BATCH = 1000  # rows of a user's query that are in memory at once
# A scan takes rows only from databases that are whole, so this holds for any damage.
AGAIN = "scan its source again into this run. Decisions are kept."

# What DuckDB says of a damaged file: no lock, full disk, missing permission or newer version.
DAMAGE = re.compile(
    "Corrupt database file|not a valid DuckDB database|Could not read enough bytes|"
    "[Ff]ailure while replaying WAL|Is a directory|[Dd]eserializ"
)
ANY_DATABASE = "A database of the run"
READING = {duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN}
T = TypeVar("T")


class Store:
    """One DuckDB database, open for writing or reading; use it in a `with` block."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Wrap an open connection."""
        self._con = connection
        self._shared: dict[tuple[Any, ...], Any] = {}
        self._brief = False
        self._made = "TABLE"
        self.attached: set[str] = set()

    @classmethod
    def memory(cls) -> Store:
        """Return an empty in-memory store without tables."""
        return cls(_connect(Path(":memory:"), _spill_folder()))

    @classmethod
    def create(cls, path: Path) -> Store:
        """Open `path` for writing, making it if absent; raises LockedError if another does."""
        return cls(_connect(path, {"storage_compatibility_version": STORAGE_VERSION}))

    @classmethod
    def open(cls, path: Path) -> Store:
        """Open `path` for reading; raises RunError if it is absent, DamagedError if damaged."""
        if not path.exists():
            raise DamagedError(f"{path} is missing", AGAIN)
        _refuse_special(path)
        return cls(_connect(path, _spill_folder(), read_only=True))

    def attach(self, path: Path, name: str) -> None:
        """Make another database readable as `name.table`."""
        _refuse_special(path)
        quoted = str(path).replace("'", "''")
        sql = f"ATTACH '{quoted}' AS {identifier(name)} (READ_ONLY)"
        try:
            self._con.execute(sql).fetchall()
        except duckdb.Error as error:
            raise _open_error(path, error) from None
        self.attached.add(name)

    def beside(self) -> Store:
        """Return another connection to the same databases; the tables that it makes are its own."""
        other = Store(self._con.cursor())
        other._made = "TEMP TABLE"
        return other

    def close(self) -> None:
        """Close the connection; a writer checkpoints first so that no .wal file is left."""
        self._con.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def keep_images_at_hand(self, at_most: int) -> None:
        """Hold the views of images as tables in memory, where they have at most so many rows."""
        self.plan_briefly()
        if self.scalar("SELECT count(*) FROM samples") <= at_most:
            for view in ("images", "pictures", "picture_labels", "effective_sizes"):
                self.execute(f"CREATE TEMP TABLE {view} AS SELECT * FROM {view}")

    def plan_briefly(self) -> None:
        """Plan queries without the optimizer, in one thread, where few rows make that faster."""
        tables = ("samples", "annotations", "boxes", "pairs")
        counts = ", ".join(f"(SELECT count(*) FROM {table})" for table in tables)
        brief = self.scalar(f"SELECT greatest({counts})") < BRIEF_BELOW
        if brief != self._brief:
            self.execute(f"PRAGMA {'disable' if brief else 'enable'}_optimizer")
            self.execute(f"SET threads = {1 if brief else usable_cores()}")
            self._brief = brief

    def show_split_as(self, samples: pl.DataFrame) -> None:
        """Show the `split` and `label` of `samples` (id), to this connection alone."""
        with self.frame_as("other_splits", samples.select("id", "split", "label")):
            for view in ("samples", "images", "pictures"):
                self.execute(
                    f"CREATE OR REPLACE TEMP TABLE {view} AS SELECT v.* REPLACE "
                    "(o.split AS split, o.label AS label) "
                    f"FROM measurements.main.{view} v JOIN other_splits o USING (id)"
                )

    def share(self, make: Callable[..., T], *args: Hashable) -> T:
        """Return `make(self, *args)`, made once until something is written; do not change it."""
        key = (make, *args)
        if key not in self._shared:
            self._shared[key] = make(self, *args)
        return cast("T", self._shared[key])

    def create_measurements(self, measured: Sequence[Column]) -> None:
        """Create the tables and views of a measurements database."""
        tables = {"samples": SAMPLES, "features": measured, **OTHER_TABLES}
        with self.transaction():
            for name, columns in tables.items():
                self._create_table(name, columns)
            for view in VIEWS:
                self.execute(view)

    def create_findings(self) -> None:
        """Create the tables of a findings database."""
        for name, columns in FINDINGS_TABLES.items():
            self._create_table(name, columns)

    def drop_everything(self) -> None:
        """Drop all views and tables: those of an unfinished build that was made otherwise."""
        for kind in ("view", "table"):
            sql = f"SELECT {kind}_name AS name FROM duckdb_{kind}s() WHERE NOT internal"
            for row in self.rows(sql):
                self.execute(f"DROP {kind} {identifier(row['name'])}")

    def _create_table(self, name: str, columns: Sequence[Column]) -> None:
        body = ", ".join(f"{identifier(c.name)} {c.type}" for c in columns)
        self.execute(f"CREATE TABLE IF NOT EXISTS {identifier(name)} ({body})")

    def append(
        self, table: str, rows: pa.Table | pl.DataFrame | Sequence[Mapping[str, Any]]
    ) -> None:
        """Append rows to `table` by column name, in one transaction; absent columns become null."""
        import polars as pl
        import pyarrow as pa

        if not len(rows):
            return
        if isinstance(rows, pa.Table | pl.DataFrame):
            frame = rows
        elif len(rows) == 1:
            self._append_row(table, rows[0])
            return
        else:
            # not `pa.Table.from_pylist`: that imports pandas, where it is installed
            frame = pl.from_dicts([dict(row) for row in rows], infer_schema_length=None)
        with self.frame_as("incoming", frame):
            self.execute(f"INSERT INTO {identifier(table)} BY NAME SELECT * FROM incoming")

    def _append_row(self, table: str, row: Mapping[str, Any]) -> None:
        names, marks = ", ".join(map(identifier, row)), ", ".join("?" * len(row))
        values = list(row.values())
        self.execute(f"INSERT INTO {identifier(table)} ({names}) VALUES ({marks})", values)

    def create_from(self, table: str, frame: pl.DataFrame | pa.Table) -> None:
        """Create `table` with the columns and rows of `frame`."""
        with self.frame_as("incoming", frame):
            self.execute(
                f"CREATE OR REPLACE {self._made} {identifier(table)} AS SELECT * FROM incoming"
            )

    @contextlib.contextmanager
    def frame_as(self, name: str, frame: pl.DataFrame | pa.Table) -> Iterator[None]:
        """Let a frame in memory be read as a table in the `with` block, by this connection."""
        self._con.register(name, frame)
        try:
            yield
        finally:
            self._con.unregister(name)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Group writes: all of them or none."""
        self._con.begin()
        try:
            yield
        except BaseException:
            self._shared.clear()
            self._con.rollback()
            raise
        self._con.commit()

    @contextlib.contextmanager
    def rolled_back(self) -> Iterator[None]:
        """Undo every write of the `with` block at its end."""
        self._con.begin()
        try:
            yield
        finally:
            self._shared.clear()
            self._con.rollback()

    def execute(self, sql: str, params: Sequence[Any] = ()) -> None:
        """Run a statement for its effect."""
        self._shared.clear()
        with _damage_explained():
            self._con.execute(sql, list(params)).fetchall()

    def checkpoint(self) -> None:
        """Write everything to the main file."""
        self.execute("CHECKPOINT")

    def give_back_memory(self) -> None:
        """Let go of what is kept in memory of the database: before work that needs much itself."""
        with contextlib.suppress(duckdb.OutOfMemoryException):  # what it cannot let go of stays
            self._con.execute(f"SET memory_limit = '{LEAST_MEMORY}'")
        self._con.execute(f"SET memory_limit = '{MEMORY_LIMIT}'")
        give_back_freed_memory()

    def query(self, sql: str, params: Sequence[Any] = ()) -> pl.DataFrame:
        """Return the rows of a SELECT as a polars frame."""
        import polars as pl

        if self._brief and (few := self._brief_query(sql, params)) is not None:
            return few
        with _damage_explained():
            relation = self._con.sql(sql, params=list(params) or None)
            if relation is None:
                return pl.DataFrame()
            table = relation.to_arrow_table()
            frame = pl.from_arrow(table.rename_columns(distinct(table.column_names)))
        assert isinstance(frame, pl.DataFrame)
        return frame

    def _brief_query(self, sql: str, params: Sequence[Any]) -> pl.DataFrame | None:
        """Return few rows by way of Python values; None for a type that has no equal in polars."""
        import polars as pl

        with _damage_explained():
            found = self._con.execute(sql, list(params))
            described, rows = found.description or [], found.fetchall()
        kinds = [polars_type(str(column[1])) for column in described]
        if not kinds or None in kinds:
            return None
        names = distinct([column[0] for column in described])
        return pl.DataFrame(rows, schema=dict(zip(names, kinds, strict=True)), orient="row")

    def rows(self, sql: str, params: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """Return the rows of a SELECT as dictionaries: for small results."""
        return self.query(sql, params).to_dicts()

    def pages(self, sql: str, size: int = 5000) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a SELECT as tuples, `size` at a time, while others write."""
        # A cursor is a connection of its own: left to the collector it would outlive the store.
        with contextlib.closing(self._con.cursor()) as cursor, _damage_explained():
            cursor.execute(sql)
            while rows := cursor.fetchmany(size):
                yield from rows

    def frames(self, sql: str, size: int = 5000) -> Generator[pl.DataFrame]:
        """Yield the rows of a SELECT as frames of at most `size` rows, while others write."""
        import polars as pl

        with contextlib.closing(self._con.cursor()) as cursor, _damage_explained():
            for batch in cursor.sql(sql).to_arrow_reader(size):
                yield cast("pl.DataFrame", pl.from_arrow(batch))

    def columns(self, table: str) -> dict[str, str]:
        """Return the columns of a table and their types, {} if there is no such table."""
        try:
            described = self._con.execute(f"DESCRIBE {table}").fetchall()
        except duckdb.CatalogException:
            return {}
        return {row[0]: row[1] for row in described}

    def scalar(self, sql: str, params: Sequence[Any] = ()) -> Any:
        """Return the first value of the first row, None if there is no row."""
        with _damage_explained():
            row = self._con.execute(sql, list(params)).fetchall()
        return row[0][0] if row else None

    def read_everything(self) -> None:
        """Read every table of the connection's own database; raises DamagedError, OSError."""
        try:
            for name in self.table_names("estimated_size > 0"):
                self.scalar(f"SELECT bit_xor(hash(t)) FROM {identifier(name)} t")
        except duckdb.IOException as error:
            raise OSError(errno.EIO, str(error).splitlines()[0]) from None

    def table_names(self, condition: str = "true") -> list[str]:
        """Return the names of the tables of every database of the connection."""
        sql = f"SELECT table_name FROM duckdb_tables() WHERE NOT internal AND {condition}"
        with _damage_explained():
            return [row[0] for row in self._con.execute(sql).fetchall()]

    def lock_for_reading(self) -> None:
        """From now on no file, network or setting is reached through this connection."""
        self.execute("SET enable_external_access = false")
        self.execute("SET lock_configuration = true")

    @contextlib.contextmanager
    def user_query(self, sql: str) -> Iterator[pa.RecordBatchReader]:
        """Read one SELECT or EXPLAIN of a user's in the `with` block; raises UsageError.

        Other statements are refused: they could attach a database again for writing.
        """
        try:
            kinds = [statement.type for statement in duckdb.extract_statements(sql)]
            if len(kinds) != 1 or kinds[0] not in READING:
                raise UsageError(
                    "The SQL failed: a run is only read, so give one SELECT (or EXPLAIN) statement."
                )
            with _damage_explained():
                yield self._con.sql(sql).to_arrow_reader(USER_BATCH)
        except (duckdb.Error, OSError) as error:  # OSError: what a reader of Arrow makes of it
            first = str(error).strip().splitlines()[0]
            raise UsageError(f"The SQL failed: {first}") from None

    def set_meta(self, facts: Mapping[str, str]) -> None:
        """Store facts about the run, replacing those of the same key."""
        names, values = list(facts), list(facts.values())
        self.execute("DELETE FROM meta WHERE list_contains(?, key)", [names])
        self.execute("INSERT INTO meta SELECT unnest(?), unnest(?)", [names, values])

    def meta(self) -> dict[str, str]:
        """Return every fact about the run."""
        return {row["key"]: row["value"] for row in self.rows("SELECT key, value FROM meta")}


def identifier(name: str) -> str:
    """Return a name quoted for SQL."""
    return '"' + name.replace('"', '""') + '"'


def _refuse_special(path: Path) -> None:
    """Raise DamagedError for a pipe or a device, which DuckDB would wait for."""
    try:
        refuse_special(path)
    except OSError as error:
        raise DamagedError(f"{path} is damaged ({error.strerror})", AGAIN) from None


def distinct(names: Sequence[str]) -> list[str]:
    """Return names of columns in which a repeat is `name_1`, `name_2`, ..., as in DuckDB."""
    seen = dict.fromkeys(names, 0)
    if len(seen) == len(names):
        return list(names)
    taken, found = set(names), list[str]()
    for name in names:
        free, seen[name] = name, seen[name] + 1
        while seen[name] > 1 and (free := f"{name}_{seen[name] - 1}") in taken:
            seen[name] += 1
        taken.add(free)
        found.append(free)
    return found


def _spill_folder() -> dict[str, str]:
    """Return where DuckDB writes what does not fit its memory, a folder for each connection.

    Its default is the current folder or the run, where a killed process leaves gigabytes.
    """
    try:
        temporary = tempfile.gettempdir()
    except OSError:
        return {}
    return {"temp_directory": str(Path(temporary) / f"dataset-preflight-spill-{uuid4().hex}")}


def _connect(
    path: Path, more: Mapping[str, str], *, read_only: bool = False
) -> duckdb.DuckDBPyConnection:
    if text_fault(str(path)):
        raise RunError(
            f"DuckDB opens no path that is not valid UTF-8, as {path}: choose another --out."
        )
    config = {"memory_limit": MEMORY_LIMIT, "threads": str(usable_cores()), **more}
    try:
        return duckdb.connect(str(path), read_only=read_only, config=dict(config))
    except duckdb.Error as error:
        raise _open_error(path, error) from None


def _open_error(path: Path, error: duckdb.Error) -> RunError:
    text = str(error)
    if "Could not set lock" in text:  # the word alone is in "block", and may be in a path
        holder = re.search(r"PID (\d+)", text)
        who = f"process {holder[1]}" if holder else "another process"
        return LockedError(
            f"{path.parent} is being written by {who}: wait for it to finish, or stop it."
        )
    said = text.splitlines()[0][:200]
    if DAMAGE.search(text) or not path.exists():
        return DamagedError(f"{path} is damaged ({said})", AGAIN)
    return RunError(f"{path} cannot be opened ({said}): check its disk and permissions.")


@contextlib.contextmanager
def _damage_explained() -> Iterator[None]:
    """Make a sentence of what DuckDB says when it meets a damaged block."""
    try:
        yield
    except duckdb.Error as error:
        if not DAMAGE.search(str(error)):
            raise
        said = str(error).splitlines()[0][:200]
        raise DamagedError(f"{ANY_DATABASE} is damaged ({said})", AGAIN) from None


def findings_table(
    findings: Sequence[Finding], names: Mapping[str, str]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return rows of `findings` and `finding_samples`; `names` maps code to check name."""
    heads = [
        {
            "fingerprint": f.fingerprint, "code": f.code, "name": names[f.code],
            "severity": f.severity.value, "subject": f.subject, "message": f.message,
            "evidence": f.evidence_json(), "action": f.action.value,
            "n_samples": len(f.sample_ids),
        }
        for f in findings
    ]  # fmt: skip
    members = [
        {"fingerprint": f.fingerprint, "sample_id": sample, "position": position}
        for f in findings
        for position, sample in enumerate(f.sample_ids)
    ]
    return (
        rows_frame(heads, FINDINGS_TABLES["findings"]),
        rows_frame(members, FINDINGS_TABLES["finding_samples"]),
    )
