"""Packs as samples: archives, shards and arrays, one or many, read where they lie.

Archives are read as the folder they would be unpacked to. Rows of tables and arrays are numbered
through all packs of a split. A damaged pack is a note that FILE009 reports.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from audit.errors import UsageError
from audit.records import Layout, Sample, sample_id
from audit.sources.folder import FolderReader
from audit.sources.formats import KINDS, extension_of_name
from audit.sources.listed_tree import Pack, PackedTree
from audit.sources.names import split_word
from audit.sources.object_store import object_times
from audit.sources.packs.formats import PackFormat, choose_packs, format_of, packs_below
from audit.sources.packs.members import DamagedPackError, PackMember, member_uri
from audit.sources.readings import Given, ReadLog
from audit.sources.tables import typed_frame
from audit.sources.walk import Exclusion

if TYPE_CHECKING:
    import polars as pl

DAMAGED = "damaged-pack"
Objects = Mapping[str, Mapping[str, Any]]


def find_packs(path: str) -> list[str]:
    """Return the packs that a path names: itself, or those of a folder without pictures."""
    if os.path.isdir(path):
        return packs_below(path)
    return [path] if format_of(path) is not None else []


class PackedReader:
    """The packs of one root."""

    def __init__(
        self, given: Given, packs: Sequence[str], objects: Objects = MappingProxyType({})
    ) -> None:
        """List archives (`objects`: of a store); UsageError without images or for two formats."""
        path = given.path
        self.root, self.name, self.given, self._log = path, given.name, given, ReadLog()
        forms = {pack: format_of(pack) for pack in packs}
        known = next(form for form in forms.values() if form is not None)
        # what is chosen without a format cannot be opened: a note
        self._packs = [_pack(pack, form or known, path, objects) for pack, form in forms.items()]
        self._form = _only_format(path, self._packs)
        self.tree_reader: FolderReader | None = None
        """What reads archives as folders; None for rows."""
        if self._form.NAMED:
            self.tree_reader = FolderReader(given, self._packed_tree())
        elif given.layout is not None:
            raise UsageError(f"--layout is for folders, but {sample_id(path)} contains rows.")
        elif next(self._rows(self._log), None) is None:
            raise UsageError(f"{sample_id(path)} contains no images{self._why()}")

    @property
    def layout(self) -> Layout:
        """The layout, with the number of packs."""
        several = "s" if len(self._packs) > 1 else ""
        packs = f"{len(self._packs):,} {self._form.NAME} file{several}, read without unpacking"
        if self.tree_reader is None:
            return Layout("rows", packs)
        return replace(self.tree_reader.layout, reason=f"{self.tree_reader.layout.reason}; {packs}")

    def samples(self, log: ReadLog) -> Iterator[Sample]:
        """Yield the samples, pack by pack, or as a folder's; damage goes to `log`."""
        if self.tree_reader is not None:
            for kind, sample, message in self._log.notes:
                log.note(kind, message, sample)
            for rows in self.tree_reader.rows(log):
                yield from rows.samples()
            return
        exclusion = Exclusion(self.given.exclude)
        for pack, member, identity in self._rows(log):
            if exclusion and exclusion.matches(identity, identity):
                log.skip("excluded", "", identity, self.name)
                continue
            uri = member_uri(pack.form.NAME, pack.path, member.key)
            yield Sample(
                sample_id(identity, self.name), uri, self.name, self._split_of(pack, member),
                member.label, None, member.n_bytes, pack.mtime_ns, pack.ctime_ns,
            )  # fmt: skip
        exclusion.report(log)

    def metadata(self) -> pl.DataFrame | None:
        """Return the other columns of the rows, by `sample_id`; reads the packs again."""
        if self.tree_reader is not None:
            return None
        first = (member for _, member, _ in islice(self._rows(ReadLog()), 1000))
        columns = list(dict.fromkeys(name for member in first for name in member.more))
        if not columns:
            return None
        rows = (
            (sample_id(identity, self.name), [member.more.get(name) for name in columns])
            for _, member, identity in self._rows(ReadLog())
        )
        return typed_frame(rows, columns, from_text=False, exact=False)

    def _rows(self, log: ReadLog) -> Iterator[tuple[Pack, PackMember, str]]:
        """Yield pack, member and id, without the name of the source."""
        counts = Counter[str | None]()
        for pack in self._packs:
            for member in _listed(pack, self.root, log):
                split = self._split_of(pack, member)
                prefix = "" if split is None else f"{split}/"
                yield pack, member, f"{prefix}{counts[split]}"
                counts[split] += 1

    def _split_of(self, pack: Pack, member: PackMember) -> str | None:
        return self.given.split or member.split or _split_by_name(pack.path, self.root)

    def _packed_tree(self) -> PackedTree:
        tree = PackedTree(self.root, self._log)
        for pack in self._packs:
            members = list(_listed(pack, self.root, self._log))
            tops = {member.name.lstrip("./").partition("/")[0] for member in members}
            within = any(split_word(top) for top in tops)
            split = None if within else _split_by_name(pack.path, self.root)
            tree.add(pack, members, split)
        tree.sort()
        if not tree.has_pictures():
            raise UsageError(f"{sample_id(self.root)} contains no images{self._why()}")
        return tree

    def _why(self) -> str:
        notes = [message for kind, _, message in self._log.notes if kind == DAMAGED]
        return f". {notes[0]}" if notes else ": give archives, shards or arrays of images."


def find_stored_packs(url: str, objects: Objects) -> list[str]:
    """Return the packs among the objects of a listing; [] where there are pictures among them."""
    if any(KINDS.get(extension_of_name(name)) == "image" for name in objects):
        return []
    return choose_packs([f"{url}/{name}" if name else url for name in sorted(objects)])


def _pack(path: str, form: PackFormat, root: str, objects: Objects) -> Pack:
    if objects:
        return Pack(path, form, *object_times(objects[path.removeprefix(root).lstrip("/")])[1:])
    status = os.stat(path)
    return Pack(path, form, status.st_mtime_ns, status.st_ctime_ns)


def _only_format(path: str, packs: Sequence[Pack]) -> PackFormat:
    names = Counter(pack.form.NAME for pack in packs)
    if len(names) > 1:
        counts = ", ".join(f"{n:,} {name}" for name, n in names.most_common())
        raise UsageError(
            f"{sample_id(path)} contains packs of several formats ({counts}): scan one format at "
            "a time."
        )
    return packs[0].form


def _listed(pack: Pack, root: str, log: ReadLog) -> Iterator[PackMember]:
    """Yield what can be read of a pack; what cannot be is a note."""
    name = sample_id(_below(pack.path, root))
    try:
        yield from pack.form.list_members(pack.path)
    except DamagedPackError as damage:
        log.note(DAMAGED, f"{name}: {damage}.")
    except OSError as error:
        log.note(
            "unlisted-folder",
            f"{name} could not be read ({error.strerror or error}): its images are not in this "
            "scan. Grant read permission (chmod u+r) and scan again.",
        )


def _below(path: str, root: str) -> str:
    return os.path.relpath(path, root) if path != root else os.path.basename(path)


def _split_by_name(path: str, root: str) -> str | None:
    """Return the split that the name of a pack, or of a folder above it, says."""
    parts = reversed(_below(path, root).split(os.sep))
    words = (split_word(word) for part in parts for word in re.split(r"[-_. ]", part))
    return next(filter(None, words), None)
