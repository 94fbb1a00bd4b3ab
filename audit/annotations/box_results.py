"""A detector's boxes in COCO's results format: a JSON list of image_id, category_id, bbox, score.

Read into a frame and joined to the pictures and classes of the annotation file that they were made
for: by id, or by the picture's file name and the name of the class, as some tools write them. What
cannot be used is said in one sentence with the number of the first such entry.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from audit.errors import UsageError
from audit.run.store import Store

FORMAT = 'a JSON list of {"image_id", "category_id", "bbox": [x, y, width, height], "score"}'
MOST_BYTES = 2 << 30
_TABLES = (".parquet", ".csv")
_SCHEMA = {
    "image": pl.String, "category": pl.String, "x": pl.Float64, "y": pl.Float64,
    "width": pl.Float64, "height": pl.Float64, "score": pl.Float64,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class BoxResults:
    """Predictions of the pictures of one annotation file.

    `frame`: image_key, label, x, y, width, height (px, in the frame of the file), score.
    `unknown`: predictions for pictures that the file does not list.
    """

    file: str
    frame: pl.DataFrame
    total: int
    unknown: int


def holds_boxes(path: Path) -> bool:
    """Say whether a file of predictions holds boxes (JSON) or is a table of probabilities.

    Raises UsageError where it is neither.
    """
    try:
        with path.open("rb") as file:
            head = file.read(512)
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror or error}).") from None
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text[:1] in (b"[", b"{"):
        return True
    if text[:4] == b"PAR1" or path.suffix.lower() in _TABLES:
        return False
    raise UsageError(
        f"{path} is neither a detector's boxes ({FORMAT}) nor a table of class probabilities by "
        "path (.parquet, .csv)."
    )


def load_results(store: Store, path: Path) -> BoxResults:
    """Read a file of results and find its pictures and classes; raises UsageError."""
    frame = _read(path)
    file, keys = _find_file(store, path, frame["image"].unique().to_list())
    labels = _class_names(store, file)
    if strange := sorted(set(frame["category"].unique()) - set(labels)):
        known = ", ".join(list(labels)[:8]) + (", ..." if len(labels) > 8 else "")
        raise UsageError(
            f"{path}: category_id {strange[0]} is no class of {file}, whose classes are {known}"
            + (f" ({len(strange):,} such ids)" if len(strange) > 1 else "")
            + ": write the ids of the annotation file, not the detector's own numbers."
        )
    mapped = frame.with_columns(
        image_key=pl.col("image").replace_strict(keys, default=None, return_dtype=pl.String),
        label=pl.col("category").replace_strict(labels, return_dtype=pl.String),
    )
    here = mapped.filter(pl.col("image_key").is_not_null()).drop("image", "category")
    return BoxResults(file, here, frame.height, frame.height - here.height)


# ---- the file ----


def _read(path: Path) -> pl.DataFrame:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise UsageError(f"{path} is larger than {MOST_BYTES >> 30} GB: give the best 100 a "
                             "picture, as evaluation does.")  # fmt: skip
        document = json.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror or error}).") from None
    except (ValueError, RecursionError) as error:
        said = "it nests too deep" if isinstance(error, RecursionError) else str(error)[:120]
        raise UsageError(f"{path} is no JSON ({said}): write {FORMAT}.") from None
    if not isinstance(document, list):
        raise UsageError(f"{path} holds an object: COCO's results are {FORMAT}.")
    if not document:
        raise UsageError(f"{path} holds no prediction: an empty list says nothing.")
    rows = [_row(path, number, entry) for number, entry in enumerate(document)]
    frame = pl.DataFrame(rows, schema=_SCHEMA, orient="row")
    _refuse_numbers(path, frame)
    return frame


def _row(path: Path, number: int, entry: Any) -> tuple[Any, ...]:
    if not isinstance(entry, dict):
        raise UsageError(f"{path}: entry {number:,} is no object: write {FORMAT}.")
    missing = [k for k in ("image_id", "category_id", "bbox", "score") if k not in entry]
    if missing:
        raise UsageError(f"{path}: entry {number:,} has no `{missing[0]}`: write {FORMAT}.")
    box, score = entry["bbox"], entry["score"]
    if not isinstance(box, list) or len(box) != 4:
        n = f"{len(box)} numbers" if isinstance(box, list) else "no list"
        raise UsageError(
            f"{path}: the box of entry {number:,} has {n} instead of 4 (x, y, width, height)."
        )
    if not all(isinstance(v, int | float) and not isinstance(v, bool) for v in (*box, score)):
        raise UsageError(f"{path}: a number of entry {number:,} is a text, null or a list.")
    try:
        numbers = [float(v) for v in (*box, score)]
    except OverflowError:
        numbers = [math.inf]
    return (_key(entry["image_id"]), _key(entry["category_id"]), *(numbers * 5)[:5])


def _key(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).encode("utf-8", "replace").decode()


def _refuse_numbers(path: Path, frame: pl.DataFrame) -> None:
    numbers = pl.col("x", "y", "width", "height", "score")
    for wrong, said in (
        (~pl.all_horizontal(numbers.is_finite()), "numbers that are none (NaN or infinite)"),
        ((pl.col("score") < 0) | (pl.col("score") > 1), "a score outside 0 to 1, no probability"),
        ((pl.col("width") <= 0) | (pl.col("height") <= 0), "a box without width or height"),
    ):
        bad = frame.with_row_index().filter(wrong)
        if bad.height:
            raise UsageError(
                f"{path}: {bad.height:,} of {frame.height:,} predictions have {said}, first entry "
                f"{bad['index'][0]:,}: leave them out or convert them."
            )


# ---- pictures and classes ----


def _find_file(store: Store, path: Path, images: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Return the annotation file that the ids are of, and {id as predicted: key of the file}."""
    best: tuple[int, int, str, dict[str, str]] | None = None
    rival = ""
    for file, objects in store.query("SELECT file, objects FROM annotation_files").iter_rows():
        for keys in _ways(store, file):
            known = {image: keys[image] for image in images if image in keys}
            if not known or (best is not None and (len(known), objects) < best[:2]):
                continue
            if best is not None and len(known) == best[0] and best[2] != file:
                rival = file if _other_pictures(store, file, best[2]) else rival
            best = (len(known), objects, file, known)
    if best is None:
        listed = store.scalar("SELECT image_key FROM annotated_images LIMIT 1")
        if listed is None:
            raise UsageError(f"{path}: the dataset has no annotations to compare with.")
        raise UsageError(
            f"No image_id of {path} is a picture of the annotation files: it has {images[0]!r}, "
            f"they have {listed!r}."
        )
    if rival and rival != best[2]:
        raise UsageError(
            f"The image ids of {path} fit {rival} and {best[2]} alike, which list other pictures: "
            "scan the split that was predicted alone, or leave a file out with --exclude."
        )
    return best[2], best[3]


def _ways(store: Store, file: str) -> Iterator[dict[str, str]]:
    """Yield what may name the pictures of a file: its own ids; paths, names, names without end."""
    rows = store.query(
        "SELECT image_key, replace(coalesce(file_name, ''), '\\', '/'), sample_id "
        "FROM annotated_images WHERE file = ? AND sample_id IS NOT NULL ORDER BY entry",
        [file],
    ).rows()
    yield {key: key for key, _, _ in rows}
    for named in (_whole, _name, _stem):
        ways: dict[str, str] = {}
        for key, name, sample in rows:
            for text in {named(name), named(sample)}:
                ways[text] = "" if text in ways and ways[text] != key else key
        yield {text: key for text, key in ways.items() if key}


def _whole(path: str) -> str:
    return path


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _stem(path: str) -> str:
    name = _name(path)
    return name.rpartition(".")[0] or name


def _other_pictures(store: Store, file: str, other: str) -> bool:
    """Say whether two files list different pictures."""
    sql = "SELECT DISTINCT sample_id FROM annotated_images WHERE file = ? AND sample_id IS NOT NULL"
    one, two = (set(store.query(sql, [f])["sample_id"]) for f in (file, other))
    return one != two


def _class_names(store: Store, file: str) -> dict[str, str]:
    """Return {id or name of a class: its name}; ids come first."""
    rows = store.query(
        "SELECT category_key, min_by(label, entry) AS label FROM categories "
        "WHERE file = ? AND category_key IS NOT NULL GROUP BY category_key ORDER BY min(entry)",
        [file],
    ).rows()
    return {label: label for _, label in rows} | dict(rows)
