"""Earlier answers on all of F: by hand, coverage, never wider, other sets, planning."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from audit.errors import UsageError
from audit.subset import Baseline, Goal, census, draw_subset, make_plan, score_subset
from audit.subset.baseline import Known, baseline_plan, fit_known, variance_left_of
from audit.subset.estimate import proportion_interval
from audit.subset.metrics import Design
from tests.audit.subset.frames import drawn, made_set, predicted


def changed(frame, table, share, seed):
    """Return a later checkpoint: `share` of the answers are given anew, right with chance 0.9."""
    fresh = predicted(frame, 0.9, seed)["prediction"].to_numpy()
    again = np.random.default_rng(seed).uniform(size=len(frame)) < share
    return table.with_columns(
        prediction=pl.Series(np.where(again, fresh, table["prediction"].to_numpy()))
    )


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


METRICS = ["accuracy", "macro-recall", "recall:class1", "specificity:class1"]


@pytest.mark.parametrize("metric", METRICS)
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


def test_the_whole_set_is_known(frame, old):
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
    assert "where a plain subset takes" in plan.reasons[-1]


def test_a_plan_needs_to_know_how_far_models_differ(frame, old):
    def make(goal):
        return make_plan(frame, goal)

    with pytest.raises(UsageError, match="--discordant"):
        baseline_plan(frame, make, Goal(half_width=0.02), old, [])
    assert variance_left_of(0.9, 0.0).share == 0
    assert variance_left_of(0.9, 0.18).share == 1
    assert variance_left_of(0.9, 0.5).share == 1
