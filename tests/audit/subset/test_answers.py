"""From a list or people's labels to an answer: columns, splits, sheets, the whole set, slices."""

import json
import pathlib

import numpy as np
import polars as pl
import pytest

from audit.errors import UsageError
from audit.subset import (
    Baseline,
    Goal,
    census,
    draw_subset,
    first_units,
    load_recipe,
    make_plan,
    score_subset,
)
from audit.subset.labelling import compare_people, human_text, labelling_sheet, sheet_labels
from audit.subset.predictions import UNLABELLED, read_table
from audit.subset.slices import MOST_VALUES, slice_columns
from audit.subset.source import frame_from_list
from tests.audit.subset.frames import ROW, call, document, drawn, made_set, predicted, replaced


@pytest.fixture(scope="module")
def listed(tmp_path_factory):
    """A list of 400 examples with two splits, an old and a new model's predictions."""
    root = tmp_path_factory.mktemp("list")
    frame = made_set(400, 3, seed=3)
    split = np.where(np.arange(400) % 4 == 0, "val", "test")
    table = frame.select(id="sample_id", target="label", camera="camera", split=pl.Series(split))
    table.write_csv(root / "labels.csv")
    table.select("id", "camera").write_csv(root / "pool.csv")
    for name in ("old", "new"):
        predicted(frame, 0.8, 1).write_csv(root / f"{name}.csv")
    return root


def test_columns_and_splits(listed):
    path, pool = listed / "labels.csv", listed / "pool.csv"
    assert len(frame_from_list(path)) == 400
    frame = frame_from_list(path, "test", ["camera"])
    assert len(frame) == 300
    assert set(frame["label"]) == {"class0", "class1", "class2"}
    for words, sentence in (
        ((path, "train"), "its splits: test, val"),
        ((path, None, ["site"]), "no column 'site'"),
        ((pool,), "--unlabelled"),
    ):
        with pytest.raises(UsageError, match=sentence):
            frame_from_list(*words)
    assert set(frame_from_list(pool, unlabelled=True)["label"]) == {UNLABELLED}


def test_strata_of_the_label_can_be_left_out(tmp_path):
    frame = made_set(600, 3, seed=1)
    plan = make_plan(frame, Goal(n=90), by=["camera"], by_label=False)
    assert {s.name for s in plan.strata} == {"camera=left", "camera=right"}
    plan = make_plan(frame, Goal(n=90), by_label=False)
    assert [s.name for s in plan.strata] == ["all"]
    plan.save(tmp_path / "plan.json")
    recipe = load_recipe(tmp_path / "plan.json")
    assert recipe.hash == plan.hash != make_plan(frame, Goal(n=90)).hash
    rows = draw_subset(frame, plan.recipe, 1).rows
    assert set(rows["stratum"]) == {"all"}
    assert draw_subset(frame, recipe, 1).rows.equals(rows)


def test_plan_draw_and_score_from_a_list(listed):
    source, plan, subset = ["--from", listed / "labels.csv"], listed / "plan.json", listed / "s.csv"
    call("plan", *source, "--n", 60, "--output", plan)
    said = call("draw", *source, "--plan", plan, "--seed", 1, "-o", subset)
    assert "Drew 60 of 300 units" in said
    words = ["score", subset, "--predictions", listed / "new.csv"]
    baseline = ["--baseline", listed / "old.csv"]
    assert "accuracy with the baseline, this set: " in call(*words, *baseline, *source)
    assert "with_baseline" not in document(*words)["models"][0]
    # a set is named once
    assert "once" in call("plan", "--n", 60, code=2)
    assert "once" in call("plan", listed, *source, "--n", 60, code=2)
    assert "--from" in call(*words, *baseline, code=2)


SEVERAL = "2 of 9 images have several labels, such as 'x1' (sea, tree), and a subset takes one"
LISTS = [["sea", "tree"], ["dog", "sea"]]
CELLS = {
    "separated": ["sea;tree", "dog;sea"],
    "JSON": [json.dumps(labels) for labels in LISTS],
    "Python": [str(labels) for labels in LISTS],
}


@pytest.mark.parametrize("cells", CELLS.values(), ids=CELLS)
def test_several_labels_of_a_list_are_refused(cells, tmp_path):
    path, drawn_before, model = (tmp_path / n for n in ("set.csv", "old.csv", "net.csv"))
    labels = ["dog", *cells, "sea", "tree", "dog", "sea", "tree", "dog"]
    table = pl.DataFrame({"id": [f"x{k}" for k in range(9)], "label": labels})
    table.write_csv(path)
    rows = drawn(table.rename({"id": "sample_id"}), 9, by_label=False)
    rows.sort("sample_id").write_csv(drawn_before)
    table.select("id", prediction=pl.lit("dog"), loss=pl.lit(0.5)).write_csv(model)
    source, models = ["--from", path], ["--predictions", model]
    measured = [*models, "--metric", "mean:loss"]
    for words in (
        ["plan", *source, "--n", 4],
        ["draw", *source, "--n", 4, "--seed", 1, "-o", tmp_path / "s.csv"],
        ["plan", *source, "--sizes", "auto"],
        ["score", *source, *models],
        ["score", *source, *measured],
        ["score", drawn_before, *models],
        ["score", drawn_before, *measured],
        ["score", drawn_before, *models, *models],
    ):
        assert SEVERAL in call(*words, code=2)
    assert not (tmp_path / "s.csv").exists()
    call("plan", *source, "--unlabelled", "--n", 4)
    lists = [v if k in (1, 2) else [v] for k, v in enumerate([labels[0], *LISTS, *labels[3:]])]
    table.with_columns(label=pl.Series(lists)).write_parquet(tmp_path / "set.parquet")
    with pytest.raises(UsageError, match="2 of 9 images have several labels"):
        frame_from_list(tmp_path / "set.parquet")
    # what the refusal names instead: a list for each class
    of_sea = pl.col("label").str.contains("sea")
    one_class = pl.when(of_sea).then(pl.lit("sea")).otherwise(pl.lit("other"))
    table.with_columns(label=one_class).write_csv(path)
    call("plan", *source, "--n", 6, "--metric", "recall:sea")


def test_predictions_of_several_labels_are_refused_as_such(listed, tmp_path):
    ids = frame_from_list(listed / "labels.csv").select(id="sample_id", prediction=pl.lit("class0"))
    replaced(ids, ROW < 3, "class1;class2").write_csv(model := tmp_path / "net.csv")
    words = ["score", "--from", listed / "labels.csv", "--split", "all", "--predictions", model]
    refused = call(*words, code=2)
    assert "'class1;class2' holds several labels" in refused
    assert "--unknown" not in refused


def test_cells_that_are_no_lists_stay_classes(tmp_path):
    labels = ["black", "white", "black or white", "a;b", "[x]"] * 4
    table = pl.DataFrame({"id": [str(k) for k in range(20)], "label": labels})
    table.write_csv(tmp_path / "set.csv")
    assert frame_from_list(tmp_path / "set.csv")["label"].to_list() == labels


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A list of 1,200 examples of three classes and two cameras, one of which is worse, and two
    models of it."""
    root = tmp_path_factory.mktemp("answers")
    frame = made_set(1200, 3, seed=3)
    good, bad = (predicted(frame, p, 4)["prediction"] for p in (0.97, 0.75))
    columns = frame.select(id="sample_id", label="label", camera="camera", size="brightness")
    columns.write_csv(root / "val.csv")
    for name, said in (("a", bad.zip_with(frame["camera"] == "left", good)), ("b", good)):
        frame.select("sample_id", prediction=said).write_csv(root / f"{name}.csv")
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
    frame = MANY.with_columns(camera_of_two=pl.format("{}", ROW // 2))
    drawn(frame, 60, **plan).write_csv(tmp_path / "s.csv")
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
        everywhere = replaced(table, pl.col("prediction") == "class1", wrong)
        once = rows.select("sample_id", prediction=pl.lit("class1"))
        for of, spoiled in (
            (census(frame).rows, everywhere), (rows, replaced(once, ROW == 0, wrong))
        ):  # fmt: skip
            with pytest.raises(UsageError, match="a class that the set does not have"):
                score_subset(of, [spoiled])


def test_a_damaged_list_of_classes_is_refused() -> None:
    rows = drawn(MANY, 60, by_label=False).with_columns(set_classes=pl.lit("[1,"))
    with pytest.raises(UsageError, match="The subset is damaged"):
        score_subset(rows, [predicted(MANY, 0.5, 2)])


# ---- two commands ----


def test_draw_plans_by_itself(folder, tmp_path) -> None:
    source, plan = ["--from", folder / "val.csv"], tmp_path / "plan.json"
    one, two = (tmp_path / name for name in ("one.csv", "two.csv"))
    goal = ["--half-width", 0.05, "--by", "camera", "--set", "plan.label_strata=false"]
    call("plan", *source, *goal, "--output", plan)
    call("draw", *source, "--plan", plan, "--seed", 0, "-o", two)
    said = call("draw", *source, *goal, "-o", one)
    assert one.read_text() == two.read_text()
    assert "with seed 0" in said.splitlines()[0]
    assert f"`audit subset score {one} --predictions MODEL.csv`" in said
    assert "in points at 0.95" in said
    found = document("draw", *source, *goal, "-o", one, "--sheet", tmp_path / "sheet.csv")
    assert found["sheets"] == [str(tmp_path / "sheet.csv")]
    assert found["planned"] == json.loads(plan.read_text())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--plan", "PLAN", "--half-width", 0.1], "--half-width is part of the plan"),
        (["--plan", "PLAN", "--baseline", "x.csv"], "--baseline is part of the plan"),
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
    answers = pl.read_csv(folder / "a.csv")
    rows = pl.read_csv(folder / "val.csv").join(answers, left_on="id", right_on="sample_id")
    accuracy = 100 * (rows["label"] == rows["prediction"]).mean()
    assert lines[0].startswith(f"a: accuracy {accuracy:.2f}% (new data: ")
    assert "; this set: known, the whole set was scored)" in lines[0]
    assert lines[1].startswith("b: accuracy ")
    assert lines[2].startswith("b is better than a: +")
    assert "class0:" not in call(*words)
    assert "right; one more right answer moves recall by" in call(*words, "--by-class")
    found = document(*words)["models"][0]["metrics"][0]["estimands"]
    assert found["full-set"]["known"]
    assert found["generalisation"]["low"] < accuracy / 100 < found["generalisation"]["high"]


def test_a_list_in_place_of_a_subset_is_told_the_command(folder) -> None:
    said = call("score", folder / "val.csv", "--predictions", folder / "a.csv", code=2)
    val, a = folder / "val.csv", folder / "a.csv"
    assert f"`audit subset score --from {val} --predictions {a}`" in said
    said = call("score", val, "--predictions", a, "--metric", "mean:loss", code=2)
    assert f"`audit subset score --from {val} --predictions {a} --metric mean:loss`" in said
    assert "Name the set once" in call("score", "--predictions", a, code=2)


# ---- slices ----


def test_slices_of_a_subset_and_of_the_set(folder, tmp_path) -> None:
    source, subset = ["--from", folder / "val.csv"], tmp_path / "s.csv"
    call("draw", *source, "--n", 600, "-o", subset)
    model, slices = ["--predictions", folder / "a.csv"], ["--slice", "camera", "--slice", "size"]
    for where in ([subset], []):
        score = document("score", *where, *source, *model, *slices)
        found = score["models"][0]["slices"]
        assert [s["column"] for s in found["values"]] == ["camera"] * 2 + ["size"] * 4
        assert found["level"] == pytest.approx(1 - 0.05 / 6)
        left, right = found["values"][:2]
        assert left["value"] == "left"
        assert left["n"] + right["n"] == score["n_files"]
        limits = [s["estimands"]["generalisation"] for s in (left, right)]
        assert limits[0]["high"] < limits[1]["low"]
        assert [(w["column"], w["value"]) for w in found["worse"]] == [("camera", "left")]
    said = call("score", subset, *source, *model, *slices)
    assert "the 6 intervals hold together" in said
    assert "Worse than elsewhere: camera left, " in said
    assert "slices" not in document("score", subset, *model)["models"][0]
    missing = call("score", subset, *source, *model, "--slice", "lens", code=2)
    assert "has no column 'lens'" in missing
    assert "--from" in call("score", subset, *model, *slices, code=2)


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


def test_a_plan_uses_the_baseline_and_says_so(tmp_path) -> None:
    frame = made_set(20_000, 5, seed=5)
    listed, before, after = (tmp_path / name for name in ("set.csv", "old.csv", "new.csv"))
    old = predicted(frame, 0.91, 1)
    frame.select("sample_id", "label").write_csv(listed)
    old.write_csv(before)
    source, baseline = ["--from", listed], ["--baseline", before]
    goal = [*source, "--half-width", 0.01, "--set", "plan.disagreement=0.04", *baseline]
    plan = document("plan", *goal)
    reasons = "\n".join(plan["reasons"])
    assert "from the baseline old.csv (20000 files, accuracy 0.9" in reasons
    assert "the stated disagreement and the baseline's accuracy, 90.89%" in reasons
    plain = document("plan", *source, "--half-width", 0.01, "--set", "plan.expected=0.91")
    assert plan["n"] < 0.65 * plain["n"]
    # 1 - (1 - 0.04 / (2 * 0.91 * 0.09))^2 of the variance is left
    assert "its R-squared is 0.5" in reasons
    perfect = int(reasons.split("A perfect baseline would need ")[1].split(".")[0])
    assert 10 <= perfect < plan["n"] / 3
    # a model that differs on 4 %: the printed half-width is the planned one
    said, label = old["prediction"].to_numpy(), frame["label"].to_numpy()
    flip = np.random.default_rng(3).uniform(size=len(said)) < 0.04
    new = np.where(flip, np.where(said == label, "class0", label), said)
    right = (new == label) != (said == label)
    assert 0.03 < right.mean() < 0.05
    frame.select("sample_id", prediction=pl.Series(new)).write_csv(after)
    said = call("draw", *goal, "-o", tmp_path / "s.csv")
    assert f"--predictions MODEL.csv --from {listed} --baseline " in said
    scored = document("score", tmp_path / "s.csv", *source, "--predictions", after, *baseline)
    (narrow,) = scored["models"][0]["with_baseline"]
    one = narrow["estimands"]["generalisation"]
    assert (one["high"] - one["low"]) / 2 == pytest.approx(0.01, rel=0.12)
    assert "R-squared 0." in narrow["method"]


def test_a_whole_set_has_no_fresh_draw() -> None:
    frame = made_set(300, 3)
    for rows, fresh in ((census(frame).rows, False), (drawn(frame, 60), True)):
        notes = score_subset(rows, [predicted(frame, 0.8, 1)]).notes
        assert any("--exclude-drawn" in note for note in notes) == fresh


@pytest.fixture(scope="module")
def frame():
    return made_set(2000, 4, seed=6)


@pytest.fixture(scope="module")
def pool(frame):
    return frame.with_columns(label=pl.lit(UNLABELLED))


@pytest.fixture(scope="module")
def model(frame):
    """A calibrated model: right as often as its confidence says."""
    rng = np.random.default_rng(2)
    confidence = rng.beta(2, 0.5, len(frame))
    label = frame["label"].to_numpy()
    other = np.where(label == "class0", "class1", "class0")
    right = rng.uniform(size=len(frame)) < confidence
    return pl.DataFrame({"sample_id": frame["sample_id"], "confidence": confidence,
                         "prediction": np.where(right, label, other)})  # fmt: skip


def filled(frame, rows, wrong=0.0, seed=0, copy=1):
    """Return a sheet as a person fills it in, wrong on a share of the examples."""
    sheet = labelling_sheet(rows, copy).drop("label")
    sheet = sheet.join(frame.select("sample_id", "label"), on="sample_id", maintain_order="left")
    slip = np.random.default_rng(seed).uniform(size=len(sheet)) < wrong
    other = np.where(sheet["label"].to_numpy() == "class2", "class3", "class2")
    return sheet.with_columns(label=pl.Series(np.where(slip, other, sheet["label"].to_numpy())))


@pytest.fixture(scope="module")
def rows(frame):
    return drawn(frame, 400, 4)


def test_unlabelled_examples_are_chosen_by_confidence_and_scored(frame, pool, model):
    plan = make_plan(pool, Goal(n=300), by=["confidence"], predictions=[model])
    assert len(plan.strata) == 5
    known = pool.join(model.select("sample_id", "confidence"), on="sample_id")
    rows = draw_subset(known, plan.recipe, 1).rows
    labelled = rows.with_columns(sheet_labels(rows, filled(frame, rows), "sheet"))
    baseline = Baseline.of(pool, model, plan.recipe, "model")
    found = score_subset(labelled, [model], baseline=baseline).models[0]
    truth = float((model["prediction"] == frame["label"]).mean())
    for metric in (*found.metrics, *found.with_baseline):
        assert metric.estimands["full-set"].low < truth < metric.estimands["full-set"].high
    assert "expects" in found.with_baseline[0].method


def test_confidence_narrows_a_plain_sample(frame, pool, model):
    rows = drawn(pool, 400, 2)
    labelled = rows.with_columns(sheet_labels(rows, filled(frame, rows), "sheet"))
    found = score_subset(labelled, [model], baseline=Baseline.of(pool, model)).models[0]
    plain, known = (m[0].estimands["full-set"] for m in (found.metrics, found.with_baseline))
    assert known.effective_n > 1.15 * plain.effective_n
    with pytest.raises(UsageError, match="confidence"):
        Baseline.of(pool, model.drop("confidence"))


def test_an_example_has_one_label(frame, rows):
    sheet = filled(frame, rows)
    twice = pl.concat([sheet, sheet.head(1).with_columns(label=pl.lit("other"))])
    with pytest.raises(UsageError, match="two labels"):
        sheet_labels(rows, twice, "sheet")


def test_people_beside_a_model(frame, rows):
    sheets = [filled(frame, rows, 0.04, 1), filled(frame, rows, 0.06, 2, copy=2)]
    found = compare_people(rows, sheets, [predicted(frame, 0.8, 1)], names=["ann", "bob", "net"])
    right = {a.name: a.accuracy.estimands["generalisation"] for a in found.answers}
    assert right["ann"].low < 0.96 < right["ann"].high
    assert right["net"].high < right["bob"].low
    kappa = found.kappa.estimands["generalisation"]
    agree = found.agreement.estimands["generalisation"]
    assert kappa.low < kappa.value < kappa.high <= 1
    assert kappa.value < agree.value
    assert "kappa, this set" in human_text(found)


def test_kappa_by_hand():
    """Cohen (1960): 20 both yes, 15 both no, 5 and 10 apart of 50: agreement 0.7, kappa 0.4."""
    frame = made_set(50, 1).with_columns(label=pl.lit(UNLABELLED))
    rows = drawn(frame, 50, 1)
    first = ["yes"] * 25 + ["no"] * 25
    second = ["yes"] * 20 + ["no"] * 5 + ["yes"] * 10 + ["no"] * 15
    sheets = [rows.select("sample_id", label=pl.Series(v)) for v in (first, second)]
    found = compare_people(rows, sheets)
    kappa = found.kappa.estimands["generalisation"]
    assert found.agreement.estimands["full-set"].value == pytest.approx(0.7)
    assert kappa.value == pytest.approx(0.4)
    # Fleiss, Cohen and Everitt (1969): the large-sample standard error is 0.1245
    assert (kappa.high - kappa.low) / 2 == pytest.approx(1.96 * 0.1245, rel=0.12)
    assert found.truth == "the first sheet, A"


@pytest.mark.parametrize("wrong", [0.0, 0.1])
def test_kappa_holds(wrong):
    """Two people who agree, and two who differ: the interval holds the set's kappa."""
    rng = np.random.default_rng(8)
    a = rng.integers(0, 3, 2000)
    b = np.where(rng.uniform(size=2000) < wrong, (a + 1) % 3, a)
    chance = sum(np.mean(a == k) * np.mean(b == k) for k in range(3))
    truth = (np.mean(a == b) - chance) / (1 - chance)
    frame = made_set(2000, 1, seed=1).with_columns(label=pl.lit(UNLABELLED))
    recipe, ids = make_plan(frame, Goal(n=100)).recipe, frame["sample_id"]
    held = 0
    for seed in range(15):
        rows = draw_subset(frame, recipe, seed).rows
        sheets = [pl.DataFrame({"sample_id": ids, "label": v.astype(str)}) for v in (a, b)]
        kappa = compare_people(rows, sheets).kappa.estimands["full-set"]
        assert kappa.low < kappa.high
        held += kappa.low <= truth <= kappa.high
    assert held >= 12


def test_the_commands(frame, tmp_path):
    subset, source = tmp_path / "s.parquet", tmp_path / "set.csv"
    sheets = [tmp_path / "one.csv", tmp_path / "two.csv"]
    frame.select("sample_id", "path", "label").write_csv(source)
    draw = ["draw", "--from", source, "--n", 400, "-o", subset, "--sheet", sheets[0], "--sheet"]
    assert "give each --sheet its own" in call(*draw, sheets[0], code=2)
    assert "name a .parquet or .csv file" in call(*draw, tmp_path / "two.pdf", code=2)
    assert not subset.exists()
    assert call(*draw, sheets[1]).count("400 examples to label") == 2
    rows = pl.read_parquet(subset)
    one, two = (pl.read_csv(sheet) for sheet in sheets)
    assert one.columns == two.columns == ["sample_id", "path", "label"]
    assert set(one["label"]) == set(two["label"]) == {""}
    one, two = (sheet["sample_id"].to_list() for sheet in (one, two))
    assert one != two != rows["sample_id"].to_list() != one
    assert set(one) == set(two) == set(rows["sample_id"])
    refused = call("score", subset, "--predictions", sheets[0], "--labels", sheets[0], code=2)
    assert "Fill in all of them" in refused
    for name, seed in (("ann", 1), ("bob", 2)):
        filled(frame, rows, 0.1, seed).write_csv(tmp_path / f"{name}.csv")
    predicted(frame, 0.8, 1).write_csv(tmp_path / "net.csv")
    ann, model = tmp_path / "ann.csv", ["--predictions", tmp_path / "net.csv"]
    people = ["score", subset, "--answers", ann, "--answers", tmp_path / "bob.csv"]
    said = call(*people, *model)
    assert "ann: accuracy, this set: " in said
    assert "two sheets: kappa, new data: " in said
    found = document(*people, *model)
    assert [a["name"] for a in found["answers"]] == ["ann", "bob", "net"]
    call("score", subset, "--labels", ann, *model)
    for more in (["--metric", "accuracy"], ["--first", 9], ["--labels", ann], ["--by-class"]):
        assert f"{more[0]} does not go with --answers" in call(*people, *more, code=2)
    assert "--answers SHEET" in call("score", subset, code=2)
    assert "the drawn subset" in call("score", "--answers", ann, code=2)


def test_one_sheet_of_a_set_without_classes_has_nothing_beside_it(frame, rows, tmp_path):
    rows.with_columns(label=pl.lit(UNLABELLED)).write_csv(subset := tmp_path / "s.csv")
    filled(frame, rows).write_csv(sheet := tmp_path / "ann.csv")
    assert "second sheet" in call("score", subset, "--answers", sheet, code=2)
    frame.select("sample_id", "path").write_csv(pool := tmp_path / "pool.csv")
    words = ["draw", "--from", pool, "--unlabelled", "--n", 20, "-o", tmp_path / "d.csv"]
    assert "--labels SHEET.csv --predictions MODEL.csv`" in call(*words)
    assert f"--labels {sheet} --predictions" in call(*words, "--sheet", sheet)


def test_misspelt_labels_are_refused_with_the_nearest_class(frame, rows, tmp_path):
    subset, sheet, net = (tmp_path / name for name in ("s.parquet", "ann.csv", "net.csv"))
    rows, frame = (replaced(table, pl.col("label") == "class1", "bird", "label")
                   for table in (rows.drop("set_classes"), frame))  # fmt: skip
    rows.write_parquet(subset)
    right = filled(frame, rows)
    replaced(right, ROW == 0, "brid", "label").write_csv(sheet)
    predicted(frame, 0.8, 1).write_csv(net)
    refusal = (
        "1 of 400 labels name a class that the set does not have: 'brid' (did you mean 'bird'?)"
    )
    human = ["score", subset, "--answers", sheet]
    for words in (human, ["score", subset, "--predictions", net, "--labels", sheet]):
        assert refusal in call(*words, code=2)
    counted = call(*human, "--unknown", "wrong")
    assert "accuracy, this set: 99.7" in counted
    assert f"ann: {refusal}. They were counted as wrong." in counted
    # without classes, the first sheet is the truth of the second
    pool = rows.with_columns(label=pl.lit(UNLABELLED))
    with pytest.raises(UsageError, match="did you mean 'bird'"):
        compare_people(pool, [right, pl.read_csv(sheet)])


def test_a_sheet_shows_no_class_of_its_folders(frame, tmp_path, monkeypatch):
    rows = drawn(frame, 20, 4)
    paths = [f"{label}/{k}.PNG" for k, label in enumerate(rows["label"])]
    source, subset = tmp_path / "set.csv", tmp_path / "s.parquet"
    pl.DataFrame({"sample_id": paths, "path": paths, "label": rows["label"]}).write_csv(source)
    sheet, key = tmp_path / "ann.csv", tmp_path / "ann_key.csv"
    draw = ["draw", "--from", source, "--n", 20, "-o", subset, "--sheet", sheet]
    refused = call(*draw, code=2)
    assert "20 of 20 images cannot be read" in refused
    assert "show the class" in refused
    assert sorted(tmp_path.iterdir()) == [source]
    monkeypatch.chdir(tmp_path)
    for path in map(pathlib.Path, paths):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(str(path).encode())
    assert "ann_key.csv names the originals" in call(*draw)
    assert "class" not in sheet.read_text()
    original = dict(pl.read_csv(key).select("name", "path").iter_rows())
    blind = pl.read_csv(sheet)
    assert sorted(original.values()) == sorted(paths)
    for name, copied in blind.select("sample_id", "path").iter_rows():
        assert (tmp_path / copied).read_text() == original[name]
        assert copied == f"ann_images/{name}.PNG"
    label = [original[name].split("/")[0] for name in blind["sample_id"]]
    blind.with_columns(label=pl.Series(label)).write_csv(sheet)
    assert "ann: accuracy, this set: 100%" in call("score", subset, "--answers", sheet)
    score = call("score", subset, "--labels", sheet, "--predictions", "net.csv", code=2)
    assert "net.csv does not exist" in score
    assert "ann_images exists" in call(*draw, code=2)
