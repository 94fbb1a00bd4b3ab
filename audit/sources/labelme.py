"""LabelMe (MIT): XML files with polygons, in `Annotations/` beside `Images/`."""

from __future__ import annotations

from audit.sources.folder_listing import FolderListing
from audit.sources.voc import xml_annotation

NAME = "LabelMe"
ORDER = 40


def sniff(tree: FolderListing) -> str | None:
    """Return what shows that the tree is annotated in LabelMe form, None if nothing does."""
    return xml_annotation(tree, polygons=True)
