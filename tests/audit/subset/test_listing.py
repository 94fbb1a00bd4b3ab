"""Sets from a list: columns, splits, no classes, no strata of the label; the commands on one."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

from audit.errors import UsageError
from audit.subset import Goal, draw_subset, load_recipe, make_plan
from audit.subset.predictions import UNLABELLED
from audit.subset.source import frame_from_list
from tests.audit.subset.commands import call
from tests.audit.subset.frames import made_set, predicted


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A list of 400 examples with two splits, an old and a new model's predictions."""
    root = tmp_path_factory.mktemp("list")
    frame = made_set(400, 3, seed=3)
    split = np.where(np.arange(400) % 4 == 0, "val", "test")
    listed = frame.select(id="sample_id", target="label", camera="camera")
    listed.with_columns(split=pl.Series(split)).write_csv(root / "labels.csv")
    listed.select("id", "camera").write_csv(root / "pool.csv")
    for seed, name in ((1, "old"), (1, "new")):
        predicted(frame, 0.8, seed).write_csv(root / f"{name}.csv")
    return root


def test_columns_and_splits(folder):
    path = folder / "labels.csv"
    assert len(frame_from_list(path)) == 400
    frame = frame_from_list(path, "test", ["camera"])
    assert len(frame) == 300
    assert set(frame["label"]) == {"class0", "class1", "class2"}
    with pytest.raises(UsageError, match="its splits: test, val"):
        frame_from_list(path, "train")
    with pytest.raises(UsageError, match="no column 'site'"):
        frame_from_list(path, None, ["site"])


def test_a_list_without_classes_says_what_to_do(folder):
    with pytest.raises(UsageError, match="--unlabelled"):
        frame_from_list(folder / "pool.csv")
    frame = frame_from_list(folder / "pool.csv", unlabelled=True)
    assert set(frame["label"]) == {UNLABELLED}


def test_strata_of_the_label_can_be_left_out():
    frame = made_set(600, 3, seed=1)
    plan = make_plan(frame, Goal(n=90), by=["camera"], by_label=False)
    assert {s.name for s in plan.strata} == {"camera=left", "camera=right"}
    one = make_plan(frame, Goal(n=90), by_label=False)
    assert [s.name for s in one.strata] == ["all"]
    assert set(draw_subset(frame, one.recipe, 1).rows["stratum"]) == {"all"}


def test_a_saved_plan_without_strata_of_the_label_draws_the_same(tmp_path):
    frame = made_set(300, 3, seed=1)
    plan = make_plan(frame, Goal(n=40), by_label=False)
    plan.save(tmp_path / "plan.json")
    recipe = load_recipe(tmp_path / "plan.json")
    assert recipe.hash == plan.hash != make_plan(frame, Goal(n=40)).hash
    assert draw_subset(frame, recipe, 1).rows.equals(draw_subset(frame, plan.recipe, 1).rows)


def test_plan_draw_and_score_from_a_list(folder):
    source, plan, subset = folder / "labels.csv", folder / "plan.json", folder / "s.csv"
    call("plan", "--from", source, "--n", 60, "--output", plan)
    assert "Drew 60 of 300 units" in call(
        "draw", "--from", source, "--plan", plan, "--seed", 1, "-o", subset
    )
    said = call("score", subset, "--predictions", folder / "new.csv", "--baseline",
                folder / "old.csv", "--from", source)  # fmt: skip
    assert "accuracy with the baseline, full-set: " in said
    document = json.loads(call("score", subset, "--predictions", folder / "new.csv", "--json"))
    assert "with_baseline" not in document["models"][0]


def test_a_set_is_named_once(folder):
    assert "once" in call("plan", "--n", 60, code=2)
    assert "once" in call("plan", folder, "--from", folder / "labels.csv", "--n", 60, code=2)
    said = call("score", folder / "s.csv", "--predictions", folder / "new.csv", "--baseline",
                folder / "old.csv", code=2)  # fmt: skip
    assert "--from" in said


SEVERAL = "2 of 9 images have several labels, such as 'x1' (sea, tree), and a subset takes one"
LISTS = [["sea", "tree"], ["dog", "sea"]]
CELLS = {
    "separated": ["sea;tree", "dog;sea"],
    "JSON": [json.dumps(labels) for labels in LISTS],
    "Python": [str(labels) for labels in LISTS],
}


@pytest.mark.parametrize("cells", CELLS.values(), ids=CELLS)
def test_several_labels_of_a_list_are_refused(cells, tmp_path):
    listed, drawn_before, model = (tmp_path / n for n in ("set.csv", "old.csv", "net.csv"))
    labels = ["dog", *cells, "sea", "tree", "dog", "sea", "tree", "dog"]
    table = pl.DataFrame({"id": [f"x{k}" for k in range(9)], "label": labels})
    table.write_csv(listed)
    rows = draw_subset(table.rename({"id": "sample_id"}), make_plan(
        table.rename({"id": "sample_id"}), Goal(n=9), by_label=False).recipe, 1).rows  # fmt: skip
    rows.sort("sample_id").write_csv(drawn_before)
    table.select("id", prediction=pl.lit("dog"), loss=pl.lit(0.5)).write_csv(model)
    predicted = "--predictions", model
    for words in (
        ["plan", "--from", listed, "--n", 4],
        ["draw", "--from", listed, "--n", 4, "--seed", 1, "-o", tmp_path / "s.csv"],
        ["curve", "--from", listed],
        ["score", "--from", listed, *predicted],
        ["measure", "--from", listed, "--values", model, "--number", "loss"],
        ["score", drawn_before, *predicted],
        ["measure", drawn_before, "--values", model, "--number", "loss"],
        ["winner", drawn_before, *predicted, *predicted],
    ):
        assert SEVERAL in call(*words, code=2)
    assert not (tmp_path / "s.csv").exists()
    call("plan", "--from", listed, "--unlabelled", "--n", 4)
    lists = [v if k in (1, 2) else [v] for k, v in enumerate([labels[0], *LISTS, *labels[3:]])]
    table.with_columns(label=pl.Series(lists)).write_parquet(tmp_path / "set.parquet")
    with pytest.raises(UsageError, match="2 of 9 images have several labels"):
        frame_from_list(tmp_path / "set.parquet")
    # what the refusal names instead: a list for each class
    sea = (
        pl.when(pl.col("label").str.contains("sea")).then(pl.lit("sea")).otherwise(pl.lit("other"))
    )
    table.with_columns(label=sea).write_csv(listed)
    call("plan", "--from", listed, "--n", 6, "--metric", "recall:sea")


def test_predictions_of_several_labels_are_refused_as_such(folder, tmp_path):
    model = tmp_path / "net.csv"
    ids = frame_from_list(folder / "labels.csv")["sample_id"]
    two = (
        pl.when(pl.int_range(pl.len()) < 3)
        .then(pl.lit("class1;class2"))
        .otherwise(pl.lit("class0"))
    )
    pl.DataFrame({"id": ids}).with_columns(prediction=two).write_csv(model)
    words = ["score", "--from", folder / "labels.csv", "--split", "all", "--predictions", model]
    refused = call(*words, code=2)
    assert "'class1;class2' holds several labels" in refused
    assert "--unknown" not in refused


def test_cells_that_are_no_lists_stay_classes(tmp_path):
    labels = ["black", "white", "black or white", "a;b", "[x]"] * 4
    table = pl.DataFrame({"id": [str(k) for k in range(20)], "label": labels})
    table.write_csv(tmp_path / "set.csv")
    assert frame_from_list(tmp_path / "set.csv")["label"].to_list() == labels
