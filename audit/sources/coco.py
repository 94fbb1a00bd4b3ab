"""COCO: one JSON file holds `images`, `annotations` and `categories` for many pictures.

Seen in `annotations/instances_*.json` (COCO itself), in `_annotations.coco.json` inside each split
(Roboflow exports) and as a lone file at the root. Only the head and the tail of a file are read:
the keys may come in any order, and the real ones reach gigabytes.
"""

from __future__ import annotations

import os
import re

from audit.sources.folder_listing import FolderListing

NAME = "COCO"
ORDER = 10
_KEY = re.compile(r'"(images|annotations|categories)"\s*:\s*\[')


def sniff(tree: FolderListing) -> str | None:
    """Return what shows that the tree is annotated in COCO form, None if nothing does."""
    for folder in tree.near_folders():
        for path in tree.files(folder, "json"):
            if len(set(_KEY.findall(tree.head_and_tail(path)))) >= 2:
                return f"{os.path.relpath(path, tree.root)} lists images and annotations"
    return None
