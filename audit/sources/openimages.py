"""Open Images: CSV files with a column ImageID and LabelName or OriginalURL."""

from __future__ import annotations

import os

from audit.sources.folder_listing import Look, head_and_tail

NAME = "Open Images"
ORDER = 50


def sniff(look: Look) -> str | None:
    """Return what shows that the tree is annotated in Open Images form, None if nothing does."""
    for folder in look.near_folders():
        for path in look.files(folder, "csv", limit=16):
            header = head_and_tail(path).partition("\n")[0].split(",")
            columns = {name.strip() for name in header}
            if "ImageID" in columns and columns & {"LabelName", "OriginalURL"}:
                return f"{os.path.relpath(path, look.root)} lists images by ImageID"
    return None
