"""How many workers open the files: as many as have something to do."""

from __future__ import annotations

import polars as pl
import pytest

from audit.checking.config import Config
from audit.machine.executors import Processes, Serial
from audit.run.store import Store
from audit.scanning.measuring import choose_workers
from preflight.cores import usable_cores


@pytest.mark.parametrize(
    ("files", "n_bytes", "jobs", "wanted"),
    [
        (200, 10_000, None, 1),  # a third of a second of work: another worker does not pay
        (0, 0, None, 1),
        (100_000, 10_000, None, usable_cores()),
        (300, 100_000_000, None, usable_cores()),
        (300, -1, 2, 2),  # sizes that are not known, and what the user asked for
    ],
    ids=["small", "none", "many", "large", "asked"],
)
def test_a_worker_is_made_where_its_work_pays_for_it(
    files: int, n_bytes: int, jobs: int | None, wanted: int
) -> None:
    with Store.memory() as store:
        listed(store, [n_bytes] * files, "/pictures/a.jpg")
        _, workers = choose_workers(Config(), jobs, store, "pending", None)
    assert isinstance(workers, Processes)
    assert workers.jobs == wanted


@pytest.mark.parametrize("uri", ["fetch+memory://a/b.png", "pack+tar://memory%3A//a.tar#512%2B3"])
def test_pictures_in_the_memory_of_this_process_are_read_in_it(uri: str) -> None:
    with Store.memory() as store:
        listed(store, [10_000] * 100_000, uri)
        _, workers = choose_workers(Config(), 2, store, "pending", None)
    assert isinstance(workers, Serial)


def listed(store: Store, sizes: list[int], uri: str) -> None:
    """Fill the tables of what is listed and of what is to be measured."""
    frame = pl.DataFrame({"n_bytes": sizes}, schema={"n_bytes": pl.Int64})
    frame = frame.with_columns(uri=pl.lit(uri))
    store.create_from("pending", frame)
    store.create_from("samples", frame)
