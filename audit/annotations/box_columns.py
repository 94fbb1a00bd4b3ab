"""Which columns of a CSV file name a picture and a box: told from its header."""

from __future__ import annotations

from audit.sources.box_names import first_column, number_columns
from audit.sources.folder_listing import head_and_tail

PICTURE = (
    "filename", "file_name", "image", "image_path", "path", "file", "image_name", "img", "imageid",
    "image_id",
)  # fmt: skip
LABEL = ("class", "label", "class_name", "category", "name", "label_name", "object")
_OPEN_IMAGES = frozenset(("imageid", "labelname", "xmin", "xmax", "ymin", "ymax"))


def table_form(path: str) -> str | None:
    """Return `Open Images` or `table` for a CSV file of boxes, None for another."""
    names = _names(path)
    if set(names) >= _OPEN_IMAGES:
        return "Open Images"
    return "table" if first_column(names, PICTURE) and number_columns(names) else None


def _names(path: str) -> list[str]:
    header = head_and_tail(path).lstrip("\ufeff").partition("\n")[0]
    return [name.strip().strip('"').lower() for name in header.split(",")]
