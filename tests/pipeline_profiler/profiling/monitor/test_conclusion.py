"""What is concluded from one watched loop, and what is not."""

from typing import Any

import pytest

from pipeline_profiler.profiling.diagnose.verdict import Verdict
from pipeline_profiler.profiling.monitor.conclusion import judge_session
from pipeline_profiler.profiling.record.session import Session
from tests.pipeline_profiler.fakes import MS, made_run


def watched_loop(wait_ms: float, step_ms: float, queued_ms: float = 0.0, **totals: int) -> Session:
    period = wait_ms + step_ms
    rows = [
        {"entry": i * period, "got": i * period + wait_ms, "end": (i + 1) * period}
        for i in range(60)
    ]
    run = made_run(rows)
    run.totals |= totals
    waits = run.spans.stages.index("wait")
    for i, stage in enumerate(run.spans.columns["stage"]):
        if stage == waits:
            run.spans.columns["queued"][i] = round(queued_ms * MS)
    return Session([run], environment={"cores": 4})


def judged(session: Session) -> dict[str, Any]:
    judge_session(session)
    return session.results


def codes(results: dict[str, Any]) -> list[str]:
    return [cause["code"] for cause in results["causes"]]


def test_a_prediction_for_workers_has_the_hand_over_in_it() -> None:
    assert "PIPE006" in codes(judged(watched_loop(40, 40)))
    dear = judged(watched_loop(40, 40, hand_over_ns=45 * MS, pickling_ns=10 * MS))
    assert dear["verdict"] == Verdict.HIGH
    assert "PIPE006" not in codes(dear)


def test_waiting_for_a_core_that_others_have_is_their_cause() -> None:
    session = watched_loop(4, 36, queued_ms=3.5)
    session.environment |= {"others_cpu": 0.5, "steal": 0.1}
    crowded = judged(session)
    assert (crowded["verdict"], codes(crowded)[0]) == (Verdict.MODERATE, "PIPE033")
    assert crowded["contention"]["share"] == pytest.approx(0.1 - 0.5 / 36.5, abs=0.001)
    assert crowded["contention_sentence"].startswith("Of that, other programs cost about 9 points")
    assert "on this machine now" in crowded["sentence"]
    quiet = watched_loop(4, 36, queued_ms=3.5)
    assert judged(quiet)["contention"] is None  # nobody else wanted a core
    assert judged(watched_loop(0.4, 40))["verdict"] == Verdict.NOT_BOUND


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"trained_steps": 60, "elsewhere_steps": 59}, "another thread than the one that trains"),
        ({"wait_told": False}, "the wait lies inside the train step"),
    ],
    ids=["thread", "compiled"],
)
def test_a_wait_that_is_not_the_steps_gives_no_verdict(change: dict[str, Any], why: str) -> None:
    session = watched_loop(40, 40)
    run = session.runs[0]
    (run.config if "wait_told" in change else run.totals).update(change)
    assert judged(session)["verdict"] == Verdict.INCONCLUSIVE
    assert why in session.results["sentence"]


def test_too_little_is_said() -> None:
    assert "no loader was iterated" in judged(Session())["sentence"]
    few = Session([made_run([{"entry": 0, "got": 1, "end": 2}])])
    assert "fewer than 5 steps" in judged(few)["sentence"]


def test_steps_that_a_long_run_has_dropped_are_summed_up() -> None:
    sums = {"dropped_steps": 900, "dropped_wait_ns": 3 * MS, "dropped_loop_ns": 7 * MS}
    assert (
        "the 900 steps before these waited 30.0%" in judged(watched_loop(4, 4, **sums))["sentence"]
    )


def test_a_wait_that_the_device_spends_computing_costs_nothing() -> None:
    session = watched_loop(40, 40)
    for i in range(50):  # the events of the last steps were not read any more
        session.runs[0].spans.add("step:training exposed", i, -1, i * 80 * MS, 0)
    results = judged(session)
    assert results["stall"]["share"] == pytest.approx(10 * 40 / (60 * 80))
    assert not [cause for cause in results["causes"] if "exposed" in cause["cause"]]
