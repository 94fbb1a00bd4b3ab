"""How a window of training steps is timed, whatever the framework.

Periods run from next() entry to next() entry on one clock: CUDA events where the trainer has a GPU
(read after the window, so nothing synchronises inside it), perf_counter_ns where compute is
synchronous. The mean counts, because stalls are heavy-tailed: a median would hide exactly the steps
that a slow loader costs. Steps that AMP skipped are taken out of the mean and counted.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipeline_profiler.precision.batches import Batch, cycle_batches
from pipeline_profiler.precision.trainer import Mark, Trainer
from pipeline_profiler.record.session import ProfileError
from pipeline_profiler.record.stages import Clock


@dataclass(frozen=True)
class TimedWindow:
    """One timed window: a period and the host's wait in next() for each step, ms.

    `skipped` are the numbers of the steps whose update AMP dropped: in `period_ms`, in no mean.
    `period_ms` is empty and `elapsed_ms` alone counts where single steps cannot be told apart.
    """

    period_ms: Sequence[float]
    wait_ms: Sequence[float]
    elapsed_ms: float
    steps: int
    skipped: Sequence[int] = ()
    warmup_skipped: int = 0
    warmup_s: float = 0.0

    @property
    def counted_ms(self) -> list[float]:
        """Periods of the steps whose update was applied."""
        dropped = set(self.skipped)
        return [ms for i, ms in enumerate(self.period_ms) if i not in dropped]

    @property
    def mean_ms(self) -> float | None:
        """Mean period of the steps taken; None where AMP skipped them all."""
        if not self.period_ms:
            return self.elapsed_ms / self.steps if self.steps else None
        # a skipped step omits the optimizer: left in, it would make FP16 look faster than it is
        counted = self.counted_ms
        return float(np.mean(counted)) if counted else None

    def rounded(self) -> TimedWindow:
        """Whole microseconds: what the clocks are good for, and a small file.

        Done before anything is computed, so that a loaded session gives the same figures.
        """
        periods = [round(ms, 3) for ms in self.period_ms]
        return replace(self, period_ms=periods, wait_ms=[round(ms, 3) for ms in self.wait_ms])


def time_window(
    trainer: Trainer,
    batches: Iterable[Batch],
    steps: int,
    warmup: int,
    clock: Clock = time.perf_counter_ns,
) -> TimedWindow:
    """Train `warmup` steps that do not count, then `steps` that do."""
    iterator = iter(batches)
    start = clock()
    try:
        warmup_skipped = _warm_up(trainer, iterator, warmup)
        (marks, waits), begin, end = _without_collector(
            lambda: _time_steps(trainer, iterator, steps, clock), clock
        )
    finally:
        # a generator over the loader holds its workers: they must end here, not at some collection
        close = getattr(batches, "close", None)
        if close is not None:
            close()
    # the events are read only now: reading one inside the window would wait for the device
    periods = trainer.periods_ms(marks)
    elapsed = sum(periods) if periods else (end - begin) / 1e6
    return TimedWindow(
        periods, waits, elapsed, steps, trainer.skipped(), warmup_skipped, (begin - start) / 1e9
    )


def _warm_up(trainer: Trainer, iterator: Iterator[Batch], count: int) -> int:
    """Steps until compilation and the loader's buffers have settled; how many AMP skipped."""
    trainer.forget()
    for _ in range(count):
        trainer.step(_next_batch(iterator))
    # work still queued on the device would be charged to the first timed step
    trainer.synchronise()
    skipped = len(trainer.skipped())
    trainer.forget()
    return skipped


def _without_collector(
    work: Callable[[], tuple[list[Mark], list[float]]], clock: Clock
) -> tuple[tuple[list[Mark], list[float]], int, int]:
    """`work` with Python's collector off, and the clock before and after it.

    A collection takes milliseconds and strikes at random: as long as a step of a small model.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        begin = clock()
        measured = work()
        return measured, begin, clock()
    finally:
        if collecting:
            gc.enable()


def _time_steps(
    trainer: Trainer, iterator: Iterator[Batch], steps: int, clock: Clock
) -> tuple[list[Mark], list[float]]:
    """The window itself: marks at each next() entry and after the last step; waits in ms."""
    marks, waits = [], []
    for _ in range(steps):
        # the mark comes before next(), so a period holds one wait and one step, in that order
        marks.append(trainer.mark())
        # the wait is on the host's clock: it is the host that stands still in next()
        before = clock()
        batch = _next_batch(iterator)
        waits.append((clock() - before) / 1e6)
        trainer.step(batch)
    marks.append(trainer.mark())
    # the only wait for the device: the last mark must have happened before it is read
    trainer.synchronise()
    return marks, waits


def _next_batch(iterator: Iterator[Batch]) -> Batch:
    try:
        return next(iterator)
    except StopIteration:
        raise ProfileError(
            "The loader had no full batch left: give a loader that can be iterated again and "
            "has more samples than the batch size."
        ) from None


def train_steps(
    trainer: Trainer,
    batches: Sequence[Batch],
    count: int,
    clock: Clock,
    limit_s: float = math.inf,
) -> float:
    """Train `count` steps on cached batches; mean seconds per step, the first left out.

    Ends early after `limit_s`, but with two steps at least.
    """
    start = clock()
    cycled = cycle_batches(batches)
    # the first step allocates, compiles and picks algorithms: it says nothing about the pace
    trainer.step(next(cycled))
    trainer.synchronise()
    begin = clock()
    taken = 0
    for _ in range(count - 1):
        trainer.step(next(cycled))
        taken += 1
        if (clock() - start) / 1e9 > limit_s:
            break
    trainer.synchronise()
    return (clock() - begin) / 1e9 / max(1, taken)
