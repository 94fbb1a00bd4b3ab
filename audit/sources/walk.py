"""The walk: folders in one fixed order, depth first, with everything that is no sample counted.

Order: the files of a folder by name, then its folders by name, by code point, whatever the file
system gives. Names are sorted folder by folder, so memory holds the names of one folder and the
folders still to visit. Links are followed; one that leads to a folder it lies in ends there. Pipes,
sockets and devices are never opened. A folder that cannot be listed is a remark, not a crash.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from audit.records import sample_id
from audit.sources.folder_listing import Listing, list_folder
from audit.sources.formats import extension_of, kind_of
from audit.sources.names import SYSTEM
from audit.sources.tally import Tally

# Links within links: two links to each next folder would double the tree at every level.
LINKS_DEEP = 8
S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Folder(Generic[S]):
    """One folder of the walk: its path, its place below the root, and what the reader made of it.

    `relative` is '' for the root, else it ends with '/'. `images` are file names, sorted; `links`
    those of them that are links. `clashing`: two names here, or above, differ only in Unicode form.
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
        """Say whether there is any glob."""
        return bool(self._patterns)

    def matches(self, relative: str, name: str) -> bool:
        """Say whether a file or folder is excluded."""
        for glob, pattern in self._patterns.items():
            if pattern.match(relative) or pattern.match(name):
                self._unused.discard(glob)
                return True
        return False

    def report(self, tally: Tally) -> None:
        """Note the globs that matched nothing: a typing error leaves bad files in silently."""
        for glob in sorted(self._unused):
            tally.note(
                "unused-exclude",
                None,
                f"--exclude {glob!r} matched no file: it is compared with the path below the root "
                "and with the bare name.",
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
        self,
        root: str,
        tally: Tally,
        enter: Callable[[S, str, Listing], S | str],
        *,
        exclusion: Exclusion,
        ignore: Sequence[Path] = (),
        source: str = "",
    ) -> None:
        """Prepare a walk of `root`, an absolute path; nothing is read yet."""
        self.root = root
        self.tally = tally
        self._enter = enter
        self._exclusion = exclusion
        self._ignore = {os.path.realpath(path) for path in ignore}
        self._ignored_names = {os.path.basename(path) for path in self._ignore}
        self._source = source
        self.n_links = 0
        self._outside: str | None = None

    def folders(self, state: S) -> Iterator[Folder[S]]:
        """Yield every folder below the root that holds pictures, the root first."""
        stack = [(self.root, "", state, 0, False)]
        while stack:
            path, relative, state, links_above, clashing = stack.pop()
            listing = self._listing(path, relative)
            if _is_run(listing):
                self._count_below(path, relative.rstrip("/"), "run directory")
                continue
            images = self._images(path, relative, listing)
            if images:
                odd = clashing or _clash(images)
                yield Folder(path, relative, state, images, frozenset(listing.links), odd)
            children = []
            clashing = clashing or _clash(listing.folders)
            for name in listing.folders:
                child = self._child(path, relative, name, state, listing, links_above)
                if child is not None:
                    deeper = links_above + (name in listing.links)
                    children.append(
                        (os.path.join(path, name), f"{relative}{name}/", child, deeper, clashing)
                    )
            stack.extend(reversed(children))
        self._report_links()

    # ---- files ----

    def _listing(self, path: str, relative: str) -> Listing:
        try:
            return list_folder(path)
        except OSError as error:
            where = sample_id(relative.rstrip("/"), self._source) or "the root"
            why = error.strerror or "unknown cause"
            self.tally.note(
                "unlisted-folder",
                None,
                f"The folder {where} could not be listed ({why}): its files are not in this scan. "
                "Give read and search permission (chmod u+rx) and scan again.",
            )
            return Listing()

    def _images(self, path: str, relative: str, listing: Listing) -> list[str]:
        for name in listing.special:
            self._skip("not a regular file", relative + name, name)
        images = []
        for name in listing.files:
            reason = self._reason(path, relative, name)
            if reason == "image":
                images.append(name)
            else:
                self._skip(reason, relative + name, name)
        return images

    def _reason(self, path: str, relative: str, name: str) -> str:
        if name[0] == "." or name.lower() in SYSTEM:
            return "system file" if name.lower() in SYSTEM else "hidden"
        if self._exclusion and self._exclusion.matches(relative + name, name):
            return "excluded"
        return kind_of(name, path)

    def _skip(self, reason: str, relative: str, name: str) -> None:
        self.tally.skip(reason, extension_of(name), relative, self._source)

    # ---- folders ----

    def _child(
        self, path: str, relative: str, name: str, state: S, listing: Listing, links_above: int
    ) -> S | None:
        """Return the state of a folder to visit; None, its files counted, for one left out."""
        full, below = os.path.join(path, name), relative + name
        reason = self._folder_reason(full, below, name)
        if reason is None and name in listing.links:
            reason = self._link_reason(full, below, path, links_above)
        if reason is None:
            entered = self._enter(state, name, listing)
            if not isinstance(entered, str):
                return entered
            reason = entered
        if name not in listing.links:
            self._count_below(full, below, reason)
        return None

    def _folder_reason(self, full: str, below: str, name: str) -> str | None:
        if name.lower() in SYSTEM:
            return "system file"
        if name.startswith("."):
            return "hidden"
        if self._exclusion and self._exclusion.matches(below, name):
            return "excluded"
        if name in self._ignored_names and os.path.realpath(full) in self._ignore:
            return "run directory"
        return None

    def _count_below(self, full: str, below: str, reason: str) -> None:
        stack = [(full, below + "/")]
        while stack:
            path, relative = stack.pop()
            try:
                listing = list_folder(path)
            except OSError:
                continue
            for name in [*listing.files, *listing.special]:
                self._skip(reason, relative + name, name)
            stack.extend(
                (os.path.join(path, name), f"{relative}{name}/")
                for name in listing.folders
                if name not in listing.links
            )

    # ---- links ----

    def _link_reason(self, full: str, below: str, parent: str, links_above: int) -> str | None:
        self.see_link(full, below)
        try:
            loop = self._leads_back(full, parent)
        except OSError:
            return "broken link"
        if loop:
            self.tally.note(
                "link-loop",
                None,
                f"{sample_id(below, self._source)} is a link to a folder that it lies in: "
                "the walk does not go round.",
            )
            return "link loop"
        if links_above >= LINKS_DEEP:
            self.tally.note(
                "link-loop",
                None,
                f"{sample_id(below, self._source)} lies behind {LINKS_DEEP} linked folders: not "
                "followed further. Give the folder that it leads to as a source of its own.",
            )
            return "link loop"
        return None

    def _leads_back(self, full: str, parent: str) -> bool:
        """Say whether a linked folder is one of those that the walk came through."""
        target = os.stat(full)
        while not os.path.samestat(os.stat(parent), target):
            if parent == self.root:
                return False
            parent = os.path.dirname(parent)
        return True

    def see_link(self, full: str, below: str) -> None:
        """Count a link and keep the first that leaves the root."""
        self.n_links += 1
        if self._outside is None:
            target = os.path.realpath(full)
            root = os.path.realpath(self.root)
            if not target.startswith(root.rstrip("/") + "/") and target != root:
                self._outside = sample_id(f"{below} -> {target}", self._source)

    def _report_links(self) -> None:
        if self._outside is not None:
            self.tally.note(
                "outside-link",
                None,
                f"{self.n_links:,} links were followed, some out of the dataset "
                f"(first: {self._outside}): copies of this folder may lack those files.",
            )


def _is_run(listing: Listing) -> bool:
    """Say whether a folder is a run written into the tree: its thumbnails are not the dataset."""
    return "CURRENT" in listing.files and any(n.startswith("gen-") for n in listing.folders)


def _clash(names: Sequence[str]) -> bool:
    """Say whether two names get the same id: only names with other than ASCII, or %, can."""
    odd = [name for name in names if not name.isascii() or "%" in name]
    return len({sample_id(name) for name in odd}) < len(odd)
