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

from pipeline_profiler.record.recorder import Source
from pipeline_profiler.record.recorder_live import ASKED_AT
from pipeline_profiler.record.session import MAIN
from pipeline_profiler.record.stages import activate
from pipeline_profiler.watching.loop_recorder import LoopRecorder

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
        self.recorder = LoopRecorder(bool(source.config.get("workers")))
        self.recorder.run.config |= source.config
        self.gaps: Gaps | None = None
        self.trained = self.trained_here = 0  # in all, and in this epoch
        self.elsewhere = 0  # trained in another thread than the one that asks for batches
        self.thread = 0
        self.opened = 0  # when the epoch began
        self.returned = 0  # when next() gave the batch of the step that is open; 0: none is open
        self._wait = (0, -1, -1)  # of the open step: when next() was called, its CPU, its queue
        self._others: dict[int, int] = {}  # ns that other loaders took before this step trained
        self._busy = False

    @property
    def in_step(self) -> bool:
        """Whether a batch was delivered and the next one not asked for."""
        return bool(self.returned)

    @property
    def waited(self) -> int:
        """Nanoseconds of the next() that gave the batch in hand."""
        return self.returned - self._wait[0]

    def open(self, start: int, end: int) -> None:
        """An epoch begins: its iter() call."""
        self.end_step(start)
        self.recorder.open_epoch(start, end)
        self.opened, self.trained_here, self.thread = start, 0, threading.get_ident()

    def ask(self, deliver: Callable[[], Any]) -> Any:
        """The next batch; `deliver` is the iterator's own next()."""
        r = self.recorder
        looks = r.looks_at
        start = r.clock()
        if self.returned:
            self.end_step(start)
        if self.gaps is not None:
            self.gaps.asked()
        activate(r.timer)
        looks.left -= 1
        if looks.left < 0:
            looks.begin(start, r.steps)
        item = deliver()
        end = r.clock()
        self._wait = (start, *looks.delivered(end - start)) if looks.looking else (start, -1, -1)
        if r.parcels or r.steps == ASKED_AT or r.timer.has_sums:
            item = r.unwrap(self.source, item, end - start)
        if self.gaps is not None:
            self.gaps.delivered(r.steps, end - start)
        self.returned, self._busy = end, False
        return item

    def end_step(self, now: int) -> None:
        """The step that is open ends here."""
        start = self.returned
        if not start:
            return
        r = self.recorder
        self.returned = 0
        cpu = r.looks_at.stepped(now - start) if r.looks_at.looking else -1
        more = self._added_wait(start) if self._others else 0
        if self.gaps is not None:
            at = r.timeline.at(start)
            r._rows += [
                (f"step:{EXPOSED}", n, MAIN, at, ns, -1, -1, 1) for n, ns in self.gaps.resolved()
            ]
        if self._busy:
            self.trained += 1
            self.trained_here += 1
        r.end_step((r.steps, *self._wait, start, more, now, cpu))

    def _added_wait(self, start: int) -> int:
        more = min(sum(self._others.values()), self.recorder.clock() - start)
        self._others.clear()
        return more

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
        self.recorder.parts.append((name, self.recorder.steps, start, end))

    def close(self) -> None:
        """The epoch is over."""
        self.end_step(self.recorder.clock())
        self.recorder.close_epoch()
        activate(None)
