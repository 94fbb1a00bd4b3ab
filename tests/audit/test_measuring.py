"""How many workers open the files: as many as have something to do."""

from __future__ import annotations

import polars as pl
import pytest

from audit.checking.config import Config
from audit.executors import Processes, usable_cores
from audit.measuring import choose_workers
from audit.run.store import Store


@pytest.mark.parametrize(
    ("files", "n_bytes", "jobs", "wanted"),
    [
        (300, 10_000, None, 1),  # half a second of work: loading a second worker takes longer
        (0, 0, None, 1),
        (100_000, 10_000, None, usable_cores()),
        (300, 100_000_000, None, usable_cores()),
        (300, -1, 2, 2),  # sizes that are not known, and what the user asked for
    ],
    ids=["small", "none", "many", "large", "asked"],
)
def test_a_worker_is_started_for_each_second_of_work(
    files: int, n_bytes: int, jobs: int | None, wanted: int
) -> None:
    with Store.memory() as store:
        sizes = pl.Series("n_bytes", [n_bytes] * files, dtype=pl.Int64)
        store.create_from("pending", sizes.to_frame())
        _, workers = choose_workers(Config(), jobs, store, "pending", None)
    assert isinstance(workers, Processes)
    assert workers.jobs == wanted
