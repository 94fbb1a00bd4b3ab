"""Intervals, tests and estimators: published tables, statsmodels, unbiased draws, coverage."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, hypergeom

from audit.errors import UsageError
from audit.statistics import intervals as stats
from audit.statistics.intervals import Floats, mcnemar, paired_difference
from audit.subset import Goal, draw_subset, estimate, make_plan, metrics, sizes
from audit.subset.estimate import difference_interval, unit_moments, weighted_ratio
from audit.subset.metrics import (
    Design,
    Linearised,
    estimate_linear,
)
from tests.audit.subset.frames import made_set, predicted

# Newcombe (1998), Statistics in Medicine 17:857, table I.
NEWCOMBE = [
    (81, 263, (0.2553, 0.3662), (0.2527, 0.3676)),
    (15, 148, (0.0624, 0.1605), (0.0578, 0.1617)),
    (0, 20, (0.0000, 0.1611), (0.0000, 0.1684)),
    (1, 29, (0.0061, 0.1718), (0.0009, 0.1776)),
]


@pytest.mark.parametrize(("k", "n", "score", "exact"), NEWCOMBE)
def test_newcombes_table(k, n, score, exact):
    assert np.allclose(stats.wilson(k, n), score, atol=5e-5)
    assert np.allclose(stats.clopper_pearson(k, n), exact, atol=5e-5)


@given(st.integers(1, 400), st.floats(0, 1), st.sampled_from([0.8, 0.9, 0.95, 0.99]))
@settings(max_examples=60)
def test_intervals_equal_statsmodels(n, share, confidence):
    # here, as in the tests below: it imports pandas, for which each process would wait
    from statsmodels.stats.proportion import proportion_confint

    k = round(n * share)
    for ours, method in ((stats.wilson, "wilson"), (stats.clopper_pearson, "beta")):
        theirs = proportion_confint(k, n, 1 - confidence, method)
        assert np.allclose(ours(k, n, confidence), theirs, atol=1e-9)


def total(y, m=1.0, N=400, stratum=0):
    """Return the ratio of sums `y` over units of size `m` drawn from strata of `N` units."""
    y = np.asarray(y, float)
    sizes, strata = np.broadcast_to(m, y.shape) * 1.0, np.broadcast_to(stratum, y.shape)
    return weighted_ratio(unit_moments(y, sizes, strata.astype(np.int64), np.atleast_1d(N)))


def new_data(r):
    """Return the interval of new data and the number of files that it is worth."""
    return estimate.proportion_interval(r, "generalisation")


@pytest.mark.parametrize("n", [60, 100, 300])
def test_a_share_is_covered_wherever_it_lies(n):
    """Summed over all outcomes: Wilson's limits alone cover 84 % next to 0 and 1."""
    k = np.arange(n + 1)
    low, high = sizes.share_limits(k / n, n)
    for p in (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.3, 0.5, 0.98, 0.995):
        held = binom.pmf(k, n, p)[(low <= p) & (p <= high)].sum()
        assert held >= 0.932, p
    assert (high - low > 0).all()
    assert np.allclose(low, 1 - high[::-1])


def test_hypergeometric_limits_published():
    """Manitz et al., samplingbook (R, 2020), README: 45 and 2 of 100 from N = 300.

    That program prints the outermost counts which the test still rejects: [110, 161] and [2, 19].
    The limits are the counts next to them that are not rejected; 2 is the least possible.
    """
    low, high = stats.hypergeometric_limits([45, 2], 100, 300)
    assert (low - [1, 0]).tolist() == [110, 2]
    assert (high + 1).tolist() == [161, 19]


@given(st.integers(2, 60), st.data())
@settings(max_examples=60)
def test_hypergeometric_limits_are_the_test_inverted(total, data):
    n = data.draw(st.integers(1, total))
    k = data.draw(st.integers(0, n))
    low, high = (int(v) for v in stats.hypergeometric_limits(k, n, total))
    possible = np.arange(k, total - n + k + 1)

    def accepted(tail: float) -> list[int]:
        return [
            int(m)
            for m in possible
            if hypergeom.sf(k - 1, total, m, n) > tail and hypergeom.cdf(k, total, m, n) > tail
        ]

    # one of forty is 0.025 exactly: the last digit of a tie may fall on either side
    strict, loose = accepted(0.025 + 1e-12), accepted(0.025 - 1e-12)
    assert loose[0] <= low <= strict[0]
    assert strict[-1] <= high <= loose[-1]


def test_hypergeometric_limits_cover():
    total, n = 60, 25
    low, high = stats.hypergeometric_limits(np.arange(n + 1), n, total)
    for m in range(total + 1):
        chance = hypergeom.pmf(np.arange(n + 1), total, m, n)
        assert chance[(low <= m) & (m <= high)].sum() >= 0.95


def test_nothing_left_to_guess_at_the_whole_set():
    assert stats.hypergeometric_limits(7, 20, 20) == (7, 7)
    assert stats.effective_n(20, 20) == np.inf
    assert stats.effective_n(374, 1000) == pytest.approx(374 * 999 / 626)
    low, high = stats.wilson_share(0.35, np.inf)
    assert low == high == 0.35
    assert stats.paired_difference(0.1, 0.04, np.inf) == (pytest.approx(0.06), pytest.approx(0.06))


@given(st.integers(0, 60), st.integers(0, 60))
@settings(max_examples=60)
def test_mcnemar_equals_statsmodels(b, c):
    from statsmodels.stats.contingency_tables import mcnemar as reference_mcnemar

    table = [[10, b], [c, 10]]
    theirs = reference_mcnemar(table, exact=False, correction=False).pvalue if b + c else 1.0
    assert stats.mcnemar(b, c) == pytest.approx(theirs)


def test_paired_difference_holds_its_level():
    """The interval's exact coverage over all outcomes of 60 pairs."""
    n, gain, loss = 60, 0.12, 0.05
    b, c = np.meshgrid(np.arange(n + 1), np.arange(n + 1), indexing="ij")
    chance = binom.pmf(b, n, gain) * binom.pmf(c, n - b, loss / (1 - gain))
    low, high = stats.paired_difference(b / n, c / n, n)
    held = chance[(low <= gain - loss) & (gain - loss <= high) & (b + c <= n)].sum()
    assert 0.94 <= held <= 0.985


def test_false_discovery_rate_equals_statsmodels_and_effect_sizes():
    from statsmodels.stats.multitest import multipletests

    p = np.random.default_rng(0).uniform(size=30) ** 2
    assert np.allclose(stats.benjamini_hochberg(p), multipletests(p, method="fdr_bh")[1])
    assert stats.benjamini_hochberg([]).size == 0
    assert stats.total_variation([1, 1], [3, 1]) == pytest.approx(0.25)
    assert stats.cramers_v([[50, 0], [0, 50]]) == pytest.approx(1.0, abs=0.01)
    assert stats.cramers_v([[25, 25], [25, 25]]) == 0.0


def test_intraclass_correlation():
    """Snedecor and Cochran's formula on a table worked by hand: MSB 2, MSW 0.5, m = 2."""
    msb, msw = 2.0, 0.5
    found = stats.intraclass_correlation([1, 2, 3, 4, 2, 3], [0, 0, 1, 1, 2, 2])
    assert found == pytest.approx((msb - msw) / (msb + (2 - 1) * msw))
    two, one = ((1, 0, 1), (0, 1, 2)), ((1, 1, 0), (0, 0, 1))
    assert stats.intraclass_correlation(*two) != stats.intraclass_correlation(*one)
    assert stats.intraclass_correlation([1, 0, 0, 1], [0, 0, 1, 1]) == 0.0


def test_levels_are_checked():
    assert stats.alpha_for_looks(0.95, 5) == pytest.approx(0.01)
    for call, sentence in (
        (lambda: stats.alpha_for_looks(0.95, 0), "at least 1"),
        (lambda: stats.wilson(1, 2, 95), "between 0 and 1"),
        (lambda: stats.hypergeometric_limits(1, 30, 20), "larger than the set"),
    ):
        with pytest.raises(UsageError, match=sentence):
            call()


def test_hypergeometric_tails_are_those_of_scipy() -> None:
    rng = np.random.default_rng(0)
    size = rng.integers(1, 60_000, 2000)
    marked = (rng.random(2000) * (size + 1)).astype(int)
    draws = (rng.random(2000) * (size + 1)).astype(int)
    least, most = np.maximum(0, draws + marked - size), np.minimum(draws, marked)
    inside = least + (rng.random(2000) * (most - least + 1)).astype(int)
    inside[:500] = np.clip(draws * marked // size, least, most)[:500]
    lower, upper = stats.hypergeometric_tails(inside, draws, marked, size)
    expected = hypergeom.sf(inside - 1, size, marked, draws)
    assert lower == pytest.approx(hypergeom.cdf(inside, size, marked, draws), abs=1e-9)
    assert upper == pytest.approx(expected, abs=1e-9)
    small = upper < 1e-6
    assert upper[small] == pytest.approx(expected[small], rel=1e-6)
    for counts in ((0, 0, 0, 5), (3, 3, 3, 3)):  # where there is one outcome
        assert tuple(map(float, stats.hypergeometric_tails(*counts))) == (1, 1)


# Lohr (1999), Sampling: Design and Analysis, example 5.2: grade points of 4 students in each of 5
# suites drawn from 100; mean 2.826 with standard error 0.164. Example 5.4: design effect 2.02.
SUITES = np.array([
    [3.08, 2.60, 3.44, 3.04], [2.36, 3.04, 3.28, 2.68], [2.00, 2.56, 2.52, 1.88],
    [3.00, 2.88, 3.44, 3.64], [2.68, 1.92, 3.28, 3.20],
])  # fmt: skip


def test_a_textbook_cluster_sample():
    # Points are scaled to [0, 1], the range of the estimator's shares.
    r = total(SUITES.sum(1) / 4, 4, 100)
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
    y, N = np.array([1, 0, 1, 1, 0, 0, 0, 1.0]), np.array([60, 20])
    r = total(y, 1, N, np.repeat([0, 1], 4))
    assert r.value == pytest.approx(0.75 * 0.75 + 0.25 * 0.25)
    s2 = np.array([y[:4].var(ddof=1), y[4:].var(ddof=1)])
    W = N / 80
    assert r.variance["full-set"] == pytest.approx((W**2 * (1 - 4 / N) * s2 / 4).sum())
    between = (W * (np.array([0.75, 0.25]) - r.value) ** 2).sum() - (W * (1 - W) * s2 / 4).sum()
    expected = (W**2 * s2 / 4).sum() + max(between, 0) / 80
    assert r.variance["generalisation"] == pytest.approx(expected)


def test_one_stratum_of_files_is_the_plain_case():
    r = total([1.0] * 30 + [0.0] * 10)
    assert r.variance["full-set"] == pytest.approx(0.75 * 0.25 / 39 * (1 - 40 / 400))
    assert r.base_n["generalisation"] == pytest.approx(40)
    assert r.base_n["full-set"] == pytest.approx(40 / 0.9)


def test_all_right_still_has_an_interval():
    low, high, n = new_data(total(np.ones(50), 1, np.full(5, 100), np.arange(50) % 5))
    assert high == 1
    assert 49 < n <= 50
    assert low == pytest.approx(stats.wilson(n, n)[0])
    # groups are worth their number
    low, high, n = new_data(total(np.full(40, 30), 30, 900))
    assert n == pytest.approx(40, abs=0.1)
    assert low == pytest.approx(stats.wilson(40, 40)[0], abs=2e-4)
    assert high == 1


def test_groups_are_not_files():
    """Ten groups of ten, each all right or all wrong, are worth ten examples, not a hundred."""
    assert 4 <= new_data(total([10] * 6 + [0] * 4, 10, 1000))[2] <= 10


def test_degrees_of_freedom_count_equal_units():
    """n - 1 for equal units; (sum m^2)^2 / sum m^4 of them if each is all right or all wrong."""
    equal = total([4, 0, 4, 0, 4, 0], 4, 60)
    assert estimate.degrees_of_freedom(equal, np.array(0.25))[0] == pytest.approx(5)
    m = np.array([1.0, 1, 2, 2, 3, 9])
    unequal = total([1, 1, 2, 2, 3, 0], m, 60)  # as unlike as groups can be
    share = float(unequal.value)
    degrees, left = estimate.degrees_of_freedom(unequal, np.array(share * (1 - share)))
    worth = (m**2).sum() ** 2 / (m**4).sum()
    assert degrees == pytest.approx(max(5 * worth / 6, 1))
    assert left == pytest.approx(worth / (m.sum() ** 2 / (m**2).sum()))


@pytest.mark.parametrize(("N", "degrees"), [([100, 100], 20), ([10_000, 10], 10)])
def test_degrees_of_freedom_of_strata(N, degrees):
    """Satterthwaite (1946): n where all weigh alike, the heavy stratum's otherwise.

    Each stratum of single files has a unit more, the one that steadies its variance.
    """
    r = total(np.tile([1, 0], 10), 1, N, np.repeat([0, 1], 10))
    assert estimate.degrees_of_freedom(r, np.array(0.25))[0] == pytest.approx(degrees, abs=0.01)


def test_one_wrong_answer_in_one_group_does_not_prove_that_groups_are_mixed():
    """1 wrong of 1,500 in 50 groups must not be read as 1 of 1,500 independent files."""
    low, _, n = new_data(total([29] + [30] * 49, 30, 5000))
    assert n < 300
    assert low < 0.99 < stats.wilson(1499, 1500)[0]


@pytest.mark.parametrize(
    ("rough", "sample"),
    [
        (False, ([5, 0] * 20, 10, 400)),
        (True, ([90, 10] + [5, 0] * 19, [200] * 2 + [10] * 38, 400)),
        # files: two of a stratum, or unequal weights, are in the width
        (False, ([1, 0] + [1] * 38, 1, [5000, 40], [0, 0] + [1] * 38)),
        (False, ([1, 0] * 20, 1, [1900, 100], [0] * 20 + [1] * 20)),
    ],
)
def test_rough_intervals_say_why(rough, sample):
    r = total(*sample)
    why = estimate.caution(r, float(r.value))
    assert bool(why) == rough == ("groups of these sizes are equivalent" in why)


def test_two_files_of_a_stratum_that_agree_do_not_show_that_all_do():
    """Seven strata of 30 and three of 2: half of the pairs agree by chance at p = 0.5."""
    n_h = np.array([30] * 7 + [2] * 3)
    stratum = np.repeat(np.arange(10), n_h)
    agree = np.where(n_h[stratum] == 2, 1.0, np.arange(stratum.size) % 2)
    r = total(agree, 1, n_h * np.where(n_h == 2, 150.0, 10.0), stratum)
    # as the pairs weigh, 216 rows are worth 68; the variance that they show would make it 82
    assert 55 < float(new_data(r)[2]) < 70


def test_few_groups_that_could_be_wrong_as_a_whole_are_allowed_for():
    """3 % of wrong answers, spread over groups of 12: all may lie in 4 of 150 groups elsewhere."""
    y = np.where(np.arange(150) % 3 == 0, 11.0, 12.0)
    assert new_data(total(y, 12, 3000))[2] < 600
    assert new_data(total(np.tile(y, 10), 12, 30_000))[2] > 17_000


UNBIASED: dict[str, tuple[dict[str, int], dict[str, Any]]] = {
    "strata": ({"excluded": 40}, {"by": ["camera"]}),
    "neyman": ({}, {"allocation": "neyman"}),
    "equal": ({}, {"allocation": "equal"}),
    "duplicates": ({"duplicates": 80}, {}),
    "groups": ({"groups": 150}, {"group": "patient"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", UNBIASED)
def test_unbiased(kind):
    """Mean error of accuracy over 40 draws within 3 standard errors of 0; intervals hold."""
    columns, options = UNBIASED[kind]
    frame = made_set(600, 4, seed=11, shares=[0.6, 0.25, 0.1, 0.05], **columns)
    if kind == "groups":  # unequal groups, the larger ones harder
        groups = np.random.default_rng(5).permutation(np.repeat(np.arange(150), 4) ** 2 // 150)
        frame = frame.with_columns(patient=pl.Series([f"p{g}" for g in groups]))
    if kind == "neyman":
        options = options | {"predictions": [predicted(frame, 0.8, 1)]}
    hard = frame["label"].to_numpy() == "class1"
    hit = np.random.default_rng(3).uniform(size=600) < np.where(hard, 0.5, 0.85)
    if kind == "duplicates":
        hit[1:160:2] = hit[0:160:2]  # equal pictures get equal answers
    answers = dict(zip(frame["sample_id"], hit.astype(float), strict=True))
    truth = hit[frame["excluded_reason"].is_null().to_numpy()].mean()
    recipe = make_plan(frame, Goal(n=60), **options).recipe
    errors, held = [], 0
    for seed in range(40):
        design = Design.of(draw_subset(frame, recipe, seed).rows)
        y = np.array([answers[i] for i in design.rows["sample_id"]])
        r = design.ratio(y, np.ones(y.size))
        low, high, _ = estimate.proportion_interval(r, "full-set")
        errors.append(float(r.value) - truth)
        held += bool(low <= truth <= high)
    assert abs(np.mean(errors)) <= 3 * np.std(errors) / math.sqrt(40)
    assert held / 40 >= 0.86


rng = np.random.default_rng(2)
LABEL, SAID = rng.integers(0, 3, 200), rng.integers(0, 4, 200)  # said 3: no class of the set
HIT = (LABEL == SAID).astype(float)
POSITIVE, SCORE = LABEL > 0, rng.integers(0, 8, 200) / 8
WEIGHT = rng.uniform(0.5, 2, 200)


def f1(w: Floats, k: int) -> float:
    hit = w[(k == LABEL) & (k == SAID)].sum()
    return float(2 * hit / (w[k == LABEL].sum() + w[k == SAID].sum()))


def recall(w: Floats, k: int) -> float:
    return float((w * HIT)[k == LABEL].sum() / w[k == LABEL].sum())


def area(w: Floats) -> float:
    wins = (SCORE[:, None] > SCORE[None, :]) + 0.5 * (SCORE[:, None] == SCORE[None, :])
    pairs = np.outer(POSITIVE * w, ~POSITIVE * w)
    return float((pairs * wins).sum() / pairs.sum())


METRICS: dict[str, tuple[Callable[[Floats], Linearised], Callable[[Floats], float]]] = {
    "macro-recall": (
        lambda w: metrics.macro_recall(LABEL, HIT, w, 3),
        lambda w: float(np.mean([recall(w, k) for k in range(3)])),
    ),
    "macro-f1": (
        lambda w: metrics.macro_f1(LABEL, SAID, HIT, w, 3),
        lambda w: float(np.mean([f1(w, k) for k in range(3)])),
    ),
    "auroc": (lambda w: metrics.auroc(POSITIVE, SCORE, w), area),
    "precision": (
        lambda w: metrics.share_of(HIT, (SAID == 1).astype(float), w),
        lambda w: float((w * HIT)[SAID == 1].sum() / w[SAID == 1].sum()),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", METRICS)
def test_value_and_influence_are_the_definition_and_its_derivative(name: str) -> None:
    linear, definition = METRICS[name]
    found = linear(WEIGHT)
    assert found.value == pytest.approx(definition(WEIGHT))
    assert (WEIGHT * found.share).sum() == pytest.approx(1)
    assert (WEIGHT * found.influence).sum() == pytest.approx(0, abs=1e-12)
    step = 1e-6
    for row in range(0, 200, 23):
        moved = WEIGHT.copy()
        moved[row] += step
        derivative = (definition(moved) - definition(WEIGHT)) / step
        assert found.influence[row] == pytest.approx(derivative, abs=1e-7)
    # rows without weight do not count
    kept = np.where(np.arange(200) % 3 == 0, 0.0, WEIGHT)
    found = linear(kept)
    assert found.value == pytest.approx(definition(kept))
    assert not found.influence[::3].any()
    assert not found.share[::3].any()


def of_strata(population: list[int], n_h: list[int]) -> Design:
    """Return the design of a subset of single files, stratum by stratum."""
    stratum = np.repeat(np.arange(len(population)), n_h)
    weight = (np.array(population) / np.array(n_h))[stratum]
    ones, units = np.ones(stratum.size), np.arange(stratum.size)
    return Design(pl.DataFrame(), units, stratum, np.array(population, float), ones, weight)


@pytest.mark.parametrize(("N", "known"), [([400, 300, 300], False), ([40, 30, 30], True)])
def test_an_interval_has_a_width_unless_everything_was_scored(N, known) -> None:
    design = of_strata(N, [40, 30, 30])
    label, hit = design.stratum, np.ones(100)
    for linear in (
        metrics.macro_recall(label, hit, design.weight, 3),
        metrics.macro_f1(label, label, hit, design.weight, 3),
        metrics.auroc(label == 0, (label == 0).astype(float), design.weight),
    ):
        found = estimate_linear(design, linear, 0.95)
        full = found["full-set"]
        assert full.value == pytest.approx(1)
        assert (full.low == full.high) is known
        assert found["generalisation"].low < 0.99


def answered(random, label, right, classes):
    """Return which answers are right, with chance `right`, and the answers; errors go anywhere."""
    hit = (random.uniform(size=label.size) < right).astype(float)
    return hit, np.where(hit > 0, label, (label + random.integers(1, classes, hit.size)) % classes)


@pytest.mark.parametrize("accuracy", [0.98, 0.9])
def test_macro_metrics_of_good_models_are_covered(accuracy: float) -> None:
    # where the spread of replicates covered 59 %
    random, classes = np.random.default_rng(int(1000 * accuracy) + 10), 10
    design = of_strata([1000] * classes, [10] * classes)
    each = np.clip(1 - (1 - accuracy) * np.linspace(0.3, 1.7, classes), 0, 1)
    held = {"recall": 0, "f1": 0}
    for _ in range(80):
        hit, said = answered(random, design.stratum, each[design.stratum], classes)
        recall = metrics.macro_recall(design.stratum, hit, design.weight, classes)
        f1_of = metrics.macro_f1(design.stratum, said, hit, design.weight, classes)
        for name, linear in (("recall", recall), ("f1", f1_of)):
            found = estimate_linear(design, linear, 0.95)["generalisation"]
            # equal classes and errors that go anywhere: F1 of the set is the accuracy, nearly
            held[name] += found.low <= accuracy <= found.high
    assert min(held.values()) >= 70, held  # 95 % of 80 is 76; below 70 has a chance of 0.5 %


def test_macro_f1_under_unequal_weights_is_covered() -> None:
    # one mistake of the largest class, a third of whose samples have none, weighs 160 rows of the
    # smallest class: without a guard three in four of the intervals were right
    random, N = np.random.default_rng(6), np.array([12_000, 6_000, 1_500, 500])
    design = of_strata(N.tolist(), [75] * 4)
    label, right = design.stratum, np.array([0.991, 0.994, 0.996, 0.997])
    wrong = (N * (1 - right)).sum() - N * (1 - right)
    true = float((2 * N * right / (N * (1 + right) + wrong / 3)).mean())
    held = {"share": 0, "difference": 0}
    for _ in range(80):
        answers = [answered(random, label, right[label], 4) for _ in range(2)]
        models = [metrics.macro_f1(label, said, hit, design.weight, 4) for hit, said in answers]
        both = metrics.difference_of(*models, (models[0].against[0] != models[1].against[0]))
        pair = both.ratio(design), both.told_apart(design)
        low, high, _ = difference_interval(*pair, "generalisation", 0.95)
        held["difference"] += bool(low <= 0 <= high)
        found = estimate_linear(design, models[0], 0.95)["generalisation"]
        held["share"] += found.low <= true <= found.high
    assert min(held.values()) >= 70, held  # 95 % of 80 is 76; below 70 has a chance of 0.5 %


@pytest.mark.parametrize(
    ("population", "n_h", "right"),
    [
        ([4000, 400, 40, 40], [30, 30, 30, 30], 0.9),  # a heavy row called a small class: too high
        ([400] * 12, [3] * 12, 0.6),  # three rows of a class: too low
    ],
)
def test_macro_f1_of_samples_is_off_by_what_it_says(population, n_h, right) -> None:
    random, K = np.random.default_rng(3), len(population)
    design, N = of_strata(population, n_h), np.array(population, float)
    called = N * right + (N.sum() - N) * (1 - right) / (K - 1)
    true, found, held = float((2 * N * right / (N + called)).mean()), [], 0
    for _ in range(250):
        hit, said = answered(random, design.stratum, right, K)
        f1_of = metrics.macro_f1(design.stratum, said, hit, design.weight, K)
        found.append((f1_of.value - true, f1_of.curve[0]))
        limits = estimate_linear(design, f1_of, 0.95)["generalisation"]
        held += limits.low <= true <= limits.high
    off, told = np.mean(found, axis=0)
    assert abs(off) > 0.01
    assert 0.6 < told / off < 1.7
    assert held >= 226  # 95 % of 250 is 237; below 226 has a chance of 0.1 %
    whole = metrics.macro_f1(design.stratum, said, hit, np.ones(hit.size), K)
    assert whole.curve == (0.0, 0.0)  # where all is drawn, nothing is off


@pytest.mark.parametrize(("gain", "loss"), [(0.02, 0.02), (0.05, 0.01)])
def test_differences_under_unequal_weights_are_covered(gain: float, loss: float) -> None:
    # rows of the large stratum weigh 20 times as much; without a guard 67 to 92 % were covered
    random, design, held = np.random.default_rng(4), of_strata([10_000, 500], [50, 50]), 0
    one = np.ones(100)
    for _ in range(120):
        u = random.uniform(size=100)
        change = np.where(u < gain, 1.0, np.where(u < gain + loss, -1.0, 0.0))
        both = design.ratio(change, one), design.ratio(np.abs(change), one)
        low, high, _ = difference_interval(*both, "generalisation", 0.95)
        held += bool(low <= gain - loss <= high)
    assert held >= 107  # 95 % of 120 is 114; below 107 has a chance of 0.4 %


def test_the_interval_of_a_difference_leaves_out_zero_where_the_test_rejects() -> None:
    gained, lost = (v.ravel() for v in np.mgrid[0:25, 0:25])
    low, high = paired_difference(gained / 60, lost / 60, 60)
    rejected = mcnemar(gained, lost) <= 0.05
    assert (rejected == ((low > 0) | (high < 0))).all()
    assert (low <= (gained - lost) / 60).all()
    assert (high >= (gained - lost) / 60).all()
    assert (high - low).min() > 0.05
