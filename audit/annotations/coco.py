"""COCO: one JSON file for many pictures, read some thousand entries at a time.

The document is cut into entries without being parsed (json_scan.py); polars parses a chunk in the
fast way, and where a chunk has what a strict reader refuses (NaN, a text for a number), that chunk
alone is read entry by entry (coco_entry.py), which says what is wrong with which. Captions are
counted, panoptic segments become boxes. Cost: about 6 s of one core per 300 MB, 0.5 GB of memory.
"""

from __future__ import annotations

import io
import json
import mmap
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from audit.annotations import coco_entry, json_scan
from audit.annotations.ahead import look_ahead
from audit.annotations.discovery import AnnotationGroup
from audit.annotations.outcome import ReadOutcome
from audit.annotations.problems import ProblemLog
from audit.annotations.shapes import add_keypoints, add_segmentations
from audit.annotations.sink import Sink

LISTS = ("images", "annotations", "categories")
STATUS = {
    json_scan.TRUNCATED: ("truncated", "the file ends inside its JSON: it was not written whole"),
    json_scan.WRONG: ("not-json", "what is here is no JSON: a comma, colon or bracket is wrong"),
    json_scan.DEEP: ("nesting", f"lists or objects nest deeper than {json_scan.DEPTH} levels"),
}


@dataclass(slots=True)
class _Reading:
    """One file while it is read."""

    file: str
    text: json_scan.Bytes
    sink: Sink
    problems: ProblemLog
    outcome: ReadOutcome
    at: int = 0
    line: int = 1
    lists: set[str] = field(default_factory=set)
    skipped: Counter[str] = field(default_factory=Counter)
    id_types: dict[str, set[str]] = field(default_factory=dict)


def read_coco(group: AnnotationGroup, sink: Sink) -> ReadOutcome:
    """Read one COCO file into the tables; what is wrong becomes rows of problems."""
    problems, outcome = ProblemLog(group.file), ReadOutcome("xywh px")
    try:
        with open(group.path(group.names[0]), "rb") as file:
            if file.seek(0, io.SEEK_END) == 0:
                problems.add("truncated", "the file is empty", "byte 0")
            else:
                with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                    _read_mapped(mapped, group, sink, problems, outcome)
    except OSError as error:
        problems.add("unreadable", f"the file cannot be read: {error.strerror or error}")
    outcome.complete = not {"truncated", "not-json", "nesting", "unreadable"} & {
        row["kind"] for row in problems.rows
    }
    sink.add_problems(problems)
    return outcome


def _read_mapped(
    mapped: mmap.mmap,
    group: AnnotationGroup,
    sink: Sink,
    problems: ProblemLog,
    outcome: ReadOutcome,
) -> None:
    text = np.frombuffer(mapped, np.uint8)
    try:
        head = bytes(text[:2])
        whole = _recoded(text, problems) if head in (b"\xff\xfe", b"\xfe\xff") else text
        if whole is not None:
            _read_text(_Reading(group.file, whole, sink, problems, outcome))
    finally:
        del text, whole


def _recoded(text: json_scan.Bytes, problems: ProblemLog) -> json_scan.Bytes | None:
    problems.add("encoding", "the file is UTF-16, which JSON readers refuse: save it as UTF-8")
    if len(text) > 256 << 20:
        return None
    return np.frombuffer(bytes(text).decode("utf-16", "replace").encode(), np.uint8)


def _read_text(reading: _Reading) -> None:
    parts = json_scan.scan_document(reading.text, LISTS)
    for part, frame in look_ahead(parts, lambda part: _parse_fast(reading.text, part)):
        if isinstance(part, json_scan.Elements):
            if part.first == 0:
                _begin_list(reading, part.key)
            _read_elements(reading, part, frame)
        elif isinstance(part, json_scan.Value):
            if part.key in LISTS:
                what = f"`{part.key}` is no list, so it was not read"
                reading.problems.add("wrong-type", what, f"byte {part.start}")
        else:
            kind, said = STATUS[part.status]
            reading.problems.add(kind, said, _place(reading, part.at))
    reading.outcome.not_read = ", ".join(f"{n:,} {what}" for what, n in reading.skipped.items())
    _compare_id_types(reading)


def _begin_list(reading: _Reading, key: str) -> None:
    if key in reading.lists:
        said = f"the key `{key}` is given twice: most readers keep the last alone"
        reading.problems.add("duplicate-key", said, f"key {key}")
    reading.lists.add(key)


def _place(reading: _Reading, at: int) -> str:
    line = 1 + json_scan.count_lines(reading.text, 0, at)
    return f"line {line:,}, byte {at:,} of {len(reading.text):,}"


def _read_elements(reading: _Reading, part: json_scan.Elements, frame: pl.DataFrame | None) -> None:
    if not len(part.starts):
        return
    origin = reading.at if reading.at <= int(part.starts[0]) else 0
    line = reading.line if origin else 1
    lines = json_scan.lines_before(reading.text, part.starts, origin, line)
    reading.at, reading.line = int(part.starts[-1]), int(lines[-1])
    for k in np.flatnonzero(part.repeats)[: coco_entry.NAMED].tolist():
        place = f"{part.key}[{part.first + k}], line {lines[k]}, byte {part.starts[k]}"
        reading.problems.add("duplicate-key", "a key is given twice in one entry", place)
    more = int(part.repeats.sum()) - coco_entry.NAMED
    if more > 0:
        reading.problems.add("duplicate-key", "a key is given twice in one entry", count=more)
    chunk = bytes(reading.text[int(part.starts[0]) : int(part.ends[-1])])
    _note_id_types(reading, part.key, chunk)
    if part.key == "categories":
        coco_entry.add_categories(reading.file, reading.sink, reading.problems, reading.text, part)
        return
    if frame is None:
        frame = coco_entry.parse_entries(reading.text, part, lines, reading.problems)
    places = pl.DataFrame(
        {
            "entry": np.arange(part.first, part.first + len(part.starts)),
            "line": lines,
            "byte": part.starts,
        }
    )
    frame = pl.concat([frame, places], how="horizontal").filter(pl.col("present"))
    frame = frame.with_columns(file=pl.lit(reading.file))
    if part.key == "images":
        _add_images(reading, frame)
    else:
        _add_annotations(reading, frame)


def _parse_fast(
    text: json_scan.Bytes, part: json_scan.Elements | json_scan.Value | json_scan.Broken
) -> pl.DataFrame | None:
    """Return the entries as a frame, None where there are none or the strict parser refuses."""
    if not isinstance(part, json_scan.Elements) or part.key not in coco_entry.SCHEMAS:
        return None
    if not len(part.starts):
        return None
    lines = json_scan.as_lines(text, part)
    try:
        frame = pl.read_ndjson(io.BytesIO(lines), schema=dict(coco_entry.SCHEMAS[part.key]))
    except (pl.exceptions.PolarsError, ValueError):
        return None
    return None if frame.height != len(part.starts) else frame.with_columns(present=pl.lit(True))


# ---- pictures ----


def _add_images(reading: _Reading, frame: pl.DataFrame) -> None:
    bad = frame.filter(pl.col("id").is_null() | pl.col("file_name").is_null())
    for row in bad.head(coco_entry.NAMED).iter_rows(named=True):
        what = "id" if row["id"] is None else "file_name"
        place = f"images[{row['entry']}], line {row['line']}, byte {row['byte']}"
        reading.problems.add("missing-key", f"a picture's entry has no `{what}`", place)
    reading.outcome.pictures += frame.height
    reading.sink.add_frame(
        "annotated_images",
        frame.select(
            "file", "entry", "line", "byte", "file_name", "width", "height", "attributes",
            image_key="id",
        ),
    )  # fmt: skip


# ---- annotations ----


def _add_annotations(reading: _Reading, frame: pl.DataFrame) -> None:
    segments = frame.filter(pl.col("segments_info").is_not_null())
    if segments.height:
        frame = pl.concat(
            [
                frame.filter(pl.col("segments_info").is_null()),
                coco_entry.panoptic_segments(segments),
            ],
            how="diagonal_relaxed",
        )
    captions = int(frame["caption"].is_not_null().sum())
    if captions:
        reading.skipped["captions"] += captions
        frame = frame.filter(pl.col("caption").is_null())
    if not frame.height:
        return
    _note_misshapen(reading, frame)
    outlines = add_segmentations(reading.sink, reading.problems, frame)
    add_keypoints(reading.sink, frame)
    frame = _with_numbers(frame.join(outlines, on="entry", how="left"))
    reading.outcome.objects += int((frame["kind"] != "label").sum())
    reading.sink.add_frame(
        "annotations",
        frame.select(
            "file", "entry", "line", "byte", "kind", "v1", "v2", "v3", "v4", "angle", "area",
            "attributes", image_key="image_id", annotation_id="id", category_key="category_id",
            crowd=pl.col("iscrowd").is_in(["1", "true", "1.0"]), n_keypoints="num_keypoints",
            track="track_id",
        ),
    )  # fmt: skip


def _with_numbers(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the frame with the four numbers, the angle, and how the box came about."""
    length = pl.col("bbox").list.len().fill_null(0)
    turned = length == 5
    numbers = [pl.col("bbox").list.get(i, null_on_oob=True) for i in range(5)]
    a, b, c, d, e = numbers
    outlined = pl.col("outline_x").is_not_null()
    # Five numbers are centre, size and angle; the upright box of that size stands for it.
    written = [
        pl.when(turned).then(a - c / 2).otherwise(a),
        pl.when(turned).then(b - d / 2).otherwise(b),
        c,
        d,
    ]
    made = ["outline_x", "outline_y", "outline_width", "outline_height"]
    return frame.with_columns(
        *(
            pl.when(length > 0).then(w).otherwise(pl.col(m)).alias(f"v{i}")
            for i, (w, m) in enumerate(zip(written, made, strict=True), 1)
        ),
        angle=pl.when(turned).then(e),
        kind=pl.when(length > 0).then(pl.lit("box"))
        .when(outlined).then(pl.lit("outline")).otherwise(pl.lit("label")),
    )  # fmt: skip


def _note_misshapen(reading: _Reading, frame: pl.DataFrame) -> None:
    length = pl.col("bbox").list.len()
    for row in frame.filter((length > 0) & ~length.is_in([4, 5])).iter_rows(named=True):
        place = f"annotations[{row['entry']}], line {row['line']}, byte {row['byte']}"
        said = f"the box has {len(row['bbox'])} numbers instead of 4"
        reading.problems.add("malformed", said, place, row["image_id"])
    odd = frame.filter(
        ~pl.col("iscrowd").is_in(["0", "1", "0.0", "1.0", "true", "false"])
        | pl.col("image_id").str.contains(r"^[\[{]")
    )
    for row in odd.iter_rows(named=True):
        place = f"annotations[{row['entry']}], line {row['line']}, byte {row['byte']}"
        said = "`iscrowd` is not 0 or 1, or `image_id` is a list or an object"
        reading.problems.add("wrong-type", said, place, row["image_id"])
    for row in frame.filter(pl.col("image_id").is_null()).iter_rows(named=True):
        place = f"annotations[{row['entry']}], line {row['line']}, byte {row['byte']}"
        reading.problems.add("missing-key", "an annotation has no `image_id`", place)


def _note_id_types(reading: _Reading, key: str, chunk: bytes) -> None:
    """Remember whether ids are numbers or texts: "1" is not 1 for the usual readers."""
    name = {"images": ["id"], "annotations": ["image_id"], "categories": []}[key]
    for word in name:
        quoted = any(f'"{word}"{colon}"'.encode() in chunk for colon in (": ", ":"))
        bare = coco_entry.BARE_ID[word].search(chunk) is not None
        types = reading.id_types.setdefault(f"{key}.{word}", set())
        types |= {"text"} if quoted else set()
        types |= {"number"} if bare else set()


def _compare_id_types(reading: _Reading) -> None:
    types = set[str]().union(*reading.id_types.values())
    if len(types) > 1:
        where = json.dumps({k: sorted(v) for k, v in reading.id_types.items()})
        said = f"ids are numbers in one place and texts in another ({where}): readers compare them"
        reading.problems.add("wrong-type", said.replace('"', ""), "images.id, annotations.image_id")
