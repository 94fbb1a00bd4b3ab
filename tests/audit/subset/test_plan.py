"""Plans and sizes: published values, targets, what is bought and what is not reachable, curves."""

import json
import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multinomial

from audit.errors import UsageError
from audit.statistics import intervals as stats
from audit.subset import (
    Goal,
    NoiseRate,
    draw_subset,
    make_curve,
    make_plan,
    metric_check,
    population,
    recipe_from,
    sizes,
)
from audit.subset.baseline import equivalent_n
from audit.subset.draw import PLAN_SCHEMA, load_recipe
from audit.subset.estimate import proportion_interval, unit_moments, weighted_ratio
from audit.subset.goal import level_text, session_throughput
from audit.subset.source import select_eligible
from audit.subset.strata import Strata, form_units
from audit.subset.text import curve_text, plan_text
from pipeline_profiler import Recorder, Session
from pipeline_profiler.profiling.diagnose.window import Window
from pipeline_profiler.profiling.record.arm import Arm
from tests.audit.subset.frames import ROW, estimands, made_set, predicted, replaced


@pytest.mark.slow
@pytest.mark.parametrize("classes", [1, 10])
def test_the_specifications_example(classes):
    labels = [f"class{i % classes}" for i in range(1000)]
    frame = made_set(1000, classes).with_columns(label=pl.Series(labels))
    made = make_plan(frame, Goal(half_width=0.04))
    assert made.n == 597
    assert made.estimands["full-set"].n_for_target == 374
    assert make_plan(frame, Goal(half_width=0.04, estimand="full-set")).n == 374


def test_what_the_whole_set_buys():
    made = make_plan(made_set(300, 3), Goal(n=300))
    full, general = made.estimands["full-set"], made.estimands["generalisation"]
    assert full.half_width == 0
    assert full.detectable_difference == 0
    assert general.half_width == pytest.approx(sizes.half_width(300, 0.5)[0])


def test_an_unreachable_target_says_how_many_more():
    made = make_plan(made_set(1000, 1), Goal(half_width=0.02))
    (gap,) = made.unreachable
    assert (made.n, gap.needs, gap.more) == (1000, 2398, 1398)
    assert "1398 more units (2398 in all)" in gap.sentence
    assert made.estimands["generalisation"].n_for_target == 2398
    # a difference finer than one example
    finer = make_plan(made_set(90, 3), Goal(metric="recall", detect=0.01, discordant=0.2))
    assert len(finer.unreachable) == 3
    assert "one unit alone" in finer.unreachable[0].sentence


@pytest.mark.slow
def test_recall_gives_each_class_what_it_needs_or_has():
    frame = made_set(3000, 3, shares=[0.8, 0.18, 0.02])
    made = make_plan(frame, Goal(metric="recall", half_width=0.06))
    first, second, last = made.strata
    need = sizes.proportion_n(0.06)
    assert need <= min(first.n, second.n) <= max(first.n, second.n) <= need + 3
    assert last.n == last.units
    assert [u.what for u in made.unreachable] == ["class2"]
    small = next(c for c in made.classes if c.label == "class2")
    assert small.step == pytest.approx(1 / small.n)
    assert small.estimands["full-set"].half_width == 0


def test_one_class_and_its_rest():
    frame = made_set(3000, 4)
    for metric, many in (("recall", [1]), ("specificity", [0, 2, 3])):
        made = make_plan(frame, Goal(metric=f"{metric}:class1", half_width=0.05))
        assert [k for k, s in enumerate(made.strata) if s.n > 2] == many
    with pytest.raises(UsageError, match="no class 'dog'"):
        make_plan(frame, Goal(metric="recall:dog", half_width=0.05))


def test_predictions_replace_assumptions():
    frame = made_set(4000, 4)
    tables = [predicted(frame, 0.9, 1), predicted(frame, 0.92, 2)]
    assumed = make_plan(frame, Goal(detect=0.03))
    known = make_plan(frame, Goal(detect=0.03), predictions=tables)
    assert known.n < assumed.n
    assert known.assumptions["p"] == pytest.approx(0.9, abs=0.02)
    assert known.assumptions["discordant"] == pytest.approx(0.9 * 0.08 + 0.1 * 0.92, abs=0.02)
    assert any("two prediction files" in reason for reason in known.reasons)


def test_a_budget_in_seconds():
    made = make_plan(made_set(1000, 4), Goal(seconds=10, throughput=31.99))
    assert made.n == 319
    grouped = made_set(1000, 4, groups=200)
    whole = make_plan(grouped, Goal(seconds=10, throughput=50), group="patient")
    assert whole.n == math.floor(500 / (1000 / whole.n_units))
    every = make_plan(made_set(200, 4), Goal(seconds=600, throughput=40))
    assert every.n == every.n_units == 200
    assert any("is enough for 24000 units" in reason for reason in every.reasons)


def test_few_or_unequal_groups_are_warned_about():
    frame, goal = made_set(3000, 1, groups=300), Goal(n=200, rho=0.3)
    # Two patients with most of the pictures: the same number of groups tells far less.
    size = np.where(np.arange(3000) < 2000, np.arange(3000) % 2, 2 + np.arange(3000) % 298)
    unequal = frame.with_columns(patient=pl.Series(size.astype(str)))
    plain, heavy = (make_plan(f, goal, group="patient") for f in (frame, unequal))
    assert not any("Warning" in r for r in plain.reasons)
    few = make_plan(frame, Goal(n=8, rho=0.3), group="patient")
    assert any("rough" in r and "Draw more groups" in r for r in few.reasons)
    assert any("give the precision of" in r for r in heavy.reasons)
    even, uneven = (p.estimands["generalisation"] for p in (plain, heavy))
    assert uneven.half_width > stats.wilson_share(0.5, uneven.effective_n)[1] - 0.5
    assert even.half_width < uneven.half_width


def test_unequal_weights_are_warned_about_where_the_metric_is_over_all():
    frame = made_set(4000, 3, shares=[0.9, 0.07, 0.03])

    def warned(goal, **options):
        return any("unequal weights" in r for r in make_plan(frame, goal, **options).reasons)

    assert warned(Goal(n=120), allocation="equal")
    assert not warned(Goal(n=120))
    assert not warned(Goal(n=120, metric="recall"))


@pytest.mark.slow
def test_groups_cost_what_their_correlation_says():
    frame = made_set(6000, 1).with_columns(patient=pl.format("p{}", pl.int_range(pl.len()) % 600))
    free, half, full = (
        make_plan(frame, Goal(half_width=0.05, rho=rho), group="patient") for rho in (0, 0.5, 1)
    )
    effect = full.design["cluster_design_effect"]
    assert free.n < half.n < full.n
    n0 = sizes.proportion_n(0.05)
    assert full.n == pytest.approx(n0 * effect / 10, abs=1.5)
    assert any("worst case" in r for r in make_plan(frame, Goal(n=50), group="patient").reasons)


def test_duplicates_carry_weight_and_cost():
    frame = made_set(1000, 1, duplicates=200)
    made = make_plan(frame, Goal(half_width=0.05))
    assert made.n_units == 800
    assert made.design["cluster_design_effect"] == pytest.approx(1400 / 1000)
    distinct = make_plan(frame, Goal(half_width=0.05), deduplicated=True)
    assert distinct.n_files == 800
    assert distinct.n < made.n
    assert len(distinct.excluded) == 200
    assert any("the target is the metric over distinct images" in r for r in distinct.reasons)


@pytest.mark.slow
def test_looks_have_a_price():
    one, five = (
        make_plan(made_set(9000, 1), Goal(detect=0.04, discordant=0.2, looks=looks))
        for looks in (1, 5)
    )
    assert one.n == math.ceil(sizes.connor_n(0.04, 0.2)) < five.n
    assert five.n == math.ceil(sizes.connor_n(0.04, 0.2, 0.01))
    assert any(f"need {five.n} units; one comparison needs {one.n}" in r for r in five.reasons)


@pytest.mark.slow
def test_label_noise():
    frame, goal = made_set(9000, 5), Goal(detect=0.04, discordant=0.2)
    unsure = NoiseRate(0.01, 0.0, 0.03, "0 of 100 files", automatic=True)
    sure = NoiseRate(0.05, 0.04, 0.06, "450 of 9000 files", automatic=True)
    rates = (None, 0.05, unsure, sure)
    clean, noisy, *automatic = (make_plan(frame, goal, label_noise=rate) for rate in rates)
    assert noisy.n > clean.n
    assert [made.n for made in automatic] == [clean.n, noisy.n]
    seen = noisy.assumptions["difference_on_noisy_labels"]
    assert seen == pytest.approx(0.04 * (1 - 0.05 * 5 / 4))
    assert any("not guaranteed under class-dependent noise" in r for r in noisy.reasons)


def test_neyman_puts_units_where_models_err():
    frame = made_set(4000, 2)
    options = {"predictions": [predicted(frame, 0.9, 1)], "allocation": "neyman"}
    made = make_plan(frame, Goal(n=200), by=["confidence"], **options)
    low, *_, high = sorted(made.strata, key=lambda s: s.scale)
    assert low.n / low.units < high.n / high.units / 2
    assert len(made.strata) == 10


def test_strata_that_an_earlier_model_gets_right_get_units_too() -> None:
    frame = made_set(2000, 4)
    wrong = (pl.col("prediction") == "class0") & (ROW % 3 == 0)
    mixed = replaced(frame.select("sample_id", prediction="label"), wrong, "class1")
    made = make_plan(frame, Goal(n=200), allocation="neyman", predictions=[mixed])
    scales = [s.scale for s in made.strata]
    assert min(scales) >= 0.29 * max(scales)


def test_strata_are_merged_on_request_only():
    frame = made_set(500, 5)
    with pytest.raises(UsageError, match=r"each of 10 strata needs two.*at least 20"):
        make_plan(frame, Goal(n=12), by=["camera"])
    made = make_plan(frame, Goal(n=12), by=["camera"], merge_strata=True)
    assert [s.n for s in made.strata] == [2] * 6
    assert any("merged" in r for r in made.reasons)


def test_a_stratum_of_one_unit_is_merged_and_said():
    frame = replaced(made_set(200, 3), ROW == 0, "odd", "camera")
    made = make_plan(frame, Goal(n=40), by=["camera"])
    assert not any(s.name.endswith("camera=odd") for s in made.strata)
    assert min(s.units for s in made.strata) >= 2
    assert any("one unit each" in r for r in made.reasons)


def test_the_document_survives_json(tmp_path):
    frame = made_set(900, 3, excluded=7)
    made = make_plan(frame, Goal(half_width=0.06), by=["brightness"])
    saved = json.loads(json.dumps(made.document(), allow_nan=False))
    assert saved["schema"] == PLAN_SCHEMA
    assert set(saved["estimands"]) == {"agreement", "generalisation"}
    assert saved["estimands"]["agreement"]["estimand"] == "full-set"
    assert len(saved["excluded"]) == 7
    assert recipe_from(saved) == made.recipe
    made.save(tmp_path / "plan.json")
    assert load_recipe(tmp_path / "plan.json").hash == made.hash
    # the name of a plan is its recipe, not its size
    small, large, other = (
        make_plan(frame, Goal(n=n), by=by).hash for n, by in ((50, ()), (60, ()), (50, ["camera"]))
    )
    assert small == large != other


BAD_GOALS = [
    (Goal(), {}, "exactly one of"),
    (Goal(n=5, detect=0.1), {}, "--detect and --n given"),
    (Goal(metric="speed", n=5), {}, "'speed' does not exist"),
    (Goal(metric="accuracy:cat", n=5), {}, "over all classes"),
    (Goal(metric="precision", n=5), {}, "precision:CLASS"),
    (Goal(metric="macro-f1", half_width=0.02), {}, "No formula sizes a subset for macro-f1"),
    (Goal(half_width=0.7), {}, "between 0 and 0.5"),
    (Goal(half_width=float("nan")), {}, "between 0 and 1"),
    (Goal(detect=0.0), {}, "no number of examples"),
    (Goal(detect=2.0), {}, "between 0 and 1"),
    (Goal(n=1), {}, "at least 2"),
    (Goal(n=50, confidence=95), {}, "--confidence is 95"),
    (Goal(detect=0.1, power=1.0), {}, "power is 1.0"),
    (Goal(n=50, planning_value=1.2), {}, "expected is 1.2"),
    (Goal(n=50, rho=-0.1), {}, "correlation is -0.1"),
    (Goal(seconds=3), {}, "belong together"),
    (Goal(seconds=3, throughput=-1), {}, "greater than 0"),
    (Goal(seconds=math.inf, throughput=1), {}, "finite"),
    (Goal(seconds=0.01, throughput=1), {}, "fewer than 2"),
    (Goal(n=50, looks=0), {}, "at least 1"),
    (Goal(n=5000), {}, r"5000 units are too many: the eligible set has 200"),
    (Goal(detect=0.3, discordant=0.1), {}, "give a smaller --detect"),
    (Goal(n=50), {"by": ["colour"]}, "no column 'colour'"),
    (Goal(n=50), {"group": "hospital"}, "no column 'hospital'"),
    (Goal(n=50), {"allocation": "best"}, "choose proportional, equal or neyman"),
    (Goal(n=50), {"allocation": "neyman"}, "needs the errors of a model"),
    (Goal(n=50), {"by": ["confidence"]}, "needs the confidence of an earlier model"),
    (Goal(n=50), {"label_noise": 0.6}, "leaves no signal with 2 classes"),
    (Goal(n=50), {"label_noise": -0.1}, "leaves no signal"),
]


@pytest.mark.parametrize(("goal", "options", "sentence"), BAD_GOALS)
def test_bad_goals(goal, options, sentence):
    with pytest.raises(UsageError, match=sentence):
        make_plan(made_set(200, 2), goal, **options)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("{", "not JSON"), ("[]", "not a subset-plan/1"), ('{"schema": "subset-plan/1"}', "damaged")],
)
def test_bad_plan_files(tmp_path, text, sentence):
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=sentence):
        load_recipe(path)
    with pytest.raises(UsageError, match="cannot be read"):
        load_recipe(tmp_path / "absent.json")


def test_a_plan_for_macro_recall_sizes_the_mean_and_not_every_class() -> None:
    mean, each = (
        make_plan(made_set(4000, 10), Goal(metric=metric, half_width=0.04, planning_value=0.8))
        for metric in ("macro-recall", "recall")
    )
    assert mean.n <= 1.3 * sizes.proportion_n(0.04, 0.8, 0.95)  # unequal classes, all drawn alike
    assert mean.n < each.n / 3
    assert mean.unreachable == []
    assert mean.estimands["generalisation"].half_width <= 0.04


def test_the_planned_width_of_unequal_strata_is_the_printed_one() -> None:
    """Equal shares of unequal strata: `score` steadies the variance, and so must the plan."""
    rng, n_h = np.random.default_rng(1), np.full(10, 10)
    N = (6800 / np.arange(1, 11)).astype(int)
    p = 1 / (1 + np.exp(1.7 - np.linspace(-1.5, 1.5, 10)))
    planned = population.expected_half_width(population.Domain(N, p), n_h, "generalisation", 0.95)
    stratum, widths = np.repeat(np.arange(10), n_h), []
    for _ in range(200):
        hit = (rng.uniform(size=100) < p[stratum]).astype(float)
        r = weighted_ratio(unit_moments(hit, np.ones(100), stratum, N))
        low, high, _ = proportion_interval(r, "generalisation")
        widths.append(float(high - low) / 2)
    assert planned == pytest.approx(np.mean(widths), rel=0.05)


def of_giant_patients() -> tuple[pl.DataFrame, np.ndarray]:
    """Four patients hold half of 2,000 files: a plain draw is decided by which of them it has."""
    i = np.arange(2000)
    patient = np.where(i < 1000, i % 4, 4 + i % 300)
    return made_set(2000, 1).with_columns(patient=pl.Series(patient.astype(str))), patient


def test_giant_groups_are_all_taken() -> None:
    frame, patient = of_giant_patients()
    made = make_plan(frame, Goal(n=60, rho=0.3), group="patient")
    giants = next(s for s in made.strata if s.name == "units of more than 33 files")
    assert (giants.n, giants.units, giants.files) == (4, 4, 1000)
    assert any("4 groups of more than 33 files hold 50%" in r for r in made.reasons)
    assert recipe_from(json.loads(json.dumps(made.document()))) == made.recipe
    rng = np.random.default_rng(2)
    right = rng.beta(0.8 * 7 / 3, 0.2 * 7 / 3, 304)[patient] > rng.uniform(size=2000)
    answers = frame.select("sample_id", prediction="label")
    table = replaced(answers, pl.Series(~right), "other")
    held, widths = 0, []
    for seed in range(25):
        rows = draw_subset(frame, made.recipe, seed).rows
        assert {"0", "1", "2", "3"} <= set(rows["unit_id"])
        full = estimands(rows, table, unknown="wrong")["full-set"]
        held += full.low <= right.mean() <= full.high
        widths.append((full.high - full.low) / 2)
    assert held >= 21  # 95 % of 25 is 24; below 21 has a chance of 0.1 %
    assert max(widths) < 0.11  # a plain draw of 60 groups has 0.2 and more
    assert made.estimands["full-set"].half_width < 0.11


def test_detectable_difference_is_of_right_labels():
    """What is planned for is what the plan says: wrong labels make 5 points look like 4.69."""
    goal = Goal(detect=0.05, discordant=0.2)
    for noise in (None, 0.05, 0.3):
        plan = make_plan(made_set(60000, 5), goal, label_noise=noise)
        detected = plan.estimands["generalisation"].detectable_difference
        assert 0.0495 < detected <= 0.05
    # with so many wrong labels, 60 examples show no difference that two such models can have
    few = make_plan(made_set(6000, 5), Goal(n=60, discordant=0.2), label_noise=0.3)
    assert math.isnan(few.estimands["generalisation"].detectable_difference)


@pytest.mark.parametrize(("level", "text"), [
    (0.95, "0.95"), (0.99, "0.99"), (0.9975, "0.9975"), (1 - 0.05 / 10**6, "0.99999995"),
    (1 - 0.05 / 30, "0.9983"), (1 - 0.05 / 10**20, "just below 1"),
])  # fmt: skip
def test_a_level_is_never_shown_as_1(level, text):
    assert level_text(level) == text


def test_connors_sizes():
    """Connor (1987), Biometrics 43:207, as tabulated by two public calculators: 23 and 155."""
    assert math.ceil(sizes.connor_n(0.40, 0.50)) == 23  # p10 = .45, p01 = .05
    assert math.ceil(sizes.connor_n(0.15, 0.45)) == 155  # p10 = .30, p01 = .15
    assert np.isnan(sizes.connor_difference(5, 0.1))  # too few pairs detect nothing
    assert sizes.connor_difference(np.inf, 0.1) == 0
    with pytest.raises(UsageError, match="0 < D <= 1"):
        sizes.connor_n(0.0, 0.1)


@pytest.mark.parametrize("p", [0.5, 0.9, 0.97])
def test_every_larger_n_complies(p):
    width = 0.04
    n = sizes.proportion_n(width, p, 0.95)
    assert sizes.half_width(np.arange(n, n + 401), p, 0.95).max() <= width
    assert sizes.half_width(n - 1, p, 0.95)[0] > width


def test_exact_limits_take_over_at_half_of_the_set():
    at = sizes.half_width([499, 500], 0.3, population=1000)
    low, high = stats.hypergeometric_limits(150, 500, 1000)
    assert at[1] == pytest.approx((high - low) / 2000)
    assert at[0] < at[1]  # the jump that proportion_n must look past
    assert sizes.half_width(1000, 0.3, population=1000)[0] == 0


@given(st.floats(0.02, 0.9), st.floats(0.02, 0.9), st.sampled_from([0.8, 0.9]))
@settings(max_examples=80)
def test_connor_both_ways(discordant, fraction, power):
    difference = discordant * fraction
    n = sizes.connor_n(difference, discordant, 0.05, power)
    assert sizes.connor_difference(n, discordant, 0.05, power) == pytest.approx(difference)


def test_mcnemar_power_is_the_sum_over_outcomes():
    n, d, psi = 40, 0.2, 0.4
    b, c = np.meshgrid(np.arange(n + 1), np.arange(n + 1), indexing="ij")
    b, c = b[b + c <= n], c[b + c <= n]
    outcomes = np.stack([b, c, n - b - c], 1)
    chance = multinomial.pmf(outcomes, n, [(psi + d) / 2, (psi - d) / 2, 1 - psi])
    expected = chance[stats.mcnemar(b, c) <= 0.05].sum()
    assert sizes.mcnemar_power(n, d, psi) == pytest.approx(expected, abs=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize(("d", "psi"), [(0.02, 0.1), (0.05, 0.06), (0.1, 0.3), (0.2, 0.25)])
def test_planned_power_arrives(d, psi):
    n, why = sizes.paired_n(d, psi)
    assert abs(sizes.mcnemar_power(math.ceil(n), d, psi) - 0.8) <= 0.02
    assert ("enumeration" in why) == (d / psi > 0.75)


def test_label_noise_dilutes():
    d, psi = sizes.noisy_difference(0.05, 0.2, 0.1, 10, 0.05)
    assert d == pytest.approx(0.05 * (1 - 0.1 * 10 / 9))
    assert psi == pytest.approx(0.2 * (1 - 0.1 * 8 / 9) + 2 * 0.05 * 0.1 / 9)
    assert sizes.noisy_difference(0.05, 0.2, 0.0, 10, 0.05) == (0.05, 0.2)
    assert sizes.noise_bound(0.03, 0.2) == 0.06


@pytest.mark.slow
def test_label_noise_formula_by_simulation():
    """Uniform noise on simulated labels moves d and psi as the formula says (3 standard errors)."""
    rng, n, K, eta = np.random.default_rng(1), 2_000_000, 4, 0.15
    truth = rng.integers(0, K, n)
    a = np.where(rng.uniform(size=n) < 0.7, truth, (truth + rng.integers(1, K, n)) % K)
    b = np.where(rng.uniform(size=n) < 0.8, truth, (truth + rng.integers(1, K, n)) % K)
    right_a, right_b = a == truth, b == truth
    d, psi = right_b.mean() - right_a.mean(), (right_a != right_b).mean()
    both = (~right_a & ~right_b & (a != b)).mean()
    seen = np.where(rng.uniform(size=n) < eta, (truth + rng.integers(1, K, n)) % K, truth)
    change = (b == seen).astype(int) - (a == seen)
    expected = sizes.noisy_difference(d, psi, eta, K, both)
    assert abs(change.mean() - expected[0]) <= 3 * change.std() / math.sqrt(n)
    assert abs((change != 0).mean() - expected[1]) <= 3 * 0.5 / math.sqrt(n)


@pytest.mark.slow
def test_equivalent_n_is_the_ratio_of_variances():
    """Over repeated draws, the variance of the estimate is that of the equivalent simple sample."""
    frame = made_set(2000, 1, seed=6)
    table = predicted(frame, 0.75, 6)
    options = {"by": ["confidence"], "predictions": [table], "allocation": "neyman"}
    recipe = make_plan(frame, Goal(n=150), **options).recipe
    frame = frame.with_columns(confidence=table["confidence"])
    hit = (table["prediction"] == frame["label"]).cast(pl.Float64).to_numpy()
    found, *others = (
        metric_check(frame, recipe, draw_subset(frame, recipe, seed), table) for seed in range(80)
    )
    assert found.n == 150
    assert found.equivalent_n > 170
    estimates = [one.on_subset.value for one in (found, *others)]
    expected = (1 - found.equivalent_n / 2000) * hit.var(ddof=1) / found.equivalent_n
    # the standard error of a variance of 80 values is 16 % of it
    assert np.var(estimates) == pytest.approx(expected, rel=0.48)
    assert np.mean(estimates) == pytest.approx(hit.mean(), abs=0.012)
    assert f"n = {found.equivalent_n:.0f}" in found.sentence


def test_equivalent_n_of_a_plain_sample_is_its_size():
    frame = made_set(800, 1)
    files = select_eligible(frame).files
    hit = (np.arange(800) % 3 == 0).astype(float)
    size, n = equivalent_n(form_units(files, Strata()), hit, np.array([100]))
    assert (size, n) == (pytest.approx(100), 100)


@pytest.mark.slow
def test_the_curve_takes_giant_groups_as_a_plan_of_that_size_does():
    frame, _ = of_giant_patients()
    curve = make_curve(frame, Goal(n=2, rho=0.3), sizes=[30, 60, 120, 304], group="patient")
    for point in curve.points:
        made = make_plan(frame, Goal(n=point.n, rho=0.3), group="patient")
        for estimand, width in point.half_width.items():
            assert made.estimands[estimand].half_width == width
    assert sum("are always included" in r for r in curve.reasons) == 1
    plain = make_curve(made_set(400, 4), sizes=[40])
    assert not any("are always included" in r for r in plain.reasons)


def test_the_curve_is_the_plans_arithmetic():
    frame = made_set(1500, 5)
    found = make_curve(frame, sizes=[10, 100, 1500])
    assert [p.n for p in found.points] == [10, 100, 1500]
    bought, at = make_plan(frame, Goal(n=100)).estimands, found.points[1]
    assert at.half_width["full-set"] == bought["full-set"].half_width
    detected = bought["generalisation"].detectable_difference
    assert at.detectable_difference["generalisation"] == pytest.approx(detected)
    assert found.points[2].half_width["full-set"] == 0
    json.dumps(found.document(), allow_nan=False)
    assert "add little" in curve_text(found)


@pytest.mark.slow
def test_where_more_examples_stop_paying():
    found = make_curve(made_set(4000, 1))
    n = found.stops_paying["generalisation"]
    assert 1800 < n < 2600
    assert make_curve(made_set(500, 1)).stops_paying["generalisation"] is None
    widths = [p.half_width["generalisation"] for p in found.points]
    assert widths == sorted(widths, reverse=True)
    with pytest.raises(UsageError, match=r"between 2 .* and 500"):
        make_curve(made_set(500, 1), sizes=[600])


def test_the_plans_text_says_everything():
    frame = made_set(800, 3, groups=200, excluded=30)
    text = plan_text(make_plan(frame, Goal(half_width=0.02), group="patient", by=["camera"]))
    for part in ("this set", "new data", "30: unreadable file", "and 10 more", "more units",
                 "worst case", "Strata:", "design effect"):  # fmt: skip
        assert part in text


SESSIONS = Path("sample_data/sessions")


def by_the_profiler(path: Path) -> float:
    """Files per second from the profiler's own windows."""
    windows = [Window.of(run) for run in Session.load(path).arm(Arm.WARM)]
    samples = [n for window in windows for n in window.batches.samples]
    size = sum(samples) / len(samples)
    periods = sum(float(window.steps.period.sum()) for window in windows)
    return size * sum(map(len, windows)) / periods * 1e9


@pytest.mark.parametrize("name", ["torch-healthy", "torch-input-bound"])
def test_throughput_of_saved_sessions(name: str) -> None:
    path = SESSIONS / f"{name}.json.gz"
    assert session_throughput(path) == pytest.approx(by_the_profiler(path))


@pytest.mark.slow
def test_throughput_of_recorded_loops(tmp_path: Path) -> None:
    data = pytest.importorskip("torch.utils.data")

    def saved(loader, name: str) -> Path:
        recorder = Recorder()
        for _ in range(2):
            for _ in recorder.watch(loader):
                pass
        return recorder.save(tmp_path / name)

    # the last of three batches has two samples: an epoch of 10 in 3 steps
    path = saved(data.DataLoader(list(range(10)), batch_size=4), "torch.json")
    assert sum(Session.load(path).runs[0].batches["samples"]) == 20
    assert session_throughput(path) == pytest.approx(by_the_profiler(path))
    # a loader of ready batches has no batch size: nothing counts its files
    for unsized in (data.DataLoader([[1, 2], [3]], batch_size=None), [[1, 2], [3, 4]]):
        with pytest.raises(UsageError, match="no timed step of the real loader with a batch size"):
            session_throughput(saved(unsized, "unsized.json"))


def test_sessions_without_a_throughput_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not hold the throughput"):
        session_throughput(SESSIONS / "precision-cpu.json")
    for runs in ([1], [{"arm": "W"}], [{"arm": "W", "spans": {}, "batches": {}}], 5):
        (path := tmp_path / "x.json").write_text(json.dumps({"schema": "profile/1", "runs": runs}))
        with pytest.raises(UsageError, match="damaged profiler session"):
            session_throughput(path)
