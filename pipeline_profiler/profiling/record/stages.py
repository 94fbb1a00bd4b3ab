"""Where the time inside one batch goes: a stack of named stages with wall and thread-CPU time.

Stages nest, and each gets its self time, so that they add up to the fetch. Only sums per batch
leave the process. Wall minus CPU minus time runnable without a core (Linux schedstat) is time
blocked.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

Clock = Callable[[], int]
THREAD = "thread_cpu_ns:"  # and a native id: key of the CPU time of a thread in a run's totals
READINGS = 5  # of a clock, before anything is decided by it
_LOCAL = threading.local()


def median_ns(act: Callable[[], object], clock: Clock, readings: int = READINGS) -> float:
    """Return the median nanoseconds of `act`: another program may lengthen any single reading."""
    walls = []
    for _ in range(readings):
        start = clock()
        act()
        walls.append(clock() - start)
    return statistics.median(walls)


# self time of one stage within one batch: name, start, wall, CPU (nanoseconds), calls
StageSum = tuple[str, int, int, int, int]


class BatchTrace(NamedTuple):
    """What one worker did for one batch; travels with the batch, so no lock and no extra queue."""

    worker: int
    start_ns: int
    wall_ns: int
    cpu_ns: int
    queued_ns: int  # runnable without a core; -1 where the system does not tell
    process_cpu_ns: int  # all threads of the worker: above cpu_ns means hidden thread pools
    stages: tuple[StageSum, ...]
    samples: int
    slow_key: int | str
    slow_ns: int
    read_bytes: int  # from the block device; -1 where the system does not tell
    read_chars: int  # through read calls, page cache included
    gc_ns: int
    stacks: tuple[tuple[str, int], ...] = ()


class StageTimer:
    """A stack of open stages and the self times of the closed ones, for one thread."""

    def __init__(
        self, clock: Clock = time.perf_counter_ns, cpu: Clock = time.thread_time_ns
    ) -> None:
        """Clocks are injected, nanoseconds."""
        self.clock, self.cpu = clock, cpu
        self._stack: list[list[int]] = []
        self._names: list[str] = []
        self.sums: dict[str, list[int]] = {}
        self.received = 0  # bytes that hooked reads handed over since the last collect()

    def enter(self, name: str) -> None:
        """Open a stage inside the one that is open."""
        self._names.append(name)
        self._stack.append([self.clock(), self.cpu(), 0, 0])

    def leave(self) -> int:
        """Close the innermost stage; returns its inclusive wall nanoseconds."""
        name, (start, cpu_start, child_wall, child_cpu) = self._names.pop(), self._stack.pop()
        # the CPU clock is a system call, where a full core is often taken away: wall comes last, so
        # that this wait belongs to the stage and the stages add up to the fetch
        cpu = self.cpu() - cpu_start
        wall = self.clock() - start
        if self._stack:
            self._stack[-1][2] += wall
            self._stack[-1][3] += cpu
        row = self.sums.setdefault(name, [start, 0, 0, 0])
        row[1] += wall - child_wall
        row[2] += cpu - child_cpu
        row[3] += 1
        return wall

    @property
    def open_stage(self) -> str:
        """Name of the innermost open stage, '' outside all."""
        return self._names[-1] if self._names else ""

    def collect(self) -> tuple[StageSum, ...]:
        """Hand out the sums since the last call and start again."""
        self.received = 0
        if not self.sums:
            return ()
        taken, self.sums = self.sums, {}  # first: a collector that runs meanwhile adds a stage
        return tuple([(name, *row) for name, row in taken.items()])  # type: ignore[misc]


def active() -> StageTimer | None:
    """The timer of this thread, or None when nothing is being recorded."""
    return getattr(_LOCAL, "timer", None)


def activate(timer: StageTimer | None) -> None:
    """Make `timer` the one that `stage()` writes to in this thread."""
    _LOCAL.timer = timer


class stage(contextlib.ContextDecorator):  # noqa: N801 - reads as a statement: with stage("augment")
    """Name a piece of loading work: `with stage("augment"): ...` or `@stage("augment")`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        if timer := active():
            timer.enter(self.name)

    def __exit__(self, *error: object) -> None:
        # a recorder may have started or stopped inside the block: close only what is open
        if (timer := active()) and timer.open_stage == self.name:
            timer.leave()


class Proxy:
    """Stands for another object: attributes that it does not have are read and written there."""

    def __init__(self, inner: Any) -> None:
        """Stand for `inner`; written past `__setattr__`, which goes to it."""
        self.__dict__["_inner"] = inner

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.__dict__["_inner"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__dict__["_inner"], name, value)


class _ProcFile:
    """One /proc file kept open: re-reading costs under 2 µs; gone on other systems."""

    def __init__(self, path: str) -> None:
        try:
            self._fd = os.open(path, os.O_RDONLY)
        except OSError:
            self._fd = -1

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def read(self) -> bytes:
        """The file's bytes now, empty where the system has none."""
        if self._fd < 0:
            return b""
        try:
            return os.pread(self._fd, 512, 0)
        except OSError:
            return b""


class Counters:
    """Kernel counters of this thread and process: run-queue delay and bytes read."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._sched = _ProcFile("/proc/thread-self/schedstat")
        self._io = _ProcFile("/proc/self/io")

    def queued_ns(self) -> int:
        """Nanoseconds this thread was runnable without a core since it started; -1 unknown."""
        fields = self._sched.read().split()
        return int(fields[1]) if len(fields) >= 2 else -1

    def io(self) -> tuple[int, int]:
        """(bytes from the block device, bytes through read calls) of this process; -1 unknown."""
        fields = self._io.read().split()
        # "rchar: N wchar: N syscr: N syscw: N read_bytes: N ...", in this order since Linux 2.6.20
        if len(fields) < 10 or fields[0] != b"rchar:" or fields[8] != b"read_bytes:":
            return -1, -1
        return int(fields[9]), int(fields[1])


def difference(after: int, before: int) -> int:
    """Counter difference that keeps -1 (unknown) unknown: missing is not zero."""
    return -1 if after < 0 or before < 0 else after - before
