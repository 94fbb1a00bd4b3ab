"""Share out heavy loops among the threads of this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import local
from typing import TypeVar

from threadpoolctl import threadpool_limits

from dataset_preflight.foundation.cores import usable_cores

Part = TypeVar("Part")
Made = TypeVar("Made")

MAX_THREADS = 16
"""Beyond that the tables that each thread keeps cost more than it saves."""
_LIMIT = local()

Advance = Callable[[float], None]
"""Gets the share of a step that is done, 0 to 1."""


def ignore_share(_: float) -> None:
    """Ignore the progress of a step."""


def thread_count() -> int:
    """Return how many Python threads share work among them: the usable cores."""
    return int(getattr(_LIMIT, "threads", min(usable_cores(), MAX_THREADS)))


@contextmanager
def one_thread() -> Iterator[None]:
    """Let this thread do its shared loops alone: where its caller is what is parallel."""
    before = thread_count()
    _LIMIT.threads = 1
    try:
        yield
    finally:
        _LIMIT.threads = before


def in_threads(work: Callable[[Part], Made], parts: Sequence[Part]) -> list[Made]:
    """Return what `work` makes of each part, on all cores."""
    if len(parts) < 2 or thread_count() == 1:
        return [work(part) for part in parts]
    with ThreadPoolExecutor(thread_count()) as pool:
        return list(pool.map(work, parts))


def row_blocks(n: int, block: int) -> list[slice]:
    """Return slices of `block` of n rows."""
    return [slice(start, min(start + block, n)) for start in range(0, n, block)]


def by_rows(work: Callable[[slice], Made], n: int, block: int) -> Iterator[Made]:
    """Yield `work` of each `block` of n rows, in order, on all cores; BLAS has one thread each."""
    parts = row_blocks(n, block)
    if len(parts) < 2:
        yield from map(work, parts)
        return
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(thread_count()) as pool:
        yield from pool.map(work, parts)
