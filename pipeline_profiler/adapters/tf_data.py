"""tf.data: the user's own dataset, watched and timed prefix by prefix.

The cost of an operation is its prefix's time minus that of the prefix before it, counted per final
element (tf_graph.py walks the graph). A dataset is rebuilt with one change by tf_interventions.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from pipeline_profiler.adapters.tf_graph import name_of, options_of, prefixes, visits
from pipeline_profiler.record.plan import Operation
from pipeline_profiler.record.stages import Clock

FLAT_WINDOWS = 3  # windows of equal throughput after which AUTOTUNE counts as settled
FLAT_WITHIN = 0.05
WINDOW = 10


class TfSource:
    """A watched tf.data.Dataset."""

    def __init__(self, dataset: Any) -> None:
        """Read the graph and options of `dataset`, which stays as it is."""
        self.iterable = dataset
        self.config = describe(dataset)
        self.notes: list[str] = []

    def unwrap(self, item: Any) -> tuple[Any, None]:
        """The element; its inside is timed by prefixes, not by what travels with it."""
        return item, None

    def depth(self, iterator: Any) -> None:
        """tf.data keeps its buffers to itself."""
        return


def attach(dataset: Any, recorder: Any) -> TfSource:
    """Watch a tf.data.Dataset."""
    return TfSource(dataset)


def describe(dataset: Any) -> dict[str, Any]:
    """Operations from source to end, length, and the options that steer AUTOTUNE."""
    length = int(dataset.cardinality().numpy())
    return {
        "kind": "tf",
        "operations": [name_of(prefix) for prefix in prefixes(dataset)],
        "batches": length if length >= 0 else None,
        "options": options_of(dataset),
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
    if count < 2:
        return float(first - start), float(last - start)
    return float(first - start), (last - first) / (count - 1)


def settled_after(periods: Sequence[float]) -> int:
    """Steps until AUTOTUNE's throughput is flat over three windows; all, where it never is."""
    ends = range(WINDOW, len(periods) + 1, WINDOW)
    walls = [sum(periods[end - WINDOW : end]) for end in ends]
    for k in range(FLAT_WINDOWS, len(walls) + 1):
        recent = walls[k - FLAT_WINDOWS : k]
        if max(recent) - min(recent) < FLAT_WITHIN * max(recent):
            return k * WINDOW
    return len(walls) * WINDOW


def rebuild(dataset: Any, changes: dict[str, Any]) -> Any:
    """Apply an intervention by name: {"intervention": name}."""
    from pipeline_profiler.adapters.tf_interventions import apply

    return apply(dataset, str(changes["intervention"]))


def files(dataset: Any) -> list[str]:
    """The dataset's file list is inside its graph: name the files with --files."""
    return []


UNTOLD = (
    "Keras draws the batch inside its compiled step with TensorFlow; time the dataset alone with "
    "`pipeline-profiler run`"
)


def keras_callback(recorder: Any, follow: Callable[[str], None] = lambda phase: None) -> Any:
    """A Keras callback that records fit(); `follow` is told what begins: wait, step or outside.

    With torch or JAX as the backend Keras asks for the batch between two callbacks: the gap is the
    wait for data. With TensorFlow the batch is drawn inside the train function: steps are recorded,
    and the session says that the wait is not known. With steps_per_execution above 1, Keras calls
    back once per execution and so does this.
    """
    import keras

    told = keras.backend.backend() != "tensorflow"
    recorder.run.config |= {"kind": "keras", "wait_told": told, "wait_untold": UNTOLD}

    class Recording(keras.callbacks.Callback):  # type: ignore[misc]
        """Spans on the recorder's clock."""

        def __init__(self) -> None:
            """Start with no batch asked for."""
            super().__init__()
            self.asked = self.got = 0

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            """The iterator is made between this and the first batch."""
            self.asked = recorder.clock()
            recorder.open_epoch(self.asked, self.asked)
            follow("wait")

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            """The batch is there, or is drawn inside the step."""
            self.got = recorder.clock()
            recorder.add_wait(self.asked, self.got)
            follow("step")

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            """The step is over, the next batch is asked for."""
            self.asked = recorder.clock()
            recorder.record_step(self.got, self.asked, 0)
            follow("wait")

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            """Validation and other callbacks are no part of the step."""
            recorder.close_epoch()
            follow("outside")

    return Recording()
