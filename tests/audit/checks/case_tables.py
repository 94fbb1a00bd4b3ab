"""What cases and tests of several checks share: rows of tables, and the findings of a check."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.checking.boxes import Row, Rows
from audit.checking.check import all_checks, make_params
from audit.records import Finding
from audit.testing import Case, case_store

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


Cases = Mapping[str, Sequence[Case]]  # cases by the code of their check


def odd_image(name: str, others: Rows, **row: Any) -> Case:
    """Return a case in which one image is found among others; its id is x.jpg unless given."""
    row = {"id": "x.jpg", **row}
    return Case(name, [*others, row], [row["id"]])


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


def file_found(name: str, part: str, *boxes: Row, **rest: Any) -> Case:
    """Return a case of which one thing is found in the whole file, or in this part of it."""
    return box_case(name, *boxes, expect=[f"dataset:boxes.json{part}"], **rest)


def shape_case(name: str, *shapes: Row, **rest: Any) -> Case:
    """Return a case of one box that has these outlines or points."""
    return box_case(name, {}, annotation_shapes=shapes, **rest)


def shape_found(name: str, *shapes: Row, **rest: Any) -> Case:
    """Return a case of one box that has these outlines or points, of which one is a fault."""
    return shape_case(name, *shapes, expect=["0000.jpg"], **rest)


def in_two_pictures(name: str, *boxes: Row) -> Case:
    """Return a case of two pictures that have the same boxes, which is clean."""
    second = [{**box, "sample_id": "0001.jpg"} for box in boxes]
    return box_case(name, *boxes, *second, images=[{}, {}])


def object_tables(
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


def object_case(
    name: str, *pictures: tuple[str | None, Mapping[str, int]], expect: Sequence[str] = ()
) -> Case:
    """Return a case of images with these objects (see `object_tables`)."""
    images, tables = object_tables(*pictures)
    return Case(name, images, expect, tables=tables)


def sized(split: str | None, **counts: int) -> list[dict[str, Any]]:
    """Return so many images of each class in a split."""
    return [{"label": x, "split": split} for x, n in counts.items() for _ in range(n)]


def metadata(name: str, values: Sequence[Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the column of a manifest for images that are numbered from 0."""
    return {"metadata": [{"sample_id": f"{i:04d}.jpg", name: x} for i, x in enumerate(values)]}


def judge(
    code: str, images: Rows, params: Mapping[str, float] | None = None, **tables: Rows
) -> list[Finding]:
    """Return the findings of a check in a dataset of these rows."""
    check = all_checks()[code]
    with case_store(Case("", images, tables=tables)) as store:
        return list(check.find(store, make_params(check, params or {})))
