"""tf.data: the user's own dataset, watched and timed prefix by prefix; and Keras' fit.

The cost of an operation is its prefix's time minus that of the prefix before it, counted per final
element (tf_graph.py walks the graph, and rebuilds a dataset with one change).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from pipeline_profiler.profiling.adapters.tf_graph import (
    from_generator,
    name_of,
    options_of,
    prefixes,
    visits,
)
from pipeline_profiler.profiling.record.plan import Operation
from pipeline_profiler.profiling.record.recorder import Source
from pipeline_profiler.profiling.record.stack_sampler import frames_of
from pipeline_profiler.profiling.record.stages import Clock

FLAT_WINDOWS = 3  # windows of equal throughput after which AUTOTUNE counts as settled
FLAT_WITHIN = 0.05
WINDOW = 10


def attach(dataset: Any, recorder: Any) -> Source:
    """Watch a tf.data.Dataset: its inside is timed by prefixes, its buffers it keeps to itself."""
    return Source(dataset, describe(dataset))


def describe(dataset: Any) -> dict[str, Any]:
    """Operations from source to end, length, and the options that steer AUTOTUNE."""
    length = int(dataset.cardinality().numpy())
    return {
        "kind": "tf",
        "operations": [name_of(prefix) for prefix in prefixes(dataset)],
        "batches": length if length >= 0 else None,
        "endless": length == -1,  # tf.data's INFINITE_CARDINALITY: one start a training
        "options": options_of(dataset),
        "generator": from_generator(dataset),
        "one_shot": False,
    }


def prefix_costs(
    dataset: Any, seconds: float = 1.0, clock: Clock = time.perf_counter_ns
) -> list[Operation]:
    """One row per operation: ms per final element, alone and accumulated, and to the first one."""
    chain, rows, before = prefixes(dataset), list[Operation](), 0.0
    for prefix, times in zip(chain, visits(chain), strict=True):
        first, each = _pace(prefix, seconds, clock)
        total = each * times
        rows.append(
            {
                "operation": name_of(prefix),
                "ms": (total - before) / 1e6,  # negative: it runs in parallel or ahead
                "total_ms": total / 1e6,
                "first_ms": first / 1e6,
                "visits": times,
            }
        )
        before = total
    return rows


def _pace(prefix: Any, seconds: float, clock: Clock) -> tuple[float, float]:
    """(ns to the first element, mean ns an element after it)."""
    start = clock()
    first = last = start
    count = 0
    for _ in prefix:
        last = clock()
        count += 1
        if count == 1:
            first = last
        if last - start > seconds * 1e9:
            break
    each = (last - first) / (count - 1) if count > 1 else float(last - start)
    return float(first - start), each


def settled_after(periods: Sequence[float]) -> int:
    """Steps until AUTOTUNE's throughput is flat over three windows; all, where it never is."""
    ends = range(WINDOW, len(periods) + 1, WINDOW)
    walls = [sum(periods[end - WINDOW : end]) for end in ends]
    for k in range(FLAT_WINDOWS, len(walls) + 1):
        recent = walls[k - FLAT_WINDOWS : k]
        if max(recent) - min(recent) < FLAT_WITHIN * max(recent):
            return k * WINDOW
    return len(walls) * WINDOW


def repeated_batch(batch: Any, batches: int) -> Any:
    """A dataset that has nothing to do: the same batch so often, from a thread of TensorFlow's."""
    import tensorflow as tf

    return tf.data.Dataset.from_tensors(batch).repeat(batches).prefetch(1)


def rebuild(dataset: Any, changes: dict[str, Any]) -> None:
    """No setting of a loader is one of a graph: `tf_graph` rebuilds it with a change."""


UNTOLD = (
    "Keras draws the batch inside its train step with TensorFlow; time the dataset alone with "
    "`pipeline-profiler run`"
)


def keras_callback(recorder: Any, follow: Callable[[str], None] = lambda phase: None) -> Any:
    """Return a Keras callback that records fit(); `follow` gets what begins: wait, step or outside.

    With torch or JAX the time between two callbacks is the wait. With TensorFlow only steps are
    recorded, except in eager steps (`draw`).
    """
    import keras

    told = keras.backend.backend() != "tensorflow"
    recorder.run.config |= {"kind": "keras", "wait_told": told, "wait_untold": UNTOLD}

    class Recording(keras.callbacks.Callback):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.asked = self.got = self.drawn = 0

        def draw(self, start: int, end: int) -> None:
            """The step has drawn its batch in Python, as it does with run_eagerly=True."""
            self.drawn += end - start
            recorder.run.config["wait_told"] = True

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.asked = recorder.clock()
            recorder.open_epoch(self.asked, self.asked)
            follow("wait")

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            self.got, self.drawn = recorder.clock(), 0
            follow("step")

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            asked, self.asked = self.asked, recorder.clock()
            recorder.add_wait(asked, self.got + self.drawn)
            recorder.record_step(self.got + self.drawn, self.asked, 0)
            follow("wait")

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            recorder.close_epoch()
            follow("outside")

    return Recording()


def dress_dataset(recorder: Any, loader: Any) -> Any:
    """Return a tf.data `loader` as a recorded dataset; None for other loaders.

    Epochs are recorded if iterated eagerly; in fit it is the dataset that it wraps.
    """
    module = sys.modules.get("tensorflow.python.data.ops.dataset_ops")
    if module is None or not isinstance(loader, module.DatasetV2):
        return None

    class WatchedDataset(module.DatasetV2):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__(loader._variant_tensor)

        def __iter__(self) -> Any:
            import tensorflow as tf

            if _in_user_code() and tf.executing_eagerly():
                return recorder.one_epoch(loader)
            return super().__iter__()

        def _inputs(self) -> list[Any]:
            return [loader]

        @property
        def element_spec(self) -> Any:
            return loader.element_spec

    return WatchedDataset()


def _in_user_code() -> bool:
    """Whether no frame of Keras asks: what fit draws is handed to its compiled step."""
    names = [frame.f_globals.get("__name__", "") for frame in frames_of(sys._getframe(2))]
    return not any(name.startswith("keras.") for name in names)
