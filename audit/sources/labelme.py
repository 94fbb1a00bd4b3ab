"""LabelMe (MIT): XML files with polygons, in `Annotations/` beside `Images/`."""

from __future__ import annotations

from audit.sources.folder_listing import Look
from audit.sources.voc import xml_annotation

NAME = "LabelMe"
ORDER = 40


def sniff(look: Look) -> str | None:
    """Return what shows that the tree is annotated in LabelMe form, None if nothing does."""
    return xml_annotation(look, polygons=True)
