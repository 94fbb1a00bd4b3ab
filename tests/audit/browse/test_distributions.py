"""Histograms, samples of points and lassos over made-up rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from audit.browse import distributions
from audit.browse.conditions import OneOf
from audit.browse.distributions import inside
from audit.run import generations
from audit.run.store import Store
from tests.audit.browse.test_images import ROWS, N
from tests.audit.reviewed import made_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_run(tmp_path_factory.mktemp("made") / "run", ROWS)


@pytest.fixture
def store(run: Path) -> Iterator[Store]:
    with generations.open_run(run) as opened:
        yield opened


def test_bars_count_every_value_once_and_follow_the_filter(store: Store) -> None:
    every = distributions.histogram(store, "brightness")
    assert every["files"].sum() == N
    assert every["low"][0] == 0.0
    assert every["high"][-1] == pytest.approx(1.0)
    tested = distributions.histogram(store, "brightness", (OneOf("split", ("test",)),))
    assert tested["files"].sum() == sum(row["split"] == "test" for row in ROWS)
    assert tested["low"].to_list() == every["low"].to_list()  # the axis stays, the bars change


def test_bars_of_a_choice_name_what_is_missing(store: Store) -> None:
    bars = dict(distributions.histogram(store, "label").iter_rows())
    assert bars["(none)"] == sum(row["label"] is None for row in ROWS)
    assert sum(bars.values()) == N


def test_a_column_of_one_value_has_one_bar(store: Store) -> None:
    bars = distributions.histogram(store, "bit_depth")
    assert bars["files"].to_list() == [N]
    assert bars["low"][0] == 8


def test_a_column_without_values_has_no_bars(store: Store) -> None:
    assert distributions.histogram(store, "error_at").is_empty()
    assert distributions.extent(store, "error_at").low is None


def test_extremes_leave_out_what_is_missing(store: Store) -> None:
    least, greatest = distributions.extremes(store, "sharpness", n=5)
    assert [card.value for card in least] == [0.0] * 5
    assert [card.value for card in greatest] == pytest.approx([6 / 7] * 5)


def test_points_are_a_repeatable_sample_and_say_of_how_many(store: Store) -> None:
    both = sum(row["sharpness"] is not None for row in ROWS)
    every = distributions.scatter_points(store, "brightness", "sharpness", "label")
    assert (every.total, every.rows.height) == (both, both)
    some = distributions.scatter_points(store, "brightness", "sharpness", "label", limit=10)
    assert (some.total, some.rows.height) == (both, 10)
    assert some.rows.equals(
        distributions.scatter_points(store, "brightness", "sharpness", "label", limit=10).rows
    )
    assert set(some.rows["id"]) <= set(every.rows["id"])


def test_a_lasso_holds_what_is_inside_it() -> None:
    rows = pl.DataFrame(
        {"id": list("abcde"), "x": [0.5, 2.0, 0.9, 0.1, 0.5], "y": [0.5, 0.5, 0.9, 0.1, 3.0]}
    )
    square = [(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)]
    assert inside(rows, square) == ("a", "c", "d")
    notched = [(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.5, 0.2), (0.0, 1.0)]
    assert inside(rows, notched) == ("d",)
    assert inside(rows, square[:2]) == ()
    assert inside(rows.clear(), square) == ()


def test_a_polygon_holds_every_row_and_not_those_drawn_alone(store: Store) -> None:
    every = distributions.scatter_points(store, "brightness", "sharpness", "label").rows
    low, high = every["x"].quantile(0.2), every["x"].quantile(0.8)
    ring = [(low, -1.0), (high, -1.0), (high, 2.0), (low, 2.0)]
    held = distributions.ids_inside(store, "brightness", "sharpness", ring)
    assert set(held) == set(inside(every, ring))
    assert 0 < len(held) < every.height
    cats = [OneOf("label", ("cat",))]
    some = distributions.ids_inside(store, "brightness", "sharpness", ring, cats)
    assert 0 < len(some) < len(held)
    assert distributions.ids_inside(store, "brightness", "sharpness", ring[:2]) == ()
