"""The bias check, the price of stratification, the curve."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

from audit.errors import UsageError
from audit.subset import Goal, bias_check, draw_subset, make_curve, make_plan, metric_check
from audit.subset.draw import Subset
from audit.subset.equivalent_size import equivalent_n
from audit.subset.frame import select_eligible
from audit.subset.prior import known_hits
from audit.subset.text import curve_text, draw_text, plan_text
from tests.audit.subset.frames import made_set, predicted


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"group": "patient"}, {"by": ["camera"]}])
def test_p_values_of_honest_draws_are_spread_evenly(options):
    frame = made_set(500, 3, groups=120, duplicates=30)
    recipe = make_plan(frame, Goal(n=50), **options).recipe
    found = []
    for seed in range(60):
        check = bias_check(
            frame, recipe, draw_subset(frame, recipe, seed), ["brightness"], 99, seed
        )
        found += [c.p for c in check.columns if c.column == "brightness"]
    assert 0.35 < np.mean(found) < 0.68
    assert min(found) < 0.2
    assert max(found) > 0.8


def test_a_subset_picked_by_hand_is_noticed():
    frame = made_set(500, 1)
    recipe = make_plan(frame, Goal(n=50)).recipe
    honest = draw_subset(frame, recipe, 1)
    dark = frame.sort("brightness").head(50)
    rows = honest.rows.with_columns(sample_id=dark["sample_id"], unit_id=dark["sample_id"])
    check = bias_check(frame, recipe, Subset(rows, 50, 500), ["brightness"])
    (found,) = check.columns
    assert found.column == "brightness"
    assert found.p == 0.001
    assert found.standardized_difference < -1
    assert "do not redraw" in found.sentence
    assert check.fixed == ["label"]


def test_stratified_columns_cannot_move():
    frame = made_set(400, 2)
    recipe = make_plan(frame, Goal(n=40)).recipe
    subset = draw_subset(frame, recipe, 1)
    check = bias_check(frame, recipe, subset)
    assert check.fixed == ["label"]
    assert {c.column for c in check.columns} == {"brightness", "camera"}
    assert "The same in every draw: label." in draw_text(subset, check, None)
    json.dumps(check.document(), allow_nan=False)


def test_nulls_are_a_level_of_their_own():
    frame = made_set(300, 1).with_columns(
        brightness=pl.when(pl.col("brightness") > 0.5).then("brightness")
    )
    recipe = make_plan(frame, Goal(n=60), by=["brightness"]).recipe
    check = bias_check(frame, recipe, draw_subset(frame, recipe, 1), ["brightness"], 49)
    assert [c.column for c in check.columns] == ["brightness"]


@pytest.mark.slow
def test_equivalent_n_is_the_ratio_of_variances():
    """Over repeated draws, the variance of the estimate is that of the equivalent simple sample."""
    frame = made_set(2000, 1, seed=6)
    table = predicted(frame, 0.75, 6)
    recipe = make_plan(
        frame, Goal(n=150), by=["confidence"], predictions=[table], allocation="neyman"
    ).recipe
    frame = frame.with_columns(confidence=table["confidence"])
    hit = known_hits(frame, [table], False)
    first = draw_subset(frame, recipe, 0)
    found = metric_check(frame, recipe, first, hit)
    assert found.n == 150
    assert found.equivalent_n > 170
    estimates = [
        metric_check(frame, recipe, draw_subset(frame, recipe, s), hit).on_subset.value
        for s in range(300)
    ]
    expected = (1 - found.equivalent_n / 2000) * hit.var(ddof=1) / found.equivalent_n
    assert np.var(estimates) == pytest.approx(expected, rel=0.3)
    assert np.mean(estimates) == pytest.approx(hit.mean(), abs=0.006)
    assert f"n = {found.equivalent_n:.0f}" in found.sentence


def test_equivalent_n_of_a_plain_sample_is_its_size():
    from audit.subset.strata import Strata
    from audit.subset.units import form_units

    frame = made_set(800, 1)
    files = select_eligible(frame).files
    hit = (np.arange(800) % 3 == 0).astype(float)
    size, n = equivalent_n(form_units(files, Strata()), hit, np.array([100]))
    assert (size, n) == (pytest.approx(100), 100)


@pytest.mark.slow
def test_the_curve_is_the_plans_arithmetic():
    frame = made_set(1500, 5)
    found = make_curve(frame, sizes=[10, 100, 1500])
    assert [p.n for p in found.points] == [10, 100, 1500]
    bought = make_plan(frame, Goal(n=100)).estimands
    at = found.points[1]
    assert at.half_width["full-set"] == bought["full-set"].half_width
    assert at.detectable_difference["generalisation"] == pytest.approx(
        bought["generalisation"].detectable_difference
    )
    assert found.points[2].half_width["full-set"] == 0
    json.dumps(found.document(), allow_nan=False)
    assert "stop paying" in curve_text(found)


@pytest.mark.slow
def test_where_more_examples_stop_paying():
    found = make_curve(made_set(9000, 1))
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
    for part in ("full-set", "generalisation", "30: unreadable file", "and 10 more", "more units",
                 "worst case", "Strata:", "design effect"):  # fmt: skip
        assert part in text
