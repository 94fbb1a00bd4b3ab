"""The price of stratification, the curve, the plan's text."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

from audit.errors import UsageError
from audit.subset import Goal, draw_subset, make_curve, make_plan, metric_check
from audit.subset.baseline import equivalent_n
from audit.subset.population import known_hits
from audit.subset.source import select_eligible
from audit.subset.text import curve_text, plan_text
from tests.audit.subset.frames import made_set, predicted


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
        for s in range(80)
    ]
    expected = (1 - found.equivalent_n / 2000) * hit.var(ddof=1) / found.equivalent_n
    # the standard error of a variance of 80 values is 16 % of it
    assert np.var(estimates) == pytest.approx(expected, rel=0.48)
    assert np.mean(estimates) == pytest.approx(hit.mean(), abs=0.012)
    assert f"n = {found.equivalent_n:.0f}" in found.sentence


def test_equivalent_n_of_a_plain_sample_is_its_size():
    from audit.subset.strata import Strata, form_units

    frame = made_set(800, 1)
    files = select_eligible(frame).files
    hit = (np.arange(800) % 3 == 0).astype(float)
    size, n = equivalent_n(form_units(files, Strata()), hit, np.array([100]))
    assert (size, n) == (pytest.approx(100), 100)


@pytest.mark.slow
def test_the_curve_takes_giant_groups_as_a_plan_of_that_size_does():
    i = np.arange(2000)
    patient = np.where(i < 1000, i % 4, 4 + i % 300)
    frame = made_set(2000, 1).with_columns(patient=pl.Series(patient.astype(str)))
    sizes = [30, 60, 120, 304]
    curve = make_curve(frame, Goal(n=2, rho=0.3), sizes=sizes, group="patient")
    for point in curve.points:
        made = make_plan(frame, Goal(n=point.n, rho=0.3), group="patient")
        for estimand, width in point.half_width.items():
            assert made.estimands[estimand].half_width == width
    assert sum("are all taken" in r for r in curve.reasons) == 1
    plain = make_curve(made_set(400, 4), sizes=[40])
    assert not any("are all taken" in r for r in plain.reasons)


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
    for part in ("full-set", "generalisation", "30: unreadable file", "and 10 more", "more units",
                 "worst case", "Strata:", "design effect"):  # fmt: skip
        assert part in text
