"""A quick run stops after the third or fourth block where its corrected interval decides."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from pipeline_profiler.profiling.diagnose.intervals import LOOK_MISS, MISS, mean_interval, miss_of
from pipeline_profiler.profiling.diagnose.verdict import deciding_side, diagnose_session
from pipeline_profiler.profiling.measure import schedule as schedule_module
from pipeline_profiler.profiling.measure.arms import Bench, Options
from pipeline_profiler.profiling.measure.kept_batches import KeptBatches
from pipeline_profiler.profiling.measure.schedule import announcement, measure_arms
from pipeline_profiler.profiling.record.arm import Arm
from pipeline_profiler.profiling.record.plan import Plan
from pipeline_profiler.profiling.record.session import Run, Session
from pipeline_profiler.report import render
from tests.pipeline_profiler.fakes import FakeClock, SlowList, made_run, schedule

STEP = 20.0  # ms
CLEAR = (0.36, 0.33, 0.35, 0.34, 0.35)
BORDERLINE = (0.03, 0.08, 0.05, 0.07, 0.04)
WIDE = (0.16, 0.18, 0.26, 0.21, 0.18)  # above 5%, on both sides of 20%
LATE = (0.30, 0.38, 0.45, 0.37, 0.38)  # the fourth block decides
NONE = (0.001, 0.002, 0.0, 0.001, 0.002)


def simulated_run(arm: Arm, block: int, stall: float) -> Run:
    """A run of 40 steps of 20 ms, with a wait that is the share `stall` of the period."""
    wait = STEP * stall / (1 - stall) if arm == Arm.WARM else 0.0
    run = made_run(schedule(40, 0, 0, STEP, lambda j: wait), arm)
    run.block = block
    return run


def measured(
    monkeypatch: pytest.MonkeyPatch,
    stalls: Sequence[float],
    early_stop: bool = True,
    disturbed: Sequence[int] = (),
) -> Session:
    """The session after all blocks that the schedule runs of these simulated stalls."""
    session = Session(environment={"cores": 2})
    main = (Arm.RESIDENT, Arm.WARM)
    session.plan = Plan(main, len(stalls), 40, early_stop=early_stop)

    def run(bench: Bench, arm: Arm, block: int, session: Session, kept: Any) -> Run:
        made = simulated_run(arm, block, stalls[block])
        others = 10**9 * (block in disturbed)
        made.totals |= {"window_ns": 10**9, "cores_ns": 2 * 10**9, "others_ns": others}
        return made

    monkeypatch.setattr(schedule_module, "run_arm", run)
    bench = Bench(list, lambda batch: None, FakeClock())
    schedule_module._run_blocks(bench, session, KeptBatches(), (10**15, 10**15), bare=False)
    return session


@pytest.mark.parametrize(
    ("stalls", "blocks", "side"),
    [
        (CLEAR, 3, "above 20%"),
        (NONE, 3, "below 5%"),
        ((0.11, 0.12, 0.115, 0.11, 0.12), 3, "between 5% and 20%"),
        (LATE, 4, "above 20%"),
        (BORDERLINE, 5, ""),
        (WIDE, 5, ""),
        (CLEAR[:4], 3, "above 20%"),
        (CLEAR[:3], 3, ""),  # all blocks of the plan: no early stop
        ((*LATE[:4], 0.6, 0.4, 0.4), 4, "above 20%"),
    ],
)
def test_blocks_end_where_the_interval_lies_on_one_side(
    stalls: Sequence[float], blocks: int, side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = measured(monkeypatch, stalls)
    assert len(session.arm(Arm.WARM)) == len(session.arm(Arm.RESIDENT)) == blocks
    looks = min(3, len(stalls) - 2)
    note = f"Stopped after {blocks} of {len(stalls)} blocks: the interval, corrected for {looks} "
    assert session.notes == ([f"{note}looks, lies {side}."] if side else [])


def test_a_full_run_never_stops_early(monkeypatch: pytest.MonkeyPatch) -> None:
    session = measured(monkeypatch, CLEAR, early_stop=False)
    assert len(session.arm(Arm.WARM)) == 5
    assert session.notes == []


def test_two_blocks_never_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    session = measured(monkeypatch, (0.35,) * 5)
    session.runs = [run for run in session.runs if run.block < 2]
    assert diagnose_session(session).verdict == "input-bound high"
    assert deciding_side(session) == ""


def test_a_disturbed_block_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(measured(monkeypatch, CLEAR, disturbed=[1]).arm(Arm.WARM)) == 4
    busy = measured(monkeypatch, CLEAR, disturbed=range(5))
    assert len(busy.arm(Arm.WARM)) == 5
    schedule_module.repeat_disturbed(Bench(list, print), busy, KeptBatches(), 10**15)
    assert len(busy.arm(Arm.WARM)) == 5  # no wait for a machine that is always busy


def test_a_saved_session_of_three_blocks_keeps_its_interval_and_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = measured(monkeypatch, CLEAR)
    session.results |= diagnose_session(session).as_results()
    again = Session.from_json(json.loads(json.dumps(session.to_json())))
    assert again.plan.early_stop
    stall = diagnose_session(again).stall
    assert stall.as_dict() == session.results["stall"]
    text = " ".join(render.to_text(again).split())
    assert (
        "Stopped after 3 of 5 blocks: the interval, corrected for 3 looks, lies above 20%." in text
    )
    assert "Stopped after 3 of 5 blocks" in render.to_screen(again)
    again.plan = Plan(again.plan.arms, 5, 40)
    assert diagnose_session(again).stall.half_width < stall.half_width  # not corrected


@pytest.mark.parametrize(
    ("blocks", "early_stop", "miss"),
    [(5, False, MISS), (2, True, MISS), (3, True, LOOK_MISS[0]), (4, True, LOOK_MISS[1]),
     (5, True, LOOK_MISS[2]), (9, True, LOOK_MISS[2])],
)  # fmt: skip
def test_the_level_follows_the_looks(blocks: int, early_stop: bool, miss: float) -> None:
    assert miss_of(blocks, early_stop) == miss


def test_all_looks_together_miss_in_five_of_a_hundred() -> None:
    rng = np.random.default_rng(0)
    draws, missed = 4000, 0
    for values in rng.normal(size=(draws, 5)):
        looks = [mean_interval(values[:n], miss_of(n, True)) for n in (3, 4, 5)]
        missed += any(not look.low <= 0 <= look.high for look in looks)
    assert missed / draws == pytest.approx(0.05, abs=0.011)  # 3 sigma of chance


def test_a_quick_run_of_a_clear_stall_takes_three_blocks() -> None:
    clock = FakeClock()
    loader = SlowList(clock, [10.0] * 16)
    bench = Bench(lambda: loader, lambda batch: clock.advance(20), clock)
    begun = clock()
    session = measure_arms(bench, Options(quick=True))
    assert len(session.arm(Arm.WARM)) == 3
    assert (clock() - begun) / 1e9 < 15
    assert "3 to 5 repeats" in announcement(session.plan)
    assert diagnose_session(session).verdict == "input-bound high"


def test_a_stream_is_measured_at_all_its_places() -> None:
    clock = FakeClock()
    loader = SlowList(clock, [10.0] * 4000)
    bench = Bench(lambda: loader, lambda batch: clock.advance(20), clock)
    session = measure_arms(bench, Options(quick=True))
    assert not session.plan.early_stop
    assert len(session.arm(Arm.WARM)) == 5
