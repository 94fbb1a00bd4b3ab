"""The members of archives as a tree of folders, so that they are read as an unpacked folder is.

Names inside mean what they mean in a folder: split, class, container, hidden. The shards of one
dataset are one tree; a shard that is called after a split stands below a folder of that name. A
name that leads outside loses what leads there; one that two members have is numbered.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass

from audit.sources.listed_tree import MOST_WHOLE, ListedTree, Status
from audit.sources.packs.formats import PackFormat
from audit.sources.packs.members import PackMember, member_uri, read_range
from audit.sources.read_log import ReadLog
from audit.sources.reading_error import ReadingError

RANGED = ("tar", "lmdb")
"""Formats whose members lie in one piece: the key begins with the first byte."""
LABEL_FILES = (".cls", ".cls.txt")
_LABEL_KEYS = ("label", "class", "class_name", "cls", "target", "category")
_MOST_BESIDE = 1 << 20  # bytes of a file that holds a label


@dataclass(frozen=True, slots=True)
class Pack:
    """One archive: its path, its format, and the times of its file, ns."""

    path: str
    form: PackFormat
    mtime_ns: int
    ctime_ns: int


class PackedTree(ListedTree):
    """The members of some archives by their path below `root`."""

    def __init__(self, root: str, log: ReadLog) -> None:
        """Begin without members; what is odd about them goes to `log`."""
        super().__init__(root)
        self.log = log
        self._members: dict[str, tuple[Pack, str, int]] = {}
        self._labels: dict[str, str] = {}
        self._pictures: set[str] = set()

    def add(self, pack: Pack, members: Sequence[PackMember], split: str | None) -> None:
        """Add the members of a pack, below the folder of its split where it has one."""
        named = [(self._inside(pack, member.name), member) for member in members]
        for parts, member in named:
            if parts:
                self._add_file(pack, [split, *parts] if split else parts, member)

    def _inside(self, pack: Pack, name: str) -> list[str]:
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if name.startswith("/") or ".." in parts:
            self.log.note(
                "outside-link",
                None,
                f"{os.path.basename(pack.path)} has a member that is called {name!r}, which leads "
                "outside where it is unpacked carelessly: it is read below the root.",
            )
        return [part for part in parts if part != ".."]

    def _add_file(self, pack: Pack, parts: Sequence[str], member: PackMember) -> None:
        folder = self.make_folder(parts[:-1])
        path = self.add_name(folder, self._free_name(folder, parts[-1]))
        self._members[path] = (pack, member.key, member.n_bytes)
        if member.label is not None:
            self._labels[path] = member.label
        if member.is_picture:
            self._pictures.add(path)

    def _free_name(self, folder: str, name: str) -> str:
        stem, dot, rest = name.partition(".")
        free, number = name, 1
        while f"{folder}/{free}" in self._members:
            number += 1
            free = f"{stem}#{number}{dot}{rest}"
        if number > 1:
            self.log.note(
                "repeated-id",
                None,
                f"Several members are called {name}: one is recorded as {free}.",
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
        if pack.form.NAME in RANGED:
            return read_range(pack.path, int(key.partition("+")[0]) + start, size)
        return pack.form.read_member(pack.path, key, min(n_bytes, MOST_WHOLE))[start : start + size]

    def kind(self, name: str, folder: str) -> str:
        """Return `image` or the reason why not: by the bytes where the pack told of them."""
        return "image" if f"{folder}/{name}" in self._pictures else super().kind(name, folder)

    def label_beside(self, path: str) -> str | None:
        """Return the label that the pack gives, or that of a file of the same key.

        Such files are `7.cls` and `7.json` beside `7.jpg`.
        """
        if path in self._labels:
            return self._labels[path]
        folder, _, name = path.rpartition("/")
        key = f"{folder}/{name.partition('.')[0]}"
        for ending in LABEL_FILES:
            if (text := self._text(key + ending)) is not None:
                return text.strip() or None
        if (text := self._text(key + ".json")) is None:
            return None
        try:
            found = json.loads(text)
        except ValueError:
            return None
        values = [found[k] for k in _LABEL_KEYS if k in found] if isinstance(found, dict) else []
        return str(values[0]) if values and isinstance(values[0], str | int) else None

    def _text(self, path: str) -> str | None:
        if path not in self._members:
            return None
        try:
            return self.read(path, _MOST_BESIDE).decode("utf-8", "replace")
        except (ReadingError, OSError):
            return None
