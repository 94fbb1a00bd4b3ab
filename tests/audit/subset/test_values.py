"""Numbers per example: exact cases, coverage on skewed ones, planning."""

from __future__ import annotations

import json
import math

import numpy as np
import polars as pl
import pytest

from audit.errors import UsageError
from audit.subset import census
from audit.subset.baseline import whole_set
from audit.subset.values import (
    brier_values,
    estimate_mean,
    measure_subset,
    measures_text,
    units_for_mean,
)
from tests.audit.subset.commands import call
from tests.audit.subset.frames import drawn, made_set
from tests.audit.subset.test_baseline import sampled


@pytest.fixture(scope="module")
def frame():
    return made_set(3000, 4, seed=2)


@pytest.fixture(scope="module")
def losses(frame):
    rng = np.random.default_rng(1)
    loss = np.exp(rng.normal(size=len(frame)))
    return frame.select("sample_id").with_columns(
        loss=pl.Series(loss), later=pl.Series(loss * rng.uniform(0.8, 1.1, len(frame)))
    )


@pytest.fixture(scope="module")
def rows(frame):
    return drawn(frame, 400, 1)


def test_a_mean_holds_the_full_sets(frame, losses, rows):
    found = measure_subset(rows, losses, "loss")
    mean = found.measures[0].estimands["full-set"]
    truth = losses["loss"]
    assert mean.low < truth.mean() < mean.high
    assert mean.high - mean.value > mean.value - mean.low  # large losses are the rare ones
    assert found.deviation == pytest.approx(truth.std(), rel=0.3)
    assert "mean loss, full-set: " in measures_text(found)


def test_the_whole_set_is_known(frame, losses):
    found = measure_subset(census(frame).rows, losses, "loss")
    assert found.measures[0].estimands["full-set"].value == pytest.approx(losses["loss"].mean())
    assert all(m.estimands["full-set"].known for m in found.measures)
    assert not found.measures[0].estimands["generalisation"].known


def test_a_baselines_numbers_narrow_the_mean(frame, losses, rows):
    whole = whole_set(frame)
    table = losses.select("sample_id", loss="later")
    found = measure_subset(rows, table, "loss", baseline=(whole, losses))
    plain, known = (m.estimands["full-set"] for m in found.measures)
    assert known.high - known.low < 0.5 * (plain.high - plain.low)
    assert known.low < losses["later"].mean() < known.high


def test_equal_numbers_have_no_interval_of_no_width(frame, rows):
    table = frame.select("sample_id", loss=pl.lit(0.25))
    found = measure_subset(rows, table, "loss").measures[0].estimands["generalisation"]
    assert (found.value, found.low, found.high) == (0.25, -math.inf, math.inf)
    assert "no spread" in found.caution


def test_what_is_no_number_is_refused(frame, losses, rows):
    with pytest.raises(UsageError, match="no column 'iou'"):
        measure_subset(rows, losses, "iou")
    with pytest.raises(UsageError, match="no finite 'loss'"):
        measure_subset(rows, losses.with_columns(loss=pl.lit(math.nan)), "loss")


@pytest.mark.parametrize("n", [60, 300])
def test_skewed_means_hold(n):
    rng = np.random.default_rng(n)
    values = np.exp(rng.normal(size=5000))
    stratum, held, too_low = np.zeros(5000, np.int64), 0, 0
    for _ in range(120):
        index = rng.choice(5000, n, replace=False)
        design, v = sampled(stratum, index), values[index]
        mean = estimate_mean(design, v, 0.95)["full-set"]
        held += mean.low <= values.mean() <= mean.high
        too_low += mean.high < values.mean()
    assert held >= 106  # of 120: 114 expected, three standard errors less is 107
    assert too_low <= 11  # a symmetric interval misses 10 % of the means on this side at n = 60


def test_brier_by_hand():
    table = pl.DataFrame({"prob_a": [0.7, 0.2], "prob_b": [0.3, 0.8]})
    assert brier_values(pl.Series(["a", "a"]), table) == pytest.approx([0.18, 1.28])
    with pytest.raises(UsageError, match="prob_c"):
        brier_values(pl.Series(["a", "c"]), table)


def test_the_size_for_a_mean():
    # (1.96 x 0.4 / 0.05)^2 = 245.9, a little more for Student's quantile
    assert units_for_mean(0.4, 0.05, 0.95) == pytest.approx(248, abs=2)
    assert units_for_mean(0.4, 0.05, 0.95, 248) == pytest.approx(124, abs=2)
    with pytest.raises(UsageError):
        units_for_mean(0.0, 0.05, 0.95)


def test_the_command_reads_what_loops_write(frame, rows, tmp_path):
    rng = np.random.default_rng(0)
    classes = sorted(set(frame["label"]))
    shares = rng.dirichlet(np.ones(4), len(frame))
    ids = frame["sample_id"].to_list()
    np.savez(tmp_path / "a.npz", ids=ids, probabilities=shares, classes=classes)
    with open(tmp_path / "a.jsonl", "w") as file:
        for name, row in zip(ids, shares.tolist(), strict=True):
            nested = dict(zip(classes, row, strict=True))
            print(json.dumps({"sample_id": name, "probabilities": nested}), file=file)
    rows.write_parquet(tmp_path / "s.parquet")

    def answer(command, option, file, *more):
        subset, path = tmp_path / "s.parquet", tmp_path / file
        return json.loads(call(command, subset, option, path, *more, "--json"))

    one, other = (
        answer("measure", "--values", f, "--number", "brier") for f in ("a.npz", "a.jsonl")
    )
    assert one["measures"] == other["measures"]
    assert 0 < one["measures"][0]["estimands"]["full-set"]["value"] < 2
    scored = answer("score", "--predictions", "a.npz", "--metric", "auroc")
    assert 0.4 < scored["models"][0]["metrics"][0]["estimands"]["full-set"]["value"] < 0.6


def test_misshaped_arrays_are_refused(tmp_path):
    from audit.subset.predictions import read_table

    np.savez(tmp_path / "a.npz", ids=["a", "b"], probabilities=np.ones((2, 3)), classes=["x", "y"])
    with pytest.raises(UsageError, match="shape"):
        read_table(tmp_path / "a.npz", "predictions")
    (tmp_path / "b.npz").write_bytes(b"no zip")
    with pytest.raises(UsageError, match="savez"):
        read_table(tmp_path / "b.npz", "predictions")
