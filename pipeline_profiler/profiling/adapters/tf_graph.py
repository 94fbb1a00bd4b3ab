"""The graph of a tf.data.Dataset: walked from the source to the end, and rebuilt with a change.

`Dataset._inputs()` gives each prefix. An operation unknown here stops the rebuild, never the
measurement.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from pipeline_profiler.profiling.record.plan import TriedIntervention
from pipeline_profiler.profiling.record.session import ProfileError
from pipeline_profiler.profiling.record.stages import Clock


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


Rebuild = Callable[[Any, Any], Any]


def user_function(wrapper: Any) -> Any:
    """The Python function inside an operation's wrapper."""
    return wrapper._func


_AGAIN: dict[str, Rebuild] = {
    "Map": lambda ds, op: ds.map(user_function(op._map_func)),
    "ParallelMap": lambda ds, op: ds.map(
        user_function(op._map_func), num_parallel_calls=op._num_parallel_calls
    ),
    "Batch": lambda ds, op: ds.batch(op._batch_size, drop_remainder=op._drop_remainder),
    "ParallelBatch": lambda ds, op: ds.batch(
        op._batch_size, op._drop_remainder, num_parallel_calls=op._num_parallel_calls
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
        user_function(op._map_func), op._cycle_length, op._block_length
    ),
    "ParallelInterleave": lambda ds, op: ds.interleave(
        user_function(op._map_func), op._cycle_length, op._block_length, op._num_parallel_calls
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


# In order of simplicity: among equals the first is recommended.
INTERLEAVES = ("Interleave", "FlatMap", "ParallelInterleave")
OPEN = 16  # sources open at a time that are tried: TensorFlow's own start for AUTOTUNE
CACHE_BATCHES = 64
WARM_STEPS = 8
SHORT_EPOCH = 100
LEAST_TIMED = 4  # steps
LEAST_SPREAD = 0.03  # half width of a gain: two short repeats agree by chance
ONE_SPREAD = 0.1  # of a gain that was timed once


@dataclass(frozen=True)
class Intervention:
    """One change of the graph; `build` returns None where it does not apply."""

    name: str
    why: str
    how: str
    build: Callable[[Any], Any | None]


def _prefetch(dataset: Any) -> Any | None:
    import tensorflow as tf

    names = [name_of(p) for p in prefixes(dataset) if name_of(p) != "Options"]
    return None if names[-1] == "Prefetch" else dataset.prefetch(tf.data.AUTOTUNE)


def _swap(kinds: tuple[str, ...], make: Callable[[Any, Any], Any]) -> Callable[[Any], Any | None]:
    """Exchange every operation of a kind; None where the graph has none."""

    def build(dataset: Any) -> Any | None:
        if not any(name_of(p) in kinds for p in prefixes(dataset)):
            return None
        return rebuilt(dataset, lambda op, ds: make(ds, op) if name_of(op) in kinds else None)

    return build


def _parallel_map(ds: Any, op: Any) -> Any:
    import tensorflow as tf

    return ds.map(user_function(op._map_func), num_parallel_calls=tf.data.AUTOTUNE)


def _wider_interleave(dataset: Any) -> Any | None:
    """Return a graph with more open sources; None with one source, or with that many open."""
    kinds = [op for op in prefixes(dataset) if name_of(op) in INTERLEAVES and not _single(op)]
    found = [op for op in kinds if name_of(op) != "ParallelInterleave" or _cycle(op) < OPEN]
    if not found:
        return None

    def exchange(op: Any, ds: Any) -> Any | None:
        import tensorflow as tf

        if not any(op is one for one in found):
            return None
        block = int(getattr(op, "_block_length", 1))
        open_now = max(OPEN, _cycle(op))
        return ds.interleave(user_function(op._map_func), open_now, block, tf.data.AUTOTUNE)

    return rebuilt(dataset, exchange)


def _single(op: Any) -> bool:
    """Whether an operation takes the elements of one source alone."""
    return all(int(source.cardinality()) == 1 for source in op._inputs())


def _cycle(op: Any) -> int:
    """Sources that an operation has open at a time; 1 for a flat_map."""
    return int(getattr(op, "_cycle_length", 1))


def _smaller_shuffle(ds: Any, op: Any) -> Any:
    size = max(1, int(op._buffer_size) // 8)
    return ds.shuffle(size, reshuffle_each_iteration=op._reshuffle_each_iteration)


def _cache(dataset: Any) -> Any | None:
    """The cached part is a sample of the data: what counts is the pace of the second pass."""
    if any(name_of(p) == "Cache" for p in prefixes(dataset)):
        return None
    return dataset.take(CACHE_BATCHES).cache()


def from_generator(dataset: Any) -> bool:
    """Whether a Python generator makes its elements, one at a time."""
    functions = (getattr(op, "_map_func", None) for op in prefixes(dataset))
    graphs = [getattr(getattr(f, "function", None), "graph", None) for f in functions]
    operations = (op for graph in graphs if graph is not None for op in graph.get_operations())
    return any(op.type == "GeneratorDataset" for op in operations)


def drop_fields(fields: tuple[str, ...]) -> Callable[[Any], Any | None]:
    """Drop dictionary fields at the first prefix that has them, before the maps that follow."""

    def without(x: Any) -> Any:
        return {key: value for key, value in x.items() if key not in fields}

    def build(dataset: Any) -> Any | None:
        import tensorflow as tf

        chain = prefixes(dataset)
        specs = [prefix.element_spec for prefix in chain]
        have = [isinstance(spec, dict) and set(fields) <= set(spec) for spec in specs]
        if not any(have):
            return None
        at = have.index(True) + 1
        if at == len(chain):
            return dataset.map(without, num_parallel_calls=tf.data.AUTOTUNE)
        follows = chain[at]
        return rebuilt(
            dataset, lambda op, ds: again(op, ds.map(without)) if op is follows else None
        )

    return build


INTERVENTIONS: tuple[Intervention, ...] = (
    Intervention(
        "prefetch",
        "nothing is prepared while the step runs",
        "dataset.prefetch(tf.data.AUTOTUNE) as the last operation",
        _prefetch,
    ),
    Intervention(
        "smaller shuffle buffer",
        "the buffer is filled again before the first batch of each epoch",
        "a smaller shuffle buffer over pre-shuffled files, or shuffle before the costly map",
        _swap(("Shuffle",), _smaller_shuffle),
    ),
    Intervention(
        "parallel map",
        "a map runs one element at a time",
        "map(..., num_parallel_calls=tf.data.AUTOTUNE)",
        _swap(("Map",), _parallel_map),
    ),
    Intervention(
        "parallel interleave",
        "few sources are read at a time",
        f"interleave(..., cycle_length={OPEN}, num_parallel_calls=tf.data.AUTOTUNE)",
        _wider_interleave,
    ),
    Intervention(
        "cache",
        "the same preparation is done in each epoch",
        "dataset.cache() after the last deterministic map (or cache(FILE) when it exceeds memory)",
        _cache,
    ),
)


def try_all(
    dataset: Any,
    step: Callable[[Any], Any],
    seconds: float,
    fields: tuple[str, ...] = (),
    repeats: int = 2,
    clock: Clock = time.perf_counter_ns,
    seed: int = 0,
    limit_s: float = math.inf,
) -> tuple[list[TriedIntervention], list[str]]:
    """Return (one row per tried intervention, sentences about those that could not be tried).

    Each repeat runs the dataset and each change for `seconds`, in random order after the first one.
    After `limit_s` no run begins, nor shortly before it one that takes longer than usual.
    """
    end, rng, rounds = clock() + limit_s * 1e9, random.Random(seed), []
    changes, notes = _changes(dataset, fields)
    for number in range(repeats):
        begun, times = clock(), dict[Intervention | None, float]()
        order: list[tuple[Intervention | None, Any]] = [(None, dataset), *changes]
        if number:
            rng.shuffle(order)
        for offer, ds in order:
            more = _longer_ns(ds, times.get(None, 0.0))
            if offer is None or number or clock() + more < end:
                times[offer] = pace(ds, step, seconds, clock)
            else:
                notes.append(f"{offer.name} was not tried: the time is used up")
        rounds.append(times)
        changes = [row for row in changes if row[0] in times]
        if 2 * clock() - begun > end:
            break
    return [_row(offer, rounds) for offer, _ in changes], notes


def _longer_ns(dataset: Any, period_ms: float) -> float:
    """Return what `pace` takes for a short epoch, which it times whole; 0 for a long one."""
    length = int(dataset.cardinality().numpy())
    return length * period_ms * 1e6 if 0 < length <= SHORT_EPOCH else 0.0


def _changes(
    dataset: Any, fields: tuple[str, ...]
) -> tuple[list[tuple[Intervention, Any]], list[str]]:
    """Every intervention that applies with its dataset, and why the others could not be tried."""
    changes, notes = [], []
    offers = [*INTERVENTIONS]
    if fields:
        why = f"the step never touches {', '.join(fields)}"
        how = "drop the fields with a map before the costly one"
        offers.insert(1, Intervention("drop unused fields", why, how, drop_fields(fields)))
    for offer in offers:
        try:
            changed = offer.build(dataset)
            if changed is not None:
                next(iter(changed), None)  # a graph that cannot run says so here
                changes.append((offer, changed))
        except Exception as error:  # noqa: BLE001 - TensorFlow raises many kinds
            why = (str(error).splitlines() or [type(error).__name__])[0]
            notes.append(f"{offer.name} could not be tried: {why}")
    return changes, notes


def _row(offer: Intervention, rounds: list[dict[Intervention | None, float]]) -> TriedIntervention:
    gains = [1 - times[offer] / times[None] for times in rounds]
    return {
        "name": offer.name,
        "why": offer.why,
        "how": offer.how,
        "baseline_ms": fmean(times[None] for times in rounds),
        "period_ms": fmean(times[offer] for times in rounds),
        "spread": max(LEAST_SPREAD, 2 * (max(gains) - min(gains)) if gains[1:] else ONE_SPREAD),
        "repeats": len(rounds),
        "gains": gains,
    }


def pace(dataset: Any, step: Callable[[Any], Any], seconds: float, clock: Clock) -> float:
    """Return the mean ms of a step, with the start of epochs, after a warm-up of half the time."""
    length = int(dataset.cardinality().numpy())
    # short epochs: whole ones, as each has one start-up, and two unless one takes long enough
    short = 0 < length <= SHORT_EPOCH
    least = length if short else LEAST_TIMED
    enough = (4 if short else 1) * seconds * 1e9
    begun, start, steps, counted = clock(), 0, 0, 0
    while True:
        before = steps
        for batch in dataset:
            step(batch)
            steps += 1
            if start:
                counted += 1
                whole = not short or counted % length == 0
                spent = clock() - start
                over = spent > (seconds * 1e9 if counted >= 2 * least else enough)
                if whole and counted >= least and over:
                    return (clock() - start) / counted / 1e6
            elif steps >= WARM_STEPS and clock() - begun > seconds * 0.5e9:
                start = clock()
        if steps == before:
            raise ProfileError("The dataset is empty: there is nothing to time.")
