"""The stall from the stopwatch and the arms: what either may say, and which of them decides."""

import math

import numpy as np
import pytest

from pipeline_profiler.profiling.diagnose.data_stall import Block, estimate, loader_reach_ns
from pipeline_profiler.profiling.diagnose.verdict import diagnose_session
from pipeline_profiler.profiling.diagnose.window import Window
from pipeline_profiler.profiling.record.arm import Arm
from pipeline_profiler.profiling.record.session import Run, Session
from tests.pipeline_profiler.fakes import MS, made_run, made_session, schedule

METERED = {"own_cpu_ns": 0, "main_cpu_ns": 0, "children_cpu_ns": 0, "main_queued_ns": 0}


def blocks(
    in_hand: list[float], wait: float, contention: float = 0.0, reach: float = 0.0
) -> list[Block]:
    """Blocks of a step of 30 ms with the loader, whose resident arms differ by its own noise."""
    loop = 30.0 + contention
    noise = float(np.std(in_hand)) / 30
    return [Block(loop + wait, loop, d, reach, noise) for d in in_hand]


def test_a_noisy_step_cannot_say_more_than_the_wait_allows() -> None:
    """Resident arms that differ by an fsync: the wait of 2 % is all that can be the loader's."""
    noisy = blocks([12.0, 170.0, 31.0], wait=0.6)
    found = estimate(noisy)
    assert found.by_waiting
    assert 0.019 <= found.share.low <= found.share.value <= found.share.high < 0.05


def test_where_the_loader_reaches_far_a_quiet_difference_decides() -> None:
    found = estimate(blocks([30.0, 30.1, 29.9], wait=1.0, contention=6.0, reach=20.0))
    assert not found.by_waiting
    assert found.share.value == pytest.approx(1 - 30 / 37, abs=0.005)
    assert found.contention.value == pytest.approx(6 / 37, abs=0.005)


def test_the_wait_is_the_least_and_the_reach_the_most() -> None:
    """The difference of arms alone would say -200 % to 90 %."""
    found = estimate(blocks([12.0, 90.0, 31.0], wait=10.0, reach=4.0))
    assert found.share.low >= 0.25
    assert found.share.high <= 14 / 40 + 1e-9
    assert 0 <= found.contention.low <= found.contention.high <= 0.1 + 1e-9


def test_a_step_that_goes_on_while_it_waits_is_judged_by_the_difference_alone() -> None:
    """Half of the step runs beside the wait: as long with the loader as without it."""
    beside = [Block(30.0 + e, 15.0, 30.0, 0.0, 0.005) for e in (0.0, 0.1, -0.1)]
    assert estimate(beside).share.high < 0.05
    assert estimate(beside, waits_bound=False).share.high == estimate(beside).share.high


def test_arms_that_cannot_be_compared_say_no_nonsense() -> None:
    """The resident arm six times as long, as other programs came and went: nothing below zero."""
    found = estimate([Block(20.0 + e, 18.0, 120.0 + e, 0.5, 0.01) for e in (0.0, 0.3, -0.3)])
    assert 0 <= found.share.low <= found.share.value <= found.share.high < 0.2
    assert found.share.high > 0.1


def test_without_a_meter_the_difference_is_all_there_is() -> None:
    found = estimate(blocks([12.0, 90.0, 31.0], wait=10.0, reach=math.inf))
    assert found.share.low < 0
    assert not found.metered


def metered(step: float, **totals: int) -> Window:
    rows = [{"entry": i * step, "got": i * step, "end": (i + 1) * step} for i in range(10)]
    for row in rows:
        row["loop_cpu"] = 2.0
    run: Run = made_run(rows, Arm.WARM)
    run.totals = METERED | {name: value * MS for name, value in totals.items()}
    return Window.of(run)


def test_a_loader_reaches_no_further_than_its_cpu_time() -> None:
    """Ten steps of 2 ms on a core: 1 ms of workers slows them by half of it at most."""
    quiet = metered(20.0)
    assert loader_reach_ns(quiet, quiet, 0) == 0
    assert loader_reach_ns(metered(20.0, children_cpu_ns=10), quiet, 0) == pytest.approx(0.5 * MS)
    # more than the step's own time on a core counts only where the step waited for one
    crowd = metered(20.0, children_cpu_ns=200, main_queued_ns=30)
    assert loader_reach_ns(crowd, quiet, 0) == pytest.approx((3 + 1) * MS)
    # a step with threads of its own may lose all that the loader used
    threads = metered(20.0, own_cpu_ns=50)
    used = metered(20.0, own_cpu_ns=50, children_cpu_ns=200)
    assert loader_reach_ns(used, threads, 0) == pytest.approx(20 * MS)
    # memory that the loader has made is read by the step, in the time it is on a core
    assert loader_reach_ns(quiet, quiet, 1e6) == pytest.approx(1 * MS)
    assert loader_reach_ns(Window.of(Run(arm=Arm.WARM)), quiet, 0) == math.inf


def test_the_verdict_does_not_ignore_the_stopwatch() -> None:
    """Waits of 1 % beside a step whose repeats differ by a third: never inconclusive."""
    rows = schedule(60, 0, 0, 20.0, lambda j: 0.2)
    session: Session = made_session(rows, 20.0, repeats=3, workers=0)
    rng = np.random.default_rng(0)
    for run in session.arm(Arm.RESIDENT):
        factor = float(rng.uniform(0.6, 1.4))
        for name in ("start", "wall"):
            column = np.frombuffer(run.spans.columns[name], np.int64).copy()
            scaled = (column * factor * rng.uniform(0.9, 1.1, len(column))).astype(np.int64)
            run.spans.columns[name][:] = type(run.spans.columns[name])("q", scaled.tolist())
    assert diagnose_session(session).verdict == "inconclusive"
    for run in session.runs:
        run.totals = dict(METERED)
    found = diagnose_session(session)
    assert found.verdict == "not input-bound"
    assert found.evidence.parts["preparation"].value == pytest.approx(0.0099, abs=0.001)


def test_steps_that_recording_alone_outweighs_leave_the_stall_unknown() -> None:
    """No block is left where the recorder costs more than the step."""
    found = estimate([])
    assert math.isnan(found.share.value)
    assert found.share.n == 0
