"""The graph of a tf.data.Dataset: walked from the source to the end, and rebuilt with a change.

`Dataset._inputs()` leads from the last operation to the source, so every prefix can be iterated
alone, and the tail of the graph can be applied again to a changed input. Both need private
attributes; an operation this file does not know stops the rebuild with a sentence, never the
measurement.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pipeline_profiler.record.session import ProfileError


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


# ------------------------------------------------------------------------------- rebuilding

Rebuild = Callable[[Any, Any], Any]


def user_function(wrapper: Any) -> Any:
    """The Python function inside an operation's wrapper."""
    return wrapper._func


def _parallelism(op: Any) -> Any:
    return op._num_parallel_calls


_AGAIN: dict[str, Rebuild] = {
    "Map": lambda ds, op: ds.map(user_function(op._map_func)),
    "ParallelMap": lambda ds, op: ds.map(
        user_function(op._map_func), num_parallel_calls=_parallelism(op)
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
    "Filter": lambda ds, op: ds.filter(user_function(op._predicate)),
    "FlatMap": lambda ds, op: ds.flat_map(user_function(op._map_func)),
    "Unbatch": lambda ds, op: ds.unbatch(),
    "Options": lambda ds, op: ds.with_options(op.options()),
    "Interleave": lambda ds, op: ds.interleave(
        user_function(op._map_func), cycle_length=op._cycle_length, block_length=op._block_length
    ),
    "ParallelInterleave": lambda ds, op: ds.interleave(
        user_function(op._map_func),
        cycle_length=op._cycle_length,
        block_length=op._block_length,
        num_parallel_calls=_parallelism(op),
    ),
}


def again(op: Any, on: Any) -> Any:
    """The operation `op` applied again to another input."""
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
