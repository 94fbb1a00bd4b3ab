"""The recorder of a loop that trains for its own sake: stack samples, saved as it goes."""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import pickle
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pipeline_profiler.profiling.record.arm import Arm
from pipeline_profiler.profiling.record.recorder import Recorder, Row, Source, Wait
from pipeline_profiler.profiling.record.session import Run, Session, copy_run, drop_steps
from pipeline_profiler.profiling.record.stack_sampler import StackSampler
from pipeline_profiler.profiling.record.stages import Clock, Proxy, median_ns

SAVED_EVERY_S = 60.0
REST = 300.0  # times what a save took, before the next one: saving stays below a third of a percent
LEAST_HAND_OVER_NS = 1_000_000
MAIN_INTERVAL_S = 0.047  # no multiple of the times that loops are made of
WORKER_INTERVAL_S = 0.02
ASKED_AT = 2  # the step at which a batch is pickled once


class Repeated:
    """Calls `act` in a thread every so often until `end`."""

    def __init__(self, act: Callable[[], object], every_s: float, name: str) -> None:
        """Start the thread of that name; the first call comes after `every_s` seconds."""
        self._act, self._every_s = act, every_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True, name=name)
        self._thread.start()

    def _loop(self) -> None:
        rest = self._every_s
        while not self._ended.wait(rest):
            began = time.perf_counter()
            self._act()
            rest = max(self._every_s, REST * (time.perf_counter() - began))

    def end(self) -> None:
        """No call begins after the one that may be going on."""
        self._ended.set()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout=10.0)


class _Pickler(pickle.Pickler):
    def persistent_id(self, obj: Any) -> str | None:
        return "tensor" if hasattr(obj, "is_cuda") else None


class _Unpickler(pickle.Unpickler):
    def persistent_load(self, pid: Any) -> None:
        return


def hand_over_cost(batch: Any) -> dict[str, int]:
    """Return `pickling_ns` in the worker and `hand_over_ns` in the trainer; {} if unknown.

    Predictions for workers need both. Tensors travel in shared memory and are not pickled; pipe and
    wake-up cost a millisecond (docs/profile.md).
    """
    packed = io.BytesIO()

    def pack() -> None:
        packed.seek(0)
        _Pickler(packed, pickle.HIGHEST_PROTOCOL).dump(batch)

    def unpack() -> None:
        packed.seek(0)
        _Unpickler(packed).load()

    try:
        pickling, unpickling = (int(median_ns(act, time.perf_counter_ns)) for act in (pack, unpack))
    except Exception:  # noqa: BLE001 - a batch that cannot be pickled cannot come from a worker
        return {}
    return {"pickling_ns": pickling, "hand_over_ns": LEAST_HAND_OVER_NS + unpickling}


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
        self._autosave: Repeated | None = None
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
            self._autosave = Repeated(self.save_now, self.every_s, "profile-autosave")
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

    def receive(self, source: Source, item: Any, wait: Wait, used: int) -> tuple[Any, list[Row]]:
        """As in `Recorder`; one batch of a torch loader without workers is pickled, to know."""
        batch, rows = super().receive(source, item, wait, used)
        if self.steps == ASKED_AT and source.config.get("workers") == 0 and self.clocked:
            start = self.clock()
            self.run.totals |= hand_over_cost(batch)
            self.timeline.leave_out(start, self.clock())
        return batch, rows

    def _put_down(self, more: Sequence[Row] = ()) -> None:
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


class Watched(Proxy):
    """A loader whose every iteration is one recorded epoch; all else is the loader's."""

    def __init__(self, recorder: LiveRecorder, loader: Any) -> None:
        recorder._source_of(loader)
        super().__init__(loader)
        self.__dict__.update(_recorder=recorder, _epoch=None)

    def __iter__(self) -> Iterator[Any]:
        epoch: Iterator[Any] = self._recorder.one_epoch(self._inner)
        # weak, so that a `break` still closes the epoch
        self.__dict__["_epoch"] = weakref.ref(epoch)
        return epoch

    def __len__(self) -> int:
        return len(self._inner)

    def close(self) -> None:
        """End the epoch that is open."""
        epoch = self._epoch() if self._epoch is not None else None
        if epoch is not None:
            epoch.close()
