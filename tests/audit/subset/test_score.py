"""Scores: exact cases by hand, verdicts, missing and unknown predictions, prefixes, formats."""

import importlib.util
import json
import math
import re
import sys

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

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
from audit.subset.estimate import proportion_interval
from audit.subset.goal import ESTIMANDS
from audit.subset.metrics import Design, macro_f1, macro_recall
from audit.subset.predictions import read_predictions, read_table
from audit.subset.strata import allocate
from audit.subset.text import score_text
from tests.audit.subset.frames import ROW, drawn, estimands, made_set, predicted, replaced
from tests.conftest import ROOT


@pytest.fixture(scope="module")
def frame():
    return made_set(2000, 4, seed=2)


def test_a_plain_sample_scores_like_the_textbook():
    rows = drawn(made_set(1000, 1), 200)
    found = estimands(rows, replaced(good(rows), ROW >= 150, "class4"), unknown="wrong")
    n = 200 * 999 / 800
    for estimand, limits in (
        ("generalisation", stats.wilson(150, 200)),
        ("full-set", stats.wilson_share(0.75, n)),
    ):
        assert (found[estimand].low, found[estimand].high) == pytest.approx(
            tuple(map(float, limits))
        )
    assert found["full-set"].effective_n == pytest.approx(n)


def test_half_of_the_set_and_more_uses_exact_limits():
    frame = made_set(400, 1)
    table = replaced(predicted(frame, 1.0, 1), ROW % 4 == 0, "class4")
    model = score_subset(drawn(frame, 300), [table], unknown="wrong").models[0]
    low, high = stats.hypergeometric_limits(model.classes[0].right, 300, 400)
    found = model.metrics[0].estimands["full-set"]
    assert (found.low, found.high) == (low / 400, high / 400)


@pytest.mark.slow
def test_the_whole_set_is_known(frame):
    a, b = predicted(frame, 0.8, 1), predicted(frame, 0.83, 2)
    found = score_subset(census(frame).rows, [a, b], metrics=["accuracy", "macro-f1"])
    truth = float((a["prediction"] == frame["label"]).mean())
    accuracy, f1 = (metric.estimands for metric in found.models[0].metrics)
    exact = accuracy["full-set"]
    assert (exact.value, exact.low, exact.high, exact.known) == (truth, truth, truth, True)
    assert accuracy["generalisation"].high > truth
    gap = found.comparison.estimands["full-set"]
    for known in (f1["full-set"], gap):
        assert known.value == known.low == known.high
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

    def compared(first, second, **options):
        return score_subset(rows, [first, second], **options).comparison.estimands

    worse, better = predicted(frame, 0.6, 1), predicted(frame, 0.9, 2)
    up = compared(worse, better, names=["old", "new"])
    assert {d.verdict for d in up.values()} == {"better"}
    assert up["full-set"].sentence.startswith("new is better than old: +")
    assert compared(better, worse)["generalisation"].verdict == "worse"
    close = compared(predicted(frame, 0.8, 5), predicted(frame, 0.81, 6))["generalisation"]
    assert close.verdict == "inconclusive"
    assert close.n_to_tell > 300
    assert f"about {close.n_to_tell} units would detect" in close.sentence


@pytest.mark.slow
def test_the_n_that_could_tell_can_tell():
    """Draws of the size that the verdict names tell a true difference of that size 4 times in 5."""
    frame = made_set(12_000, 1, seed=8)
    tables = [predicted(frame, 0.80, 1), predicted(frame, 0.86, 2)]
    recipe = make_plan(frame, Goal(n=200)).recipe

    def compared(seed, **options):
        rows = draw_subset(frame, recipe, seed, **options).rows
        return score_subset(rows, tables, unknown="wrong").comparison.estimands["generalisation"]

    gap = next(
        gap
        for gap in map(compared, range(50))
        if gap.verdict == "inconclusive" and abs(gap.value - 0.06) < 0.01
    )
    told = sum(compared(seed, n=gap.n_to_tell).verdict == "better" for seed in range(40))
    assert 26 <= told <= 39


def test_mcnemar_only_where_it_is_valid(frame):
    def compared(frame, rows, second=0.8, **options):
        tables = [predicted(frame, 0.8, 1), predicted(frame, second, 2)]
        return score_subset(rows, tables, **options).comparison

    plain = made_set(2000, 1, seed=2)
    found = compared(plain, drawn(plain, 200), 0.85, unknown="wrong")
    expected = float(stats.mcnemar(found.second_only, found.first_only))
    assert found.mcnemar_p == pytest.approx(expected)
    told = found.estimands["generalisation"].verdict != "inconclusive"
    assert told == (found.mcnemar_p <= 0.05)
    grouped = made_set(900, 2, groups=100)
    many, few = (drawn(grouped, n, group="patient") for n in (40, 6))
    for of, rows, why in (
        (frame, drawn(frame, 200, allocation="equal"), "unequal weights"),
        (grouped, many, "several files"),
    ):
        found = compared(of, rows)
        assert found.mcnemar_p is None
        assert why in found.notes[0]
    alone, alone_few = (
        score_subset(rows, [predicted(grouped, 0.8, 1)]).models[0].notes for rows in (many, few)
    )
    assert not any("rough" in note for note in [*found.notes, *alone])
    assert any("interval of accuracy is rough" in note for note in alone_few)
    assert any("verdict is rough" in note for note in compared(grouped, few).notes)


@pytest.mark.slow
def test_equal_models_are_rarely_told_apart_on_a_lopsided_subset():
    """Two strata, 95 to 5, equal allocation, models that trade the strata: nominal 5 %.

    The second model gains 2 % in the large stratum and loses 38 % in the small one: the same
    accuracy overall, though counts of the subset alone say it is far worse.
    """
    rng, n = np.random.default_rng(4), 4000
    small = np.arange(n) % 20 == 0
    label, other = np.where(small, "rare", "common"), np.where(small, "common", "rare")
    frame = made_set(n, 1).with_columns(label=pl.Series(label))
    right = [rng.uniform(size=n) < np.where(small, *p) for p in ((0.9, 0.8), (0.52, 0.82))]
    tables = [frame.select("sample_id", prediction=pl.Series(np.where(r, label, other)))
              for r in right]  # fmt: skip
    truth = right[1].mean() - right[0].mean()
    recipe = make_plan(frame, Goal(n=400), allocation="equal").recipe
    wrong = plain_wrong = 0
    for seed in range(60):
        found = score_subset(draw_subset(frame, recipe, seed).rows, tables).comparison
        gap = found.estimands["full-set"]
        wrong += not gap.low <= truth <= gap.high
        plain_wrong += bool(stats.mcnemar(found.second_only, found.first_only) <= 0.05)
    assert wrong <= 9  # 5 % of 60 is 3; more than 9 has a chance below 0.1 %
    assert plain_wrong == 60  # what the plain test would have said, every time


def test_auroc():
    frame = made_set(600, 2)
    rng = np.random.default_rng(1)
    p = np.clip(rng.normal(np.where(frame["label"] == "class1", 0.6, 0.4), 0.2), 0, 1)
    table = pl.DataFrame({"sample_id": frame["sample_id"], "prob_class1": p,
                          "prediction": np.where(p > 0.5, "class1", "class0")})  # fmt: skip
    rows = drawn(frame, 150)

    found = score_subset(rows, [table], metrics=["auroc"])
    (area,) = (one.estimands["full-set"] for one in found.models[0].metrics)
    assert 0.65 < area.value < 0.9
    with pytest.raises(UsageError, match="no column 'prob_class"):
        score_subset(rows, [table.drop("prob_class1")], metrics=["auroc"])


def test_suspected_mislabels_come_out_and_unknown_ids_are_counted(frame):
    rows = drawn(frame, 600)
    found = score_subset(rows, [predicted(frame, 0.8, 1)])
    assert found.suspected == rows["suspected_mislabel"].sum() > 0
    (model,) = found.models
    (without,) = model.without_suspected
    assert without.metric == "accuracy"
    assert without.estimands["full-set"] != model.metrics[0].estimands["full-set"]
    assert "1400 predictions are for examples that are not in the subset" in model.notes[0]
    assert "test/" in model.notes[0]


def test_padded_and_shuffled_batches_and_paths_as_ids_change_nothing(frame):
    rows, table = drawn(frame, 100), predicted(frame, 0.8, 1)
    padded = pl.concat([table, table.head(500)]).sample(fraction=1.0, shuffle=True, seed=1)
    by_path = table.select("prediction", path="/data/" + pl.col("sample_id"))
    plain, *others = (score_subset(rows, [t]).models[0].metrics for t in (table, padded, by_path))
    assert others == [plain, plain]


def test_missing_predictions(frame):
    rows = drawn(frame, 100)
    table = good(rows.head(90))
    with pytest.raises(UsageError, match=r"10 of 100 examples have no prediction, such as 'test/"):
        score_subset(rows, [table])
    for missing, n, note in (("wrong", 100, "counted as wrong"), ("drop", 90, "dropped")):
        found = score_subset(rows, [table], missing=missing).models[0]
        assert sum(c.right for c in found.classes) == 90
        assert sum(c.n for c in found.classes) == n
        assert note in found.notes[-1]
    assert found.metrics[0].estimands["full-set"].value == 1.0


def test_a_shorter_subset_scores_with_its_own_weights(frame):
    table = predicted(frame, 0.8, 1)
    recipe = make_plan(frame, Goal(n=300)).recipe
    fresh = draw_subset(frame, recipe, 1, n=120).rows
    assert estimands(first_units(drawn(frame, 300), 120), table) == estimands(fresh, table)


def test_the_document_and_the_text(frame):
    tables = [predicted(frame, 0.8, 1), predicted(frame, 0.85, 2)]
    found = score_subset(drawn(frame, 100, looks=3), tables)
    document = json.loads(json.dumps(found.document(), allow_nan=False))
    assert document["schema"] == "subset-score/1"
    first, text = found.models[0].classes[0], score_text(found, by_class=True)
    assert first.sentence == (
        f"{first.right} of {first.n} right; one more right answer moves recall by "
        f"{100 / first.n:.1f} points"
    )
    limits = first.recall["generalisation"]
    for part in ("fresh draw", "corrected for 3 planned comparisons",
                 "right; one more right answer moves recall by",
                 f"{100 * limits.low:.1f} to {100 * limits.high:.1f}% for new data"):  # fmt: skip
        assert part in text
    noisy = score_subset(drawn(frame, 100), tables, label_noise=0.05)
    assert any("Wrong labels at a rate of 0.05" in note for note in noisy.comparison.notes)


def good(rows):
    return rows.select("sample_id", prediction="label")


BAD_PREDICTIONS = [
    (lambda t: t.drop("prediction"), "no predicted label column"),
    (lambda t: t.drop("sample_id"), "no id column"),
    (lambda t: t.with_columns(confidence=1.2), r"'confidence' is missing, NaN or outside \[0, 1\]"),
    (lambda t: t.with_columns(prob_class0=math.nan), "'prob_class0' is missing, NaN or outside"),
    (lambda t: t.with_columns(sample_id="x" + pl.col("sample_id")), "none of its 100 predictions"),
    (lambda t: replaced(t, True, "7"), "is a class of the set"),
    (lambda t: t.with_columns(prediction=pl.lit(0.37)), "which name no class"),
    (lambda t: pl.concat([t, replaced(t, True, "class9")]), "predicted twice"),
]


BAD_SUBSETS = [
    (lambda r: r.drop("weight"), "no column 'weight'"),
    (lambda r: r.head(0), "no rows"),
    (lambda r: r.head(80), "Rows are missing from this subset"),
    (lambda r: r.with_columns(weight=pl.lit(math.nan)), "100 of 100 rows have no label, or no"),
    (lambda r: r.with_columns(label=pl.lit(None, pl.String)), "The subset is damaged"),
    (lambda r: r.with_columns(N_h=pl.col("N_h") + pl.col("rank") % 2), "different draws"),
]


def same(table):
    return table


@pytest.mark.parametrize(
    ("spoil_rows", "spoil", "sentence"),
    [(same, *case) for case in BAD_PREDICTIONS]
    + [(spoil, same, sentence) for spoil, sentence in BAD_SUBSETS],
)
def test_bad_predictions_and_subsets(frame, spoil_rows, spoil, sentence):
    rows = drawn(frame, 100)
    with pytest.raises(UsageError, match=sentence):
        score_subset(spoil_rows(rows), [spoil(good(rows))])


@pytest.mark.parametrize(
    ("tables", "options", "sentence"),
    [
        (3, {}, "takes one or two"),
        (1, {"metrics": ["recall:cat"]}, "No example of class 'cat'"),
        (1, {"missing": "guess"}, "choose refuse, wrong, drop"),
    ],
)
def test_bad_scores(frame, tables, options, sentence):
    rows = drawn(frame, 100)
    with pytest.raises(UsageError, match=sentence):
        score_subset(rows, [good(rows)] * tables, **options)


def test_prediction_files(tmp_path):
    (tmp_path / "a.csv").write_text("id,pred\nx,1\ny,2\n")
    assert read_predictions(tmp_path / "a.csv")["prediction"].to_list() == ["1", "2"]
    (tmp_path / "bad.parquet").write_text("not parquet")
    for name, sentence in (("bad.parquet", "cannot be read as a table"),
                           ("none.csv", "does not exist")):  # fmt: skip
        with pytest.raises(UsageError, match=sentence):
            read_predictions(tmp_path / name)


def test_numbers_as_names(tmp_path):
    """Ids such as 007 and classes such as 1 stay names through CSV; NaN is a missing prediction."""
    frame = made_set(60, 2).with_columns(
        sample_id=pl.format("{}", ROW).str.zfill(3), label=pl.col("label").str.slice(5)
    )
    rows = drawn(frame, 20)
    rows.write_csv(tmp_path / "s.csv")
    good(rows).write_csv(tmp_path / "a.csv")
    read = read_table(tmp_path / "s.csv", "subset")
    found = estimands(read, read_predictions(tmp_path / "a.csv"))
    assert found["generalisation"].value == 1
    gaps = replaced(good(rows).cast({"prediction": pl.Float64}), ROW < 3, math.nan)
    with pytest.raises(UsageError, match="3 of 20 examples have no prediction"):
        score_subset(rows, [gaps])
    assert sum(c.right for c in score_subset(rows, [gaps], missing="wrong").models[0].classes) == 17


def test_a_class_without_predictions_has_no_precision(frame):
    rows = drawn(frame, 100)
    score = score_subset(rows, [replaced(good(rows), True, "class0")], metrics=["precision:class1"])
    assert math.isnan(score.models[0].metrics[0].estimands["full-set"].value)
    assert "inconclusive: no example" in score_text(score)


@pytest.mark.parametrize(
    ("name", "said"), [("Class1 ", "did you mean 'class1'"), ("nan", "'nan'"), ("horse", "'horse'")]
)
def test_a_class_that_the_set_does_not_have_is_refused(frame, name, said) -> None:
    rows = drawn(frame, 90, 1)
    answers = replaced(good(rows), pl.col("prediction") == "class1", name)
    with pytest.raises(UsageError, match=re.escape(said)):
        score_subset(rows, [answers])
    assert estimands(rows, answers, unknown="wrong")["full-set"].value < 1


def test_classes_that_the_set_does_not_have_are_named_in_a_fixed_order(frame) -> None:
    rows = drawn(frame, 100)
    names = [f"animal {letter}" for letter in "jihgfedcba"]
    answers = rows.select("sample_id", prediction=pl.Series(["class0"] * 50 + names * 5))
    with pytest.raises(UsageError, match="not have: 'animal a', 'animal b', 'animal c'"):
        score_subset(rows, [answers])


def test_recall_without_a_class_is_each_class(frame) -> None:
    rows = drawn(frame, 90, 1)
    scored = score_subset(rows, [good(rows)], metrics=["recall"]).models[0].metrics
    assert [m.metric for m in scored] == [f"recall:class{k}" for k in range(4)]
    with pytest.raises(UsageError, match="one number per class"):
        score_subset(rows, [good(rows)] * 2, metrics=["recall"])


def test_a_subset_is_scored_as_it_was_planned(tmp_path) -> None:
    frame = made_set(600, 3)
    plan, model = make_plan(frame, Goal(n=90, confidence=0.9, looks=3)), predicted(frame, 0.8, 1)
    assert plan.recipe.hash == make_plan(frame, Goal(n=90)).recipe.hash  # the same rows
    plan.save(tmp_path / "plan.json")
    subset = draw_subset(frame, load_recipe(tmp_path / "plan.json"), 1).rows
    subset.write_csv(tmp_path / "subset.csv")
    rows = read_table(tmp_path / "subset.csv", "subset")
    unplanned = rows.drop("planned_confidence", "planned_looks")
    stated = {"confidence": 0.9, "looks": 3}
    for planned, without in (
        (rows, unplanned),
        (first_units(rows, 60), first_units(unplanned, 60)),
    ):
        assert estimands(planned, model) == estimands(without, model, **stated)
        assert estimands(planned, model) == estimands(planned, model, **stated)
        unstated = estimands(without, model)
        assert unstated == estimands(without, model, confidence=0.95, looks=1)
    with pytest.raises(UsageError, match="comparisons is 1, and this subset was planned for 3"):
        score_subset(rows, [model], looks=1)
    with pytest.raises(UsageError, match="--confidence is 0"):
        score_subset(rows, [model], confidence=0.95)


def test_label_noise_of_one_model_says_what_accuracy_can_be_seen():
    frame = made_set(4000, 5)
    rows, model = drawn(frame, 400), predicted(frame, 0.9, 1)
    found = score_subset(rows, [model], label_noise=0.04).models[0]
    seen = found.metrics[0].estimands["full-set"].value
    # 4 % of the labels are moved to one of 4 others: 0.96 a + 0.01 (1 - a)
    note = f"1.00 to 96.00% can be seen; {100 * seen:.2f}% seen is {(seen - 0.01) / 0.0095:.2f}%"
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


# ---- the benchmarks run, and the short cuts of the simulation are right: small, seeded ----


@pytest.fixture(scope="module")
def coverage():
    """The benchmark `subset_coverage.py` as a module."""
    folder = ROOT / "benchmarks"
    sys.path.insert(0, str(folder))  # where its neighbours lie
    spec = importlib.util.spec_from_file_location("subset_coverage", folder / "subset_coverage.py")
    module = sys.modules["subset_coverage"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_allocation_of_many_sets_at_once(coverage):
    rng = np.random.default_rng(0)
    for _ in range(20):
        H = int(rng.integers(1, 30))
        N = rng.integers(2, 400, (20, H))
        scale = rng.choice([0.3, 0.5, 1.0], H)
        n = int(rng.integers(2 * H, N.sum(1).min() + 1))
        expected = [allocate(row, scale, n).tolist() for row in N]
        assert coverage.allocate_rows(N, scale, n).tolist() == expected


SOME = {(300, 1000), (200, 500), (50, 200), (150, 200)}  # of the last, three in four are drawn


@pytest.mark.slow
def test_some_cells_hold(coverage):
    """A few rows of the grid at 500 repetitions: the same judgement as the full benchmark."""
    chosen = [d for d in coverage.designs() if (d.n, d.N) in SOME]
    assert {d.name for d in chosen} >= {"simple finite", "10 strata zipf", "groups"}
    rng = np.random.default_rng(5)
    cells = [c for d in chosen for p in (0.05, 0.3, 0.9)
             for c in coverage.coverage_cells(d, p, 500, rng)]  # fmt: skip
    worst = min(c["coverage"] for c in cells if c["kind"] == "wilson")
    mean = np.mean([c["coverage"] for c in cells if c["kind"] == "wilson"])
    assert worst >= 0.92
    assert 0.94 <= mean <= 0.975
    assert min(c["coverage"] for c in cells if c["kind"] == "exact") >= 0.935


@pytest.mark.slow
def test_a_wrong_interval_would_be_noticed(coverage):
    """The judge fails a normal-approximation interval without finite-population correction."""
    rng = np.random.default_rng(5)
    design = next(d for d in coverage.designs() if d.name == "simple" and d.n == 60)
    cells = list(coverage.coverage_cells(design, 0.02, 1000, rng))
    for c in cells:
        c["coverage"] -= 0.08
    assert coverage.judge_coverage(cells, 10_000)


def of_rows(metric, design, label, said):
    hit, classes = (said == label).astype(float), design.population.size
    if metric == "accuracy":
        return design.ratio(hit, np.ones(hit.size))
    if metric == "macro-recall":
        return macro_recall(label, hit, design.weight, classes).ratio(design)
    return macro_f1(label, said, hit, design.weight, classes).ratio(design)


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["accuracy", "macro-recall", "macro-f1"])
def test_tables_of_answers_score_as_their_rows_do(coverage, metric):
    """All draws at once is the product, draw by draw."""
    rng, K = np.random.default_rng(2), 6
    N = np.tile(np.array([4000, 900, 300, 90, 40, 12]), (30, 1))
    n = np.array([20, 12, 9, 6, 3, 2])
    chances = coverage.answer_chances(N[0] / N[0].sum(), 0.8, "any")
    tables = rng.multinomial(np.tile(n, (30, 1)), chances)
    many = coverage.mean_ratio(metric, tables, N)
    label, weight = np.repeat(np.arange(K), n), np.repeat(N[0] / n, n)
    ones = np.ones(label.size)
    design = Design(pl.DataFrame(), np.arange(label.size), label, N[0] * 1.0, ones, weight)
    for place, table in enumerate(tables):
        said = np.repeat(np.tile(np.arange(K), K), table.ravel())
        one = of_rows(metric, design, label, said)
        for estimand in ESTIMANDS:
            alone = proportion_interval(one, estimand)
            together = [v[place] for v in proportion_interval(many, estimand)]
            assert together == pytest.approx([float(v) for v in alone], rel=1e-9)


@pytest.mark.slow
def test_means_over_classes_hold_on_a_long_tail(coverage, tmp_path):
    """Two cells that covered 76 and 79 %, and the command that draws the worst cells again."""
    for cell in (
        ("20, 100-fold", "equal", 300, 0.9, "any"), ("30 zipf", "proportional", 100, 0.6, "rarest")
    ):  # fmt: skip
        found = list(coverage.mean_cell(coverage.Cell(*cell), 150, 3))
        assert {f["metric"] for f in found} == set(coverage.MEANS)
        assert min(f["coverage"] for f in found) >= 0.9  # of 150 draws: 94 % less two errors
    rows, again = tmp_path / "rows.jsonl", tmp_path / "again.jsonl"
    rows.write_text("".join(f"{json.dumps(f)}\n" for f in found))
    result = CliRunner().invoke(coverage.app, ["worst", str(rows), str(again), "--draws", "20"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout.splitlines()[-1])["cells"] == 3
    assert len(again.read_text().splitlines()) == 6
