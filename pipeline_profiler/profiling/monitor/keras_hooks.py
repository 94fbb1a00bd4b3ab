"""Hooks into TensorFlow: eager iterators of tf.data, and Keras' fit by a callback.

In fit with TensorFlow the batch is drawn inside the compiled function: the wait is unknown. With
torch or JAX as the backend it is the time between two callbacks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from pipeline_profiler.profiling.adapters.tf_data import keras_callback
from pipeline_profiler.profiling.monitor.process import known_process, watched_process
from pipeline_profiler.profiling.record.recorder import Source


def hook_datasets(module: Any) -> None:
    """Record eager iteration of `tf.data.Dataset`; an iterator stays TensorFlow's own."""
    owner = module.iterator_ops.OwnedIterator
    begin, deliver = module.DatasetV2.__iter__, owner.__next__

    @functools.wraps(begin)
    def __iter__(self: Any) -> Any:  # noqa: N807
        start = perf_counter_ns()
        iterator = begin(self)
        iterator.__dict__["_watched_began"] = (self, start, perf_counter_ns())
        return iterator

    @functools.wraps(deliver)
    def __next__(self: Any) -> Any:  # noqa: N807
        began = self.__dict__.get("_watched_began")
        # fit hands iterators to its compiled step, where next() is drawn as a part of the graph
        if began is None or not tf.executing_eagerly():
            return deliver(self)
        process = watched_process()
        loop = self.__dict__.get("_watched_loop")
        if loop is None:
            dataset, start, end = began
            length = int(dataset.cardinality().numpy())
            source = Source((), {"kind": "tf", "batches": length if length >= 0 else None})
            loop = process.loop_of(("tf", str(dataset.element_spec), length), source)
            self.__dict__["_watched_loop"] = loop
            process.open(loop, start, end)
        return process.ask(loop, deliver, self, trains=True)

    import tensorflow as tf

    module.DatasetV2.__iter__, owner.__next__ = __iter__, __next__
    for name in ("get_next", "get_next_as_optional"):
        # asked for later: TensorFlow is still being imported
        eager = lambda: tf.executing_eagerly()  # noqa: E731
        setattr(owner, name, _told_to_fit(getattr(owner, name), eager))


def _told_to_fit(plain: Any, eager: Callable[[], bool]) -> Any:
    """With run_eagerly=True the step of fit draws its batch in Python, by one of these."""

    @functools.wraps(plain)
    def timed(self: Any, *args: Any, **kwargs: Any) -> Any:
        process = known_process()
        if process is None or process.fitting is None or not eager():
            return plain(self, *args, **kwargs)
        start, process.phase = perf_counter_ns(), "wait"
        item = plain(self, *args, **kwargs)
        process.fitting(start, perf_counter_ns())
        process.phase = "step"
        return item

    return timed


def hook_fit(module: Any) -> None:
    """Give every fit a callback that records it."""
    for owner in module.Model.__mro__:
        plain = owner.__dict__.get("fit")
        if plain is not None and not getattr(plain, "__isabstractmethod__", False):
            owner.fit = _with_callback(plain)
            return


def _with_callback(plain: Any) -> Any:
    @functools.wraps(plain)
    def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        import inspect

        bound = inspect.signature(plain).bind(self, *args, **kwargs)
        given = bound.arguments.get("callbacks")
        if given is None or isinstance(given, (list, tuple)):
            bound.arguments["callbacks"] = [*(given or []), _recording(self)]
        return plain(*bound.args, **bound.kwargs)

    return fit


def _recording(model: Any) -> Any:
    process = watched_process()
    loop = process.loop_of(("keras", id(model)), Source((), {}))

    def follow(phase: str) -> None:
        process.phase = phase
        process.fitting = callback.draw if phase == "step" else None
        loop.trained = loop.recorder.steps

    callback = keras_callback(loop.recorder, follow)
    return callback
