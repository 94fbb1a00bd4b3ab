"""Batches that a thread of the script draws and puts into a queue: the wait is at its get().

Every `queue.Queue` that a drawing thread puts something into is a loop, its get() recorded like
next(). A wait begins at the first get() or `empty()` that finds no batch. Other queues are ignored.
"""

from __future__ import annotations

import functools
import queue
import sys
import threading
from time import perf_counter_ns
from typing import Any

from pipeline_profiler.profiling.monitor.loop import Loop
from pipeline_profiler.profiling.monitor.process import WatchedProcess
from pipeline_profiler.profiling.record.recorder import Source

AT_GET = (
    "A thread of the script's own draws the batches: the reported wait is that at get() of the "
    "queue that it fills."
)


def hook_queues(process: WatchedProcess) -> None:
    """Follow the queues that drawing threads fill, to the thread that takes the batches."""
    put, get, qsize = queue.Queue.put, queue.Queue.get, queue.Queue.qsize

    @functools.wraps(put)
    def put_seen(self: Any, item: Any, block: bool = True, timeout: float | None = None) -> None:
        thread = threading.get_ident()
        draws = process.drawing.get(thread)
        if draws is not None and process.training.thread != thread:
            self.__dict__["_watched_draws"] = draws
        put(self, item, block, timeout)

    @functools.wraps(get)
    def get_timed(self: Any, block: bool = True, timeout: float | None = None) -> Any:
        start = perf_counter_ns()
        loop = _loop_at(process, self)
        if loop:
            loop.begin_wait(start)
            process.phase = "wait"
        item = get(self, block, timeout)  # of a new queue, the first put may come meanwhile
        if loop is None and _trains_from(process, self):
            loop = _make_loop(process, self, sys._getframe(1))
            process.take_over(loop, start, perf_counter_ns())
        if loop:
            process.ask(loop, lambda _: item, self, _records_gradients())
            loop.waits_since, loop.ended = 0, not hasattr(item, "__len__")
        return item

    @functools.wraps(qsize)
    def qsize_seen(self: Any) -> int:
        size, loop = qsize(self), _loop_at(process, self)
        if not size and loop:
            if loop.busy:
                loop.begin_wait(perf_counter_ns())
            loop.unclear = True  # a script without training may wait, or look only
        return size

    hooks = {"put": put_seen, "get": get_timed, "qsize": qsize_seen}
    hooks["empty"] = functools.wraps(queue.Queue.empty)(lambda self: not self.qsize())
    for name, hook in hooks.items():
        process.undo.append(functools.partial(setattr, queue.Queue, name, vars(queue.Queue)[name]))
        setattr(queue.Queue, name, hook)


def _trains_from(process: WatchedProcess, handed: Any) -> bool:
    """Whether this thread may be the training that waits for the batches in a queue."""
    draws, thread = handed.__dict__.get("_watched_draws"), threading.get_ident()
    if draws is None or draws.thread == thread:
        return False
    trains = process.training.thread in (0, thread)
    if not trains:
        process.drawing.setdefault(thread, draws)  # it hands them on
    return trains


def _loop_at(process: WatchedProcess, handed: Any) -> Loop | None:
    loop: Loop | None = handed.__dict__.get("_watched_loop")
    return loop if loop and _trains_from(process, handed) else None


def _make_loop(process: WatchedProcess, handed: Any, frame: Any) -> Loop:
    """Return the loop of a queue; queues that are made anew each epoch share it."""
    frame = frame.f_back if frame.f_code.co_filename == queue.__file__ else frame  # get_nowait()
    draws, path = handed.__dict__["_watched_draws"], frame.f_code.co_filename
    at = f"{path.rsplit('/', 1)[-1]}:{frame.f_lineno}"
    source = Source((), {"kind": "iterable", "batch_size": draws.source.config.get("batch_size")})
    loop = handed.__dict__["_watched_loop"] = process.loop_of(("queue", id(draws), at), source)
    loop.at, loop.of_queue, draws.unclear = at, True, True
    loop.recorder.run.notes[:] = [AT_GET]
    return loop


def _records_gradients() -> bool:
    torch = sys.modules.get("torch")
    return torch is None or bool(torch.is_grad_enabled())
