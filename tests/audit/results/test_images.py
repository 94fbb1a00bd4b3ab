"""Filters, keyset pages, exports, histograms, samples of points and lassos over made-up rows."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest

from audit.errors import UsageError
from audit.results import distributions, filters, images
from audit.results.distributions import rows_inside
from audit.results.filters import (
    Among,
    Between,
    Condition,
    Contains,
    Kind,
    OneOf,
    from_link,
    to_link,
)
from audit.results.images import Edge, Order
from audit.results.results import Results, open_results
from tests.audit.reviewed import made_run

N = 53
ROWS = [
    {
        "id": f"{'train' if i % 3 else 'test'}/{i:02d}.jpg",
        "split": "train" if i % 3 else "test",
        "label": None if i % 10 == 0 else ("cat", "dog", "=owl")[i % 3],
        "brightness": round((i * 7 % 11) / 10, 3),
        "sharpness": None if i % 4 == 0 else (i * 5 % 7) / 7,
        "camera": ("A", "B", None)[i % 3],
    }
    for i in range(N)
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_run(tmp_path_factory.mktemp("made") / "run", ROWS)


@pytest.fixture
def results(run: Path) -> Results:
    return open_results(run)


def walked(results: Results, order: Order, conditions: tuple[Condition, ...] = ()) -> list[str]:
    """All ids, page after page of 7, each from a link to its edge, checked on the way back too."""
    page = images.page(results, conditions, order, size=7)
    pages = [page]
    while page.after:
        edge = Edge.from_link(page.last.to_link() if page.last else "")
        page = images.page(results, conditions, order, after=edge, size=7)
        pages.append(page)
    assert not pages[0].before
    for earlier, later in pairwise(pages):
        back = images.page(results, conditions, order, before=later.first, size=7)
        assert [c.id for c in back.cards] == [c.id for c in earlier.cards]
        assert back.before == (earlier is not pages[0])
        assert back.after
    return [card.id for p in pages for card in p.cards]


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("name", ["id", "brightness", "sharpness", "label", "split"])
def test_pages_give_every_row_once_and_in_order(
    results: Results, name: str, descending: bool
) -> None:
    found = walked(results, Order(name, descending))
    assert sorted(found) == sorted(row["id"] for row in ROWS)
    value = {row["id"]: row[name] for row in ROWS}
    present = [value[i] for i in found if value[i] is not None]
    assert present == sorted(present, reverse=descending)
    assert all(value[i] is None for i in found[len(present) :])  # missing values come last


@pytest.mark.parametrize(
    ("condition", "keeps"),
    [
        (Between("brightness", 0.2, 0.5), lambda r: 0.2 <= r["brightness"] <= 0.5),
        (OneOf("split", ("test",)), lambda r: r["split"] == "test"),
        (OneOf("label", (None, "dog")), lambda r: r["label"] in (None, "dog")),
        (OneOf("manifest.camera", ("B",)), lambda r: r["camera"] == "B"),
        (OneOf("has_alpha", ("true",)), lambda r: False),
        (Contains("id", "TRAIN/1"), lambda r: r["id"].startswith("train/1")),
        (Among(("test/00.jpg", "nowhere")), lambda r: r["id"] == "test/00.jpg"),
    ],
)
def test_conditions_keep_what_they_say(
    results: Results, condition: Condition, keeps: object
) -> None:
    assert callable(keeps)
    wanted = sorted(row["id"] for row in ROWS if keeps(row))
    assert sorted(walked(results, Order("sharpness"), (condition,))) == wanted
    assert images.count_images(results, (condition,)) == len(wanted)


def test_a_link_carries_the_filter() -> None:
    asked = (Between("width", 1.0, 2.5), OneOf("label", (None, "a|b")), Contains("id", '"]'))
    assert from_link(to_link(asked)) == asked
    assert from_link("") == ()


@pytest.mark.parametrize("text", ["{", '[["a"]]', '[["a","between","x",1]]', "[1]", '[["a","?"]]'])
def test_a_damaged_link_is_one_sentence(text: str) -> None:
    with pytest.raises(UsageError, match="clear the filters"):
        from_link(text)


def test_a_filter_names_columns_of_the_run_only(results: Results) -> None:
    for name in ("nothing", "1 OR TRUE", 'id"; DROP TABLE samples'):
        with pytest.raises(UsageError, match="has no column"):
            images.count_images(results, (OneOf(name, ("x",)),))
        with pytest.raises(UsageError, match="has no column"):
            images.page(results, (), Order(name))


def test_columns_come_from_the_run_itself(results: Results) -> None:
    known = filters.list_columns(results)
    assert known["brightness"].kind is Kind.NUMBER
    assert known["label"].kind is Kind.CHOICE
    assert known["manifest.camera"].kind is Kind.CHOICE
    assert "phash" not in known
    assert "content_hash" not in known
    assert known["brightness"].doc
    assert set(filters.choices(results, "label")) == {None, "cat", "dog", "=owl"}


def test_an_export_holds_every_column_and_no_formula(results: Results) -> None:
    lines = images.export_csv(results, (OneOf("label", ("=owl",)),)).decode().splitlines()
    assert len(lines) == 1 + sum(row["label"] == "=owl" for row in ROWS)
    assert "manifest.camera" in lines[0]
    assert all("'=owl" in line for line in lines[1:])


def test_facts_of_samples_by_id_or_path(results: Results) -> None:
    found = images.facts(results, ["test/00.jpg", "/pets/train/01.jpg", "nowhere"])
    assert set(found) == {"test/00.jpg", "/pets/train/01.jpg"}
    assert found["test/00.jpg"]["width"] > 0
    assert images.facts(results, []) == {}


# ---- how a column is distributed ----


def test_bars_count_every_value_once_and_follow_the_filter(results: Results) -> None:
    every = distributions.histogram(results, "brightness")
    assert every["files"].sum() == N
    assert every["low"][0] == 0.0
    assert every["high"][-1] == pytest.approx(1.0)
    tested = distributions.histogram(results, "brightness", (OneOf("split", ("test",)),))
    assert tested["files"].sum() == sum(row["split"] == "test" for row in ROWS)
    assert tested["low"].to_list() == every["low"].to_list()  # the axis stays, the bars change


def test_bars_of_a_choice_of_one_value_and_of_none(results: Results) -> None:
    bars = dict(distributions.histogram(results, "label").iter_rows())
    assert bars["(none)"] == sum(row["label"] is None for row in ROWS)
    assert sum(bars.values()) == N
    depths = distributions.histogram(results, "bit_depth")
    assert depths["files"].to_list() == [N]
    assert depths["low"][0] == 8
    assert distributions.histogram(results, "error_at").is_empty()
    assert distributions.extent(results, "error_at").low is None


def test_extremes_leave_out_what_is_missing(results: Results) -> None:
    least, greatest = distributions.extremes(results, "sharpness", n=5)
    assert [card.value for card in least] == [0.0] * 5
    assert [card.value for card in greatest] == pytest.approx([6 / 7] * 5)


def test_points_are_a_repeatable_sample_and_say_of_how_many(results: Results) -> None:
    both = sum(row["sharpness"] is not None for row in ROWS)
    every = distributions.scatter_points(results, "brightness", "sharpness", "label")
    assert (every.total, every.rows.height) == (both, both)
    some = distributions.scatter_points(results, "brightness", "sharpness", "label", limit=10)
    assert (some.total, some.rows.height) == (both, 10)
    assert some.rows.equals(
        distributions.scatter_points(results, "brightness", "sharpness", "label", limit=10).rows
    )
    assert set(some.rows["id"]) <= set(every.rows["id"])


def test_a_lasso_holds_what_is_inside_it() -> None:
    rows = pl.DataFrame(
        {"id": list("abcde"), "x": [0.5, 2.0, 0.9, 0.1, 0.5], "y": [0.5, 0.5, 0.9, 0.1, 3.0]}
    )
    square = [(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)]
    assert rows_inside(rows, square) == ("a", "c", "d")
    notched = [(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.5, 0.2), (0.0, 1.0)]
    assert rows_inside(rows, notched) == ("d",)
    assert rows_inside(rows, square[:2]) == ()
    assert rows_inside(rows.clear(), square) == ()


def test_a_polygon_holds_every_row_and_not_those_drawn_alone(results: Results) -> None:
    every = distributions.scatter_points(results, "brightness", "sharpness", "label").rows
    low, high = every["x"].quantile(0.2), every["x"].quantile(0.8)
    ring = [(low, -1.0), (high, -1.0), (high, 2.0), (low, 2.0)]
    held = distributions.ids_inside(results, "brightness", "sharpness", ring)
    assert set(held) == set(rows_inside(every, ring))
    assert 0 < len(held) < every.height
    cats = [OneOf("label", ("cat",))]
    some = distributions.ids_inside(results, "brightness", "sharpness", ring, cats)
    assert 0 < len(some) < len(held)
    assert distributions.ids_inside(results, "brightness", "sharpness", ring[:2]) == ()
