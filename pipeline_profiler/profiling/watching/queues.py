"""Batches that a thread of the script draws and puts into a queue: the wait is at its get().

Every `queue.Queue` that a drawing thread puts something into is a loop, its get() recorded like
next(). Queues without such a put, and a get() with a time limit, are ignored.
"""

from __future__ import annotations

import functools
import queue
import sys
import threading
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from pipeline_profiler.profiling.record.recorder import Source
from pipeline_profiler.profiling.watching.loop import Loop
from pipeline_profiler.profiling.watching.process import WatchedProcess

AT_GET = (
    "A thread of the script's own draws the batches: the reported wait is that at get() of the "
    "queue that it fills."
)


def hook_queues(process: WatchedProcess, draws: Loop, trains: Callable[[], bool]) -> None:
    """Follow the queues that this thread fills, which draws the batches of `draws`."""
    first = not process.drawing
    process.drawing[threading.get_ident()] = draws
    if not first:
        return
    put, get = queue.Queue.put, queue.Queue.get

    @functools.wraps(put)
    def put_seen(self: Any, item: Any, block: bool = True, timeout: float | None = None) -> None:
        draws = process.drawing.get(threading.get_ident())
        if draws is not None and "_watched_loop" not in self.__dict__:
            size = draws.source.config.get("batch_size")
            source = Source((), {"kind": "iterable", "batch_size": size})
            loop = draws.handed_to = process.loop_of(("queue", id(draws)), source)
            loop.recorder.run.notes[:] = [AT_GET]
            self.__dict__["_watched_loop"] = loop, draws
        put(self, item, block, timeout)

    @functools.wraps(get)
    def get_timed(self: Any, block: bool = True, timeout: float | None = None) -> Any:
        loop, draws = self.__dict__.get("_watched_loop", (None, None))
        if loop is None or not block or timeout is not None:
            return get(self, block, timeout)
        if loop.iterator is not self:  # of each epoch a new one, maybe
            now, frame = perf_counter_ns(), sys._getframe(1)
            loop.iterator = self
            loop.at = f"{frame.f_code.co_filename.rsplit('/', 1)[-1]}:{frame.f_lineno}"
            process.take_over(draws, loop, now)
        return process.ask(loop, get, self, trains())

    def undo() -> None:
        queue.Queue.put, queue.Queue.get = put, get  # type: ignore[method-assign]

    queue.Queue.put, queue.Queue.get = put_seen, get_timed  # type: ignore[method-assign]
    process.undo.append(undo)
