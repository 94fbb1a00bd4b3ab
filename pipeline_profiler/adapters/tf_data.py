"""tf.data: the graph of the user's own dataset, walked, timed prefix by prefix, and rebuilt.

`Dataset._inputs()` leads from the last operation to the source, so every prefix can be iterated
alone: the cost of an operation is its prefix's time minus that of the prefix before it, counted
per final element. Interventions (tf_interventions.py) rebuild the tail of the graph over a
changed input. Both need private attributes; an operation this file does not know stops the
rebuild with a sentence, never the measurement.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from pipeline_profiler.session import MAIN, ProfileError
from pipeline_profiler.stages import Clock

FLAT_WINDOWS = 3  # windows of equal throughput after which AUTOTUNE counts as settled
FLAT_WITHIN = 0.05
WINDOW = 10


class TfSource:
    """A watched tf.data.Dataset."""

    def __init__(self, dataset: Any) -> None:
        """Keep what is wrapped or measured."""
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


def options_of(dataset: Any) -> dict[str, Any]:
    """Options that decide speed; None is TensorFlow's default."""
    options = dataset.options()
    auto, threads = options.autotune, options.threading
    return {
        "deterministic": options.deterministic,
        "autotune": auto.enabled,
        "cpu_budget": auto.cpu_budget,
        "ram_budget": auto.ram_budget,
        "private_threadpool_size": threads.private_threadpool_size,
    }


def prefixes(dataset: Any) -> list[Any]:
    """The dataset cut after each operation, source first; a join follows its first input."""
    chain = [dataset]
    while len(chain) < 100:
        inputs = chain[-1]._inputs()
        if not inputs:
            break
        chain.append(inputs[0])
    return chain[::-1]


def name_of(prefix: Any) -> str:
    """'Map', 'ParallelMap', 'Batch' ... from the class of the operation."""
    return type(prefix).__name__.strip("_").removesuffix("Dataset").removesuffix("V2") or "Dataset"


def visits(chain: list[Any]) -> list[float]:
    """How many elements of each prefix one final element needs (batching multiplies)."""
    factors, factor = [1.0], 1.0
    for prefix in reversed(chain[1:]):
        size = getattr(prefix, "_batch_size", None)
        if size is not None:
            factor *= float(int(size))
        elif name_of(prefix) == "Unbatch":
            factor /= max(1.0, factor)
        factors.append(factor)
    return factors[::-1]


def prefix_costs(
    dataset: Any, seconds: float = 1.0, clock: Clock = time.perf_counter_ns
) -> list[dict[str, Any]]:
    """One row an operation: ms per final element alone and accumulated, ms to the first element."""
    chain, rows, before = prefixes(dataset), [], 0.0
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


# ------------------------------------------------------------------------------- rebuilding

Rebuild = Callable[[Any, Any], Any]


def _function(wrapper: Any) -> Any:
    return wrapper._func


def _parallelism(op: Any) -> Any:
    return op._num_parallel_calls


_AGAIN: dict[str, Rebuild] = {
    "Map": lambda ds, op: ds.map(_function(op._map_func)),
    "ParallelMap": lambda ds, op: ds.map(
        _function(op._map_func), num_parallel_calls=_parallelism(op)
    ),
    "Batch": lambda ds, op: ds.batch(op._batch_size, drop_remainder=op._drop_remainder),
    "ParallelBatch": lambda ds, op: ds.batch(
        op._batch_size, drop_remainder=op._drop_remainder, num_parallel_calls=_parallelism(op)
    ),
    "Shuffle": lambda ds, op: ds.shuffle(
        op._buffer_size, reshuffle_each_iteration=op._reshuffle_each_iteration
    ),
    "Prefetch": lambda ds, op: ds.prefetch(int(op._buffer_size)),
    "Cache": lambda ds, op: ds.cache(op._filename),
    "Repeat": lambda ds, op: ds.repeat(op._count),
    "Take": lambda ds, op: ds.take(op._count),
    "Skip": lambda ds, op: ds.skip(op._count),
    "Filter": lambda ds, op: ds.filter(_function(op._predicate)),
    "FlatMap": lambda ds, op: ds.flat_map(_function(op._map_func)),
    "Unbatch": lambda ds, op: ds.unbatch(),
    "Options": lambda ds, op: ds.with_options(op.options()),
    "Interleave": lambda ds, op: ds.interleave(
        _function(op._map_func), cycle_length=op._cycle_length, block_length=op._block_length
    ),
    "ParallelInterleave": lambda ds, op: ds.interleave(
        _function(op._map_func),
        cycle_length=op._cycle_length,
        block_length=op._block_length,
        num_parallel_calls=_parallelism(op),
    ),
}


def again(op: Any, on: Any) -> Any:
    """The operation `op` applied anew to another input."""
    build = _AGAIN.get(name_of(op))
    if build is None:
        raise ProfileError(
            f"The operation {name_of(op)} cannot be rebuilt over a changed input: try the change "
            "in your own code and compare two sessions."
        )
    return build(on, op)


def rebuilt(dataset: Any, exchange: Callable[[Any, Any], Any | None]) -> Any:
    """The graph with `exchange(op, input)` in place of each operation where it returns one."""
    chain = prefixes(dataset)
    current, changed = chain[0], False
    for op in chain[1:]:
        new = exchange(op, current)
        if new is not None:
            current, changed = new, True
        else:
            current = again(op, current) if changed else op
    return current


def rebuild(dataset: Any, changes: dict[str, Any]) -> Any:
    """Apply an intervention by name: {"intervention": name}."""
    from pipeline_profiler.adapters.tf_interventions import apply

    return apply(dataset, str(changes["intervention"]))


def files(dataset: Any) -> list[str]:
    """The dataset's file list is inside its graph: name the files with --files."""
    return []


def keras_callback(recorder: Any) -> Any:
    """A Keras callback that records fit(): the gap between two batches is the wait for data.

    With steps_per_execution above 1, Keras calls back once per execution and so does this.
    """
    import keras

    class Recording(keras.callbacks.Callback):  # type: ignore[misc]
        """Spans on the recorder's clock."""

        def __init__(self) -> None:
            """Keep what is wrapped or measured."""
            super().__init__()
            self.asked = self.got = 0

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            """The iterator is made between this and the first batch."""
            self.asked = recorder.clock()
            recorder.run.spans.add("iter", recorder.steps, MAIN, self.asked, 0)

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            """The batch is there."""
            self.got = recorder.clock()
            wall = self.got - self.asked
            recorder.run.spans.add("wait", recorder.steps, MAIN, self.asked, wall, 0)

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            """The step is over, the next batch is asked for."""
            self.asked = recorder.clock()
            recorder.run.spans.add("loop", recorder.steps, MAIN, self.got, self.asked - self.got, 0)
            recorder.steps += 1

    return Recording()
