"""How many labels are wrong: from pictures drawn at random and reviewed, and from nothing less."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from audit.cli.main import app
from audit.decisions.label_sample import draw_labels, estimate_wrong, share_of_sample, write_drawn
from audit.errors import UsageError


@pytest.mark.parametrize(("n", "share"), [(50, 0.05), (100, 0.2), (200, 0.4)])
def test_the_interval_covers_the_share_as_often_as_it_says(n: int, share: float) -> None:
    rng = np.random.default_rng(n)
    limits = [share_of_sample(k, n, 5000) for k in range(n + 1)]
    drawn = rng.hypergeometric(int(share * 5000), 5000 - int(share * 5000), n, 20_000)
    covered = np.mean([limits[k].low <= share <= limits[k].high for k in drawn])
    assert 0.93 <= covered <= 0.97


def test_all_reviewed_leaves_nothing_to_estimate() -> None:
    found = share_of_sample(3, 40, 40)
    assert (found.low, found.share, found.high) == (0.075, 0.075, 0.075)


def test_none_found_still_has_an_upper_limit() -> None:
    found = share_of_sample(0, 50, 10_000)
    assert (found.low, 0.05 < found.high < 0.08) == (0.0, True)


def test_draw_review_and_read(reviewed_run: Path, tmp_path: Path) -> None:
    path, runner = tmp_path / "drawn.csv", CliRunner()
    answer = runner.invoke(app, ["labels", str(reviewed_run), "--draw", "5", "-o", str(path)])
    assert answer.exit_code == 0, answer.output
    rows = pl.read_csv(path, infer_schema=False)
    assert rows.columns[:5] == ["id", "path", "label", "seed", "wrong"]
    assert len(rows) == 5
    rows.with_columns(wrong=pl.Series(["yes", *["no"] * 4])).write_csv(path)
    answer = runner.invoke(app, ["labels", str(reviewed_run), "--reviewed", str(path)])
    assert answer.exit_code == 0
    assert "1 of 5 labels drawn at random are wrong: 20.0%" in answer.output


def test_what_is_no_whole_random_draw_gives_no_interval(reviewed_run: Path, tmp_path: Path) -> None:
    drawn = draw_labels(reviewed_run, 4, 0).with_columns(wrong=pl.lit("no"))
    wrongs = {
        "part": (drawn.head(3), "all of them and no others"),
        "other": (drawn.with_columns(seed=pl.lit(1)), "all of them and no others"),
        "open": (drawn.with_columns(wrong=pl.lit("")), "no clear answer"),
        "relabelled": (drawn.with_columns(label=pl.lit("cat")), "answers about other labels"),
        "bare": (drawn.drop("wrong"), "lacks the column wrong"),
    }
    for name, (rows, said) in wrongs.items():
        rows.write_csv(tmp_path / f"{name}.csv")
        with pytest.raises(UsageError, match=said):
            estimate_wrong(reviewed_run, tmp_path / f"{name}.csv")
    with pytest.raises(UsageError, match="cannot be drawn"):
        draw_labels(reviewed_run, 10_000, 0)
    with pytest.raises(UsageError, match="there already"):
        write_drawn(drawn, tmp_path / "part.csv")
