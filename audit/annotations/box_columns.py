"""Which columns of a CSV file name a picture and a box: told from its header."""

from __future__ import annotations

from audit.sources.box_names import first_column, number_columns

PICTURE = (
    "filename", "file_name", "image", "image_path", "path", "file", "image_name", "img", "imageid",
    "image_id",
)  # fmt: skip
LABEL = ("class", "label", "class_name", "category", "name", "label_name", "object")
_OPEN_IMAGES = frozenset(("imageid", "labelname", "xmin", "xmax", "ymin", "ymax"))


def table_form(text: str) -> str | None:
    """Return `Open Images` or `table` for how a CSV file of boxes starts, None for another."""
    names = _names(text)
    if set(names) >= _OPEN_IMAGES:
        return "Open Images"
    return "table" if first_column(names, PICTURE) and number_columns(names) else None


def _names(text: str) -> list[str]:
    header = text.lstrip("\ufeff").partition("\n")[0]
    return [name.strip().strip('"').lower() for name in header.split(",")]
