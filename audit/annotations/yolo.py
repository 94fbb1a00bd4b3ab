"""YOLO: one text file a picture, a line an object: class, then centre and size in shares of 1.

Lines with more numbers are outlines, a polygon or four corners of a turned box; in a folder of
poses they are keypoints behind the box (`kpt_shape`, `flip_idx`, `kpt_names` of `data.yaml`).
Without `kpt_shape` a folder is one of poses where all its long lines have one length that fits a
box and triples whose third number is 0, 1 or 2.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import polars as pl

from audit.annotations.box_pairs import Numbers
from audit.annotations.class_names import StatedNames, Value, load_names, numbered_texts
from audit.annotations.discovery import AnnotationGroup
from audit.annotations.geometry import add_rings
from audit.annotations.keypoints import flip_names
from audit.annotations.sink import ProblemLog, Reading, look_ahead
from audit.records import sample_id
from dataset_preflight.foundation.files import regular

FILES = 10_000  # read together
TOGETHER = 256  # files that one thread reads in a row
MOST_BYTES = 64 << 20  # of one file


def read_yolo(reading: Reading) -> None:
    """Read the text files of one folder into the tables."""
    group, reading.form = reading.group, "centre share"
    stated = load_names(group.tree, group.folder, reading)
    names, pose = stated.names, stated_pose(stated, reading)
    used: set[str] = set()
    parts = range(0, len(group.names), FILES)
    for first, raws in look_ahead(parts, lambda first: _read_files(group, first)):
        if first == 0 and pose is None:
            pose = guess_pose(raws)
        used |= _read_some(reading, first, raws, pose)
    if not names:
        numbers = sorted(used, key=lambda key: (len(key), key))
        names = {key: f"class {key}" for key in numbers}
        why = f"{stated.unread} cannot be read" if stated.unread else "no file names the classes"
        reading.remark = f"{why}, so classes are named by number"
    for entry, (key, label) in enumerate(names.items()):
        points = (pose.names.get(key) or flip_names(pose.flip)) if pose else None
        reading.add_class(entry, key, label, declared=bool(stated.named_by), keypoints=points)


def _read_some(
    reading: Reading, first: int, raws: Sequence[bytes | OSError], pose: PoseForm | None
) -> set[str]:
    """Add some files, given their bytes; returns the classes that they use."""
    keys = [sample_id(name) for name in reading.group.names[first : first + FILES]]
    pictures = pl.DataFrame({"image_key": keys, "entry": range(first, first + len(keys))})
    named = pl.col("image_key").str.replace(r"\.[^.]*$", "")
    reading.add_frame("annotated_images", pictures.with_columns(file_name=named))
    frame = _lines(dict(zip(keys, raws, strict=True)), reading)
    return _add_objects(reading, frame, pose) if frame.height else set()


def _read_files(group: AnnotationGroup, start: int) -> list[bytes | OSError]:
    """Return the bytes of each of `FILES` files, or why one cannot be read; threads wait."""
    folder, names = group.path(""), group.names[start : start + FILES]

    def read(name: str) -> bytes | OSError:
        try:
            with open(folder + name, "rb", buffering=0, opener=regular) as file:
                return file.read(min(os.fstat(file.fileno()).st_size, MOST_BYTES))
        except OSError as error:
            return error

    def read_each(first: int) -> list[bytes | OSError]:
        return [read(name) for name in names[first : first + TOGETHER]]

    with ThreadPoolExecutor(2 if len(names) > TOGETHER else 1) as pool:
        parts = list(pool.map(read_each, range(0, len(names), TOGETHER)))
    return [raw for part in parts for raw in part]


def _lines(raws: Mapping[str, bytes | OSError], reading: Reading) -> pl.DataFrame:
    """Return the lines of some files: `image_key`, `line` (from 1), `text`, blanks at ends cut."""
    keys, texts, counts = [], [], []
    for key, raw in raws.items():
        if isinstance(raw, OSError):
            reading.note("unreadable", f"a file cannot be read: {raw.strerror}", key, key)
            reading.complete = False
            continue
        lines = _text(raw, key, reading).split("\n")
        keys.append(key)
        texts += lines
        counts.append(len(lines))
    owner = pl.Series("image_key", keys, pl.String).repeat_by(pl.Series(counts, dtype=pl.UInt32))
    stripped = pl.Series("text", texts, pl.String).str.strip_chars()
    frame = pl.DataFrame([owner.explode(empty_as_null=False), stripped])
    line = pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over("image_key")
    return frame.with_columns(line=line).filter(pl.col("text") != "")


def _text(raw: bytes, key: str, reading: Reading) -> str:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        utf16 = raw[:2] in (b"\xff\xfe", b"\xfe\xff")
        what = "a file is UTF-16" if utf16 else f"byte {error.start} of a file is not UTF-8"
        reading.note("encoding", what, key, key)
        text = raw.decode("utf-16" if utf16 else "latin-1", "replace")
    if raw.startswith(b"\xef\xbb\xbf"):
        what = "a file begins with a byte-order mark, so its first class is not a number"
        reading.note("encoding", what, key, key)
    return text


def _add_objects(reading: Reading, frame: pl.DataFrame, pose: PoseForm | None) -> set[str]:
    """Add the objects of lines; returns the classes that they use."""
    commas = frame["text"].str.contains(",", literal=True)
    if commas.any():
        _note(frame.filter(commas), "a line has commas, which YOLO readers reject", reading)
    parts = frame["text"].str.replace_all(",", " ", literal=True).str.replace_all(r"\s+", " ")
    frame = frame.with_columns(parts=parts.str.split(" "))
    frame = frame.with_columns(
        category_key=pl.col("parts").list.first(),
        numbers=pl.col("parts").list.slice(1).list.eval(
            pl.element().cast(pl.Float64, strict=False)
        ),
    )  # fmt: skip
    frame = _checked(frame, reading, pose)
    n = pl.col("numbers").list.len()
    boxed = n.is_in([4, 5]) | ((n > 6) & (n % 2 == 1)) | pl.lit(pose is not None)
    boxes, rest = frame.filter(boxed), frame.filter(~boxed)
    if pose:
        _add_poses(reading, boxes.filter(n == pose.columns), pose)
    given = boxes.with_columns(
        kind=pl.lit("box"),
        **{f"v{i + 1}": pl.col("numbers").list.get(i, null_on_oob=True) for i in range(BOX)},
    )
    columns = ("image_key", "line", "category_key", "kind", "v1", "v2", "v3", "v4")
    rows = pl.concat([given.select(columns), _outlined(reading, rest).select(columns)])
    reading.objects += rows.height
    entries = rows.with_columns(entry=pl.col("line") - 1, crowd=pl.lit(False))
    reading.add_frame("annotations", entries)
    return set(frame["category_key"].unique().to_list())


def _add_poses(reading: Reading, frame: pl.DataFrame, form: PoseForm) -> None:
    """Append the keypoints of lines whose numbers have the form."""
    if not frame.height:
        return
    numbers = frame["numbers"].explode(empty_as_null=False).to_numpy()
    values = numbers.astype(np.float64).reshape(frame.height, -1)[:, BOX:]
    points = pl.Series("points", form.triples(values), pl.Array(pl.Float64, 3 * form.points))
    shapes = frame.select(
        "image_key", entry=pl.col("line") - 1, kind=pl.lit("keypoints"), part=pl.lit(0, pl.Int32),
        n_points=pl.lit(form.points, pl.Int64),
    ).with_columns(points.cast(pl.List(pl.Float64)))  # fmt: skip
    reading.add_frame("annotation_shapes", shapes)


def _checked(frame: pl.DataFrame, reading: Reading, pose: PoseForm | None) -> pl.DataFrame:
    """Note lines that are no labels; returns those that are."""
    n = pl.col("numbers").list.len()
    few = frame.filter(n < 4)
    _note(few, "a line does not have 5 columns (class and 4 numbers)", reading)
    if pose is not None:
        _note(frame.filter((n >= 4) & (n != pose.columns)), pose.misfit(), reading)
        # The box of a line without keypoints is one; what other lines mean cannot be told.
        frame = frame.filter((n <= 5) | (n == pose.columns))
    whole = pl.col("category_key").str.contains(r"^\d+$")
    frame = frame.filter(n >= 4)
    _note(frame.filter(~whole), "the class of a line is not an integer", reading)
    texts = pl.col("numbers").list.eval(pl.element().is_null()).list.any()
    _note(frame.filter(texts), "a line has text in place of a number", reading)
    return frame.with_columns(category_key=pl.col("category_key").str.replace(r"\.0+$", ""))


def _note(frame: pl.DataFrame, what: str, reading: Reading) -> None:
    for row in frame.iter_rows(named=True):
        place = f"{row['image_key']}, line {row['line']}: {row['text'][:60]!r}"
        reading.note("malformed", what, place, row["image_key"])


def _outlined(reading: Reading, frame: pl.DataFrame) -> pl.DataFrame:
    """Append polygons; returns their extents as centre and size."""
    numbered = frame.with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
    # Extents come back by entry, which is a line, unique in one file only: so rows are numbered.
    rings = numbered.select("image_key", entry="row", part=pl.lit(0, pl.Int32), points="numbers")
    lines = numbered.select(entry="row", line=pl.col("line") - 1)
    extents = add_rings(reading, rings, lines)
    made = numbered.join(extents, left_on="row", right_on="entry", how="left")
    return made.with_columns(
        kind=pl.lit("outline"),
        v1=pl.col("outline_x") + pl.col("outline_width") / 2,
        v2=pl.col("outline_y") + pl.col("outline_height") / 2,
        v3=pl.col("outline_width"), v4=pl.col("outline_height"),
    )  # fmt: skip


BOX = 4  # numbers of the box, before the keypoints
SAMPLED = 200  # label files from which the form is told where no file says it


@dataclass(frozen=True, slots=True)
class PoseForm:
    """What follows the box: `points` keypoints of `numbers` (2 or 3) each.

    `flip` is the keypoint that each becomes in a mirrored image, () where unknown; `names` are
    names of keypoints by class; `stated_by` is the file, '' for a guess from lines.
    """

    points: int
    numbers: int
    flip: tuple[int, ...] = ()
    names: dict[str, list[str]] = field(default_factory=dict)
    stated_by: str = ""

    @property
    def columns(self) -> int:
        """Numbers of a line behind its class."""
        return BOX + self.points * self.numbers

    def misfit(self) -> str:
        """Return what is wrong with a line of another length."""
        why = f"`kpt_shape` [{self.points}, {self.numbers}]" if self.stated_by else "other lines"
        return f"a line does not have the {1 + self.columns} columns of {why}"

    def triples(self, values: Numbers) -> Numbers:
        """Return (rows, points * 3) numbers x, y, visibility from those of the lines.

        Of two numbers each, a point is visible (2) unless it lies at (0, 0) or below 0.
        """
        if self.numbers == 3:
            return values
        points = values.reshape(len(values), self.points, 2)
        marked = (points >= 0).all(2) & (points != 0).any(2)
        seen = np.where(marked | np.isnan(points).any(2), 2.0, 0.0)
        return np.concatenate([points, seen[..., None]], 2).reshape(len(values), -1)


def stated_pose(stated: StatedNames, problems: ProblemLog) -> PoseForm | None:
    """Return what `kpt_shape` of the nearest file that names classes says, None without one."""
    path = stated.settings_path
    given = numbered_texts(stated.settings.get("kpt_shape", ""))
    shape = _whole(given)
    if given and (len(shape) != 2 or shape[0] < 1 or shape[1] not in (2, 3)):
        problems.note("malformed", "`kpt_shape` is not [number of keypoints, 2 or 3]", path)
    elif given:
        flip = _flip(stated.settings.get("flip_idx", ""), shape[0], path, problems)
        names = _names(stated.settings.get("kpt_names", ""), shape[0])
        return PoseForm(shape[0], shape[1], flip, names, path)
    return None


def _flip(value: Value, points: int, path: str, problems: ProblemLog) -> tuple[int, ...]:
    given = numbered_texts(value)
    flip = _whole(given)
    back = sorted(flip) == list(range(points)) and all(flip[j] == i for i, j in enumerate(flip))
    if given and not back:
        what = f"does not pair the {points:,} keypoints: mirroring twice must restore all"
        problems.note("malformed", f"`flip_idx` {what}", path)
    return tuple(flip) if back else ()


def _whole(items: dict[str, str]) -> list[int]:
    """Return the numbers that texts are, [] where one is no whole number."""
    texts = list(items.values())
    return [int(t) for t in texts] if all(t.isascii() and t.isdigit() for t in texts) else []


def _names(value: Value, points: int) -> dict[str, list[str]]:
    """Return `kpt_names` by class; lists of another length than there are keypoints are none."""
    by_class = value if isinstance(value, dict) else {}
    found = {key: list(numbered_texts(names).values()) for key, names in by_class.items()}
    return {key: names for key, names in found.items() if len(names) == points}


def guess_pose(raws: Iterable[bytes | OSError]) -> PoseForm | None:
    """Return the form that all long lines of some label files have in common, None without."""
    lengths: set[int] = set()
    for raw in islice((raw for raw in raws if isinstance(raw, bytes)), SAMPLED):
        for line in raw.splitlines():
            tokens = line.split()[1:]
            if len(tokens) > BOX + 1:
                lengths.add(len(tokens))
                if len(lengths) > 1 or len(tokens) % 3 != 1 or not _marked(tokens[BOX + 2 :: 3]):
                    return None
    return PoseForm((lengths.pop() - BOX) // 3, 3) if lengths else None


def _marked(tokens: Sequence[bytes]) -> bool:
    try:
        return {float(token) for token in tokens} <= {0.0, 1.0, 2.0}
    except ValueError:
        return False
