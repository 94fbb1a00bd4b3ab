"""Which columns of a CSV file name a picture and a box: told from its header."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from audit.sources.folder_listing import head_and_tail

PICTURE = (
    "filename", "file_name", "image", "image_path", "path", "file", "image_name", "img", "imageid",
    "image_id",
)  # fmt: skip
LABEL = ("class", "label", "class_name", "category", "name", "label_name", "object")
# The four columns, and what they are.
BOXES: Mapping[str, Sequence[tuple[str, str, str, str]]] = {
    "corners": (
        ("xmin", "ymin", "xmax", "ymax"), ("x_min", "y_min", "x_max", "y_max"),
        ("x1", "y1", "x2", "y2"), ("left", "top", "right", "bottom"),
        ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2"),
    ),
    "xywh": (
        ("bbox_x", "bbox_y", "bbox_width", "bbox_height"), ("x", "y", "w", "h"),
        ("bbox_x", "bbox_y", "bbox_w", "bbox_h"), ("x", "y", "box_width", "box_height"),
    ),
}  # fmt: skip
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


def first_column(names: Sequence[str], wanted: Sequence[str]) -> str | None:
    """Return the first of the wanted names that is a column."""
    return next((name for name in wanted if name in names), None)


def number_columns(names: Sequence[str]) -> tuple[str, tuple[str, str, str, str]] | None:
    """Return what the four columns of a box are, and which."""
    for form, choices in BOXES.items():
        for choice in choices:
            if set(choice) <= set(names):
                return form, choice
    return None
