"""A scanned run that tests copy and damage, and what its index is when nothing disturbs it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
from polars.testing import assert_frame_equal

from audit.checking.config import Config
from audit.machine.executors import Serial
from audit.picture.measure import FileJob, Measurer
from audit.run.run_version import open_run
from audit.scanning import scanning
from audit.scanning.scanning import ScanResult
from audit.sources import open_source

TABLES = (
    "samples", "features", "declared_classes", "skipped_files", "source_notes", "pairs", "groups",
    "findings", "finding_samples",
)  # fmt: skip
N_FILES = 24
CHECKS = ("FILE", "DUP", "SPLIT001", "IMG001")
"""A few of the checks: half of a small scan's time are the others, and what is stored is alike."""
QUICK = Config(match={"synthetic_sources": 0})


class Watching(Serial):
    """A serial executor that remembers which files were read, measured, and opened otherwise."""

    def __init__(self) -> None:
        self.read: list[str] = []
        self.measured: list[str] = []
        self.shown: list[str] = []

    def run(self, work: Any, chunks: Any) -> Iterator[Any]:
        for chunk, result in super().run(work, chunks):
            names = [job.sample_id for job in chunk if isinstance(job, FileJob)]
            self.read += names
            self.measured += names if isinstance(work, Measurer) else []
            self.shown += [] if names else chunk
            yield chunk, result


def scan(tree: Path, run: Path, **options: Any) -> ScanResult:
    """Scan by one process and a few checks, unless the options say otherwise."""
    settings = {"checks": CHECKS, "config": QUICK, "jobs": 1, **options}
    return scanning.scan(open_source([str(tree)]), run, **settings)


def scan_tree(tree: Path, run: Path, **options: Any) -> list[str]:
    """Scan in this process; returns the ids of the files that were read."""
    executor = Watching()
    scan(tree, run, executor=executor, **options)
    return sorted(executor.read)


def recheck_run(run: Path, **options: Any) -> None:
    """Run the checks of `scan_tree` again."""
    scanning.recheck(run, **{"checks": CHECKS, "config": QUICK, **options})


def read_index(run: Path, tables: Sequence[str] = TABLES) -> dict[str, pl.DataFrame]:
    """Every table that a scan determines, in a fixed order of rows."""
    with open_run(run) as store:
        return {name: store.query(f"SELECT * FROM {name} ORDER BY ALL") for name in tables}


def rows_of(run: Path, sql: str) -> list[dict[str, Any]]:
    """The rows that a query of the run's store returns."""
    with open_run(run) as store:
        return store.rows(sql)


def value_of(run: Path, sql: str) -> Any:
    """The one value that a query of the run's store returns."""
    with open_run(run) as store:
        return store.scalar(sql)


def assert_index(run: Path, expected: dict[str, pl.DataFrame]) -> None:
    for name, frame in read_index(run).items():
        assert_frame_equal(frame, expected[name])


@contextmanager
def as_nobody() -> Iterator[None]:
    """Root may do anything, so it becomes nobody meanwhile."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
