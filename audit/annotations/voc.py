"""Pascal VOC: one XML file a picture; corners in px, `difficult`, `truncated`, parts.

Some programs add an outline to the box: `polygon` with x1, y1, x2, y2, ...
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any

import polars as pl

from audit.annotations.discovery import AnnotationGroup
from audit.annotations.outcome import ReadOutcome
from audit.annotations.problems import ProblemLog
from audit.annotations.shapes import add_rings
from audit.annotations.sink import Sink
from audit.annotations.xml_objects import Node, XmlError, float_of, parse_xml
from audit.records import sample_id

CORNERS = ("xmin", "ymin", "xmax", "ymax")
_COORDINATE = re.compile(r"[xy]\d+$")
_RINGS: dict[str, pl.DataType] = {
    "file": pl.String(), "image_key": pl.String(), "entry": pl.Int64(), "part": pl.Int32(),
    "points": pl.List(pl.Float64),
}  # fmt: skip
_TRAITS = ("difficult", "truncated", "occluded", "pose", "difficulty")


def read_voc(group: AnnotationGroup, sink: Sink) -> ReadOutcome:
    """Read the XML files of one folder into the tables."""
    problems, outcome, used = ProblemLog(group.file), ReadOutcome("corners px"), dict[str, int]()
    rings: list[dict[str, Any]] = []
    for position, name in enumerate(group.names):
        node, key = read_annotation_xml(group, name, problems), sample_id(name)
        if node is None:
            outcome.complete = False
            stem = key.rpartition(".")[0]
            head = {"file": group.file, "image_key": key, "entry": position, "line": 1}
            sink.add("annotated_images", {**head, "file_name": f"{stem}.jpg"})
            continue
        _add_picture(group, key, position, node, sink, problems)
        for entry, thing in enumerate(node.all("object")):
            label = _add_object(group, key, entry, thing, sink, problems)
            rings += _rings(group, key, entry, thing)
            used.setdefault(label or "", thing.line)
            outcome.objects += 1
    if rings:
        add_rings(sink, pl.DataFrame(rings, schema=_RINGS))
    declared = _declared(group)
    for entry, label in enumerate(declared or [label for label in used if label]):
        sink.add(
            "categories",
            {
                "file": group.file, "category_key": label, "label": label, "entry": entry,
                "declared": bool(declared),
            },
        )  # fmt: skip
    sink.add_problems(problems)
    return outcome


def read_annotation_xml(group: AnnotationGroup, name: str, problems: ProblemLog) -> Node | None:
    """Return the `annotation` of a file, None with a problem noted."""
    key = sample_id(name)
    try:
        with open(group.path(name), "rb") as file:
            node = parse_xml(file.read())
    except OSError as error:
        problems.add("unreadable", f"a file cannot be read: {error.strerror}", key, key)
        return None
    except XmlError as error:
        problems.add("malformed", f"a file is no XML ({error})", f"{key}, line {error.line}", key)
        return None
    if node.name != "annotation":
        problems.add("malformed", f"a file is a <{node.name[:40]}>, no <annotation>", key, key)
        return None
    return node


def _add_picture(
    group: AnnotationGroup, key: str, position: int, node: Node, sink: Sink, problems: ProblemLog
) -> None:
    named, stem = node.value("filename"), key.rpartition(".")[0]
    given = os.path.basename((named or "").replace("\\", "/")).rpartition(".")[0] or named
    if named and given != stem:
        said = f"the file names the picture {named[:200]}, another name than its own"
        problems.add("name-differs", said, key, key)
    sides = [node.value("size", side) for side in ("width", "height")]
    for side in sides:
        if side is not None and float_of(side) is None:
            problems.add("wrong-type", f"the size {side[:40]!r} is no number", key, key)
    sink.add(
        "annotated_images",
        {
            "file": group.file, "image_key": key, "entry": position, "line": 1,
            # Most readers go from the picture to the file of its name, whatever that file says.
            "file_name": f"{stem}{_extension(named)}",
            "width": float_of(sides[0]), "height": float_of(sides[1]),
        },
    )  # fmt: skip


def _extension(named: str | None) -> str:
    extension = os.path.splitext(named or "")[1]
    return extension if 1 < len(extension) < 6 else ".jpg"


def _add_object(
    group: AnnotationGroup, key: str, entry: int, thing: Node, sink: Sink, problems: ProblemLog
) -> str | None:
    label, place = thing.value("name"), f"{key}, object {entry}, line {thing.line}"
    if label is None:
        problems.add("missing-key", "an object has no name", place, key)
    boxes = thing.all("bndbox")
    numbers: list[float | None] = [None] * 4
    if len(boxes) != 1:
        problems.add("malformed", f"an object has {len(boxes)} boxes instead of 1", place, key)
    if boxes:
        numbers = [_corner(boxes[0], name, place, key, problems) for name in CORNERS]
    traits = {name: text for name in _TRAITS if (text := thing.value(name))}
    row: dict[str, Any] = {
        "file": group.file, "image_key": key, "entry": entry, "line": thing.line,
        "category_key": label, "kind": "box", "crowd": False, "track": thing.value("trackid"),
        "attributes": json.dumps(traits) if traits else None,
        **{f"v{i}": value for i, value in enumerate(numbers, 1)},
    }  # fmt: skip
    sink.add("annotations", row)
    return label


def _rings(group: AnnotationGroup, key: str, entry: int, thing: Node) -> Iterator[dict[str, Any]]:
    """Yield the outlines of an object; a point that is no number is null."""
    for part, polygon in enumerate(thing.all("polygon")):
        points = [float_of(n.text) for n in polygon.inside if _COORDINATE.match(n.name)]
        if points:
            place = {"file": group.file, "image_key": key, "entry": entry}
            yield {**place, "part": part, "points": points}


def _corner(box: Node, name: str, place: str, key: str, problems: ProblemLog) -> float | None:
    text = box.value(name)
    value = float_of(text)
    if value is None:
        what = "is missing" if text is None else f"is {text[:40]!r}, no number"
        problems.add("wrong-type", f"`{name}` {what}", place, key)
    return value


def _declared(group: AnnotationGroup) -> list[str]:
    """Return the classes of `labelmap.txt` beside the folder of annotations."""
    above = group.folder.rstrip("/").rpartition("/")[0]
    path = os.path.join(group.root, above, "labelmap.txt")
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = [line.partition("#")[0].strip() for line in file.read(1 << 20).splitlines()]
    except OSError:
        return []
    return [line.partition(":")[0].strip() for line in lines if ":" in line]
