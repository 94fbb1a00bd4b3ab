"""One export of annotations while it is made: where files go, and what they were scanned from."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from audit.annotations.discovery import AnnotationGroup, Tree
from audit.annotations.entries import AnnotationFile, ObjectEntry
from audit.annotations.losses import Losses
from audit.annotations.reading import READER_VERSION
from audit.review.applied_fixes import AppliedFixes
from audit.run.store import Store
from audit.sources.paths import path_of


@dataclass(slots=True)
class AnnotationExport:
    """What was written: annotations by file; `fixed` by decisions; `lost` and `stale` sentences."""

    files: dict[str, int] = field(default_factory=dict)
    pictures: int = 0
    fixed: int = 0
    lost: list[str] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)
    removed: int = 0


@dataclass(slots=True)
class Work:
    """An export into the folder `stage`: of the run in `store`, with the fixes decided."""

    store: Store
    stage: Path
    fixes: AppliedFixes
    result: AnnotationExport
    lost: Losses = field(default_factory=Losses)

    def place(self, name: str) -> Path:
        """Return where a file is made."""
        path = self.stage / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def write(self, name: str, text: str, n: int = 0) -> None:
        """Make a file of `n` annotations."""
        self.place(name).write_text(text, encoding="utf-8")
        self.result.files[name] = n

    def fixed(self, objects: Iterable[ObjectEntry]) -> Iterator[ObjectEntry]:
        """Yield the objects with the fixes that were decided; those that were dropped are gone."""
        for thing in objects:
            after = self.fixes.apply(thing)
            self.result.fixed += after is None or bool(after.changed)
            if after is not None:
                yield after


def unchanged_path(store: Store, file: AnnotationFile) -> str | None:
    """Return where a COCO file lies, None where it is not what was scanned."""
    if file.format != "COCO":
        return None
    for path in _places(store, file):
        if _is_as_scanned(os.path.dirname(path), [os.path.basename(path)], file):
            return path
    return None


def unchanged_folder(store: Store, file: AnnotationFile) -> str | None:
    """Return the folder of small files, None where any of them is not what was scanned."""
    names = store.query(
        "SELECT image_key FROM annotated_images WHERE file = ? ORDER BY entry", [file.file]
    )["image_key"]
    for folder in _places(store, file):
        if _is_as_scanned(folder, names.to_list(), file):
            return folder
    return None


def _places(store: Store, file: AnnotationFile) -> Iterator[str]:
    """Yield where a file or folder of annotations may lie: below each root of the source."""
    for source, uri in json.loads(store.meta().get("roots", "{}")).items():
        root, prefix = path_of(uri), f"{source}:" if source else ""
        if root is not None and file.file.startswith(prefix):
            yield os.path.normpath(os.path.join(root, file.file[len(prefix) :]))


def _is_as_scanned(folder: str, names: Sequence[str], file: AnnotationFile) -> bool:
    """Say whether size and times of files are those of the scan."""
    group = AnnotationGroup(file.format, folder, "", "", tuple(names), Tree(folder, ""))
    return file.file_key == f"{READER_VERSION} {group.key()}"
