"""The first advice is tried before it is given, for at most a fifth of the budget."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipeline_profiler.profiling.diagnose.verdict import diagnose_session
from pipeline_profiler.profiling.measure import trials
from pipeline_profiler.profiling.measure.arms import Bench
from pipeline_profiler.profiling.measure.kept_batches import KeptBatches
from pipeline_profiler.profiling.record.arm import Arm
from pipeline_profiler.profiling.record.session import Run, Session
from tests.pipeline_profiler.fakes import FakeClock, made_session, schedule


def one_worker() -> Session:
    """38 ms of loading beside a step of 20 ms; 40 steps a run."""
    session: Session = made_session(
        schedule(120, 1, 2, 20.0, lambda j: 38.0), 20.0, workers=1, prefetch=2
    )
    session.plan = replace(session.plan, steps=40, warmup=10)
    return session


def trying(
    session: Session, period: float, monkeypatch: pytest.MonkeyPatch, budget: float = 25.0
) -> int:
    """How many trial runs there were; each takes `period` a step."""
    clock = FakeClock()
    bench = Bench(list, lambda batch: None, clock)
    bench._settings = {"kind": "torch", "workers": 1, "prefetch": 2}

    def run(bench: Bench, arm: Arm, block: int, session: Session, kept: Any) -> Run:
        rows = schedule(60, 2, 2, period, lambda j: 1.0)
        made: Run = made_session(rows, period, repeats=1, workers=2, prefetch=2).arm(Arm.WARM)[0]
        made.arm, made.block = arm, block
        clock.advance(60 * period)
        return made

    monkeypatch.setattr(trials, "run_arm", run)
    trials.try_first_advice(bench, session, KeptBatches(), clock() + 10**12, budget)
    return len(session.arm(Arm.TRIAL))


def test_what_helps_is_recommended_with_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    session = one_worker()
    assert trying(session, 25.0, monkeypatch) == 2
    assert session.probes.change == {"workers": 2}
    cause = diagnose_session(session).causes[0]
    assert cause.code == "PIPE006"
    assert cause.tried
    assert cause.share.low > 0.25
    assert Arm.TRIAL in session.plan.arms


def test_what_does_not_help_is_told_and_not_recommended(monkeypatch: pytest.MonkeyPatch) -> None:
    session = one_worker()
    trying(session, 70.0, monkeypatch)
    assert "PIPE006" not in [cause.code for cause in diagnose_session(session).causes]
    assert "num_workers=2 was tried and is not recommended: 38.00 ms a step" in session.notes[0]


def test_a_trial_that_does_not_fit_a_fifth_of_the_budget_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = one_worker()
    assert trying(session, 25.0, monkeypatch, budget=9.0) == 0
    cause = diagnose_session(session).causes[0]
    assert "not tried: 2 more seconds" in cause.next
