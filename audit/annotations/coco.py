"""COCO: one JSON file for many pictures, read some thousand entries at a time.

Python objects would take ten times the memory of the file. So regular expressions cut the lists of
the document into elements (`scan_document`) and find the byte where it is broken; Polars parses a
chunk, and one that it refuses (NaN, a text for a number) is read entry by entry (`parse_entries`),
with problems. Captions are counted, panoptic segments become boxes.
"""

from __future__ import annotations

import io
import json
import mmap
import re
from collections import Counter
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from audit.annotations.discovery import AnnotationGroup, Tree
from audit.annotations.geometry import RINGS, add_keypoints, add_segmentations, loads, number
from audit.annotations.sink import Reading, Sink, look_ahead
from audit.errors import UsageError
from audit.run.store import Store
from dataset_preflight.foundation.files import regular

Bytes = NDArray[np.uint8]
Positions = NDArray[np.int64]
OK, TRUNCATED, WRONG, DEEP, MORE = 0, 1, 2, 3, 4
DEPTH = 100  # a deeper nesting is a mistake or an attack: COCO needs five levels
CHUNK = 1 << 15  # elements
CHUNK_BYTES = 8 << 20
LINE_BLOCK = 16 << 20  # bytes in which line ends are looked for together
BRACKETS = {b"{": 1, b"[": 1, b"}": -1, b"]": -1}


@dataclass(frozen=True, slots=True)
class Broken:
    """Where the outline ends early: what is wrong, and the byte."""

    status: int
    at: int


@dataclass(frozen=True, slots=True)
class Elements:
    """Consecutive elements of the list `key`: number of the first, boundaries, repeated keys."""

    key: str
    first: int
    starts: Positions
    ends: Positions
    repeats: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Value:
    """A member of the document that is not a wanted list: its key and boundaries."""

    key: str
    start: int
    end: int


def _holding(inner: bytes) -> bytes:
    """Return a pattern of strings, of what stands between them, and of `inner` in brackets."""
    return rb'(?:[^"{}\[\]]++|%s|[{\[]%s[}\]])*+' % (STRING, inner)


STRING = rb'"(?:[^"\\]++|\\.)*+"'
INNER = _holding(_holding(_holding(_holding(rb'(?:[^"{}\[\]]++|%s)*+' % STRING))))
SPACE = re.compile(rb"[ \t\r\n]*+")
SCALAR = re.compile(rb'%s|[^ \t\r\n,\]}:"{\[]*+' % STRING, re.DOTALL)
TOKEN = re.compile(rb'%s|["{}\[\]]' % STRING, re.DOTALL)
CONTAINER = rb"[{\[]%s[}\]]" % INNER
NESTED = re.compile(CONTAINER, re.DOTALL)  # as deep as COCO needs, and no deeper
MEMBER = re.compile(
    rb'(%s)[^"{}\[\],]*+(?:%s|%s)?+|%s' % (STRING, STRING, CONTAINER, CONTAINER), re.DOTALL
)


def _byte(text: memoryview, at: int) -> bytes:
    """Return the byte at a position, none beyond the end."""
    return bytes(text[at : at + 1])


def _skip(pattern: re.Pattern[bytes], text: memoryview, at: int) -> int:
    """Return the position after what a pattern matches at `at`, `at` where it does not."""
    found = pattern.match(text, at)
    return found.end() if found else at


def _skip_value(text: memoryview, at: int) -> tuple[int, int]:
    """Return the end of the value at `at`, and a status."""
    start = _byte(text, at)
    if BRACKETS.get(start, 0) > 0:
        end = _skip(NESTED, text, at)
        return (end, OK) if end > at else _skip_slowly(text, at)
    end = _skip(SCALAR, text, at)
    if end == at:
        return (len(text), TRUNCATED) if start in (b"", b'"') else (at, WRONG)
    return end, TRUNCATED if end == len(text) and start != b'"' else OK


def _skip_slowly(text: memoryview, at: int) -> tuple[int, int]:
    """Return the end of the object or list at `at`, bracket by bracket, and a status."""
    depth = 0
    for token in TOKEN.finditer(text, at):
        depth += BRACKETS.get(token[0], 0)
        if token[0] == b'"':
            break
        if depth in (0, DEPTH + 1):
            return (token.start(), DEEP) if depth else (token.end(), OK)
    return len(text), TRUNCATED


def scan_document(text: Bytes, lists: Collection[str]) -> Iterator[Elements | Value | Broken]:
    """Yield the members of the object `text`, `lists` cut into elements; at last maybe `Broken`."""
    buffer: Any = np.ascontiguousarray(text)
    data = memoryview(buffer)
    n, at = len(data), _skip(SPACE, data, 3 if bytes(data[:3]) == b"\xef\xbb\xbf" else 0)
    if _byte(data, at) != b"{":
        yield Broken(TRUNCATED if at >= n else WRONG, at)
        return
    at = _skip(SPACE, data, at + 1)
    while _byte(data, at) == b'"':
        end, status = _skip_value(data, at)
        colon = _skip(SPACE, data, end)
        if _byte(data, colon) != b":":
            yield Broken(TRUNCATED if colon >= n else WRONG, colon)
            return
        key, start = _text_of(text, at, end), _skip(SPACE, data, colon + 1)
        if key in lists and _byte(data, start) == b"[":
            at, status = yield from _elements(data, start + 1, key)
        else:
            at, status = _skip_value(data, start)
            if status == OK:
                yield Value(key, start, at)
        if status != OK:
            yield Broken(status, at)
            return
        at = _skip(SPACE, data, at)
        if _byte(data, at) == b"}":
            rest = _skip(SPACE, data, at + 1)
            if rest < n:
                yield Broken(WRONG, rest)
            return
        if _byte(data, at) != b",":
            break
        at = _skip(SPACE, data, at + 1)
    if _byte(data, at) != b"}":
        yield Broken(TRUNCATED if at >= n else WRONG, at)


def _elements(text: memoryview, at: int, key: str) -> Generator[Elements, None, tuple[int, int]]:
    """Yield the elements of the list that begins before `at`; return its end, and a status."""
    first, status, expects_more = 0, MORE, False
    while status == MORE:
        begin, found = at, list[tuple[int, int, bool]]()
        while len(found) < CHUNK and at - begin <= CHUNK_BYTES:
            start = _skip(SPACE, text, at)
            if _byte(text, start) == b"]":
                at, status = start + 1, WRONG if expects_more else OK
                break
            at, status, keys = _skip(NESTED, text, start), OK, list[bytes]()
            if at == start:
                at, status = _skip_value(text, start)
            elif _byte(text, start) == b"{":
                keys = list(filter(None, MEMBER.findall(text, start + 1, at - 1)))
            if status != OK:
                break
            found.append((start, at, len(set(keys)) < len(keys)))
            at = _skip(SPACE, text, at)
            expects_more = _byte(text, at) == b","
            at, status = at + expects_more, MORE
            if not expects_more and _byte(text, at) != b"]":
                status = TRUNCATED if at >= len(text) else WRONG
                break
        if found or first == 0:  # an empty list is a list as well
            starts, ends, repeats = np.array(found, np.int64).reshape(-1, 3).T
            yield Elements(key, first, starts, ends, repeats > 0)
        first += len(found)
    return at, status


def _text_of(text: Bytes, start: int, end: int) -> str:
    raw = bytes(text[start:end])
    try:
        return str(json.loads(raw))
    except ValueError:
        return raw.decode("utf-8", "replace")


def count_lines(text: Bytes, start: int, end: int) -> int:
    """Return the line ends between two bytes, in blocks: to compare a gigabyte takes another."""
    blocks = range(start, end, LINE_BLOCK)
    return sum(int((text[i : min(i + LINE_BLOCK, end)] == 10).sum()) for i in blocks)


def lines_before(text: Bytes, positions: Positions, origin: int, line: int) -> Positions:
    """Return the line (from 1) of each position; `line` is that of the byte `origin`."""
    if not len(positions):
        return positions
    near = max(origin, int(positions[0]) - LINE_BLOCK)
    line, origin = line + count_lines(text, origin, near), near
    breaks = np.flatnonzero(text[origin : int(positions[-1])] == 10)
    return np.searchsorted(breaks, positions - origin, side="left") + line


def as_lines(text: Bytes, part: Elements) -> bytes:
    """Return the elements one a line: line ends inside become blanks, commas between line ends."""
    low = int(part.starts[0])
    piece = np.array(text[low : int(part.ends[-1])])
    piece[(piece == 10) | (piece == 13)] = 32
    after, gaps = part.ends[:-1] - low, part.starts[1:] - part.ends[:-1]
    widest = int(gaps.max()) if len(gaps) else 0
    if widest > 256:  # long runs of blanks: too rare to be worth more than a plain loop
        for start, gap in zip(after.tolist(), gaps.tolist(), strict=True):
            piece[start : start + gap] = 32
    else:
        for k in range(widest):
            piece[after[gaps > k] + k] = 32
    piece[after] = 10
    return piece.tobytes()


NUMBERS = pl.List(pl.Float64)
SCHEMAS: Mapping[str, Mapping[str, pl.DataType | type[pl.DataType]]] = {
    "images": {
        "id": pl.String, "file_name": pl.String, "width": pl.Float64, "height": pl.Float64,
        "attributes": pl.String,
    },
    "annotations": {
        "id": pl.String, "image_id": pl.String, "category_id": pl.String, "iscrowd": pl.String,
        "track_id": pl.String, "caption": pl.String, "area": pl.Float64,
        "num_keypoints": pl.Float64, "bbox": NUMBERS, "keypoints": NUMBERS,
        "segmentation": pl.String, "attributes": pl.String, "segments_info": pl.String,
    },
}  # fmt: skip
JSON_COLUMNS = ("attributes", "segmentation", "segments_info")
NAMED = 20  # problems of one kind that are named in one chunk
BARE_ID = {
    word: re.compile(rb'"' + word.encode() + rb'"[ \t\r\n]*:[ \t\r\n]*-?\d')
    for word in ("id", "image_id")
}


def parse_entries(document: Document, part: Elements, lines: Positions) -> pl.DataFrame:
    """Return the entries as the fast parser would, with what it refuses noted as problems."""
    rows = []
    for k, (start, end) in enumerate(zip(part.starts.tolist(), part.ends.tolist(), strict=True)):
        place = f"{part.key}[{part.first + k}], line {lines[k]}, byte {start}"
        try:
            entry = loads(bytes(document.text[start:end]))
        except ValueError as error:
            said = str(error).split(": line")[0]
            document.reading.note("malformed", f"an entry is not valid JSON ({said})", place)
            entry = None
        if entry is not None and not isinstance(entry, dict):
            document.reading.note("malformed", "an entry is not an object", place)
            entry = None
        rows.append(_row(document.reading, part.key, entry, place))
    schema = {**SCHEMAS[part.key], "present": pl.Boolean}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _row(reading: Reading, key: str, entry: Mapping[str, Any] | None, place: str) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(SCHEMAS[key]) | {"present": entry is not None}
    given = entry or {}
    image = _text(given.get("image_id"))
    for name, kind in SCHEMAS[key].items():
        value, wrong = given.get(name), None
        if value is None:
            continue
        if name in JSON_COLUMNS:
            row[name] = json.dumps(value, ensure_ascii=False)
        elif kind is NUMBERS:
            row[name], wrong = _numbers(name, value)
        elif kind is pl.Float64:
            row[name], what = number(value)
            wrong = what and f"`{name}` is {what}, not a number"
        else:
            row[name] = _text(value)
            wrong = f"`{name}` is a list or an object" if isinstance(value, list | dict) else None
        if wrong:
            reading.note("wrong-type", wrong, place, image)
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


def _numbers(name: str, value: Any) -> tuple[list[float | None] | None, str | None]:
    """Return a list as numbers, and what is wrong with it."""
    if not isinstance(value, list):
        return None, f"`{name}` is not a list of numbers"
    converted = [number(item) for item in value]
    what = min((what for _, what in converted if what), default=None)
    wrong = what and f"`{name}` has {what} in place of a number"
    return [item for item, _ in converted], wrong


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
            texts = {k: _text(segment.get(k)) for k in ("id", "category_id", "iscrowd")}
            head = {k: row[k] for k in ("entry", "line", "byte", "image_id")}
            rows.append({**head, **texts, "bbox": box, "area": number(segment.get("area"))[0]})
    columns = (
        "entry", "line", "byte", "segmentation", "image_id", "id", "category_id", "iscrowd",
        "caption", "bbox", "area", "keypoints",
    )  # fmt: skip
    return pl.DataFrame(rows, schema={name: frame.schema[name] for name in columns})


def add_categories(document: Document, part: Elements) -> None:
    """Append the classes that the file declares."""
    reading = document.reading
    for k, (start, end) in enumerate(zip(part.starts.tolist(), part.ends.tolist(), strict=True)):
        entry_number = part.first + k
        place = f"categories[{entry_number}], byte {start}"
        try:
            entry = loads(bytes(document.text[start:end]))
        except ValueError:
            entry = None
        if not isinstance(entry, dict):
            reading.note("malformed", "a class is not a JSON object", place)
            continue
        key, label = _text(entry.get("id")), _text(entry.get("name"))
        if key is None or label is None:
            what = "id" if key is None else "name"
            reading.note("missing-key", f"a class has no `{what}`", place)
        points = entry.get("keypoints")
        reading.add_class(
            entry_number, key, label or key, declared=True,
            keypoints=points if isinstance(points, list) else None,
            parent=_text(entry.get("supercategory")) or None,
        )  # fmt: skip


LISTS = ("images", "annotations", "categories")
STATUS = {
    TRUNCATED: ("truncated", "the file is truncated: it ends inside its JSON"),
    WRONG: ("not-json", "invalid JSON: a comma, colon or bracket is wrong"),
    DEEP: ("nesting", f"lists or objects nest deeper than {DEPTH} levels"),
}


@dataclass(slots=True)
class Document:
    """The bytes of one file, what was met in them, and where it goes."""

    reading: Reading
    text: Bytes
    at: int = 0
    line: int = 1
    lists: set[str] = field(default_factory=set)
    skipped: Counter[str] = field(default_factory=Counter)
    id_types: dict[str, set[str]] = field(default_factory=dict)
    pictures: list[bytes] | None = None


def read_coco(reading: Reading, pictures: list[bytes] | None = None) -> None:
    """Read one COCO file; `pictures` gets the entries of `images` as lines, some at a time."""
    reading.form = "xywh px"
    try:
        with open(reading.group.path(reading.group.names[0]), "rb", opener=regular) as file:
            if file.seek(0, io.SEEK_END) == 0:
                reading.note("truncated", "the file is empty", "byte 0")
            else:
                with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                    _read_mapped(reading, mapped, pictures)
    except OSError as error:
        reading.note("unreadable", f"the file cannot be read: {error.strerror or error}")
    kinds = {row["kind"] for row in reading.rows}
    reading.complete = not {"truncated", "not-json", "nesting", "unreadable"} & kinds


LEFT_UNREAD = {"truncated", "not-json", "nesting", "unreadable", "malformed", "encoding"}


def read_coco_alone(store: Store, path: Path) -> pl.DataFrame:
    """Read one whole file, or raise UsageError; return the plain keys of its images, as rows."""
    tree = Tree(str(path.parent), "")
    reading = Reading(AnnotationGroup("COCO", "", (path.name,), tree), Sink(store))
    pictures: list[bytes] = []
    read_coco(reading, pictures)
    reading.sink.finish()
    for row in reading.rows:
        if row["kind"] in LEFT_UNREAD:
            place = f" ({row['place']})" if row["place"] else ""
            raise UsageError(f"{path} is not a usable COCO file: {row['detail']}{place}.")
    rows = [pl.read_ndjson(io.BytesIO(part), infer_schema_length=None) for part in pictures]
    frame = pl.concat(rows, how="diagonal_relaxed") if rows else pl.DataFrame()
    return frame.select(~(pl.selectors.nested() | pl.selectors.by_name("id", require_all=False)))


def _read_mapped(reading: Reading, mapped: mmap.mmap, pictures: list[bytes] | None) -> None:
    text: Bytes | None = np.frombuffer(mapped, np.uint8)
    try:
        if mapped[:2] in (b"\xff\xfe", b"\xfe\xff"):
            said = "the file is UTF-16, which JSON readers reject: save it as UTF-8"
            reading.note("encoding", said)
            short = len(mapped) <= 256 << 20
            recoded = bytes(mapped).decode("utf-16", "replace").encode() if short else b""
            text = np.frombuffer(recoded, np.uint8) if short else None
        if text is not None:
            _read_text(Document(reading, text, pictures=pictures))
    finally:
        del text  # the map cannot be closed before


def _read_text(document: Document) -> None:
    parts = scan_document(document.text, LISTS)
    for part, frame in look_ahead(parts, lambda part: _parse_fast(document.text, part)):
        if isinstance(part, Elements):
            if part.first == 0 and part.key in document.lists:
                said = f"the key `{part.key}` occurs twice: most readers keep only the last"
                document.reading.note("duplicate-key", said, f"key {part.key}")
            document.lists.add(part.key)
            _read_elements(document, part, frame)
        elif isinstance(part, Value):
            if part.key in LISTS:
                what = f"`{part.key}` is not a list, so it was not read"
                document.reading.note("wrong-type", what, f"byte {part.start}")
        else:
            kind, said = STATUS[part.status]
            document.reading.note(kind, said, _place(document, part.at))
    document.reading.not_read = ", ".join(f"{n:,} {what}" for what, n in document.skipped.items())
    if len(set[str]().union(*document.id_types.values())) > 1:
        where = json.dumps({k: sorted(v) for k, v in document.id_types.items()}).replace('"', "")
        said = f"ids are both numbers and texts ({where}): readers compare them"
        document.reading.note("wrong-type", said, "images.id, annotations.image_id")


def _place(document: Document, at: int) -> str:
    line = 1 + count_lines(document.text, 0, at)
    return f"line {line:,}, byte {at:,} of {len(document.text):,}"


def _read_elements(document: Document, part: Elements, frame: pl.DataFrame | None) -> None:
    if not len(part.starts):
        return
    origin = document.at if document.at <= int(part.starts[0]) else 0
    line = document.line if origin else 1
    lines = lines_before(document.text, part.starts, origin, line)
    document.at, document.line = int(part.starts[-1]), int(lines[-1])
    for k in np.flatnonzero(part.repeats)[:NAMED].tolist():
        place = f"{part.key}[{part.first + k}], line {lines[k]}, byte {part.starts[k]}"
        document.reading.note("duplicate-key", "a key occurs twice in one entry", place)
    if (more := int(part.repeats.sum()) - NAMED) > 0:
        document.reading.note("duplicate-key", "a key occurs twice in one entry", count=more)
    chunk = bytes(document.text[int(part.starts[0]) : int(part.ends[-1])])
    _note_id_types(document, part.key, chunk)
    if part.key == "categories":
        add_categories(document, part)
        return
    if frame is None:
        frame = parse_entries(document, part, lines)
    numbers = np.arange(part.first, part.first + len(part.starts))
    places = pl.DataFrame({"entry": numbers, "line": lines, "byte": part.starts})
    frame = pl.concat([frame, places], how="horizontal").filter(pl.col("present"))
    if part.key == "images":
        if document.pictures is not None:
            document.pictures.append(as_lines(document.text, part))
        _add_images(document, frame)
    else:
        _add_annotations(document, frame)


def _parse_fast(text: Bytes, part: Elements | Value | Broken) -> pl.DataFrame | None:
    """Return the entries as a frame, None where there are none or the strict parser refuses."""
    if not isinstance(part, Elements) or part.key not in SCHEMAS or not len(part.starts):
        return None
    lines, schemas = as_lines(text, part), [dict(SCHEMAS[part.key])]
    # Polygons that are parsed with the rest take half of the time; masks are objects, not lists.
    if part.key == "annotations" and b'"counts"' not in lines:
        schemas.insert(0, {**schemas[0], "segmentation": RINGS})
    for schema in schemas:
        try:
            frame = pl.read_ndjson(io.BytesIO(lines), schema=schema)
        except (pl.exceptions.PolarsError, ValueError):
            continue
        if frame.height == len(part.starts):
            return frame.with_columns(present=pl.lit(True))
    return None


def _add_images(document: Document, frame: pl.DataFrame) -> None:
    bad = frame.filter(pl.col("id").is_null() | pl.col("file_name").is_null())
    for row in bad.head(NAMED).iter_rows(named=True):
        what = "id" if row["id"] is None else "file_name"
        _note_entry(document, "images", row, "missing-key", f"an image's entry has no `{what}`")
    columns = ("entry", "line", "byte", "file_name", "width", "height", "attributes")
    document.reading.add_frame("annotated_images", frame.select(*columns, image_key="id"))


def _add_annotations(document: Document, frame: pl.DataFrame) -> None:
    segments = frame.filter(pl.col("segments_info").is_not_null())
    if segments.height:
        others = frame.filter(pl.col("segments_info").is_null())
        frame = pl.concat([others, panoptic_segments(segments)], how="diagonal_relaxed")
    captions = int(frame["caption"].is_not_null().sum())
    if captions:
        document.skipped["captions"] += captions
        frame = frame.filter(pl.col("caption").is_null())
    if not frame.height:
        return
    _note_misshapen(document, frame)
    outlines = add_segmentations(document.reading, frame)
    add_keypoints(document.reading, frame)
    frame = _with_numbers(frame.join(outlines, on="entry", how="left"), outlines.columns[1:])
    document.reading.objects += int((frame["kind"] != "label").sum())
    document.reading.add_frame(
        "annotations",
        frame.select(
            "entry", "line", "byte", "kind", "v1", "v2", "v3", "v4", "angle", "area",
            "attributes", image_key="image_id", annotation_id="id", category_key="category_id",
            crowd=pl.col("iscrowd").is_in(["1", "true", "1.0"]), n_keypoints="num_keypoints",
            track="track_id",
        ),
    )  # fmt: skip


def _with_numbers(frame: pl.DataFrame, extent: Sequence[str]) -> pl.DataFrame:
    """Return the frame with the four numbers, those of `extent` without a box, angle and kind."""
    length = pl.col("bbox").list.len().fill_null(0)
    turned = length == 5
    a, b, c, d, e = (pl.col("bbox").list.get(i, null_on_oob=True) for i in range(5))
    outlined = pl.col("outline_x").is_not_null()
    # Five numbers are centre, size and angle; the upright box of that size stands for it.
    a, b = (pl.when(turned).then(v - side / 2).otherwise(v) for v, side in ((a, c), (b, d)))
    return frame.with_columns(
        *(
            pl.when(length > 0).then(given).otherwise(pl.col(outline)).alias(f"v{i}")
            for i, (given, outline) in enumerate(zip((a, b, c, d), extent, strict=True), 1)
        ),
        angle=pl.when(turned).then(e),
        kind=pl.when(length > 0).then(pl.lit("box"))
        .when(outlined).then(pl.lit("outline")).otherwise(pl.lit("label")),
    )  # fmt: skip


def _note_misshapen(document: Document, frame: pl.DataFrame) -> None:
    length, image = pl.col("bbox").list.len(), pl.col("image_id")
    crowd = pl.col("iscrowd").is_in(["0", "1", "0.0", "1.0", "true", "false"])
    problems = (
        ("malformed", (length > 0) & ~length.is_in([4, 5]), "the box has {} numbers instead of 4"),
        ("wrong-type", ~crowd | image.str.contains(r"^[\[{]"),
         "`iscrowd` is not 0 or 1, or `image_id` is a list or an object"),
        ("missing-key", image.is_null(), "an annotation has no `image_id`"),
    )  # fmt: skip
    for kind, wrong, detail in problems:
        for row in frame.filter(wrong).iter_rows(named=True):
            said = detail.format(len(row["bbox"] or ()))
            _note_entry(document, "annotations", row, kind, said)


def _note_entry(document: Document, key: str, row: Mapping[str, Any], kind: str, said: str) -> None:
    place = f"{key}[{row['entry']}], line {row['line']}, byte {row['byte']}"
    document.reading.note(kind, said, place, row.get("image_id"))


def _note_id_types(document: Document, key: str, chunk: bytes) -> None:
    """Remember whether ids are numbers or texts: "1" is not 1 for the usual readers."""
    if word := {"images": "id", "annotations": "image_id"}.get(key):
        types = document.id_types.setdefault(f"{key}.{word}", set())
        if any(f'"{word}"{colon}"'.encode() in chunk for colon in (": ", ":")):
            types.add("text")
        if BARE_ID[word].search(chunk):
            types.add("number")
