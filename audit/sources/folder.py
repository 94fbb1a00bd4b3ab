"""Folder trees as samples: walks a root in fixed order and gives each picture its split and label.

Cost: one `stat` a picture and no open (except to sniff a file whose extension is unknown), so a
re-scan of unchanged data is bounded by the listing. Ids are unique: names that become equal in
Unicode normal form C are numbered `#2` in walking order and remarked on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from audit.errors import UsageError
from audit.records import Layout, Sample, sample_id
from audit.sources import names
from audit.sources.folder_listing import Listing, beside_images, repeats_parent
from audit.sources.formats import PACKED
from audit.sources.layout import Plan, plan
from audit.sources.paths import SeenIds, uri_of
from audit.sources.tally import Tally
from audit.sources.walk import Exclusion, Folder, Walk


@dataclass(frozen=True, slots=True)
class Place:
    """What the folders from the root down to here say: split, label, and the roles still open."""

    split: str | None = None
    label: str | None = None
    roles: tuple[str, ...] = ()
    wrappers: tuple[str, ...] = ()
    name: str = ""
    beneath_class: bool = False


class FolderReader:
    """One root read as a folder tree. `split` is a fixed split for all of it (`train=DIR`)."""

    def __init__(
        self,
        root: str,
        *,
        name: str = "",
        split: str | None = None,
        split_wins: bool = True,
        layout: str | None = None,
        exclude: Sequence[str] = (),
        ignore: Sequence[Path] = (),
    ) -> None:
        """Infer the layout; raises UsageError if the root holds no picture."""
        self.root = root
        self.name = name
        self._exclude = exclude
        self._ignore = ignore
        self._plan: Plan = plan(root, layout)
        if split_wins or "split" not in self._plan.roles:
            self._split = split
        else:
            self._split = None
        self._refuse_if_empty()

    @property
    def layout(self) -> Layout:
        """The layout and the reason for it."""
        return self._plan.layout

    def samples(self, tally: Tally) -> Iterator[Sample]:
        """Yield the samples in walking order; what is left out goes to `tally`."""
        exclusion, entered, filled = Exclusion(self._exclude), set[str](), set[str | None]()
        walk = self._walk(tally, exclusion, entered)
        start = Place(self._split, None, self._plan.roles, self._plan.wrappers)
        seen = SeenIds()
        n_deep, deep_example = 0, ""
        for folder in walk.folders(start):
            filled.add(folder.state.split)
            if folder.state.beneath_class:
                n_deep += len(folder.images)
                deep_example = deep_example or folder.relative
            yield from self._in_folder(folder, walk, seen)
        if n_deep:
            tally.note(
                "below-class-folder",
                None,
                f"Below class folders lie further folders with images (first: "
                f"{sample_id(deep_example, self.name)}; {n_deep:,} in all): the class folder, "
                "directly under the split or the root, is their label.",
            )
        for split in sorted(entered - filled):
            what = f"folder of split {split}" if names.split_word(split) else f"folder {split}"
            tally.note("empty-split", None, f"The {what} holds no image.")
        exclusion.report(tally)

    def _walk(self, tally: Tally, exclusion: Exclusion, entered: set[str]) -> Walk[Place]:
        def enter(place: Place, name: str, beside: Listing) -> Place | str:
            inside = self._enter(place, name, beside, tally)
            if isinstance(inside, Place) and inside.split is not None:
                entered.add(inside.split)
            return inside

        return Walk(
            self.root, tally, enter, exclusion=exclusion, ignore=self._ignore, source=self.name
        )

    def _in_folder(
        self, folder: Folder[Place], walk: Walk[Place], seen: SeenIds
    ) -> Iterator[Sample]:
        path, links = folder.path.rstrip("/") + "/", folder.links
        split, label = folder.state.split, folder.state.label
        prefix = sample_id(folder.relative, self.name)
        plain = uri_of(folder.path) == folder.path and not folder.clashing
        stat, source = os.stat, self.name
        for name in folder.images:
            full = path + name
            if plain and name.isascii():
                identity, uri = prefix + name, full
            else:
                identity, uri = self._identity(folder, name, walk.tally, seen), uri_of(full)
            if name in links:
                walk.see_link(full, folder.relative + name)
            try:
                status = stat(full)
            except OSError:
                # Listed a moment ago, or a link to nothing: the decoder says which.
                yield Sample(identity, uri, source, split, label)
                continue
            yield Sample(
                identity, uri, source, split, label, None,
                status.st_size, status.st_mtime_ns, status.st_ctime_ns,
            )  # fmt: skip

    def _identity(self, folder: Folder[Place], name: str, tally: Tally, seen: SeenIds) -> str:
        identity = sample_id(folder.relative + name, self.name)
        if not folder.clashing:
            return identity
        unique = seen.take(identity)
        if unique != identity:
            tally.note(
                "repeated-id",
                unique,
                f"Two files become {identity} in Unicode normal form C (or by %-escaping): "
                f"this one is {unique}. Rename one of them.",
            )
        return unique

    # ---- what a folder means ----

    def _enter(self, place: Place, name: str, beside: Listing, tally: Tally) -> Place | str:
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
        return self._take_role(place, name, tally)

    def _take_role(self, place: Place, name: str, tally: Tally) -> Place:
        role, roles = place.roles[0], place.roles[1:]
        text = label_of(name)
        if role == "split":
            split = self._split or self._plan.splits.get(name) or self._split_of(name, text)
            place = replace(place, split=split)
        elif role == "class":
            place = replace(place, label=text)
        if place.label is not None and "split" not in roles:
            tally.declare(place.split, place.label)
        return replace(place, roles=roles, name=name)

    def _split_of(self, name: str, text: str) -> str:
        """Return the split of a folder that was not in the look: by its word if that is free."""
        word = names.split_word(name)
        taken = word in self._plan.splits.values() or word in names.OPEN_SPLITS
        return text if word is None or taken else word

    # ---- no pictures ----

    def _refuse_if_empty(self) -> None:
        if self._plan.saw_images and not self._exclude:
            return
        tally = Tally()
        walk = self._walk(tally, Exclusion(self._exclude), set())
        start = Place(None, None, self._plan.roles, self._plan.wrappers)
        if next(walk.folders(start), None) is None:
            raise UsageError(f"{sample_id(self.root)} {_what_instead(tally)}")


def label_of(name: str) -> str:
    """Return a folder name as a label: its own spelling, undecodable bytes as %XX."""
    return name if name.isascii() else "".join(map(_escaped, name))


def _escaped(char: str) -> str:
    return sample_id(char) if 0xDC80 <= ord(char) <= 0xDCFF else char


def _what_instead(tally: Tally) -> str:
    """Say what a folder without pictures holds, and what to give instead."""
    skipped = tally.skipped
    if not skipped:
        notes = [message for kind, _, message in tally.notes if kind == "unlisted-folder"]
        return f"cannot be read. {notes[0]}" if notes else _EMPTY
    total = sum(row.count for row in skipped)
    kinds = ", ".join(
        f"{row.count:,} {'.' + row.extension if row.extension else 'without extension'}"
        f" ({row.reason})"
        for row in skipped[:4]
    )
    cure = "give the folder that holds the images, or a manifest (CSV, JSONL, Parquet)"
    if any(row.extension in PACKED or row.example.count("ubyte") for row in skipped):
        cure = "this looks like a packed dataset: unpack it into image files first"
    elif any(row.reason == "excluded" for row in skipped):
        cure = "check --exclude"
    return f"holds no image among its {total:,} files: {kinds}. Cure: {cure}."


_EMPTY = "is an empty folder: give the folder that holds the images, or a manifest."
