"""Annotated masks against a model's: planted errors found by kind, agreement silent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from audit.annotations import load_results
from audit.annotations.mask_overlaps import VOID, compare_maps, fill_rings, fill_runs
from audit.annotations.mask_png import column_runs
from audit.checking.check import make_params
from audit.checks.box_mask import ContradictedMask
from audit.embeddings.mask_errors import judge_things, relate_masks
from audit.errors import UsageError
from audit.interface import scan_dataset
from audit.records import Finding
from audit.run.generations import open_run
from tests.audit.annotations.datasets import annotated, coco_tree

WIDTH, HEIGHT, N = 64, 48, 150
CLASSES = ("cat", "dog", "owl")


def blob(x: float, y: float, w: float, h: float) -> np.ndarray:
    """An ellipse in a picture of 64 x 48 px."""
    rows, columns = np.mgrid[0:HEIGHT, 0:WIDTH] + 0.5
    return ((columns - x) / w * 2) ** 2 + ((rows - y) / h * 2) ** 2 < 1


def rle(mask: np.ndarray) -> dict[str, Any]:
    return {"size": [HEIGHT, WIDTH], "counts": column_runs(mask).tolist()}


def world(seed: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A document of two objects in each of 150 pictures, and what a good model says of them.

    It errs in the class of some, in others it sees nothing, and it is unsure of both.
    """
    rng = np.random.default_rng(seed)
    annotations, results = [], list[dict[str, Any]]()
    for i in range(N):
        for side in (0, 1):
            kind, (w, h) = int(rng.integers(1, 4)), rng.uniform(13, 24, 2)
            x, y = 16 + 32 * side + rng.uniform(-2, 2), 24 + rng.uniform(-8, 8)
            entry = {"image_id": i + 1, "category_id": kind}
            annotations.append({"id": len(annotations) + 1, "iscrowd": 0, **entry,
                                "segmentation": rle(blob(x, y, w, h))})  # fmt: skip
            hard = rng.random() < 0.15
            score = float(rng.uniform(0.5, 0.8) if hard else rng.beta(400, 1))
            if rng.random() > score:
                entry["category_id"] = kind % 3 + 1
            near = blob(x + rng.normal(0, 0.4), y + rng.normal(0, 0.4), *rng.normal((w, h), 0.8))
            results.append({**entry, "segmentation": rle(near), "score": score})
    names = [{"id": k + 1, "name": name} for k, name in enumerate(CLASSES)]
    pictures = [{"id": i + 1, "file_name": f"{i}.jpg", "width": WIDTH, "height": HEIGHT}
                for i in range(N)]  # fmt: skip
    return {"images": pictures, "annotations": annotations, "categories": names}, results


def damaged(document: dict[str, Any], results: list[dict[str, Any]]) -> dict[int, str]:
    """Damage 24 annotations whose predictions are right and sure; returns their kinds by entry."""
    sure = [k for k, (one, said) in enumerate(zip(document["annotations"], results, strict=True))
            if said["score"] > 0.9 and one["category_id"] == said["category_id"]]  # fmt: skip
    planted = {k: ("class", "outline", "class", "not there", "class", "missing")[j % 6]
               for j, k in enumerate(sure[:: len(sure) // 24][:24])}  # fmt: skip
    for k, kind in planted.items():
        one = document["annotations"][k]
        runs = one["segmentation"]["counts"]
        mask = fill_runs(np.array(runs), WIDTH, HEIGHT)
        if kind == "class":
            one["category_id"] = one["category_id"] % 3 + 1
        elif kind == "missing":
            document["annotations"][k] = None
        elif kind == "not there":
            one["segmentation"] = rle(blob(32, 6, 10, 9) if mask[30:].any() else blob(32, 42, 9, 9))
        else:
            one["segmentation"] = rle(np.roll(mask, 6, 1))
    return planted


def found(root: Path, results: Path) -> list[Finding]:
    check = ContradictedMask()
    with annotated(root) as store:
        relate_masks(store, load_results(store, results).masks)
        said = check.completeness(store, make_params(check, {}))
        assert said.endswith("compared with predicted ones.")
        return list(check.find(store, make_params(check, {})))


def written(folder: Path, document: dict[str, Any], results: list[dict[str, Any]]) -> Path:
    kept = [one for one in document["annotations"] if one is not None]
    coco_tree(folder / "data", {**document, "annotations": kept}, N)
    path = folder / "results.json"
    path.write_text(json.dumps(results))
    return path


@pytest.mark.parametrize("seed", range(3))
def test_a_model_that_is_unsure_where_it_errs_says_nothing_of_a_clean_set(tmp_path, seed):
    document, results = world(seed)
    assert sum(one["category_id"] != said["category_id"] for one, said in
               zip(document["annotations"], results, strict=True)) >= 3  # fmt: skip
    assert found(tmp_path / "data", written(tmp_path, document, results)) == []


def test_planted_errors_are_found_by_kind(tmp_path):
    document, results = world(7)
    planted = damaged(document, results)
    findings = found(tmp_path / "data", written(tmp_path, document, results))
    wrong = {f"images/{k // 2}.jpg": kind for k, kind in planted.items()}
    hit = [f for f in findings if f.sample_ids[0] in wrong]
    assert len(hit) >= 0.6 * len(wrong)
    assert len(findings) - len(hit) <= 1
    words = {"class": "is predicted to be", "missing": "no mask is there",
             "outline": "px apart on average"}  # fmt: skip
    told = {kind: [f.message for f in hit if wrong[f.sample_ids[0]] == kind] for kind in words}
    assert all(words[kind] in message for kind in ("class", "missing") for message in told[kind])
    assert told["class"]
    assert told["outline"]
    assert [f.evidence["rank"] for f in findings] == list(range(1, len(findings) + 1))


def test_masks_of_a_folder(tmp_path):
    """Pixels are all equally sure: outlines are found, and 255 is compared with nothing."""
    document, results = world(3)
    planted = {k for k, kind in damaged(document, results).items() if kind == "outline"}
    clean, _ = world(3)
    for k in set(range(2 * N)) - planted:
        document["annotations"][k] = clean["annotations"][k]
    written(tmp_path, document, results)
    folder = tmp_path / "masks" / "val"
    folder.mkdir(parents=True)
    for i in range(N):
        pixels = np.zeros((HEIGHT, WIDTH), np.uint8)
        for one in clean["annotations"][2 * i : 2 * i + 2]:
            mask = fill_runs(np.array(one["segmentation"]["counts"]), WIDTH, HEIGHT)
            pixels[np.roll(mask, 1, 0)] = one["category_id"]
        pixels[:2] = 255
        Image.fromarray(pixels).save(folder / f"{i}.png")
    findings = found(tmp_path / "data", folder.parent)
    assert {f.sample_ids[0] for f in findings} == {f"images/{k // 2}.jpg" for k in planted}
    Image.fromarray(pixels[:9]).save(folder / "0.png")
    check = ContradictedMask()
    with annotated(tmp_path / "data") as store:
        relate_masks(store, load_results(store, folder.parent).masks)
        assert "1 pictures whose predicted mask has another size" in check.completeness(
            store, make_params(check, {})
        )


@pytest.mark.slow
def test_a_scan_takes_them(tmp_path):
    document, results = world(7)
    damaged(document, results)
    path = written(tmp_path, document, results)
    run = tmp_path / "run"
    scan_dataset(str(tmp_path / "data"), run, checks=["BOX030"], predictions=path, progress=False)
    with open_run(run) as store:
        held = store.query("SELECT kind, chance FROM mask_doubts WHERE gain >= 4")
        assert set(held["kind"]) >= {"class", "outline"}
        assert held["chance"].max() > 0.9


WRONG = [
    ({"segmentation": {"size": [48, 64], "counts": [5, 5]}}, "the segmentation of entry 0"),
    ({"segmentation": [[1, 2, 3]]}, "the segmentation of entry 0"),
    ({"segmentation": [["a"] * 6]}, "the segmentation of entry 0"),
    ({}, "entry 0 has no `bbox`"),
]


@pytest.mark.parametrize(("change", "sentence"), WRONG)
def test_results_that_are_no_masks(tmp_path, change, sentence):
    document, _ = world(1)
    path = written(tmp_path, document, [{"image_id": 1, "category_id": 1, "score": 0.5, **change}])
    with annotated(tmp_path / "data") as store, pytest.raises(UsageError, match=sentence):
        load_results(store, path)


def test_a_folder_without_masks(tmp_path):
    document, results = world(1)
    written(tmp_path, document, results)
    (tmp_path / "none").mkdir()
    with annotated(tmp_path / "data") as store, pytest.raises(UsageError, match="no PNG mask"):
        load_results(store, tmp_path / "none")


# ---- one picture ----


def test_rings_and_runs_fill_the_same_pixels():
    mask = blob(20, 20, 18, 11)
    assert (fill_runs(column_runs(mask), WIDTH, HEIGHT) == mask).all()
    square = np.array([4, 6, 10, 6, 10, 9, 4, 9], float)
    hole = np.array([60, 40, 90, 40, 90, 70, 60, 70], float)  # partly outside
    filled = fill_rings([square, hole], WIDTH, HEIGHT)
    expected = np.zeros((HEIGHT, WIDTH), bool)
    expected[6:9, 4:10] = True
    expected[40:, 60:] = True
    assert (filled == expected).all()


def test_pixels_missed_spilt_and_not_annotated():
    own, said = np.zeros((2, 20, 30), np.int64)
    own[2:10, 2:12] = 1
    said[2:10, 4:14] = 1  # two columns missed, two spilt
    said[14:19, 20:26] = 2  # nobody annotated this
    own[0, :] = VOID
    sure = np.where(said == 2, 0.8, 1.0)
    things = compare_maps(own, np.array([0]), said, sure, 2)
    assert things.entry.tolist() == [0, -1]
    assert things.area.tolist() == [80, 30]
    assert things.missed.tolist() == [16, 30]
    assert things.spilt.tolist() == [16, 0]
    assert things.outline.tolist() == [32, 18]
    assert things.votes[0] == pytest.approx([0.2, 0.8, 0])
    assert things.votes[1] == pytest.approx([0, 0, 0.8])
    assert things.box[1].tolist() == [20, 14, 6, 5]


def test_too_few_objects_are_not_judged():
    own = np.ones((5, 5), np.int64)
    things = compare_maps(own, np.array([0]), 0 * own, np.ones((5, 5)), 1)
    assert judge_things([things] * 9, 1)["gain"].max() == 0


def test_a_model_that_is_equal_to_the_annotations_says_nothing():
    own = np.zeros((20, 20), np.int64)
    own[4:12, 3:11] = 1
    things = compare_maps(own, np.array([0]), own, np.ones((20, 20)), 2)
    found = judge_things([things] * 80, 2)
    assert found["chance"].max() < 0.01
    assert found["distance"].max() == 0
