"""From a list to an answer: plan and draw in one command, the whole set, classes, slices."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

from audit.errors import UsageError
from audit.subset import Goal, census, draw_subset, first_units, make_plan, score_subset
from audit.subset.predictions import read_table
from audit.subset.slices import MOST_VALUES, slice_columns
from tests.audit.subset.commands import call
from tests.audit.subset.frames import drawn, made_set, predicted


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A list of 1,200 examples of three classes and two cameras, one of which is worse, and two
    models of it."""
    root = tmp_path_factory.mktemp("answers")
    frame = made_set(1200, 3, seed=3)
    worse = (frame["camera"] == "left").to_numpy()
    good, bad = (predicted(frame, p, 4)["prediction"].to_numpy() for p in (0.97, 0.75))
    listed = frame.select(id="sample_id", label="label", camera="camera", size="brightness")
    listed.write_csv(root / "val.csv")
    for name, said in (("a", np.where(worse, bad, good)), ("b", good)):
        frame.select("sample_id", prediction=pl.Series(said)).write_csv(root / f"{name}.csv")
    return root


# ---- classes of the set that no drawn row has ----


MANY = made_set(2000, 150, seed=1)


@pytest.mark.parametrize(
    ("plan", "first"),
    [
        ({"by_label": False}, None),
        ({"by_label": False}, 15),
        ({"merge_strata": True}, None),
        ({"by_label": False, "group": "camera_of_two"}, None),
    ],
)
def test_predictions_may_name_any_class_of_the_set(tmp_path, plan, first) -> None:
    frame = MANY.with_columns(camera_of_two=pl.format("{}", pl.int_range(pl.len()) // 2))
    rows = drawn(frame, 60, **plan)
    rows.write_csv(tmp_path / "s.csv")
    rows = read_table(tmp_path / "s.csv", "subset")
    rows = rows if first is None else first_units(rows, first)
    table = predicted(frame, 0.5, 2)
    assert set(table["prediction"]) - set(rows["label"])
    score = score_subset(rows, [table], metrics=["accuracy", "macro-recall"])
    assert 0.2 < score.models[0].metrics[0].estimands["full-set"].value < 0.8
    assert any("of the 150 classes have no example here" in note for note in score.notes)
    if first is not None:
        assert score.n_files == first
    for wrong in ("Class1 ", "horse"):
        spoiled = table.with_columns(pl.col("prediction").replace("class1", wrong))
        with pytest.raises(UsageError, match="a class that the set does not have"):
            score_subset(census(frame).rows, [spoiled])
        spoiled = rows.select("sample_id", prediction=pl.lit(wrong)).with_columns(
            prediction=pl.when(pl.int_range(pl.len()) == 0).then("prediction").otherwise(
                pl.lit("class1"))
        )  # fmt: skip
        with pytest.raises(UsageError, match="a class that the set does not have"):
            score_subset(rows, [spoiled])


def test_a_damaged_list_of_classes_is_refused() -> None:
    rows = drawn(MANY, 60, by_label=False).with_columns(set_classes=pl.lit("[1,"))
    with pytest.raises(UsageError, match="The subset is damaged"):
        score_subset(rows, [predicted(MANY, 0.5, 2)])


# ---- two commands ----


def test_draw_plans_by_itself(folder, tmp_path) -> None:
    source, plan = ["--from", folder / "val.csv"], tmp_path / "plan.json"
    goal = ["--half-width", 0.05, "--by", "camera", "--no-label-strata"]
    call("plan", *source, *goal, "--output", plan)
    call("draw", *source, "--plan", plan, "--seed", 0, "-o", tmp_path / "two.csv")
    said = call("draw", *source, *goal, "-o", tmp_path / "one.csv", "--save-plan",
                tmp_path / "saved.json")  # fmt: skip
    assert (tmp_path / "one.csv").read_text() == (tmp_path / "two.csv").read_text()
    assert (tmp_path / "saved.json").read_text() == plan.read_text()
    assert "with seed 0" in said.splitlines()[0]
    assert f"`audit subset score {tmp_path / 'one.csv'} --predictions MODEL.csv`" in said
    assert "for accuracy, in points at 0.95" in said
    document = json.loads(call("draw", *source, *goal, "-o", tmp_path / "one.csv", "--json"))
    assert document["planned"] == json.loads(plan.read_text())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--plan", "PLAN", "--half-width", 0.1], "--half-width is a matter of the plan"),
        (["--plan", "PLAN", "--baseline", "x.csv"], "--baseline is a matter of the plan"),
        ([], "exactly one of --half-width"),
    ],
)
def test_a_plan_or_a_goal(folder, tmp_path, words, sentence) -> None:
    plan = tmp_path / "p.json"
    call("plan", "--from", folder / "val.csv", "--n", 60, "--output", plan)
    words = [plan if w == "PLAN" else w for w in words]
    out = tmp_path / "s.csv"
    assert sentence in call("draw", "--from", folder / "val.csv", *words, "-o", out, code=2)


# ---- the whole set ----


def test_the_whole_set_and_two_models(folder) -> None:
    words = ["score", "--from", folder / "val.csv", "--predictions", folder / "a.csv"]
    lines = call(*words, "--predictions", folder / "b.csv").splitlines()
    rows = pl.read_csv(folder / "val.csv").join(pl.read_csv(folder / "a.csv"),
                                                left_on="id", right_on="sample_id")  # fmt: skip
    accuracy = 100 * (rows["label"] == rows["prediction"]).mean()
    assert lines[0].startswith(f"a: accuracy {accuracy:.2f} %: ")
    assert " on new data of the same kind, on this set known: all of it was scored" in lines[0]
    assert lines[1].startswith("b: accuracy ")
    assert lines[2].startswith("b is better than a: +")
    assert "class0:" not in call(*words)
    assert "right; one more right answer moves recall by" in call(*words, "--by-class")
    estimands = json.loads(call(*words, "--json"))["models"][0]["metrics"][0]["estimands"]
    assert estimands["full-set"]["known"]
    assert estimands["generalisation"]["low"] < accuracy / 100 < estimands["generalisation"]["high"]


def test_a_list_in_place_of_a_subset_is_told_the_command(folder) -> None:
    said = call("score", folder / "val.csv", "--predictions", folder / "a.csv", code=2)
    val, a = folder / "val.csv", folder / "a.csv"
    assert f"`audit subset score --from {val} --predictions {a}`" in said
    said = call("measure", val, "--values", a, "--number", "loss", code=2)
    assert f"`audit subset measure --from {val} --values {a}`" in said
    assert "Name the set once" in call("score", "--predictions", a, code=2)


# ---- slices ----


def test_slices_of_a_subset_and_of_the_set(folder, tmp_path) -> None:
    source, subset = ["--from", folder / "val.csv"], tmp_path / "s.csv"
    call("draw", *source, "--n", 600, "-o", subset)
    words = ["--predictions", folder / "a.csv", "--slice", "camera", "--slice", "size"]
    for where in ([subset], []):
        document = json.loads(call("score", *where, *source, *words, "--json"))
        found = document["models"][0]["slices"]
        assert [s["column"] for s in found["values"]] == ["camera"] * 2 + ["size"] * 4
        assert found["level"] == pytest.approx(1 - 0.05 / 6)
        left, right = found["values"][:2]
        assert left["value"] == "left"
        assert left["n"] + right["n"] == document["n_files"]
        limits = [s["estimands"]["generalisation"] for s in (left, right)]
        assert limits[0]["high"] < limits[1]["low"]
        assert [(w["column"], w["value"]) for w in found["worse"]] == [("camera", "left")]
    said = call("score", subset, *source, *words)
    assert "the 6 intervals hold together" in said
    assert "Worse than elsewhere: camera left, " in said
    assert "slices" not in json.loads(call("score", subset, *words[:2], "--json"))["models"][0]
    missing = call("score", subset, *source, *words[:2], "--slice", "lens", code=2)
    assert "has no column 'lens'" in missing
    assert "--from" in call("score", subset, *words, code=2)


def test_slices_by_chance_and_of_many_values() -> None:
    frame = made_set(3000, 2, seed=4).with_columns(
        site=pl.format("s{}", pl.int_range(pl.len()) % (MOST_VALUES + 7))
    )
    rows = drawn(frame, 900)
    columns = slice_columns(rows, frame, ["site", "camera", "brightness"])
    found = score_subset(rows, [predicted(frame, 0.9, 1)], slices=columns).models[0].slices
    assert found.left_out == {"site": 7}
    assert found.worse == []
    with pytest.raises(UsageError, match="not in the set given with --from"):
        slice_columns(rows, frame.head(100), ["camera"])


# ---- what is known is used, and said ----


def test_a_plan_uses_the_baseline_and_says_so(folder, tmp_path) -> None:
    frame = made_set(20_000, 5, seed=5)
    old = predicted(frame, 0.91, 1)
    frame.select("sample_id", "label").write_csv(tmp_path / "set.csv")
    old.write_csv(tmp_path / "old.csv")
    words = ["plan", "--from", tmp_path / "set.csv", "--half-width", 0.01, "--discordant", 0.04]
    document = json.loads(call(*words, "--baseline", tmp_path / "old.csv", "--json"))
    reasons = "\n".join(document["reasons"])
    assert "from the baseline old.csv (20000 files, accuracy 0.9" in reasons
    assert "the discordant share as stated and the baseline's accuracy, 90.89 %" in reasons
    plain = json.loads(call("plan", "--from", tmp_path / "set.csv", "--half-width", 0.01, "--p",
                            0.91, "--json"))  # fmt: skip
    assert document["n"] < 0.65 * plain["n"]
    # 1 - (1 - 0.04 / (2 * 0.91 * 0.09))^2 of the variance is left
    assert "its R-squared is 0.5" in reasons
    perfect = int(reasons.split("A perfect baseline would need ")[1].split(".")[0])
    assert 10 <= perfect < document["n"] / 3
    # a model that differs on 4 %: the printed half-width is the planned one
    said, label = old["prediction"].to_numpy(), frame["label"].to_numpy()
    flip = np.random.default_rng(3).uniform(size=len(said)) < 0.04
    new = np.where(flip, np.where(said == label, "class0", label), said)
    right = (new == label) != (said == label)
    assert 0.03 < right.mean() < 0.05
    frame.select("sample_id", prediction=pl.Series(new)).write_csv(tmp_path / "new.csv")
    said = call("draw", *words[1:], "--baseline", tmp_path / "old.csv", "-o", tmp_path / "s.csv")
    assert f"--predictions MODEL.csv --from {tmp_path / 'set.csv'} --baseline " in said
    said = call("score", tmp_path / "s.csv", "--from", tmp_path / "set.csv", "--predictions",
                tmp_path / "new.csv", "--baseline", tmp_path / "old.csv", "--json")  # fmt: skip
    scored = json.loads(said)["models"][0]["with_baseline"][0]
    one = scored["estimands"]["generalisation"]
    assert (one["high"] - one["low"]) / 2 == pytest.approx(0.01, rel=0.12)
    assert "R-squared 0." in scored["method"]


def test_a_whole_set_has_no_fresh_draw() -> None:
    frame = made_set(300, 3)
    notes = score_subset(census(frame).rows, [predicted(frame, 0.8, 1)]).notes
    assert not any("--fresh-from" in note for note in notes)
    plan = make_plan(frame, Goal(n=60))
    notes = score_subset(draw_subset(frame, plan.recipe, 0).rows, [predicted(frame, 0.8, 1)]).notes
    assert any("--fresh-from" in note for note in notes)
