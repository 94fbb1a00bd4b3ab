"""Executors: they schedule chunks of work, nothing else.

If the system kills a worker, or memory or file handles run out, the item may be innocent: it runs
again after all others. If it fails again, the machine is at fault.
"""

from __future__ import annotations

import contextlib
import ctypes
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, TypeVar

from audit.errors import MachineError
from audit.machine.workers import STARTED, Worker, give_back, take_worker
from dataset_preflight.foundation.cores import usable_cores

Item = TypeVar("Item")
Result = TypeVar("Result")


MEMORY = 2 << 30
"""Bytes that a worker may take for one file, unless told otherwise."""
PREPARING_S = 600.0
"""What imports on a fresh and busy machine may take before the first item is begun, s."""
MOST_STARTS = 3
NO_START = (
    "Worker processes end while they start ({how}): run the same command again with more free "
    "memory or fewer --jobs."
)
KILLED = (
    "A worker process was killed twice by the system, as happens when the memory is used up: close "
    "other programs or use fewer --jobs, then run the same command again; what was done is kept."
)


def usable_memory() -> int:
    """Return the bytes of memory this process may still use; 2 GiB if the system reports none."""
    found = []
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        available = next(line for line in lines if line.startswith("MemAvailable:"))
        found.append(int(available.split()[1]) * 1024)
    with contextlib.suppress(OSError, ValueError):
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text())
        found.append(limit - int(Path("/sys/fs/cgroup/memory.current").read_text()))
    return max(min(found), 0) if found else MEMORY


def give_back_freed_memory() -> None:
    """Return what this process has freed to the system, where its C library keeps it (glibc)."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def keep_no_freed_memory() -> None:
    """Give back blocks of 1 MB and more as they are freed, from now on (glibc)."""
    trim_threshold, mmap_threshold = -1, -3
    with contextlib.suppress(AttributeError, OSError):
        for setting in (trim_threshold, mmap_threshold):
            ctypes.CDLL(None).mallopt(setting, 1 << 20)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an item has no result: `kind` is crashed, timeout or memory."""

    kind: str
    text: str


class Serial:
    """One chunk after another, in this process, without limits on time or memory."""

    def run(
        self, work: Callable[[Sequence[Item]], Result], chunks: Iterable[Sequence[Item]]
    ) -> Iterator[tuple[Sequence[Item], Result | Failure]]:
        """Yield every chunk with its result, in order."""
        for chunk in chunks:
            yield chunk, work(chunk)


@dataclass(slots=True)
class _Task:
    """A chunk; `alone` after the machine failed it; `starts`: workers that died early."""

    items: Sequence[Any]
    alone: bool = False
    starts: int = 0


@dataclass(slots=True)
class _Busy:
    """A worker at work; the time counts from when it has started."""

    worker: Worker
    task: _Task
    deadline: float = float("inf")


class Processes:
    """Chunks over `jobs` worker processes, each item within `timeout_s` and `memory` bytes.

    Closing the iterator stops the workers; threads may share an instance.
    """

    def __init__(self, jobs: int, timeout_s: float = 60.0, memory: int = MEMORY) -> None:
        self.jobs = jobs
        self.timeout_s = timeout_s
        self.memory = memory

    def run(
        self, work: Callable[[Sequence[Item]], Result], chunks: Iterable[Sequence[Item]]
    ) -> Iterator[tuple[Sequence[Item], Result | Failure]]:
        """Yield chunks with results, failed items as `Failure`; MachineError for the machine."""
        tasks = _Tasks(chunks)
        busy: list[_Busy] = []
        try:
            while True:
                while len(busy) < self.jobs and (task := tasks.take(nothing_runs=not busy)):
                    busy.append(self._begin(work, task))
                if not busy:
                    return
                for one in self._finished(busy):
                    yield from self._collect(one, busy, tasks)
        finally:
            for one in busy:
                one.worker.stop()

    def _begin(self, work: Callable[[Sequence[Item]], Result], task: _Task) -> _Busy:
        one = _Busy(take_worker(self.memory), task)
        one.worker.send(work, task.items, self.timeout_s * len(task.items))
        if one.worker.ready:
            one.deadline = time.monotonic() + self.timeout_s
        return one

    def _finished(self, busy: list[_Busy]) -> list[_Busy]:
        pause = min(one.deadline for one in busy) - time.monotonic()
        ready = set(wait([one.worker.pipe for one in busy], timeout=max(0.0, min(pause, 1.0))))
        return [one for one in busy if one.worker.pipe in ready or self._is_late(one)]

    def _is_late(self, one: _Busy) -> bool:
        if time.monotonic() > one.deadline:
            limit_s = (
                max(PREPARING_S, self.timeout_s) if one.worker.is_preparing() else self.timeout_s
            )
            one.deadline = max(one.deadline, one.worker.item_begun()[1] + limit_s)
        return time.monotonic() > one.deadline

    def _collect(
        self, one: _Busy, busy: list[_Busy], tasks: _Tasks
    ) -> Iterator[tuple[Sequence[Any], Any]]:
        try:
            if not one.worker.pipe.poll():
                raise TimeoutError
            message = one.worker.pipe.recv()
        except (EOFError, OSError, TimeoutError) as error:
            busy.remove(one)
            yield from self._without_answer(one, tasks, isinstance(error, TimeoutError))
            return
        if message == STARTED:  # imported and listening: from now on, time counts
            one.worker.ready = True
            one.deadline = time.monotonic() + self.timeout_s
            return
        busy.remove(one)
        good, value, cpu_s = message
        one.worker.note_cpu(cpu_s)
        if isinstance(value, MachineError):
            one.worker.stop()  # what it ran out of may be its own leak
            if one.task.alone and value.out_of_memory and usable_memory() > self.memory:
                # Nothing else ran, and the machine has what a file may take: it is the file.
                text = f"it took more memory than the {self.memory / 1e9:.1f} GB of max_memory"
                yield one.task.items, Failure("memory", text)
            else:
                tasks.postpone(one.task, value)
            return
        give_back(one.worker, keep=max(self.jobs, usable_cores()))
        if not good:
            raise value
        yield one.task.items, value

    def _without_answer(
        self, one: _Busy, tasks: _Tasks, late: bool
    ) -> Iterator[tuple[Sequence[Any], Failure]]:
        code = 0 if late else one.worker.exit_code()
        one.worker.stop()
        if not one.worker.ready:
            tasks.start_again(one.task, _ending(code))
            return
        if code == -signal.SIGKILL:
            tasks.postpone(one.task, MachineError(KILLED))
            return
        guilty = tasks.split(one.task, one.worker.item_begun()[0])
        if guilty and (late or code == -signal.SIGALRM):
            yield guilty, Failure("timeout", f"it took longer than {self.timeout_s:g} s")
        elif guilty:
            yield guilty, Failure("crashed", f"the process that handled it died ({_ending(code)})")


Executor = Serial | Processes


class _Tasks:
    """What is left to do: the chunks in their order, what failed ones leave first."""

    def __init__(self, chunks: Iterable[Sequence[Any]]) -> None:
        self._source = iter(chunks)
        self._parts: deque[_Task] = deque()
        self._postponed: deque[_Task] = deque()

    def take(self, *, nothing_runs: bool) -> _Task | None:
        """Return the next task; one that the machine failed only when nothing else runs."""
        if self._parts:
            return self._parts.popleft()
        chunk = next(self._source, None)
        if chunk is not None:
            return _Task(chunk)
        return self._postponed.popleft() if self._postponed and nothing_runs else None

    def start_again(self, task: _Task, ending: str) -> None:
        """Give the task to another worker; raises MachineError when several died at their start."""
        task.starts += 1
        if task.starts == MOST_STARTS:
            raise MachineError(NO_START.format(how=ending))
        self._parts.append(task)

    def split(self, task: _Task, begun: int) -> Sequence[Any]:
        """Return the begun item and queue the rest; an unknown item splits the task in halves."""
        n = len(task.items)
        if n == 1:
            return task.items
        middle, rest = (begun, begun + 1) if 0 <= begun < n else (n // 2, n // 2)
        parts = [task.items[:middle], task.items[rest:]]
        self._parts.extend(_Task(part, task.alone) for part in parts if part)
        return task.items[middle:rest]

    def postpone(self, task: _Task, error: MachineError) -> None:
        """Try the items one by one when all else is done; raises `error` if that was done."""
        if task.alone and len(task.items) == 1:
            raise error
        self._postponed.extend(_Task([item], alone=True) for item in task.items)


def _ending(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
