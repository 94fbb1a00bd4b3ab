"""Annotation files into tables: find them, read each in its form, match pictures to samples.

Rows of the previous version are copied where neither samples nor annotation files changed. A
reader that raises is a problem of its file. Files in archives and stores are copied first.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from audit.annotations.discovery import (
    OBJECT_MASKS,
    AnnotationGroup,
    find_groups,
    list_tree,
    manifest_group,
)
from audit.annotations.settling import match_pictures
from audit.annotations.sink import Reading, Sink
from audit.errors import AuditError, error_text
from audit.run.annotation_tables import ANNOTATION_TABLES, DERIVED
from audit.run.reuse import PREVIOUS, is_listed_as_before
from audit.run.store import Store
from audit.sources.listed_tree import ListedTree
from audit.sources.object_store import AT_ONCE
from audit.sources.readings import ReadingError
from dataset_preflight.foundation.files import inside

if TYPE_CHECKING:
    from audit.sources import Source

READER_VERSION = "2"
READERS = {
    "COCO": ("coco", "read_coco"),
    "YOLO": ("yolo", "read_yolo"),
    "VOC": ("voc", "read_voc"),
    "LabelMe": ("labelme", "read_labelme"),
    "Open Images": ("box_table", "read_open_images"),
    "table": ("box_table", "read_box_table"),
    "masks": ("mask_png", "read_masks"),
    "manifest": ("box_table", "read_manifest_boxes"),
}


def read_annotations(store: Store, source: Source) -> None:
    """Fill the tables of annotations from `source` or `previous`; `boxes` stays empty."""
    for table in ANNOTATION_TABLES:
        store.execute(f"DELETE FROM {table}")
    groups = find_annotations(source)
    if not groups:
        return
    keys = {g.file: f"{READER_VERSION} {g.key()} {g.key_of_names()}" for g in groups}
    if PREVIOUS in store.attached and _copied(store, keys):
        return
    sink = Sink(store)
    for group in groups:
        _read_group(group, keys[group.file], sink)
    sink.finish()
    match_pictures(store, {group.file: group for group in groups})
    store.execute(
        "UPDATE annotation_files f SET "
        "pictures = (SELECT count(*) FROM annotated_images i WHERE i.file = f.file), "
        "matched = (SELECT count(sample_id) FROM annotated_images i WHERE i.file = f.file), "
        "classes = (SELECT count(DISTINCT category_key) FROM categories c WHERE c.file = f.file)"
    )


def find_annotations(source: Source) -> list[AnnotationGroup]:
    """Return the annotation files of a source, root by root."""
    groups = [group for tree in source.trees for group in find_groups(list_tree(tree))]
    return groups + [manifest_group(reader) for reader in source.box_tables]


def _read_group(group: AnnotationGroup, key: str, sink: Sink) -> None:
    module, name = READERS[group.format]
    read = getattr(importlib.import_module(f"audit.annotations.{module}"), name)
    try:
        with sink.whole(), on_this_machine(group) as here:
            reading = Reading(here, sink)
            read(reading)
            reading.add_problems()
    except (AuditError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - one broken file must not lose the scan
        reading = Reading(group, sink)
        reading.complete = False
        reading.note("reader-failed", f"the reader failed: {error_text(error)}")
        reading.add_problems()
    reading.add(
        "annotation_files", format=group.format, file_key=key, n_files=len(group.names), pictures=0,
        matched=0, objects=reading.objects, classes=0, complete=reading.complete, form=reading.form,
        not_read="; ".join(t for t in (reading.not_read, reading.remark) if t),
    )  # fmt: skip


def _copied(store: Store, keys: dict[str, str]) -> bool:
    """Copy the rows of the previous version where its files and samples are the same."""
    before = dict(store.query("SELECT file, file_key FROM previous.annotation_files").iter_rows())
    if before != keys or not _same_samples(store):
        return False
    for table in ANNOTATION_TABLES:
        if table not in DERIVED:
            store.execute(f"INSERT INTO {table} BY NAME FROM previous.{table}")
    return True


def _same_samples(store: Store) -> bool:
    if is_listed_as_before(store):
        return True
    listed = "SELECT id, source, split FROM {}samples"
    differs = f"({listed.format('')} EXCEPT ALL {listed.format('previous.')})"
    counts = "SELECT (SELECT count(*) FROM samples) = (SELECT count(*) FROM previous.samples)"
    return bool(store.scalar(counts)) and store.scalar(f"SELECT 1 FROM {differs} LIMIT 1") is None


MOST_BYTES = 4 << 30
"""Bytes of one file: what is larger, or unpacks to more, is not copied."""


@contextmanager
def on_this_machine(group: AnnotationGroup) -> Iterator[AnnotationGroup]:
    """Give a group whose files can be opened: itself, or a copy where it lies elsewhere."""
    listed = group.tree.listed
    if listed is None:
        yield group
        return
    with tempfile.TemporaryDirectory(prefix="audit-annotations-") as folder:
        top = Path(folder).resolve()
        (top / group.folder).mkdir(parents=True, exist_ok=True)
        names = list(dict.fromkeys(_needed(group, listed)))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda name: _copy(listed, name, top), names))
        yield replace(group, tree=replace(group.tree, root=str(top), listed=None))


def _needed(group: AnnotationGroup, listed: ListedTree) -> Iterator[str]:
    """Yield the files of a group, and those that its reader looks at beside them."""
    yield from (group.folder + name for name in group.names)
    yield from group.tree.named
    if group.format == "Open Images":
        yield from (group.folder + name for name in group.descriptions)
    if group.format == "masks":
        objects = (f"{group.above}{OBJECT_MASKS}/{name}" for name in group.names)
        yield from (path for path in objects if listed.has_file(f"{listed.root}/{path}"))


def _copy(listed: ListedTree, name: str, top: Path) -> None:
    try:
        target = inside(top, name)
        content = listed.read(f"{listed.root}/{name}", MOST_BYTES)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    except (ReadingError, FileNotFoundError, FileExistsError, NotADirectoryError, ValueError):
        return
