"""Doubt and rarity, by hand."""

from __future__ import annotations

import polars as pl
import pytest

from audit.choosing.choice import doubt_of, fill_rarest
from audit.errors import UsageError


def test_margin_and_entropy() -> None:
    rows = pl.DataFrame(
        {"prob_a": [0.5, 1.0, 0.6], "prob_b": [0.5, 0.0, 0.3], "prob_c": [0.0, 0.0, 0.1]}
    )
    assert doubt_of(rows, "margin").tolist() == pytest.approx([1.0, 0.0, 0.7])
    entropy = doubt_of(rows, "entropy")
    assert entropy.argmax() == 2
    assert entropy[1] == pytest.approx(0)


def test_a_confidence_gives_the_margin_only() -> None:
    rows = pl.DataFrame({"confidence": [0.9, 0.4]})
    assert doubt_of(rows, "margin").tolist() == pytest.approx([0.1, 0.6])
    with pytest.raises(UsageError, match="prob_"):
        doubt_of(rows, "entropy")
    with pytest.raises(UsageError, match="--predictions"):
        doubt_of(pl.DataFrame({"label": ["a"]}), "margin")


def test_the_smallest_cell_comes_first() -> None:
    cells = ["a"] * 9 + ["b"] * 2 + ["c"] * 5
    taken = [cells[i] for i in fill_rarest(cells, {"a": 4, "c": 1}, 7)]
    assert "".join(taken) == "bbcccac"
    assert len(fill_rarest(cells, {}, 99)) == 16
    # a picture counts in each of its cells: the two that hold b count for a
    assert fill_rarest([["a"], ["a", "b"], ["b", "a"], ["a"], ["c"]], {}, 4).tolist() == [
        0,
        1,
        4,
        2,
    ]
