"""Pictures on other machines, read some at a time, before the worker that measures asks for them.

Objects of stores, members of packs that lie in a store, and rows that hold an address: each takes
a round trip or several, during which a worker has other pictures to measure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from audit.sources.object_store import AT_ONCE, SCHEME, is_object, read_object
from audit.sources.packs.formats import is_fetched, read_packed
from audit.sources.packs.members import is_distant, is_member, member_place


@contextmanager
def reading_ahead(
    places: Sequence[str | None], limit: int
) -> Iterator[Mapping[str, Future[bytes]]]:
    """Begin to read what lies elsewhere among some places; give the answers to come, by place."""
    reads = {place: read for place in places if place and (read := _distant_read(place))}
    if not reads:
        yield {}
        return
    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        yield {place: pool.submit(read, place, limit) for place, read in reads.items()}
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _distant_read(place: str) -> Callable[[str, int], bytes] | None:
    """Return how a picture elsewhere is read, None for one on this machine."""
    if is_object(place):
        return lambda url, limit: read_object(url.removeprefix(SCHEME), limit)
    if not is_member(place):
        return None
    form, path, _ = member_place(place)
    return read_packed if is_distant(path) or is_fetched(form) else None
