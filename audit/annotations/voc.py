"""Pascal VOC: one XML file a picture; corners in px, `difficult`, `truncated`, parts.

Some programs add an outline: `polygon` with x1, y1, x2, y2, ... The parser is expat, which knows
lines. A document that declares entities is not read: they can expand a kilobyte to gigabytes.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from xml.parsers import expat

import polars as pl

from audit.annotations.discovery import read_label_map
from audit.annotations.geometry import RING_ROW, add_rings
from audit.annotations.sink import Reading
from audit.records import sample_id
from dataset_preflight.foundation.files import regular

CORNERS = ("xmin", "ymin", "xmax", "ymax")
_COORDINATE = re.compile(r"[xy]\d+$")
_TRAITS = ("difficult", "truncated", "occluded", "pose", "difficulty")


def read_voc(reading: Reading) -> None:
    """Read the XML files of one folder into the tables."""
    reading.form, used = "corners px", dict[str, int]()
    rings: list[dict[str, Any]] = []
    for position, name in enumerate(reading.group.names):
        node, key = read_annotation_xml(reading, name), sample_id(name)
        _add_picture(reading, key, position, node)
        for entry, thing in enumerate(node.all("object") if node else ()):
            label = _add_object(reading, key, entry, thing)
            rings += _rings(key, entry, thing)
            used.setdefault(label or "", thing.line)
            reading.objects += 1
    add_rings(reading, pl.DataFrame(rings, schema=RING_ROW))
    declared = [part[0].strip() for part in read_label_map(reading.group)]
    for entry, label in enumerate(declared or [label for label in used if label]):
        reading.add_class(entry, label, label, declared=bool(declared))


def read_annotation_xml(reading: Reading, name: str) -> Node | None:
    """Return the `annotation` of a file, None with a problem noted."""
    key = sample_id(name)
    try:
        with open(reading.group.path(name), "rb", opener=regular) as file:
            node = parse_xml(file.read())
        if node.name == "annotation":
            return node
        reading.note("malformed", f"a file is a <{node.name[:40]}>, not <annotation>", key, key)
    except OSError as error:
        reading.note("unreadable", f"a file cannot be read: {error.strerror}", key, key)
    except XmlError as error:
        place = f"{key}, line {error.line}"
        reading.note("malformed", f"a file is not valid XML ({error})", place, key)
    reading.complete = False
    return None


def _add_picture(reading: Reading, key: str, position: int, node: Node | None) -> None:
    node = node or Node("annotation", 1)  # of a file that cannot be read, the name alone
    named, stem = node.value("filename"), key.rpartition(".")[0]
    given = os.path.basename((named or "").replace("\\", "/")).rpartition(".")[0] or named
    if named and given != stem:
        what = f"the file names the image {named[:200]}, not the image of its own name"
        reading.note("name-differs", what, key, key)
    sides = [node.value("size", side) for side in ("width", "height")]
    for side in sides:
        if side is not None and float_of(side) is None:
            reading.note("wrong-type", f"the size {side[:40]!r} is not a number", key, key)
    extension = os.path.splitext(named or "")[1]
    # Most readers go from the picture to the file of its name, whatever that file says.
    file_name = stem + (extension if 1 < len(extension) < 6 else ".jpg")
    reading.add(
        "annotated_images", image_key=key, entry=position, line=1, file_name=file_name,
        width=float_of(sides[0]), height=float_of(sides[1]),
    )  # fmt: skip


def _add_object(reading: Reading, key: str, entry: int, thing: Node) -> str | None:
    label, place = thing.value("name"), f"{key}, object {entry}, line {thing.line}"
    if label is None:
        reading.note("missing-key", "an object has no name", place, key)
    boxes = thing.all("bndbox")
    if len(boxes) != 1:
        reading.note("malformed", f"an object has {len(boxes)} boxes instead of 1", place, key)
    texts = [box.value(name) for box in boxes[:1] for name in CORNERS]
    for name, text in zip(CORNERS, texts, strict=False):
        if float_of(text) is None:
            what = "is missing" if text is None else f"is {text[:40]!r}, not a number"
            reading.note("wrong-type", f"`{name}` {what}", place, key)
    traits = {name: text for name in _TRAITS if (text := thing.value(name))}
    reading.add(
        "annotations", image_key=key, entry=entry, line=thing.line, category_key=label, kind="box",
        crowd=False, track=thing.value("trackid"),
        attributes=json.dumps(traits) if traits else None,
        **{f"v{i}": float_of(text) for i, text in enumerate(texts, 1)},
    )  # fmt: skip
    return label


def _rings(key: str, entry: int, thing: Node) -> Iterator[dict[str, Any]]:
    """Yield the outlines of an object; a point that is no number is null."""
    for part, polygon in enumerate(thing.all("polygon")):
        points = [float_of(n.text) for n in polygon.inside if _COORDINATE.match(n.name)]
        if points:
            yield {"image_key": key, "entry": entry, "part": part, "points": points}


MOST_BYTES = 64 << 20


@dataclass(slots=True)
class Node:
    """An element: its name, the line where it begins, its text, the elements inside."""

    name: str
    line: int
    text: str = ""
    inside: list[Node] = field(default_factory=list)
    attributes: dict[str, str] = field(default_factory=dict)

    def first(self, name: str) -> Node | None:
        """Return the first element inside of that name."""
        return next((node for node in self.inside if node.name == name), None)

    def all(self, name: str) -> list[Node]:
        """Return the elements inside of that name."""
        return [node for node in self.inside if node.name == name]

    def value(self, *path: str) -> str | None:
        """Return the text of the element at `path`, None without one or without text."""
        node: Node | None = self
        for name in path:
            node = node.first(name) if node else None
        return (node.text.strip() or None) if node else None


class XmlError(ValueError):
    """What is wrong with a document; `line` from 1."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


def parse_xml(raw: bytes) -> Node:
    """Return the outermost element; raises XmlError."""
    if len(raw) > MOST_BYTES:
        raise XmlError(f"it is larger than {MOST_BYTES >> 20} MB", 1)
    top = Node("", 0)
    stack, texts, parser = [top], [list[str]()], expat.ParserCreate()

    def begin(name: str, attributes: dict[str, str]) -> None:
        if len(stack) > 50:
            raise XmlError("its elements nest deeper than 50 levels", parser.CurrentLineNumber)
        node = Node(name, parser.CurrentLineNumber, attributes=attributes)
        stack[-1].inside.append(node)
        stack.append(node)
        texts.append([])

    def end(_: str) -> None:
        stack.pop().text = "".join(texts.pop())

    def text(data: str) -> None:
        texts[-1].append(data)  # one long text comes in many pieces

    def declared(*_: object) -> None:
        raise XmlError("it declares entities", parser.CurrentLineNumber)

    parser.StartElementHandler, parser.EndElementHandler = begin, end
    parser.CharacterDataHandler, parser.buffer_text = text, True
    parser.EntityDeclHandler = declared
    try:
        parser.Parse(raw, True)
    except expat.ExpatError as error:
        why = expat.errors.messages.get(error.code, "not well-formed")
        raise XmlError(why, error.lineno) from None
    except XmlError:
        raise
    except (LookupError, ValueError):
        raise XmlError("its encoding differs from its declaration", 1) from None
    return top.inside[0]


def float_of(text: str | None) -> float | None:
    """Return a text as a number, None if it is none."""
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None
