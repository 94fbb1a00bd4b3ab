"""What is drawn on the strip becomes a filter, and the pictures of the filter stand below it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from audit.report import collect_report
from audit.results.distributions import bar_conditions, label_table
from audit.results.filters import Among, Between, Contains, OneOf, without, words_of
from audit.results.images import count_images
from audit.results.results import open_results
from audit.results.similar import similar_pictures
from audit.run import run_version
from audit.ui.charts import clicked_place, range_of, toggled
from tests.audit.ui.pages import Show, link_of, text


@pytest.mark.parametrize(
    ("chosen", "wanted"),
    [
        ({"brush": {"low": [0.123456789, 2]}}, (0.12346, 2.0)),
        ({"brush": {}}, None),
        ({}, None),
        ({"brush": {"low": ["a", 2]}}, None),
        ({"brush": {"low": [float("nan"), 2]}}, None),
        ({"brush": {"low": [1, 2, 3]}}, None),
        ({"brush": [1, 2]}, None),
    ],
    ids=str,
)
def test_a_brush_is_a_range_or_nothing(chosen: dict[str, Any], wanted: object) -> None:
    assert range_of(chosen) == wanted


def test_a_click_names_a_mark_that_is_there() -> None:
    assert clicked_place({"click": [{"place": 2}]}, 3) == 2
    for odd in ({}, {"click": []}, {"click": [{"place": 3}]}, {"click": [{"place": "x"}]}):
        assert clicked_place(odd, 3) is None


def test_a_clicked_bar_joins_the_filter_and_leaves_it() -> None:
    width = Between("width", 1, 2)
    one = toggled([width], "label", "dog")
    assert one == [width, OneOf("label", ("dog",))]
    two = toggled(one, "label", None)
    assert two == [width, OneOf("label", ("dog", None))]
    assert toggled(toggled(two, "label", "dog"), "label", None) == [width]


def test_a_filter_in_words() -> None:
    said = [Between("width", 1, 20000), OneOf("label", ("a", None)), Contains("id", "x")]
    assert [words_of(c) for c in said] == ["width 1 to 20,000", "label: a, (none)", "id has x"]
    lasso = Among(("a",))
    assert without([*said, lasso], "label") == [said[0], said[2], lasso]


@pytest.mark.slow
def test_the_cross_of_a_chip_lets_go_of_its_filter_alone(show: Show, scanned: Path) -> None:
    where = '[["label","in","dog"],["width","between",1.0,9000.0]]'
    at = show("explore", scanned, where=where, lasso="[[0,0],[1,0],[1,1]]")
    assert "11 files" in text(at)
    next(b for b in at.button if b.label == "label\\: dog").click().run()
    assert link_of(at)["where"] == '[["width","between",1.0,9000.0]]'
    assert "23 files" in text(at)  # one cannot be decoded and has no width


@pytest.mark.slow
def test_what_a_lasso_holds_is_what_is_counted(show: Show, scanned: Path) -> None:
    at = show("explore", scanned, view="Scatter", lasso="[[9,9],[9,10],[10,10]]")
    assert "24 files" not in text(at)


@pytest.mark.slow
def test_pictures_like_one_are_those_of_its_neighbours(show: Show, scanned: Path) -> None:
    with run_version.open_run(scanned) as store:
        asked = str(store.scalar("SELECT sample_id FROM vector_neighbours ORDER BY 1 LIMIT 1"))
        n = similar_pictures(open_results(scanned), asked).height
    at = show("explore", scanned, image=asked)
    at.button(key="image alike").click().run()
    assert at.session_state["go"] == ("explore", {"run": scanned.name, "like": asked})
    at = show("explore", scanned, like=asked)
    assert f"{n} files, page 1" in text(at)
    at = show("explore", scanned, like="nowhere.jpg")
    assert "--embeddings FILE" in text(at)
    at = show("explore", scanned, view="Map", lasso="[[-9,-9],[9,-9],[9,9],[-9,9]]")
    assert "The lasso holds" in text(at)
    at.segmented_control(key="switch view").set_value("Scatter").run()
    assert "lasso" not in link_of(at)  # it is in the units of the axes that were shown


@pytest.mark.slow
def test_a_bar_of_a_class_opens_as_many_pictures_as_it_counts(scanned: Path) -> None:
    data = collect_report(scanned, worst=1).dataset
    for row in label_table(data).iter_rows(named=True):
        wanted = bar_conditions(data, row["class"], row["split"])
        assert count_images(open_results(scanned), wanted) == row["files"]

    assert bar_conditions(data, "no such class", "train") == []
