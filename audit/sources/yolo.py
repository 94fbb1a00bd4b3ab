"""YOLO: one text file a picture, a line an object: class number, then the box (or polygon) in 0..1.

Seen as `images/` beside `labels/`, as text files beside the pictures (Darknet), with `data.yaml`,
`obj.names` or `classes.txt` naming the classes. The names alone prove nothing (`data.yaml` is a
common name), so a file with such lines, or a yaml with both its keys, is asked for.
"""

from __future__ import annotations

import os
import re

from audit.sources.folder_listing import FolderListing

NAME = "YOLO"
ORDER = 20
_LINE = re.compile(r"\s*\d+(?:[ \t]+-?\d*\.?\d+(?:[eE][-+]?\d+)?){4,}[ \t]*(?:\r?\n|$)")
_NAMES = re.compile(r"^names\s*:", re.MULTILINE)
_TRAIN = re.compile(r"^(?:train|val|nc)\s*:", re.MULTILINE)


def sniff(tree: FolderListing) -> str | None:
    """Return what shows that the tree is annotated in YOLO form, None if nothing does."""
    for folder in tree.near_folders():
        for path in tree.files(folder, "yaml", "yml"):
            text = tree.head_and_tail(path)
            if _NAMES.search(text) and _TRAIN.search(text):
                return f"{os.path.relpath(path, tree.root)} names classes and splits"
        for path in tree.files(folder, "txt"):
            if _LINE.match(tree.head_and_tail(path)):
                return f"{os.path.relpath(path, tree.root)} has lines of class and box"
    return None
