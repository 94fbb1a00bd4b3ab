"""The objects of a set and the detections of a model, from a run or from COCO's own files.

The frame of a set has one row a picture, all with one label, and two columns more to stratify by:
`n_objects` and `rarest_class`, the class of the picture that fewest pictures have. A COCO file
gives the plain keys of its `images` too (`--group video_id`). Detections are COCO's results;
pictures may go by id, path, name or name without ending, classes by id or name. Crowds, areas and
the order of pictures are COCO's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from audit.annotations.box_doubts import read_results
from audit.annotations.coco import read_coco_alone
from audit.errors import UsageError
from audit.picture.features import FEATURE_ROW
from audit.results.evaluation import read_annotated_objects
from audit.results.results import open_results
from audit.run.store import Store
from audit.statistics.intervals import Ints
from audit.subset.matching import Boxes, Matches, match_boxes

PICTURE = "picture"
"""The label of every row: pictures have no class of their own here."""
OWN_COLUMNS = ("rarest_class", "n_objects")
NONE = "(no object)"
RESULTS = "a JSON list of {image_id, category_id, bbox: [x, y, width, height], score}"


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
                f"{len(lost)} images of the subset, such as {lost[0]!r}, have no entry in "
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
                f"{path.name}: {unknown:,} detections are for images that are not in "
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
        absent = pl.when(pl.col("label").is_null()).then(pl.lit("not in an annotation file"))
        return joined.with_columns(excluded_reason=pl.coalesce(given.cast(pl.String), absent))


def _number(names: dict[str, int], ways: Iterator[str], number: int) -> None:
    """Give a picture its names; one that two pictures share names neither."""
    for name in ways:
        names[name] = -1 if names.get(name, number) != number else number


def _ways(file_name: str) -> Iterator[str]:
    path = file_name.replace("\\", "/")
    name = path.rpartition("/")[2]
    yield from dict.fromkeys((path, name, name.rpartition(".")[0] or name))


def _by_id(keys: Sequence[str]) -> list[int]:
    """Return the order of keys as COCO sorts them: by number where all of them are numbers."""
    if all(key.lstrip("-").isdecimal() for key in keys):
        return sorted(range(len(keys)), key=lambda i: int(keys[i]))
    return sorted(range(len(keys)), key=lambda i: keys[i])


_WRITTEN = """
    SELECT a.image_key, coalesce(c.label, a.category_key) AS label, coalesce(a.crowd, false)
        AS crowd, a.v1 AS x, a.v2 AS y, a.v3 AS width, a.v4 AS height, a.area, a.category_key
    FROM annotations a LEFT JOIN (
        SELECT category_key, min_by(label, entry) AS label FROM categories GROUP BY category_key
    ) c USING (category_key) ORDER BY a.entry
"""


def read_coco_set(path: Path) -> tuple[ObjectSet, pl.DataFrame]:
    """Return the objects of a COCO file, and the frame of its pictures."""
    with Store.memory() as store:
        store.create_measurements(FEATURE_ROW)
        plain = read_coco_alone(store, path)
        pictures = store.query("SELECT image_key, coalesce(file_name, image_key) AS file_name "
                               "FROM annotated_images ORDER BY entry")  # fmt: skip
        boxes = store.query(_WRITTEN)
        kinds = dict(store.query("SELECT category_key, label FROM categories").iter_rows())
    if pictures.is_empty() or boxes.is_empty():
        raise UsageError(
            f"{path} is no COCO file: it needs `images`, `annotations` and `categories`. For a "
            "list of examples give CSV or Parquet."
        )
    if pictures["image_key"].is_null().any() or pictures["image_key"].is_duplicated().any():
        raise UsageError(f"{path}: images have no id, or the same: `audit scan` names them.")
    wrong = boxes.with_row_index().filter(
        ~pl.all_horizontal(pl.col("x", "y", "width", "height").is_finite().fill_null(False))
        | pl.col("label").is_null()
        | ~pl.col("image_key").is_in(pictures["image_key"].implode()).fill_null(False)
    )  # fmt: skip
    if wrong.height:
        raise UsageError(
            f"{path}: annotation {wrong['index'][0]:,} has no box of four numbers, no class, or is "
            f"of an image that `images` does not list; {wrong.height:,} such entries: `audit "
            "scan` shows all of them."
        )
    order = _by_id(pictures["image_key"].to_list())
    pictures, plain = pictures[order], plain[order]
    name = "image_key" if pictures["file_name"].is_duplicated().any() else "file_name"
    listed = pictures.with_columns(pl.col(name).alias("sample_id"))
    boxes = boxes.join(listed, on="image_key", maintain_order="left")
    kinds |= {key: key for key in boxes["category_key"].unique().to_list() if key not in kinds}
    keys = list(kinds)
    objects = _object_set(path.name, listed, boxes, {keys[i]: kinds[keys[i]] for i in _by_id(keys)})
    frame = plain.drop("file_name", strict=False).with_columns(
        listed["sample_id"], listed["file_name"].alias("path")
    )
    return objects, frame


def _object_set(
    name: str, listed: pl.DataFrame, boxes: pl.DataFrame, labels: dict[str, str]
) -> ObjectSet:
    """Return a set of the pictures listed; `labels`: names of classes by their keys, in order."""
    ids = listed["sample_id"].to_list()
    names, keys = dict[str, int](), dict[str, int]()
    rows = listed.select("image_key", "file_name", "sample_id").iter_rows()
    for i, (key, *paths) in enumerate(rows):
        ways = dict.fromkeys(way for path in paths if path for way in _ways(path))
        _number(names, iter(ways), i)
        _number(keys, iter((key,)), i)
    classes = tuple(dict.fromkeys([*labels.values(), *boxes["label"].drop_nulls().unique().sort()]))
    number = {label: i for i, label in enumerate(classes)}
    place = {key: i for i, key in enumerate(ids)}
    boxes = boxes.filter(pl.col("label").is_not_null())
    truth = Boxes(
        boxes["sample_id"].replace_strict(place, return_dtype=pl.Int64).to_numpy(),
        boxes["label"].replace_strict(number, return_dtype=pl.Int64).to_numpy(),
        boxes.select("x", "y", "width", "height").to_numpy().astype(float),
        boxes.select(pl.coalesce("area", pl.col("width") * pl.col("height"))).to_series()
        .to_numpy().astype(float),
        np.zeros(len(boxes)), boxes["crowd"].to_numpy(),
    )  # fmt: skip
    categories = number | {key: number[label] for key, label in labels.items()}
    return ObjectSet(name, tuple(ids), classes, truth, names | keys, categories)


def read_run_objects(run: Path, sample_ids: Sequence[str]) -> ObjectSet:
    """Return the objects of some samples of a run, from the annotation files that list them."""
    listed, boxes, kinds = read_annotated_objects(open_results(run), sample_ids)
    if boxes.is_empty():
        raise UsageError(
            f"{run} has no boxes of these images: metrics of objects need annotations "
            "(docs/annotations.md), and --split the split that has them."
        )
    keys = listed["image_key"].to_list()
    listed = listed[_by_id(keys if len(set(keys)) == len(keys) else listed["sample_id"].to_list())]
    labels = dict(kinds.select("category_key", "label").drop_nulls().iter_rows())
    boxes = boxes.join(listed, on=["file", "sample_id"], how="semi", maintain_order="left")
    return _object_set(str(run), listed, boxes, labels)


def read_detections(path: Path, objects: ObjectSet) -> tuple[Boxes, int]:
    """Return the detections in a file of COCO's results, and how many are for other pictures."""
    if path.suffix.lower() not in (".json", ".jsn"):
        raise UsageError(f"{path}: detections are COCO's results, {RESULTS}.")
    frame = read_results(path)
    place = {
        key: next((objects.names[way] for way in (key, *_ways(key)) if way in objects.names), -1)
        for key in frame["image"].unique(maintain_order=True)
    }
    if place and max(place.values()) < 0:
        raise UsageError(
            f"{path}: no image_id, such as {frame['image'][0]!r}, is an image of {objects.name}, "
            f"which has {next(iter(objects.names), '')!r}."
        )
    if strange := sorted(set(frame["category"].unique()) - set(objects.categories)):
        raise UsageError(
            f"{path}: category_id {strange[0]} is no class of {objects.name} "
            f"({', '.join(objects.classes[:8])}): write its ids or names."
        )
    here = frame.with_columns(
        pl.Series("image", [place[key] for key in frame["image"]], pl.Int64),
        pl.Series("category", [objects.categories[key] for key in frame["category"]], pl.Int64),
    ).filter(pl.col("image") >= 0)  # fmt: skip
    box = here.select("x", "y", "width", "height").to_numpy()
    found = Boxes(
        here["image"].to_numpy(), here["category"].to_numpy(), box, box[:, 2] * box[:, 3],
        here["score"].to_numpy(), np.zeros(len(box), bool),
    )  # fmt: skip
    return found, frame.height - here.height
