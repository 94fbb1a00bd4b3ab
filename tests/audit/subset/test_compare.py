"""The best of k: limits that hold together."""

from __future__ import annotations

import numpy as np
import pytest

from audit.errors import UsageError
from audit.subset.compare import (
    error_covariance,
    find_winner,
    selection_alone,
    winner_text,
)
from tests.audit.subset.commands import call
from tests.audit.subset.frames import drawn, made_set, predicted
from tests.audit.subset.test_baseline import sampled


def test_luck_of_ten_independent_models():
    """The largest of ten standard normal numbers is 1.539 on average (Tippett 1925)."""
    luck, level = selection_alone(np.eye(10) * 1e-4, 0.95)
    assert luck == pytest.approx(0.01539, rel=0.02)
    assert level == pytest.approx(0.95**0.1, abs=1e-3)


def test_models_that_are_alike_cost_nothing():
    alike = np.full((5, 5), 1e-4) + np.eye(5) * 1e-12
    luck, level = selection_alone(alike, 0.95)
    assert luck < 1e-5
    assert level == pytest.approx(0.95, abs=0.002)


def test_the_covariance_is_that_of_the_shares():
    rng = np.random.default_rng(2)
    hit = (rng.uniform(size=300) < 0.8).astype(float)
    design = sampled(np.zeros(10**6, np.int64), np.arange(300))
    covariance = error_covariance(design, np.array([hit, 1 - hit]))
    assert covariance[0, 0] == pytest.approx(hit.var(ddof=1) / 300, rel=1e-6)
    assert covariance[0, 1] == pytest.approx(-covariance[0, 0], rel=1e-6)


def test_equal_models_are_covered_together_and_the_winner_is_lucky():
    rng = np.random.default_rng(5)
    held, excess, luck = 0, [], []
    design = sampled(np.zeros(10**6, np.int64), np.arange(400))
    for _ in range(60):
        hits = (rng.uniform(size=(10, 400)) < 0.9).astype(float)
        by_luck, level = selection_alone(error_covariance(design, hits), 0.95)
        excess.append(hits.mean(axis=1).max() - 0.9)
        luck.append(by_luck)
        half = np.sqrt(hits.var(axis=1) / 400) * 2.8 * (level > 0.99)
        held += bool((np.abs(hits.mean(axis=1) - 0.9) <= half).all())
    assert held >= 50  # Wald's intervals here, a little short of the score's
    assert np.mean(excess) == pytest.approx(np.mean(luck), rel=0.2)


def test_the_command_ranks(tmp_path):
    frame = made_set(600, 3, seed=1)
    rows = drawn(frame, 200, 2)
    rows.write_csv(tmp_path / "s.csv")
    words = ["winner", tmp_path / "s.csv"]
    for seed in range(4):
        predicted(frame, 0.85, seed).write_csv(tmp_path / f"m{seed}.csv")
        words += ["--predictions", tmp_path / f"m{seed}.csv"]
    assert "is the best of 4 on these rows" in call(*words)
    tables = [predicted(frame, 0.85, seed) for seed in range(4)]
    found = find_winner(rows, tables, names=["a", "b", "c", "d"])
    values = [c.estimands["full-set"].value for c in found.candidates]
    assert values == sorted(values, reverse=True)
    assert 0.95 < found.level <= 1 - 0.05 / 4 + 1e-12
    assert "by selection alone" in winner_text(found)
    with pytest.raises(UsageError, match="at least two"):
        find_winner(rows, tables[:1], names=["a"])


@pytest.fixture(scope="module")
def frame():
    return made_set(800, 3, seed=9)
