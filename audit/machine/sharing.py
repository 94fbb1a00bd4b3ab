"""How the heavy steps of a search are shared out: in this process, or by whoever offers more hands.

A step is a picklable function of a list of parts and the parts themselves; what it returns for
several lists is put together by the step. In this process it gets all parts at once and its threads
take one after the other (`at_once`); over machines each gets some
(`audit.neighbors.shared_search`). What a step reads, signatures and descriptors, are arrays here
and a `RowTable` of another kind there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from threadpoolctl import threadpool_limits

from audit.machine.compiled import usable_threads

Part = TypeVar("Part")
Made = TypeVar("Made")
Found = TypeVar("Found", covariant=True)

Advance = Callable[[float], None]
"""Gets the share of a step that is done, 0 to 1."""


def ignore_share(_: float) -> None:
    """Ignore the progress of a step."""


class RowTable(Protocol):
    """Rows of fixed width that are fetched when they are asked for, by numbers or a slice."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Any, /) -> Any: ...


class SearchStep(Protocol[Found]):
    """The heavy part of a step: a list of parts in, what was found among them out."""

    def __call__(self, parts: Sequence[Any], advance: Advance = ignore_share) -> Found:
        """Do the parts."""
        ...


class Share(Protocol):
    """Does a step: yields what was found, list by list of parts, in any order."""

    def __call__(
        self, step: SearchStep[Found], parts: Sequence[Any], advance: Advance
    ) -> Iterable[Found]:
        """Share out the parts."""
        ...


def by_rows(work: Callable[[slice], Made], n: int, block: int) -> Iterator[Made]:
    """Yield what `work` makes of each `block` of n rows, in order, on all cores.

    BLAS has one thread in each: its own threads wait by spinning, ten times the processor time
    where other programs run, and sum in another order on another number of cores.
    """
    parts = [slice(start, min(start + block, n)) for start in range(0, n, block)]
    if len(parts) < 2:
        yield from map(work, parts)
        return
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(usable_threads()) as pool:
        yield from pool.map(work, parts)


def at_once(step: SearchStep[Found], parts: Sequence[Any], advance: Advance) -> Iterable[Found]:
    """Do all parts in this process; its threads share them."""
    return [step(parts, advance)]
