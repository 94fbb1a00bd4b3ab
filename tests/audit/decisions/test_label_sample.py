"""How many labels are wrong: from pictures drawn at random and reviewed, and from nothing less."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from audit.decisions.decisions import decide_findings
from audit.decisions.label_sample import (
    draw_labels,
    estimate_wrong,
    reviewed_rates,
    share_of_sample,
    write_drawn,
)
from audit.errors import UsageError
from audit.records import Action
from audit.report import collect_report
from audit.run import run_version
from tests.audit.annotations.datasets import annotated_run, coco, coco_tree
from tests.audit.conftest import Command


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


def test_draw_review_and_read(reviewed_run: Path, tmp_path: Path, command: Command) -> None:
    path = tmp_path / "drawn.csv"
    assert command("decide", reviewed_run, "--draw-labels", 5, "-o", path)[0] == 0
    rows = pl.read_csv(path, infer_schema=False)
    assert rows.columns[:5] == ["id", "path", "label", "seed", "wrong"]
    assert len(rows) == 5
    rows.with_columns(wrong=pl.Series(["yes", *["no"] * 4])).write_csv(path)
    code, out, _ = command("decide", reviewed_run, "--reviewed", path)
    assert code == 0
    assert "1 of 5 labels drawn at random are wrong: 20.0%" in out


def test_what_is_no_whole_random_draw_gives_no_interval(reviewed_run: Path, tmp_path: Path) -> None:
    drawn = draw_labels(reviewed_run, 4, 0).with_columns(wrong=pl.lit("no"))
    wrongs = {
        "part": (drawn.head(3), "exactly the labels that were drawn"),
        "other": (drawn.with_columns(seed=pl.lit(1)), "exactly the labels that were drawn"),
        "open": (drawn.with_columns(wrong=pl.lit("")), "no yes or no"),
        "relabelled": (drawn.with_columns(label=pl.lit("cat")), "is outdated"),
        "bare": (drawn.drop("wrong"), "lacks the column wrong"),
    }
    for name, (rows, said) in wrongs.items():
        rows.write_csv(tmp_path / f"{name}.csv")
        with pytest.raises(UsageError, match=said):
            estimate_wrong(reviewed_run, tmp_path / f"{name}.csv")
    with pytest.raises(UsageError, match="cannot be drawn"):
        draw_labels(reviewed_run, 10_000, 0)
    with pytest.raises(UsageError, match="already exists"):
        write_drawn(drawn, tmp_path / "part.csv")


@pytest.mark.slow
def test_the_rate_has_an_interval_and_says_what_is_not_reviewed(tmp_path: Path) -> None:
    root = coco_tree(tmp_path / "data", coco(12), 12)
    results = [
        {"image_id": i + 1, "category_id": 1, "bbox": [40, 30, 9, 9], "score": 0.96 + i / 1000}
        for i in range(12)
    ]
    (tmp_path / "results.json").write_text(json.dumps(results))
    run = annotated_run(root, tmp_path / "run", tmp_path / "results.json")
    assert reviewed_rates(run) == []
    with run_version.open_run(run) as store:
        prints = store.query(
            "SELECT fingerprint FROM findings WHERE code = 'BOX027' "
            "ORDER BY CAST(json_extract(evidence, '$.rank') AS INT)"
        )["fingerprint"].to_list()
    assert len(prints) == 12
    decide_findings(run, prints[:7], Action.RELABEL, "redrawn", by="anna")
    assert reviewed_rates(run) == []  # seven are too few to say anything
    decide_findings(run, prints[7:9], Action.FALSE_POSITIVE, by="anna")
    decide_findings(run, prints[9:10], Action.KEEP, by="anna")
    [said] = reviewed_rates(run)
    assert said == (
        "BOX027 overlooked-object: 7 of 10 reviewed were wrong, 70% "
        "(95% CI 35 to 93); 2 of the first 12 are not reviewed."
    )
    assert said in collect_report(run).completeness
