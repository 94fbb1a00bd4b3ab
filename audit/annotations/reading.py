"""Annotation files into tables: find them, read each in its form, match pictures to samples.

Nothing is read again where neither samples nor annotation files changed: then the rows of the
previous generation are copied. A reader that raises is a problem of its file, of which nothing is
taken; the others go on.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from audit.annotations.discovery import AnnotationGroup, find_groups, list_tree, manifest_group
from audit.annotations.matching import match_pictures
from audit.annotations.outcome import ReadOutcome
from audit.annotations.problems import ProblemLog
from audit.annotations.sink import Sink
from audit.annotations.staging import on_this_machine
from audit.errors import AuditError, error_text
from audit.run.annotation_tables import ANNOTATION_TABLES, DERIVED
from audit.run.listing import is_listed_as_before
from audit.run.store import Store

if TYPE_CHECKING:
    from audit.sources import Source

READER_VERSION = "1"
READERS = {
    "COCO": ("coco", "read_coco"),
    "YOLO": ("yolo", "read_yolo"),
    "VOC": ("voc", "read_voc"),
    "LabelMe": ("labelme", "read_labelme"),
    "Open Images": ("open_images", "read_open_images"),
    "table": ("box_table", "read_box_table"),
    "masks": ("mask_png", "read_masks"),
    "manifest": ("box_table", "read_manifest_boxes"),
}


def read_annotations(store: Store, source: Source, previous: Path | None = None) -> None:
    """Fill the tables of annotations from the files of `source`; `boxes` stays empty.

    `previous` is the database of the last generation, whose rows are taken where nothing changed.
    """
    for table in ANNOTATION_TABLES:
        store.execute(f"DELETE FROM {table}")
    groups = find_annotations(source)
    if not groups:
        return
    keys = {group.file: f"{READER_VERSION} {group.key()}" for group in groups}
    if previous is not None and _copied(store, previous, keys):
        return
    sink = Sink(store)
    for group in groups:
        _read_group(group, keys[group.file], sink)
    sink.finish()
    match_pictures(store, {group.file: group for group in groups})
    store.execute(
        "UPDATE annotation_files SET pictures = n, matched = m FROM (SELECT file, count(*) AS n, "
        "count(sample_id) AS m FROM annotated_images GROUP BY file) c "
        "WHERE annotation_files.file = c.file"
    )
    store.execute(
        "UPDATE annotation_files SET classes = n FROM (SELECT file, count(DISTINCT category_key) "
        "AS n FROM categories GROUP BY file) c WHERE annotation_files.file = c.file"
    )


def find_annotations(source: Source) -> list[AnnotationGroup]:
    """Return the annotation files of a source, root by root."""
    groups: list[AnnotationGroup] = []
    for tree in source.trees:
        groups += find_groups(list_tree(tree))
    return groups + [manifest_group(reader) for reader in source.box_tables]


def _read_group(group: AnnotationGroup, key: str, sink: Sink) -> None:
    module, name = READERS[group.format]
    reader: Callable[[AnnotationGroup, Sink], ReadOutcome] = getattr(
        importlib.import_module(f"audit.annotations.{module}"), name
    )
    try:
        with sink.whole(), on_this_machine(group) as here:
            outcome = reader(here, sink)
    except (AuditError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - one broken file must not lose the scan
        problems = ProblemLog(group.file)
        problems.add("reader-failed", f"the reader failed: {error_text(error)}")
        sink.add_problems(problems)
        outcome = ReadOutcome("unknown", complete=False)
    sink.add(
        "annotation_files",
        {
            "file": group.file, "format": group.format, "file_key": key,
            "n_files": len(group.names), "pictures": 0, "matched": 0, "objects": outcome.objects,
            "classes": 0, "not_read": "; ".join(t for t in (outcome.not_read, outcome.remark) if t),
            "complete": outcome.complete, "form": outcome.form,
        },
    )  # fmt: skip


def _copied(store: Store, previous: Path, keys: dict[str, str]) -> bool:
    """Copy the rows of the previous generation where its files and samples are the same."""
    store.attach(previous, "previous")
    try:
        if not store.columns("previous.annotation_files"):
            return False
        before = dict(
            store.query("SELECT file, file_key FROM previous.annotation_files").iter_rows()
        )
        if before != keys or not _same_samples(store):
            return False
        for table in ANNOTATION_TABLES:
            if table not in DERIVED:
                store.execute(f"INSERT INTO {table} BY NAME FROM previous.{table}")
        return True
    finally:
        store.detach("previous")


def _same_samples(store: Store) -> bool:
    if is_listed_as_before(store):
        return True
    listed = "SELECT id, source, split FROM {}samples"
    differs = f"({listed.format('')} EXCEPT ALL {listed.format('previous.')})"
    counts = "SELECT (SELECT count(*) FROM samples) = (SELECT count(*) FROM previous.samples)"
    return bool(store.scalar(counts)) and store.scalar(f"SELECT 1 FROM {differs} LIMIT 1") is None
