"""Windows that other programs disturbed: left out, counted, and never the ground of a verdict."""

import random
from typing import Any

import pytest

from pipeline_profiler.profiling.diagnose.disturbance import is_disturbed
from pipeline_profiler.profiling.diagnose.verdict import diagnose_session
from pipeline_profiler.profiling.diagnose.window import Window
from pipeline_profiler.profiling.record.arm import Arm
from pipeline_profiler.profiling.record.session import Run, Session
from tests.pipeline_profiler.fakes import MS, made_session, schedule

DRAWS = 20
QUIET = {
    "window_ns": 1000 * MS, "cores_ns": 2000 * MS, "others_ns": 20 * MS, "steal_ns": 0,
    "pressure_ns": 30 * MS, "main_queued_ns": 1 * MS, "own_cpu_ns": 800 * MS,
    "main_cpu_ns": 799 * MS, "children_cpu_ns": 0,
}  # fmt: skip


def metered(disturbed: set[int], others: int = 700) -> Session:
    """Healthy in its quiet blocks; in the others the loader is late by half of the step."""
    session: Session = made_session(
        schedule(80, 1, 2, 20.0, lambda j: 10.0), 20.0, workers=1, prefetch=2
    )
    late = made_session(schedule(80, 1, 2, 20.0, lambda j: 40.0), 20.0, workers=1, prefetch=2)
    for i, run in enumerate(session.runs):
        session.runs[i] = late.runs[i] if run.block in disturbed else run
        more = {"others_ns": others * MS} if run.block in disturbed else {}
        session.runs[i].totals = QUIET | more
    return session


def test_disturbed_blocks_are_left_out_and_counted() -> None:
    found = diagnose_session(metered({1, 3}))
    assert found.verdict == "not input-bound"
    assert "2 of 5 repeats left out, as other programs disturbed them" in found.sentence
    machine = found.as_results()["machine"]
    assert machine == {"others": 0.01, "cpu_pressure": 0.03, "blocks_left_out": 2, "blocks": 5}


@pytest.mark.parametrize(("disturbed", "held"), [((), True), ((1,), True), ((1, 2), False)])
def test_a_disturbed_block_of_three_does_not_make_the_stall_larger(
    disturbed: tuple[int, ...], held: bool
) -> None:
    """The law: others only prolong the loader's work, so T' = T (1 + d) and 1 - D/T' > 1 - D/T."""
    step, rng, covered = 20.0, random.Random(5), 0
    for _ in range(DRAWS):
        rows = [
            made_session(schedule(60, 0, 0, step, lambda j, s=slower: rng.gauss(15, 1) * s), step)
            for slower in (1.0, 1.6)
        ]
        session = rows[0]
        session.runs = [
            rows[run.block in disturbed].runs[i]
            for i, run in enumerate(session.runs)
            if run.block < 3
        ]
        for run in session.runs:
            run.totals = QUIET | ({"others_ns": 700 * MS} if run.block in disturbed else {})
        stall = diagnose_session(session).stall
        covered += stall.low <= 15 / (step + 15) <= stall.high
        if held:
            assert stall.value == pytest.approx(15 / (step + 15), abs=0.02)
    assert covered >= 0.9 * DRAWS


def test_where_most_blocks_are_disturbed_no_verdict_is_sure() -> None:
    found = diagnose_session(metered({0, 1, 2}))
    assert found.verdict == "inconclusive"
    assert "other programs took" in found.sentence
    assert found.evidence.machine.left_out == 0


def run_of(arm: Arm, **totals: int) -> Window:
    return Window.of(Run(arm=arm, totals=QUIET | {k: v * MS for k, v in totals.items()}))


@pytest.mark.parametrize(
    ("arm", "totals", "disturbed"),
    [
        (Arm.WARM, {}, False),
        (Arm.WARM, {"others_ns": 150, "steal_ns": 80}, True),
        # beside a step alone, a wait for a core is another program's doing
        (Arm.RESIDENT, {"main_queued_ns": 80}, True),
        (Arm.WARM, {"main_queued_ns": 80}, False),
        (Arm.RESIDENT, {"main_queued_ns": 80, "own_cpu_ns": 1500}, False),
    ],
)
def test_a_window_is_disturbed_by_what_was_not_ours(
    arm: Arm, totals: dict[str, Any], disturbed: bool
) -> None:
    assert is_disturbed(run_of(arm, **totals)) == disturbed


def test_a_window_that_was_not_metered_is_not_blamed() -> None:
    assert not is_disturbed(Window.of(Run(arm=Arm.WARM)))
