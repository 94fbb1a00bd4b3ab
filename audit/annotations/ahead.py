"""Work on the next part of a file while this one is used: parsing beside appending to the store."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def look_ahead(
    items: Iterable[Item], work: Callable[[Item], Result]
) -> Iterator[tuple[Item, Result]]:
    """Yield each item with what `work` makes of it, in order; a thread works on the next one.

    What `work` raises is raised here. It pays where `work` lets go of Python's lock.
    """
    waiting: deque[tuple[Item, Future[Result]]] = deque()
    with ThreadPoolExecutor(1) as thread:
        for item in items:
            waiting.append((item, thread.submit(work, item)))
            if len(waiting) > 1:
                done, future = waiting.popleft()
                yield done, future.result()
        for done, future in waiting:
            yield done, future.result()
