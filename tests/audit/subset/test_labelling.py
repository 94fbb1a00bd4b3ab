"""Sets without classes and people as labellers: sheets, scores, agreement, kappa; the commands."""

from __future__ import annotations

import pathlib

import numpy as np
import polars as pl
import pytest

from audit.errors import UsageError
from audit.subset import Baseline, Goal, draw_subset, make_plan, score_subset
from audit.subset.labelling import compare_people, human_text, labelling_sheet, with_sheet
from audit.subset.predictions import UNLABELLED
from tests.audit.subset.commands import call
from tests.audit.subset.frames import drawn, made_set, predicted


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


def test_a_sheet_is_blind_and_each_copy_has_its_own_order(rows):
    one, two = labelling_sheet(rows, 1), labelling_sheet(rows, 2)
    assert one.columns == ["sample_id", "path", "label"]
    assert set(one["label"]) == {""}
    assert one["sample_id"].to_list() != two["sample_id"].to_list() != rows["sample_id"].to_list()
    assert set(one["sample_id"]) == set(two["sample_id"]) == set(rows["sample_id"])


def test_unlabelled_examples_are_chosen_by_confidence_and_scored(frame, pool, model):
    plan = make_plan(pool, Goal(n=300), by=["confidence"], predictions=[model])
    assert len(plan.strata) == 5
    known = pool.join(model.select("sample_id", "confidence"), on="sample_id")
    rows = draw_subset(known, plan.recipe, 1).rows
    labelled = with_sheet(rows, filled(frame, rows), "sheet")
    baseline = Baseline.of(pool, model, plan.recipe, "model")
    found = score_subset(labelled, [model], baseline=baseline).models[0]
    truth = float((model["prediction"] == frame["label"]).mean())
    for metric in (*found.metrics, *found.with_baseline):
        assert metric.estimands["full-set"].low < truth < metric.estimands["full-set"].high
    assert "expects" in found.with_baseline[0].method


def test_confidence_narrows_a_plain_sample(frame, pool, model):
    rows = drawn(pool, 400, 2)
    labelled = with_sheet(rows, filled(frame, rows), "sheet")
    found = score_subset(labelled, [model], baseline=Baseline.of(pool, model)).models[0]
    plain, known = (m[0].estimands["full-set"] for m in (found.metrics, found.with_baseline))
    assert known.effective_n > 1.15 * plain.effective_n


def test_without_confidence_an_unlabelled_set_has_no_baseline(pool, model):
    with pytest.raises(UsageError, match="confidence"):
        Baseline.of(pool, model.drop("confidence"))


def test_sheets_must_be_filled(frame, rows):
    sheet = filled(frame, rows)
    with pytest.raises(UsageError, match="Fill in all of them"):
        with_sheet(rows, labelling_sheet(rows), "sheet")
    twice = pl.concat([sheet, sheet.head(1).with_columns(label=pl.lit("other"))])
    with pytest.raises(UsageError, match="two labels"):
        with_sheet(rows, twice, "sheet")


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
    assert "kappa, full-set" in human_text(found)


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


def test_the_commands(frame, rows, tmp_path):
    subset, sheet = tmp_path / "s.parquet", tmp_path / "sheet.csv"
    rows.write_parquet(subset)
    assert "400 examples to label" in call("sheet", subset, "-o", sheet)
    assert "Fill in" in call("score", subset, "--predictions", sheet, "--labels", sheet, code=2)
    for name, seed in (("ann", 1), ("bob", 2)):
        filled(frame, rows, 0.1, seed).write_csv(tmp_path / f"{name}.csv")
    said = call("human", subset, "--sheet", tmp_path / "ann.csv", "--sheet", tmp_path / "bob.csv")
    assert "ann: accuracy, full-set: " in said
    predicted(frame, 0.8, 1).write_csv(tmp_path / "net.csv")
    call("score", subset, "--labels", tmp_path / "ann.csv", "--predictions", tmp_path / "net.csv")


def test_misspelt_labels_are_refused_with_the_nearest_class(frame, rows, tmp_path):
    subset, sheet = tmp_path / "s.parquet", tmp_path / "ann.csv"
    rows, frame = (table.with_columns(pl.col("label").replace("class1", "bird"))
                   for table in (rows.drop("set_classes"), frame))  # fmt: skip
    rows.write_parquet(subset)
    right = filled(frame, rows)
    misspelt = pl.when(pl.int_range(pl.len()) == 0).then(pl.lit("brid")).otherwise("label")
    right.with_columns(label=misspelt).write_csv(sheet)
    predicted(frame, 0.8, 1).write_csv(tmp_path / "net.csv")
    refusal = (
        "1 of 400 labels name a class that the set does not have: 'brid' (did you mean 'bird'?)"
    )
    score = ["score", subset, "--predictions", tmp_path / "net.csv", "--labels", sheet]
    for words in (["human", subset, "--sheet", sheet], score):
        assert refusal in call(*words, code=2)
    counted = call("human", subset, "--sheet", sheet, "--unknown", "wrong")
    assert "accuracy, full-set: 99.7" in counted
    assert f"ann: {refusal}. They were counted as wrong." in counted
    # without classes, the first sheet is the truth of the second
    pool = rows.with_columns(label=pl.lit(UNLABELLED))
    with pytest.raises(UsageError, match="did you mean 'bird'"):
        compare_people(pool, [right, pl.read_csv(sheet)])


def test_a_sheet_shows_no_class_of_its_folders(frame, tmp_path, monkeypatch):
    rows = drawn(frame, 20, 4)
    paths = [f"{label}/{k}.PNG" for k, label in enumerate(rows["label"])]
    rows = rows.with_columns(path=pl.Series(paths), sample_id=pl.Series(paths))
    rows.write_parquet(subset := tmp_path / "s.parquet")
    sheet, key = tmp_path / "ann.csv", tmp_path / "ann_key.csv"
    refused = call("sheet", subset, "-o", sheet, code=2)
    assert "20 of 20 images cannot be read" in refused
    assert "show the class" in refused
    assert sorted(tmp_path.iterdir()) == [subset]
    monkeypatch.chdir(tmp_path)
    for path in map(pathlib.Path, paths):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(str(path).encode())
    assert "ann_key.csv names the originals" in call("sheet", subset, "-o", sheet)
    assert "class" not in sheet.read_text()
    original = dict(pl.read_csv(key).select("name", "path").iter_rows())
    blind = pl.read_csv(sheet)
    assert sorted(original.values()) == sorted(paths)
    for name, copied in blind.select("sample_id", "path").iter_rows():
        assert (tmp_path / copied).read_text() == original[name]
        assert copied == f"ann_images/{name}.PNG"
    label = [original[name].split("/")[0] for name in blind["sample_id"]]
    blind.with_columns(label=pl.Series(label)).write_csv(sheet)
    assert "ann: accuracy, full-set: 100 %" in call("human", subset, "--sheet", sheet)
    score = call("score", subset, "--labels", sheet, "--predictions", "net.csv", code=2)
    assert "net.csv does not exist" in score
    assert "ann_images exists" in call("sheet", subset, "-o", sheet, code=2)
