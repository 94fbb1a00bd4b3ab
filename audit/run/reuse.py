"""What a new scan keeps of an unfinished one and of the previous version.

The database of the previous version is attached as `previous`. The listing is compared while it
comes: samples are stored from the first that differs, and where none does, the table of the
previous version is read instead. Rows of features are kept where size, mtime and ctime of a file
are equal; ctime cannot be set back, so an edit that restores the mtime is still seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, nullcontext
from itertools import chain
from typing import TYPE_CHECKING

from audit.run.store import Store

if TYPE_CHECKING:
    import polars as pl

PREVIOUS = "previous"
"""The name under which a scan attaches the database of the version before it."""
# The identity of a file's content as far as a directory listing can tell.
FILE_KEY = "s.n_bytes || ' ' || s.mtime_ns || ' ' || s.ctime_ns"
UNCHANGED = f"s.id = f.sample_id AND f.file_key = {FILE_KEY}"
# Outcomes that may differ the next time although the file did not change.
TRANSIENT = (
    "(coalesce(f.error_kind, '') IN ('io', 'permission', 'crashed', 'timeout', 'memory') "
    "OR coalesce(f.error_kind, '') = 'missing' AND f.file_key NOT LIKE '-1 %' "
    "OR coalesce(f.error_kind, '') = 'unsupported' AND f.file_key = '-1 -1 -1')"
)
# A picture that has been measured and whose signature is lost.
UNSIGNED = (
    "(f.status IN ('ok', 'damaged') AND f.phash IS NOT NULL AND f.content_hash IS NOT NULL "
    "AND f.content_hash NOT IN (SELECT content_hash FROM signed))"
)
# A row of the previous version that is as good as a new one.
LASTING = f"NOT {TRANSIENT} AND NOT ({UNSIGNED})"
LISTED = (
    "samples", "label_columns", "several_labels", "declared_classes", "skipped_files",
    "source_notes", "failed_readers",
)  # fmt: skip


def store_samples(store: Store, frames: Iterable[pl.DataFrame], *, compared: bool) -> int:
    """Fill `samples` with rows in the order of the source; return how many.

    `compared` with those of the previous version: where they are the same, `samples` is a view
    of them, for this connection alone, until `own_samples`.
    """
    coming, total = iter(frames), 0
    if compared:
        total, different = _count_equal(store, coming)
        if different is None and total == store.scalar("SELECT count(*) FROM previous.samples"):
            store.execute("CREATE TEMP VIEW samples AS FROM previous.samples")
            return total
        store.execute(f"INSERT INTO samples FROM previous.samples LIMIT {total}")
        coming = chain([] if different is None else [different], coming)
    for frame in coming:
        store.append("samples", frame)
        total += len(frame)
    return total


def _count_equal(store: Store, coming: Iterator[pl.DataFrame]) -> tuple[int, pl.DataFrame | None]:
    """Return how many samples are those of before, and the first frame that is not, if any."""
    import polars as pl

    total = 0
    with closing(store.frames("FROM previous.samples")) as before:
        ahead = next(before, pl.DataFrame())
        for frame in coming:
            while len(ahead) < len(frame) and (more := next(before, None)) is not None:
                ahead = pl.concat([ahead, more])
            if not frame.equals(ahead[: len(frame)]):
                return total, frame
            ahead = ahead[len(frame) :]
            total += len(frame)
    return total, None


def is_listed_as_before(store: Store) -> bool:
    """Return whether `samples` is the view of those of the previous version."""
    return bool(store.columns("temp.samples"))


def own_samples(store: Store) -> None:
    """Copy the samples of the previous version, where they are a view, into the own table."""
    if is_listed_as_before(store):
        store.execute("DROP VIEW temp.samples")
        store.execute("INSERT INTO samples FROM previous.samples")


def keep_rows(
    store: Store, related_as: str, signed: pl.DataFrame | None, edited: Sequence[str] = ()
) -> tuple[int, int | None]:
    """Decide which files need no reading; leave the rest in the temporary table `pending`.

    The rows of files that are gone are left in `lost`: their content may be among the pending ones.
    `edited` are samples that are read whatever their times. `signed` has the column `content_hash`:
    images whose signature is stored (others are read again); None if all of the previous version.
    Returns the rows resumed from a killed scan, and those kept: None where nothing changed.
    """
    import polars as pl

    changed = pl.DataFrame({"id": edited}, schema={"id": pl.String})
    lasting = LASTING if signed is not None else f"NOT {TRANSIENT}"
    known = nullcontext() if signed is None else store.frame_as("signed", signed)
    with known, store.frame_as("edited", changed):
        n_resumed = _resume(store)
        n_kept: int | None = 0
        if PREVIOUS in store.attached:
            if n_resumed or edited or not _nothing_changed(store, related_as, lasting):
                n_kept = _keep(store, lasting)
            else:
                n_kept = None
    if n_kept is not None:
        own_samples(store)
        store.execute(
            "CREATE OR REPLACE TABLE pending AS "
            f"SELECT s.id, s.uri, s.n_bytes, {FILE_KEY} AS file_key "
            "FROM samples s ANTI JOIN features f ON f.sample_id = s.id"
        )
    return n_resumed, n_kept


def _resume(store: Store) -> int:
    """Keep what a killed scan measured of files that are the same still; return how many."""
    if store.scalar("SELECT count(*) FROM features"):
        store.execute(
            f"DELETE FROM features f WHERE {UNSIGNED} OR f.sample_id IN (FROM edited) "
            f"OR NOT EXISTS (SELECT 1 FROM samples s WHERE {UNCHANGED})"
        )
    store.execute("CREATE OR REPLACE TABLE pending AS SELECT id FROM samples LIMIT 0")
    store.execute(
        "CREATE OR REPLACE TABLE lost AS SELECT *, 0 AS size_before FROM features LIMIT 0"
    )
    return int(store.scalar("SELECT count(*) FROM features"))


def _keep(store: Store, lasting: str) -> int:
    """Copy rows of the previous version, and those of files that are gone; return how many."""
    if not _same_measures(store):
        return 0
    n_before = store.scalar("SELECT count(*) FROM features")
    store.execute(
        f"INSERT INTO features SELECT f.* FROM previous.features f JOIN samples s "
        f"ON {UNCHANGED} ANTI JOIN features had ON had.sample_id = f.sample_id "
        f"WHERE f.sample_id NOT IN (FROM edited) AND {lasting}"
    )
    store.execute(
        f"CREATE OR REPLACE TABLE lost AS SELECT f.*, was.n_bytes AS size_before "
        f"FROM previous.features f JOIN previous.samples was ON was.id = f.sample_id "
        f"ANTI JOIN samples s ON s.id = f.sample_id "
        f"WHERE f.status IN ('ok', 'damaged') AND {lasting}"
    )
    return int(store.scalar("SELECT count(*) FROM features")) - int(n_before)


def _same_measures(store: Store) -> bool:
    question = "SELECT value FROM {}meta WHERE key = 'measured_as'"
    return bool(store.scalar(question.format("")) == store.scalar(question.format("previous.")))


def _nothing_changed(store: Store, related_as: str, lasting: str) -> bool:
    """Say whether listing, notes and metadata equal those of the previous version."""
    if (
        not _same_measures(store)
        or store.scalar("SELECT value FROM previous.meta WHERE key = 'related_as'") != related_as
        or store.scalar(f"SELECT count(*) FROM previous.features f WHERE NOT ({lasting})")
    ):
        return False
    # rows of annotations follow from their files and the samples
    keys = "SELECT file, file_key FROM {}annotation_files"
    now, before = (set(store.query(keys.format(x)).iter_rows()) for x in ("", "previous."))
    columns = store.columns("metadata")
    if now != before or columns != store.columns("previous.metadata"):
        return False
    tables = [table for table in LISTED if table != "samples" or not is_listed_as_before(store)]
    return not any(_differs(store, table) for table in (*tables, *["metadata"] * bool(columns)))


def _differs(store: Store, table: str) -> bool:
    now, before = (store.scalar(f"SELECT count(*) FROM {x}{table}") for x in ("", "previous."))
    if now != before or not now:
        return bool(now != before)
    fresh = f"SELECT * FROM {table} EXCEPT ALL SELECT * FROM previous.{table}"
    return store.scalar(f"SELECT 1 FROM ({fresh}) LIMIT 1") is not None
