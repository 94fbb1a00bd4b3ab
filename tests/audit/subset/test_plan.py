"""Plans: targets, what is bought, what is not reachable, every automatic choice said."""

from __future__ import annotations

import json
import math

import numpy as np
import polars as pl
import pytest

from audit.errors import UsageError
from audit.statistics import intervals as stats
from audit.subset import (
    Goal,
    NoiseRate,
    draw_subset,
    make_plan,
    population,
    recipe_from,
    score_subset,
    sizes,
)
from audit.subset.draw import PLAN_SCHEMA, load_recipe
from audit.subset.estimate import proportion_interval, unit_moments, weighted_ratio
from audit.subset.goal import level_text
from tests.audit.subset.frames import made_set, predicted


def even_set(n, classes):
    return made_set(n, classes).with_columns(
        label=pl.Series([f"class{i % classes}" for i in range(n)])
    )


@pytest.mark.slow
@pytest.mark.parametrize("classes", [1, 10])
def test_the_specifications_example(classes):
    made = make_plan(even_set(1000, classes), Goal(half_width=0.04))
    assert made.n == 597
    assert made.estimands["full-set"].n_for_target == 374
    assert make_plan(even_set(1000, classes), Goal(half_width=0.04, estimand="full-set")).n == 374


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


@pytest.mark.slow
def test_recall_gives_each_class_what_it_needs_or_has():
    frame = made_set(3000, 3, shares=[0.8, 0.18, 0.02])
    made = make_plan(frame, Goal(metric="recall", half_width=0.06))
    need = sizes.proportion_n(0.06)
    held = {s.name: (s.n, s.units) for s in made.strata}
    assert need <= held["class0"][0] <= need + 3
    assert need <= held["class1"][0] <= need + 3
    assert held["class2"][0] == held["class2"][1]
    assert [u.what for u in made.unreachable] == ["class2"]
    small = next(c for c in made.classes if c.label == "class2")
    assert small.step == pytest.approx(1 / small.n)
    assert small.estimands["full-set"].half_width == 0


def test_one_class_and_its_rest():
    frame = made_set(3000, 4)
    one = make_plan(frame, Goal(metric="recall:class1", half_width=0.05))
    assert [s.n > 2 for s in one.strata] == [False, True, False, False]
    rest = make_plan(frame, Goal(metric="specificity:class1", half_width=0.05))
    assert [s.n > 2 for s in rest.strata] == [True, False, True, True]
    with pytest.raises(UsageError, match="no class 'dog'"):
        make_plan(frame, Goal(metric="recall:dog", half_width=0.05))


def test_a_difference_finer_than_one_example_is_unreachable():
    made = make_plan(made_set(90, 3), Goal(metric="recall", detect=0.01, discordant=0.2))
    assert len(made.unreachable) == 3
    assert "one of" in made.unreachable[0].sentence


def test_a_difference_takes_what_connor_says():
    frame = made_set(2000, 1)
    pair = make_plan(frame, Goal(detect=0.03, discordant=0.1, planning_value=0.8))
    assert pair.n == math.ceil(sizes.connor_n(0.03, 0.1))


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
    whole = make_plan(
        made_set(1000, 4, groups=200), Goal(seconds=10, throughput=50), group="patient"
    )
    assert whole.n == math.floor(500 / (1000 / whole.n_units))


def test_a_budget_larger_than_the_set_takes_the_set():
    made = make_plan(made_set(200, 4), Goal(seconds=600, throughput=40))
    assert made.n == made.n_units == 200
    assert any("pays for 24000 units" in reason for reason in made.reasons)


def test_few_or_unequal_groups_are_warned_about():
    frame = made_set(3000, 1, groups=300)
    goal = Goal(n=200, rho=0.3)
    assert not any("Warning" in r for r in make_plan(frame, goal, group="patient").reasons)
    few = make_plan(frame, Goal(n=8, rho=0.3), group="patient")
    assert any("rough" in r and "Draw more groups" in r for r in few.reasons)
    # Two patients with most of the pictures: the same number of groups tells far less.
    size = np.where(np.arange(3000) < 2000, np.arange(3000) % 2, 2 + np.arange(3000) % 298)
    heavy = make_plan(
        frame.with_columns(patient=pl.Series(size.astype(str))), goal, group="patient"
    )
    assert any("worth about" in r for r in heavy.reasons)
    even, uneven = (
        p.estimands["generalisation"] for p in (make_plan(frame, goal, group="patient"), heavy)
    )
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
    assert any("the target is the metric over distinct pictures" in r for r in distinct.reasons)


@pytest.mark.slow
def test_looks_have_a_price():
    one = make_plan(made_set(9000, 1), Goal(detect=0.04, discordant=0.2))
    five = make_plan(made_set(9000, 1), Goal(detect=0.04, discordant=0.2, looks=5))
    assert one.n < five.n
    assert five.n == math.ceil(sizes.connor_n(0.04, 0.2, 0.01))
    assert any(f"{five.n} units where one comparison takes {one.n}" in r for r in five.reasons)


@pytest.mark.slow
def test_label_noise():
    frame = made_set(9000, 5)
    clean = make_plan(frame, Goal(detect=0.04, discordant=0.2))
    noisy = make_plan(frame, Goal(detect=0.04, discordant=0.2), label_noise=0.05)
    assert noisy.n > clean.n
    assert noisy.assumptions["difference_on_noisy_labels"] == pytest.approx(
        0.04 * (1 - 0.05 * 5 / 4)
    )
    assert any("not guaranteed under class-dependent noise" in r for r in noisy.reasons)
    unsure = NoiseRate(0.01, 0.0, 0.03, "0 of 100 files", automatic=True)
    assert make_plan(frame, Goal(detect=0.04, discordant=0.2), label_noise=unsure).n == clean.n
    sure = NoiseRate(0.05, 0.04, 0.06, "450 of 9000 files", automatic=True)
    assert make_plan(frame, Goal(detect=0.04, discordant=0.2), label_noise=sure).n == noisy.n


def test_neyman_puts_units_where_models_err():
    frame = made_set(4000, 2)
    table = predicted(frame, 0.9, 1)
    made = make_plan(
        frame, Goal(n=200), by=["confidence"], predictions=[table], allocation="neyman"
    )
    by_scale = sorted(made.strata, key=lambda s: s.scale)
    assert by_scale[0].n / by_scale[0].units < by_scale[-1].n / by_scale[-1].units / 2
    assert len(made.strata) == 10


def test_strata_are_merged_on_request_only():
    frame = made_set(500, 5)
    with pytest.raises(
        UsageError, match=r"12 units cannot give two to each of 10 strata.*at least 20"
    ):
        make_plan(frame, Goal(n=12), by=["camera"])
    made = make_plan(frame, Goal(n=12), by=["camera"], merge_strata=True)
    assert len(made.strata) == 6
    assert all(s.n == 2 for s in made.strata)
    assert any("merged" in r for r in made.reasons)


def test_a_stratum_of_one_unit_is_merged_and_said():
    import polars as pl

    frame = made_set(200, 3).with_columns(
        camera=pl.when(pl.int_range(pl.len()) == 0).then(pl.lit("odd")).otherwise("camera")
    )
    made = make_plan(frame, Goal(n=40), by=["camera"])
    assert not any(s.name.endswith("camera=odd") for s in made.strata)
    assert min(s.units for s in made.strata) >= 2
    assert any("one unit each" in r for r in made.reasons)


def test_the_document_survives_json(tmp_path):
    frame = made_set(900, 3, excluded=7)
    made = make_plan(frame, Goal(half_width=0.06), by=["brightness"])
    document = json.loads(json.dumps(made.document(), allow_nan=False))
    assert document["schema"] == PLAN_SCHEMA
    assert set(document["estimands"]) == {"agreement", "generalisation"}
    assert document["estimands"]["agreement"]["estimand"] == "full-set"
    assert len(document["excluded"]) == 7
    assert recipe_from(document) == made.recipe
    made.save(tmp_path / "plan.json")
    assert load_recipe(tmp_path / "plan.json").hash == made.hash


def test_the_name_of_a_plan_is_its_recipe_not_its_size():
    frame = made_set(900, 3)
    assert make_plan(frame, Goal(n=50)).hash == make_plan(frame, Goal(n=60)).hash
    assert make_plan(frame, Goal(n=50)).hash != make_plan(frame, Goal(n=50), by=["camera"]).hash


BAD_GOALS = [
    (Goal(), "exactly one of"),
    (Goal(n=5, detect=0.1), "--detect and --n given"),
    (Goal(metric="speed", n=5), "'speed' does not exist"),
    (Goal(metric="accuracy:cat", n=5), "over all classes"),
    (Goal(metric="precision", n=5), "precision:CLASS"),
    (Goal(metric="macro-f1", half_width=0.02), "No formula sizes a subset for macro-f1"),
    (Goal(half_width=0.7), "between 0 and 0.5"),
    (Goal(half_width=float("nan")), "between 0 and 1"),
    (Goal(detect=0.0), "no number of examples"),
    (Goal(detect=2.0), "between 0 and 1"),
    (Goal(n=1), "at least 2"),
    (Goal(n=50, confidence=95), "--confidence is 95"),
    (Goal(detect=0.1, power=1.0), "--power is 1.0"),
    (Goal(n=50, planning_value=1.2), "--p is 1.2"),
    (Goal(n=50, rho=-0.1), "--rho is -0.1"),
    (Goal(seconds=3), "belong together"),
    (Goal(seconds=3, throughput=-1), "greater than 0"),
    (Goal(seconds=math.inf, throughput=1), "finite"),
    (Goal(seconds=0.01, throughput=1), "fewer than 2"),
    (Goal(n=50, looks=0), "at least 1"),
    (Goal(n=5000), r"5000 units were asked for and the eligible set has 200"),
    (Goal(detect=0.3, discordant=0.1), "ask for a smaller --detect"),
]


@pytest.mark.parametrize(("goal", "sentence"), BAD_GOALS)
def test_bad_goals(goal, sentence):
    with pytest.raises(UsageError, match=sentence):
        make_plan(made_set(200, 2), goal)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"by": ["colour"]}, "no column 'colour'"),
        ({"group": "hospital"}, "no column 'hospital'"),
        ({"allocation": "best"}, "choose proportional, equal or neyman"),
        ({"allocation": "neyman"}, "needs to know where a model errs"),
        ({"by": ["confidence"]}, "needs the confidence of an earlier model"),
        ({"label_noise": 0.6}, "leaves no signal with 2 classes"),
        ({"label_noise": -0.1}, "leaves no signal"),
    ],
)
def test_bad_options(options, sentence):
    with pytest.raises(UsageError, match=sentence):
        make_plan(made_set(200, 2), Goal(n=50), **options)


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
    frame = made_set(4000, 10)
    mean = make_plan(frame, Goal(metric="macro-recall", half_width=0.04, planning_value=0.8))
    each = make_plan(frame, Goal(metric="recall", half_width=0.04, planning_value=0.8))
    single = sizes.proportion_n(0.04, 0.8, 0.95)
    assert mean.n <= 1.3 * single  # unequal classes, all drawn alike
    assert mean.n < each.n / 3
    assert mean.unreachable == []
    assert mean.estimands["generalisation"].half_width <= 0.04


def test_strata_that_an_earlier_model_gets_right_get_units_too() -> None:
    frame = made_set(2000, 4)
    right = frame.select("sample_id", prediction="label")
    wrong = pl.col("sample_id").str.slice(5, 6).cast(pl.Int64) % 3 == 0
    mixed = right.with_columns(
        prediction=pl.when(wrong & (pl.col("prediction") == "class0"))
        .then(pl.lit("class1"))
        .otherwise("prediction")
    )
    made = make_plan(frame, Goal(n=200), allocation="neyman", predictions=[mixed])
    scale = {s.label: s.scale for s in made.strata}
    assert min(scale.values()) >= 0.29 * max(scale.values())


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


def test_giant_groups_are_all_taken() -> None:
    """Four patients hold half of the files: a plain draw is decided by which of them it has."""
    i = np.arange(2000)
    patient = np.where(i < 1000, i % 4, 4 + i % 300)
    frame = made_set(2000, 1).with_columns(patient=pl.Series(patient.astype(str)))
    made = make_plan(frame, Goal(n=60, rho=0.3), group="patient")
    giants = next(s for s in made.strata if s.name == "units of more than 33 files")
    assert (giants.n, giants.units, giants.files) == (4, 4, 1000)
    assert any("4 groups of more than 33 files hold 50 %" in r for r in made.reasons)
    assert recipe_from(json.loads(json.dumps(made.document()))) == made.recipe
    half = made.estimands["full-set"].half_width
    rng = np.random.default_rng(2)
    right = rng.beta(0.8 * 7 / 3, 0.2 * 7 / 3, 304)[patient] > rng.uniform(size=2000)
    table = frame.select(
        "sample_id", prediction=pl.when(pl.Series(right)).then("label").otherwise(pl.lit("other"))
    )
    held, widths = 0, []
    for seed in range(25):
        rows = draw_subset(frame, made.recipe, seed).rows
        assert {"0", "1", "2", "3"} <= set(rows["unit_id"])
        found = score_subset(rows, [table], unknown="wrong").models[0].metrics[0]
        full = found.estimands["full-set"]
        held += full.low <= right.mean() <= full.high
        widths.append((full.high - full.low) / 2)
    assert held >= 21  # 95 % of 25 is 24; below 21 has a chance of 0.1 %
    assert max(widths) < 0.11  # a plain draw of 60 groups has 0.2 and more
    assert half < 0.11


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
