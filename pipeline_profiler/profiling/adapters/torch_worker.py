"""What runs in the process that loads: proxies for dataset, collate function and sampler."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from typing import Any

from pipeline_profiler.profiling.record import stage_hooks
from pipeline_profiler.profiling.record.session import MAIN
from pipeline_profiler.profiling.record.stack_sampler import StackSampler, offer_stack_dump
from pipeline_profiler.profiling.record.stages import (
    BatchTrace,
    Counters,
    Proxy,
    StageTimer,
    activate,
    active,
    difference,
    stage,
)


class _Loading:
    """Per process: the open batch and its counters. Rebuilt after a fork (the pid tells)."""

    def __init__(self, worker: int, sample_stacks: bool | float) -> None:
        self.pid, self.worker = os.getpid(), worker
        if worker != MAIN or active() is None:
            activate(StageTimer())
        self.timer = active() or StageTimer()
        self.counters = Counters()
        self.sampler: StackSampler | None = None
        if worker != MAIN and sample_stacks is True:  # in a run of its own: by signal
            self.sampler = StackSampler.start_here()
        elif worker != MAIN and sample_stacks:  # beside a training: every so many seconds
            self.sampler = StackSampler.start_beside(None, sample_stacks)
        self.gc_ns = self._gc_start = 0
        if worker != MAIN:
            gc.callbacks.append(self._on_gc)
        self.reset()

    def reset(self) -> None:
        self.open = False
        self.samples = 0
        self.slow: tuple[int, int | str] = (0, -1)

    def _on_gc(self, phase: str, info: dict[str, int]) -> None:
        now = time.perf_counter_ns()
        if phase == "start":
            self._gc_start = now
        elif self._gc_start:
            self.gc_ns += now - self._gc_start

    def begin(self) -> None:
        if self.open:
            return
        self.reset()
        self.open, self.gc_ns = True, 0
        if self.worker != MAIN:  # in the trainer the sampler has just drawn this batch
            self.timer.collect()
        self._before = (*self._clocks(), *self.counters.io())
        self._start, self._cpu = self.timer.clock(), self.timer.cpu()

    def _clocks(self) -> tuple[int, int]:
        """(run-queue delay, CPU of all threads); in the trainer the recorder has them already."""
        if self.worker == MAIN:
            return -1, -1
        return self.counters.queued_ns(), time.process_time_ns()

    def sample(self, key: Any, wall: int) -> None:
        """Book one sample; the slowest of the batch is kept by name."""
        self.samples += 1
        if wall > self.slow[0]:
            self.slow = (wall, _key(key))

    def finish(self) -> BatchTrace:
        cpu = self.timer.cpu() - self._cpu
        wall = self.timer.clock() - self._start
        after = (*self._clocks(), *self.counters.io())
        queued, process, device, chars = map(difference, after, self._before)
        self.open = False
        # recvs on sockets do not show in /proc: what the hooks saw counts where it is more
        chars = max(chars, self.timer.received) if chars >= 0 else chars
        return BatchTrace(
            *(self.worker, self._start, wall, cpu, queued, process),
            *(self.timer.collect(), self.samples, self.slow[1], self.slow[0]),
            *(device, chars, self.gc_ns, self.sampler.drain() if self.sampler else ()),
        )


_LOADING: _Loading | None = None


def _loading(sample_stacks: bool | float) -> _Loading:
    """This process's state; made again after a fork, and for each recorder in the trainer."""
    global _LOADING
    state = _LOADING
    if state is None or state.pid != os.getpid() or state.timer is not active():
        from torch.utils.data import get_worker_info

        info = get_worker_info()
        worker = MAIN if info is None else info.id
        state = _LOADING = _Loading(worker, sample_stacks)
        if worker != MAIN:
            stage_hooks.install()
    return state


def _key(key: Any) -> int | str:
    if isinstance(key, (int, str)):
        return key
    try:
        return int(key)
    except (TypeError, ValueError):
        return str(key)[:80]


class DatasetProxy(Proxy):
    """The user's dataset with each sample timed; attributes read and write through."""

    def __init__(self, dataset: Any, sample_stacks: bool | float = False) -> None:
        super().__init__(dataset)
        self.__dict__.update(_sample_stacks=sample_stacks, _hooked=False)
        offer_stack_dump()  # in a spawned worker this is the first line of ours that runs

    def __reduce__(self) -> tuple[Any, ...]:
        return DatasetProxy, (self._inner, self._sample_stacks)

    def __len__(self) -> int:
        return len(self._inner)

    def _start(self) -> _Loading:
        state = _loading(self._sample_stacks)
        if not self.__dict__["_hooked"] and state.worker != MAIN:
            stage_hooks.hook_dataset(self._inner)
            self.__dict__["_hooked"] = True
        state.begin()
        return state

    def __getitem__(self, index: Any) -> Any:
        state = self._start()
        state.timer.enter("getitem")
        try:
            return self._inner[index]
        finally:
            state.sample(index, state.timer.leave())

    def _each(self, state: _Loading, indices: Any) -> list[Any]:
        """Return the samples of a batch in one stage, with wall time for each sample."""
        dataset, clock = self._inner, state.timer.clock
        rows, walls, keys = [], [], []  # the indices may be any iterable
        with stage("getitem"):
            now = clock()
            for index in indices:
                rows.append(dataset[index])
                before, now = now, clock()
                walls.append(now - before)
                keys.append(index)
        state.samples = len(walls)
        slow = max(walls, default=0)
        state.slow = (slow, _key(keys[walls.index(slow)]) if walls else -1)
        return rows

    def __getitems__(self, indices: Any) -> Any:
        state = self._start()
        if not getattr(self._inner, "__getitems__", None):
            return self._each(state, indices)
        state.timer.enter("getitem")
        try:
            return self._inner.__getitems__(indices)
        finally:
            state.samples = len(indices)
            state.slow = (state.timer.leave() // max(1, len(indices)), -1)

    def __iter__(self) -> Iterator[Any]:
        # the fetcher calls iter() once an epoch: what a cut-off epoch left open is dropped, and a
        # start-up inside the user's iter() belongs to the first batch
        _loading(self._sample_stacks).open = False
        self._start()
        samples = iter(self._inner)
        number = 0
        while True:
            state = self._start()
            state.timer.enter("getitem")
            try:
                sample = next(samples)
            except StopIteration:
                return
            finally:
                wall = state.timer.leave()
            state.sample(_path_in(sample) or number, wall)
            number += 1
            yield sample


def _path_in(sample: Any) -> str | None:
    """A stream's sample names itself where it carries its key or path (webdataset's `__key__`)."""
    if isinstance(sample, dict):
        for name in ("__key__", "path", "filename", "file", "url"):
            if isinstance(sample.get(name), str):
                return str(sample[name])
    return None


class Parcel:
    """A finished batch with its trace; pickles in stamped order: stamp, batch, stamp, trace."""

    def __init__(self, batch: Any, trace: BatchTrace) -> None:
        self.batch, self.trace = batch, trace
        self.serialise: tuple[int, int, int] | None = None
        self.receive: tuple[int, int] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        # pickle walks the arguments in order, so the stamps enclose the batch and nothing else
        return _open_parcel, (_Stamp(), self.batch, _Stamp(), tuple(self.trace))

    def pin_memory(self, device: Any = None) -> Parcel:
        """Called by the pin thread in place of pinning an unknown type."""
        from torch.utils.data._utils.pin_memory import pin_memory

        self.batch = pin_memory(self.batch)  # type: ignore[no-untyped-call]
        return self


class _Stamp:
    """Pickles to the moment of its pickling; unpickles to that and the moment of unpickling."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _stamped, (time.perf_counter_ns(), time.thread_time_ns())


def _stamped(sent: int, cpu: int) -> tuple[int, int, int]:
    return sent, cpu, time.perf_counter_ns()


def _open_parcel(
    first: tuple[int, int, int], batch: Any, last: tuple[int, int, int], trace: tuple[Any, ...]
) -> Parcel:
    parcel = Parcel(batch, BatchTrace(*trace))
    parcel.serialise = (first[0], last[0] - first[0], last[1] - first[1])
    parcel.receive = (first[2], last[2] - first[2])
    return parcel


class CollateProxy:
    """The user's collate function, timed; what it returns goes into a Parcel."""

    def __init__(self, collate: Any, sample_stacks: bool | float = False) -> None:
        self.collate, self.sample_stacks = collate, sample_stacks

    def __call__(self, samples: Any) -> Parcel:
        """Call what is wrapped, timed."""
        state = _loading(self.sample_stacks)
        state.begin()  # no-op unless the dataset could not be proxied
        with stage("collate"):
            batch = self.collate(samples)
        return Parcel(batch, state.finish())


class SamplerProxy(Proxy):
    """The user's (batch) sampler: books the time that it takes in the trainer."""

    def __len__(self) -> int:
        return len(self._inner)

    def __iter__(self) -> Iterator[Any]:
        indices = iter(self._inner)
        while True:
            try:
                with stage("sampler"):
                    item = next(indices)
            except StopIteration:
                return
            yield item
