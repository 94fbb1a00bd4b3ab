"""Folders listed: the names in one, sizes and times of its files, and the names at a tree's top.

The layout is inferred from two levels of names before the walk, the first 20 folders by name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from audit.sources import names
from audit.sources.formats import KINDS, extension_of_name, named_as_images
from dataset_preflight.foundation.files import regular

FOLDERS_LISTED = 20
MOST_OUTER = 4
"""Lone folders, one in another, that are looked through for what is inside."""
MOST_DISTANT_READS = 200
"""Files that are opened to tell the layout of a tree that is in no file system."""
_HEAD_BYTES = 64 * 1024


@dataclass(slots=True)
class FolderEntries:
    """The entries of one folder: names by kind, each sorted; links are files or folders as well."""

    files: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    special: list[str] = field(default_factory=list)
    links: set[str] = field(default_factory=set)


def list_folder(path: str) -> FolderEntries:
    """Return what is in a folder; raises OSError if it cannot be listed."""
    entries = FolderEntries()
    files, folders = entries.files, entries.folders
    with os.scandir(path) as scan:
        for entry in scan:
            if entry.is_file(follow_symlinks=False):
                files.append(entry.name)
            elif entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            elif entry.is_symlink():
                entries.links.add(entry.name)
                _add_link(entry, entries)
            else:
                entries.special.append(entry.name)
    # The file system's order differs between machines; findings must not.
    for some in (files, folders, entries.special):
        some.sort()
    return entries


def _add_link(entry: os.DirEntry[str], entries: FolderEntries) -> None:
    try:
        if entry.is_dir():
            entries.folders.append(entry.name)
            return
        # A pipe behind a link must not be opened either; a broken link is listed as a file.
        special = not entry.is_file() and os.path.exists(entry.path)
    except OSError:
        special = False
    (entries.special if special else entries.files).append(entry.name)


def contains(folder: str, path: str) -> bool:
    """Return whether a real path is a folder or lies below it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def leads_up(link: str, target: str) -> bool:
    """Return whether the real folder of a link contains the link."""
    return contains(target, os.path.realpath(os.path.dirname(link)))


def ends_of(path: str) -> Iterator[str]:
    """Yield a path and what remains of it without its first folders: `a/b`, `b`."""
    parts = path.split("/") if path else []
    return ("/".join(parts[first:]) for first in range(len(parts)))


def longest_end(path: str, known: Container[str]) -> str | None:
    """Return the longest end of a path that is known, None without one."""
    return next((end for end in ends_of(path) if end in known), None)


def stat_files(folder: str, files: Sequence[str]) -> tuple[list[int], list[int], list[int]]:
    """Return bytes, mtimes and ctimes (ns) of files of one folder, links followed; -1: absent."""
    n_bytes, mtimes, ctimes = list[int](), list[int](), list[int]()
    stat, prefix, opened = os.stat, "", None
    try:
        opened = os.open(folder, os.O_RDONLY)  # paths relative to it are found faster
    except OSError:
        prefix = os.path.join(folder, "")
    for name in files:
        try:
            found = stat(prefix + name, dir_fd=opened)
        except OSError:
            size = mtime = ctime = -1
        else:
            size, mtime, ctime = found.st_size, found.st_mtime_ns, found.st_ctime_ns
        n_bytes.append(size)
        mtimes.append(mtime)
        ctimes.append(ctime)
    if opened is not None:
        os.close(opened)
    return n_bytes, mtimes, ctimes


def is_hidden(name: str) -> bool:
    """Return whether a name is hidden or one that an operating system leaves behind."""
    return name.startswith(".") or name.lower() in names.SYSTEM


@dataclass(slots=True)
class Level:
    """Folders that could mean a split or a class, wherever containers put them: {name: paths}."""

    folders: dict[str, list[str]] = field(default_factory=dict)
    n_images: int = 0


class FolderListing:
    """The folders listed so far, by path; a folder that cannot be listed counts as empty."""

    def __init__(
        self, root: str, list_one: Callable[[str], FolderEntries] = list_folder,
        read_ends: Callable[[str], str] | None = None,
    ) -> None:  # fmt: skip
        """Start at `root`, an absolute path; a folder is listed at its first use."""
        self.root, self._list_one = root, list_one
        self._read_ends, self._reads_left = read_ends, MOST_DISTANT_READS
        self._entries: dict[str, FolderEntries] = {}
        self._others: dict[str, list[str]] = {}

    def entries(self, path: str) -> FolderEntries:
        """Return the entries of a folder, read once."""
        if path not in self._entries:
            try:
                entries = self._list_one(path)
            except OSError:
                entries = FolderEntries()
            entries.folders = [name for name in entries.folders if not is_hidden(name)]
            self._entries[path] = entries
        return self._entries[path]

    def _other_files(self, path: str) -> list[str]:
        """Return the files of a folder but for those named like pictures, found once."""
        if path not in self._others:
            files = self.entries(path).files
            images = set(named_as_images(files))
            self._others[path] = [name for name in files if name not in images]
        return self._others[path]

    def level(self, path: str) -> Level:
        """Return the meaningful folders under `path`: containers opened, annotations left out."""
        level = Level()
        self._fill(level, path, 0, linked=False)
        return level

    def _fill(self, level: Level, path: str, depth: int, *, linked: bool) -> None:
        entries = self.entries(path)
        level.n_images += sum(map(_has_image_extension, entries.files))
        beside = beside_images(entries)
        own_name = "" if path == self.root else os.path.basename(path)
        for name in entries.folders:
            child = os.path.join(path, name)
            if names.is_annotation(name, beside_images=beside):
                continue
            transparent = names.is_container(name) or repeats_parent(name, own_name, entries)
            link = name in entries.links
            if link and transparent and (linked or leads_up(child, os.path.realpath(child))):
                continue
            if depth < 4 and transparent:
                self._fill(level, child, depth + 1, linked=linked or link)
            else:
                level.folders.setdefault(name, []).append(child)

    def head_and_tail(self, path: str) -> str:
        """Return the first and the last 64 KiB of a text file, '' if it cannot be read."""
        if self._read_ends is None:
            return head_and_tail(path)
        self._reads_left -= 1
        return self._read_ends(path) if self._reads_left >= 0 else ""

    def saw_images(self) -> bool:
        """Return whether a folder listed so far contains a file named like a picture."""
        return any(
            _has_image_extension(name) and not is_hidden(name)
            for entries in self._entries.values()
            for name in entries.files
        )

    def outer_folders(self) -> list[str]:
        """Return the root and lone folders below it, `VOCdevkit/VOC2007`, the innermost last."""
        outer = [self.root]
        for _ in range(MOST_OUTER):
            inside = self.entries(outer[-1])
            if len(inside.folders) != 1 or named_as_images(inside.files):
                break
            outer.append(os.path.join(outer[-1], inside.folders[0]))
        return outer

    def near_folders(self) -> Iterator[str]:
        """Yield the outer folders and two levels below the innermost, the first 20 of each."""
        outer = self.outer_folders()
        yield from outer
        for name in self.entries(outer[-1]).folders[:FOLDERS_LISTED]:
            first = os.path.join(outer[-1], name)
            yield first
            for inner in self.entries(first).folders[:FOLDERS_LISTED]:
                yield os.path.join(first, inner)

    def files(self, folder: str, *extensions: str, limit: int = 8) -> list[str]:
        """Return paths of the first few visible files of `folder` with one of the extensions."""
        wanted = (
            os.path.join(folder, name)
            for name in self._other_files(folder)
            if extension_of_name(name) in extensions and not name.startswith(".")
        )
        return list(islice(wanted, limit))


def repeats_parent(name: str, parent: str, beside: FolderEntries) -> bool:
    """Return whether a lone folder repeats its parent's name, as in `seg_train/seg_train/cat`.

    Not so beside others: the class `train` in the split `train` is a class.
    """
    if name.lower() != parent.lower():
        return False
    return all(folder == name or is_hidden(folder) for folder in beside.folders)


def beside_images(entries: FolderEntries) -> bool:
    """Return whether a folder contains pictures, or folders whose names announce them."""
    named = any(names.is_container(name) or names.split_word(name) for name in entries.folders)
    return named or any(map(_has_image_extension, entries.files))


def _has_image_extension(name: str) -> bool:
    return KINDS.get(extension_of_name(name)) == "image"


def head_and_tail(path: str) -> str:
    """Return the first and the last 64 KiB of a text file, '' if it cannot be read."""
    try:
        with open(path, "rb", opener=regular) as file:
            head = file.read(_HEAD_BYTES)
            rest = file.seek(0, os.SEEK_END) - _HEAD_BYTES
            file.seek(max(_HEAD_BYTES, rest))
            return (head + file.read(_HEAD_BYTES)).decode("utf-8", "replace")
    except OSError:
        return ""
