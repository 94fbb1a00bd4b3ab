"""Folder trees as samples: walks a root in fixed order and gives each picture its split and label.

Ids are unique: names that become equal in Unicode normal form C are numbered `#2` in walking order,
with a note.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from audit.errors import UsageError
from audit.records import Layout, Sample, sample_id
from audit.sources import names
from audit.sources.folder_listing import FolderEntries, beside_images, repeats_parent, stat_files
from audit.sources.formats import pack_advice
from audit.sources.layout import FolderLayout, infer_layout
from audit.sources.listed_tree import ListedTree
from audit.sources.paths import IdRegister, uri_of
from audit.sources.readings import Given, ReadLog, SampleRows
from audit.sources.walk import Exclusion, Folder, Walk

if TYPE_CHECKING:
    import polars as pl

BLOCK = 5000  # files of one folder that are listed at a time


@dataclass(frozen=True, slots=True)
class Place:
    """What the folders from the root down to here mean: split, label, and the roles still open."""

    split: str | None = None
    label: str | None = None
    roles: tuple[str, ...] = ()
    wrappers: tuple[str, ...] = ()
    name: str = ""
    beneath_class: bool = False


class FolderReader:
    """One root read as a folder tree: that of a file system, or `listed`."""

    def __init__(self, given: Given, listed: ListedTree | None = None) -> None:
        """Infer the layout; raises UsageError if the root contains no picture."""
        self.given, self.listed = given, listed
        self.root, self.name = given.path, given.name
        self.met: Mapping[str, FolderEntries] = {}
        """Folders that were listed for samples, by path; of their files, the texts alone."""
        self._ids: dict[str, str] = {}
        self._folders: FolderLayout = infer_layout(self.root, given.layout, listed)
        by_folder = not given.split_wins and "split" in self._folders.roles
        self._split = None if by_folder else given.split
        self._reject_empty()

    @property
    def layout(self) -> Layout:
        """The layout and the reason for it."""
        return self._folders.layout

    @property
    def labels_in_table(self) -> bool:
        """Whether the classes are those of a table beside the pictures."""
        return any("label" in table.reader.roles for table in self._folders.beside.tables)

    def metadata(self) -> pl.DataFrame | None:
        """Return the other columns of tables beside the pictures; None before `rows`."""
        return self._folders.beside.metadata(self._ids)

    def rows(self, log: ReadLog) -> Iterator[SampleRows]:
        """Yield the samples in walking order; what is left out goes to `log`."""
        exclusion, entered, filled = Exclusion(self.given.exclude), set[str](), set[str | None]()
        walk = self._walk(log, exclusion, entered)
        self.met = walk.met
        start = Place(self._split, None, self._folders.roles, self._folders.wrappers)
        ids = IdRegister()
        self._ids = {}
        n_deep, deep_example = 0, ""
        for folder in walk.folders(start):
            filled.add(folder.state.split)
            if folder.state.beneath_class:
                n_deep += len(folder.images)
                deep_example = deep_example or folder.relative
            yield from self._in_folder(folder, walk, ids)
        if n_deep:
            log.note(
                "below-class-folder",
                f"Class folders contain subfolders with images (first: "
                f"{sample_id(deep_example, self.name)}; {n_deep:,} images in all). Their label is "
                "the class folder, directly under the split or the root.",
            )
        for split in sorted(entered - filled):
            what = f"folder of split {split}" if names.split_word(split) else f"folder {split}"
            log.note("empty-split", f"The {what} contains no images.")
        if self._split is None and self._folders.unused:
            log.note("lists-not-used", self._folders.unused)
        exclusion.report(log)

    def _walk(self, log: ReadLog, exclusion: Exclusion, entered: set[str]) -> Walk[Place]:
        def enter(place: Place, name: str, beside: FolderEntries) -> Place | str:
            inside = self._enter(place, name, beside, log)
            if isinstance(inside, Place) and inside.split is not None:
                entered.add(inside.split)
            return inside

        return Walk(self.given, log, enter, exclusion, self.listed)

    def _in_folder(
        self, folder: Folder[Place], walk: Walk[Place], ids: IdRegister
    ) -> Iterator[SampleRows]:
        for start in range(0, len(folder.images), BLOCK):
            files = folder.images[start : start + BLOCK]
            identities = self._identities(folder, files, walk.log, ids)
            if self.listed is not None:
                pairs = zip(files, identities, strict=True)
                yield SampleRows.of(list(self._listed_samples(self.listed, folder, pairs)))
                continue
            for name in files if folder.links else ():
                if name in folder.links:
                    walk.count_link(os.path.join(folder.path, name), folder.relative + name)
            yield self._file_rows(folder, files, identities)

    def _file_rows(
        self, folder: Folder[Place], files: Sequence[str], identities: list[str]
    ) -> SampleRows:
        place = os.path.join(folder.path, "")
        uris = [place + name for name in files]
        if not "".join(files).isascii() or uri_of(place) != place:
            uris = [uri_of(path) for path in uris]
        n, state = len(files), folder.state
        splits = [state.split] * n
        if self._folders.listed.reason and self._split is None:
            of = self._folders.listed.of
            splits = [of(folder.relative + name) or state.split for name in files]
        labels, groups = [state.label] * n, list[str | None]([None] * n)
        if self._folders.beside.tables:
            told = [self._folders.beside.of(folder.relative + name) for name in files]
            labels = [row.label or state.label for row in told]
            splits = [split or row.split for row, split in zip(told, splits, strict=True)]
            groups = [row.group for row in told]
            self._ids |= zip((folder.relative + name for name in files), identities, strict=True)
        return SampleRows(
            identities, uris, [self.name] * n, splits, labels, groups,
            *stat_files(folder.path, files),
        )  # fmt: skip

    def _listed_samples(
        self, tree: ListedTree, folder: Folder[Place], samples: Iterable[tuple[str, str]]
    ) -> Iterator[Sample]:
        split, label = folder.state.split, folder.state.label
        for name, identity in samples:
            path = os.path.join(folder.path, name)
            uri, *sizes = tree.status(path)
            label_here = label or tree.label_beside(path)
            yield Sample(identity, uri, self.name, split, label_here, None, *sizes)

    def _identities(
        self, folder: Folder[Place], files: Sequence[str], log: ReadLog, ids: IdRegister
    ) -> list[str]:
        if not folder.clashing and "".join(files).isascii():
            prefix = sample_id(folder.relative, self.name)
            return [prefix + name for name in files]
        identities = [sample_id(folder.relative + name, self.name) for name in files]
        if not folder.clashing:
            return identities
        unique = [ids.take(identity) for identity in identities]
        for identity, number in zip(identities, unique, strict=True):
            if number != identity:
                log.note(
                    "repeated-id",
                    f"Two files have the same id {identity} after Unicode normalization (NFC) or "
                    f"%-escaping: this one is recorded as {number}. Rename one of them.",
                    number,
                )
        return unique

    def _enter(self, place: Place, name: str, beside: FolderEntries, log: ReadLog) -> Place | str:
        if place.wrappers and name == place.wrappers[0]:
            return replace(place, wrappers=place.wrappers[1:], name=name)
        # By the name alone first: looking at what is beside each of 20,000 classes would be slow.
        if names.is_annotation(name, beside_images=True):
            around = beside_images(beside)
            if names.is_annotation(name, beside_images=around):
                # `masks` beside `images` are annotations; alone they are the pictures themselves.
                return "annotation" if around else replace(place, name=name)
        if names.is_container(name) or repeats_parent(name, place.name, beside):
            return replace(place, name=name)
        if not place.roles:
            return replace(place, name=name, beneath_class=place.label is not None)
        return self._take_role(place, name, log)

    def _take_role(self, place: Place, name: str, log: ReadLog) -> Place:
        role, roles = place.roles[0], place.roles[1:]
        # a label has the folder's own spelling, undecodable bytes as %XX
        text = name if name.isascii() else "".join(map(_escaped, name))
        if role == "split":
            split = self._split or self._folders.splits.get(name) or self._split_of(name, text)
            place = replace(place, split=split)
        elif role == "class":
            place = replace(place, label=text)
        if place.label is not None and "split" not in roles:
            log.declare(place.split, place.label)
        return replace(place, roles=roles, name=name)

    def _split_of(self, name: str, text: str) -> str | None:
        """Return the split of a folder that the listing left out: by its word if that is free."""
        word = names.split_word(name)
        if word is None and names.has_container_word(name) and self._folders.splits:
            return None
        taken = word in self._folders.splits.values() or word in names.OPEN_SPLITS
        return text if word is None or taken else word

    def _reject_empty(self) -> None:
        if self._folders.saw_images and not self.given.exclude:
            return
        log = ReadLog()
        walk = self._walk(log, Exclusion(self.given.exclude), set())
        start = Place(None, None, self._folders.roles, self._folders.wrappers)
        if next(walk.folders(start), None) is None:
            raise UsageError(f"{sample_id(self.root)} {_what_instead(log)}")


def _escaped(char: str) -> str:
    return sample_id(char) if 0xDC80 <= ord(char) <= 0xDCFF else char


def _what_instead(log: ReadLog) -> str:
    """Say what a folder without pictures contains, and what to give instead."""
    skipped = log.skipped
    if not skipped:
        notes = [message for kind, _, message in log.notes if kind == "unlisted-folder"]
        return f"cannot be read. {notes[0]}" if notes else _EMPTY
    total = sum(row.count for row in skipped)
    kinds = ", ".join(
        f"{row.count:,} {'.' + row.extension if row.extension else 'without extension'}"
        f" ({row.reason})"
        for row in skipped[:4]
    )
    fix = "give the folder that contains the images, or a manifest (CSV, JSONL, Parquet)"
    if advice := next(filter(None, (pack_advice(row.example) for row in skipped)), ""):
        fix = advice
    elif any(row.reason == "excluded" for row in skipped):
        fix = "check --exclude"
    return f"contains no images among its {total:,} files: {kinds}. Fix: {fix}."


_EMPTY = "is an empty folder: give the folder that contains the images, or a manifest."
