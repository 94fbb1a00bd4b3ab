"""Draws: nested, the same everywhere, stable under new data, weights that add up."""

from __future__ import annotations

from functools import cache

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.errors import UsageError
from audit.subset import Goal, census, draw_subset, first_units, make_plan
from audit.subset.draw import COLUMNS, PLANNED
from tests.audit.subset.frames import made_set, predicted

KINDS = st.sampled_from(["files", "duplicates", "groups", "strata", "neyman"])


@cache
def case(kind, seed):
    """Return a frame and a recipe of a kind."""
    frame = made_set(
        400, 4, seed=seed, groups=90 if kind == "groups" else 0,
        duplicates=60 if kind == "duplicates" else 0, excluded=20,
    )  # fmt: skip
    options = {}
    if kind == "groups":
        options = {"group": "patient"}
    if kind == "strata":
        options = {"by": ["camera", "brightness"]}
    if kind == "neyman":
        options = {"predictions": [predicted(frame, 0.8, seed)], "allocation": "neyman"}
    return frame, make_plan(frame, Goal(n=70), **options).recipe


@pytest.mark.slow
@given(KINDS, st.integers(0, 1), st.integers(-(2**40), 2**40), st.integers(64, 79))
@settings(max_examples=20, deadline=None)
def test_nested(kind, data, seed, n):
    frame, recipe = case(kind, data)
    small = draw_subset(frame, recipe, seed, n=n)
    large = draw_subset(frame, recipe, seed, n=n + 1)
    inner, outer = set(small.rows["unit_id"]), set(large.rows["unit_id"])
    assert inner < outer
    assert (len(inner), len(outer)) == (n, n + 1)
    shortened = first_units(large.rows, n)
    assert shortened.sort("sample_id").equals(small.rows.sort("sample_id"))


@pytest.mark.slow
@given(KINDS, st.integers(0, 1), st.integers(0, 10**6))
@settings(max_examples=10, deadline=None)
def test_the_order_of_the_rows_does_not_matter(kind, data, seed):
    frame, recipe = case(kind, data)
    shuffled = frame.sample(fraction=1.0, shuffle=True, seed=seed)
    assert draw_subset(frame, recipe, seed).rows.equals(draw_subset(shuffled, recipe, seed).rows)


def test_the_same_rows_for_all_time():
    """These rows must never change: a draw is a function of hashes and the seed."""
    frame = made_set(400, 4)
    rows = draw_subset(frame, make_plan(frame, Goal(n=8)).recipe, 7).rows
    assert rows["sample_id"].to_list() == FIXED


FIXED = [
    "test/000349.png",
    "test/000001.png",
    "test/000177.png",
    "test/000249.png",
    "test/000327.png",
    "test/000344.png",
    "test/000031.png",
    "test/000392.png",
]


@pytest.mark.slow
@given(st.integers(0, 1000))
@settings(max_examples=8, deadline=None)
def test_new_data_change_the_subset_in_proportion(seed):
    """One per cent new files: about one per cent of the subset changes (limit 4 %, as n = 500)."""
    old = made_set(5000, 4, seed=seed)
    fresh = made_set(50, 4, seed=seed + 5000).with_columns(sample_id="new/" + pl.col("sample_id"))
    recipe = make_plan(old, Goal(n=500)).recipe
    before = set(draw_subset(old, recipe, seed).rows["sample_id"])
    after = set(draw_subset(pl.concat([old, fresh]), recipe, seed).rows["sample_id"])
    assert len(before - after) <= 20


@pytest.mark.slow
@given(KINDS, st.integers(0, 1))
@settings(max_examples=10, deadline=None)
def test_rows_carry_their_design(kind, data):
    frame, recipe = case(kind, data)
    rows = draw_subset(frame, recipe, 3).rows
    assert tuple(rows.columns) == (*COLUMNS, *PLANNED)
    held = rows.group_by("stratum").agg(
        pl.col("unit_id").n_unique().alias("drawn"), pl.col("n_h", "N_h").first()
    )
    assert (held["drawn"] == held["n_h"]).all()
    assert (held["drawn"] >= 2).all()
    assert np.allclose(rows["inclusion_probability"], rows["n_h"] / rows["N_h"])
    stands_for = rows["weight"] * rows["inclusion_probability"]
    expected = np.ones(len(rows)) if kind == "groups" else rows["unit_size"]
    assert np.allclose(stands_for, expected)
    assert sorted(rows["rank"].unique()) == list(range(1, 71))
    assert not set(rows["sample_id"]) & set(frame.tail(20)["sample_id"])  # the excluded


@pytest.mark.slow
def test_every_unit_is_equally_likely_within_its_stratum():
    frame = made_set(60, 2, duplicates=10)
    recipe = make_plan(frame, Goal(n=20)).recipe
    counts: dict[str, int] = {}
    for seed in range(250):
        rows = draw_subset(frame, recipe, seed).rows
        for unit, chance in zip(rows["unit_id"], rows["inclusion_probability"], strict=True):
            counts[unit] = counts.get(unit, 0) + 1 / chance
    found = np.array(list(counts.values())) / 250
    assert len(found) == 50
    assert np.all(np.abs(found - 1) < 4.5 * np.sqrt(2 / 250))  # a pair no likelier than a file


def test_a_fresh_draw_shares_no_unit():
    for group in (None, "patient"):
        frame = made_set(900, 3, groups=200)
        recipe = make_plan(frame, Goal(n=60), group=group).recipe
        old = draw_subset(frame, recipe, 1)
        new = draw_subset(frame, recipe, 2, fresh_from=old.rows)
        assert not set(old.rows["sample_id"]) & set(new.rows["sample_id"])
        assert new.population_units == old.population_units - 60
        assert any("60 units of the earlier subset" in note for note in new.notes)


def test_a_census_weighs_every_file_once():
    frame = made_set(300, 3, duplicates=40, excluded=10)
    rows = census(frame).rows
    assert rows["weight"].sum() == 290
    assert len(rows) == 250
    assert len(census(frame, group="camera").rows) == 290
    assert len(census(frame, deduplicated=True).rows) == 250


def test_a_changed_set_is_said():
    frame = made_set(300, 3)
    recipe = make_plan(frame, Goal(n=30)).recipe
    more = pl.concat([frame, made_set(40, 1, seed=9).with_columns(
        sample_id="x" + pl.col("sample_id"), label=pl.lit("new"))])  # fmt: skip
    assert "not in the plan (new)" in draw_subset(more, recipe, 1).notes[0]
    fewer = frame.filter(pl.col("label") != "class2")
    assert "are empty now (class2)" in draw_subset(fewer, recipe, 1).notes[0]


def test_bad_draws():
    frame = made_set(300, 3)
    recipe = make_plan(frame, Goal(n=30)).recipe
    with pytest.raises(UsageError, match="at most 300"):
        draw_subset(frame, recipe, 1, n=301)
    with pytest.raises(UsageError, match="two to each of 3 strata"):
        draw_subset(frame, recipe, 1, n=5)
    with pytest.raises(UsageError, match="that `audit subset draw` wrote"):
        draw_subset(frame, recipe, 1, fresh_from=frame)
    rows = draw_subset(frame, recipe, 1).rows
    with pytest.raises(UsageError, match="give 2 to 30"):
        first_units(rows, 31)
    with pytest.raises(UsageError, match="fewer than two to"):
        first_units(rows, 4)
