"""The objects of a store as a tree of folders, so that they are read as a folder is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from audit.sources.listed_tree import ListedTree, Status
from audit.sources.object_store import SCHEME, object_times, read_object


class StoredTree(ListedTree):
    """Objects by their path below `root`, an address without a slash at its end."""

    def __init__(self, root: str, objects: Mapping[str, Mapping[str, Any]]) -> None:
        """Take the objects of a listing, by their path below the root."""
        super().__init__(root)
        self._infos: dict[str, Mapping[str, Any]] = {}
        for name, info in objects.items():
            *folders, file = name.split("/")
            self._infos[self.add_name(self.make_folder(folders), file)] = info
        self.sort()

    def status(self, path: str) -> Status:
        """Return where an object is, and what the store says of it."""
        n_bytes, mtime_ns, tag = object_times(self._infos[path])
        return Status(f"{SCHEME}{path}", n_bytes, mtime_ns, tag)

    def read(self, path: str, limit: int, start: int = 0, size: int | None = None) -> bytes:
        """Return the bytes of an object, or a range; raises ReadingError."""
        return read_object(path, limit, start, size)
