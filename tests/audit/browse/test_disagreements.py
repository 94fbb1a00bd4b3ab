"""Wrong answers of a model: which, in which order, and what is left out."""

from __future__ import annotations

import polars as pl
import pytest

from audit.browse.subsets import COLUMNS, find_disagreements
from audit.errors import UsageError
from audit.subset import Goal, draw_subset, make_plan
from tests.audit.subset.frames import made_set


@pytest.fixture(scope="module")
def rows() -> pl.DataFrame:
    frame = made_set(300, 3, seed=4)
    return draw_subset(frame, make_plan(frame, Goal(n=60)).recipe, 1).rows


def test_the_surest_wrong_answers_come_first(rows: pl.DataFrame) -> None:
    place = pl.int_range(pl.len())
    wrong = (pl.when(place % 3 == 0).then(pl.lit("class0")).when(place == 1).then(pl.lit("cow"))
             .otherwise("label"))  # fmt: skip
    table = rows.select("sample_id", prediction=wrong, confidence=(place * 7 % 60) / 60).tail(55)
    found = find_disagreements(rows, table, "A")
    differs = table.join(rows.select("sample_id", "label"), on="sample_id").filter(
        pl.col("label") != pl.col("prediction")
    )
    assert tuple(found.table.columns) == COLUMNS
    assert set(found.table["sample_id"]) == set(differs["sample_id"])
    assert found.table["confidence"].is_sorted(descending=True)
    assert (found.n, found.right) == (55, 55 - len(differs))
    assert any("5 examples have no prediction" in note for note in found.notes)
    assert 0 < found.accuracy.low < found.accuracy.value < found.accuracy.high < 1


def test_without_confidence_the_weightiest_come_first(rows: pl.DataFrame) -> None:
    heavier = rows.with_columns(weight=pl.col("weight") * pl.int_range(1, pl.len() + 1))
    none_right = rows.select("sample_id", prediction=pl.lit("class1"))
    found = find_disagreements(heavier, none_right, "A").table
    assert found["weight"].is_sorted(descending=True)
    assert found["confidence"].null_count() == len(found)
    all_right = find_disagreements(rows, rows.select("sample_id", prediction="label"), "A")
    assert (all_right.right, all_right.table.is_empty()) == (60, True)
    with pytest.raises(UsageError, match="none of its 1 predictions"):
        find_disagreements(rows, pl.DataFrame({"id": ["x"], "prediction": ["class1"]}), "A")
