"""Files whose content an earlier scan knows: moved ones, and edits that a listing does not show.

A file counts as unchanged by its size and times. Two questions need its bytes, but no decoder: is
a new file one that was moved, and (`audit scan --verify`) is an unchanged one really what it was?
Both hash files in the worker processes and compare with the stored content hash.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from audit.executors import Executor, Failure
from audit.measuring import Progress, ProgressCallback, cut_chunks
from audit.picture.decode import Limits
from audit.picture.magic import extension_of
from audit.picture.measure import FileJob, Hasher
from audit.run.reuse import UNCHANGED
from audit.run.store import Store

Hashed = tuple[FileJob, str | None]


def find_unseen_edits(
    store: Store, previous: Path, executor: Executor, limits: Limits, progress: ProgressCallback
) -> list[str]:
    """Hash every file that counts as unchanged; return the ids of those that are not.

    What cannot be read any more is among them, and what could not be read then and can be now: it
    is measured again.
    """
    store.attach(previous, "previous")
    known = f"FROM previous.features f JOIN samples s ON {UNCHANGED}"
    total = store.scalar(f"SELECT count(*) {known}")
    progress(Progress("verify", 0, total))
    expected = "coalesce(f.content_hash, '')"
    wanted = store.pages(f"SELECT s.id, {expected}, s.uri, s.n_bytes {known} ORDER BY s.rowid")
    edited = []
    # the expected hash travels in the place of the file key
    for done, (job, found) in enumerate(_hash_files(wanted, executor, limits), 1):
        if (found or "") != job.file_key:
            edited.append(job.sample_id)
        progress(Progress("verify", done, total))
    store.detach("previous")
    return edited


def keep_moved(store: Store, executor: Executor, limits: Limits) -> int:
    """Give pending files the rows of `lost` files with equal content; return how many.

    Only files of the size of a lost one are hashed. Rows follow from the content, but for the
    extension.
    """
    import polars as pl

    wanted = store.pages(
        "SELECT id, file_key, uri, n_bytes FROM pending "
        "WHERE n_bytes IN (SELECT size_before FROM lost) ORDER BY rowid"
    )
    rows = [
        (job.sample_id, job.file_key, extension_of(job.sample_id), found)
        for job, found in _hash_files(wanted, executor, limits)
        if found is not None
    ]
    names = ("sample_id", "file_key", "extension", "content_hash")
    store.create_from(
        "moved", pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row")
    )
    with store.transaction():
        store.execute(
            "INSERT INTO features SELECT f.* EXCLUDE (size_before) REPLACE (m.sample_id AS "
            "sample_id, m.file_key AS file_key, m.extension AS extension) FROM moved m JOIN "
            "(SELECT DISTINCT ON (content_hash) * FROM lost) f USING (content_hash)"
        )
        store.execute("DELETE FROM pending WHERE id IN (SELECT sample_id FROM features)")
    taken = "SELECT count(*) FROM moved WHERE content_hash IN (SELECT content_hash FROM lost)"
    n_moved = int(store.scalar(taken))
    store.execute("DROP TABLE moved")
    return n_moved


def _hash_files(
    rows: Iterator[tuple[str, str, str, int]], executor: Executor, limits: Limits
) -> Iterator[Hashed]:
    """Yield every file with the hash of its content, None where it cannot be read."""
    for jobs, outcome in executor.run(Hasher(limits), cut_chunks(rows)):
        found = [None] * len(jobs) if isinstance(outcome, Failure) else outcome
        yield from zip(jobs, found, strict=True)
