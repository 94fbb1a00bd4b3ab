"""What stopped a measurement: the sentence, and only the user's frames."""

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from pipeline_profiler import Recorder
from pipeline_profiler.profiling.measure.arms import Bench, drive
from pipeline_profiler.profiling.measure.watchdog import (
    Pulse,
    Watchdog,
    describe_failure,
    user_traceback,
)
from pipeline_profiler.profiling.record.session import Session
from pipeline_profiler.profiling.record.stages import Counters

WORKER_TEXT = """Caught ValueError in DataLoader worker process 3.
Original Traceback (most recent call last):
  File "/x/site-packages/torch/utils/data/_utils/worker.py", line 374, in _worker_loop
    data = fetcher.fetch(index)
           ^^^^^^^^^^^^^^^^^^^^
  File "/srv/train.py", line 68, in __getitem__
    raise ValueError("bad label")
ValueError: bad label
"""


def raising(error: BaseException) -> Any:
    """A function of any arguments that raises."""

    def fail(*_: object) -> Any:
        raise error

    return fail


def broken_loader() -> Any:
    yield 1
    raise OSError("disk 3 is gone")


@pytest.mark.parametrize(
    ("loader", "step", "said"),
    [
        (lambda: [1, 2], raising(KeyError("lr")), "The step raised KeyError after 7 batches: 'lr'"),
        (broken_loader, id, "The loader raised OSError after 7 batches: disk 3 is gone"),
        (
            raising(RuntimeError("no such bucket")), id,
            "The function that makes the loader raised RuntimeError after 7 batches: no such "
            "bucket",
        ),
        (
            lambda: [1, 2],
            raising(RuntimeError("DataLoader worker (pid 4711) is killed by signal: Killed. ")),
            "The loader's worker process 4711 is killed by signal: Killed after 7 batches; the "
            "system kills when memory runs out: fewer workers or a smaller prefetch need less.",
        ),
        (
            lambda: [1, 2],
            raising(RuntimeError("DataLoader worker (pid(s) 12, 13) exited unexpectedly")),
            "The loader's worker process 12, 13 exited unexpectedly after 7 batches.",
        ),
    ],
)  # fmt: skip
def test_what_raised_is_a_sentence_and_only_frames_of_the_user(
    loader: Any, step: Any, said: str
) -> None:
    bench = Bench(loader, step)
    with pytest.raises(Exception, match=r".") as caught:
        drive(bench, bench.loader(), Recorder(), 10)
    assert describe_failure(caught.value, 7) == said
    text = user_traceback(caught.value)
    assert "raise " in text
    assert "pipeline_profiler/profiling/measure/arms.py" not in text


def test_a_workers_traceback_is_the_one_shown() -> None:
    error = ValueError(WORKER_TEXT)
    assert describe_failure(error, 5) == (
        "The loader's worker 3 raised ValueError after 5 batches: bad label"
    )
    text = user_traceback(error)
    assert "train.py" in text
    assert "site-packages" not in text
    assert text.endswith("ValueError: bad label")


def test_a_process_that_waits_for_a_core_is_not_ended() -> None:
    watchdog, looks = Watchdog(Pulse(), 0.2, Session()), list[int]()

    class Starved(Counters):
        """The counters of a thread that other programs leave no core."""

        def queued_ns(self) -> int:
            looks.append(time.monotonic_ns())
            return looks[-1]

    watchdog._counters = Starved()
    with watchdog:
        while len(looks) < 20:
            time.sleep(0.01)
    assert watchdog.cut_off is None


def test_the_stack_of_a_worker_that_writes_it_late_is_read_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watchdog, here = Watchdog(Pulse(), 60.0, Session()), __file__

    def write(pid: int, number: int) -> None:
        assert watchdog._dump is not None
        path, text = Path(watchdog._dump.name), f'  File "{here}", line 1 in load_slowly\n'
        late = threading.Timer(1.0, lambda: path.write_text(f"Current thread 0x1 (x):\n{text}"))
        late.start()

    with watchdog:
        monkeypatch.setattr(os, "kill", write)
        (frame,) = watchdog._dumped(4711, time.monotonic() + 300)
    assert frame.startswith("test_failure.py:1 load_slowly")
