"""Executors: they schedule chunks of work, nothing else.

`run(work, chunks)` applies a picklable function to lists of items and yields `(chunk, outcome)`
as they finish. `Serial` works in this process. `Processes` keeps its own spawned workers, one
pipe each, because a pool from the standard library gives up whole when a worker dies: here a
chunk whose worker crashed or hung is halved until the one guilty item is found, which comes back
as a `Failure`, and the rest is done. Spawned, never forked: polars and TensorFlow hang in a
forked child.

Cost: starting a worker takes about 1 s of imports; a chunk costs one pickle each way.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Protocol, TypeVar

from audit.errors import UsageError

Item = TypeVar("Item")
Result = TypeVar("Result")


NO_START = (
    "A worker process ended while starting: scripts that scan with several jobs need "
    '`if __name__ == "__main__":` around their main part; or use one job.'
)


def usable_cores() -> int:
    """Return the cores this process may use: affinity and the container's CPU quota, at least 1.

    Half a core is no core to run a process on: a quota of 1.5 gives 1.
    """
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        return cores
    return cores if quota == "max" else max(1, min(cores, int(quota) // int(period)))


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an item has no result: `kind` is crashed or timeout."""

    kind: str
    text: str


class Executor(Protocol):
    """Anything that can run chunks of work."""

    def run(
        self, work: Callable[[Sequence[Item]], Result], chunks: Iterable[Sequence[Item]]
    ) -> Iterator[tuple[Sequence[Item], Result | Failure]]:
        """Yield every chunk, or part of one, with its outcome, in any order."""
        ...


class Serial:
    """One chunk after another, in this process: for tests, debugging and tiny datasets."""

    def run(
        self, work: Callable[[Sequence[Item]], Result], chunks: Iterable[Sequence[Item]]
    ) -> Iterator[tuple[Sequence[Item], Result | Failure]]:
        """Yield every chunk with its result, in order."""
        for chunk in chunks:
            yield chunk, work(chunk)


@dataclass
class _Worker:
    process: BaseProcess
    pipe: Connection
    chunk: Sequence[object] | None = None
    deadline: float = float("inf")
    ready: bool = False


class Processes:
    """Chunks spread over `jobs` spawned processes; `timeout_s` bounds one item.

    A chunk of several items gets four times `timeout_s`. Closing the iterator (or an exception in
    its consumer, Ctrl-C included) stops the workers.
    """

    def __init__(self, jobs: int, timeout_s: float = 60.0) -> None:
        """Remember the settings; workers start with the first chunk."""
        self.jobs = jobs
        self.timeout_s = timeout_s

    def run(
        self, work: Callable[[Sequence[Item]], Result], chunks: Iterable[Sequence[Item]]
    ) -> Iterator[tuple[Sequence[Item], Result | Failure]]:
        """Yield chunks with their results as they finish; guilty items alone, with a Failure."""
        source, retry = iter(chunks), deque[Sequence[Item]]()
        workers: list[_Worker] = []
        try:
            while True:
                self._feed(work, workers, source, retry)
                if not workers:
                    return
                for worker in self._finished(workers):
                    yield from self._collect(worker, workers, retry)
        finally:
            for worker in workers:
                _stop(worker)

    def _feed(
        self,
        work: Callable[[Sequence[Item]], Result],
        workers: list[_Worker],
        source: Iterator[Sequence[Item]],
        retry: deque[Sequence[Item]],
    ) -> None:
        """Give every idle worker a chunk, start workers while there is work, stop idle ones."""
        for worker in [w for w in workers if w.chunk is None]:
            if (chunk := _next(source, retry)) is None:
                workers.remove(worker)
                _stop(worker)
            else:
                self._give(worker, chunk)
        while len(workers) < self.jobs and (chunk := _next(source, retry)) is not None:
            workers.append(_start(work))
            self._give(workers[-1], chunk)

    def _give(self, worker: _Worker, chunk: Sequence[Item]) -> None:
        worker.chunk = chunk
        if worker.ready:
            self._set_deadline(worker)
        with contextlib.suppress(BrokenPipeError):  # a worker that just died: seen when collected
            worker.pipe.send(chunk)

    def _set_deadline(self, worker: _Worker) -> None:
        several = worker.chunk is not None and len(worker.chunk) > 1
        worker.deadline = time.monotonic() + self.timeout_s * (4 if several else 1)

    def _finished(self, workers: list[_Worker]) -> list[_Worker]:
        pause = min(w.deadline for w in workers) - time.monotonic()
        ready = set(wait([w.pipe for w in workers], timeout=max(0.0, min(pause, 1.0))))
        now = time.monotonic()
        return [w for w in workers if w.pipe in ready or now > w.deadline]

    def _collect(
        self, worker: _Worker, workers: list[_Worker], retry: deque[Sequence[Item]]
    ) -> Iterator[tuple[Sequence[Item], Result | Failure]]:
        chunk: Sequence[Item] = worker.chunk  # type: ignore[assignment]
        try:
            if not worker.pipe.poll():
                raise TimeoutError
            message = worker.pipe.recv()
        except (EOFError, OSError, TimeoutError) as error:
            workers.remove(worker)
            _stop(worker)
            if not worker.ready:
                raise UsageError(NO_START) from None
            failure = self._diagnose(worker, error)
            if len(chunk) == 1:
                yield chunk, failure
            else:
                middle = len(chunk) // 2
                retry.extend((chunk[:middle], chunk[middle:]))
            return
        if message is None:  # imported and listening: from now on, time counts
            worker.ready = True
            self._set_deadline(worker)
            return
        good, value = message
        worker.chunk = None
        if not good:
            raise value
        yield chunk, value

    def _diagnose(self, worker: _Worker, error: Exception) -> Failure:
        if isinstance(error, TimeoutError):
            return Failure("timeout", f"it took longer than {self.timeout_s:g} s")
        code = worker.process.exitcode or 0
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return Failure("crashed", f"the process that handled it died ({how})")


def _next(source: Iterator[Sequence[Item]], retry: deque[Sequence[Item]]) -> Sequence[Item] | None:
    return retry.popleft() if retry else next(source, None)


def _start(work: Callable[[Sequence[Item]], Result]) -> _Worker:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, work), daemon=True)
    process.start()
    theirs.close()
    return _Worker(process, ours)


def _stop(worker: _Worker) -> None:
    worker.pipe.close()
    worker.process.join(timeout=0.2)
    if worker.process.is_alive():
        worker.process.kill()
        worker.process.join()


def _serve(pipe: Connection, work: Callable[[Sequence[Item]], Result]) -> None:
    """Work until the pipe closes: the parent's death ends the worker too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        pipe.send(None)
        while True:
            chunk = pipe.recv()
            try:
                outcome: tuple[bool, Result | Exception] = (True, work(chunk))
            except Exception as error:  # noqa: BLE001 - a bug in `work` is raised in the parent
                outcome = (False, error)
            pipe.send(outcome)
