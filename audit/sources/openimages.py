"""Open Images: CSV files with a column ImageID and LabelName or OriginalURL."""

from __future__ import annotations

import os

from audit.sources.folder_listing import FolderListing

NAME = "Open Images"
ORDER = 50


def sniff(tree: FolderListing) -> str | None:
    """Return what shows that the tree is annotated in Open Images form, None if nothing does."""
    for folder in tree.near_folders():
        for path in tree.files(folder, "csv", limit=16):
            header = tree.head_and_tail(path).partition("\n")[0].split(",")
            columns = {name.strip() for name in header}
            if "ImageID" in columns and columns & {"LabelName", "OriginalURL"}:
                return f"{os.path.relpath(path, tree.root)} lists images by ImageID"
    return None
