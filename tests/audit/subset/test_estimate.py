"""Estimators: textbook examples, unbiased over repeated draws, intervals at their edges."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest

from audit.statistics import intervals as stats
from audit.subset import Goal, draw_subset, estimate, make_plan, metrics
from audit.subset.estimate import unit_moments, weighted_ratio
from audit.subset.goal import ESTIMANDS
from audit.subset.metrics import Design, replicate_metric, replicate_weights
from tests.audit.subset.frames import made_set, predicted

# Lohr (1999), Sampling: Design and Analysis, example 5.2: grade points of 4 students in each of 5
# suites drawn from 100; mean 2.826 with standard error 0.164. Example 5.4: design effect 2.02.
SUITES = np.array(
    [
        [3.08, 2.60, 3.44, 3.04],
        [2.36, 3.04, 3.28, 2.68],
        [2.00, 2.56, 2.52, 1.88],
        [3.00, 2.88, 3.44, 3.64],
        [2.68, 1.92, 3.28, 3.20],
    ]
)


def test_a_textbook_cluster_sample():
    # Points are scaled to [0, 1], the range of the estimator's shares.
    r = weighted_ratio(
        unit_moments(SUITES.sum(1) / 4, np.full(5, 4.0), np.zeros(5, np.int64), np.array([100]))
    )
    assert 4 * float(r.value) == pytest.approx(2.826)
    assert 4 * math.sqrt(r.variance["full-set"]) == pytest.approx(0.164, abs=5e-4)
    between = 4 * SUITES.mean(1).var(ddof=1)
    within = SUITES.var(axis=1, ddof=1).mean()
    spread = (99 * between + 300 * within) / 399
    assert between / spread == pytest.approx(2.02, abs=0.005)
    effect = r.variance["full-set"] / ((1 - 5 / 100) * spread / 16 / 20)
    assert effect == pytest.approx(2.02, abs=0.005)


def test_a_stratified_mean_by_hand():
    """Cochran (1977), section 5.3: sum W_h^2 (1 - f_h) s_h^2 / n_h."""
    y = np.array([1, 0, 1, 1, 0, 0, 0, 1.0])
    stratum = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    N = np.array([60, 20])
    r = weighted_ratio(unit_moments(y, np.ones(8), stratum, N))
    assert r.value == pytest.approx(0.75 * 0.75 + 0.25 * 0.25)
    s2 = np.array([y[:4].var(ddof=1), y[4:].var(ddof=1)])
    W = N / 80
    assert r.variance["full-set"] == pytest.approx((W**2 * (1 - 4 / N) * s2 / 4).sum())
    between = (W * (np.array([0.75, 0.25]) - r.value) ** 2).sum() - (W * (1 - W) * s2 / 4).sum()
    expected = (W**2 * s2 / 4).sum() + max(between, 0) / 80
    assert r.variance["generalisation"] == pytest.approx(expected)


def test_one_stratum_of_files_is_the_plain_case():
    y = np.array([1.0] * 30 + [0.0] * 10)
    r = weighted_ratio(unit_moments(y, np.ones(40), np.zeros(40, np.int64), np.array([400])))
    assert r.variance["full-set"] == pytest.approx(0.75 * 0.25 / 39 * (1 - 40 / 400))
    assert r.base_n["generalisation"] == pytest.approx(40)
    assert r.base_n["full-set"] == pytest.approx(40 / 0.9)


def test_all_right_still_has_an_interval():
    r = weighted_ratio(unit_moments(np.ones(50), np.ones(50), np.arange(50) % 5, np.full(5, 100)))
    low, high, n = estimate.proportion_interval(r, "generalisation")
    assert high == 1
    assert 49 < n <= 50
    assert low == pytest.approx(stats.wilson(n, n)[0])


def test_groups_are_not_files():
    """Ten groups of ten, each all right or all wrong, are worth ten examples, not a hundred."""
    y = np.array([10.0] * 6 + [0.0] * 4)
    r = weighted_ratio(unit_moments(y, np.full(10, 10.0), np.zeros(10, np.int64), np.array([1000])))
    _, _, n = estimate.proportion_interval(r, "generalisation")
    assert 4 <= n <= 10


def test_degrees_of_freedom_count_equal_units():
    """n - 1 for equal units; (sum m^2)^2 / sum m^4 of them if each is all right or all wrong."""
    y = np.array([4.0, 0, 4, 0, 4, 0])
    equal = weighted_ratio(unit_moments(y, np.full(6, 4.0), np.zeros(6, np.int64), np.array([60])))
    assert estimate.degrees_of_freedom(equal, np.array(0.25))[0] == pytest.approx(5)
    m = np.array([1.0, 1, 2, 2, 3, 9])
    y = np.array([1.0, 1, 2, 2, 3, 0])  # as unlike as groups can be
    unequal = weighted_ratio(unit_moments(y, m, np.zeros(6, np.int64), np.array([60])))
    share = float(unequal.value)
    degrees, left = estimate.degrees_of_freedom(unequal, np.array(share * (1 - share)))
    worth = (m**2).sum() ** 2 / (m**4).sum()
    assert degrees == pytest.approx(max(5 * worth / 6, 1))
    assert left == pytest.approx(worth / (m.sum() ** 2 / (m**2).sum()))


def test_degrees_of_freedom_of_strata():
    """Satterthwaite (1946): n where all weigh alike, the heavy stratum's otherwise.

    Each stratum of single files has a unit more, the one that steadies its variance.
    """
    stratum, y = np.repeat([0, 1], 10), np.tile([1.0, 0.0], 10)
    even, heavy = (
        weighted_ratio(unit_moments(y, np.ones(20), stratum, np.array(N)))
        for N in ([100, 100], [10_000, 10])
    )
    assert estimate.degrees_of_freedom(even, np.array(0.25))[0] == pytest.approx(20)
    assert estimate.degrees_of_freedom(heavy, np.array(0.25))[0] == pytest.approx(10, abs=0.01)


def test_groups_that_are_all_right_are_worth_their_number():
    r = weighted_ratio(
        unit_moments(np.full(40, 30.0), np.full(40, 30.0), np.zeros(40, np.int64), np.array([900]))
    )
    low, high, n = estimate.proportion_interval(r, "generalisation")
    assert n == pytest.approx(40, abs=0.1)
    assert low == pytest.approx(stats.wilson(40, 40)[0], abs=2e-4)
    assert high == 1


def test_one_wrong_answer_in_one_group_does_not_prove_that_groups_are_mixed():
    """1 wrong of 1,500 in 50 groups must not be read as 1 of 1,500 independent files."""
    y = np.full(50, 30.0)
    y[0] = 29
    r = weighted_ratio(unit_moments(y, np.full(50, 30.0), np.zeros(50, np.int64), np.array([5000])))
    low, _, n = estimate.proportion_interval(r, "generalisation")
    assert n < 300
    assert low < 0.99 < stats.wilson(1499, 1500)[0]


def test_rough_intervals_say_why():
    def why(y, m, stratum, N):
        r = weighted_ratio(unit_moments(np.array(y), np.array(m), np.array(stratum), np.array(N)))
        return estimate.caution(r, float(r.value))

    one = [0] * 40
    assert why([5.0, 0] * 20, [10.0] * 40, one, [400]) == ""
    assert "groups of these sizes are worth about" in why(
        [90.0, 10.0] + [5.0, 0] * 19, [200.0, 200.0] + [10.0] * 38, one, [400]
    )
    # files: two of a stratum, or unequal weights, are in the width
    assert why([1.0, 0] + [1.0] * 38, [1.0] * 40, [0, 0] + [1] * 38, [5000, 40]) == ""
    assert why([1.0, 0] * 20, [1.0] * 40, [0] * 20 + [1] * 20, [1900, 100]) == ""


def test_two_files_of_a_stratum_that_agree_do_not_show_that_all_do():
    """Seven strata of 30 and three of 2: half of the pairs agree by chance at p = 0.5."""
    n_h = np.array([30] * 7 + [2] * 3)
    stratum = np.repeat(np.arange(10), n_h)
    agree = np.where(n_h[stratum] == 2, 1.0, np.arange(stratum.size) % 2)
    N = n_h * np.where(n_h == 2, 150.0, 10.0)
    r = weighted_ratio(unit_moments(agree, np.ones(stratum.size), stratum, N))
    # as the pairs weigh, 216 rows are worth 68; the variance that they show would make it 82
    assert 55 < float(estimate.proportion_interval(r, "generalisation")[2]) < 70


def test_few_groups_that_could_be_wrong_as_a_whole_are_allowed_for():
    """3 % of wrong answers, spread over groups of 12: all may lie in 4 of 150 groups elsewhere."""
    y = np.where(np.arange(150) % 3 == 0, 11.0, 12.0)
    m = np.full(150, 12.0)
    r = weighted_ratio(unit_moments(y, m, np.zeros(150, np.int64), np.array([3000])))
    _, _, n = estimate.proportion_interval(r, "generalisation")
    assert n < 600
    many = weighted_ratio(
        unit_moments(np.tile(y, 10), np.tile(m, 10), np.zeros(1500, np.int64), np.array([30_000]))
    )
    assert estimate.proportion_interval(many, "generalisation")[2] > 17_000


CASES = ["strata", "neyman", "equal", "duplicates", "groups"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", CASES)
def test_unbiased(kind):
    """Mean error of accuracy over 40 draws within 3 standard errors of 0; intervals hold."""
    frame = made_set(
        600, 4, seed=11, groups=150 if kind == "groups" else 0, shares=[0.6, 0.25, 0.1, 0.05],
        duplicates=80 if kind == "duplicates" else 0, excluded=40 if kind == "strata" else 0,
    )  # fmt: skip
    if kind == "groups":  # unequal groups, the larger ones harder
        sizes = np.random.default_rng(5).permutation(np.repeat(np.arange(150), 4) ** 2 // 150)
        frame = frame.with_columns(patient=pl.Series([f"p{g}" for g in sizes]))
    hard = frame["label"].to_numpy() == "class1"
    hit = np.random.default_rng(3).uniform(size=600) < np.where(hard, 0.5, 0.85)
    if kind == "duplicates":
        hit[1:160:2] = hit[0:160:2]  # equal pictures get equal answers
    answers = dict(zip(frame["sample_id"], hit.astype(float), strict=True))
    inside = frame["excluded_reason"].is_null().to_numpy()
    truth = hit[inside].mean()
    options = {
        "strata": {"by": ["camera"]},
        "neyman": {"allocation": "neyman", "predictions": [predicted(frame, 0.8, 1)]},
        "equal": {"allocation": "equal"},
        "groups": {"group": "patient"},
    }.get(kind, {})
    recipe = make_plan(frame, Goal(n=60), **options).recipe
    errors, held = [], 0
    for seed in range(40):
        design = Design.of(draw_subset(frame, recipe, seed).rows)
        y = np.array([answers[i] for i in design.rows["sample_id"]])
        r = design.ratio(y, np.ones(y.size))
        low, high, _ = estimate.proportion_interval(r, "full-set")
        errors.append(float(r.value) - truth)
        held += bool(low <= truth <= high)
    errors = np.array(errors)
    assert abs(errors.mean()) <= 3 * errors.std() / math.sqrt(len(errors))
    assert held / len(errors) >= 0.86


# ---- bootstrap ----


def test_bootstrap_variance_is_the_textbook_variance(monkeypatch):
    monkeypatch.setattr(metrics, "REPLICATES", 4_000)
    rng = np.random.default_rng(0)
    stratum = np.repeat([0, 1, 2], [30, 20, 10])
    N = np.array([60.0, 100.0, 40.0])
    y = (rng.uniform(size=60) < 0.6).astype(float)
    weight = (N / np.bincount(stratum))[stratum]
    r = weighted_ratio(unit_moments(y, np.ones(60), stratum, N))

    design = Design(pl.DataFrame(), np.arange(60), stratum, N, np.ones(60), weight)

    def mean(weights):
        return (weights * y).sum(1) / weights.sum(1)

    for estimand in ESTIMANDS:
        draws = replicate_metric(mean, weight, design, estimand)
        expected = float(r.variance[estimand])
        assert draws.var() == pytest.approx(expected, rel=0.1)
        assert draws.mean() == pytest.approx(float(r.value), abs=0.006)


def test_bootstrap_of_the_whole_set_does_not_move():
    stratum, N = np.array([0, 0, 1, 1, 1]), np.array([2.0, 3.0])
    factors = replicate_weights(stratum, N, "full-set", 50, 1)
    assert np.allclose(factors, 1)
    again = replicate_weights(stratum, N, "generalisation", 50, 1)
    assert np.array_equal(again, replicate_weights(stratum, N, "generalisation", 50, 1))
    assert again.std() > 0.1
