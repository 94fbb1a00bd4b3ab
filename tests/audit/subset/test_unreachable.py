"""A plan prints its answer first, and ends with exit code 1 where the set does not reach it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from audit.subset.goal import Goal
from audit.subset.plan import make_plan
from audit.subset.text import plan_text
from tests.audit.subset.frames import made_set

Command = Callable[..., tuple[int, str, str]]
COST = re.compile(r"p = 0\.5 makes n ([\d.]+) times too large if (\S+) is 90% "
                  r"\(([\d,]+) instead of ([\d,]+) units\)")  # fmt: skip


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    """A list of 200 images of two classes."""
    path = tmp_path / "val.csv"
    pl.DataFrame({"id": [f"{i}.jpg" for i in range(200)], "label": ["cat", "dog"] * 100}).write_csv(
        path
    )
    return path


def test_an_unreachable_target_is_the_first_line_and_exit_code_1(
    command: Command, listed: Path, tmp_path: Path
) -> None:
    plan = ("subset", "plan", "--from", listed)
    code, out, _ = command(*plan, "--half-width", 0.01, "-o", tmp_path / "plan.json")
    first = out.splitlines()[0]
    assert code == 1
    assert first.startswith("Not reachable: the set: a margin of error of 1 point is unreachable")
    assert COST.search(first)
    assert out.count("Not reachable") == out.count("p = 0.5 makes n") == 1
    code, out, _ = command(*plan, "--half-width", 0.01, "--json")
    assert code == 1
    (gap,) = json.loads(out)["unreachable"]
    assert gap["sentence"] in first
    assert json.loads((tmp_path / "plan.json").read_text())["unreachable"] == [gap]
    code, out, _ = command(*plan, "--half-width", 0.08)
    assert (code, "Not reachable" in out) == (0, False)
    assert re.match(r"\d+ of 200 units", out)


def test_many_unreachable_targets_leave_room_for_the_plan() -> None:
    lines = plan_text(make_plan(made_set(90, 9), Goal(metric="recall", half_width=0.01)))
    head = lines.splitlines()[:7]
    assert [line.startswith("Not reachable: ") for line in head] == [True] * 5 + [False] * 2
    assert head[5] == "and 4 more targets: see --json"
    assert head[6].startswith("The plan takes 90 of 90 units")


@pytest.mark.parametrize(
    ("metric", "goal"),
    [
        ("accuracy", {"half_width": 0.02}),
        ("accuracy", {"half_width": 0.05, "estimand": "full-set"}),
        ("accuracy", {"detect": 0.05}),
        ("macro-recall", {"half_width": 0.03}),
        ("recall", {"half_width": 0.04}),
        ("recall:class0", {"half_width": 0.04}),
    ],
)
def test_the_cost_of_the_worst_case_is_that_of_the_metric(
    metric: str, goal: dict[str, float]
) -> None:
    frame = made_set(1500, 2)
    worst = make_plan(frame, Goal(metric, **goal))
    first = plan_text(worst).splitlines()[0]
    found = COST.search(first)
    assert found, first
    ratio, named, likely, needed = found.groups()
    assert named == metric
    planned = make_plan(frame, Goal(metric, planning_value=0.9, **goal))
    assert int(likely.replace(",", "")) == pytest.approx(planned.n, abs=2)
    if not worst.unreachable:
        assert int(needed.replace(",", "")) == pytest.approx(worst.n, abs=2)
    assert float(ratio) == pytest.approx(int(needed.replace(",", "")) / planned.n, rel=0.03)


@pytest.mark.parametrize("known", [{"planning_value": 0.5}, {"n": 50}])
def test_what_is_stated_or_a_budget_costs_nothing(known: dict[str, float]) -> None:
    goal = Goal(**({"half_width": 0.1} if "n" not in known else {}), **known)
    assert "too large" not in plan_text(make_plan(made_set(500, 2), goal))
