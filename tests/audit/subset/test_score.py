"""Scores: exact cases by hand, verdicts, missing and unknown predictions, prefixes, formats."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import polars as pl
import pytest

from audit.errors import UsageError
from audit.statistics import intervals as stats
from audit.subset import (
    Goal,
    census,
    draw_subset,
    first_units,
    load_recipe,
    make_plan,
    score_subset,
)
from audit.subset.predictions import read_predictions, read_table
from audit.subset.text import score_text
from tests.audit.subset.frames import drawn, made_set, predicted


@pytest.fixture(scope="module")
def frame():
    return made_set(2000, 4, seed=2)


def test_a_plain_sample_scores_like_the_textbook():
    frame = made_set(1000, 1).with_columns(label=pl.lit("class0"))
    rows = drawn(frame, 200)
    said = pl.when(pl.col("rank") <= 150).then(pl.lit("class0")).otherwise(pl.lit("class4"))
    table = rows.select("sample_id", prediction=said)
    found = score_subset(rows, [table], unknown="wrong").models[0].metrics[0].estimands
    low, high = stats.wilson(150, 200)
    assert (found["generalisation"].low, found["generalisation"].high) == (
        pytest.approx(low), pytest.approx(high),
    )  # fmt: skip
    n = 200 * 999 / 800
    low, high = stats.wilson_share(0.75, n)
    assert found["full-set"].low == pytest.approx(low)
    assert found["full-set"].effective_n == pytest.approx(n)


def test_half_of_the_set_and_more_uses_exact_limits():
    frame = made_set(400, 1)
    rows = drawn(frame, 300)
    table = predicted(frame, 1.0, 1).with_columns(
        prediction=pl.when(pl.int_range(pl.len()) % 4 == 0)
        .then(pl.lit("class4"))
        .otherwise("prediction")
    )
    count = score_subset(rows, [table], unknown="wrong")
    right = count.models[0].classes[0].right
    low, high = stats.hypergeometric_limits(right, 300, 400)
    found = count.models[0].metrics[0].estimands["full-set"]
    assert (found.low, found.high) == (low / 400, high / 400)


def test_counts_in_words(frame):
    rows = drawn(frame, 80)
    found = score_subset(rows, [predicted(frame, 0.85, 3)]).models[0].classes[1]
    assert found.sentence == (
        f"{found.right} of {found.n} right; one more right answer moves recall by "
        f"{100 / found.n:.1f} points"
    )


@pytest.mark.slow
def test_the_whole_set_is_known(frame):
    rows = census(frame).rows
    a, b = predicted(frame, 0.8, 1), predicted(frame, 0.83, 2)
    found = score_subset(rows, [a, b], metrics=["accuracy", "macro-f1"])
    truth = float((a["prediction"] == frame["label"]).mean())
    exact = found.models[0].metrics[0].estimands["full-set"]
    assert (exact.value, exact.low, exact.high, exact.known) == (truth, truth, truth, True)
    assert found.models[0].metrics[0].estimands["generalisation"].high > truth
    f1 = found.models[0].metrics[1].estimands["full-set"]
    assert f1.low == f1.high == f1.value
    gap = found.comparison.estimands["full-set"]
    assert gap.value == gap.low == gap.high
    assert "known exactly" in gap.sentence
    assert any("whole set" in note for note in found.notes)


def test_metrics_of_the_whole_set_are_their_definitions(frame):
    table = predicted(frame, 0.8, 1)
    label, said = frame["label"].to_numpy(), table["prediction"].to_numpy()
    own, called, right = label == "class1", said == "class1", label == said
    recall, f1 = (
        [2 * np.sum(right & (label == k)) / (np.sum(label == k) + np.sum(other == k))
         for k in np.unique(label)]
        for other in (label, said)
    )  # fmt: skip
    wanted = {
        "accuracy": right.mean(), "recall:class1": right[own].mean(),
        "specificity:class1": 1 - called[~own].mean(), "precision:class1": own[called].mean(),
        "macro-recall": np.mean(recall), "macro-f1": np.mean(f1),
    }  # fmt: skip
    found = score_subset(census(frame).rows, [table], metrics=list(wanted)).models[0].metrics
    values = {one.metric: one.estimands["full-set"].value for one in found}
    assert values == pytest.approx(wanted)


def test_verdicts(frame):
    rows = drawn(frame, 300)
    worse, better = predicted(frame, 0.6, 1), predicted(frame, 0.9, 2)
    up = score_subset(rows, [worse, better], names=["old", "new"]).comparison.estimands
    assert {d.verdict for d in up.values()} == {"better"}
    assert up["full-set"].sentence.startswith("new is better than old: +")
    down = score_subset(rows, [better, worse]).comparison.estimands["generalisation"]
    assert down.verdict == "worse"
    close = score_subset(rows, [predicted(frame, 0.8, 5), predicted(frame, 0.81, 6)]).comparison
    general = close.estimands["generalisation"]
    assert general.verdict == "cannot tell"
    assert general.n_to_tell > 300
    assert f"about {general.n_to_tell} units would tell" in general.sentence


@pytest.mark.slow
def test_the_n_that_could_tell_can_tell():
    """Draws of the size that the verdict names tell a true difference of that size 4 times in 5."""
    frame = made_set(12_000, 1, seed=8)
    a, b = predicted(frame, 0.80, 1), predicted(frame, 0.86, 2)
    recipe = make_plan(frame, Goal(n=200)).recipe
    for seed in range(50):
        rows = draw_subset(frame, recipe, seed).rows
        scored = score_subset(rows, [a, b], unknown="wrong").comparison
        gap = scored.estimands["generalisation"]
        if gap.verdict == "cannot tell" and abs(gap.value - 0.06) < 0.01:
            break
    told = 0
    for seed in range(40):
        rows = draw_subset(frame, recipe, seed, n=gap.n_to_tell).rows
        scored = score_subset(rows, [a, b], unknown="wrong").comparison
        told += scored.estimands["generalisation"].verdict == "better"
    assert 26 <= told <= 39


def test_mcnemar_only_where_it_is_valid(frame):
    a, b = predicted(frame, 0.8, 1), predicted(frame, 0.8, 2)
    plain = made_set(2000, 1, seed=2)
    tables = [predicted(plain, 0.8, 1), predicted(plain, 0.85, 2)]
    found = score_subset(drawn(plain, 200), tables, unknown="wrong").comparison
    assert found.mcnemar_p == pytest.approx(
        float(stats.mcnemar(found.second_only, found.first_only))
    )
    told = found.estimands["generalisation"].verdict != "cannot tell"
    assert told == (found.mcnemar_p <= 0.05)
    unequal = score_subset(drawn(frame, 200, allocation="equal"), [a, b]).comparison
    assert unequal.mcnemar_p is None
    assert "unequal weights" in unequal.notes[0]
    grouped = made_set(900, 2, groups=100)
    rows = drawn(grouped, 40, group="patient")
    both = score_subset(rows, [predicted(grouped, 0.8, 1), predicted(grouped, 0.8, 2)]).comparison
    assert both.mcnemar_p is None
    assert "several files" in both.notes[0]
    assert not any("rough" in note for note in [*both.notes, *scored_notes(rows, grouped)])
    few = drawn(grouped, 6, group="patient")
    assert any("interval of accuracy is rough" in note for note in scored_notes(few, grouped))
    tables = [predicted(grouped, 0.8, 1), predicted(grouped, 0.8, 2)]
    assert any("verdict is rough" in note for note in score_subset(few, tables).comparison.notes)


def scored_notes(rows, frame):
    return score_subset(rows, [predicted(frame, 0.8, 1)]).models[0].notes


@pytest.mark.slow
def test_equal_models_are_rarely_told_apart_on_a_lopsided_subset():
    """Two strata, 95 to 5, equal allocation, models that trade the strata: nominal 5 %.

    The second model gains 2 % in the large stratum and loses 38 % in the small one: the same
    accuracy overall, though counts of the subset alone say it is far worse.
    """
    rng = np.random.default_rng(4)
    n = 4000
    small = np.arange(n) % 20 == 0
    frame = made_set(n, 1).with_columns(label=pl.Series(np.where(small, "rare", "common")))
    right_a = rng.uniform(size=n) < np.where(small, 0.9, 0.8)
    right_b = rng.uniform(size=n) < np.where(small, 0.52, 0.82)

    def table(right):
        wrong = np.where(small, "common", "rare")
        return pl.DataFrame({"sample_id": frame["sample_id"],
                             "prediction": np.where(right, frame["label"], wrong)})  # fmt: skip

    truth = right_b.mean() - right_a.mean()
    recipe = make_plan(frame, Goal(n=400), allocation="equal").recipe
    wrong = plain_wrong = 0
    for seed in range(60):
        found = score_subset(
            draw_subset(frame, recipe, seed).rows, [table(right_a), table(right_b)]
        ).comparison
        gap = found.estimands["full-set"]
        wrong += not gap.low <= truth <= gap.high
        plain_wrong += bool(stats.mcnemar(found.second_only, found.first_only) <= 0.05)
    assert wrong <= 9  # 5 % of 60 is 3; more than 9 has a chance below 0.1 %
    assert plain_wrong == 60  # what the plain test would have said, every time


def test_auroc_and_user_metrics():
    frame = made_set(600, 2)
    rng = np.random.default_rng(1)
    p = np.clip(rng.normal(np.where(frame["label"] == "class1", 0.6, 0.4), 0.2), 0, 1)
    table = pl.DataFrame({"sample_id": frame["sample_id"], "prob_class1": p,
                          "prediction": np.where(p > 0.5, "class1", "class0")})  # fmt: skip
    rows = drawn(frame, 150)

    def error_rate(labels, predicted, weights):
        return float(((labels != predicted) * weights).sum() / weights.sum())

    found = score_subset(rows, [table], metrics=["auroc"], user_metrics={"errors": error_rate})
    area, errors = found.models[0].metrics
    assert 0.65 < area.estimands["full-set"].value < 0.9
    accuracy = score_subset(rows, [table]).models[0].metrics[0].estimands["full-set"].value
    assert errors.estimands["full-set"].value == pytest.approx(1 - accuracy)
    assert errors.estimands["full-set"].low < errors.estimands["full-set"].value
    with pytest.raises(UsageError, match="no column 'prob_class"):
        score_subset(rows, [table.drop("prob_class1")], metrics=["auroc"])


def test_suspected_mislabels_come_out(frame):
    rows = drawn(frame, 600)
    found = score_subset(rows, [predicted(frame, 0.8, 1)])
    assert found.suspected == rows["suspected_mislabel"].sum() > 0
    (without,) = found.models[0].without_suspected
    assert without.metric == "accuracy"
    assert without.estimands["full-set"] != found.models[0].metrics[0].estimands["full-set"]


def test_padded_and_shuffled_batches_and_paths_as_ids_change_nothing(frame):
    rows, table = drawn(frame, 100), predicted(frame, 0.8, 1)
    padded = pl.concat([table, table.head(500)]).sample(fraction=1.0, shuffle=True, seed=1)
    by_path = table.select("prediction", path="/data/" + pl.col("sample_id"))
    plain, *others = (score_subset(rows, [t]).models[0].metrics for t in (table, padded, by_path))
    assert others == [plain, plain]


def test_unknown_ids_are_listed_and_counted(frame):
    rows = drawn(frame, 100)
    notes = score_subset(rows, [predicted(frame, 0.8, 1)]).models[0].notes
    assert "1900 predictions are for examples that are not in the subset" in notes[0]
    assert "test/" in notes[0]


def test_missing_predictions(frame):
    rows = drawn(frame, 100)
    table = predicted(frame, 1.0, 1).filter(
        pl.col("sample_id").is_in(rows["sample_id"][:90].implode())
    )
    with pytest.raises(UsageError, match=r"10 of 100 examples have no prediction, such as 'test/"):
        score_subset(rows, [table])
    wrong = score_subset(rows, [table], missing="wrong").models[0]
    assert sum(c.right for c in wrong.classes) == 90
    assert sum(c.n for c in wrong.classes) == 100
    assert "counted as wrong" in wrong.notes[-1]
    dropped = score_subset(rows, [table], missing="drop").models[0]
    assert dropped.metrics[0].estimands["full-set"].value == 1.0
    assert sum(c.n for c in dropped.classes) == 90
    assert "dropped" in dropped.notes[-1]


def test_a_shorter_subset_scores_with_its_own_weights(frame):
    rows, table = drawn(frame, 300), predicted(frame, 0.8, 1)
    recipe = make_plan(frame, Goal(n=300)).recipe
    fresh = draw_subset(frame, recipe, 1, n=120).rows
    assert (
        score_subset(first_units(rows, 120), [table]).models[0].metrics
        == score_subset(fresh, [table]).models[0].metrics
    )


def test_the_document_and_the_text(frame):
    found = score_subset(
        drawn(frame, 100, looks=3), [predicted(frame, 0.8, 1), predicted(frame, 0.85, 2)]
    )
    document = json.loads(json.dumps(found.document(), allow_nan=False))
    assert document["schema"] == "subset-score/1"
    text = score_text(found, by_class=True)
    assert "fresh draw" in text
    assert "3 comparisons fixed in advance" in text
    assert "right; one more right answer moves recall by" in text
    first = found.models[0].classes[0].recall["generalisation"]
    assert f"{100 * first.low:.1f} to {100 * first.high:.1f} % for new data" in text
    noisy = score_subset(drawn(frame, 100), [predicted(frame, 0.8, 1), predicted(frame, 0.85, 2)],
                  label_noise=0.05)  # fmt: skip
    assert any("Wrong labels at a rate of 0.05" in note for note in noisy.comparison.notes)


def good(rows):
    return rows.select("sample_id", prediction="label")


BAD_PREDICTIONS = [
    (lambda t: t.drop("prediction"), "no predicted label column"),
    (lambda t: t.drop("sample_id"), "no id column"),
    (lambda t: t.with_columns(confidence=1.2), r"'confidence' is missing, NaN or outside \[0, 1\]"),
    (
        lambda t: t.with_columns(prob_class0=float("nan")),
        "'prob_class0' is missing, NaN or outside",
    ),
    (lambda t: t.with_columns(sample_id="x" + pl.col("sample_id")), "none of its 100 predictions"),
    (lambda t: t.with_columns(prediction=pl.lit("7")), "is a class of the set"),
    (lambda t: t.with_columns(prediction=pl.lit(0.37)), "which name no class"),
    (lambda t: pl.concat([t, t.with_columns(prediction=pl.lit("class9"))]), "predicted twice"),
]


@pytest.mark.parametrize(("spoil", "sentence"), BAD_PREDICTIONS)
def test_bad_predictions(frame, spoil, sentence):
    rows = drawn(frame, 100)
    with pytest.raises(UsageError, match=sentence):
        score_subset(rows, [spoil(good(rows))])


BAD_SUBSETS = [
    (lambda r: r.drop("weight"), "no column 'weight'"),
    (lambda r: r.head(0), "no rows"),
    (lambda r: r.head(80), "Rows are missing from this subset"),
    (lambda r: r.with_columns(weight=pl.lit(float("nan"))), "100 of 100 rows have no label, or no"),
    (lambda r: r.with_columns(label=pl.lit(None, pl.String)), "The subset is damaged"),
    (lambda r: r.with_columns(N_h=pl.col("N_h") + pl.col("rank") % 2), "different draws"),
]


@pytest.mark.parametrize(("spoil", "sentence"), BAD_SUBSETS)
def test_bad_subsets(frame, spoil, sentence):
    rows = drawn(frame, 100)
    with pytest.raises(UsageError, match=sentence):
        score_subset(spoil(rows), [good(rows)])


def test_bad_scores(frame):
    rows = drawn(frame, 100)
    with pytest.raises(UsageError, match="takes one or two"):
        score_subset(rows, [good(rows)] * 3)
    with pytest.raises(UsageError, match="No example of class 'cat'"):
        score_subset(rows, [good(rows)], metrics=["recall:cat"])
    with pytest.raises(UsageError, match="choose refuse, wrong, drop"):
        score_subset(rows, [good(rows)], missing="guess")


def test_prediction_files(tmp_path):
    (tmp_path / "a.csv").write_text("id,pred\nx,1\ny,2\n")
    assert read_predictions(tmp_path / "a.csv")["prediction"].to_list() == ["1", "2"]
    (tmp_path / "bad.parquet").write_text("not parquet")
    with pytest.raises(UsageError, match="cannot be read as a table"):
        read_predictions(tmp_path / "bad.parquet")
    with pytest.raises(UsageError, match="does not exist"):
        read_predictions(tmp_path / "none.csv")


def test_numbers_as_names(tmp_path):
    """Ids such as 007 and classes such as 1 stay names through CSV; NaN is a missing prediction."""
    frame = made_set(60, 2).with_columns(
        sample_id=pl.format("{}", pl.int_range(pl.len())).str.zfill(3),
        label=pl.col("label").str.slice(5),
    )
    rows = drawn(frame, 20)
    rows.write_csv(tmp_path / "s.csv")
    rows.select("sample_id", prediction="label").write_csv(tmp_path / "a.csv")
    read = read_table(tmp_path / "s.csv", "subset")
    found = score_subset(read, [read_predictions(tmp_path / "a.csv")])
    assert found.models[0].metrics[0].estimands["generalisation"].value == 1
    gaps = rows.select("sample_id", prediction=pl.col("label").cast(pl.Float64)).with_columns(
        prediction=pl.when(pl.int_range(pl.len()) < 3).then(float("nan")).otherwise("prediction")
    )
    with pytest.raises(UsageError, match="3 of 20 examples have no prediction"):
        score_subset(rows, [gaps])
    assert sum(c.right for c in score_subset(rows, [gaps], missing="wrong").models[0].classes) == 17


def test_a_class_without_predictions_has_no_precision(frame):
    rows = drawn(frame, 100)
    table = good(rows).with_columns(prediction=pl.lit("class0"))
    found = score_subset(rows, [table], metrics=["precision:class1"]).models[0].metrics[0]
    assert math.isnan(found.estimands["full-set"].value)
    assert "nothing to go by" in score_text(
        score_subset(rows, [table], metrics=["precision:class1"])
    )


@pytest.mark.parametrize(
    ("name", "said"), [("Class1 ", "did you mean 'class1'"), ("nan", "'nan'"), ("horse", "'horse'")]
)
def test_a_class_that_the_set_does_not_have_is_refused(name, said) -> None:
    frame = made_set(300, 3)
    rows = drawn(frame, 90, 1)
    answers = frame.select("sample_id", prediction="label").with_columns(
        pl.col("prediction").str.replace("class1", name, literal=True)
    )
    with pytest.raises(UsageError, match=re.escape(said)):
        score_subset(rows, [answers])
    allowed = score_subset(rows, [answers], unknown="wrong")
    assert allowed.models[0].metrics[0].estimands["full-set"].value < 1


def test_classes_that_the_set_does_not_have_are_named_in_a_fixed_order(frame) -> None:
    rows = drawn(frame, 100)
    names = [f"animal {letter}" for letter in "jihgfedcba"]
    answers = rows.select("sample_id", prediction=pl.Series(["class0"] * 50 + names * 5))
    with pytest.raises(UsageError, match="not have: 'animal a', 'animal b', 'animal c'"):
        score_subset(rows, [answers])


def test_recall_without_a_class_is_each_class() -> None:
    frame = made_set(300, 3)
    rows = drawn(frame, 90, 1)
    answers = frame.select("sample_id", prediction="label")
    scored = score_subset(rows, [answers], metrics=["recall"]).models[0].metrics
    assert [m.metric for m in scored] == ["recall:class0", "recall:class1", "recall:class2"]
    with pytest.raises(UsageError, match="one number per class"):
        score_subset(rows, [answers, answers], metrics=["recall"])


def test_a_subset_is_scored_as_it_was_planned(tmp_path) -> None:
    frame = made_set(600, 3)
    recipe = make_plan(frame, Goal(n=90, confidence=0.9, looks=3)).recipe
    assert recipe.hash == make_plan(frame, Goal(n=90)).recipe.hash  # the same rows
    made = tmp_path / "plan.json"
    make_plan(frame, Goal(n=90, confidence=0.9, looks=3)).save(made)
    subset = draw_subset(frame, load_recipe(made), 1).rows
    subset.write_csv(tmp_path / "subset.csv")
    rows = read_table(tmp_path / "subset.csv", "subset")
    model = predicted(frame, 0.8, 1)

    def interval(table, **options):
        return score_subset(table, [model], **options).models[0].metrics[0].estimands

    unplanned = rows.drop("planned_confidence", "planned_looks")
    assert interval(rows) == interval(unplanned, confidence=0.9, looks=3)
    assert interval(rows) == interval(rows, confidence=0.9, looks=3)
    assert interval(unplanned) == interval(unplanned, confidence=0.95, looks=1)
    assert interval(first_units(rows, 60)) == interval(first_units(unplanned, 60), confidence=0.9,
                                                       looks=3)  # fmt: skip
    with pytest.raises(UsageError, match="--looks is 1, and this subset was planned for 3"):
        score_subset(rows, [model], looks=1)
    with pytest.raises(UsageError, match="--confidence is 0"):
        score_subset(rows, [model], confidence=0.95)


def test_label_noise_of_one_model_says_what_accuracy_can_be_seen():
    frame = made_set(4000, 5)
    rows, model = drawn(frame, 400), predicted(frame, 0.9, 1)
    found = score_subset(rows, [model], label_noise=0.04).models[0]
    seen = found.metrics[0].estimands["full-set"].value
    # 4 % of the labels are moved to one of 4 others: 0.96 a + 0.01 (1 - a)
    note = f"1.00 to 96.00 % can be seen; {100 * seen:.2f} % seen is {(seen - 0.01) / 0.0095:.2f} %"
    assert note in found.notes[-1]
    right = score_subset(rows, [good(rows)], label_noise=0.04).models[0]
    assert "seen lies outside" in right.notes[-1]
    pair = score_subset(rows, [model, good(rows)], metrics=["macro-f1"], label_noise=0.04)
    assert all("can be seen" in one.notes[-1] for one in pair.models)
    for rate in (-1, 0.8, 0.95, math.nan):
        with pytest.raises(UsageError, match="leaves no signal with 5 classes"):
            score_subset(rows, [model], label_noise=rate)
    single = rows.with_columns(label=pl.lit("cat"), set_classes=None)
    with pytest.raises(UsageError, match="at least 2 classes"):
        score_subset(single, [good(single)], label_noise=0.04)
