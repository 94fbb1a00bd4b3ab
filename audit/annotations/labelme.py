"""LabelMe: one file a picture, XML (MIT) or JSON (the desktop tool), with polygons and boxes.

Objects that are marked as deleted are left out. Points of a rectangle are two corners in JSON; a
circle is its centre and a point of its edge.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from audit.annotations.coco_entry import loads, number
from audit.annotations.discovery import AnnotationGroup
from audit.annotations.outcome import ReadOutcome
from audit.annotations.problems import ProblemLog
from audit.annotations.shapes import add_rings
from audit.annotations.sink import Sink
from audit.annotations.voc import read_annotation_xml
from audit.annotations.xml_objects import Node, float_of
from audit.records import sample_id

Point = tuple[float, float]
_MOST_BYTES = 64 << 20  # a picture may be inside, as text
_RING: dict[str, Any] = {
    "file": pl.String, "image_key": pl.String, "entry": pl.Int64, "part": pl.Int32,
    "points": pl.List(pl.Float64),
}  # fmt: skip


def read_labelme(group: AnnotationGroup, sink: Sink) -> ReadOutcome:
    """Read the files of one folder into the tables."""
    problems, outcome = ProblemLog(group.file), ReadOutcome("xywh px")
    used: dict[str, None] = {}
    rings: list[dict[str, Any]] = []
    for position, name in enumerate(group.names):
        read = _read_xml if name.lower().endswith(".xml") else _read_json
        found = read(group, name, problems)
        if found is None:
            outcome.complete = False
            continue
        picture, objects = found
        key = sample_id(name)
        head = {"file": group.file, "image_key": key}
        sink.add("annotated_images", {**head, "entry": position, **picture})
        for thing in objects:
            used.setdefault(thing["label"] or "", None)
            outcome.objects += 1
            _add(sink, head, thing)
            if len(thing["points"]) > 2:
                flat = [v for point in thing["points"] for v in point]
                rings.append({**head, "entry": thing["entry"], "part": 0, "points": flat})
    add_rings(sink, pl.DataFrame(rings, schema=_RING, orient="row"))
    for entry, label in enumerate(label for label in used if label):
        sink.add(
            "categories",
            {"file": group.file, "category_key": label, "label": label, "entry": entry,
             "declared": False},
        )  # fmt: skip
    sink.add_problems(problems)
    return outcome


def _add(sink: Sink, head: Mapping[str, str], thing: Mapping[str, Any]) -> None:
    points: Sequence[Point] = thing["points"]
    numbers: list[float | None] = [None] * 4
    if points:
        left, top = min(x for x, _ in points), min(y for _, y in points)
        right, bottom = max(x for x, _ in points), max(y for _, y in points)
        numbers = [left, top, right - left, bottom - top]
    sink.add(
        "annotations",
        {
            **head, "entry": thing["entry"], "line": thing["line"], "category_key": thing["label"],
            "kind": thing["kind"], "crowd": False, "annotation_id": thing["id"],
            "attributes": thing["attributes"],
            **{f"v{i}": value for i, value in enumerate(numbers, 1)},
        },
    )  # fmt: skip


# ---- XML ----


def _read_xml(
    group: AnnotationGroup, name: str, problems: ProblemLog
) -> tuple[dict[str, Any], list[dict[str, Any]]] | None:
    node = read_annotation_xml(group, name, problems)
    if node is None:
        return None
    folder, file = node.value("folder"), node.value("filename")
    picture = {
        "file_name": "/".join(part for part in (folder, file) if part),
        "width": float_of(node.value("imagesize", "ncols")),
        "height": float_of(node.value("imagesize", "nrows")),
    }
    things = [thing for thing in node.all("object") if thing.value("deleted") != "1"]
    key = sample_id(name)
    return picture, [_xml_object(i, thing, key, problems) for i, thing in enumerate(things)]


def _xml_object(entry: int, thing: Node, key: str, problems: ProblemLog) -> dict[str, Any]:
    polygon, box = thing.first("polygon"), thing.first("segm")
    place = f"{key}, object {entry}, line {thing.line}"
    points: list[Point] = []
    if polygon is not None:
        pairs = [(float_of(p.value("x")), float_of(p.value("y"))) for p in polygon.all("pt")]
        points = [(x, y) for x, y in pairs if x is not None and y is not None]
        if len(points) < len(pairs):
            problems.add("wrong-type", "a point has no two numbers", place, key)
    elif box is not None and (corners := box.first("box")) is not None:
        sides = [float_of(corners.value(side)) for side in ("xmin", "ymin", "xmax", "ymax")]
        if None not in sides:
            x1, y1, x2, y2 = (float(v) for v in sides if v is not None)
            points = [(x1, y1), (x2, y2)]
    if not points:
        problems.add("malformed", "an object has neither polygon nor box", place, key)
    label = thing.value("name")
    if label is None:
        problems.add("missing-key", "an object has no name", place, key)
    attributes = thing.value("attributes")
    return {
        "entry": entry, "line": thing.line, "label": label, "points": points,
        "kind": "outline" if polygon is not None else "box", "id": thing.value("id"),
        "attributes": json.dumps(attributes) if attributes else None,
    }  # fmt: skip


# ---- JSON ----


def _read_json(
    group: AnnotationGroup, name: str, problems: ProblemLog
) -> tuple[dict[str, Any], list[dict[str, Any]]] | None:
    key = sample_id(name)
    try:
        with open(group.path(name), "rb") as file:
            raw = file.read(_MOST_BYTES + 1)
        document = loads(raw.removeprefix(b"\xef\xbb\xbf")) if len(raw) <= _MOST_BYTES else None
    except OSError as error:
        problems.add("unreadable", f"a file cannot be read: {error.strerror}", key, key)
        return None
    except ValueError as error:
        problems.add("malformed", f"a file is no JSON ({str(error)[:80]})", key, key)
        return None
    shapes = document.get("shapes") if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(shapes, list):
        problems.add("malformed", "a file has no list `shapes`", key, key)
        return None
    picture = {
        "file_name": str(document.get("imagePath") or name.rpartition(".")[0] + ".jpg"),
        "width": number(document.get("imageWidth"))[0],
        "height": number(document.get("imageHeight"))[0],
    }
    objects = [_json_object(i, shape, key, problems) for i, shape in enumerate(shapes)]
    return picture, [thing for thing in objects if thing is not None]


def _json_object(entry: int, shape: Any, key: str, problems: ProblemLog) -> dict[str, Any] | None:
    place = f"{key}, shapes[{entry}]"
    if not isinstance(shape, dict):
        problems.add("malformed", "a shape is no object", place, key)
        return None
    given = shape.get("points")
    points: list[Point] = []
    for pair in given if isinstance(given, list) else []:
        values = [number(v)[0] for v in pair] if isinstance(pair, list) else []
        if len(values) == 2 and values[0] is not None and values[1] is not None:
            points.append((values[0], values[1]))
    if not isinstance(given, list) or len(points) < len(given) or not points:
        problems.add("wrong-type", "a shape has points that are no two numbers", place, key)
    kind = shape.get("shape_type") or "polygon"
    if kind == "circle" and len(points) == 2:
        (x, y), edge = points[0], points[1]
        r = math.dist(points[0], edge)
        points = [(x - r, y - r), (x + r, y + r)]
    label = shape.get("label")
    if not isinstance(label, str):
        problems.add("missing-key", "a shape has no label", place, key)
    flags = shape.get("flags")
    outlined = kind == "polygon"
    return {
        "entry": entry, "line": None, "label": label if isinstance(label, str) else None,
        "points": points, "kind": "label" if kind in ("point", "line", "linestrip", "points")
        else "outline" if outlined else "box", "id": None,
        "attributes": json.dumps(flags) if flags else None,
    }  # fmt: skip
