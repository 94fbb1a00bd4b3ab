"""Points of the data stall that other programs cost."""

from typing import Any

import pytest

from pipeline_profiler.profiling.diagnose.verdict import Conclusion, diagnose_session
from pipeline_profiler.profiling.record.arm import Arm
from pipeline_profiler.profiling.record.session import Session
from tests.pipeline_profiler.fakes import MS, made_session, schedule

STEPS = 60


def serial_session(wait: float, queued: float, step_queued: float, others: float) -> Session:
    """Steps of 20 ms on a thread; loading waits for a core too (ms a step)."""
    rows = schedule(STEPS, 0, 0, 20.0, lambda j: wait)
    session: Session = made_session(rows, 20.0, workers=0, prefetch=0)
    for run in session.runs:
        waits = run.spans.stages.index("wait")
        columns = run.spans.columns
        loads = run.arm == Arm.WARM
        for i, stage in enumerate(columns["stage"]):
            if stage == waits and loads:
                columns["queued"][i] = round(queued * MS)
                columns["cpu"][i] = round((wait - queued) * MS)
        step = 20.0 + wait * loads
        waiting = step_queued + queued * loads
        window = round(STEPS * step * MS)
        run.totals |= {
            "window_ns": window, "cores_ns": 2 * window, "others_ns": round(2 * others * window),
            "own_cpu_ns": round(STEPS * (step - waiting) * MS), "children_cpu_ns": 0,
            "main_cpu_ns": round(STEPS * (step - waiting) * MS),
            "own_queued_ns": round(STEPS * waiting * MS),
        }  # fmt: skip
    return session


def judged(**figures: float) -> tuple[Conclusion, dict[str, Any]]:
    found = diagnose_session(serial_session(**figures))
    return found, found.as_results()


def test_a_wait_for_cores_is_the_part_of_other_programs() -> None:
    """8 of 10 ms of loading and none of the step wait for a core: 2 of 22 ms would remain."""
    found, results = judged(wait=10.0, queued=8.0, step_queued=0.0, others=0.5)
    assert found.verdict == "input-bound high"
    assert found.stall.value == pytest.approx(10 / 30, abs=0.01)
    assert results["contention"]["share"] == pytest.approx(10 / 30 - 2 / 22, abs=0.01)
    assert results["contention_sentence"].startswith("Of that, other programs cost about 24 points")
    assert found.causes[0].code == "PIPE033"


def test_the_wait_of_the_step_for_cores_is_no_part_of_the_stall() -> None:
    """5 of 10 ms of loading and 10 of 20 ms of the step wait for a core."""
    _, results = judged(wait=10.0, queued=5.0, step_queued=10.0, others=0.5)
    assert results["contention"]["share"] == pytest.approx(10 / 30 - 5 / 25, abs=0.01)


def test_without_other_programs_there_is_no_such_part() -> None:
    found, results = judged(wait=10.0, queued=8.0, step_queued=0.0, others=0.01)
    assert (results["contention"], results["contention_sentence"]) == (None, "")
    assert "PIPE033" not in [cause.code for cause in found.causes]
