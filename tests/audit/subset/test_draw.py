"""Draws: nested, the same everywhere, stable under new data; permanent random numbers."""

from __future__ import annotations

from functools import cache

import blake3
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest

from audit.errors import UsageError
from audit.subset import Goal, census, draw_subset, first_units, make_plan
from audit.subset import draw as numbers
from audit.subset.draw import COLUMNS, PLANNED
from audit.subset.predictions import SET_CLASSES
from tests.audit.subset.frames import made_set, predicted

KINDS = st.sampled_from(["files", "duplicates", "groups", "strata", "neyman"])


@cache
def case(kind, seed):
    """Return a frame and a recipe of a kind."""
    frame = made_set(
        400, 4, seed=seed, groups=90 if kind == "groups" else 0,
        duplicates=60 if kind == "duplicates" else 0, excluded=20,
    )  # fmt: skip
    options = {
        "groups": {"group": "patient"},
        "strata": {"by": ["camera", "brightness"]},
        "neyman": {"predictions": [predicted(frame, 0.8, seed)], "allocation": "neyman"},
    }
    return frame, make_plan(frame, Goal(n=70), **options.get(kind, {})).recipe


@pytest.mark.slow
@given(KINDS, st.integers(0, 1), st.integers(-(2**40), 2**40), st.integers(64, 79))
@settings(max_examples=20)
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
@settings(max_examples=10)
def test_the_order_of_the_rows_does_not_matter(kind, data, seed):
    frame, recipe = case(kind, data)
    shuffled = frame.sample(fraction=1.0, shuffle=True, seed=seed)
    assert draw_subset(frame, recipe, seed).rows.equals(draw_subset(shuffled, recipe, seed).rows)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 613])
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
@settings(max_examples=10)
def test_rows_carry_their_design(kind, data):
    frame, recipe = case(kind, data)
    rows = draw_subset(frame, recipe, 3).rows
    assert tuple(rows.columns) == (*COLUMNS, *PLANNED, SET_CLASSES)
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
    for seed in range(120):
        rows = draw_subset(frame, recipe, seed).rows
        for unit, chance in zip(rows["unit_id"], rows["inclusion_probability"], strict=True):
            counts[unit] = counts.get(unit, 0) + 1 / chance
    found = np.array(list(counts.values())) / 120
    assert len(found) == 50
    assert np.all(np.abs(found - 1) < 4.5 * np.sqrt(2 / 120))  # a pair no likelier than a file


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


def test_splitmix64_published():
    """First outputs of the reference C code for seed 1234567 (Vigna, prng.di.unimi.it)."""
    gamma = 0x9E3779B97F4A7C15
    states = np.array([(1234567 + i * gamma) % 2**64 for i in range(3)], np.uint64)
    assert numbers.splitmix64(states).tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


@given(st.lists(st.text(max_size=40), min_size=1, max_size=50))
@settings(max_examples=50)
def test_a_key_is_the_first_eight_bytes_of_its_hash(keys):
    series = pl.Series(["an offset into the buffer", *keys], dtype=pl.String).slice(1)
    expected = [int.from_bytes(blake3.blake3(k.encode()).digest(8), "little") for k in keys]
    assert numbers.hash_keys(series).tolist() == expected


def test_the_formula():
    key, seed = "abc", 7
    h = int.from_bytes(blake3.blake3(b"abc").digest(8), "little")
    salt = int(numbers.splitmix64(np.array([seed], np.uint64))[0])
    mixed = int(numbers.splitmix64(np.array([h ^ salt], np.uint64))[0])
    assert numbers.permanent_numbers(pl.Series([key]), seed)[0] == (mixed >> 11) * 2.0**-53


def test_fixed_for_all_time():
    """These values must never change: a subset drawn last year must be drawn again today."""
    found = numbers.permanent_numbers(pl.Series(["a", "b", "0" * 64]), 42)
    assert found.tolist() == [0.7718093125981255, 0.521205514359919, 0.6261089148078374]


def test_uniform_and_independent_of_order():
    keys = pl.Series([f"key {i}" for i in range(20_000)])
    u = numbers.permanent_numbers(keys, 1)
    assert kstest(u, "uniform").pvalue > 1e-4
    assert numbers.permanent_numbers(keys.reverse(), 1).tolist() == u[::-1].tolist()
    for seed in (2, -1):  # negative seeds are seeds
        assert abs(np.corrcoef(u, numbers.permanent_numbers(keys, seed))[0, 1]) < 0.03
    assert len(numbers.permanent_numbers(keys.head(0), 1)) == 0
