"""Hooks into TensorFlow: eager iterators of tf.data, and Keras' fit by a callback.

An eager `for batch in dataset` is recorded at its iterator, like a DataLoader. In fit the batch is
drawn inside the compiled train function where TensorFlow is the backend: the callback sees whole
steps, and the wait cannot be told from the computing. With torch or JAX as the backend Keras asks
for the batch in Python, between two callbacks: there the wait is told.
"""

from __future__ import annotations

import functools
from time import perf_counter_ns
from typing import Any

from pipeline_profiler.record.session import MAIN
from pipeline_profiler.watching.loop import Loop
from pipeline_profiler.watching.process import WatchedProcess, watched_process

UNTOLD = (
    "Keras draws the batch inside its compiled step with TensorFlow; time the dataset alone with "
    "`pipeline-profiler run`"
)


class _Plain:
    """A loader of which only next() is seen."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.iterable: Any = None
        self.config = config
        self.notes: list[str] = []

    def unwrap(self, item: Any) -> tuple[Any, None]:
        return item, None

    def depth(self, iterator: Any) -> None:
        return


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
            loop = self.__dict__["_watched_loop"] = _loop_over(process, *began)
        return process.ask(loop, functools.partial(deliver, self), trains=True)

    import tensorflow as tf

    module.DatasetV2.__iter__, owner.__next__ = __iter__, __next__


def _loop_over(process: WatchedProcess, dataset: Any, start: int, end: int) -> Loop:
    """The loop over a dataset, its epoch open."""
    length = int(dataset.cardinality().numpy())
    config = {"kind": "tf", "batches": length if length >= 0 else None}
    loop = process.loop_of(("tf", str(dataset.element_spec), length), _Plain(config))
    process.open(loop, start, end)
    return loop


# ---- Keras ----


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
            bound.arguments["callbacks"] = [*(given or []), recording_callback()]
        return plain(*bound.args, **bound.kwargs)

    return fit


def recording_callback() -> Any:
    """A callback that records fit() as a loop of this process."""
    import keras

    told = keras.backend.backend() != "tensorflow"

    class Watching(keras.callbacks.Callback):  # type: ignore[misc]
        """Steps and, where Keras asks for the batch in Python, waits."""

        def __init__(self) -> None:
            super().__init__()
            self.asked = self.got = 0

        def on_train_begin(self, logs: Any = None) -> None:
            """The loop of this fit; the size of its batches is Keras' own business."""
            config = {"kind": "keras", "wait_told": told, "wait_untold": UNTOLD}
            self.process = watched_process()
            self.loop = self.process.loop_of(("keras", id(self.model)), _Plain(config))
            self.recorder = self.loop.recorder

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            """The iterator is made between this and the first batch."""
            self.asked = perf_counter_ns()
            self.recorder.open_epoch(self.asked, self.asked)

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            """The batch is asked for inside the step, or is there."""
            self.got = perf_counter_ns()
            wall = self.got - self.asked
            at = self.recorder.timeline.at(self.asked)
            row = ("wait", self.recorder.steps, MAIN, at, wall, -1, -1, 1)
            self.recorder._rows.append(row)
            self.process.phase = "step"

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            """The step is over, the next batch is asked for."""
            self.asked = perf_counter_ns()
            self.recorder.record_step(self.got, self.asked, 0)
            self.loop.trained += 1
            self.process.phase = "wait"

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            """Validation and other callbacks are no part of the step."""
            self.recorder.close_epoch()
            self.process.phase = "outside"

    return Watching()
