"""Hooks into torch: the loader's iterator, and the parts of the step.

`DataLoader.__iter__` and `__next__` of iterators are wrapped. Forward: calls of modules by the
script, in 20 steps of a thousand; backward: `Tensor.backward`; optimizer: torch's global hooks. On
a GPU, events measure when it idles for a batch.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import weakref
from collections.abc import Callable
from time import perf_counter_ns
from types import FrameType
from typing import Any

from pipeline_profiler.profiling.adapters import torch_loader
from pipeline_profiler.profiling.adapters.device_gaps import DeviceGaps
from pipeline_profiler.profiling.monitor import process as state
from pipeline_profiler.profiling.monitor.prediction_grid import PredictionGrid
from pipeline_profiler.profiling.monitor.process import (
    WatchedProcess,
    known_process,
    watched_process,
)
from pipeline_profiler.profiling.monitor.queues import hook_queues
from pipeline_profiler.profiling.record.opened_files import current_log
from pipeline_profiler.profiling.record.recorder import Source
from pipeline_profiler.profiling.record.recorder_live import WORKER_INTERVAL_S

# steps: the first look, its length, and how far the later ones are apart
FIRST_LOOK, LOOK, LOOK_EVERY = 10, 20, 1000
COLLECTIVE = "training collective"  # a part of training, so no side work
COLLECTIVES = (
    *("all_reduce", "all_gather", "all_gather_into_tensor", "reduce_scatter", "broadcast"),
    *("reduce_scatter_tensor", "reduce", "barrier", "all_gather_object", "broadcast_object_list"),
)


_UNDO: list[Callable[[], None]] = []


def unhook_torch() -> None:
    """Put everything back as it was."""
    while _UNDO:
        _UNDO.pop()()
    _HOOKED.clear()


def _replace(owner: Any, name: str, value: Any) -> None:
    before = getattr(owner, name)
    setattr(owner, name, value)
    _UNDO.append(lambda: setattr(owner, name, before))


def hook_loaders(module: Any) -> None:
    """Wrap the iteration of DataLoader; the other hooks follow at the first batch."""
    loader, iterator = module.DataLoader, module._BaseDataLoaderIter
    begin, deliver = loader.__iter__, iterator.__next__

    @functools.wraps(begin)
    def __iter__(self: Any) -> Any:  # noqa: N807
        return _begin_epoch(self, begin)

    @functools.wraps(deliver)
    def __next__(self: Any) -> Any:  # noqa: N807
        loop = self.__dict__.get("_watched_loop")
        process = state._STATE  # no call: beside a short step each costs a microsecond and more
        if loop is None or process is None:
            return deliver(self)
        return process.ask(loop, deliver, self, trains())

    import torch

    trains = torch.is_grad_enabled
    _replace(loader, "__iter__", __iter__)
    _replace(iterator, "__next__", __next__)


def _begin_epoch(loader: Any, begin: Callable[[Any], Any]) -> Any:
    torch = sys.modules["torch"]
    if torch.utils.data.get_worker_info() is not None:  # a loader inside a worker of a loader
        return begin(loader)
    process = watched_process()
    _hook_steps(torch, process)
    asked_at = sys._getframe(2)
    loop = process.loop_of((*_key(loader), *_place(asked_at)), _source_of(loader))
    loop.at = "{}:{}".format(*_place(asked_at))
    if loop.gaps is None and torch.cuda.is_available():
        loop.gaps = DeviceGaps(torch.cuda)
    clock = loop.recorder.clock
    start = clock()
    if (log := current_log()) is not None:
        log.loader = loop.number  # of the workers that start now
        loop.listed = getattr(loader.dataset, "samples", getattr(loader.dataset, "imgs", ()))
    iterator = _with_proxies(loader, begin)
    process.open(loop, start, clock())
    iterator.__dict__["_watched_loop"] = loop
    process.follow(loop, iterator)
    return iterator


def _place(frame: FrameType) -> tuple[str, int]:
    """File and line that ask for an iterator: two loops over loaders of one kind are two."""
    return os.path.basename(frame.f_code.co_filename), frame.f_lineno


def _key(loader: Any) -> Any:
    """What loaders that are made anew each epoch have in common, and training and test have not."""
    try:
        length = len(loader.dataset)
    except TypeError:
        length = id(loader.dataset)
    kinds = (type(loader.dataset), type(loader.sampler))
    return (*kinds, length, loader.batch_size, loader.num_workers)


class _InPlace(Source):
    """A DataLoader as it is; its batches arrive in parcels where its workers carry our proxies."""

    def unwrap(self, item: Any) -> tuple[Any, Any]:
        return torch_loader.unwrap_parcel(item)


_SOURCES: weakref.WeakKeyDictionary[Any, _InPlace] = weakref.WeakKeyDictionary()


def _source_of(loader: Any) -> _InPlace:
    if loader not in _SOURCES:
        # without the loader: a reference from the value would keep it for ever
        _SOURCES[loader] = _InPlace((), torch_loader.describe(loader))
    return _SOURCES[loader]


def _with_proxies(loader: Any, begin: Callable[[Any], Any]) -> Any:
    """Make the iterator with proxies for dataset, collate function and sampler, given workers."""
    if not loader.num_workers:
        return begin(loader)
    state = loader.__dict__
    proxied = torch_loader.proxied(loader, WORKER_INTERVAL_S)
    own = {name: state[name] for name in proxied}
    state.update(proxied)
    try:
        return begin(loader)
    finally:
        state.update(own)


_LOOKS: list[Callable[[bool], None]] = []  # what hooks the optimizers in a step that is looked at
_HOOKED: list[int] = []  # process ids: a fork inherits the hooks, and they look up the process


def _hook_steps(torch: Any, process: WatchedProcess) -> None:
    process.on_draw = functools.partial(hook_queues, process)
    if _HOOKED:
        process.on_look = _LOOKS[-1]  # of this process, where it is a fork
        return
    _HOOKED.append(process.pid)
    process.undo.append(unhook_torch)
    _hook_backward(torch)
    _LOOKS.append(_Optimizers(torch).look)
    process.on_look = _LOOKS[-1]
    _hook_function(torch, "save", "checkpoint")
    if process.order.grid and process.rank in (None, 0):
        process.predictions = PredictionGrid(torch, process.order.grid, process.leave_out)
        process.predictions.hook(_replace, _UNDO)
    if torch.distributed.is_available():
        for name in COLLECTIVES:
            if hasattr(torch.distributed, name):
                _hook_function(torch.distributed, name, COLLECTIVE)


def _book(name: str, start: int, end: int) -> None:
    process = known_process()
    if process is not None:
        process.add_stage(name, start, end)
        if name == "checkpoint":
            process.totals["checkpoint_ns"] += end - start


def _hook_function(owner: Any, attribute: str, name: str) -> None:
    original, compiling = getattr(owner, attribute), sys.modules["torch"].compiler.is_compiling

    @functools.wraps(original)
    def timed_call(*args: Any, **kwargs: Any) -> Any:
        if compiling():
            return original(*args, **kwargs)
        start = perf_counter_ns()
        try:
            return original(*args, **kwargs)
        finally:
            _book(name, start, perf_counter_ns())

    _replace(owner, attribute, timed_call)


def _hook_backward(torch: Any) -> None:
    """Seen in every step, as it is what trains; timed in those whose parts are looked at."""
    original, compiling = torch.Tensor.backward, torch.compiler.is_compiling

    @functools.wraps(original)
    def backward(*args: Any, **kwargs: Any) -> Any:
        process = state._STATE
        if process is None or compiling():
            return original(*args, **kwargs)
        if not process.looking:
            training = process.training  # `process.trains`, without a call
            training.count += 1
            training.thread = threading.get_ident()
            return original(*args, **kwargs)
        start = perf_counter_ns()
        try:
            return original(*args, **kwargs)
        finally:
            process.train("backward", start, perf_counter_ns())

    _replace(torch.Tensor, "backward", backward)


class _Optimizers:
    """Times the optimizer in steps whose parts are looked at.

    In a loop without a backward pass it stays hooked, because it shows that something trains.
    """

    def __init__(self, torch: Any) -> None:
        from torch.optim import optimizer

        self.register = (
            (optimizer.register_optimizer_step_pre_hook, self._before),
            (optimizer.register_optimizer_step_post_hook, self._after),
        )
        self.compiling, self.forward = torch.compiler.is_compiling, _Outermost(torch)
        self.handles: list[Any] = []
        self.began = 0
        self.alone = False
        _UNDO.append(self._remove)

    def look(self, on: bool) -> None:
        """The parts of the step that begins are looked at, or not any more."""
        if on and not self.handles:
            self.handles = [register(hook) for register, hook in self.register]
        elif not on and not self.alone:
            self._remove()

    def _remove(self) -> None:
        for handle in self.handles:
            handle.remove()
        self.handles = []

    def _before(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self.began = 0 if self.compiling() else perf_counter_ns()

    def _after(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        process = known_process()
        if process is None or not self.began or self.compiling():
            return
        self.alone |= not process.trained
        if process.looking:
            process.train("optimizer", self.began, perf_counter_ns())
            self.forward.look(process.steps)
        else:
            process.trains()


class _Outermost:
    """Times the calls of modules by the script itself, in 20 steps of a thousand."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.inside = False
        self.next = FIRST_LOOK
        self.plain = torch.nn.Module.__call__
        self.looking = self._looking()
        _replace(torch.nn.Module, "__call__", self.plain)  # so that it is put back

    def look(self, steps: int) -> None:
        """So many steps are over: look for about 20 once the first are, and again each thousand."""
        if steps >= self.next:
            on = self.torch.nn.Module.__call__ is self.looking
            self.torch.nn.Module.__call__ = self.plain if on else self.looking
            self.next = steps + (LOOK_EVERY - LOOK if on else LOOK)

    def _looking(self) -> Callable[..., Any]:
        plain, torch = self.plain, self.torch

        @functools.wraps(plain)
        def __call__(module: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
            if self.inside or torch.compiler.is_compiling() or not torch.is_grad_enabled():
                return plain(module, *args, **kwargs)
            self.inside, start = True, perf_counter_ns()
            try:
                return plain(module, *args, **kwargs)
            finally:
                self.inside = False
                _book("forward", start, perf_counter_ns())

        return __call__
