"""The heavy steps of the search for near-duplicates, spread over the nodes of an executor.

Signatures lie on the shared place in the order of their keys; nodes add descriptors, compare cells
and chunks, and verify candidates. The head decides threshold, groups and full-resolution checks,
and does the parts of a node that fails. Parts are put together free of order, so the answers equal
those of one process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from audit.cluster.shared_place import SharedPlace
from audit.cluster.stored_rows import FILE_ROWS, StoredRows
from audit.machine.executors import Executor, Failure
from audit.machine.sharing import (
    Advance,
    RowTable,
    SearchStep,
    Share,
    at_once,
    ignore_share,
    one_thread,
)
from audit.neighbors import descriptor
from audit.picture.signatures import SIGNATURE_DTYPE, Signatures

Found = TypeVar("Found")

MOST_CHUNKS = 256
"""Of a step: so many answers at most come to the head, and each node gets several."""


@dataclass(frozen=True, slots=True)
class SearchTables:
    """Signatures in the order of their pictures, descriptors, and who does the work on them."""

    signatures: RowTable
    descriptors: RowTable | None = None
    share: Share = at_once


class OverNodes:
    """Shares a step out over an executor, some parts to a chunk."""

    def __init__(self, executor: Executor) -> None:
        """Remember the executor."""
        self.executor = executor

    def __call__(
        self, step: SearchStep[Found], parts: Sequence[Any], advance: Advance
    ) -> Iterator[Found]:
        """Yield what each chunk found, as they end."""
        size, done = -(-len(parts) // MOST_CHUNKS) or 1, 0
        chunks = (parts[start : start + size] for start in range(0, len(parts), size))
        for chunk, outcome in self.executor.run(partial(_on_one_core, step), chunks):
            yield step(chunk) if isinstance(outcome, Failure) else outcome
            done += len(chunk)
            advance(done / len(parts))


def _on_one_core(step: SearchStep[Found], parts: Sequence[Any]) -> Found:
    """Do a step as a node does it: chunks are what is parallel there."""
    with one_thread():
        return step(parts)


def share_signatures(
    place: SharedPlace, executor: Executor, table: Signatures, rows: npt.NDArray[np.intp]
) -> SearchTables:
    """Write these rows of a table, which are in the order of their keys; nodes describe them."""
    n = len(rows)
    width = descriptor.layout().width
    signatures = StoredRows(place, "signatures", n, SIGNATURE_DTYPE)
    descriptors = StoredRows(place, "descriptors", n, np.float32, width)
    share, starts = OverNodes(executor), [start for start, _ in signatures.files()]
    for start, end in signatures.files():
        signatures.write(start, table[rows[start:end]])
    for _ in share(partial(_describe_files, signatures, descriptors), starts, ignore_share):
        pass
    return SearchTables(signatures, descriptors, share)


def _describe_files(
    signatures: StoredRows,
    descriptors: StoredRows,
    parts: Sequence[int],
    _: Advance = ignore_share,
) -> None:
    """Step: descriptors of each file of signatures."""
    for start in parts:
        end = min(start + FILE_ROWS, len(signatures))
        # a short last file reaches back, as the last batch in one process does
        first = max(0, min(start, end - descriptor.BATCH))
        descriptors.write(start, descriptor.describe(signatures[first:end])[start - first :])
