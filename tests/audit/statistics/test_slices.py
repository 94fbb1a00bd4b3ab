"""Slices in which a model fails: planted ones come first, and errors at random make none."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from audit.statistics.slices import LEVEL, NONE, SCHEMA, find_slices, slice_rows

PLANTED = (
    ("label", "c3"), ("label", "c9"), ("camera", "b"), ("camera", NONE), ("pixels", "200"),
    ("cluster", "7"), ("brightness", "at most"), ("sharpness", "at least"), ("f1", "at most"),
    ("contrast", "at least"),
)  # fmt: skip


def world(seed: int, n: int = 2500) -> tuple[np.random.Generator, pl.DataFrame]:
    """Columns of which some are related: a cluster is mostly one class, contrast follows light."""
    rng = np.random.default_rng(seed)
    label, light = rng.integers(0, 10, n), rng.normal(120, 30, n)
    cluster = np.where(rng.random(n) < 0.8, label, rng.integers(0, 10, n))
    cameras = rng.choice(list("abcd-"), n).tolist()
    numbers = {f"f{k}": rng.normal(size=n) for k in range(4)}
    light[:5] = np.nan
    return rng, pl.DataFrame({
        "label": [f"c{i}" for i in label], "cluster": [str(i) for i in cluster],
        "camera": [None if v == "-" else v for v in cameras], "brightness": light,
        "contrast": light * 0.4 + rng.normal(0, 20, n), "sharpness": rng.lognormal(5, 1, n),
        "pixels": rng.choice([100, 200, 400], n), **numbers,
    })  # fmt: skip


def planted(columns: pl.DataFrame, column: str, value: str) -> np.ndarray:
    x = columns[column]
    if not value.startswith("at "):
        return (x.cast(pl.String).fill_null(NONE) == value).to_numpy()
    share = 0.1 if value == "at most" else 0.9
    bound = float(x.fill_nan(None).quantile(share) or 0)
    inside = x <= bound if value == "at most" else (x >= bound) & ~x.is_nan()
    return inside.to_numpy()


def test_a_planted_slice_comes_first_and_errors_at_random_make_none() -> None:
    first = 0
    for seed, (column, value) in enumerate(PLANTED):
        rng, columns = world(seed)
        inside = planted(columns, column, value)
        found = find_slices(rng.random(len(columns)) < np.where(inside, 0.3, 0.1), columns)
        assert found.schema == SCHEMA
        assert found["q"].max() <= LEVEL  # type: ignore[operator]
        top = found.row(0, named=True)
        rows = slice_rows(columns, top)
        assert rows.sum() == top["n"]
        overlap = (rows & inside).sum() / (rows | inside).sum()
        first += top["column"] == column and overlap > 0.4
        assert top["low"] < top["share"] < top["high"]
        assert top["elsewhere"] < top["low"]
    assert first >= 9
    worlds = [world(seed) for seed in range(40)]
    by_chance = [find_slices(rng.random(len(c)) < 0.12, c).height for rng, c in worlds]
    assert sum(n > 0 for n in by_chance) <= 1  # LEVEL of 40


def test_several_slices_are_each_told_once() -> None:
    rng, columns = world(77, 8000)
    both = [planted(columns, *PLANTED[0]), planted(columns, *PLANTED[6])]
    wrong = rng.random(len(columns)) < 0.08 + 0.3 * both[0] + 0.3 * both[1]
    found = find_slices(wrong, columns)
    # the cluster that holds the class, and the contrast that follows the light, say nothing new
    assert sorted(found["column"]) == ["brightness", "label"]


def test_weights_make_few_heavy_rows_no_evidence() -> None:
    rng, columns = world(5)
    inside = planted(columns, "label", "c3")
    wrong = rng.random(len(columns)) < np.where(inside, 0.3, 0.1)
    plain = find_slices(wrong, columns)
    even = find_slices(wrong, columns, np.full(len(columns), 7.0))
    assert plain["p"].to_list() == pytest.approx(even["p"].to_list())
    heavy = np.where(rng.random(len(columns)) < 0.02, 500.0, 1.0)
    assert find_slices(wrong, columns, heavy).is_empty()


@pytest.mark.parametrize("wrong", [np.zeros(60, bool), np.ones(60, bool)])
def test_a_model_that_is_always_right_or_wrong_has_no_slice(wrong: np.ndarray) -> None:
    columns = pl.DataFrame({"x": range(60), "all": ["a"] * 60, "ids": map(str, range(60))})
    assert find_slices(wrong, columns).is_empty()
    assert find_slices(wrong[:0], columns.head(0)).is_empty()
