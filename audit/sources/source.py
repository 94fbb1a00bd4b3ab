"""A dataset to read: decides how to read what the user named, then streams its samples."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from audit.errors import AuditError, UsageError, error_place, error_text, error_trace
from audit.records import ONE_HOT, FailedPart, Layout, Sample, sample_id
from audit.sources import paths
from audit.sources.folder import FolderReader
from audit.sources.folder_listing import list_folder
from audit.sources.layout import layout_names
from audit.sources.listed_tree import StoredTree
from audit.sources.manifest import ManifestReader
from audit.sources.names import split_word
from audit.sources.object_store import check_address, list_store
from audit.sources.packed import PackedReader, find_packs, find_stored_packs
from audit.sources.readings import Given, Note, ReadLog, SampleRows, in_rows
from audit.sources.tables import joined_frames
from audit.sources.walk import is_run
from dataset_preflight.foundation.files import refuse_special
from dataset_preflight.foundation.terminal import nearest_path

if TYPE_CHECKING:
    import polars as pl

Reader = FolderReader | ManifestReader | PackedReader
T = TypeVar("T")
_NAMED = re.compile(r"([^/\\:=]+)=(.+)", re.DOTALL)
# A manifest of one of these names says nothing about the dataset; its folder does.
_GENERIC = frozenset(
    ("manifest", "index", "metadata", "labels", "annotations", "data", "dataset", "files", "list")
)


class Source:
    """A dataset to read: streams its samples and, after that, reports what else it met."""

    def __init__(self, name: str, readers: Sequence[Reader]) -> None:
        self.name = name
        self._readers = tuple(readers)
        self.log = ReadLog()
        """What is no sample, and declared classes; complete after `rows` ended, as `failed`."""
        self.failed: list[FailedPart] = []
        """Readers that broke while listing."""
        self.remarks: list[Note] = []
        """Notes of the caller, in addition to those of the readers."""
        self.label_separator: str | None = None
        """The separator between the labels of a cell, where the user set it."""

    @property
    def roots(self) -> dict[str, str]:
        """{name: storable absolute path} of every root, '' for the name of a single one."""
        return {reader.name: paths.uri_of(reader.given.path) for reader in self._readers}

    @property
    def layout(self) -> Layout:
        """The layout with its reason; of several roots, all of them."""
        layouts = [reader.layout for reader in self._readers]
        if len(layouts) == 1:
            return layouts[0]
        named = list(zip((reader.name for reader in self._readers), layouts, strict=True))
        same = len({layout.name for layout in layouts}) == 1
        kind = layouts[0].name if same else "; ".join(f"{n}: {layout.name}" for n, layout in named)
        annotations = sorted({layout.annotations for layout in layouts if layout.annotations})
        reason = "; ".join(f"{name}: {layout.reason}" for name, layout in named)
        return Layout(kind, reason, ", ".join(annotations) or None)

    def describe(self) -> str:
        """Return what will be read, and why, for a person: one line on the layout, one per root."""
        layout = self.layout
        known = layout.annotations is None or layout.annotations in layout.reason
        form = "" if known else f", annotated in {layout.annotations} form"
        lines = [f"{self.name}: {layout.name}{form} ({layout.reason})"]
        for reader in self._readers:
            name = f"{reader.name} = " if reader.name else ""
            lines.append(f"  {name}{sample_id(reader.given.path)}")
        # A line break in a folder's name makes no line here.
        return "\n".join(line.replace("\n", "\\x0a") for line in lines)

    def rows(self, size: int = 5000) -> Iterator[SampleRows]:
        """Yield the samples in a fixed order, about `size` at a time.

        A reader that breaks is listed in `failed`; where all break, the last error is raised.
        """
        self.log, self.failed = ReadLog(), []
        self._note_overlaps()
        waiting = SampleRows()
        for part in chain.from_iterable(map(self._listed, self._readers)):
            waiting.extend(part)
            if len(waiting) >= size:
                yield waiting
                waiting = SampleRows()
        if waiting:
            yield waiting

    def batches(self, size: int = 5000) -> Iterator[list[Sample]]:
        """Yield the samples of `rows` as objects, `size` at a time."""
        samples = chain.from_iterable(rows.samples() for rows in self.rows())
        while batch := list(islice(samples, size)):
            yield batch

    def _listed(self, reader: Reader) -> Iterator[SampleRows]:
        if isinstance(reader, FolderReader):
            return self._guarded(reader, reader.rows(self.log))
        return in_rows(self._guarded(reader, reader.samples(self.log)))

    def _guarded(self, reader: Reader, parts: Iterator[T]) -> Iterator[T]:
        try:
            yield from parts
        except (AuditError, OSError, MemoryError):
            raise  # the caller's mistake, or the machine's: no defect of the reader
        except Exception as error:
            if len(self.failed) == len(self._readers) - 1:
                raise
            name = reader.name or os.path.basename(reader.given.path)
            details = error_text(error), error_place(error), error_trace(error)
            self.failed.append(FailedPart("reader", "", name, *details))

    def _note_overlaps(self) -> None:
        roots = [(tree.name, tree.root) for tree in self.trees if tree.listed is None]
        for name, root in roots:
            for other, outer in roots:
                if name != other and os.path.commonpath([root, outer]) == outer:
                    self.log.note(
                        "overlapping-roots",
                        f"{name} is inside {other}, so its files are listed under both names. "
                        "Give folders that do not overlap, or --exclude the inner one.",
                    )

    @property
    def notes(self) -> list[Note]:
        """(kind, sample id or None, message) of what the readers noted."""
        return [*self.remarks, *self.log.notes]

    @property
    def trees(self) -> list[FolderReader]:
        """The trees of names, where annotation files may lie: of folders, stores and archives."""
        return [tree for reader in self._readers if (tree := _tree_of(reader))]

    @property
    def label_columns(self) -> dict[str, str]:
        """{root whose labels come from columns: `ONE_HOT` where the user said so, else ''}."""
        trees = {r.name: tree.labels_in_table for r in self._readers if (tree := _tree_of(r))}
        readers = [r for r in self._readers if trees.get(r.name, True)]
        return {r.name: ONE_HOT if getattr(r, "one_hot", False) else "" for r in readers}

    @property
    def box_tables(self) -> list[ManifestReader]:
        """The manifests that have a row for each box."""
        return [r for r in self._readers if isinstance(r, ManifestReader) and r.box_columns]

    @property
    def metadata(self) -> pl.DataFrame | None:
        """The other columns of the manifests by `sample_id`; reads them again; None without any."""
        frames = [frame for reader in self._readers if (frame := reader.metadata()) is not None]
        return joined_frames(frames)


def _tree_of(reader: Reader) -> FolderReader | None:
    """Return what reads a folder, or an archive as one; None where there are rows."""
    tree = reader.tree_reader if isinstance(reader, PackedReader) else reader
    return tree if isinstance(tree, FolderReader) else None


def open_source(
    specs: Sequence[str],
    *,
    layout: str | None = None,
    exclude: Sequence[str] = (),
    roots: Mapping[str, str] | None = None,
    ignore: Sequence[Path] = (),
    label_separator: str | None = None,
    one_hot: str | None = None,
) -> Source:
    """Return the source for a folder, a manifest, or several `name=PATH`; raises UsageError.

    `label_separator` stands between the labels of a cell; other options are those of `Given`.
    """
    parsed = _parse(specs, roots or {})
    readers: list[Reader] = []
    words = [split_word(spec.name) for spec in parsed]
    for spec, word in zip(parsed, words, strict=True):
        split = spec.name if len(parsed) > 1 or word else None
        if word and words.count(word) == 1:  # `training=DIR` is the split `train`
            split = word
        given = replace(
            spec, split=split, split_wins=word is not None, layout=layout, exclude=tuple(exclude),
            one_hot=one_hot or "",
        )  # fmt: skip
        if os.path.isfile(os.path.join(spec.path, "CURRENT")) and is_run(list_folder(spec.path)):
            raise UsageError(
                f"{spec.path} is a run of a scan, not a dataset: give the folder of the images, "
                f"or print the run with `audit report {spec.path}`."
            )
        if os.path.isdir(os.path.join(spec.path, paths.PART_FOLDER)):
            raise UsageError(
                f"{spec.path} is not whole: an `audit apply` into it was stopped, or is at work. "
                "Run that command again first."
            )
        if paths.is_remote(spec.path):
            readers.append(_stored(given))
        elif layout != "manifest" and (packs := find_packs(spec.path)):
            readers.append(PackedReader(given, packs))
        elif os.path.isdir(spec.path):
            if layout == "manifest":
                raise UsageError(f"{spec.path} is a folder: give the manifest file itself.")
            readers.append(FolderReader(replace(given, ignore=tuple(ignore))))
        elif layout not in (None, "manifest"):
            known = "" if layout in layout_names() else f" ({layout!r} is not a layout)"
            raise UsageError(f"{spec.path} is a file, so --layout can only be manifest{known}.")
        else:
            readers.append(ManifestReader(given))
    if one_hot and not any(isinstance(reader, ManifestReader) for reader in readers):
        raise UsageError("[scan] one_hot names columns of a manifest, but no source is a manifest.")
    source = Source(_dataset_name(parsed), readers)
    source.label_separator = label_separator or None
    return source


def describe_sources(specs: Sequence[str]) -> tuple[str, list[str]]:
    """Return the name of a dataset and the paths of its sources; raises UsageError."""
    parsed = _parse(specs, {})
    return _dataset_name(parsed), [given.path for given in parsed]


def _stored(given: Given) -> FolderReader | PackedReader:
    """Return a reader of the objects below an address; raises UsageError."""
    check_address(given.path)
    objects = list_store(given.path)
    if packs := find_stored_packs(given.path, objects):
        return PackedReader(given, packs, objects)
    return FolderReader(given, StoredTree(given.path, objects))


def _parse(specs: Sequence[str], roots: Mapping[str, str]) -> list[Given]:
    if not all(specs) or not specs:
        raise UsageError("No source given: name a folder of images or a manifest.")
    parsed = [_one(text, roots) for text in specs]
    if len(parsed) > 1 and not all(spec.name for spec in parsed):
        raise UsageError(
            "Several sources need names: write `train=DIR test=DIR`, one name per source."
        )
    used: set[str] = set()
    for spec in parsed:
        if spec.name in used:
            raise UsageError(f"The name {spec.name!r} is given twice: use another for {spec.path}.")
        used.add(spec.name)
    return parsed


def _one(text: str, roots: Mapping[str, str]) -> Given:
    # A folder may have `=` in its own name (lr=0.1): an existing path is taken as it is.
    match = None if os.path.lexists(text) else _NAMED.fullmatch(text)
    name, given = (sample_id(match[1]), match[2]) if match else ("", text)
    if paths.is_remote(given):
        return Given(given.rstrip("/"), name, roots=roots)
    path = os.path.abspath(os.path.expanduser(paths.remap(given, roots)))
    if not os.path.exists(path):
        raise UsageError(
            f"{sample_id(path)} does not exist: give a folder of images, a manifest (CSV, JSONL, "
            f"Parquet), an archive or shards, or several as name=PATH.{nearest_path(path)}"
        )
    try:
        refuse_special(path)
    except OSError as error:
        raise UsageError(f"{sample_id(path)} cannot be read: {error.strerror}.") from None
    return Given(path, name, roots=roots)


def _dataset_name(parsed: Sequence[Given]) -> str:
    """Return a name that can be a folder: the folder's, the manifest's, or what the roots share."""
    if len(parsed) == 1:
        path = parsed[0].path
        if os.path.isdir(path):
            name = os.path.basename(path)
        else:
            stem = os.path.splitext(os.path.basename(path))[0]
            generic = stem.lower() in _GENERIC
            name = os.path.basename(os.path.dirname(path)) if generic else stem
    else:
        # an address and a path have nothing in common
        distant = any(paths.is_remote(spec.path) for spec in parsed)
        shared = "" if distant else os.path.commonpath([os.path.dirname(s.path) for s in parsed])
        name = os.path.basename(shared) or "-".join(spec.name for spec in parsed)
    cleaned = re.sub(r'[\s/\\:*?"<>|]+', "_", sample_id(name)).strip("._ ")
    return cleaned or "dataset"
