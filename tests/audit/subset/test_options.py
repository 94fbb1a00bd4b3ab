"""Options of `audit subset` that choose what is printed, and combinations that are refused."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from audit.subset import make_curve
from audit.subset.compare import find_winner
from audit.subset.goal import Goal
from audit.subset.source import frame_from_list
from tests.audit.subset.frames import ROW, call, document, drawn, made_set, predicted, replaced


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A list of 800 examples with losses, a subset, three models, and a filled sheet."""
    root = tmp_path_factory.mktemp("options")
    frame = made_set(800, 3, seed=5)
    frame.select("sample_id", "label", "camera").write_csv(root / "set.csv")
    rows = drawn(frame, 200)
    rows.write_csv(root / "s.csv")
    rows.select("sample_id", "label").write_csv(root / "ann.csv")
    loss = np.random.default_rng(1).exponential(2, len(frame))
    for seed, name in enumerate(("a", "b", "c")):
        table = predicted(frame, 0.75 + seed / 20, seed).with_columns(loss=pl.Series(loss + seed))
        table.write_csv(root / f"{name}.csv")
    return root


def models(place: Path, names: str) -> list[object]:
    """Return the options that give the prediction files of these names."""
    return [word for name in names for word in ("--predictions", place / f"{name}.csv")]


# ---- plan --sizes ----


def test_sizes_are_the_rows_of_the_table(place: Path) -> None:
    source = ["--from", place / "set.csv"]
    table = document("plan", *source, "--sizes", "50,100, 800", "--metric", "macro-recall")
    frame = frame_from_list(place / "set.csv")
    made = make_curve(frame, Goal(metric="macro-recall", n=2), sizes=[50, 100, 800])
    assert table == made.document()
    assert [point["n"] for point in table["points"]] == [50, 100, 800]
    every = document("plan", *source, "--sizes", "auto")
    assert len(every["points"]) == 24
    assert every["points"][-1]["n"] == 800
    halved = document("plan", *source, "--sizes", "auto", "--set", "plan.min_gain=0.03")
    assert halved["stops_paying"] != every["stops_paying"]


# ---- score: several models ----


def test_two_models_have_a_score_and_a_ranking(place: Path) -> None:
    words = ["score", place / "s.csv", *models(place, "ac")]
    found = document(*words)
    assert found["comparison"]["metric"] == "accuracy"
    best, other = found["ranking"]["candidates"]
    assert (best["name"], other["name"]) == ("c", "a")
    value = found["models"][1]["metrics"][0]["estimands"]["full-set"]["value"]
    assert best["estimands"]["full-set"]["value"] == pytest.approx(value)
    assert 0.95 < found["ranking"]["level"] <= 0.975
    said = call(*words)
    assert said.splitlines()[0].startswith("a: accuracy ")
    assert "c is the best of 2 on these rows" in said
    # a ranking is by accuracy
    assert "ranking" not in document(*words, "--metric", "macro-f1")


def test_three_models_are_ranked(place: Path) -> None:
    words = ["score", place / "s.csv", *models(place, "abc")]
    found = document(*words)
    assert found["schema"] == "subset-winner/1"
    assert [c["name"] for c in found["candidates"]] == ["c", "b", "a"]
    assert "c is the best of 3 on these rows" in call(*words, "--metric", "accuracy")
    whole = call("score", "--from", place / "set.csv", *models(place, "abc"))
    assert "Confirm the best model once on other data." in whole
    first = document(*words, "--first", 50)["candidates"][0]["estimands"]["full-set"]
    wide = found["candidates"][0]["estimands"]["full-set"]
    assert first["high"] - first["low"] > 1.5 * (wide["high"] - wide["low"])


@pytest.mark.parametrize("count", [2, 3])
def test_a_ranking_follows_the_rules_for_missing_and_unknown(place: Path, count: int) -> None:
    rows = pl.read_csv(place / "s.csv", schema_overrides={"label": pl.String})
    tables = [pl.read_csv(place / f"{name}.csv") for name in "abc"[:count]]
    tables[0] = tables[0].filter(~pl.col("sample_id").is_in(rows["sample_id"][:20].implode()))
    names = ["x", "y", "z"][:count]
    paths = []
    for name, table in zip(names, tables, strict=True):
        table.write_csv(place / f"{name}_{count}.csv")
        paths += ["--predictions", place / f"{name}_{count}.csv"]
    words = ["score", place / "s.csv", *paths]
    assert "20 of 200 examples have no prediction" in call(*words, code=2)
    wrong, dropped = (call(*words, "--missing", rule) for rule in ("wrong", "drop"))
    assert wrong.count("20 examples have no prediction and were counted as wrong") == 1
    assert dropped.count("20 examples have no prediction and were dropped") == 1
    kept = rows["sample_id"].is_in(rows["sample_id"][:20].implode())
    last = find_winner(rows, tables, names=names, missing="drop").candidates
    right = rows.join(tables[-1], on="sample_id", maintain_order="left").filter(~kept)
    share = np.average(right["label"] == right["prediction"], weights=right["weight"])
    value = next(c for c in last if c.name == names[-1]).estimands["full-set"].value
    assert value == pytest.approx(share)
    other = replaced(tables[1], ROW % 2 == 0, "horse")
    other.write_csv(place / f"y_{count}.csv")
    assert "a class that the set does not have" in call(*words, "--missing", "drop", code=2)
    call(*words, "--missing", "drop", "--unknown", "wrong")


# ---- the mean of a number ----


def test_a_mean_is_planned_drawn_and_scored(place: Path) -> None:
    source, out = ["--from", place / "set.csv"], place / "mean.csv"
    goal = ["--metric", "mean:loss", "--half-width", 0.4, "--set", "plan.deviation=2"]
    assert document("plan", *source, *goal)["n"] == 99  # (1.96 x 2 / 0.4)^2, and Student's quantile
    smaller = document("plan", *source, *goal, "--target", "this-set")["n"]
    assert smaller < 99
    said = call("draw", *source, *goal, "-o", out)
    assert f"`audit subset score {out} --predictions MODEL.csv --metric mean:loss`" in said
    words = ["score", out, *models(place, "a"), "--metric", "mean:loss"]
    found = document(*words)
    assert found["measures"][0]["what"] == "mean loss"
    assert found["n_units"] == 99
    baseline = [*source, "--baseline", place / "b.csv"]
    with_baseline = document(*words, *baseline)["measures"]
    assert with_baseline[1]["what"] == "mean loss with the baseline"
    assert document("plan", *source, "--metric", "mean:loss", "--n", 60)["n"] == 60


def test_a_deviation_in_the_settings_leaves_other_plans_alone(place: Path) -> None:
    words = ["plan", "--from", place / "set.csv", "--half-width", 0.05]
    assert document(*words, "--set", "plan.deviation=0.01") == document(*words)


# ---- settings ----


def test_assumptions_come_from_the_file_and_the_call_changes_them(place: Path) -> None:
    words = ["plan", "--from", place / "set.csv", "--half-width", 0.05]
    (place / "audit.toml").write_text("[plan]\nexpected = 0.9\ncomparisons = 3\n")
    with contextlib.chdir(place):
        by_file = document(*words)
        by_call = document(*words, "--set", "plan.comparisons=1")
    plain = document(*words)
    stated = document(*words, "--set", "plan.expected=0.9")
    assert by_call == stated
    assert stated["n"] < by_file["n"]
    assert stated["n"] < plain["n"]
    config = place / "audit.toml"
    assert document(*words, "--config", config) == by_file
    config.unlink()


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("power=high", "[plan] power is 'high': write a number"),
        ("power=1.5", "[plan] power is 1.5"),
        ("expected=2", "[plan] expected is 2"),
        ("allocation=best", "write proportional or equal or neyman"),
        ("merge_strata=1", "write true or false"),
        ("comparisons=2.5", "[plan] comparisons is 2.5"),
        ("comparisons=0", "at least 1"),
        ("uncertainty=doubt", "write margin or entropy"),
        ("looks=3", "there is no setting 'plan.looks'"),
    ],
)
def test_wrong_settings_are_one_sentence(place: Path, setting: str, sentence: str) -> None:
    words = ["plan", "--from", place / "set.csv", "--n", 60, "--set", f"plan.{setting}"]
    error = call(*words, code=2)
    assert sentence in error
    assert error.count("\n") == 1


# ---- what cannot go together ----


REFUSED = [
    (["plan", "--from", "SET", "--sizes", "50", "--n", 60], "--n has no effect with --sizes"),
    (["plan", "--from", "SET", "--sizes", "50", "-o", "p.json"], "--output has no effect with"),
    (["plan", "--from", "SET", "--sizes", "50;60"], "write numbers such as 100,200, or auto"),
    (["plan", "--from", "SET", "--sizes", "900"], "and 800"),
    (["plan", "--from", "SET", "--metric", "mean:loss", "--half-width", 0.1], "plan.deviation"),
    (["plan", "--from", "SET", "--metric", "mean:loss", "--n", 9, "--half-width", 0.1],
     "exactly one of"),
    (["draw", "--from", "SET", "--n", 9, "-o", "x.csv", "--sheet", "x.txt"], "name a .parquet"),
    (["draw", "--from", "SET", "--n", 9, "-o", "x.csv", "--choose", "rare"], "--choose takes"),
    (["draw", "RUN", "-o", "x.csv", "--choose", "rare"], "--choose takes"),
    (["draw", "RUN", "--n", 9, "-o", "x.csv", "--choose", "rare", "--sheet", "y.csv"],
     "--sheet has no effect with --choose"),
    (["draw", "RUN", "--n", 9, "-o", "x.csv", "--choose", "rare", "--plan", "p.json"],
     "--plan has no effect with --choose"),
    (["draw", "RUN", "--n", 9, "-o", "x.csv", "--choose", "rare", "--target", "this-set"],
     "--target has no effect with --choose"),
    (["draw", "RUN", "--n", 9, "-o", "x.csv", "--choose", "uncertainty", *"AB"],
     "the predictions of one model"),
    (["score", "DRAWN"], "Name what to score"),
    (["score", "DRAWN", "A", "--metric", "mean:loss", "--first", 20], "--first has no effect with"),
    (["score", "DRAWN", "A", "B", "--metric", "mean:loss"], "is scored alone"),
    (["score", "DRAWN", "A", "--metric", "mean:loss", "--metric", "accuracy"], "is scored alone"),
    (["score", "DRAWN", "A", "--metric", "mean:height"], "no column 'height'"),
    (["score", "DRAWN", "A", "B", "C", "--metric", "macro-f1"], "are ranked by accuracy"),
    (["score", "DRAWN", "A", "B", "C", "--by-class"], "--by-class has no effect with"),
    (["score", "DRAWN", "A", "B", "C", "--slice", "camera"], "--slice has no effect with"),
    (["score", "DRAWN", "--answers", "SHEET", "--first", 20], "--first has no effect with"),
    (["score", "DRAWN", "--answers", "SHEET", "--from", "SET"], "--from has no effect with"),
    (["score", "--answers", "SHEET"], "--answers needs the drawn subset"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "sentence"), REFUSED)
def test_refused_combinations_are_one_sentence(
    place: Path, tmp_path: Path, words: list[object], sentence: str
) -> None:
    named = {"SET": place / "set.csv", "DRAWN": place / "s.csv", "SHEET": place / "ann.csv"}
    given: list[object] = []
    for word in words:
        given += models(place, str(word).lower()) if word in {"A", "B", "C"} else [word]
    with contextlib.chdir(tmp_path):
        error = call(*[named.get(str(word), word) for word in given], code=2)
    assert sentence in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())
