"""LabelMe: one file a picture, XML (MIT) or JSON (the desktop tool), with polygons and boxes.

Objects that are marked as deleted are left out. Points of a rectangle are two corners in JSON; a
circle is its centre and a point of its edge.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import polars as pl

from audit.annotations.geometry import RING_ROW, Point, add_rings, loads, number
from audit.annotations.sink import Reading
from audit.annotations.voc import CORNERS, Node, float_of, read_annotation_xml
from audit.records import sample_id
from dataset_preflight.foundation.files import regular

Found = tuple[dict[str, Any], list[dict[str, Any]]]  # a picture and its objects, as rows
_MOST_BYTES = 64 << 20  # a picture may be inside, as text


def read_labelme(reading: Reading) -> None:
    """Read the files of one folder into the tables."""
    reading.form = "xywh px"
    used, rings = dict[str, None](), list[dict[str, Any]]()
    for position, name in enumerate(reading.group.names):
        read, key = _read_xml if name.lower().endswith(".xml") else _read_json, sample_id(name)
        found = read(reading, name, key)
        if found is None:
            reading.complete = False
            continue
        picture, objects = found
        reading.add("annotated_images", image_key=key, entry=position, **picture)
        for thing in objects:
            points: Sequence[Point] = thing.pop("points")
            used.setdefault(thing["category_key"] or "", None)
            reading.objects += 1
            box = {f"v{i}": value for i, value in enumerate(_extent(points), 1)}
            reading.add("annotations", image_key=key, crowd=False, **thing, **box)
            if len(points) > 2:
                flat = [v for point in points for v in point]
                rings.append({"image_key": key, "entry": thing["entry"], "part": 0, "points": flat})
    add_rings(reading, pl.DataFrame(rings, schema=RING_ROW, orient="row"))
    for entry, label in enumerate(label for label in used if label):
        reading.add_class(entry, label, label, declared=False)


def _extent(points: Sequence[Point]) -> list[float | None]:
    """Return x, y, width and height of what holds all points, None for each without any."""
    if not points:
        return [None] * 4
    x, y = zip(*points, strict=True)
    return [min(x), min(y), max(x) - min(x), max(y) - min(y)]


def _read_xml(reading: Reading, name: str, key: str) -> Found | None:
    node = read_annotation_xml(reading, name)
    if node is None:
        return None
    folder, file = node.value("folder"), node.value("filename")
    picture = {
        "file_name": "/".join(part for part in (folder, file) if part),
        "width": float_of(node.value("imagesize", "ncols")),
        "height": float_of(node.value("imagesize", "nrows")),
    }
    things = [thing for thing in node.all("object") if thing.value("deleted") != "1"]
    return picture, [_xml_object(reading, i, thing, key) for i, thing in enumerate(things)]


def _xml_object(reading: Reading, entry: int, thing: Node, key: str) -> dict[str, Any]:
    polygon, box = thing.first("polygon"), thing.first("segm")
    place = f"{key}, object {entry}, line {thing.line}"
    points: list[Point] = []
    if polygon is not None:
        pairs = [(float_of(p.value("x")), float_of(p.value("y"))) for p in polygon.all("pt")]
        points = [(x, y) for x, y in pairs if x is not None and y is not None]
        if len(points) < len(pairs):
            reading.note("wrong-type", "a point does not have two numbers", place, key)
    elif box is not None and (corners := box.first("box")) is not None:
        sides = [float_of(corners.value(side)) for side in CORNERS]
        known = [side for side in sides if side is not None]
        points = [(known[0], known[1]), (known[2], known[3])] if len(known) == 4 else []
    if not points:
        reading.note("malformed", "an object has neither polygon nor box", place, key)
    label = thing.value("name")
    if label is None:
        reading.note("missing-key", "an object has no name", place, key)
    attributes = thing.value("attributes")
    return {
        "entry": entry, "line": thing.line, "category_key": label, "points": points,
        "kind": "outline" if polygon is not None else "box", "annotation_id": thing.value("id"),
        "attributes": json.dumps(attributes) if attributes else None,
    }  # fmt: skip


def _read_json(reading: Reading, name: str, key: str) -> Found | None:
    try:
        with open(reading.group.path(name), "rb", opener=regular) as file:
            raw = file.read(_MOST_BYTES + 1)
        document = loads(raw.removeprefix(b"\xef\xbb\xbf")) if len(raw) <= _MOST_BYTES else None
    except OSError as error:
        reading.note("unreadable", f"a file cannot be read: {error.strerror}", key, key)
        return None
    except ValueError as error:
        reading.note("malformed", f"a file is not valid JSON ({str(error)[:80]})", key, key)
        return None
    shapes = document.get("shapes") if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(shapes, list):
        reading.note("malformed", "a file has no list `shapes`", key, key)
        return None
    picture = {
        "file_name": str(document.get("imagePath") or name.rpartition(".")[0] + ".jpg"),
        "width": number(document.get("imageWidth"))[0],
        "height": number(document.get("imageHeight"))[0],
    }
    objects = [_json_object(reading, i, shape, key) for i, shape in enumerate(shapes)]
    return picture, [thing for thing in objects if thing is not None]


def _json_object(reading: Reading, entry: int, shape: Any, key: str) -> dict[str, Any] | None:
    place = f"{key}, shapes[{entry}]"
    if not isinstance(shape, dict):
        reading.note("malformed", "a shape is not an object", place, key)
        return None
    given = shape.get("points")
    points: list[Point] = []
    for pair in given if isinstance(given, list) else []:
        values = [number(v)[0] for v in pair] if isinstance(pair, list) else []
        if len(values) == 2 and values[0] is not None and values[1] is not None:
            points.append((values[0], values[1]))
    if not isinstance(given, list) or len(points) < len(given) or not points:
        reading.note("wrong-type", "a shape has points without two numbers", place, key)
    kind = shape.get("shape_type") or "polygon"
    if kind == "circle" and len(points) == 2:
        (x, y), r = points[0], math.dist(*points)
        points = [(x - r, y - r), (x + r, y + r)]
    label = shape.get("label") if isinstance(shape.get("label"), str) else None
    if label is None:
        reading.note("missing-key", "a shape has no label", place, key)
    flags = shape.get("flags")
    no_box = kind in ("point", "line", "linestrip", "points")
    return {
        "entry": entry, "category_key": label, "points": points,
        "kind": "label" if no_box else "outline" if kind == "polygon" else "box",
        "attributes": json.dumps(flags) if flags else None,
    }  # fmt: skip
