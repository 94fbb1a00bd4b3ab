"""What users of detection and of several labels asked other tools for, as datasets made here."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image

from audit.exports.new_splits import SplitRequest
from audit.exports.planning import plan_dataset
from audit.scanning import scanning
from audit.sources import open_source
from tests.audit.annotations.datasets import annotated_run
from tests.audit.run.scanned import rows_of, value_of

pytestmark = pytest.mark.slow
NAMES = ("car", "bus", "tram", "bike", "scooter", "wheelchair")
FREQUENT = (0.8, 0.5, 0.3, 0.2, 0.1, 0.06)


def draw(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(seed).integers(0, 256, (8, 8, 3)).astype(np.uint8)
    Image.fromarray(noise).resize((64, 48), Image.Resampling.BICUBIC).save(path)


def objects(rng: np.random.Generator, names: Sequence[int] = range(6)) -> list[int]:
    """The classes of a picture's objects: some classes often, and several objects of each."""
    there = [k for k in names if rng.random() < FREQUENT[k]] or [0]
    return [k for k in there for _ in range(1 + rng.poisson(1))]


def yolo(root: Path, split: str, held: Iterable[Sequence[int]], *, turned: bool = False) -> Path:
    """A YOLO tree; `turned`: corners of boxes, as for oriented ones."""
    rng = np.random.default_rng(7)
    (root / "data.yaml").parent.mkdir(parents=True, exist_ok=True)
    (root / "data.yaml").write_text(f"train: images/train\nval: images/val\nnames: {list(NAMES)}\n")
    for i, classes in enumerate(held):
        name = f"{split}_{i}" if split else f"{i}"
        draw(root / "images" / split / f"{name}.png", 10_000 * len(split) + i)
        lines = []
        for k in classes:
            x, y = rng.uniform(0.3, 0.7, 2)
            box = (x - 0.1, y - 0.1, x + 0.1, y - 0.1, x + 0.1, y + 0.1, x - 0.1, y + 0.1)
            lines.append(
                f"{k} " + " ".join(f"{v:.4f}" for v in (box if turned else (x, y, 0.2, 0.2)))
            )
        label = root / "labels" / split / f"{name}.txt"
        label.parent.mkdir(parents=True, exist_ok=True)
        label.write_text("\n".join(lines))
    return root


def scanned(source: Path, run: Path) -> Path:
    scanning.scan(open_source([str(source)]), run, jobs=1)
    return run


def found(run: Path, prefix: str = "") -> dict[str, str]:
    """Subject and message of every finding whose subject begins so, by code and subject."""
    rows = rows_of(run, "SELECT code || ' ' || subject AS key, message FROM findings ORDER BY ALL")
    found = {row["key"]: row["message"] for row in rows}
    return {key: said for key, said in found.items() if key.partition(" ")[2].startswith(prefix)}


def sizes_of(run: Path) -> dict[str, int]:
    rows = rows_of(run, "SELECT label, count(*) AS n FROM labels GROUP BY label")
    return {row["label"]: row["n"] for row in rows}


def shares_are_even(run: Path, held: Sequence[Sequence[int]], share: float) -> None:
    """Each class has its share of objects in val, within one picture's objects of the class."""
    counts = {f"{i}": Counter(NAMES[k] for k in classes) for i, classes in enumerate(held)}
    plan = plan_dataset(run, splits=SplitRequest({"train": 1 - share, "val": share}, 0, True))
    total, there, most = Counter[str](), Counter[str](), Counter[str]()
    for file in plan.files:
        own = counts[Path(file.id).stem]
        total += own
        there += own if file.split == "val" else Counter()
        most |= own
    assert total
    for name, n in total.items():
        assert abs(there[name] - share * n) <= most[name], (name, there[name], n)
    assert abs(sum(f.split == "val" for f in plan.files) - share * len(plan.files)) <= 1


def test_oriented_boxes_are_split_evenly_by_class(tmp_path: Path) -> None:
    """ultralytics #18238: oriented boxes into train and val, evenly by classes, not at random."""
    rng = np.random.default_rng(1)
    held = [objects(rng) for _ in range(150)]
    root = yolo(tmp_path / "obb", "", held, turned=True)
    run = annotated_run(root, tmp_path / "run")
    shares_are_even(run, held, 0.2)


def test_a_class_of_objects_that_is_not_in_val_is_told(tmp_path: Path) -> None:
    """ultralytics #6586: what a random split does to the minority classes."""
    rng = np.random.default_rng(2)
    yolo(
        tmp_path / "set",
        "train",
        [[*objects(rng, range(5)), *[5] * (i % 4 == 0)] for i in range(120)],
    )
    yolo(tmp_path / "set", "val", [objects(rng, range(5)) for _ in range(60)])
    run = annotated_run(tmp_path / "set", tmp_path / "run", checks=("DIST",))
    assert "DIST003 object:split:val/class:wheelchair" in found(run, "object:")


def test_imbalance_and_a_rare_class_of_objects_are_told(tmp_path: Path) -> None:
    """darknet #2441: classes with very different numbers of objects."""
    rng = np.random.default_rng(3)
    held = [[0, 0, *objects(rng, range(4)), *[5] * (i < 3)] for i in range(200)]
    root = yolo(tmp_path / "set", "", held)
    run = annotated_run(root, tmp_path / "run", checks=("DIST",))
    assert {"DIST001 object:dataset", "DIST002 object:class:wheelchair"} <= set(
        found(run, "object:")
    )


def test_each_category_gets_its_share(tmp_path: Path) -> None:
    """cocosplit #2: would each category of the JSON file have 80/20?"""
    rng = np.random.default_rng(4)
    held, root = [objects(rng) for _ in range(140)], tmp_path / "set"
    for i in range(len(held)):
        draw(root / "images" / f"{i}.png", i)
    places = [(i, k) for i, classes in enumerate(held) for k in classes]
    document = {
        "images": [
            {"id": i, "file_name": f"{i}.png", "width": 64, "height": 48} for i in range(len(held))
        ],
        "annotations": [
            {"id": n, "image_id": i, "category_id": k, "bbox": [5 + n % 9, 6, 20, 10], "iscrowd": 0}
            for n, (i, k) in enumerate(places, 1)
        ],
        "categories": [{"id": k, "name": name} for k, name in enumerate(NAMES)],
    }
    (root / "annotations.json").write_text(json.dumps(document))
    run = annotated_run(root, tmp_path / "run")
    shares_are_even(run, held, 0.2)


def test_several_labels_in_a_column_are_classes(tmp_path: Path) -> None:
    """cleanlab #812: labels that are several a picture."""
    rows = ["path,label,split"]
    for i in range(60):
        draw(tmp_path / f"{i}.png", 0 if i == 59 else i)  # the last is a copy of the first
        label = (
            "cat;dog" if i in (0, 20, 40) else "dog" if i == 59 else ("cat", "dog", "owl")[i % 3]
        )
        rows.append(f"{i}.png,{label},train")
    (tmp_path / "list.csv").write_text("\n".join(rows) + "\n")
    run = scanned(tmp_path / "list.csv", tmp_path / "run")
    sizes = sizes_of(run)
    assert sizes == {"cat": 22, "dog": 23, "owl": 18}
    conflict = [said for key, said in found(run).items() if key.startswith("LABEL005")]
    assert len(conflict) == 1
    assert "cat" in conflict[0].partition("differ")[2]


def test_lists_of_labels_are_classes_and_none_is_missing(tmp_path: Path) -> None:
    """cleanvision #45: a column of lists."""
    lists = [["cat"], ["cat", "dog"], ["dog", "owl"], ["owl"]] * 15
    for i in range(60):
        draw(tmp_path / f"{i}.png", i)
    pl.DataFrame({"path": [f"{i}.png" for i in range(60)], "labels": lists}).write_parquet(
        tmp_path / "list.parquet"
    )
    run = scanned(tmp_path / "list.parquet", tmp_path / "run")
    assert not [key for key in found(run) if key.startswith(("LABEL", "DIST"))]
    sizes = sizes_of(run)
    single = value_of(run, "SELECT count(*) FROM images WHERE label IS NOT NULL")
    assert (sizes, single) == ({"cat": 30, "dog": 30, "owl": 30}, 30)
