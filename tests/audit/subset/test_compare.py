"""The best of k, and looking at will: limits that hold together or at every size."""

from __future__ import annotations

import numpy as np
import pytest

from audit.errors import UsageError
from audit.subset import Goal, census, draw_subset, first_units, make_plan
from audit.subset.compare import (
    anytime_text,
    betting_limits,
    error_covariance,
    find_winner,
    score_anytime,
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


@pytest.fixture(scope="module")
def rows(frame):
    return drawn(frame, 200, 2, by_label=False)


def held_throughout(rng, p, population, n):
    """Return whether the limits held at all sizes up to n: those of n lie within all earlier."""
    answers = (rng.uniform(size=population or n) < p).astype(float)
    truth = answers.mean() if population else p
    low, high = betting_limits(rng.permutation(answers)[:n], 0.95, population)
    return low <= truth <= high


@pytest.mark.parametrize(("p", "population"), [(0.9, 150), (0.98, None)])
def test_they_hold_at_every_size_looked_at(p, population):
    rng = np.random.default_rng(1)
    held = sum(held_throughout(rng, p, population, 120) for _ in range(60))
    assert held >= 52  # of 60: 57 promised, three standard errors less is 52


def test_later_limits_lie_within_earlier_ones():
    x = (np.random.default_rng(4).uniform(size=120) < 0.8).astype(float)
    low, high = np.array([betting_limits(x[:n], 0.95) for n in (30, 60, 120)]).T
    assert (np.diff(low) >= 0).all()
    assert (np.diff(high) <= 0).all()


def test_they_are_not_much_wider_than_one_look():
    x = (np.random.default_rng(3).uniform(size=400) < 0.9).astype(float)
    low, high = betting_limits(x, 0.95)
    fixed = 1.96 * np.sqrt(x.var() / 400)
    assert fixed < (high - low) / 2 < 2.2 * fixed


def test_the_whole_set_is_known(frame):
    table = predicted(frame, 0.8, 1)
    plan = make_plan(frame, Goal(n=800), by_label=False)
    found = score_anytime(draw_subset(frame, plan.recipe, 1).rows, [table])
    truth = float((table["prediction"] == frame["label"]).mean())
    one = found.estimands["full-set"]
    assert one.low == pytest.approx(truth) == one.high
    assert found.estimands["generalisation"].low < truth


def test_a_fixed_pair(frame, rows):
    worse, better = predicted(frame, 0.6, 1), predicted(frame, 0.9, 2)
    found = score_anytime(rows, [worse, better], names=["old", "new"])
    assert found.what == "new minus old"
    assert all(0 < e.low < e.value < e.high for e in found.estimands.values())
    same = score_anytime(rows, [worse, worse])
    assert all(e.low < 0 < e.high for e in same.estimands.values())
    assert "scored once at this size" in anytime_text(found)


def test_strata_groups_and_many_models_are_refused(frame, rows):
    table = predicted(frame, 0.8, 1)
    for other in (drawn(frame, 200, 2),
                  census(frame).rows):  # fmt: skip
        with pytest.raises(UsageError, match="--no-label-strata"):
            score_anytime(other, [table])
    with pytest.raises(UsageError, match="audit subset winner"):
        score_anytime(rows, [table] * 3)


def test_the_command_takes_prefixes_and_nothing_it_cannot_answer(frame, rows, tmp_path):
    rows.write_parquet(tmp_path / "s.parquet")
    predicted(frame, 0.8, 1).write_csv(tmp_path / "a.csv")
    words = ["score", tmp_path / "s.parquet", "--predictions", tmp_path / "a.csv", "--anytime"]
    assert "60 of 800 files scored so far." in call(*words, "--first", 60)
    assert len(first_units(rows, 60)) == 60
    assert "leave out" in call(*words, "--looks", 3, code=2)
