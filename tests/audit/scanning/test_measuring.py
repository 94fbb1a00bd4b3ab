"""How many workers open the files: as many as have something to do."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl
import pytest

from audit.checking.config import Config
from audit.machine.executors import Processes, Serial
from audit.picture.decode import Limits
from audit.picture.measure import Measurer
from audit.run.store import Store
from audit.scanning.estimate import Forecast, expected_memory_gb, expected_seconds
from audit.scanning.measuring import (
    CHUNK_BYTES,
    CHUNK_FILES,
    CHUNKS,
    MAX_CHUNK_FILES,
    Progress,
    choose_workers,
    cut_chunks,
    measure_pending,
)
from dataset_preflight.foundation.cores import usable_cores


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


# ---- chunks ----


def test_chunks_end_at_a_number_of_files_or_of_bytes() -> None:
    sizes = [1, 1, CHUNK_BYTES, 0, -1, 5, 1]
    rows = [(f"{n}.png", "key", f"{n}.png", size) for n, size in enumerate(sizes)]
    names = [[job.sample_id for job in chunk] for chunk in cut_chunks(rows, 3)]
    assert names == [["0.png", "1.png", "2.png"], ["3.png", "4.png", "5.png"], ["6.png"]]
    assert [len(chunk) for chunk in cut_chunks(rows, 9)] == [3, 4]


@dataclass
class Counting:
    """An executor that does nothing, and says how many files the chunks hold."""

    sizes: list[int] = field(default_factory=list)

    def run(self, work: Any, chunks: Any) -> Any:
        self.sizes += map(len, chunks)
        return iter(())


class Rows:
    """A table of pending files, without a database."""

    def __init__(self, rows: Sequence[tuple[Any, ...]]) -> None:
        self.store, self.rows = self, rows

    def pages(self, _: str) -> Any:
        return iter(self.rows)

    def flush(self) -> None:
        """Nothing waits."""


@pytest.mark.parametrize(
    ("n", "n_bytes", "most"),
    [
        (CHUNKS * 3, 900, CHUNK_FILES),
        (CHUNKS * 100, 900, 100),
        (CHUNKS * 10_000, 900, MAX_CHUNK_FILES),
        (CHUNKS * 100, 16 << 20, 2),
    ],
)
def test_a_large_dataset_has_larger_chunks_but_no_more_bytes(
    n: int, n_bytes: int, most: int
) -> None:
    rows: Any = Rows([(f"{at}.png", "", f"{at}.png", n_bytes) for at in range(2000)])
    executor = Counting()
    measure_pending(rows, executor, Measurer(Limits()), lambda _: None, done=0, total=n)
    assert max(executor.sizes) == most
    assert sum(executor.sizes) == 2000


# ---- the forecast ----


def forecast_of(total: int, per_file_s: float, step: int = 250) -> list[str]:
    """What is said while `total` files are read at this pace."""
    now, said = [0.0], []
    forecast = Forecast(said.append, 2, clock=lambda: now[0])
    forecast(Progress("list", total, total))
    for done in range(0, total + 1, step):
        now[0] = done * per_file_s
        forecast(Progress("measure", done, total))
    return said


def test_a_long_scan_says_once_what_it_takes() -> None:
    (said,) = forecast_of(100_000, 0.004)
    # 99,000 files at 4 ms, then 100,000 compared at 3.5 ms of 1.4 cores
    assert said == (
        "About 11 minutes left for 100,000 files; 370 MB of disk for the run, at most about 2.5 GB "
        "of memory."
    )


def test_a_short_scan_says_nothing() -> None:
    assert forecast_of(5_000, 0.002) == []
    assert forecast_of(900, 1.0, step=100) == []


def test_a_resumed_scan_counts_from_where_it_goes_on() -> None:
    now, said = [0.0], []
    forecast = Forecast(said.append, 2, clock=lambda: now[0])
    for done in (90_000, 92_000):
        forecast(Progress("measure", done, 100_000))
        now[0] += 10.0
    # 2,000 in 10 s
    assert len(said) == 1
    assert expected_seconds(10_000, 2_000, 10.0, 2) == pytest.approx(40 + 10_000 * 0.0035 / 1.4)


def test_memory_grows_by_the_logarithm_of_what_was_measured() -> None:
    assert expected_memory_gb(1_000) == expected_memory_gb(60_000) == pytest.approx(2.2)
    assert expected_memory_gb(1_000_000) == pytest.approx(3.8)
