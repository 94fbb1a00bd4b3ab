"""The objects of a set and the detections of a model, from a run or from COCO's own files.

A set is named as everywhere: a run, whose boxes come from any format that `audit scan` reads, or a
COCO file. Its frame has one row a picture: the label is that of every picture (objects have the
classes), and there are two columns more to stratify by, `n_objects` and `rarest_class`, the class
of the picture that fewest pictures have. A COCO file gives the plain keys of its `images` too, so
that `--group video_id` works. Detections are COCO's results, a JSON list of image_id, category_id,
bbox (x, y, width, height in px) and score; pictures may go by id, path, name or name without
ending, classes by id or name. Crowds, areas and the order of pictures are COCO's. A file is parsed
whole: 3 s and 1 GB for 500,000 detections.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from audit.errors import UsageError
from audit.run.generations import open_run
from audit.statistics.intervals import Floats, Ints
from audit.subset.matching import Boxes, Matches, match_boxes

PICTURE = "picture"
"""The label of every row: pictures have no class of their own here."""
OWN_COLUMNS = ("rarest_class", "n_objects")
NONE = "(no object)"
NOT_ANNOTATED = "not in an annotation file"
RESULTS = "a JSON list of {image_id, category_id, bbox: [x, y, width, height], score}"
_BOXES = """
    SELECT b.file, b.sample_id, coalesce(b.label, b.category_key) AS label,
        coalesce(b.crowd, false) AS crowd,
        CASE WHEN t THEN stored_x ELSE x END AS x, CASE WHEN t THEN stored_y ELSE y END AS y,
        CASE WHEN t THEN stored_width ELSE b.width END AS width,
        CASE WHEN t THEN stored_height ELSE b.height END AS height, b.area
    FROM (SELECT b.*, f.frame = 'stored' AS t FROM boxes b JOIN annotation_files f USING (file)) b
    WHERE b.file IN (SELECT unnest(?::VARCHAR[])) AND b.sample_id IS NOT NULL
        AND b.width > 0 AND b.height > 0
    ORDER BY b.file, b.entry
"""


@dataclass(frozen=True)
class Places:
    """Pictures of a set called `name`, numbered by their places in `ids`; classes likewise."""

    name: str
    ids: tuple[str, ...]
    classes: tuple[str, ...]

    def places(self, sample_ids: Sequence[str]) -> Ints:
        """Return the numbers of pictures; raises UsageError for one that is not in the set."""
        place = {key: i for i, key in enumerate(self.ids)}
        lost = [key for key in sample_ids if key not in place]
        if lost:
            raise UsageError(
                f"{len(lost)} pictures of the subset, such as {lost[0]!r}, have no entry in "
                f"{self.name}: give the run or COCO file that it was drawn from with --from."
            )
        return np.array([place[key] for key in sample_ids], np.int64)


@dataclass(frozen=True)
class ObjectSet(Places):
    """Pictures with their objects; `names` and `categories` hold what predictions may call them."""

    truth: Boxes
    names: dict[str, int]
    categories: dict[str, int]

    def match(self, path: Path, notes: list[str]) -> Matches:
        """Read a file of detections and assign them to the objects; `notes` gets what was left."""
        found, unknown = read_detections(path, self)
        if unknown:
            notes.append(
                f"{path.name}: {unknown:,} detections are for pictures that are not in "
                f"{self.name} and were ignored."
            )
        return match_boxes(self.truth, found, len(self.ids), self.classes)

    def frame(self, frame: pl.DataFrame, *, by_class: bool = False) -> pl.DataFrame:
        """Return a frame of pictures for metrics of objects; those without an entry are left out.

        `by_class`: the label is the rarest class, for strata of it.
        """
        count = len(self.ids)
        pair = np.unique(self.truth.picture * len(self.classes) + self.truth.kind)
        picture, kind = np.divmod(pair, max(len(self.classes), 1))
        often = np.bincount(kind, minlength=len(self.classes))
        order = np.lexsort((kind, often[kind], picture))
        first = np.unique(picture[order], return_index=True)[1]
        rarest: list[str | None] = [None] * count
        for p, k in zip(picture[order][first].tolist(), kind[order][first].tolist(), strict=True):
            rarest[p] = self.classes[k]
        objects = pl.DataFrame({
            "sample_id": self.ids, "rarest_class": pl.Series(rarest, dtype=pl.String),
            "n_objects": np.bincount(self.truth.picture, minlength=count), "label": PICTURE,
        })  # fmt: skip
        frame = frame.drop("label", "rarest_class", "n_objects", strict=False)
        joined = frame.join(objects, on="sample_id", how="left", maintain_order="left")
        if by_class:
            label = pl.when(pl.col("label").is_not_null()).then(
                pl.col("rarest_class").fill_null(NONE)
            )
            joined = joined.with_columns(label=label)
        given = pl.col("excluded_reason") if "excluded_reason" in frame.columns else pl.lit(None)
        absent = pl.when(pl.col("label").is_null()).then(pl.lit(NOT_ANNOTATED))
        return joined.with_columns(excluded_reason=pl.coalesce(given.cast(pl.String), absent))


def _number(names: dict[str, int], ways: Iterator[str], number: int) -> None:
    """Give a picture its names; one that two pictures share names neither."""
    for name in ways:
        names[name] = -1 if names.get(name, number) != number else number


def _ways(file_name: str) -> Iterator[str]:
    path = file_name.replace("\\", "/")
    name = path.rpartition("/")[2]
    yield from dict.fromkeys((path, name, name.rpartition(".")[0] or name))


def _text(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _by_id(keys: Sequence[str]) -> list[int]:
    """Return the order of keys as COCO sorts them: by number where all of them are numbers."""
    if all(key.lstrip("-").isdecimal() for key in keys):
        return sorted(range(len(keys)), key=lambda i: int(keys[i]))
    return sorted(range(len(keys)), key=lambda i: keys[i])


# ---- from a COCO file ----


def read_coco_set(path: Path) -> tuple[ObjectSet, pl.DataFrame]:
    """Return the objects of a COCO file, and the frame of its pictures."""
    document = _parse(path)
    if not isinstance(document, dict) or not {"images", "annotations"} <= document.keys():
        raise UsageError(
            f"{path} is no COCO file: it needs `images`, `annotations` and `categories`. For a "
            "list of examples give CSV or Parquet."
        )
    images, annotations = (_entries(path, document, k) for k in ("images", "annotations"))
    keys = [_text(_get(path, "images", i, e, "id")) for i, e in enumerate(images)]
    if len(set(keys)) < len(keys):
        raise UsageError(f"{path}: two pictures have the same id: `audit scan` names them.")
    order = _by_id(keys)
    images, keys = [images[i] for i in order], [keys[i] for i in order]
    files = [str(e.get("file_name") or key) for e, key in zip(images, keys, strict=True)]
    ids = files if len(set(files)) == len(files) else keys
    names: dict[str, int] = {}
    for i, file in enumerate(files):
        _number(names, _ways(file), i)
    names |= {key: i for i, key in enumerate(keys)}
    kinds = _entries(path, document, "categories") if "categories" in document else []
    labelled = {_text(_get(path, "categories", i, e, "id")): e for i, e in enumerate(kinds)}
    labels = {key: str(e.get("name") or key) for key, e in labelled.items()}
    used = [_text(_get(path, "annotations", i, e, "category_id"))
            for i, e in enumerate(annotations)]  # fmt: skip
    labels |= {key: key for key in dict.fromkeys(used) if key not in labels}
    by_id = list(labels)
    by_id = [by_id[i] for i in _by_id(by_id)]
    classes = tuple(dict.fromkeys(labels[key] for key in by_id))
    number = {label: i for i, label in enumerate(classes)}
    categories = number | {key: number[labels[key]] for key in by_id}
    place = {key: i for i, key in enumerate(keys)}
    of = [place.get(_text(e.get("image_id")), -1) for e in annotations]
    if -1 in of:
        raise UsageError(
            f"{path}: annotation {of.index(-1):,} is of a picture that `images` does not list: "
            "`audit scan` shows all of them."
        )
    box = _numbers(path, "annotations", [e.get("bbox") for e in annotations], 4)
    own = box[:, 2] * box[:, 3]
    area = [e.get("area") for e in annotations]
    truth = Boxes(
        np.array(of, np.int64), np.array([categories[k] for k in used], np.int64), box,
        np.array([o if a is None else float(a) for a, o in zip(area, own, strict=True)]),
        np.zeros(len(of)), np.array([bool(e.get("iscrowd")) for e in annotations], bool),
    )  # fmt: skip
    objects = ObjectSet(path.name, tuple(ids), classes, truth, names, categories)
    plain = [
        key for key in dict.fromkeys(k for e in images for k in e)
        if key not in ("id", "file_name") and all(_is_plain(e.get(key)) for e in images)
    ]  # fmt: skip
    columns = {key: pl.Series([e.get(key) for e in images], strict=False) for key in plain}
    frame = pl.DataFrame(columns | {"sample_id": ids, "path": files})
    return objects, frame


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float)


def _parse(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror or error}).") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is no JSON ({str(error)[:120]}).") from None


def _entries(path: Path, document: dict[str, Any], key: str) -> list[dict[str, Any]]:
    entries = document[key]
    if not isinstance(entries, list) or not all(isinstance(e, dict) for e in entries):
        raise UsageError(f"{path}: `{key}` is no list of objects.")
    return entries


def _get(path: Path, where: str, i: int, entry: dict[str, Any], key: str) -> Any:
    if entry.get(key) is None:
        raise UsageError(f"{path}: {where}[{i:,}] has no `{key}`.")
    return entry[key]


def _numbers(path: Path, where: str, rows: Sequence[Any], width: int) -> Floats:
    """Return lists of numbers as an array; raises UsageError for the first that is none."""
    try:
        values = np.array(rows, float).reshape(len(rows), width)
    except (TypeError, ValueError):
        values = np.full((len(rows), width), np.nan)
        for i, row in enumerate(rows):
            if isinstance(row, list) and len(row) == width:
                values[i] = [v if isinstance(v, int | float) else np.nan for v in row]
    bad = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if bad.size:
        raise UsageError(
            f"{path}: the box of {where}[{bad[0]:,}] is {str(rows[bad[0]])[:60]}, not four numbers "
            f"(x, y, width, height); {bad.size:,} such entries."
        )
    return values


# ---- from a run ----


def read_run_objects(run: Path, sample_ids: Sequence[str]) -> ObjectSet:
    """Return the objects of some samples of a run, from the annotation files that list them."""
    with open_run(run) as store:
        listed = store.query(
            "SELECT file, image_key, min(entry) AS entry, min_by(file_name, entry) AS file_name, "
            "min_by(sample_id, entry) AS sample_id FROM annotated_images "
            "WHERE sample_id IS NOT NULL GROUP BY file, image_key ORDER BY file, entry"
        )
        # The file with most pictures of the set; another one for those that it does not list.
        listed = listed.filter(pl.col("sample_id").is_in(list(sample_ids)))
        size = pl.len().over("file")
        listed = listed.with_columns(size=size).sort("size", "file", "entry", descending=[
            True, False, False]).unique("sample_id", keep="first", maintain_order=True)  # fmt: skip
        files = listed["file"].unique().to_list()
        boxes = store.query(_BOXES, [files]) if files else None
        kinds = store.query(
            "SELECT category_key, min_by(label, entry) AS label, min(entry) AS entry "
            "FROM categories WHERE file IN (SELECT unnest(?::VARCHAR[])) "
            "GROUP BY file, category_key ORDER BY file, entry",
            [files],
        )
    if boxes is None or boxes.is_empty():
        raise UsageError(
            f"{run} has no boxes of these pictures: metrics of objects need annotations "
            "(docs/annotations.md), and --split the split that has them."
        )
    keys = listed["image_key"].to_list()
    listed = listed[_by_id(keys if len(set(keys)) == len(keys) else listed["sample_id"].to_list())]
    ids = listed["sample_id"].to_list()
    names: dict[str, int] = {}
    for i, (file, sample) in enumerate(listed.select("file_name", "sample_id").iter_rows()):
        _number(names, (n for text in (file, sample) if text for n in _ways(text)), i)
    for i, key in enumerate(listed["image_key"]):
        _number(names, iter((key,)), i)
    labels = dict(kinds.select("category_key", "label").drop_nulls().iter_rows())
    classes = tuple(dict.fromkeys([*labels.values(), *boxes["label"].drop_nulls().unique().sort()]))
    number = {label: i for i, label in enumerate(classes)}
    place = {key: i for i, key in enumerate(ids)}
    boxes = boxes.join(listed, on=["file", "sample_id"], how="semi", maintain_order="left")
    boxes = boxes.filter(pl.col("label").is_not_null())
    box = boxes.select("x", "y", "width", "height").to_numpy().astype(float)
    own = pl.col("width") * pl.col("height")
    truth = Boxes(
        boxes["sample_id"].replace_strict(place, return_dtype=pl.Int64).to_numpy(),
        boxes["label"].replace_strict(number, return_dtype=pl.Int64).to_numpy(), box,
        boxes.select(pl.coalesce("area", own)).to_series().to_numpy().astype(float),
        np.zeros(len(boxes)), boxes["crowd"].to_numpy(),
    )  # fmt: skip
    categories = number | {key: number[label] for key, label in labels.items()}
    return ObjectSet(str(run), tuple(ids), classes, truth, names, categories)


# ---- detections ----


def read_detections(path: Path, objects: ObjectSet) -> tuple[Boxes, int]:
    """Return the detections in a file of COCO's results, and how many are for other pictures."""
    if path.suffix.lower() not in (".json", ".jsn"):
        raise UsageError(f"{path}: detections are COCO's results, {RESULTS}.")
    document = _parse(path)
    if not isinstance(document, list) or not all(isinstance(e, dict) for e in document):
        raise UsageError(f"{path} is no list: COCO's results are {RESULTS}.")
    for i, entry in enumerate(document):
        if missing := {"image_id", "category_id", "bbox", "score"} - entry.keys():
            raise UsageError(f"{path}: entry {i:,} has no `{min(missing)}`: write {RESULTS}.")
    box = _numbers(path, "entry ", [e["bbox"] for e in document], 4)
    score = _numbers(path, "the scores, entry ", [[e["score"]] for e in document], 1)[:, 0]
    pictures, kinds = ([e[key] for e in document] for key in ("image_id", "category_id"))
    place = {key: _place(objects.names, key) for key in set(pictures)}
    kind = {key: objects.categories.get(_text(key), -1) for key in set(kinds)}
    picture = np.array([place[key] for key in pictures], np.int64)
    if picture.size and (picture < 0).all():
        raise UsageError(
            f"{path}: no image_id, such as {pictures[0]!r}, is a picture of {objects.name}, which "
            f"has {next(iter(objects.names), '')!r}."
        )
    if strange := sorted(_text(key) for key, number in kind.items() if number < 0):
        raise UsageError(
            f"{path}: category_id {strange[0]} is no class of {objects.name} "
            f"({', '.join(objects.classes[:8])}): write its ids or names."
        )
    here = picture >= 0
    box, own = box[here], box[here, 2] * box[here, 3]
    found = Boxes(
        picture[here], np.array([kind[key] for key in kinds], np.int64)[here], box, own,
        score[here], np.zeros(int(here.sum()), bool),
    )  # fmt: skip
    return found, int((~here).sum())


def _place(names: dict[str, int], key: Any) -> int:
    text = _text(key)
    if text in names:
        return names[text]
    return next((names[way] for way in _ways(text) if way in names), -1)
