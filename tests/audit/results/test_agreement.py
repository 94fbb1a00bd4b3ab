"""Where people decided otherwise, and how far they agree: by hand and by the published formula."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from audit.decisions.store import DecisionStore, Entry
from audit.errors import UsageError
from audit.records import Action
from audit.results.decision_summary import PairAgreement, disagreements, measure_agreement
from audit.subset import Goal, draw_subset, make_plan
from audit.ui.subset_tables import COLUMNS, find_disagreements
from tests.audit.subset.frames import made_set


def decide(run: Path, by: str, *said: tuple[str, Action, str | None]) -> None:
    entries = [Entry("sample", subject, None, verb, value, by=by) for subject, verb, value in said]
    DecisionStore(run).record(entries)


def differing(run: Path) -> pl.DataFrame:
    return disagreements(DecisionStore(run).answers())


def agreed(run: Path) -> list[PairAgreement]:
    return measure_agreement(DecisionStore(run).answers())


def test_the_last_word_of_each_person_is_compared(tmp_path: Path) -> None:
    keep, drop, relabel = Action.KEEP, Action.DROP, Action.RELABEL
    decide(tmp_path, "Ada", ("a", keep, None), ("b", drop, None), ("c", relabel, "cat"))
    decide(tmp_path, "Ada", ("b", keep, None), ("alone", keep, None))
    assert differing(tmp_path).is_empty()
    assert agreed(tmp_path) == []
    decide(tmp_path, "Bob", ("a", keep, None), ("b", drop, None), ("c", relabel, "dog"))
    decide(tmp_path, "Eve", ("a", keep, None))
    found = differing(tmp_path)
    assert found["subject"].to_list() == ["b", "c"]
    assert [[one.split(",")[0] for one in said] for said in found["said"]] == [
        ["keep (Ada", "drop (Bob"], ["relabel cat (Ada", "relabel dog (Bob"]
    ]  # fmt: skip
    pairs = {(p.first, p.second): (p.n, p.alike) for p in agreed(tmp_path)}
    assert pairs == {("Ada", "Bob"): (3, 1), ("Ada", "Eve"): (1, 1), ("Bob", "Eve"): (1, 1)}
    DecisionStore(tmp_path).undo(by="Bob")
    assert differing(tmp_path).is_empty()


def test_kappa_and_its_interval_are_those_of_the_literature(tmp_path: Path) -> None:
    # Fleiss, Cohen and Everitt (1969): proportions .53 .05 .02 / .11 .14 .05 / .01 .06 .03 of 200
    shares = np.array([[0.53, 0.05, 0.02], [0.11, 0.14, 0.05], [0.01, 0.06, 0.03]])
    counts = np.rint(200 * shares).astype(int)
    pairs = np.repeat(np.indices((3, 3)).reshape(2, 9).T, counts.ravel(), axis=0)
    for by, answers in zip(("Ada", "Bob"), pairs.T, strict=True):
        said = [(f"{k}", Action.RELABEL, "cdo"[answer]) for k, answer in enumerate(answers)]
        decide(tmp_path, by, *said)
    (pair,) = agreed(tmp_path)
    assert (pair.n, pair.alike) == (200, 140)
    assert pair.kappa == pytest.approx(0.429, abs=5e-4)
    error = (pair.high - pair.low) / 2 / 1.959964
    assert error**2 == pytest.approx(0.002885, rel=0.01)
    (tmp_path / "alone").mkdir()
    for by in ("Eve", "Max"):  # one answer alone has no kappa
        decide(tmp_path / "alone", by, ("a", Action.DROP, None), ("b", Action.DROP, None))
    (pair,) = agreed(tmp_path / "alone")
    assert (pair.kappa, pair.low, pair.high) == (None, -1.0, 1.0)


# ---- wrong answers of a model ----


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
