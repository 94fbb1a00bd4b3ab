"""The recorder: two lines in a training loop, a Run with its spans afterwards.

A step stores tuples of numbers, which the garbage collector skips; they become columns every
thousand steps. Standard library only.
"""

from __future__ import annotations

import _thread
import functools
import gc
import os
import sys
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any, ClassVar

from pipeline_profiler.profiling.record.arm import EXPOSED, Arm
from pipeline_profiler.profiling.record.session import (
    BATCH_COLUMNS,
    MAIN,
    Run,
    Session,
    utc_now,
)
from pipeline_profiler.profiling.record.stages import (
    BatchTrace,
    Clock,
    Counters,
    StageTimer,
    activate,
    difference,
)


class Timeline:
    """The clock's time of a recorded loop without what was left out; nanoseconds.

    A validation is cut out: times after it move forward by its length.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._before: list[int] = []  # left out before each start
        self.left_out = 0
        self._end = 0

    def leave_out(self, start: int, end: int) -> None:
        """Cut out a stretch (clock readings) after or inside the stretch before."""
        start = max(start, self._end)
        if end <= start:
            return
        self._starts.append(start)
        self._before.append(self.left_out)
        self.left_out += end - start
        self._end = end

    def at(self, reading: int) -> int:
        """Where a clock reading lies."""
        if reading >= self._end:
            return reading - self.left_out
        row = bisect_right(self._starts, reading) - 1
        if row < 0:
            return reading
        last = row + 1 == len(self._starts)
        length = (self.left_out if last else self._before[row + 1]) - self._before[row]
        into = min(reading - self._starts[row], length)
        return reading - self._before[row] - into


SLOW_SAMPLES_KEPT = 256
_QUEUED = BatchTrace._fields.index("queued_ns")  # and process_cpu_ns follows it
ROWS_HELD = 4096  # spans put aside before they become columns: 1 ms of work then
Row = tuple[Any, ...]
Wait = tuple[int, int, int, int]  # start, wall, CPU and run-queue nanoseconds of next()


@dataclass
class Source:
    """A loader made watchable by an adapter; as it is here, only its next() is seen."""

    iterable: Iterable[Any]
    config: dict[str, Any]
    notes: list[str] = field(default_factory=list)

    def unwrap(self, item: Any) -> tuple[Any, Delivery | None]:
        """Split what the loader yields into the user's batch and its trace."""
        return item, None


@dataclass(slots=True)
class Delivery:
    """How one batch travelled: the worker's trace and the stamps of its (un)pickling, ns."""

    trace: BatchTrace
    serialise: tuple[int, int, int] | None = None  # start, wall, cpu
    receive: tuple[int, int] | None = None  # start, wall


def _unknown() -> int:
    return -1


class Recorder:
    """Records one loop: `for batch in rec.watch(loader)`, optionally `with rec.step():` inside."""

    attach: ClassVar[Any] = None  # set by the package: picks the adapter for a loader
    enter: ClassVar[Any] = None  # set by the package: adds a row to the table of runs

    def __init__(
        self,
        clock: Clock = time.perf_counter_ns,
        cpu: Clock = time.thread_time_ns,
        arm: Arm = Arm.WARM,
        queued: Clock | None = None,
    ) -> None:
        """Clocks are in ns; `arm` feeds the step; `queued`: run-queue time, None: of the system."""
        self.clock, self.cpu = clock, cpu
        self.queued = queued
        self._began = time.time()
        self._hidden_ns = 0  # CPU time of other threads of this process during next()
        self._counted: tuple[int, Counters] | None = None
        self.run = Run(arm=arm)
        self.timer = StageTimer(clock, cpu)
        self.timeline = Timeline()
        self._left = 0  # when the last epoch ended; what follows it belongs to no step
        self.steps = 0
        # workers sample their stacks too: true for a run of its own, seconds beside a real one
        self.sample_stacks: bool | float = False
        self.phase = "outside"  # what the main thread is doing: outside | wait | step
        self._gc_start = 0
        self._sources: dict[int, tuple[Any, Source]] = {}
        self._rows: list[Row] = []  # spans put aside, in the order of `Span`
        self._deliveries: list[tuple[Any, ...]] = []  # batch, trace, serialise, receive

    def watch(self, loader: Any) -> Iterator[Any]:
        """Iterate `loader` for one epoch, recording each next(); call again for the next epoch."""
        return self._iterate(self._source_of(loader))

    def _source_of(self, loader: Any) -> Source:
        held = self._sources.get(id(loader))
        if held is None:
            held = (loader, Recorder.attach(loader, self))  # holding the loader keeps its id unique
            self._sources[id(loader)] = held
            self.run.config |= held[1].config
            self.run.notes += held[1].notes
        return held[1]

    def _iterate(self, source: Source) -> Iterator[Any]:
        clock, cpu = self.clock, self.cpu
        queued = self._queue_clock()
        process = time.process_time_ns if clock is time.perf_counter_ns else _unknown
        activate(self.timer)
        keep_interrupts()
        gc.callbacks.append(self._on_gc)
        try:
            start = clock()
            iterator = iter(source.iterable)
            self.open_epoch(start, clock())
            while True:
                hidden = process()
                begin, cpu_begin, queued_begin = clock(), cpu(), queued()
                self.phase = "wait"
                try:
                    item = next(iterator)
                except StopIteration:
                    self.timer.collect()
                    break
                delay, cpu_end, end = difference(queued(), queued_begin), cpu(), clock()
                self.phase = "step"
                used = difference(process(), hidden)
                self._hidden_ns += max(0, used - (cpu_end - cpu_begin))
                wait = (begin, end - begin, cpu_end - cpu_begin, delay)
                batch, rows = self.receive(source, item, wait, used)
                self._rows.extend(rows)
                item, after = None, cpu()
                try:
                    yield batch
                finally:  # a `break` in the caller's loop closes the generator here
                    self.record_step(end, clock(), cpu() - after)
        except BaseException as error:
            if not isinstance(error, GeneratorExit):
                self.run.notes.append(f"step {self.steps}: {type(error).__name__}: {error}")
            raise
        finally:
            self.phase = "outside"
            gc.callbacks.remove(self._on_gc)
            activate(None)
            self.close_epoch()

    def open_epoch(self, start: int, end: int) -> None:
        """An iter() call; validation and the like since the last epoch is no part of the loop."""
        if self._left:
            self.timeline.leave_out(self._left, start)
        row = ("iter", self.steps, MAIN, self.timeline.at(start), end - start, -1, -1, 1)
        self._rows.append(row)

    def close_epoch(self) -> None:
        """The loop is left, or its last batch was delivered."""
        self._left = self.clock()

    def _queue_clock(self) -> Clock:
        """Run-queue delay of the calling thread: the system's counter beside the system's clock."""
        if self.queued is not None:
            return self.queued
        if self.clock is not time.perf_counter_ns:
            return _unknown
        thread = threading.get_ident()
        if self._counted is None or self._counted[0] != thread:
            self._counted = (thread, Counters())
        return self._counted[1].queued_ns

    def _on_gc(self, phase: str, info: Mapping[str, int]) -> None:
        now = self.clock()
        if phase == "start":
            self._gc_start = now
        elif self._gc_start:
            self.run.gc_pauses.append([self.timeline.at(self._gc_start), now - self._gc_start])

    def receive(self, source: Source, item: Any, wait: Wait, used: int) -> tuple[Any, list[Row]]:
        """The user's batch and the rows of its next(), the wait first; `used`: as in the trace."""
        number, at = self.steps, self.timeline.at
        batch, delivery = source.unwrap(item)
        rows: list[Row] = [("wait", number, MAIN, at(wait[0]), *wait[1:], 1)]
        for name, start, wall, cpu, calls in self.timer.collect():
            rows.append((name, number, MAIN, at(start), wall, cpu, -1, calls))
        if delivery is not None:
            trace = tuple(delivery.trace)
            if delivery.trace.worker == MAIN:  # loaded inside next(): its counters are the batch's
                trace = (*trace[:_QUEUED], wait[3], used, *trace[_QUEUED + 2 :])
            self._deliveries.append((number, trace, delivery.serialise, delivery.receive))
        return batch, rows

    def add_wait(self, start: int, end: int) -> None:
        """The wait for a batch, where somebody else asked for it."""
        row = ("wait", self.steps, MAIN, self.timeline.at(start), end - start, 0, -1, 1)
        self._rows.append(row)

    def add_exposed(self, start: int, waited: Iterable[tuple[int, int]]) -> None:
        """(step, nanoseconds) that a device stood still for want of a batch, told at `start`."""
        at = self.timeline.at(start)
        self._rows += [(f"step:{EXPOSED}", n, MAIN, at, ns, -1, -1, 1) for n, ns in waited]

    def record_step(self, start: int, end: int, cpu: int) -> None:
        """Between next() return and next() entry; `step()` narrows it to the user's own block."""
        number, put, at = self.steps, self._rows.append, self.timeline.at
        for name, begin, wall, busy, calls in self.timer.collect():
            put((f"step:{name}", number, MAIN, at(begin), wall, busy, -1, calls))
        put(("loop", number, MAIN, at(start), at(end) - at(start), cpu, -1, 1))
        self.steps += 1
        if len(self._rows) > ROWS_HELD:
            self._put_down()

    def _put_down(self, more: Sequence[Row] = ()) -> None:
        # the rows known now: a thread that saves may do this while the loop puts more aside
        rows = self._rows[:]
        self.run.spans.extend([*rows, *more])
        del self._rows[: len(rows)]

    def step(self) -> Marked:
        """Mark the training step inside the loop, so that work beside it is counted apart."""
        return Marked(self)

    def snapshot(self) -> Run:
        """The run so far."""
        self._settle()
        return self.run

    def session(self) -> Session:
        """Everything recorded so far, frozen."""
        return Session(runs=[self.snapshot()], created=utc_now())

    def save(
        self, path: str | os.PathLike[str], study: str = "", note: str = "", config: str = ""
    ) -> Path:
        """Write the session, add it to the table of runs, return the path."""
        session = self.session()
        file = session.save(path)
        Recorder.enter(session, file, self._began, study, note, config)
        return file

    def _settle(self) -> None:
        """Turn deliveries into spans and batch rows; done after the loop to keep it light."""
        run, rows, on = self.run, list[Row](), self.timeline.at
        put = rows.append
        run.totals["hidden_cpu_ns"] = self._hidden_ns
        deliveries = self._deliveries[:]
        for batch, fields, serialise, receive in deliveries:
            d = Delivery(BatchTrace(*fields), serialise, receive)
            t, at = d.trace, (batch, d.trace.worker)
            put(("fetch", *at, on(t.start_ns), t.wall_ns, t.cpu_ns, t.queued_ns, t.samples))
            for name, start, wall, cpu, calls in t.stages:
                put((name, *at, on(start), wall, cpu, -1, calls))
            if serialise:
                put(("serialise", *at, on(serialise[0]), *serialise[1:], -1, 1))
            if receive:
                put(("receive", batch, MAIN, on(receive[0]), receive[1], -1, -1, 1))
            self._batch_row(batch, d)
            for place, hits in t.stacks:
                run.stacks[place] = run.stacks.get(place, 0) + hits
        self._put_down(rows)
        del self._deliveries[: len(deliveries)]
        run.slow = sorted(run.slow, key=lambda row: -row["wall_ns"])[:SLOW_SAMPLES_KEPT]

    def _batch_row(self, batch: int, d: Delivery) -> None:
        t = d.trace
        sent = d.serialise[0] + d.serialise[1] if d.serialise else t.start_ns + t.wall_ns
        received = sum(d.receive) if d.receive else sent
        sent, received = self.timeline.at(sent), self.timeline.at(received)
        row = (
            *(batch, t.worker, t.samples, t.slow_ns, t.read_bytes, t.read_chars),
            *(t.gc_ns, t.process_cpu_ns, sent, received),
        )
        for name, value in zip(BATCH_COLUMNS, row, strict=True):
            self.run.batches[name].append(value)
        self.run.slow_keys.append(t.slow_key)
        if t.samples:
            self.run.slow.append({"key": t.slow_key, "wall_ns": t.slow_ns})


class Marked:
    """The training step of one batch, as a context; made by `Recorder.step`."""

    __slots__ = ("_cpu", "_recorder", "_start")

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def __enter__(self) -> None:
        self._start, self._cpu = self._recorder.clock(), self._recorder.cpu()

    def __exit__(self, *error: object) -> None:
        r = self._recorder
        cpu, wall = r.cpu() - self._cpu, r.clock() - self._start
        r._rows.append(("step", r.steps, MAIN, r.timeline.at(self._start), wall, cpu, -1, 1))


def keep_interrupts() -> None:
    """Let Ctrl-C end the loop if it comes in a callback of the collector; once for a process."""
    hook = sys.unraisablehook
    if not (isinstance(hook, functools.partial) and hook.func is _interrupt_again):
        sys.unraisablehook = functools.partial(_interrupt_again, hook)


def _interrupt_again(before: Callable[[Any], object], raised: Any) -> None:
    """Interrupt the main thread after this hook; `before` is the hook of all other exceptions."""
    if issubclass(raised.exc_type, KeyboardInterrupt):
        _thread.start_new_thread(_interrupt_after_hook, ())
    else:
        before(raised)


def _interrupt_after_hook() -> None:
    """Interrupt the main thread once it has left the hook, in which Python drops what is raised."""
    while _main_thread_is_in(_interrupt_again.__code__):
        time.sleep(0.001)
    _thread.interrupt_main()


def _main_thread_is_in(code: CodeType) -> bool:
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame is not None
