"""Annotation files in archives and stores, copied to a folder of this machine while they are read.

Readers map files, look beside them and go through them in threads, which archives and stores do not
offer. What a group needs is copied, no more, and removed when the group is read. A file that cannot
be had is missing in the copy, and its reader says so. Cost: their size on the disk of temporary
files; of a store one request a file, 16 at a time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from audit.annotations.discovery import OBJECT_MASKS, AnnotationGroup
from audit.sources.listed_tree import ListedTree
from audit.sources.object_store import AT_ONCE
from audit.sources.reading_error import ReadingError

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
        tree = replace(group.tree, root=str(top), listed=None)
        yield replace(group, root=str(top), tree=tree)


def _needed(group: AnnotationGroup, listed: ListedTree) -> Iterator[str]:
    """Yield the files of a group, and those that its reader looks at beside them."""
    above = group.folder.rstrip("/").rpartition("/")[0]
    above = f"{above}/" if above else ""
    yield from (group.folder + name for name in group.names)
    yield from group.tree.named
    if group.format == "Open Images":
        yield from (group.folder + name for name in group.tree.files["csv"][group.folder])
    if group.format == "masks":
        objects = (f"{above}{OBJECT_MASKS}/{name}" for name in group.names)
        yield from (path for path in objects if listed.has_file(f"{listed.root}/{path}"))


def _copy(listed: ListedTree, name: str, top: Path) -> None:
    target = top / name
    if ".." in target.parts:
        return  # no name of a store leads outside
    try:
        content = listed.read(f"{listed.root}/{name}", MOST_BYTES)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    except (ReadingError, FileNotFoundError, FileExistsError, NotADirectoryError, ValueError):
        return
