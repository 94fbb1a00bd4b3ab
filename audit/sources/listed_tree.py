"""A tree of folders made of names: objects of a store, or members of archives, read as a folder is.

The shards of one dataset are one tree; a shard that is called after a split stands below a folder
of that name. A name that leads outside is read below the root; a repeated name is numbered.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from audit.sources.folder_listing import FolderEntries
from audit.sources.formats import KINDS, extension_of_name
from audit.sources.object_store import SCHEME, object_times, read_object
from audit.sources.packs.formats import PackFormat
from audit.sources.packs.members import PackMember, member_uri, read_range
from audit.sources.readings import ReadingError, ReadLog

END_BYTES = 64 << 10
MOST_WHOLE = 1 << 30  # bytes of a file whose length its listing does not tell
TEXTS_KEPT = 64


class Status(NamedTuple):
    """What a listing says of a file: where its bytes are, bytes, times in ns."""

    uri: str
    n_bytes: int
    mtime_ns: int
    ctime_ns: int


class ListedTree(ABC):
    """Folders and files by their path below `root`; what a file is, its makers say."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._texts: dict[str, str] = {}
        self._folders: dict[str, FolderEntries] = {root: FolderEntries()}

    def make_folder(self, parts: Sequence[str]) -> str:
        """Return the path of a folder by its names below the root, made where it is new."""
        path = self.root
        for part in parts:
            above, path = path, f"{path}/{part}"
            if path not in self._folders:
                self._folders[path] = FolderEntries()
                self._folders[above].folders.append(part)
        return path

    def add_name(self, folder: str, name: str) -> str:
        """Add a file to a folder and return its path."""
        self._folders[folder].files.append(name)
        return f"{folder}/{name}"

    def sort(self) -> None:
        """Bring the names of each folder into order, once all are there."""
        for entries in self._folders.values():
            entries.files.sort()
            entries.folders.sort()

    def entries(self, path: str) -> FolderEntries:
        """Return what is in a folder."""
        found = self._folders[path]
        return FolderEntries(list(found.files), list(found.folders))

    def kind(self, name: str, folder: str) -> str:
        """Return `image` or the reason why not, by the name alone."""
        return KINDS.get(extension_of_name(name), "not an image")

    def has_pictures(self) -> bool:
        """Return whether a file is called as a picture is, or known to be one."""
        return any(
            self.kind(name, folder) == "image"
            for folder, entries in self._folders.items()
            for name in entries.files
        )

    @abstractmethod
    def status(self, path: str) -> Status:
        """Return where the bytes of a file are, and what is known of it."""

    @abstractmethod
    def read(self, path: str, limit: int, start: int = 0, size: int | None = None) -> bytes:
        """Return the bytes of a file or a range, at most `limit`; raises ReadingError, OSError."""

    def has_file(self, path: str) -> bool:
        """Return whether there is a file of this path."""
        folder, _, name = path.rpartition("/")
        return folder in self._folders and name in self._folders[folder].files

    def head_and_tail(self, path: str) -> str:
        """Return the first and the last 64 KiB of a text file, '' if it cannot be read."""
        if path not in self._texts:
            if len(self._texts) >= TEXTS_KEPT:
                self._texts.clear()
            self._texts[path] = self._ends(path).decode("utf-8", "replace")
        return self._texts[path]

    def _ends(self, path: str) -> bytes:
        size = self.status(path).n_bytes
        try:
            if size < 0:
                whole = self.read(path, MOST_WHOLE)
                return whole[:END_BYTES] + whole[END_BYTES:][-END_BYTES:]
            head = self.read(path, END_BYTES, 0, min(size, END_BYTES)) if size else b""
            rest = min(size - END_BYTES, END_BYTES)
            return head + self.read(path, END_BYTES, size - rest, rest) if rest > 0 else head
        except (ReadingError, OSError):
            return b""

    def label_beside(self, path: str) -> str | None:
        """Return the label that a file beside it gives, None without one."""
        return None


class StoredTree(ListedTree):
    """Objects by their path below `root`, an address without a slash at its end."""

    def __init__(self, root: str, objects: Mapping[str, Mapping[str, Any]]) -> None:
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


_LABEL_KEYS = ("label", "class", "class_name", "cls", "target", "category")
_MOST_BESIDE = 1 << 20  # bytes of a file that holds a label


class Pack(NamedTuple):
    """One archive: its path, its format, and the times of its file, ns."""

    path: str
    form: PackFormat
    mtime_ns: int
    ctime_ns: int


class PackedTree(ListedTree):
    """The members of some archives by their path below `root`."""

    def __init__(self, root: str, log: ReadLog) -> None:
        super().__init__(root)
        self.log = log
        self._members: dict[str, tuple[Pack, str, int]] = {}

    def add(self, pack: Pack, members: Sequence[PackMember], split: str | None) -> None:
        """Add the members of a pack, below the folder of its split where it has one."""
        above = [split] if split else []
        for member in members:
            if parts := self._inside(pack, member.name):
                folder = self.make_folder([*above, *parts[:-1]])
                path = self.add_name(folder, self._free_name(folder, parts[-1]))
                self._members[path] = (pack, member.key, member.n_bytes)

    def _inside(self, pack: Pack, name: str) -> list[str]:
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if name.startswith("/") or ".." in parts:
            self.log.note(
                "outside-link",
                f"{os.path.basename(pack.path)} has the member {name!r}, which leads outside of "
                "the folder if it is unpacked carelessly: it is read below the root.",
            )
        return [part for part in parts if part != ".."]

    def _free_name(self, folder: str, name: str) -> str:
        stem, dot, rest = name.partition(".")
        free, number = name, 1
        while f"{folder}/{free}" in self._members:
            number += 1
            free = f"{stem}#{number}{dot}{rest}"
        if number > 1:
            self.log.note(
                "repeated-id",
                f"Several members have the name {name}: one member is recorded as {free}.",
            )
        return free

    def status(self, path: str) -> Status:
        """Return where the bytes of a file are, and what its pack says of it."""
        pack, key, n_bytes = self._members[path]
        uri = member_uri(pack.form.NAME, pack.path, key)
        return Status(uri, n_bytes, pack.mtime_ns, pack.ctime_ns)

    def read(self, path: str, limit: int, start: int = 0, size: int | None = None) -> bytes:
        """Return the bytes of a member, or a range; raises ReadingError, OSError."""
        pack, key, n_bytes = self._members[path]
        if size is None:
            return pack.form.read_member(pack.path, key, limit)
        if pack.form.NAME == "tar":  # members lie in one piece: the key begins with the first byte
            return read_range(pack.path, int(key.partition("+")[0]) + start, size)
        return pack.form.read_member(pack.path, key, min(n_bytes, MOST_WHOLE))[start : start + size]

    def label_beside(self, path: str) -> str | None:
        """Return the label in a file of the same key: `7.cls` or `7.json` beside `7.jpg`."""
        folder, _, name = path.rpartition("/")
        key = f"{folder}/{name.partition('.')[0]}"
        for ending in (".cls", ".cls.txt"):
            if (text := self._text(key + ending)) is not None:
                return text.strip() or None
        try:
            found = json.loads(self._text(key + ".json") or "")
        except (ValueError, RecursionError):
            return None
        values = [found[k] for k in _LABEL_KEYS if k in found] if isinstance(found, dict) else []
        return str(values[0]) if values and isinstance(values[0], str | int) else None

    def _text(self, path: str) -> str | None:
        try:
            return self.read(path, _MOST_BESIDE).decode("utf-8", "replace")
        except (KeyError, ReadingError, OSError):
            return None
