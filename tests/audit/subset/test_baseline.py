"""Earlier answers on all of F, numbers per example, the best of k: by hand, coverage, planning."""

import json
import math

import numpy as np
import polars as pl
import pytest

from audit.errors import UsageError
from audit.subset import Baseline, Goal, census, draw_subset, make_plan, score_subset
from audit.subset.baseline import Known, baseline_plan, fit_known, variance_left_of, whole_set
from audit.subset.compare import error_covariance, find_winner, selection_alone, winner_text
from audit.subset.estimate import proportion_interval
from audit.subset.metrics import Design
from audit.subset.predictions import read_table
from audit.subset.values import (
    brier_values,
    estimate_mean,
    measure_subset,
    measures_text,
    units_for_mean,
)
from tests.audit.subset.frames import call, document, drawn, made_set, predicted


def changed(frame, table, share, seed):
    """Return a later checkpoint: `share` of the answers are given anew, right with chance 0.9."""
    fresh = predicted(frame, 0.9, seed)["prediction"].to_numpy()
    again = np.random.default_rng(seed).uniform(size=len(frame)) < share
    answers = np.where(again, fresh, table["prediction"].to_numpy())
    return table.with_columns(prediction=pl.Series(answers))


@pytest.fixture(scope="module")
def frame():
    return made_set(4000, 4, seed=5)


@pytest.fixture(scope="module")
def old(frame):
    return predicted(frame, 0.9, 1)


@pytest.fixture(scope="module")
def rows(frame):
    return drawn(frame, 600, 3)


def with_baseline(rows, frame, old, new, metric="accuracy", **options):
    score = score_subset(rows, [new], metrics=[metric], baseline=Baseline.of(frame, old), **options)
    model = score.models[0]
    return model.metrics[0].estimands, model.with_baseline[0].estimands


@pytest.mark.parametrize(
    "metric", ["accuracy", "macro-recall", "recall:class1", "specificity:class1"]
)
def test_the_old_answers_narrow_the_interval(frame, old, rows, metric):
    new = changed(frame, old, 0.3, 7)
    plain, found = with_baseline(rows, frame, old, new, metric)
    truth = score_subset(census(frame).rows, [new], metrics=[metric]).models[0].metrics[0]
    for estimand, ratio in (("full-set", 0.85), ("generalisation", 0.9)):
        one, other = found[estimand], plain[estimand]
        assert one.high - one.low < ratio * (other.high - other.low)
    assert found["full-set"].low <= truth.estimands["full-set"].value <= found["full-set"].high


def test_the_same_answers_again_are_known_but_for_what_was_not_seen(frame, old, rows):
    _, found = with_baseline(rows, frame, old, old)
    truth = float((old["prediction"] == frame["label"]).mean())
    assert found["full-set"].value == pytest.approx(truth, abs=1e-12)
    assert found["full-set"].low < truth < found["full-set"].high
    # the whole set is known
    new = changed(frame, old, 0.3, 7)
    _, found = with_baseline(census(frame).rows, frame, old, new)
    truth = float((new["prediction"] == frame["label"]).mean())
    assert found["full-set"].known
    assert found["full-set"].value == found["full-set"].low == pytest.approx(truth, abs=1e-12)
    assert found["generalisation"].low < truth < found["generalisation"].high


def test_other_metrics_are_left_as_they_are(frame, old, rows):
    score = score_subset(rows, [old], metrics=["macro-f1"], baseline=Baseline.of(frame, old))
    assert score.models[0].with_baseline == []


def test_another_set_is_refused(frame, old, rows):
    fewer = frame.filter(pl.int_range(pl.len()) % 7 != 0)
    with pytest.raises(UsageError, match="was drawn from another set"):
        with_baseline(rows, fewer, old, old)
    with pytest.raises(UsageError, match="have no prediction"):
        Baseline.of(frame, old.head(3000))


def test_strata_and_groups_come_from_the_plan():
    frame = made_set(1500, 3, seed=2, groups=200)
    old = predicted(frame, 0.8, 1)
    recipe = make_plan(frame, Goal(n=100), group="patient").recipe
    rows = draw_subset(frame, recipe, 3).rows
    baseline = Baseline.of(frame, old, recipe)
    new = changed(frame, old, 0.2, 7)
    found = score_subset(rows, [new], baseline=baseline).models[0]
    wide, narrow = (m[0].estimands["full-set"] for m in (found.metrics, found.with_baseline))
    assert narrow.high - narrow.low < wide.high - wide.low
    with pytest.raises(UsageError, match="--plan"):
        score_subset(rows, [new], baseline=Baseline.of(frame, old))


# ---- the estimator alone ----


def sampled(strata, index):
    """Return the design of the rows `index` of a set with these strata, single files."""
    N, own = np.bincount(strata).astype(float), strata[index]
    n = np.maximum(np.bincount(own, minlength=N.size), 1)
    ones = np.ones(index.size)
    return Design(pl.DataFrame(), np.arange(index.size), own, N, ones, (N / n)[own])


def test_a_binary_number_makes_the_post_stratified_mean():
    rng = np.random.default_rng(4)
    old = (rng.uniform(size=2000) < 0.8).astype(float)
    new = np.where(rng.uniform(size=2000) < 0.8, old, 1 - old)
    index = rng.choice(2000, 300, replace=False)
    design = sampled(np.zeros(2000, np.int64), index)
    fit = fit_known(design, new[index], np.ones(300), Known(old[index], np.array([old.mean()])))
    y, x = new[index], old[index]
    by_hand = old.mean() * y[x == 1].mean() + (1 - old.mean()) * y[x == 0].mean()
    assert float(fit.ratio.value) == pytest.approx(by_hand, abs=1e-12)


def draws(stay, gain, p_old, n=300, N=5000, strata=5, seed=1):
    """Yield (interval of the regression, of the plain sample, truth) of 120 draws."""
    rng = np.random.default_rng(seed)
    stratum = np.sort(rng.integers(0, strata, N))
    old = (rng.uniform(size=N) < p_old).astype(float)
    new = (rng.uniform(size=N) < np.where(old == 1, stay, gain)).astype(float)
    sizes = np.bincount(stratum)
    means = np.bincount(stratum, old) / sizes
    for _ in range(120):
        take = np.rint(n * sizes / N).astype(int)
        parts = [rng.choice(s, k, replace=False) for s, k in zip(sizes, take, strict=True)]
        index = np.concatenate(
            [p + s for p, s in zip(parts, np.cumsum(sizes) - sizes, strict=True)]
        )
        design, ones = sampled(stratum, index), np.ones(index.size)
        fit = fit_known(design, new[index], ones, Known(old[index], means)).ratio
        plain = design.ratio(new[index], ones)
        yield *(proportion_interval(r, "full-set")[:2] for r in (fit, plain)), float(new.mean())


@pytest.mark.parametrize(
    ("stay", "gain", "p_old", "ratio"),
    [(0.98, 0.3, 0.93, 0.8), (0.995, 0.2, 0.98, 0.85), (0.9, 0.9, 0.9, 1.02), (0.1, 0.9, 0.8, 0.8)],
)
def test_intervals_hold_and_are_never_wider(stay, gain, p_old, ratio):
    found = list(draws(stay, gain, p_old))
    held = sum(low <= truth <= high for (low, high), _, truth in found)
    assert held >= 107  # 95 % of 120 is 114; three standard errors less is 107
    width = np.mean([high - low for (low, high), _, _ in found])
    assert width <= ratio * np.mean([high - low for _, (low, high), _ in found])


# ---- the plan ----


def test_the_plan_says_the_n_that_a_baseline_needs(frame, old):
    def make(goal):
        return make_plan(frame, goal, predictions=[old])

    goal = Goal(half_width=0.02, estimand="full-set")
    plan = baseline_plan(frame, make, goal, old, [changed(frame, old, 0.1, 3)])
    assert plan.n < 0.6 * make(goal).n
    rows = draw_subset(frame, plan.recipe, 2).rows
    _, found = with_baseline(rows, frame, old, changed(frame, old, 0.1, 9))
    half = (found["full-set"].high - found["full-set"].low) / 2
    assert half == pytest.approx(0.02, rel=0.25)
    assert "without it " in plan.reasons[-1]


def test_a_plan_needs_to_know_how_far_models_differ(frame, old):
    def make(goal):
        return make_plan(frame, goal)

    with pytest.raises(UsageError, match="disagreement"):
        baseline_plan(frame, make, Goal(half_width=0.02), old, [])
    assert variance_left_of(0.9, 0.0).share == 0
    assert variance_left_of(0.9, 0.18).share == 1
    assert variance_left_of(0.9, 0.5).share == 1


@pytest.fixture(scope="module")
def examples():
    return made_set(3000, 4, seed=2)


@pytest.fixture(scope="module")
def some(examples):
    return drawn(examples, 400, 1)


@pytest.fixture(scope="module")
def losses(examples):
    rng = np.random.default_rng(1)
    loss = np.exp(rng.normal(size=len(examples)))
    return examples.select("sample_id").with_columns(
        loss=pl.Series(loss), later=pl.Series(loss * rng.uniform(0.8, 1.1, len(examples)))
    )


def test_a_mean_holds_the_full_sets(examples, losses, some):
    found = measure_subset(some, losses, "loss")
    mean = found.measures[0].estimands["full-set"]
    truth = losses["loss"]
    assert mean.low < truth.mean() < mean.high
    assert mean.high - mean.value > mean.value - mean.low  # large losses are the rare ones
    assert found.deviation == pytest.approx(truth.std(), rel=0.3)
    assert "mean loss, this set: " in measures_text(found)
    whole = measure_subset(census(examples).rows, losses, "loss").measures
    assert whole[0].estimands["full-set"].value == pytest.approx(truth.mean())
    assert all(m.estimands["full-set"].known for m in whole)
    assert not whole[0].estimands["generalisation"].known


def test_a_baselines_numbers_narrow_the_mean(examples, losses, some):
    whole = whole_set(examples)
    table = losses.select("sample_id", loss="later")
    found = measure_subset(some, table, "loss", baseline=(whole, losses))
    plain, known = (m.estimands["full-set"] for m in found.measures)
    assert known.high - known.low < 0.5 * (plain.high - plain.low)
    assert known.low < losses["later"].mean() < known.high
    assert found.notes == []
    # one example that decides the regression: it is left out, and the text says so
    outlier = pl.when(pl.col("sample_id") == some["sample_id"][0]).then(1000.0)
    table, old = (
        t.with_columns(loss=outlier.otherwise("loss")) for t in (table, losses.drop("later"))
    )
    found = measure_subset(some, table, "loss", baseline=(whole, old))
    plain, known = found.measures
    assert known.estimands == plain.estimands
    assert "not used" in known.method
    assert "The baseline was not used: a single example has over 20%" in measures_text(found)


def test_equal_numbers_have_no_interval_of_no_width(examples, some):
    table = examples.select("sample_id", loss=pl.lit(0.25))
    found = measure_subset(some, table, "loss").measures[0].estimands["generalisation"]
    assert (found.value, found.low, found.high) == (0.25, -math.inf, math.inf)
    assert "no spread" in found.caution


def test_what_is_no_number_is_refused(examples, losses, some):
    gone = losses.with_columns(loss=pl.lit(math.nan))
    for table, name, sentence in (
        (losses, "iou", "no column 'iou'"), (gone, "loss", "no finite 'loss'")
    ):  # fmt: skip
        with pytest.raises(UsageError, match=sentence):
            measure_subset(some, table, name)


@pytest.mark.parametrize("n", [60, 300])
def test_skewed_means_hold(n):
    rng = np.random.default_rng(n)
    values = np.exp(rng.normal(size=5000))
    stratum, held, too_low = np.zeros(5000, np.int64), 0, 0
    for _ in range(120):
        index = rng.choice(5000, n, replace=False)
        design, v = sampled(stratum, index), values[index]
        mean = estimate_mean(design, v, 0.95)["full-set"]
        held += mean.low <= values.mean() <= mean.high
        too_low += mean.high < values.mean()
    assert held >= 106  # of 120: 114 expected, three standard errors less is 107
    assert too_low <= 11  # a symmetric interval misses 10 % of the means on this side at n = 60


def test_brier_by_hand():
    table = pl.DataFrame({"prob_a": [0.7, 0.2], "prob_b": [0.3, 0.8]})
    assert brier_values(pl.Series(["a", "a"]), table) == pytest.approx([0.18, 1.28])
    with pytest.raises(UsageError, match="prob_c"):
        brier_values(pl.Series(["a", "c"]), table)


def test_the_size_for_a_mean():
    # (1.96 x 0.4 / 0.05)^2 = 245.9, a little more for Student's quantile
    assert units_for_mean(0.4, 0.05, 0.95) == pytest.approx(248, abs=2)
    assert units_for_mean(0.4, 0.05, 0.95, 248) == pytest.approx(124, abs=2)
    with pytest.raises(UsageError):
        units_for_mean(0.0, 0.05, 0.95)


def test_the_command_reads_what_loops_write(frame, rows, tmp_path):
    rng = np.random.default_rng(0)
    classes = sorted(set(frame["label"]))
    shares = rng.dirichlet(np.ones(4), len(frame))
    ids = frame["sample_id"].to_list()
    np.savez(tmp_path / "a.npz", ids=ids, probabilities=shares, classes=classes)
    with open(tmp_path / "a.jsonl", "w") as file:
        for name, row in zip(ids, shares.tolist(), strict=True):
            nested = dict(zip(classes, row, strict=True))
            print(json.dumps({"sample_id": name, "probabilities": nested}), file=file)
    rows.write_parquet(subset := tmp_path / "s.parquet")
    brier = "--metric", "mean:brier"
    one, other = (
        document("score", subset, "--predictions", tmp_path / name, *brier)["measures"]
        for name in ("a.npz", "a.jsonl")
    )
    assert one == other
    assert 0 < one[0]["estimands"]["full-set"]["value"] < 2
    words = "--predictions", tmp_path / "a.npz", "--metric", "auroc"
    scored = document("score", subset, *words)["models"][0]["metrics"][0]
    assert 0.4 < scored["estimands"]["full-set"]["value"] < 0.6


def test_the_command_estimates_a_mean_with_a_baseline(examples, some, losses, tmp_path):
    whole, subset, old, new = (tmp_path / f"{k}.csv" for k in ("set", "s", "old", "new"))
    examples.select("sample_id", "label").write_csv(whole)
    some.write_csv(subset)
    losses.select("sample_id", "loss").write_csv(old)
    losses.select("sample_id", loss="later").write_csv(new)
    words = ["score", subset, "--predictions", new, "--metric", "mean:loss"]
    (plain,) = document(*words)["measures"]
    narrow = document(*words, "--baseline", old, "--from", whole)["measures"][1]
    widths = [m["estimands"]["full-set"]["high"] - m["estimands"]["full-set"]["low"]
              for m in (plain, narrow)]  # fmt: skip
    assert widths[1] < 0.5 * widths[0]
    assert "mean loss with the baseline, this set: " in call(
        *words, "--baseline", old, "--from", whole
    )
    assert document(*words, "--first", 100)["n_units"] == 100
    assert "no column 'iou'" in call(*words[:-1], "mean:iou", code=2)


def test_a_ranking_takes_rows_without_a_prediction(frame, rows, tmp_path):
    rows.write_csv(tmp_path / "s.csv")
    words = ["score", tmp_path / "s.csv"]
    for k in range(3):
        table = predicted(frame, 0.85, k)
        if k == 0:
            table = table.filter(pl.col("sample_id") != rows["sample_id"][0])
        table.write_csv(tmp_path / f"m{k}.csv")
        words += ["--predictions", tmp_path / f"m{k}.csv"]
    for several in (words, words[:6]):
        assert "have no prediction" in call(*several, code=2)
        wrong, drop = (document(*several, "--missing", rule) for rule in ("wrong", "drop"))
        ranked = [d.get("ranking", d)["candidates"] for d in (wrong, drop)]
        values = [{c["name"]: c["estimands"]["full-set"]["value"] for c in r} for r in ranked]
        assert values[0]["m0"] < values[1]["m0"]
        if "models" in drop:
            score = drop["models"][0]["metrics"][0]["estimands"]["full-set"]["value"]
            assert values[1]["m0"] == pytest.approx(score)


def test_misshaped_arrays_are_refused(tmp_path):
    np.savez(tmp_path / "a.npz", ids=["a", "b"], probabilities=np.ones((2, 3)), classes=["x", "y"])
    (tmp_path / "b.npz").write_bytes(b"no zip")
    for name, sentence in (("a.npz", "shape"), ("b.npz", "savez")):
        with pytest.raises(UsageError, match=sentence):
            read_table(tmp_path / name, "predictions")


def test_luck_of_ten_independent_models_and_of_models_that_are_alike():
    """The largest of ten standard normal numbers is 1.539 on average (Tippett 1925)."""
    luck, level = selection_alone(np.eye(10) * 1e-4, 0.95)
    assert luck == pytest.approx(0.01539, rel=0.02)
    assert level == pytest.approx(0.95**0.1, abs=1e-3)
    luck, level = selection_alone(np.full((5, 5), 1e-4) + np.eye(5) * 1e-12, 0.95)
    assert luck < 1e-5
    assert level == pytest.approx(0.95, abs=0.002)


def test_the_covariance_is_that_of_the_shares():
    rng = np.random.default_rng(2)
    hit = (rng.uniform(size=300) < 0.8).astype(float)
    design = sampled(np.zeros(10**6, np.int64), np.arange(300))
    covariance = error_covariance(design, np.array([hit, 1 - hit]))
    assert covariance[0, 0] == pytest.approx(hit.var(ddof=1) / 300, rel=1e-6)
    assert covariance[0, 1] == pytest.approx(-covariance[0, 0], rel=1e-6)


def test_equal_models_are_covered_together_and_the_winner_is_lucky():
    rng = np.random.default_rng(5)
    held, excess, luck = 0, [], []
    design = sampled(np.zeros(10**6, np.int64), np.arange(400))
    for _ in range(60):
        hits = (rng.uniform(size=(10, 400)) < 0.9).astype(float)
        by_luck, level = selection_alone(error_covariance(design, hits), 0.95)
        excess.append(hits.mean(axis=1).max() - 0.9)
        luck.append(by_luck)
        half = np.sqrt(hits.var(axis=1) / 400) * 2.8 * (level > 0.99)
        held += bool((np.abs(hits.mean(axis=1) - 0.9) <= half).all())
    assert held >= 50  # Wald's intervals here, a little short of the score's
    assert np.mean(excess) == pytest.approx(np.mean(luck), rel=0.2)


def test_the_command_ranks(frame, rows, tmp_path):
    rows.write_csv(tmp_path / "s.csv")
    words, tables = ["score", tmp_path / "s.csv"], [predicted(frame, 0.85, s) for s in range(4)]
    for seed, table in enumerate(tables):
        table.write_csv(tmp_path / f"m{seed}.csv")
        words += ["--predictions", tmp_path / f"m{seed}.csv"]
    text = call(*words)
    assert "is the best of 4 on these rows" in text
    assert "once on a fresh draw" in text
    frame.write_csv(tmp_path / "set.csv")
    assert "once on other data" in call("score", "--from", tmp_path / "set.csv", *words[2:])
    assert "comparison" not in document(*words)
    first, both = words[:4], words[:6]
    assert "ranking" not in document(*first)
    score = document(*both)
    assert score["comparison"] is not None
    assert {c["name"] for c in score["ranking"]["candidates"]} == {"m0", "m1"}
    assert "is the best of 2 on these rows" in call(*both)
    for more in (["--baseline", words[3]], ["--by-class"], ["--slice", "camera"]):
        assert f"{more[0]} is for one model, or two" in call(*words, *more, code=2)
    assert "leave out --metric" in call(*words, "--metric", "macro-f1", code=2)
    found = find_winner(rows, tables, names=["a", "b", "c", "d"])
    values = [c.estimands["full-set"].value for c in found.candidates]
    assert values == sorted(values, reverse=True)
    assert 0.95 < found.level <= 1 - 0.05 / 4 + 1e-12
    assert "selection alone would raise" in winner_text(found)
    with pytest.raises(UsageError, match="at least two"):
        find_winner(rows, tables[:1], names=["a"])
