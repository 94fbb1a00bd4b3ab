"""One loader's loop, recorded at its iterator: what lies between two next() calls is the step.

The iterator stays the framework's own. A step in which nothing was trained (no backward, no
optimizer) counts as evaluation where another loop does train; its time is cut out of the step of
the training loop it interrupts. Two loaders that feed one step (`zip`) wait one after the other:
both waits are waiting.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

from pipeline_profiler.record.arm import Arm
from pipeline_profiler.record.recorder import Source
from pipeline_profiler.record.recorder_live import LiveRecorder
from pipeline_profiler.record.session import MAIN
from pipeline_profiler.record.stages import StageTimer, activate

QUEUE_LOOK = 8  # steps
EXPOSED = "training exposed"  # read by `Window.exposed`


class Gaps(Protocol):
    """When the device stood still for want of a batch; see device.py."""

    def asked(self) -> None:
        """The step is enqueued and next() is called."""

    def delivered(self, step: int, wall: int) -> None:
        """next() has returned."""

    def resolved(self) -> list[tuple[int, int]]:
        """(step, nanoseconds exposed) of the steps that the device has done."""


class Loop:
    """The loop over one loader; `trained` counts the steps in which something was trained."""

    def __init__(self, source: Source) -> None:
        """Record what `source` delivers."""
        self.source = source
        self.recorder = LiveRecorder(arm=Arm.WARM)
        self.recorder.trims = True
        # the wall time of a sampler or of a stage in the step: its CPU time is a system call more
        self.recorder.timer = StageTimer(self.recorder.clock, lambda: 0)
        self.recorder.run.config |= source.config
        self.gaps: Gaps | None = None
        self.trained = self.trained_here = 0  # in all, and in this epoch
        self.elsewhere = 0  # trained in another thread than the one that asks for batches
        self.thread = 0
        self.opened = 0  # when the epoch began
        self.returned = 0  # when next() gave the batch of the step that is open; 0: none is open
        self._cpu = 0
        self._waits: list[tuple[Any, ...]] = []
        self._others: dict[int, int] = {}  # ns that other loaders took before this step trained
        self._busy = False
        self._queued = self.recorder._queue_clock() if not source.config.get("workers") else None

    @property
    def in_step(self) -> bool:
        """Whether a batch was delivered and the next one not asked for."""
        return bool(self.returned)

    def open(self, start: int, end: int) -> None:
        """An epoch begins: its iter() call."""
        self.end_step(start, self.recorder.cpu())
        self.recorder.open_epoch(start, end)
        self.opened, self.trained_here, self.thread = start, 0, threading.get_ident()

    def ask(self, deliver: Callable[[], Any]) -> Any:
        """The next batch; `deliver` is the iterator's own next()."""
        r = self.recorder
        clock, cpu = r.clock, r.cpu
        # two system calls more: one next() of eight stands for the others
        queued = self._queued if r.steps % QUEUE_LOOK == 0 else None
        start, before = clock(), cpu()
        self.end_step(start, before)
        if self.gaps is not None:
            self.gaps.asked()
        activate(r.timer)
        delay = queued() if queued else -1
        item = deliver()
        used, end = cpu(), clock()
        delay = max(0, queued() - delay) * QUEUE_LOOK if queued else -1
        batch, self._waits = r.receive(
            self.source, item, (start, end - start, used - before, delay), -1
        )
        if self.gaps is not None:
            self.gaps.delivered(r.steps, end - start)
        self.returned, self._cpu, self._busy = end, used, False
        return batch

    def end_step(self, now: int, cpu: int) -> None:
        """The step that is open ends here; `cpu`: the thread's CPU time by now."""
        if not self.returned:
            return
        r, start = self.recorder, self.returned
        self.returned = 0
        if self._others:
            start = self._lengthen_wait(start)
        r._rows.extend(self._waits)
        if self.gaps is not None:
            at = r.timeline.at(start)
            r._rows += [
                (f"step:{EXPOSED}", n, MAIN, at, ns, -1, -1, 1) for n, ns in self.gaps.resolved()
            ]
        self.trained += self._busy
        self.trained_here += self._busy
        r.record_step(start, now, cpu - self._cpu)

    def _lengthen_wait(self, start: int) -> int:
        more = min(sum(self._others.values()), self.recorder.clock() - start)
        self._others.clear()
        name, number, worker, begin, wall, *rest = self._waits[0]
        self._waits[0] = (name, number, worker, begin, wall + more, *rest)
        return start + more

    def train(self) -> None:
        """Something was trained with the batch in hand."""
        self._busy = True
        self.elsewhere += threading.get_ident() != self.thread

    def wait_for_other(self, other: Loop, wall: int) -> None:
        """Another loader was asked for a batch before this step trained."""
        if not self._busy:
            self._others[id(other)] = self._others.get(id(other), 0) + wall

    def interrupted(self, other: Loop, now: int) -> None:
        """Another loop ended that ran inside this step and trained nothing: an evaluation."""
        self._others.pop(id(other), None)
        self.recorder.timeline.leave_out(max(other.opened, self.returned), now)

    def add_stage(self, name: str, start: int, end: int) -> None:
        """A part of the step that is open."""
        at = self.recorder.timeline.at
        row = (f"step:{name}", self.recorder.steps, MAIN, at(start), end - start, -1, -1, 1)
        self.recorder._rows.append(row)

    def close(self) -> None:
        """The epoch is over."""
        self.end_step(self.recorder.clock(), self.recorder.cpu())
        self.recorder.close_epoch()
        activate(None)
