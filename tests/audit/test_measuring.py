"""How many workers open the files: as many as have something to do."""

from __future__ import annotations

import polars as pl
import pytest

from audit.checking.config import Config
from audit.executors import Processes, Serial, usable_cores
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
