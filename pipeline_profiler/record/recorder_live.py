"""The recorder of a loop that trains for its own sake: stack samples, saved as it goes.

The arms of `run` are short, repeated, and must not be disturbed; a training is one long loop, which
may be interrupted at any time. So this recorder looks at the main thread twenty times a second, for
a line beside each cause, and can save itself every minute. What it watches can be iterated as often
as the loader, and has its length and attributes.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pipeline_profiler.record.arm import Arm
from pipeline_profiler.record.autosave import SAVED_EVERY_S, Autosave
from pipeline_profiler.record.hand_over import hand_over_cost
from pipeline_profiler.record.recorder import Recorder, Source
from pipeline_profiler.record.session import Run, Session
from pipeline_profiler.record.stack_sampler import StackSampler
from pipeline_profiler.record.stages import Clock
from pipeline_profiler.record.trimming import copy_run, drop_steps

MAIN_INTERVAL_S = 0.047  # no multiple of the times that loops are made of
WORKER_INTERVAL_S = 0.02
ASKED_AT = 2  # the step at which a batch is pickled once


class LiveRecorder(Recorder):
    """Records a training loop: `for batch in rec.watch(loader)`, optionally `with rec.step():`."""

    dress: ClassVar[Any] = None  # set by the package: a watched loader of a framework's own type

    def __init__(
        self,
        clock: Clock = time.perf_counter_ns,
        cpu: Clock = time.thread_time_ns,
        arm: Arm = Arm.WARM,
        queued: Clock | None = None,
        save_to: str | os.PathLike[str] | None = None,
        every_s: float = SAVED_EVERY_S,
    ) -> None:
        """Clocks as in `Recorder`; saved in `save_to` every `every_s` seconds and at the end."""
        super().__init__(clock, cpu, arm, queued)
        # the loop may change the folder before the last save
        self.save_to = None if save_to is None else Path(save_to).absolute()
        self.every_s = every_s
        self.trims = save_to is not None  # kept to its last steps
        self.clocked = self.looks = clock is time.perf_counter_ns  # `looks`: takes stack samples
        self._table = threading.Lock()
        self._saving = threading.Lock()
        self._autosave: Autosave | None = None
        self._sampler: StackSampler | None = None
        self._saved: Path | None = None
        if self.looks:
            self.sample_stacks = WORKER_INTERVAL_S

    def watch(self, loader: Any) -> Any:
        """The loader, recorded: iterate it once an epoch, as often as you like."""
        dressed = LiveRecorder.dress(self, loader) if LiveRecorder.dress else None
        return Watched(self, loader) if dressed is None else dressed

    def one_epoch(self, loader: Any) -> Iterator[Any]:
        """One epoch of the loader, recorded."""
        return super().watch(loader)

    def _iterate(self, source: Source) -> Iterator[Any]:
        self.begin_beside()
        try:
            yield from super()._iterate(source)
        finally:
            self.end_beside()

    def begin_beside(self) -> None:
        """Start what goes on beside the loop: samples, and saving where it was asked for."""
        if self.looks and self._sampler is None:
            self._sampler = StackSampler.start_beside(lambda: self.phase, MAIN_INTERVAL_S)
            interval = WORKER_INTERVAL_S if self.run.config.get("workers") else MAIN_INTERVAL_S
            self.run.totals["stack_us"] = round(interval * 1e6)
        if self.save_to is not None and self._autosave is None:
            self._autosave = Autosave(self.save_now, self.every_s)
            atexit.register(self.end)

    def end_beside(self) -> None:
        """Stop the samples between epochs; saving goes on."""
        self._drain()
        sampler, self._sampler = self._sampler, None
        if sampler is not None:
            sampler.stop()

    def _drain(self) -> None:
        if self._sampler is not None:
            for place, weight in self._sampler.drain():
                self.run.stacks[place] = self.run.stacks.get(place, 0) + weight

    def receive(
        self, source: Source, item: Any, wait: tuple[int, int, int, int], used: int
    ) -> tuple[Any, list[tuple[Any, ...]]]:
        """As in `Recorder`; one batch of a torch loader without workers is pickled, to know."""
        batch, rows = super().receive(source, item, wait, used)
        if self.steps == ASKED_AT and source.config.get("workers") == 0 and self.clocked:
            start = self.clock()
            self.run.totals |= hand_over_cost(batch)
            self.timeline.leave_out(start, self.clock())
        return batch, rows

    def _put_down(self, more: Sequence[tuple[Any, ...]] = ()) -> None:
        with self._table:
            super()._put_down(more)

    def snapshot(self) -> Run:
        """The run so far, kept to its last steps; from any thread."""
        with self._saving:
            self._drain()
            self._settle()
            with self._table:
                if self.trims:
                    drop_steps(self.run, self.steps)
                return copy_run(self.run)

    def session(self) -> Session:
        """Everything recorded so far, frozen."""
        return Session(
            runs=[self.snapshot()], created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        )

    def save_now(self) -> Path | None:
        """Write the session to `save_to`, in silence: a full disk must not end a training."""
        if self.save_to is None:
            return None
        with contextlib.suppress(OSError):
            self._saved = replace_saved(self.session(), self.save_to, self._saved)
        return self._saved

    def end(self) -> None:
        """Stop what goes on beside the loop, and save where it was asked for."""
        self.end_beside()
        autosave, self._autosave = self._autosave, None
        if autosave is not None:
            autosave.end()
            atexit.unregister(self.end)
            self.save_now()


def replace_saved(session: Session, path: str | os.PathLike[str], before: Path | None) -> Path:
    """Save, and remove what was saved `before` under the other name: large sessions are packed."""
    saved = session.save(path)
    if before is not None and before != saved:
        before.unlink(missing_ok=True)
    return saved


class Watched:
    """A loader whose every iteration is one recorded epoch; all else is the loader's."""

    def __init__(self, recorder: LiveRecorder, loader: Any) -> None:
        """Written past `__setattr__`, which goes to the loader."""
        recorder._source_of(loader)  # an object that cannot be iterated is refused now
        self.__dict__.update(_recorder=recorder, _loader=loader, _epoch=None)

    def __iter__(self) -> Iterator[Any]:
        """One epoch."""
        epoch: Iterator[Any] = self._recorder.one_epoch(self._loader)
        # weak, so that a `break` still closes the epoch
        self.__dict__["_epoch"] = weakref.ref(epoch)
        return epoch

    def __len__(self) -> int:
        """As many batches as the loader has."""
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        """Everything else reads through: `sampler.set_epoch`, `dataset`."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.__dict__["_loader"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Attributes are written through."""
        setattr(self.__dict__["_loader"], name, value)

    def close(self) -> None:
        """End the epoch that is open."""
        epoch = self._epoch() if self._epoch is not None else None
        if epoch is not None:
            epoch.close()
