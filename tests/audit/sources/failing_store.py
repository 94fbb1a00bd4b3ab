"""A store in memory that fails as it is told: `failing://`, by the name of an object."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from audit.sources import object_store

Failure = Exception | bytes | Callable[[bytes], bytes]
"""What comes in the place of an answer: an error, other bytes, or the answer changed."""


class Failing(MemoryFileSystem):  # type: ignore[misc]
    """Each request for an object takes one of the failures that wait for its name."""

    protocol = "failing"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    failures: ClassVar[dict[str, list[Failure]]] = {}

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.replace("failing://", "memory://")))

    @classmethod
    def forget(cls) -> None:
        """Begin with nothing stored and nothing that fails."""
        cls.store, cls.pseudo_dirs, cls.failures = {}, [""], {}

    def cat_file(self, path: str, start: Any = None, end: Any = None, **more: Any) -> bytes:
        """Return bytes of an object, or what waits for it."""
        waiting = self.failures.get(path.rpartition("/")[2])
        failure = waiting.pop(0) if waiting else None
        if isinstance(failure, Exception):
            raise failure
        if isinstance(failure, bytes):
            return failure
        data = bytes(super().cat_file(path, start=start, end=end, **more))
        return failure(data) if failure else data


def serve(files: Mapping[str, bytes], monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Yield the store with the files under `/set`, tried again without a pause."""
    fsspec.register_implementation("failing", Failing, clobber=True)
    monkeypatch.setattr(object_store, "FIRST_PAUSE_S", 0.0)
    object_store._filesystem.cache_clear()
    Failing.forget()
    filesystem = fsspec.filesystem("failing")
    for name, data in files.items():
        filesystem.pipe(f"/set/{name}", data)
    yield filesystem
    Failing.forget()
    object_store._filesystem.cache_clear()
