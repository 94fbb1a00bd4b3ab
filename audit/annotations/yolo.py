"""YOLO: one text file a picture, a line an object: class, then centre and size in shares of 1.

Lines with more numbers are outlines, a polygon or four corners of a turned box; in a folder of
poses (pose.py) they are keypoints behind the box. Where there are many, files without a fault
are taken apart in one compiled pass (label_lines.py); the others, and a few small ones, by polars,
which keeps what is needed to say what is wrong.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import polars as pl

from audit.annotations.ahead import look_ahead
from audit.annotations.class_names import load_class_names
from audit.annotations.discovery import AnnotationGroup
from audit.annotations.geometry import Numbers
from audit.annotations.label_lines import PlainLines, read_plain_lines
from audit.annotations.outcome import ReadOutcome
from audit.annotations.pose import BOX, PoseForm, guess_pose, load_pose, pose_shapes
from audit.annotations.problems import ProblemLog
from audit.annotations.shapes import add_rings
from audit.annotations.sink import Sink
from audit.records import sample_id

FILES = 10_000  # read together
TOGETHER = 256  # files that one thread reads in a row
SMALL = 2 << 20  # bytes up to which compiled code costs more to load than it saves
BLOCK, MOST_BYTES = 1 << 16, 64 << 20  # bytes of one file


@dataclass(slots=True)
class _Reading:
    """One folder of label files while it is read; `pose` is known once some lines are."""

    group: AnnotationGroup
    sink: Sink
    problems: ProblemLog
    outcome: ReadOutcome
    pose: PoseForm | None


def read_yolo(group: AnnotationGroup, sink: Sink) -> ReadOutcome:
    """Read the text files of one folder into the tables."""
    problems, outcome = ProblemLog(group.file), ReadOutcome("centre share")
    names, named_by = load_class_names(group.tree, group.folder)
    pose = load_pose(group.tree, group.folder, problems)
    reading = _Reading(group, sink, problems, outcome, pose)
    used: set[str] = set()
    parts = range(0, len(group.names), FILES)
    for first, raws in look_ahead(parts, lambda first: _read_files(group, first)):
        used |= _read_some(reading, first, raws)
    if not names:
        numbers = sorted(used, key=lambda key: (len(key), key))
        names = {key: f"class {key}" for key in numbers}
        outcome.remark = "no file names the classes, so they go by their numbers"
    for entry, (key, label) in enumerate(names.items()):
        points = reading.pose.point_names(key) if reading.pose else None
        sink.add(
            "categories",
            {
                "file": group.file, "category_key": key, "label": label, "entry": entry,
                "declared": bool(named_by), "keypoints": json.dumps(points) if points else None,
            },
        )  # fmt: skip
    sink.add_problems(problems)
    return outcome


def _read_some(reading: _Reading, first: int, raws: Sequence[bytes | OSError]) -> set[str]:
    """Add some files, given their bytes; returns the classes that they use."""
    group = reading.group
    keys = [sample_id(name) for name in group.names[first : first + FILES]]
    if first == 0 and reading.pose is None:
        reading.pose = guess_pose(raws)
    reading.sink.add_frame(
        "annotated_images",
        pl.DataFrame({"image_key": keys, "entry": range(first, first + len(keys))}).with_columns(
            file=pl.lit(group.file), file_name=pl.col("image_key").str.replace(r"\.[^.]*$", "")
        ),
    )  # fmt: skip
    used: set[str] = set()
    plain = [False] * len(keys)
    if sum(len(raw) for raw in raws if isinstance(raw, bytes)) > SMALL:
        lines = read_plain_lines([raw if isinstance(raw, bytes) else b"\0" for raw in raws])
        if reading.pose is not None:
            lines = lines.of_length(reading.pose.columns)
        used |= _add_plain(reading, keys, lines)
        plain = lines.plain.tolist()
    frame = _lines(
        {key: raw for key, raw, done in zip(keys, raws, plain, strict=True) if not done},
        reading.problems, reading.outcome,
    )  # fmt: skip
    return used | (_add_objects(reading, frame) if frame.height else set())


def _read_files(group: AnnotationGroup, start: int) -> list[bytes | OSError]:
    """Return the bytes of each of `FILES` files, or why one cannot be read; threads wait."""
    folder, names = group.path(""), group.names[start : start + FILES]

    def read(name: str) -> bytes | OSError:
        try:
            handle = os.open(folder + name, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        except OSError as error:
            return error
        try:
            return _read_all(handle)
        except OSError as error:
            return error
        finally:
            os.close(handle)

    def read_each(first: int) -> list[bytes | OSError]:
        return [read(name) for name in names[first : first + TOGETHER]]

    with ThreadPoolExecutor(2 if len(names) > TOGETHER else 1) as pool:
        parts = list(pool.map(read_each, range(0, len(names), TOGETHER)))
    return [raw for part in parts for raw in part]


def _read_all(handle: int) -> bytes:
    raw = os.read(handle, BLOCK)
    if len(raw) < BLOCK:
        return raw
    parts = [raw]
    while parts[-1] and len(parts) * BLOCK < MOST_BYTES:
        parts.append(os.read(handle, BLOCK))
    return b"".join(parts)


def _lines(
    raws: Mapping[str, bytes | OSError], problems: ProblemLog, outcome: ReadOutcome
) -> pl.DataFrame:
    """Return the lines of some files: `image_key`, `line` (from 1), `text`, blanks at ends cut."""
    keys, texts, counts = [], [], []
    for key, raw in raws.items():
        if isinstance(raw, OSError):
            problems.add("unreadable", f"a file cannot be read: {raw.strerror}", key, key)
            outcome.complete = False
            continue
        lines = _text(raw, key, problems).split("\n")
        keys.append(key)
        texts += lines
        counts.append(len(lines))
    owner = pl.Series("image_key", keys, pl.String).repeat_by(pl.Series(counts, dtype=pl.UInt32))
    frame = pl.DataFrame(
        {"image_key": owner.explode(empty_as_null=False), "text": pl.Series(texts, dtype=pl.String)}
    )
    return frame.with_columns(
        line=pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over("image_key"),
        text=pl.col("text").str.strip_chars(),
    ).filter(pl.col("text") != "")


def _text(raw: bytes, key: str, problems: ProblemLog) -> str:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        utf16 = raw[:2] in (b"\xff\xfe", b"\xfe\xff")
        said = "a file is UTF-16" if utf16 else f"byte {error.start} of a file is no UTF-8"
        problems.add("encoding", said, key, key)
        text = raw.decode("utf-16" if utf16 else "latin-1", "replace")
    if raw.startswith(b"\xef\xbb\xbf"):
        said = "a file begins with a byte-order mark, which makes its first class no number"
        problems.add("encoding", said, key, key)
    return text


def _add_plain(reading: _Reading, keys: Sequence[str], lines: PlainLines) -> set[str]:
    """Add the lines of plain files; returns the classes that they use."""
    counts, starts, pose = np.diff(lines.starts), lines.starts[:-1], reading.pose
    boxed = (counts == 4) | (counts == 5) | ((counts > 6) & (counts % 2 == 1)) | bool(pose)
    labels, at = np.unique(lines.label, return_inverse=True)
    frame = pl.DataFrame(
        {
            "image_key": pl.Series(keys, dtype=pl.String).gather(lines.owner), "line": lines.line,
            "category_key": pl.Series(labels).cast(pl.String).gather(at),
        }
    )  # fmt: skip
    given = frame.filter(boxed).with_columns(
        kind=pl.lit("box"),
        **{f"v{i + 1}": lines.numbers[starts[boxed] + i] for i in range(BOX)},
    )
    if pose:
        _add_poses(reading, frame, lines.numbers)
    inside = np.repeat(~boxed, counts)
    points = pl.DataFrame(
        {"row": np.repeat(np.arange(len(counts)), counts)[inside], "numbers": lines.numbers[inside]}
    )
    rings = points.group_by("row", maintain_order=True).agg("numbers")["numbers"]
    rest = frame.filter(~boxed).with_columns(numbers=rings)
    _add_rows(reading, given, _outlined(reading, rest))
    return set(frame["category_key"].unique().to_list())


def _add_objects(reading: _Reading, frame: pl.DataFrame) -> set[str]:
    problems, pose = reading.problems, reading.pose
    commas = frame["text"].str.contains(",", literal=True)
    if commas.any():
        said = "a line has commas, which readers of YOLO refuse"
        _note(frame.filter(commas), "malformed", said, problems)
    parts = frame["text"].str.replace_all(",", " ", literal=True).str.replace_all(r"\s+", " ")
    frame = frame.with_columns(parts=parts.str.split(" "))
    frame = frame.with_columns(
        category_key=pl.col("parts").list.first(),
        numbers=pl.col("parts").list.slice(1).list.eval(
            pl.element().cast(pl.Float64, strict=False)
        ),
    )  # fmt: skip
    frame = _checked(frame, problems, pose)
    n = pl.col("numbers").list.len()
    boxed = n.is_in([4, 5]) | ((n > 6) & (n % 2 == 1)) | pl.lit(pose is not None)
    boxes, rest = frame.filter(boxed), frame.filter(~boxed)
    if pose:
        posed = boxes.filter(n == pose.columns)
        _add_poses(reading, posed, posed["numbers"].explode(empty_as_null=False).to_numpy())
    given = boxes.with_columns(
        kind=pl.lit("box"),
        **{f"v{i + 1}": pl.col("numbers").list.get(i, null_on_oob=True) for i in range(BOX)},
    )
    _add_rows(reading, given, _outlined(reading, rest))
    return set(frame["category_key"].unique().to_list())


def _add_poses(reading: _Reading, frame: pl.DataFrame, numbers: Numbers) -> None:
    """Append the keypoints of lines, given all their numbers in one row."""
    if reading.pose is not None and frame.height:
        values = numbers.astype(np.float64).reshape(frame.height, -1)[:, BOX:]
        shapes = pose_shapes(frame, values, reading.pose)
        reading.sink.add_frame(
            "annotation_shapes", shapes.with_columns(file=pl.lit(reading.group.file))
        )


def _add_rows(reading: _Reading, given: pl.DataFrame, made: pl.DataFrame) -> None:
    columns = ("image_key", "line", "category_key", "kind", "v1", "v2", "v3", "v4")
    rows = pl.concat([given.select(columns), made.select(columns)])
    reading.outcome.objects += rows.height
    reading.sink.add_frame(
        "annotations",
        rows.with_columns(
            file=pl.lit(reading.group.file), entry=pl.col("line") - 1, crowd=pl.lit(False)
        ),
    )


def _checked(frame: pl.DataFrame, problems: ProblemLog, pose: PoseForm | None) -> pl.DataFrame:
    """Note lines that are no labels; returns those that are."""
    n = pl.col("numbers").list.len()
    few = frame.filter((n < 4) | ((n > 5) & (n < 6)))
    _note(few, "malformed", "a line has not 5 columns (class and 4 numbers)", problems)
    if pose is not None:
        _note(frame.filter((n >= 4) & (n != pose.columns)), "malformed", pose.misfit(), problems)
        # The box of a line without keypoints is one; what other lines mean cannot be told.
        frame = frame.filter((n <= 5) | (n == pose.columns))
    whole = pl.col("category_key").str.contains(r"^\d+$")
    odd = frame.filter((n >= 4) & ~whole)
    _note(odd, "malformed", "the class of a line is no whole number", problems)
    texts = pl.col("numbers").list.eval(pl.element().is_null()).list.any()
    _note(frame.filter((n >= 4) & texts), "malformed", "a line has a text for a number", problems)
    keys = pl.col("category_key").str.replace(r"\.0+$", "")
    return frame.filter(n >= 4).with_columns(category_key=keys)


def _note(frame: pl.DataFrame, kind: str, said: str, problems: ProblemLog) -> None:
    for row in frame.iter_rows(named=True):
        text = row["text"][:60]
        place = f"{row['image_key']}, line {row['line']}"
        problems.add(kind, said, f"{place}: {text!r}", row["image_key"])


def _outlined(reading: _Reading, frame: pl.DataFrame) -> pl.DataFrame:
    """Append polygons; returns their extents as centre and size."""
    if not frame.height:
        schema = dict.fromkeys(("v1", "v2", "v3", "v4"), pl.Float64)
        empty = pl.DataFrame(schema={"kind": pl.String, **schema})
        return pl.concat([frame, empty], how="horizontal")
    numbered = frame.with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
    # Extents come back by entry, which is a line, unique in one file only: so rows are numbered.
    rings = numbered.select(
        "image_key", file=pl.lit(reading.group.file), entry="row", part=pl.lit(0, pl.Int32),
        points="numbers",
    )  # fmt: skip
    lines = numbered.select(entry="row", line=pl.col("line") - 1)
    extents = add_rings(reading.sink, rings, lines)
    made = numbered.join(extents, left_on="row", right_on="entry", how="left")
    return made.with_columns(
        kind=pl.lit("outline"),
        v1=pl.col("outline_x") + pl.col("outline_width") / 2,
        v2=pl.col("outline_y") + pl.col("outline_height") / 2,
        v3=pl.col("outline_width"), v4=pl.col("outline_height"),
    )  # fmt: skip
