"""Executors: every item comes back exactly once, whatever its worker went through."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence

import pytest

from audit.executors import Failure, Processes, Serial


def double(chunk: Sequence[int]) -> list[int]:
    return [2 * item for item in chunk]


def fragile(chunk: Sequence[int]) -> list[int]:
    """Dies of 13, hangs on 17."""
    if 13 in chunk:
        os.kill(os.getpid(), signal.SIGSEGV)
    if 17 in chunk:
        time.sleep(600)
    return double(chunk)


def buggy(chunk: Sequence[int]) -> list[int]:
    raise ValueError(f"bug with {chunk[0]}")


CHUNKS = [list(range(start, start + 5)) for start in range(0, 40, 5)]


@pytest.mark.slow
@pytest.mark.parametrize("executor", [Serial(), Processes(2)])
def test_every_item_once(executor: Serial | Processes) -> None:
    outcomes = list(executor.run(double, CHUNKS))
    assert sorted(item for chunk, _ in outcomes for item in chunk) == list(range(40))
    assert all(result == [2 * i for i in chunk] for chunk, result in outcomes)


@pytest.mark.slow
def test_the_item_that_kills_or_hangs_its_worker_is_found_and_the_rest_is_done() -> None:
    outcomes = list(Processes(2, timeout_s=0.7).run(fragile, CHUNKS))
    failed = {chunk[0]: r.kind for chunk, r in outcomes if isinstance(r, Failure)}
    assert failed == {13: "crashed", 17: "timeout"}
    done = [i for chunk, r in outcomes if not isinstance(r, Failure) for i in chunk]
    assert sorted(done) == [i for i in range(40) if i not in (13, 17)]


@pytest.mark.slow
def test_a_bug_in_the_work_is_raised_here() -> None:
    with pytest.raises(ValueError, match="bug with 0"):
        list(Processes(1).run(buggy, [[0]]))


@pytest.mark.slow
def test_abandoning_the_results_stops_the_workers() -> None:
    results = Processes(2).run(double, CHUNKS)
    next(iter(results))
    results.close()
    import multiprocessing

    assert multiprocessing.active_children() == []
