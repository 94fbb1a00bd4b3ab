"""Do boxes look like their class, or like background? From crops; into the table `box_looks`.

Two questions, each answered by the judge of labels (`audit.embeddings.judged`), with boxes in place
of pictures and pictures in place of groups, so that no box is judged by one of its own picture.
First the boxes alone: is it another class? Then, without those that are, beside places of the same
pictures that no box touches, which are one class more: is it background? Asked together, wrong
classes would be taken for a sign that boxes on background are common, and boxes around bicycles,
through which the background shows, would be accused.

Background may hold objects that nobody annotated. Then it looks more like a class and fewer boxes
look like background alone.

Costs .4 ms a crop, half of it for its code, which is kept for the next scan.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from threadpoolctl import threadpool_limits

from audit.checking.class_names import fold_name
from audit.embeddings.judged import SURE_GAIN, JudgedLabels, judge_vectors
from audit.embeddings.label_tables import LEAST_CLASS, draw_judged
from audit.embeddings.nearest import nearest_rows
from audit.embeddings.patches import VIEWS, Codes, load_coder
from audit.embeddings.ridge import decompose
from audit.embeddings.vectors import UNUSABLE, codes_of_view
from audit.picture.crops import BOX, CORNERS_SQL, GROUND, LEAST_BOXES
from audit.run.annotation_tables import CROP_NAME
from audit.run.store import Store

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Chances = npt.NDArray[np.float64]
LEAST_UNITS = 5
"""Pictures that show a class, below which its boxes are not judged and suggest nothing."""
LEAST_GROUND = 30
"""Places without a box from which background can be told."""
SUSPECT = 0.65
"""Chance of another class from which a box is not asked whether it is background."""
STORED_CHANCE = 0.05
CLASS, BACKGROUND = "class", "background"

_BOXES = f"""
    SELECT {CROP_NAME} AS name, i.pixel_hash, b.label, b.sample_id, b.file, b.image_key, b.entry
    FROM (SELECT *, {CORNERS_SQL} FROM boxes
        WHERE NOT crowd AND label IS NOT NULL AND width > 0 AND height > 0 AND picture_width > 0
            AND isfinite(x) AND isfinite(y) AND isfinite(width) AND isfinite(height)) b
    JOIN images i ON i.id = b.sample_id JOIN boxed d ON d.id = b.sample_id
    JOIN crops c ON c.content_hash = i.content_hash AND c.digest = d.digest AND c.kind = '{BOX}'
        AND c.x0 = b.x0 AND c.y0 = b.y0 AND c.x1 = b.x1 AND c.y1 = b.y1
    ORDER BY name, b.sample_id, b.file, b.entry
"""
# one box that several files give counts once, as its crop does
_ALL = (
    "SELECT count(DISTINCT (sample_id, label, round(x), round(y), round(width), round(height))) "
    "FROM boxes WHERE sample_id IS NOT NULL"
)
_GROUND = f"""
    SELECT {CROP_NAME} AS name, min(i.pixel_hash) AS pixel_hash FROM crops c
    JOIN boxed d ON d.digest = c.digest
    JOIN images i ON i.id = d.id AND i.content_hash = c.content_hash
    WHERE c.kind = '{GROUND}' GROUP BY name ORDER BY name
"""


def relate_box_looks(store: Store, run: Path, together: pl.DataFrame) -> None:
    """Judge the boxes that were cut; `together` (pixel_hash, together) says which pictures are one.

    Needs the table `boxed` of the scan.
    """
    boxes, ground = store.query(_BOXES), store.query(_GROUND)
    crops = boxes.group_by("name", maintain_order=True).agg(
        pl.col("pixel_hash").min(), pl.col("label").unique(maintain_order=True)
    )
    one = pl.col("label").list.len() == 1
    crops = pl.concat(
        [crops.filter(one).with_columns(pl.col("label").list.first()), ground],
        how="diagonal",
    ).join(together, on="pixel_hash", how="left", maintain_order="left")
    with threadpool_limits(1, "blas"):
        coder = load_coder()
        codes = codes_of_view(run, crops["name"], coder, VIEWS[0])
        usable = codes[:, 0] > UNUSABLE
        crops, codes = crops.filter(pl.Series(usable)), codes[usable]
        looks, facts = _judge(crops, codes)
    places = boxes.select("name", "sample_id", "file", "image_key", "entry")
    rows = looks.join(places, on="name", maintain_order="left_right").drop("name")
    total = store.scalar(_ALL)
    with store.transaction():
        store.append("box_looks", rows)
        store.append("box_look_facts", [{**row, "boxes": int(total)} for row in facts])


def _judge(crops: pl.DataFrame, codes: Codes) -> tuple[pl.DataFrame, list[dict[str, Any]]]:
    """Return the doubtful boxes (name, kind, ...) and the facts of both questions."""
    labels, names = _classes(crops)
    ground = crops["label"].is_null().to_numpy()
    kept = (labels >= 0) | ground
    crops, codes = crops.filter(pl.Series(kept)), codes[kept]
    labels, ground = labels[kept], ground[kept]
    owner = crops["together"].cast(pl.String).fill_null("alone " + crops["pixel_hash"])
    groups = np.unique(owner.to_numpy().astype(str), return_inverse=True)[1].astype(np.int64)
    found = judge_looks(main_axes(codes), labels, groups, len(names))
    spelled = np.asarray([*names, None], object)
    parts, facts = [], []
    for question in found:
        rows = np.flatnonzero(question.chance >= STORED_CHANCE)
        doubted = np.bincount(labels[~ground], question.chance[~ground] > 0.5, len(names))
        sizes = np.maximum(np.bincount(labels[~ground], minlength=len(names)), 1)
        parts.append(pl.DataFrame({
            "name": crops["name"].gather(rows),
            "kind": pl.Series([question.kind] * len(rows), dtype=pl.String),
            "chance": question.chance[rows], "probability": question.probability[rows],
            "suggested_label": pl.Series(
                spelled[question.suggested[rows]].tolist(), dtype=pl.String),
            "suggested_probability": question.suggested_probability[rows],
            "class_doubt": (doubted / sizes)[labels[rows]],
        }))  # fmt: skip
        facts.append({
            "kind": question.kind, "judged": int((~ground).sum()), "classes": len(names),
            "background": int(ground.sum()), "gain": question.gain,
            "accuracy": question.accuracy, "agreed": question.agreed, "reason": question.reason,
        })  # fmt: skip
    return pl.concat(parts), facts


def _classes(crops: pl.DataFrame) -> tuple[Ints, list[str]]:
    """Return the number of the class of each crop, -1 for none that is judged, and the names."""
    key = pl.Series([None if name is None else fold_name(name) for name in crops["label"]],
                    dtype=pl.String)  # fmt: skip
    held = crops.select(pl.lit(key).alias("key"), "label", "pixel_hash").drop_nulls("key")
    counted = held.group_by("key").agg(
        pl.len().alias("n"), pl.col("pixel_hash").n_unique().alias("units"),
        pl.col("label").mode().sort().first(),
    ).filter((pl.col("n") >= LEAST_CLASS) & (pl.col("units") >= LEAST_UNITS))  # fmt: skip
    counted = counted.sort("key")
    numbers = {name: at for at, name in enumerate(counted["key"])}
    labels = np.array([numbers.get(name, -1) if name else -1 for name in key], np.int64)
    return draw_judged(labels, len(numbers), LEAST_CLASS)[0], counted["label"].to_list()


@dataclass(frozen=True, slots=True)
class Question:
    """What is said of n crops: `chance` of being of another `kind`, 0 for those that were not asked
    or fit best as they are; `suggested`, the number of a class, -1 for background. `gain` and the
    rest are those of `JudgedLabels`; `reason`, why nothing was asked, else empty.
    """

    kind: str
    chance: Chances
    probability: Chances
    suggested: Ints
    suggested_probability: Chances
    gain: float = 0.0
    accuracy: float = 0.0
    agreed: float = 0.0
    reason: str = ""


def main_axes(codes: Codes) -> Floats:
    """Return (n, 128): codes on the main axes of drawn pictures.

    To judge all of a code takes three times as long, and a tenth more is found.
    """
    return np.asarray(codes.astype(np.float32) @ load_coder().turn, np.float32)


def judge_looks(vectors: Floats, labels: Ints, groups: Ints, n_classes: int) -> list[Question]:
    """Return both questions about crops: vectors (n, d), labels (n,), -1 for background."""
    ground = labels < 0
    boxes = int((~ground).sum())
    few = f"{boxes:,} boxes of classes that are often enough, but {LEAST_BOXES} are needed"
    reason = few if boxes < LEAST_BOXES else "" if n_classes > 1 else "there is one class"
    first = _asked(CLASS, vectors, labels, groups, n_classes, ~ground, reason)
    if boxes < LEAST_BOXES or ground.sum() >= LEAST_GROUND:
        reason = few if boxes < LEAST_BOXES else ""
    else:
        reason = f"there are {ground.sum():,} places without a box, but {LEAST_GROUND} are needed"
    asked = ~((first.gain >= SURE_GAIN) & (first.chance >= SUSPECT))
    with_ground = np.where(ground, n_classes, labels)
    second = _asked(BACKGROUND, vectors, with_ground, groups, n_classes + 1, asked, reason)
    background = (second.suggested == n_classes) & ~ground
    chance = np.where(
        background, second.chance * second.suggested_probability
        / np.maximum(1 - second.probability, 1e-9), 0,
    )  # fmt: skip
    none = np.full_like(second.suggested, -1)
    second = replace(second, chance=np.minimum(chance, 1), suggested=none)
    return [first, second]


def _asked(
    kind: str, vectors: Floats, labels: Ints, groups: Ints, n_classes: int,
    asked: npt.NDArray[np.bool_], reason: str,
) -> Question:  # fmt: skip
    """Judge the labels of the crops `asked`, unless there is a reason not to."""
    n = len(labels)
    empty = np.zeros(n), np.zeros(n), np.full(n, -1), np.zeros(n)
    if reason:
        return Question(kind, *empty, reason=reason)
    judged = _judged(vectors[asked], labels[asked], groups[asked], n_classes)
    doubtful = judged.suggested_probability > judged.probability
    values = (np.where(doubtful, judged.surely, 0), judged.probability, judged.suggested,
              judged.suggested_probability)  # fmt: skip
    for target, value in zip(empty, values, strict=True):
        target[asked] = value
    return Question(kind, *empty, judged.gain, judged.accuracy, judged.agreed)


def _judged(vectors: Floats, labels: Ints, groups: Ints, n_classes: int) -> JudgedLabels:
    vectors = vectors - vectors.mean(0, dtype=np.float64).astype(np.float32)
    axes = decompose(vectors)
    near = nearest_rows(axes, groups)
    return judge_vectors(vectors[None], near, labels, groups, n_classes, axes)
