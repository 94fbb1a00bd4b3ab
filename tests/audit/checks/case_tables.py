"""Rows of tables that cases of several checks share: boxes, objects by class, near-duplicates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from audit.checking.boxes import Row, Rows
from audit.testing import Case

# Near-duplicates for the cases that need some: hashes of pictures, and what a scan would store of
# the first two, verified against each other.
PICTURES = tuple(letter * 32 for letter in "abcd")
NEAR_GROUP: Sequence[Mapping[str, Any]] = (
    {"representative": PICTURES[0], "pixel_hash": PICTURES[0], "position": 0, "score": 1.0},
    {"representative": PICTURES[0], "pixel_hash": PICTURES[1], "position": 1, "score": 9.5},
)
NEAR_PAIR: Mapping[str, Any] = {
    "a": PICTURES[0], "b": PICTURES[1], "kind": "near", "score": 9.5, "similarity": 0.98,
    "distance": 4, "overlap": 1.0, "transformation": "mirrored", "verified_full_size": False,
}  # fmt: skip
NEAR: Mapping[str, Sequence[Mapping[str, Any]]] = {"groups": NEAR_GROUP, "pairs": [NEAR_PAIR]}

ENTRY: Row = {"file": "boxes.json", "image_key": "0000.jpg", "entry": 0}  # the first box of a case
BOX: Row = {
    "file": "boxes.json", "line": 1, "byte": 0, "label": "cat", "category_key": "1", "kind": "box",
    "x": 100.0, "y": 100.0, "width": 200.0, "height": 150.0, "picture_width": 640,
    "picture_height": 480, "declared_width": 640.0, "declared_height": 480.0, "other_unit": False,
    "crowd": False,
}  # fmt: skip


def boxed(*boxes: Row, **tables: Rows) -> Mapping[str, Rows]:
    """Return tables of boxes: what a row does not give is a plain box of the sample 0000.jpg.

    `tables` are rows of further tables; those of `annotation_files` get what a COCO file has.
    """
    rows = [
        {**BOX, "sample_id": "0000.jpg", "entry": n, "annotation_id": f"{n}", **box}
        for n, box in enumerate(boxes)
    ]
    rows = [{"image_key": row["sample_id"], **row} for row in rows]
    form = {"format": "COCO", "form": "xywh px", "reading": "xywh px", "complete": True}
    files: Rows = tables.pop("annotation_files", [{}])
    made = [{"file": "boxes.json", "frame": "displayed", **form, **row} for row in files]
    return {"boxes": rows, "annotation_files": made, **tables}


def box_case(
    name: str,
    *boxes: Row,
    expect: Sequence[str] = (),
    images: Rows = ({},),
    params: Row | None = None,
    **tables: Rows,
) -> Case:
    """Return a case of these boxes and tables (see `boxed`); of one picture unless it has more."""
    return Case(name, images, expect, params or {}, boxed(*boxes, **tables))


def box_found(name: str, *boxes: Row, expect: str = "0000.jpg", **rest: Any) -> Case:
    """Return a case of which one thing is found: a fault of the first picture unless told."""
    return box_case(name, *boxes, expect=[expect], **rest)


def object_case(
    *pictures: tuple[str | None, Mapping[str, int]], **columns: Any
) -> tuple[list[dict[str, Any]], dict[str, list[dict[str, Any]]]]:
    """Return images (split, objects by class) and their tables, for cases; `columns` of objects."""
    shape = {"kind": "box", "side": 5.0, "aspect": 0.0, "x": 0.5, "y": 0.5, **columns}
    images = [{"split": split, "label": None} for split, _ in pictures]
    rows = [
        {"sample_id": f"{i:04d}.jpg", "label": label, "n": n, **shape}
        for i, (_, held) in enumerate(pictures) for label, n in held.items()
    ]  # fmt: skip
    return images, {"object_labels": rows}
