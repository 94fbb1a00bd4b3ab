"""`audit select` and `Run.select` on a small run with planted clusters, copies and labels."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image

import audit
from audit.embeddings.settings import VectorOptions
from audit.errors import UsageError
from tests.audit.run.scanned import scan_tree
from tests.conftest import picture
from tests.warm import warm_audit

SIZES = {"cat": 14, "dog": 8, "owl": 2}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> audit.Run:
    """24 pictures of three classes, a copy of one, 6 without a label; vectors by class."""
    folder = tmp_path_factory.mktemp("choosing")
    names = [f"train/{label}/{n}.png" for label, size in SIZES.items() for n in range(size)]
    names += [f"pool/{n}.png" for n in range(6)]
    for number, name in enumerate([*names, "train/cat/copy.png"]):
        path = folder / "pets" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        seed = 0 if name.endswith("copy.png") else number
        Image.fromarray(picture(seed, 48, 48)).save(path)
    rng = np.random.default_rng(0)
    kinds = [0] * 14 + [1] * 8 + [2] * 2 + [0, 0, 0, 1, 3, 3]
    rows = 6 * np.eye(4)[kinds] + rng.normal(size=(30, 4)) / 4
    vectors = folder / "vectors.parquet"
    pl.DataFrame(
        {"path": [str(folder / "pets" / n) for n in names], "vector": rows.tolist()}
    ).write_parquet(vectors)
    rows_csv = [
        {"path": f"pets/{n}", "split": n.split("/")[0],
         "label": n.split("/")[1] if n.startswith("train") else None}
        for n in [*names, "train/cat/copy.png"]
    ]  # fmt: skip
    pl.DataFrame(rows_csv).write_csv(folder / "pets.csv")
    scan_tree(folder / "pets.csv", folder / "run", vectors=VectorOptions(embeddings=vectors))
    return audit.open(folder / "run")


def test_coverage_of_what_has_no_label_begins_where_no_label_is(found: audit.Run) -> None:
    chosen = found.select(2, unlabelled=True)
    assert chosen.candidates == 6
    assert chosen.known == 24, "the copy and its original are one"
    assert chosen.rows["sample_id"][0].removeprefix("pets/") in ("pool/4.png", "pool/5.png")
    assert chosen.rows["label"].null_count() == 2
    assert chosen.reach is not None
    assert chosen.reach["this choice"].mean[1] < chosen.reach["random choice"].mean[2]
    assert found.select(2, unlabelled=True).rows.equals(chosen.rows)


def test_coverage_takes_each_kind_before_a_second_of_one(found: audit.Run) -> None:
    kinds = {f"pool/{n}.png": kind for n, kind in enumerate(["cat"] * 3 + ["dog"] + ["new"] * 2)}
    rows = [path.split("/")[-2:] for path in found.select(4).rows["path"]]
    assert {kinds.get("/".join(row), row[0]) for row in rows} == {"cat", "dog", "owl", "new"}


def test_rare_classes_first_and_what_it_buys(found: audit.Run) -> None:
    chosen = found.select(6, "rare", split="train")
    assert sorted(chosen.rows["class"].to_list()) == ["cat"] * 2 + ["dog"] * 2 + ["owl"] * 2
    bought = {row["class"]: row for row in chosen.classes.to_dicts()}
    assert bought["owl"]["half_before"] is None
    assert bought["owl"]["half_after"] < bought["owl"]["half_random"]
    assert bought["cat"]["half_after"] > bought["cat"]["half_random"]
    assert chosen.left_out == {"a copy of another candidate": 1}


def test_an_earlier_choice_and_a_drop_are_left_out(found: audit.Run, tmp_path: Path) -> None:
    first = found.select(10, "rare", split="train")
    first.rows.write_csv(tmp_path / "first.csv")
    second = found.select(20, "rare", split="train", fresh_from=tmp_path / "first.csv")
    assert len(second.rows) == 14
    assert not set(second.rows["sample_id"]) & set(first.rows["sample_id"])
    assert len(found.select(50, "rare", listed=tmp_path / "first.csv").rows) == 10
    found.decide(second.rows["sample_id"][0], "drop")
    assert found.select(50, "rare", split="train").left_out["dropped by a decision"] == 1
    found.undo()


def test_doubt_by_predictions_of_either_form(found: audit.Run, tmp_path: Path) -> None:
    ids = found.images.filter(pl.col("split") == "pool")["id"].to_list()
    doubt = [0.5, 0.9, 0.6, 0.99, 0.7, 0.8]
    table = pl.DataFrame({"id": ids, "cat": doubt, "dog": [1 - v for v in doubt]})
    table.write_csv(tmp_path / "p.csv")
    chosen = found.select(2, "uncertainty", unlabelled=True, predictions=tmp_path / "p.csv")
    assert chosen.rows["sample_id"].to_list() == [ids[0], ids[2]]
    table.rename({"cat": "prob_cat", "dog": "prob_dog"}).write_csv(tmp_path / "q.csv")
    same = found.select(2, "uncertainty", unlabelled=True, predictions=tmp_path / "q.csv")
    assert same.rows.equals(chosen.rows)
    assert same.rows["class"].to_list() == ["cat", "cat"]


def test_words_that_cannot_be(found: audit.Run, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--predictions"):
        found.select(3, "uncertainty")
    with pytest.raises(UsageError, match="no candidate has a class"):
        found.select(3, "rare", split="pool")
    with pytest.raises(UsageError, match="no split 'val'"):
        found.select(3, split="val")
    with pytest.raises(UsageError, match="--n is 0"):
        found.select(0)
    (tmp_path / "other.csv").write_text("path\nelsewhere.png\n")
    with pytest.raises(UsageError, match="names no file of this run"):
        found.select(3, listed=tmp_path / "other.csv")


def test_vectors_that_are_gone_are_a_sentence(found: audit.Run) -> None:
    vectors = found.path.parent / "vectors.parquet"
    kept = vectors.rename(vectors.with_suffix(".away"))
    try:
        with pytest.raises(UsageError, match="scan again with --embeddings"):
            found.select(3)
    finally:
        kept.rename(vectors)


def test_rare_classes_of_objects_first(tmp_path: Path) -> None:
    held = ["car", "car", "car", "car bus", "car", "bus tram", ""]
    names = [f"{number}.png" for number in range(len(held))]
    for number, name in enumerate(names):
        Image.fromarray(picture(number, 48, 48)).save(tmp_path / name)
    classes = [{"id": n, "name": name} for n, name in enumerate(("car", "bus", "tram"), 1)]
    of = {one["name"]: one["id"] for one in classes}
    boxes = [(n, of[name]) for n, objects in enumerate(held) for name in objects.split()]
    document = {
        "images": [{"id": n, "file_name": name, "width": 48, "height": 48}
                   for n, name in enumerate(names)],
        "categories": classes,
        "annotations": [{"id": at, "image_id": n, "category_id": c, "bbox": [4 * at, 4, 9, 9]}
                        for at, (n, c) in enumerate(boxes)],
    }  # fmt: skip
    (tmp_path / "boxes.json").write_text(json.dumps(document))
    scan_tree(tmp_path, tmp_path / "run")
    found = audit.open(tmp_path / "run")
    chosen = found.select(2, "rare")
    bought = {row["class"]: (row["free"], row["chosen"]) for row in chosen.classes.to_dicts()}
    assert bought == {"bus": (2, 1), "car": (5, 1), "tram": (1, 1)}, "two pictures show all three"
    assert sorted(chosen.rows["class"].to_list()) == ["bus; tram", "car"]
    known = found.select(1, "coverage", unlabelled=True)
    assert (known.candidates, known.known) == (1, 6), "what has objects is known"


@pytest.mark.slow
def test_the_command_writes_a_list_that_scan_and_plan_read(
    found: audit.Run, tmp_path: Path
) -> None:
    words = ["select", found.path, "--n", 9, "--by", "rare", "--split", "train", "--json"]
    done = warm_audit(*words, "-o", "next.csv", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["n"] == 9
    planned = warm_audit(
        "subset", "plan", "--from", "next.csv", "--split", "all", "--n", 6, folder=tmp_path
    )  # fmt: skip
    assert planned.returncode == 0, planned.stderr
    run = scan_tree(tmp_path / "next.csv", tmp_path / "again")
    assert len(run) == 9
    bad = warm_audit("select", found.path, "--n", 9, "-o", "next.pdf", folder=tmp_path)
    assert bad.returncode == 2
    assert bad.stderr.count("\n") == 1
