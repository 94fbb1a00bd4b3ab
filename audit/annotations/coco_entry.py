"""Entries of COCO one by one: the slow and exact way, for what the fast parser refuses.

Numbers written as text, NaN, Infinity, huge numbers, objects in place of lists: each becomes the
nearest value that a table can hold, or null, and a problem with its place.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

import polars as pl

from audit.annotations.json_scan import Bytes, Elements, Positions
from audit.annotations.problems import ProblemLog
from audit.annotations.sink import Sink

NUMBERS = pl.List(pl.Float64)
SCHEMAS: Mapping[str, Mapping[str, pl.DataType | type[pl.DataType]]] = {
    "images": {
        "id": pl.String, "file_name": pl.String, "width": pl.Float64, "height": pl.Float64,
        "attributes": pl.String,
    },
    "annotations": {
        "id": pl.String, "image_id": pl.String, "category_id": pl.String, "bbox": NUMBERS,
        "area": pl.Float64, "iscrowd": pl.String, "segmentation": pl.String, "keypoints": NUMBERS,
        "num_keypoints": pl.Float64, "track_id": pl.String, "attributes": pl.String,
        "caption": pl.String, "segments_info": pl.String,
    },
}  # fmt: skip
NAMED = 20  # problems of one kind that are named in one chunk
BARE_ID = {
    word: re.compile(rb'"' + word.encode() + rb'"[ \t\r\n]*:[ \t\r\n]*-?\d')
    for word in ("id", "image_id")
}
_TEXTS = {
    "images": ("id", "file_name"),
    "annotations": ("id", "image_id", "category_id", "iscrowd", "track_id", "caption"),
}
_NUMBERS = {"images": ("width", "height"), "annotations": ("area", "num_keypoints")}
_LISTS = {"images": (), "annotations": ("bbox", "keypoints")}
_JSON = {"images": ("attributes",), "annotations": ("segmentation", "attributes", "segments_info")}


def loads(raw: bytes) -> Any:
    """Parse one JSON value, NaN and Infinity included; raises ValueError."""
    try:
        return json.loads(raw.decode("utf-8"))
    except RecursionError:
        raise ValueError("it nests too deep") from None


def number(value: Any) -> tuple[float | None, str | None]:
    """Return a value as a float and, where it is not plainly one, what it is instead."""
    if isinstance(value, bool) or value is None:
        return None, "null" if value is None else "true or false"
    if isinstance(value, int | float):
        try:
            return float(value), None
        except OverflowError:
            return math.inf, "too large a number"
    if isinstance(value, str):
        try:
            return float(value.strip()), "a text"
        except ValueError:
            return None, "a text"
    return None, "a list" if isinstance(value, list) else "an object"


def parse_entries(
    text: Bytes, part: Elements, lines: Positions, problems: ProblemLog
) -> pl.DataFrame:
    """Return the entries as the fast parser would, with what it refuses noted as problems."""
    rows = []
    for k, (start, end) in enumerate(zip(part.starts.tolist(), part.ends.tolist(), strict=True)):
        place = f"{part.key}[{part.first + k}], line {lines[k]}, byte {start}"
        try:
            entry = loads(bytes(text[start:end]))
        except ValueError as error:
            said = str(error).split(": line")[0]
            problems.add("malformed", f"an entry is no JSON ({said})", place)
            entry = None
        if entry is not None and not isinstance(entry, dict):
            problems.add("malformed", "an entry is no object", place)
            entry = None
        rows.append(_row(part.key, entry, place, problems))
    schema = {**SCHEMAS[part.key], "present": pl.Boolean}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _row(
    key: str, entry: Mapping[str, Any] | None, place: str, problems: ProblemLog
) -> dict[str, Any]:
    names = (*_TEXTS[key], *_NUMBERS[key], *_LISTS[key], *_JSON[key])
    if entry is None:
        return {**dict.fromkeys(names), "present": False}
    row: dict[str, Any] = {"present": True}
    image = _text(entry.get("image_id"))
    for name in _TEXTS[key]:
        row[name] = _text(entry.get(name))
        if isinstance(entry.get(name), list | dict):
            problems.add("wrong-type", f"`{name}` is a list or an object", place, image)
    for name in _NUMBERS[key]:
        value, wrong = number(entry.get(name))
        row[name] = value
        if wrong and entry.get(name) is not None:
            problems.add("wrong-type", f"`{name}` is {wrong}, not a number", place, image)
    for name in _LISTS[key]:
        row[name] = _numbers(entry.get(name), name, place, image, problems)
    for name in _JSON[key]:
        value = entry.get(name)
        row[name] = None if value is None else json.dumps(value, ensure_ascii=False)
    return row


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, list | dict):
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    # A text with half of a surrogate pair cannot be stored.
    return str(value).encode("utf-8", "replace").decode()


def _numbers(
    value: Any, name: str, place: str, image: str | None, problems: ProblemLog
) -> list[float | None] | None:
    if value is None:
        return None
    if not isinstance(value, list):
        problems.add("wrong-type", f"`{name}` is no list of numbers", place, image)
        return None
    converted = [number(item) for item in value]
    wrong = sorted({what for _, what in converted if what})
    if wrong:
        said = f"`{name}` has {wrong[0]} where a number belongs"
        problems.add("wrong-type", said, place, image)
    return [item for item, _ in converted]


def panoptic_segments(frame: pl.DataFrame) -> pl.DataFrame:
    """Return one row per segment of panoptic annotations: each has a class and a box."""
    rows = []
    for row in frame.iter_rows(named=True):
        try:
            segments = loads(row["segments_info"].encode())
        except ValueError:
            continue
        for segment in segments if isinstance(segments, list) else []:
            if not isinstance(segment, dict):
                continue
            box = [number(v)[0] for v in segment.get("bbox") or [] if not isinstance(v, list)]
            rows.append(
                {
                    **{k: row[k] for k in ("file", "entry", "line", "byte", "image_id")},
                    "id": _text(segment.get("id")), "bbox": box,
                    "category_id": _text(segment.get("category_id")),
                     "area": number(segment.get("area"))[0],
                    "iscrowd": _text(segment.get("iscrowd")),
                }
            )  # fmt: skip
    schema = {name: frame.schema[name] for name in ("file", "entry", "line", "byte")}
    texts = ("image_id", "id", "category_id", "iscrowd", "segmentation", "caption")
    schema |= dict.fromkeys(texts, pl.String())
    schema |= {"bbox": pl.List(pl.Float64), "area": pl.Float64(), "keypoints": pl.List(pl.Float64)}
    return pl.DataFrame(rows, schema=schema)


def add_categories(
    file: str, sink: Sink, problems: ProblemLog, text: Bytes, part: Elements
) -> None:
    """Append the classes that the file declares."""
    for k, (start, end) in enumerate(zip(part.starts.tolist(), part.ends.tolist(), strict=True)):
        entry_number = part.first + k
        place = f"categories[{entry_number}], byte {start}"
        try:
            entry = loads(bytes(text[start:end]))
        except ValueError:
            entry = None
        if not isinstance(entry, dict):
            problems.add("malformed", "a class is no JSON object", place)
            continue
        key, label = _text(entry.get("id")), _text(entry.get("name"))
        if key is None or label is None:
            what = "id" if key is None else "name"
            problems.add("missing-key", f"a class has no `{what}`", place)
        points = entry.get("keypoints")
        sink.add(
            "categories",
            {
                "file": file, "category_key": key, "label": label or key, "entry": entry_number,
                "parent": _text(entry.get("supercategory")) or None, "declared": True,
                "keypoints": json.dumps(points) if isinstance(points, list) and points else None,
            },
        )  # fmt: skip
