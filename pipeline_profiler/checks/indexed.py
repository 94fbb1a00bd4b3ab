"""Datasets as rows with an index: those of a DataLoader, arrays of fit, graphs of tf.data.

`rows[i]` makes sample i anew each time. For a tf.data graph, the k-th request for element i reads
the k-th pass over its first MOST elements, without shuffles and batches.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_profiler.checks.batches import as_array, inputs_and_targets
from pipeline_profiler.checks.loader_subject import LoaderSubject
from pipeline_profiler.checks.user_code import Patience, users_code
from pipeline_profiler.profiling.adapters import kind_of
from pipeline_profiler.profiling.adapters.tf_graph import name_of, prefixes, rebuilt
from pipeline_profiler.profiling.record.errors import ProfileError

Made = tuple[NDArray[Any] | None, NDArray[Any] | None]
SECONDS = 4.0
MOST = 600  # elements of a graph: what the checks of contents look at
TAKEN_OUT = ("Shuffle", "Repeat", "Prefetch")
ORDERED = ("Take", "Skip", "Shard", "Zip", "Concatenate", "Window")  # what they give is the order's


def made_sample(subject: LoaderSubject, dataset: Any, index: int) -> Made:
    """(inputs, targets) of a sample as arrays, made now."""
    with users_code(f"dataset[{index}]"):
        inputs, targets = inputs_and_targets(dataset[index], subject.split)
    return as_array(inputs), None if targets is None else as_array(targets)


def made_samples(subject: LoaderSubject, dataset: Any, indices: Iterable[int]) -> Iterator[Made]:
    """Samples in this order, for some seconds; at least one."""
    left = max(0.5, min(SECONDS, (subject.deadline - time.monotonic()) / 4))
    patience = Patience(left, 3 * left)
    for index in indices:
        yield made_sample(subject, dataset, index)
        if patience.over:
            return


def random_indices(dataset: Any, most: int) -> list[int]:
    """Up to `most` indices in a random order, equal for each call."""
    found: list[int] = np.random.default_rng(0).permutation(len(dataset))[:most].tolist()
    return found


def spread_indices(dataset: Any, most: int) -> list[int]:
    """Up to `most` indices at equal distances."""
    return [int(i) for i in np.linspace(0, len(dataset) - 1, min(most, len(dataset)))]


def rows_of(loader: Any) -> Any:
    """The samples of a loader by index; None where they have none."""
    if getattr(loader, "_dataset_kind", 1) == 0:
        return loader.dataset
    if hasattr(loader, "indexed_rows"):  # arrays of Keras' fit
        return loader.indexed_rows
    if loader is None or kind_of(loader) != "tf":
        return None
    if not hasattr(loader, "_rows"):
        try:
            loader._rows = GraphRows(loader)
        except ProfileError:
            loader._rows = None
    return loader._rows


class GraphRows:
    """The first elements of a tf.data graph, of `total` (-1: unknown).

    files: its image files. augments: an operation draws random numbers. kept: a cache follows it.
    """

    def __init__(self, dataset: Any) -> None:
        chain = prefixes(dataset)
        names = [name_of(op) for op in chain]
        first = names.index("Shuffle") if "Shuffle" in names else len(names)
        if any(name in ORDERED for name in names[first:]):
            raise ProfileError("The graph is shuffled before it is cut or joined.")
        batched = next((i for i, name in enumerate(names) if "Batch" in name), len(names))

        def exchange(op: Any, on: Any) -> Any:
            own_file = name_of(op) == "Cache" and op._filename.numpy()
            return on if name_of(op) in TAKEN_OUT or own_file else None

        plain = rebuilt(dataset, exchange)
        self._plain = plain.unbatch() if batched < len(names) else plain
        draws = [i for i, op in enumerate(chain) if _draws(op)]
        self.augments = bool(draws)
        self.kept = bool(draws) and "Cache" in names[draws[0] :]
        self.total = int(chain[min(batched, len(chain)) - 1].cardinality())
        self.files = _files_of(chain[0])
        self._passes: list[list[Any]] = []
        self._requests: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self._pass(0))

    def __getitem__(self, index: int) -> Any:
        self._requests[index] += 1
        return self._pass(self._requests[index] - 1)[index]

    def _pass(self, number: int) -> list[Any]:
        while len(self._passes) <= number:
            with users_code("The dataset"):
                self._passes.append(list(itertools.islice(self._plain.as_numpy_iterator(), MOST)))
        return self._passes[number]


def all_rows(rows: Any) -> bool:
    """Whether `rows` are the whole dataset, not its beginning."""
    return not isinstance(rows, GraphRows) or rows.total == len(rows)


def _draws(op: Any) -> bool:
    """Whether the function of an operation holds a random one."""
    function = getattr(getattr(op, "_map_func", None), "function", None)
    if function is None:
        return False
    graph = function.graph.as_graph_def()
    nodes = itertools.chain(graph.node, *(f.node_def for f in graph.library.function))
    return any("Random" in node.op for node in nodes)


def _files_of(source: Any) -> list[Path]:
    """The files that a dataset of names has; [] for any other."""
    if str(getattr(source.element_spec, "dtype", "")) != "<dtype: 'string'>":
        return []
    names = [Path(bytes(name).decode(errors="replace")) for name in source.as_numpy_iterator()]
    return names if names and names[0].is_file() else []


def reshuffled_split(train: Any, test: Any) -> bool:
    """Whether take() and skip() cut one graph behind a shuffle that is drawn anew each epoch."""
    if not all(loader is not None and kind_of(loader) == "tf" for loader in (train, test)):
        return False
    ours, theirs = prefixes(train), prefixes(test)
    for op in ours:
        if name_of(op) == "Shuffle" and op._reshuffle_each_iteration and op in theirs:
            behind = [{*map(name_of, chain[chain.index(op) :])} for chain in (ours, theirs)]
            if all(names & {"Take", "Skip"} for names in behind):
                return True
    return False
