"""Pascal VOC and LabelMe: one XML file a picture, with boxes (VOC) or polygons (LabelMe).

Seen as `Annotations/*.xml` beside `JPEGImages/`, and as XML files beside the pictures. Both open
with `<annotation>`; the shape of an object tells which it is.
"""

from __future__ import annotations

import os

from audit.sources.folder_listing import FolderListing

NAME = "VOC"
ORDER = 30


def sniff(tree: FolderListing) -> str | None:
    """Return what shows that the tree is annotated in VOC form, None if nothing does."""
    return xml_annotation(tree, polygons=False)


def xml_annotation(tree: FolderListing, *, polygons: bool) -> str | None:
    """Return which XML file is an annotation with, or without, polygons; None if none is."""
    for folder in tree.near_folders():
        for path in tree.files(folder, "xml"):
            text = tree.head_and_tail(path)
            if "<annotation" in text and ("<polygon>" in text) == polygons:
                return f"{os.path.relpath(path, tree.root)} is an <annotation> of one picture"
    return None
