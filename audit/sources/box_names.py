"""The usual names of the four columns of a box, in tables of boxes and in manifests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
