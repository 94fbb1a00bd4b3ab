"""What findings cost an evaluation split: against hand calculation, and silent without any."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

import audit
from audit.cli.main import app
from audit.decisions.label_sample import draw_labels, share_of_sample
from audit.errors import UsageError
from audit.report import collect_report, render
from audit.report.cost import Cost, leaked_cost, mislabelled_cost, overstatement, repeated_cost
from tests.audit.reviewed import findings, made_hash, made_run

CODES = ["DUP", "SPLIT001"]


def test_the_bound_is_that_of_a_model_that_is_right_on_all_it_has_seen() -> None:
    # 97 of 1,000 seen and right, 803 of the 903 others right: 0.9 is measured, 0.8893 is true
    assert overstatement(0.097, 0.9) == pytest.approx(0.9 - 803 / 903)
    assert overstatement(0.097, 0.097) == pytest.approx(0.097)  # nothing else right: all of it
    assert overstatement(0.0, 0.9) == 0
    assert overstatement(0.95, 0.9) == 0.9
    assert overstatement(1.0, 0.9) == 0.9


def test_leaked_pictures_cost_accuracy() -> None:
    (cost,) = leaked_cost("test", 97, 1000, ["train"])
    assert cost.message == (
        "97 of 1,000 pictures of test (9.7%, 95 % interval 8.0% to 11.7%) are also in train: an "
        "accuracy on test may be overstated by up to 9.7 points; one of 90% by up to 1.1."
    )
    assert not list(leaked_cost("test", 0, 1000, ["train"]))


def test_copies_cost_independent_pictures() -> None:
    # 60 alone and 20 units of two: 100 * 100 / (60 + 20 * 4)
    (cost,) = repeated_cost("test", 100, 80, 140)
    assert cost.numbers["effective"] == pytest.approx(10_000 / 140)
    # Wilson at one half: z / (2 sqrt(n + z^2))
    assert cost.numbers["half_width"] == pytest.approx(
        0.5 * 1.959964 / (71.42857 + 3.841459) ** 0.5
    )
    assert "worth 71 independent pictures" in cost.message
    assert "± 11.3 points, not ± 9.62" in cost.message
    assert not list(repeated_cost("test", 100, 100, 100))


def test_wrong_labels_set_a_ceiling_where_their_share_has_an_interval() -> None:
    drawn = share_of_sample(4, 100, 1000)
    (cost,) = mislabelled_cost("test", 7, drawn, Path("run"))
    assert (cost.numbers["ceiling"], cost.numbers["high"]) == (0.96, 1 - drawn.low)
    assert "would reach an accuracy of 96.0% on test" in cost.message
    (cost,) = mislabelled_cost("test", 7, None, Path("my run"))
    assert cost.numbers["ceiling"] is None
    assert "Suspicion alone does not give the accuracy" in cost.message
    assert "`audit labels 'my run' --draw 200" in cost.message
    assert not list(mislabelled_cost("test", 0, None, Path("run")))


def image(number: int, split: str, same: int | None = None) -> dict[str, Any]:
    pixels = made_hash(number if same is None else same, 64)
    return {"id": f"{split}/{number}.jpg", "split": split, "label": "cat", "pixel_hash": pixels,
            "content_hash": pixels}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten pictures in train, ten in test: one of train's, two copies of each other, seven more."""
    images = [image(n, "train") for n in range(10)] + [image(n, "test") for n in range(10, 17)]
    images += [image(17, "test", same=3), image(18, "test", same=10), image(19, "test", same=11)]
    return made_run(tmp_path_factory.mktemp("cost") / "run", images, CODES)


def kinds(run: Path) -> dict[str, Cost]:
    return {cost.kind: cost for cost in collect_report(run).costs}


def test_costs_of_a_run_and_in_every_form(run: Path) -> None:
    costs = kinds(run)
    assert set(costs) == {"leaked", "repeated"}
    assert costs["leaked"].numbers["share"] == 0.1
    assert costs["repeated"].numbers["different"] == 8
    assert costs["repeated"].numbers["effective"] == pytest.approx(100 / (6 + 2 * 4))
    report = collect_report(run)
    for form in ("txt", "md", "html", "json"):
        text = " ".join("".join(render(report, form)).split())
        assert "overstated by up to 10.0 points" in text, form
    document = json.loads("".join(render(report, "json")))
    assert [c["kind"] for c in document["costs"]] == ["leaked", "repeated"]


def test_what_was_waived_costs_nothing(run: Path, tmp_path: Path) -> None:
    decided = audit.open(shutil.copytree(run, tmp_path / "run"))
    decided.decide(list(findings(run, "SPLIT001")), "false-positive")
    assert set(kinds(decided.path)) == {"repeated"}
    decided.decide(["DUP001", "DUP002", "DUP003"], "false-positive")
    assert not kinds(decided.path)


def test_a_clean_run_and_one_without_splits_cost_nothing(tmp_path: Path) -> None:
    clean = made_run(
        tmp_path / "clean", [image(n, s) for n, s in enumerate(["train", "test"] * 3)], CODES
    )
    assert not kinds(clean)
    assert "costs" not in "".join(render(collect_report(clean), "html"))
    whole = [image(n, "x", same=1) | {"split": None} for n in range(3)]
    assert not kinds(made_run(tmp_path / "whole", whole, CODES))


def test_a_reviewed_draw_is_read_by_split(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "drawn.csv"
    drawn = draw_labels(run, 17, 0)
    drawn.with_columns(wrong=pl.when(pl.col("id") == "test/12.jpg").then(pl.lit("yes"))
                       .otherwise(pl.lit("no"))).write_csv(path)  # fmt: skip
    costs = {c.kind: c for c in collect_report(run, reviewed=path).costs}
    # 17 different pictures, all drawn: eight in test, of which one is wrong, and no doubt left
    assert costs["mislabelled"].numbers["ceiling"] == pytest.approx(7 / 8)
    assert costs["mislabelled"].numbers["low"] == pytest.approx(7 / 8)
    with pytest.raises(UsageError, match="cannot be read"):
        collect_report(run, reviewed=tmp_path / "none.csv")
    answer = CliRunner().invoke(app, ["report", str(run), "--reviewed", str(path)])
    assert "1 of 8 labels of test drawn at random are wrong" in " ".join(answer.output.split())
