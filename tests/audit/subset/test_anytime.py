"""Looking at will: limits that hold at every size, their price, and what they are not for."""

from __future__ import annotations

import numpy as np
import pytest
from typer.testing import CliRunner

from audit.cli.subset import app
from audit.errors import UsageError
from audit.subset import Goal, census, draw_subset, first_units, make_plan
from audit.subset.anytime import anytime_text, betting_limits, score_anytime
from tests.audit.subset.frames import made_set, predicted


@pytest.fixture(scope="module")
def frame():
    return made_set(800, 3, seed=9)


@pytest.fixture(scope="module")
def rows(frame):
    return draw_subset(frame, make_plan(frame, Goal(n=200), by_label=False).recipe, 2).rows


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
    for other in (draw_subset(frame, make_plan(frame, Goal(n=200)).recipe, 2).rows,
                  census(frame).rows):  # fmt: skip
        with pytest.raises(UsageError, match="--no-label-strata"):
            score_anytime(other, [table])
    with pytest.raises(UsageError, match="audit subset winner"):
        score_anytime(rows, [table] * 3)


def test_the_command_takes_prefixes_and_nothing_it_cannot_answer(frame, rows, tmp_path):
    rows.write_parquet(tmp_path / "s.parquet")
    predicted(frame, 0.8, 1).write_csv(tmp_path / "a.csv")
    call = ["score", str(tmp_path / "s.parquet"), "--predictions", str(tmp_path / "a.csv"),
            "--anytime"]  # fmt: skip
    said = CliRunner().invoke(app, [*call, "--first", "60"])
    assert "60 of 800 files scored so far." in said.stdout
    assert len(first_units(rows, 60)) == 60
    refused = CliRunner().invoke(app, [*call, "--looks", "3"])
    assert refused.exit_code == 2
    assert "leave out" in refused.stderr
