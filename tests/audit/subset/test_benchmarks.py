"""The benchmarks run, and the simulation's own short cuts are right; small and seeded, no times."""

from __future__ import annotations

import importlib.util
import json
import sys

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from audit.subset.estimate import proportion_interval
from audit.subset.goal import ESTIMANDS
from audit.subset.metrics import Design, macro_f1, macro_recall
from audit.subset.strata import allocate
from tests.conftest import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def coverage():
    """The benchmark `subset_coverage.py` as a module."""
    folder = ROOT / "benchmarks"
    sys.path.insert(0, str(folder))  # where its neighbours lie
    spec = importlib.util.spec_from_file_location("subset_coverage", folder / "subset_coverage.py")
    module = sys.modules["subset_coverage"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_allocation_of_many_sets_at_once(coverage):
    rng = np.random.default_rng(0)
    for _ in range(20):
        H = int(rng.integers(1, 30))
        N = rng.integers(2, 400, (20, H))
        scale = rng.choice([0.3, 0.5, 1.0], H)
        n = int(rng.integers(2 * H, N.sum(1).min() + 1))
        expected = [allocate(row, scale, n).tolist() for row in N]
        assert coverage.allocate_rows(N, scale, n).tolist() == expected


SOME = {(300, 1000), (200, 500), (50, 200), (150, 200)}  # of the last, three in four are drawn


def test_some_cells_hold(coverage):
    """A few rows of the grid at 500 repetitions: the same judgement as the full benchmark."""
    chosen = [d for d in coverage.designs() if (d.n, d.N) in SOME]
    assert {d.name for d in chosen} >= {"simple finite", "10 strata zipf", "groups"}
    rng = np.random.default_rng(5)
    cells = [c for d in chosen for p in (0.05, 0.3, 0.9)
             for c in coverage.coverage_cells(d, p, 500, rng)]  # fmt: skip
    worst = min(c["coverage"] for c in cells if c["kind"] == "wilson")
    mean = np.mean([c["coverage"] for c in cells if c["kind"] == "wilson"])
    assert worst >= 0.92
    assert 0.94 <= mean <= 0.975
    assert min(c["coverage"] for c in cells if c["kind"] == "exact") >= 0.935


def test_a_wrong_interval_would_be_noticed(coverage):
    """The judge fails a normal-approximation interval without finite-population correction."""
    rng = np.random.default_rng(5)
    design = next(d for d in coverage.designs() if d.name == "simple" and d.n == 60)
    cells = list(coverage.coverage_cells(design, 0.02, 1000, rng))
    for c in cells:
        c["coverage"] -= 0.08
    assert coverage.judge_coverage(cells, 10_000)


def of_rows(metric, design, label, said):
    hit, classes = (said == label).astype(float), design.population.size
    if metric == "accuracy":
        return design.ratio(hit, np.ones(hit.size))
    if metric == "macro-recall":
        return macro_recall(label, hit, design.weight, classes).ratio(design)
    return macro_f1(label, said, hit, design.weight, classes).ratio(design)


@pytest.mark.parametrize("metric", ["accuracy", "macro-recall", "macro-f1"])
def test_tables_of_answers_score_as_their_rows_do(coverage, metric):
    """All draws at once is the product, draw by draw."""
    rng, K = np.random.default_rng(2), 6
    N = np.tile(np.array([4000, 900, 300, 90, 40, 12]), (30, 1))
    n = np.array([20, 12, 9, 6, 3, 2])
    chances = coverage.answer_chances(N[0] / N[0].sum(), 0.8, "any")
    tables = rng.multinomial(np.tile(n, (30, 1)), chances)
    many = coverage.mean_ratio(metric, tables, N)
    label, weight = np.repeat(np.arange(K), n), np.repeat(N[0] / n, n)
    ones = np.ones(label.size)
    design = Design(pl.DataFrame(), np.arange(label.size), label, N[0] * 1.0, ones, weight)
    for place, table in enumerate(tables):
        said = np.repeat(np.tile(np.arange(K), K), table.ravel())
        one = of_rows(metric, design, label, said)
        for estimand in ESTIMANDS:
            alone = proportion_interval(one, estimand)
            together = [v[place] for v in proportion_interval(many, estimand)]
            assert together == pytest.approx([float(v) for v in alone], rel=1e-9)


def test_means_over_classes_hold_on_a_long_tail(coverage, tmp_path):
    """Two cells that covered 76 and 79 %, and the command that draws the worst cells again."""
    for cell in (
        ("20, 100-fold", "equal", 300, 0.9, "any"), ("30 zipf", "proportional", 100, 0.6, "rarest")
    ):  # fmt: skip
        found = list(coverage.mean_cell(coverage.Cell(*cell), 150, 3))
        assert {f["metric"] for f in found} == set(coverage.MEANS)
        assert min(f["coverage"] for f in found) >= 0.9  # of 150 draws: 94 % less two errors
    rows, again = tmp_path / "rows.jsonl", tmp_path / "again.jsonl"
    rows.write_text("".join(f"{json.dumps(f)}\n" for f in found))
    result = CliRunner().invoke(coverage.app, ["worst", str(rows), str(again), "--draws", "20"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout.splitlines()[-1])["cells"] == 3
    assert len(again.read_text().splitlines()) == 6
