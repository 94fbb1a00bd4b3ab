"""Annotations that a detector contradicts, scored as ObjectLab does; into `box_doubts`.

Scores are 0..1, low where the annotation is doubtful: a confident prediction far from every box of
its class (overlooked), a box whose nearest prediction of its class is elsewhere (badly placed), a
box that a confident prediction of another class covers (swapped). Similarity is 0.9 of the
intersection over union and 0.1 of the nearness of centres; the quality of an image is the geometric
mean of the three soft minima (Tkachenko, Thyagarajan and Mueller 2023, arXiv:2309.00832). Here, a
prediction counts against one annotation only, and not at all where another explains it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from posixpath import basename, splitext
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from audit.annotations.entries import class_list
from audit.annotations.predicted_masks import segment
from audit.errors import UsageError
from audit.records import rows_frame
from audit.run.annotation_tables import ANNOTATION_TABLES
from audit.run.store import Store
from dataset_preflight.foundation.files import read_regular, regular

Floats = NDArray[np.float64]
ALPHA = 0.9  # share of the overlap in the similarity
CENTRE = 0.1  # per px: how fast nearness falls with the distance of the centres
LOW = 0.5  # probability below which a prediction says nothing
HIGH = 0.95  # probability from which it speaks of overlooked and swapped objects
TEMPERATURE = 0.1  # of the soft minimum
FOUND = 0.5  # overlap from which a prediction is of that object (Pascal VOC's protocol)
COVERED = 0.5  # share of a prediction inside a crowd region from which it is of the crowd
MOST_PREDICTED = 1000  # predictions of one picture that are compared, the surest
LEAST = 1e-6  # the lowest score: 0 would make every picture with one equal
_BOXES = """
    SELECT b.image_key, b.sample_id, b.entry, b.label, b.crowd,
        CASE WHEN t THEN stored_x ELSE x END AS x, CASE WHEN t THEN stored_y ELSE y END AS y,
        CASE WHEN t THEN stored_width ELSE b.width END AS width,
        CASE WHEN t THEN stored_height ELSE b.height END AS height
    FROM (SELECT b.*, f.frame = 'stored' AS t FROM boxes b JOIN annotation_files f USING (file)) b
    WHERE file = ? AND sample_id IS NOT NULL AND b.width > 0 AND b.height > 0 ORDER BY b.entry
"""


class _Picture(NamedTuple):
    """The boxes of one picture as corners: annotated ones and predictions."""

    boxes: Floats
    labels: Sequence[str | None]
    entries: Sequence[int]
    predicted: Floats
    predicted_labels: Sequence[str]
    chances: Floats


def judge_boxes(store: Store, results: BoxResults) -> None:
    """Score the annotations of the file that was predicted; fills `box_doubts`, `box_quality`."""
    for table in ("box_doubts", "box_quality", "prediction_facts"):
        store.execute(f"DELETE FROM {table}")
    boxes = store.query(_BOXES, [results.file]).partition_by("image_key", as_dict=True)
    samples = dict(
        store.query(
            "SELECT image_key, min_by(sample_id, entry) FROM annotated_images WHERE file = ? "
            "AND sample_id IS NOT NULL GROUP BY image_key",
            [results.file],
        ).iter_rows()
    )
    doubts, quality = list[dict[str, Any]](), list[dict[str, Any]]()
    n_boxes = left_out = low = 0
    for (key,), predicted in results.frame.partition_by("image_key", as_dict=True).items():
        if key not in samples:
            continue
        if predicted.height > MOST_PREDICTED:
            left_out += predicted.height - MOST_PREDICTED
            predicted = predicted.sort("score", descending=True, maintain_order=True)
            predicted = predicted.head(MOST_PREDICTED)
        confident = predicted.filter(pl.col("score") >= LOW)
        low += predicted.height - confident.height
        picture = _without_crowds(boxes.get((key,)), confident)
        n_boxes += len(picture.entries)
        head = {"sample_id": samples[key], "file": results.file, "image_key": key}
        found, scores = judge_picture(picture)
        doubts += [{**head, **doubt} for doubt in found]
        quality.append({**head, **scores})
    facts = {
        "file": results.file, "predictions": results.total, "unknown": results.unknown,
        "confident": int((results.frame["score"] >= HIGH).sum()), "pictures": len(quality),
        "boxes": n_boxes, "left_out": left_out, "low": low, "lowest": LOW,
    }  # fmt: skip
    texts = [{"key": k, "value": str(v)} for k, v in facts.items()]
    tables = {"box_doubts": doubts, "box_quality": quality, "prediction_facts": texts}
    for table, rows in tables.items():
        store.append(table, rows_frame(rows, ANNOTATION_TABLES[table]))


def _without_crowds(given: pl.DataFrame | None, predicted: pl.DataFrame) -> _Picture:
    """Return the boxes of a picture; predictions inside a crowd region are of the crowd."""
    if given is None:
        given = pl.DataFrame(
            schema={"entry": pl.Int64, "label": pl.String, "crowd": pl.Boolean,
                    **dict.fromkeys(("x", "y", "width", "height"), pl.Float64)}
        )  # fmt: skip
    crowds, single = given.filter("crowd"), given.filter(~pl.col("crowd"))
    if crowds.height and predicted.height:
        inside = shared_area(_corners(predicted), _corners(crowds)).max(1)
        area = (predicted["width"] * predicted["height"]).to_numpy()
        predicted = predicted.filter(pl.Series(inside < COVERED * area))
    return _Picture(
        _corners(single), single["label"].to_list(), single["entry"].to_list(),
        _corners(predicted), predicted["label"].to_list(), predicted["score"].to_numpy(),
    )  # fmt: skip


def _corners(frame: pl.DataFrame) -> Floats:
    values = frame.select("x", "y", "width", "height").to_numpy().astype(float).reshape(-1, 4)
    return np.concatenate([values[:, :2], values[:, :2] + values[:, 2:]], axis=1)


def shared_area(a: Floats, b: Floats) -> Floats:
    """Return the area that each box of `a` shares with each of `b`, as corners: (n, m), px^2."""
    low = np.maximum(a[:, None, :2], b[None, :, :2])
    high = np.minimum(a[:, None, 2:], b[None, :, 2:])
    return np.asarray(np.clip(high - low, 0, None).prod(2))


def overlaps(a: Floats, b: Floats) -> Floats:
    """Return the intersection over union of each box of `a` with each of `b`: (n, m)."""
    both = shared_area(a, b)
    areas = [(c[:, 2:] - c[:, :2]).prod(1) for c in (a, b)]
    return np.asarray(both / (areas[0][:, None] + areas[1][None, :] - both))


def similarities(a: Floats, b: Floats) -> Floats:
    """Return the similarity of each box of `a` with each of `b`, 0..1: (n, m)."""
    centres = [(c[:, :2] + c[:, 2:]) / 2 for c in (a, b)]
    distance = np.linalg.norm(centres[0][:, None] - centres[1][None], axis=2)
    return np.asarray(ALPHA * overlaps(a, b) + (1 - ALPHA) * np.exp(-CENTRE * distance))


def judge_picture(picture: _Picture) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Return the doubts about one picture, and its scores by kind with its quality."""
    codes = {label: code for code, label in enumerate((*picture.labels, *picture.predicted_labels))}
    own, others = (
        np.array([codes[label] for label in labels], np.int64)
        for labels in (picture.labels, picture.predicted_labels)
    )
    same = own[:, None] == others[None, :]
    overlap = overlaps(picture.boxes, picture.predicted)
    alike = similarities(picture.boxes, picture.predicted)
    doubts = list(_contradicted(picture, same, overlap, alike))
    explained = {doubt["prediction"] for doubt in doubts}
    doubts += _overlooked(picture, same, overlap, alike, explained)
    scores = {
        kind.replace(" ", "_"): _soft_minimum([d["score"] for d in doubts if d["kind"] == kind])
        for kind in ("overlooked", "badly placed", "swapped")
    }
    scores["quality"] = math.exp(sum(map(math.log, scores.values())) / 3)
    return [{k: v for k, v in d.items() if k != "prediction"} for d in doubts], scores


def _soft_minimum(scores: Sequence[float]) -> float:
    """Return the mean of scores weighted towards the least; 1 without any."""
    if not scores:
        return 1.0
    values = np.maximum(np.array(scores), LEAST)
    weights = np.exp((values.min() - values) / TEMPERATURE)
    return float((values * weights).sum() / weights.sum())


def _agreed(same: NDArray[np.bool_], overlap: Floats) -> tuple[set[int], set[int]]:
    """Return the annotations and the predictions that find each other: one class, one place."""
    boxes, predictions = set[int](), set[int]()
    pairs = np.argwhere(same & (overlap >= FOUND))
    for i, j in sorted(pairs.tolist(), key=lambda p: -overlap[p[0], p[1]]):
        if i not in boxes and j not in predictions:
            boxes.add(i)
            predictions.add(j)
    return boxes, predictions


def _contradicted(
    picture: _Picture, same: NDArray[np.bool_], overlap: Floats, alike: Floats
) -> Iterator[dict[str, Any]]:
    """Yield the boxes that no prediction finds: swapped first, then badly placed."""
    boxes, used = _agreed(same, overlap)
    for kind, candidates in (("swapped", ~same), ("badly placed", same)):
        for i in range(len(picture.labels)):
            free = [j for j in np.flatnonzero(candidates[i]).tolist() if j not in used]
            if i in boxes or not free:
                continue
            j = max(free, key=lambda j: alike[i, j])
            if kind == "swapped" and overlap[i, j] >= FOUND:
                yield _doubt(kind, picture, i, j, max(LEAST, 1 - alike[i, j]), overlap[i, j])
            # a prediction that does not touch the box is of another object
            elif kind == "badly placed" and overlap[i, j] > 0:
                used.add(j)
                yield _doubt(kind, picture, i, j, alike[i, j], overlap[i, j])


def _overlooked(
    picture: _Picture, same: NDArray[np.bool_], overlap: Floats, alike: Floats, explained: set[int]
) -> Iterator[dict[str, Any]]:
    for j in range(len(picture.predicted_labels)):
        near = float(overlap[:, j].max()) if len(picture.labels) else 0.0
        if j in explained or near >= FOUND:
            continue
        own = alike[same[:, j], j]
        score = float(own.max()) if len(own) else LEAST * (1 - float(picture.chances[j]))
        yield _doubt("overlooked", picture, None, j, max(LEAST, score), near)


def _doubt(
    kind: str, picture: _Picture, i: int | None, j: int, score: float, overlap: float
) -> dict[str, Any]:
    x1, y1, x2, y2 = picture.predicted[j].tolist()
    doubt: dict[str, Any] = {
        "kind": kind, "prediction": j, "score": float(score), "iou": float(overlap),
        "probability": float(picture.chances[j]), "predicted_label": picture.predicted_labels[j],
        "predicted_x": x1, "predicted_y": y1, "predicted_width": x2 - x1,
        "predicted_height": y2 - y1,
    }  # fmt: skip
    if i is not None:
        x1, y1, x2, y2 = picture.boxes[i].tolist()
        doubt |= {
            "entry": picture.entries[i], "label": picture.labels[i], "x": x1, "y": y1,
            "width": x2 - x1, "height": y2 - y1,
        }  # fmt: skip
    return doubt


FORMAT = 'a JSON list of {"image_id", "category_id", "bbox": [x, y, width, height], "score"}'
MOST_BYTES = 2 << 30
_SCHEMA = {
    "image": pl.String, "category": pl.String, "x": pl.Float64, "y": pl.Float64,
    "width": pl.Float64, "height": pl.Float64, "score": pl.Float64,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class BoxResults:
    """Predictions of the pictures of one annotation file.

    `frame`: image_key, label, x, y, width, height (px, in the frame of the file), score.
    `unknown`: predictions for images that the file does not list.
    """

    file: str
    frame: pl.DataFrame
    total: int
    unknown: int


def holds_boxes(path: Path) -> bool:
    """Return whether predictions are boxes (JSON), no table of probabilities; raises UsageError."""
    if path.is_dir():
        raise UsageError(
            f"{path} is a folder. Give a detector's boxes ({FORMAT}) or a table of class "
            "probabilities; compare folders of PNG masks with `audit subset score`."
        )
    try:
        with open(path, "rb", opener=regular) as file:
            head = file.read(512)
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror or error}).") from None
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text[:1] in (b"[", b"{"):
        return True
    if text[:4] == b"PAR1" or path.suffix.lower() in (".parquet", ".csv"):
        return False
    raise UsageError(
        f"{path} is neither a detector's boxes ({FORMAT}) nor a table of class probabilities by "
        "path (.parquet, .csv)."
    )


def load_results(store: Store, path: Path) -> BoxResults:
    """Read a file of results and find its images and classes; raises UsageError."""
    frame = read_results(path)
    if frame.is_empty():
        raise UsageError(f"{path} contains no predictions.")
    number = pl.col("score")
    _refuse(path, frame, (number < 0) | (number > 1), "a score outside 0 to 1")
    sides = pl.col("width", "height")
    _refuse(path, frame, pl.any_horizontal(sides <= 0), "a box without width or height")
    file, keys = _find_file(store, path, frame["image"].unique().to_list())
    classes = class_list(store, file)
    names = {label: label for _, label, *_ in classes}
    labels = names | {key: label for key, label, *_ in classes}  # ids come first
    if strange := sorted(set(frame["category"].unique()) - set(labels)):
        known = ", ".join(list(labels)[:8]) + (", ..." if len(labels) > 8 else "")
        raise UsageError(
            f"{path}: category_id {strange[0]} is not a class of {file} (classes: {known})"
            + (f" ({len(strange):,} such ids)" if len(strange) > 1 else "")
            + ": write the ids of the annotation file, not the detector's own numbers."
        )
    mapped = frame.with_columns(
        image_key=pl.col("image").replace_strict(keys, default=None, return_dtype=pl.String),
        label=pl.col("category").replace_strict(labels, return_dtype=pl.String),
    )
    here = mapped.filter(pl.col("image_key").is_not_null()).drop("image", "category")
    return BoxResults(file, here, frame.height, frame.height - here.height)


def read_results(path: Path) -> pl.DataFrame:
    """Return COCO's results: image, category, x, y, width, height, score; raises UsageError."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise UsageError(f"{path} is larger than {MOST_BYTES >> 30} GB: keep the best 100 per "
                             "image, as evaluation does.")  # fmt: skip
        document = json.loads(read_regular(path).decode("utf-8-sig"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror or error}).") from None
    except (ValueError, RecursionError) as error:
        said = "it nests too deep" if isinstance(error, RecursionError) else str(error)[:120]
        raise UsageError(f"{path} is not valid JSON ({said}): write {FORMAT}.") from None
    if not isinstance(document, list):
        raise UsageError(f"{path} contains an object, but COCO's results are {FORMAT}.")
    rows = [_row(path, number, entry) for number, entry in enumerate(document)]
    frame = pl.DataFrame(rows, schema=_SCHEMA, orient="row")
    finite = pl.all_horizontal(pl.col("x", "y", "width", "height", "score").is_finite())
    _refuse(path, frame, ~finite, "NaN or infinite numbers")
    return frame


def _row(path: Path, number: int, entry: Any) -> tuple[Any, ...]:
    if not isinstance(entry, dict):
        raise UsageError(f"{path}: entry {number:,} is not an object: write {FORMAT}.")
    outline = entry.get("segmentation") or None
    cut = None if outline is None else segment(outline)
    if outline is not None and cut is None:
        raise UsageError(
            f"{path}: the segmentation of entry {number:,} is neither rings of numbers nor "
            '{"size": [height, width], "counts"} of that size.'
        )
    if cut is not None and "bbox" not in entry:
        entry = {**entry, "bbox": list(cut[0] or (0, 0, 1, 1))}
    if missing := [k for k in ("image_id", "category_id", "bbox", "score") if k not in entry]:
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


def _refuse(path: Path, frame: pl.DataFrame, wrong: pl.Expr, said: str) -> None:
    bad = frame.with_row_index().filter(wrong)
    if bad.height:
        raise UsageError(
            f"{path}: {bad.height:,} of {frame.height:,} predictions have {said}, first entry "
            f"{bad['index'][0]:,}: leave them out or convert them."
        )


def _find_file(store: Store, path: Path, images: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Return the annotation file that the ids are of, and {id as predicted: key of the file}."""
    best: tuple[int, int, str, dict[str, str]] | None = None
    rival = ""
    files = store.query("SELECT file, objects FROM annotation_files")
    for file, objects in files.iter_rows():
        for keys in _ways(store, file):
            known = {image: keys[image] for image in images if image in keys}
            if not known or (best is not None and (len(known), objects) < best[:2]):
                continue
            tied = best is not None and len(known) == best[0] and best[2] != file
            if best and tied and _listed_samples(store, file) != _listed_samples(store, best[2]):
                rival = file
            best = (len(known), objects, file, known)
    if best is None:
        listed = store.scalar("SELECT image_key FROM annotated_images LIMIT 1")
        if listed is None:
            raise UsageError(f"{path}: the dataset has no annotations to compare with.")
        raise UsageError(
            f"No image_id of {path} is an image of the annotation files: it has {images[0]!r}, "
            f"they have {listed!r}."
        )
    if rival and rival != best[2]:
        raise UsageError(
            f"The image ids of {path} match both {rival} and {best[2]}, which list different "
            "images: scan only the predicted split, or exclude a file with --exclude."
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
    for named in (str, basename, lambda path: splitext(basename(path))[0]):
        ways: dict[str, str] = {}
        for key, name, sample in rows:
            for text in {named(name), named(sample)}:
                ways[text] = "" if text in ways and ways[text] != key else key
        yield {text: key for text, key in ways.items() if key}


def _listed_samples(store: Store, file: str) -> set[str]:
    sql = "SELECT sample_id FROM annotated_images WHERE file = ? AND sample_id IS NOT NULL"
    return set(store.query(sql, [file])["sample_id"])
