"""The walk: folders in one fixed order, depth first, counting everything that is not a sample.

A linked folder is listed under the link, as loaders read it. Three kinds of links are not entered,
so that the walk ends: a link to a folder that contains it; inside a linked folder, a link to a
folder of the dataset; two links deep, a folder that the same first link has led to.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from audit.records import sample_id
from audit.sources.folder_listing import FolderEntries, contains, leads_up, list_folder
from audit.sources.formats import TEXTS, extension_of_name, kind_of, named_as_images
from audit.sources.listed_tree import ListedTree
from audit.sources.names import SYSTEM
from audit.sources.readings import Given, ReadLog

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Folder(Generic[S]):
    """One folder; `relative` is '' for the root, else ends with '/'; `images` are sorted names.

    `clashing`: two names here, or above, differ only in Unicode form.
    """

    path: str
    relative: str
    state: S
    images: list[str]
    links: frozenset[str]
    clashing: bool


class Exclusion:
    """The `--exclude` globs: each is tried on the path below the root and on the name alone."""

    def __init__(self, globs: Sequence[str]) -> None:
        """Compile the globs; `*` crosses `/`, and `**/x` also means x at the root."""
        self._patterns = {glob: _compiled(glob) for glob in globs}
        self._unused = set(globs)

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def matches(self, relative: str, name: str) -> bool:
        """Return whether a file or folder is excluded."""
        for glob, pattern in self._patterns.items():
            if pattern.match(relative) or pattern.match(name):
                self._unused.discard(glob)
                return True
        return False

    def report(self, log: ReadLog) -> None:
        """Note the globs that matched nothing: a typing error leaves bad files in silently."""
        for glob in sorted(self._unused):
            log.note(
                "unused-exclude",
                f"--exclude {glob!r} matched no file: the pattern is compared with the path below "
                "the root and with the file name.",
            )


def _compiled(glob: str) -> re.Pattern[str]:
    bare = glob.rstrip("/").removeprefix("./")
    forms = [bare, bare[3:]] if bare.startswith("**/") else [bare]
    return re.compile("|".join(fnmatch.translate(form) for form in forms))


class Walk(Generic[S]):
    """One pass over one root.

    `enter(state, name, siblings)` gives the state of a subfolder, or the reason to leave it out.
    """

    def __init__(
        self, given: Given, log: ReadLog, enter: Callable[[S, str, FolderEntries], S | str],
        exclusion: Exclusion, tree: ListedTree | None,
    ) -> None:  # fmt: skip
        self._list_one = list_folder if tree is None else tree.entries
        self._kind = kind_of if tree is None else tree.kind
        self.root, self.log, self._enter, self._exclusion = given.path, log, enter, exclusion
        self._ignore = {os.path.realpath(path) for path in given.ignore}
        self._ignored_names = {os.path.basename(path) for path in self._ignore}
        self._source = given.name
        self.n_links = 0
        self.met: dict[str, FolderEntries] = {}
        """The folders that were listed, by path; of their files, the texts alone."""
        self._outside: str | None = None
        self._real_root = os.path.realpath(self.root)
        self._entered: set[tuple[str, str]] = set()
        """The first link on the way and the real folder that another link below it leads to."""

    def folders(self, state: S) -> Iterator[Folder[S]]:
        """Yield every folder below the root that holds pictures, the root first."""
        stack = [(self.root, "", state, tuple[str, ...](), False)]
        while stack:
            path, relative, state, links_above, clashing = stack.pop()
            entries = self._entries(path, relative)
            if is_run(entries):
                self._count_below(path, relative.rstrip("/"), "run directory")
                continue
            images, others = self._images(path, relative, entries)
            self._remember(path, entries, others)
            if images:
                odd = clashing or _clash(images)
                yield Folder(path, relative, state, images, frozenset(entries.links), odd)
            children = []
            clashing = clashing or _clash(entries.folders)
            for name in entries.folders:
                full = os.path.join(path, name)
                child = self._child(full, relative + name, state, entries, links_above)
                if child is not None:
                    links = (*links_above, full) if name in entries.links else links_above
                    children.append((full, f"{relative}{name}/", child, links, clashing))
            stack.extend(reversed(children))
        self._report_links()

    def _entries(self, path: str, relative: str) -> FolderEntries:
        try:
            return self._list_one(path)
        except OSError as error:
            where = sample_id(relative.rstrip("/"), self._source) or "the root"
            why = error.strerror or "unknown cause"
            self.log.note(
                "unlisted-folder",
                f"The folder {where} could not be listed ({why}): its files are not in this scan. "
                "Grant read and search permission (chmod u+rx) and scan again.",
            )
            return FolderEntries()

    def _remember(self, path: str, entries: FolderEntries, files: Sequence[str]) -> None:
        texts = [name for name in files if extension_of_name(name) in TEXTS]
        self.met[path] = replace(entries, files=texts)

    def _images(
        self, path: str, relative: str, entries: FolderEntries
    ) -> tuple[list[str], list[str]]:
        """Return the names of the pictures of a folder, and those of its other files."""
        for name in entries.special:
            self._skip("not a regular file", relative + name, name)
        images = [] if self._exclusion else named_as_images(entries.files)
        if len(images) == len(entries.files):
            return images, []
        known, others = set(images), []
        for name in entries.files:
            if name in known:
                continue
            reason = self._name_reason(relative + name, name) or self._kind(name, path)
            if reason == "image":
                images.append(name)
            else:
                others.append(name)
                self._skip(reason, relative + name, name)
        return sorted(images), others

    def _name_reason(self, below: str, name: str) -> str | None:
        if name.lower() in SYSTEM:
            return "system file"
        if name[0] == ".":
            return "hidden"
        return "excluded" if self._exclusion and self._exclusion.matches(below, name) else None

    def _skip(self, reason: str, relative: str, name: str) -> None:
        self.log.skip(reason, extension_of_name(name), relative, self._source)

    def _child(
        self, full: str, below: str, state: S, entries: FolderEntries, links_above: tuple[str, ...]
    ) -> S | None:
        """Return the state of a folder to visit; None, its files counted, for one left out."""
        name = os.path.basename(full)
        if name == "__pycache__":  # comes and goes with scripts beside the pictures
            return None
        reason = self._folder_reason(full, below, name)
        if reason is None and name in entries.links:
            reason = self._link_reason(full, below, links_above)
        if reason is None:
            child = self._enter(state, name, entries)
            if not isinstance(child, str):
                return child
            reason = child
        if name not in entries.links:
            self._count_below(full, below, reason)
        return None

    def _folder_reason(self, full: str, below: str, name: str) -> str | None:
        if reason := self._name_reason(below, name):
            return reason
        ignored = name in self._ignored_names and os.path.realpath(full) in self._ignore
        return "run directory" if ignored else None

    def _count_below(self, full: str, below: str, reason: str) -> None:
        stack = [(full, below + "/")]
        while stack:
            path, relative = stack.pop()
            try:
                entries = self._list_one(path)
            except OSError:
                continue
            self._remember(path, entries, entries.files)
            for name in [*entries.files, *entries.special]:
                self._skip(reason, relative + name, name)
            stack.extend(
                (os.path.join(path, name), f"{relative}{name}/")
                for name in entries.folders
                if name not in entries.links
            )

    def _link_reason(self, full: str, below: str, links_above: tuple[str, ...]) -> str | None:
        """Return why a linked folder is not entered, None where it is; see the module."""
        target = os.path.realpath(full)
        way = (links_above[0], target) if links_above else None
        if any(leads_up(link, target) for link in (full, *links_above)):
            why = "is a link to a folder that contains it"
        elif way and contains(self._real_root, target):
            why = "is inside a linked folder and points to a folder of the dataset"
        elif way in self._entered and len(links_above) > 1:
            why = "is inside linked folders and points to a folder that is already listed there"
        else:
            if way:
                self._entered.add(way)
            self.count_link(full, below)
            return None
        self.log.note("link-loop", f"{sample_id(below, self._source)} {why}: not followed.")
        return "link loop"

    def count_link(self, full: str, below: str) -> None:
        """Count a link and keep the first that leaves the root."""
        self.n_links += 1
        if self._outside is None:
            target = os.path.realpath(full)
            if not contains(self._real_root, target):
                self._outside = sample_id(f"{below} -> {target}", self._source)

    def _report_links(self) -> None:
        if self._outside is not None:
            self.log.note(
                "outside-link",
                f"{self.n_links:,} links were followed; some point outside the dataset "
                f"(first: {self._outside}). A copy of this folder may miss those files.",
            )


def is_run(entries: FolderEntries) -> bool:
    """Return whether a folder is a run inside the tree: its thumbnails are not the dataset."""
    return "CURRENT" in entries.files and any(n.startswith("gen-") for n in entries.folders)


def _clash(names: Sequence[str]) -> bool:
    """Return whether two names get the same id: only names with other than ASCII, or %, can."""
    odd = [name for name in names if not name.isascii() or "%" in name]
    return len({sample_id(name) for name in odd}) < len(odd)
