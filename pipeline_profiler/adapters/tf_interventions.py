"""Interventions on a tf.data graph that are tried and timed, not just named.

Each entry says when it applies, why it might help, how the user writes it, and builds the changed
dataset. Order is simplicity: among equals the first is recommended. The tf.data service runs in
this process (dispatcher and worker), which shows what moving the work out of the iterator's
threads buys before anybody sets up a cluster.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline_profiler.adapters.tf_graph import again, name_of, prefixes, rebuilt, user_function
from pipeline_profiler.record.plan import TriedIntervention
from pipeline_profiler.record.session import ProfileError
from pipeline_profiler.record.stages import Clock

INTERLEAVES = ("Interleave", "FlatMap", "ParallelInterleave")
OPEN = 16  # sources open at a time that are tried: TensorFlow's own start for AUTOTUNE
CACHE_BATCHES = 64
WARM_STEPS = 8
SHORT_EPOCH = 100
LEAST_SPREAD = 0.03  # half width of a gain: two short repeats agree by chance
FIRST_ELEMENT_S = 20.0


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
    """More sources open at a time than the user has; None where that many are open already."""
    kinds = [op for op in prefixes(dataset) if name_of(op) in INTERLEAVES]
    found = [op for op in kinds if name_of(op) != "ParallelInterleave" or _cycle(op) < OPEN]
    if not found:
        return None

    def exchange(op: Any, ds: Any) -> Any | None:
        import tensorflow as tf

        if not any(op is one for one in found):
            return None
        return ds.interleave(
            user_function(op._map_func),
            cycle_length=max(OPEN, _cycle(op)),
            block_length=int(getattr(op, "_block_length", 1)),
            num_parallel_calls=tf.data.AUTOTUNE,
        )

    return rebuilt(dataset, exchange)


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


def _service(dataset: Any) -> Any | None:
    import tensorflow as tf

    if calls_python(dataset):
        raise ProfileError("the dataset calls Python (py_function), which no other machine can run")
    service = tf.data.experimental.service
    dispatcher = service.DispatchServer()
    address = dispatcher.target.split("://")[1]
    worker = service.WorkerServer(service.WorkerConfig(dispatcher_address=address))
    distributed = dataset.apply(
        service.distribute(processing_mode="parallel_epochs", service=dispatcher.target)
    )
    distributed._profiler_servers = (dispatcher, worker)  # alive as long as the dataset
    return distributed


def calls_python(dataset: Any) -> bool:
    """Whether a function of the graph holds a py_function, numpy_function or generator.

    In a dataset that an interleave makes as well: the server that runs Python waits for it when it
    is stopped, and Python waits for the server.
    """
    for op in prefixes(dataset):
        wrapper = getattr(op, "_map_func", None)
        graph = getattr(getattr(wrapper, "function", None), "graph", None)
        kinds = _operations(graph) if graph is not None else set()
        # a generator's Python sits in functions of the GeneratorDataset inside its flat_map
        if any("PyFunc" in kind or kind == "GeneratorDataset" for kind in kinds):
            return True
    return False


def _operations(graph: Any) -> set[str]:
    """Kinds of the operations of a function, and of the functions it calls."""
    definition = graph.as_graph_def()
    bodies = [definition.node, *(called.node_def for called in definition.library.function)]
    return {node.op for body in bodies for node in body}


def drop_fields(fields: tuple[str, ...]) -> Callable[[Any], Any | None]:
    """Drop dictionary fields at the first prefix that has them, before the maps that follow."""

    def build(dataset: Any) -> Any | None:
        for prefix in prefixes(dataset):
            spec = prefix.element_spec
            if isinstance(spec, dict) and set(fields) <= set(spec):
                return _insert(dataset, prefix, _without(fields))
        return None

    return build


def _without(fields: tuple[str, ...]) -> Callable[[Any], Any]:
    return lambda x: {key: value for key, value in x.items() if key not in fields}


def _insert(dataset: Any, after: Any, function: Callable[[Any], Any]) -> Any:
    import tensorflow as tf

    chain = prefixes(dataset)
    if after is chain[-1]:
        return dataset.map(function, num_parallel_calls=tf.data.AUTOTUNE)
    at = next(i for i, prefix in enumerate(chain) if prefix is after)
    following = chain[at + 1]

    def exchange(op: Any, ds: Any) -> Any | None:
        return again(op, ds.map(function)) if op is following else None

    return rebuilt(dataset, exchange)


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
    Intervention(
        "tf.data service",
        "the preparation does not keep up in this process",
        "tf.data service with workers on other machines",
        _service,
    ),
)


def apply(dataset: Any, name: str, fields: tuple[str, ...] = ()) -> Any:
    """The dataset with one intervention; ProfileError where it does not apply."""
    table = {i.name: i.build for i in INTERVENTIONS} | {"drop unused fields": drop_fields(fields)}
    changed = table[name](dataset) if name in table else None
    if changed is None:
        raise ProfileError(f"The intervention '{name}' does not apply to this dataset.")
    return changed


def try_all(
    dataset: Any,
    step: Callable[[Any], Any],
    seconds: float,
    fields: tuple[str, ...] = (),
    repeats: int = 2,
    clock: Clock = time.perf_counter_ns,
    seed: int = 0,
) -> tuple[list[TriedIntervention], list[str]]:
    """(one row per tried intervention, sentences about those that could not be tried).

    In each repeat the dataset as it is and every changed one run once, in random order, each for
    `seconds` after a warm-up half as long.
    """
    changes, notes = _changes(dataset, fields)
    rng, rounds = random.Random(seed), []
    for _ in range(repeats):
        order: list[tuple[Intervention | None, Any]] = [(None, dataset), *changes]
        rng.shuffle(order)
        rounds.append({offer: pace(ds, step, seconds, clock) for offer, ds in order})
    return [_row(offer, rounds) for offer, _ in changes], notes


def _changes(
    dataset: Any, fields: tuple[str, ...]
) -> tuple[list[tuple[Intervention, Any]], list[str]]:
    """Every intervention that applies with its dataset, and why the others could not be tried."""
    changes, notes = [], []
    offers = list(INTERVENTIONS)
    if fields:
        why = f"the step never touches {', '.join(fields)}"
        how = "drop the fields with a map before the costly one"
        offers.insert(1, Intervention("drop unused fields", why, how, drop_fields(fields)))
    for offer in offers:
        changed, note = _attempt(offer, dataset)
        if note:
            notes.append(note)
        if changed is not None:
            changes.append((offer, changed))
    return changes, notes


def _attempt(offer: Intervention, dataset: Any) -> tuple[Any | None, str]:
    try:
        changed = offer.build(dataset)
        if changed is not None:
            _first_element(changed)  # a graph that cannot run says so here
        return changed, ""
    except Exception as error:  # noqa: BLE001 - TensorFlow raises many kinds; the reason is kept
        text = str(error).splitlines()
        return None, f"{offer.name} could not be tried: {text[0] if text else type(error).__name__}"


def _first_element(dataset: Any) -> None:
    """One element within a time limit; a service that cannot serve would wait for ever."""
    failed: list[Exception] = []

    def fetch() -> None:
        try:
            next(iter(dataset), None)
        except Exception as error:  # noqa: BLE001 - handed to the caller's thread
            failed.append(error)

    thread = threading.Thread(target=fetch, daemon=True)
    thread.start()
    thread.join(FIRST_ELEMENT_S)
    if thread.is_alive():
        raise ProfileError(f"no element within {FIRST_ELEMENT_S:.0f} s")
    if failed:
        raise failed[0]


def _row(offer: Intervention, rounds: list[dict[Intervention | None, float]]) -> TriedIntervention:
    gains = [1 - times[offer] / times[None] for times in rounds]
    return {
        "name": offer.name,
        "why": offer.why,
        "how": offer.how,
        "baseline_ms": float(np.mean([times[None] for times in rounds])),
        "period_ms": float(np.mean([times[offer] for times in rounds])),
        "spread": max(LEAST_SPREAD, 2 * float(np.ptp(gains))),
        "repeats": len(rounds),
        "gains": gains,
    }


def pace(dataset: Any, step: Callable[[Any], Any], seconds: float, clock: Clock) -> float:
    """Mean ms a step, epochs restarted as they end (their start-up counts), after a warm-up.

    The warm-up lasts half as long as the timing, at least 8 steps: AUTOTUNE starts again with
    each iterator.
    """
    length = int(dataset.cardinality().numpy())
    # short epochs: at least two of them, and whole ones, as each has one start-up
    short = 0 < length <= SHORT_EPOCH
    least = 2 * length if short else 4
    begun, start, steps, counted = clock(), 0, 0, 0
    while True:
        before = steps
        for batch in dataset:
            step(batch)
            steps += 1
            if start:
                counted += 1
                whole = not short or counted % length == 0
                if whole and counted >= least and clock() - start > seconds * 1e9:
                    return (clock() - start) / counted / 1e6
            elif steps >= WARM_STEPS and clock() - begun > seconds * 0.5e9:
                start = clock()
        if steps == before:
            raise ProfileError("The dataset is empty: there is nothing to time.")
