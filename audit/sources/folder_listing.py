"""A quick look at a tree before the walk: names only, two levels, no file sizes.

The layout is judged from this look. Listing a folder costs about 0.6 microseconds an entry; of many
class folders only the first 20 by name are listed, so the look stays cheap beside the walk.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from audit.sources import names
from audit.sources.formats import KINDS, extension_of

FOLDERS_LOOKED_INTO = 20
_HEAD_BYTES = 64 * 1024


@dataclass(slots=True)
class Listing:
    """The entries of one folder: names by kind, each sorted; links are files or folders as well."""

    files: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    special: list[str] = field(default_factory=list)
    links: set[str] = field(default_factory=set)


def list_folder(path: str) -> Listing:
    """Return what is in a folder; raises OSError if it cannot be listed."""
    found = Listing()
    files, folders = found.files, found.folders
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False):
                files.append(entry.name)
            elif entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            elif entry.is_symlink():
                found.links.add(entry.name)
                _linked(entry, found)
            else:
                found.special.append(entry.name)
    for some in (files, folders, found.special):
        some.sort()
    return found


def _linked(entry: os.DirEntry[str], found: Listing) -> None:
    try:
        if entry.is_dir():
            found.folders.append(entry.name)
            return
        # A pipe behind a link must not be opened either; a broken link is listed as a file.
        special = not entry.is_file() and os.path.exists(entry.path)
    except OSError:
        special = False
    (found.special if special else found.files).append(entry.name)


def is_hidden(name: str) -> bool:
    """Say whether a name is hidden or one that an operating system leaves behind."""
    return name.startswith(".") or name.lower() in names.SYSTEM


@dataclass(slots=True)
class Level:
    """Folders that could mean a split or a class, wherever containers put them: {name: paths}."""

    folders: dict[str, list[str]] = field(default_factory=dict)
    n_images: int = 0


class Look:
    """The listings read so far, by path; a folder that cannot be listed looks empty."""

    def __init__(self, root: str) -> None:
        """Look at `root`, an absolute path."""
        self.root = root
        self._listings: dict[str, Listing] = {}

    def listing(self, path: str) -> Listing:
        """Return the listing of a folder, read once."""
        if path not in self._listings:
            try:
                found = list_folder(path)
            except OSError:
                found = Listing()
            found.folders = [name for name in found.folders if not is_hidden(name)]
            self._listings[path] = found
        return self._listings[path]

    def level(self, path: str) -> Level:
        """Return the meaningful folders under `path`: containers opened, annotations left out."""
        level = Level()
        self._fill(level, path, 0)
        return level

    def _fill(self, level: Level, path: str, depth: int) -> None:
        listing = self.listing(path)
        level.n_images += sum(KINDS.get(extension_of(name)) == "image" for name in listing.files)
        beside = beside_images(listing)
        own_name = "" if path == self.root else os.path.basename(path)
        for name in listing.folders:
            child = os.path.join(path, name)
            if names.is_annotation(name, beside_images=beside):
                continue
            transparent = names.is_container(name) or repeats_parent(name, own_name, listing)
            if depth < 4 and transparent:
                self._fill(level, child, depth + 1)
            else:
                level.folders.setdefault(name, []).append(child)

    def saw_images(self) -> bool:
        """Say whether a folder looked into so far holds a file named like a picture."""
        return any(
            KINDS.get(extension_of(name)) == "image" and not is_hidden(name)
            for listing in self._listings.values()
            for name in listing.files
        )

    def near_folders(self) -> Iterator[str]:
        """Yield the root and two levels of folders below it, the first 20 of each."""
        yield self.root
        for name in self.listing(self.root).folders[:FOLDERS_LOOKED_INTO]:
            first = os.path.join(self.root, name)
            yield first
            for inner in self.listing(first).folders[:FOLDERS_LOOKED_INTO]:
                yield os.path.join(first, inner)

    def files(self, folder: str, *extensions: str, limit: int = 8) -> list[str]:
        """Return paths of the first few visible files of `folder` with one of the extensions."""
        wanted = (
            os.path.join(folder, name)
            for name in self.listing(folder).files
            if extension_of(name) in extensions and not name.startswith(".")
        )
        return [path for path, _ in zip(wanted, range(limit), strict=False)]


def repeats_parent(name: str, parent: str, beside: Listing) -> bool:
    """Say whether a lone folder repeats its parent's name, as in `seg_train/seg_train/cat`.

    Not so beside others: the class `train` in the split `train` is a class.
    """
    if name.lower() != parent.lower():
        return False
    return all(folder == name or is_hidden(folder) for folder in beside.folders)


def beside_images(listing: Listing) -> bool:
    """Say whether a folder holds pictures, or folders that say so."""
    return any(
        names.is_container(name) or names.split_word(name) for name in listing.folders
    ) or any(KINDS.get(extension_of(name)) == "image" for name in listing.files)


def head_and_tail(path: str) -> str:
    """Return the first and the last 64 KiB of a text file, '' if it cannot be read."""
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD_BYTES)
            rest = file.seek(0, os.SEEK_END) - _HEAD_BYTES
            file.seek(max(_HEAD_BYTES, rest))
            return (head + file.read(_HEAD_BYTES)).decode("utf-8", "replace")
    except OSError:
        return ""
