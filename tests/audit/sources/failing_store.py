"""A store in memory that fails as it is told: `failing://`, by the name of an object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from fsspec.implementations.memory import MemoryFileSystem

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
