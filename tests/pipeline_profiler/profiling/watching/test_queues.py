"""Batches drawn in a thread of the script's own: the wait is at get() of the queue it fills."""

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from pipeline_profiler.profiling.diagnose.window import Window
from pipeline_profiler.profiling.record.recorder import Source
from pipeline_profiler.profiling.watching import queues
from pipeline_profiler.profiling.watching.conclusion import judge_session
from pipeline_profiler.profiling.watching.process import WatchedProcess

STEPS, LOAD_S = 30, 0.01
Take = Callable[["queue.Queue[Any]"], Any]


def train(process: WatchedProcess, take: Take) -> None:
    """Batches come through a queue, each 10 ms after the training has begun to wait for it."""
    handed, other = queue.Queue[Any](2), queue.Queue[Any]()  # from which no training takes

    def load(iterator: object) -> int:
        while not handed.not_empty._waiters:  # type: ignore[attr-defined]
            time.sleep(0.001)
        time.sleep(LOAD_S)
        return 1

    def draw() -> None:
        loop = process.loop_of("loader", Source((), {"kind": "torch", "workers": 0}))
        now = time.perf_counter_ns()
        process.open(loop, now, now)
        queues.hook_queues(process, loop, lambda: True)
        for number in range(STEPS):
            handed.put(process.ask(loop, load, None, trains=True))
            other.put(number)

    thread = threading.Thread(target=draw)
    thread.start()
    for _ in range(STEPS):
        take(handed)
        process.trains()
    thread.join()


@pytest.mark.parametrize(
    ("take", "told"),
    [
        (lambda handed: handed.get(), True),
        (lambda handed: handed.get(timeout=60), False),  # which may end for another reason
    ],
)
def test_the_wait_is_told_where_the_training_takes_its_batches(
    process: WatchedProcess, take: Take, told: bool
) -> None:
    plain = queue.Queue.get, queue.Queue.put
    train(process, take)
    (session,) = process.sessions()
    judge_session(session)
    (run,) = session.runs
    assert (queues.AT_GET in run.notes) == told
    assert (session.results["stall"] is not None) == told
    said = "another thread than the one that trains"
    assert (said in session.results["sentence"]) != told
    if told:
        # one step more than was taken after the queue was known, of those that trained
        assert STEPS - 3 <= run.totals["trained_steps"] < STEPS
        assert (Window.of(run).steps.wait >= 0.9 * LOAD_S * 1e9).all()
        assert session.environment["loop_at"].startswith("test_queues.py:")
    process.end()
    assert (queue.Queue.get, queue.Queue.put) == plain
