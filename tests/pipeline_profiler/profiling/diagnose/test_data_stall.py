"""The stall from the stopwatch and the arms: what either may say, and which of them decides."""

import math
import random
from typing import Any

import numpy as np
import pytest

from pipeline_profiler.profiling.diagnose.data_stall import Block, estimate, loader_reach_ns
from pipeline_profiler.profiling.diagnose.disturbance import is_disturbed
from pipeline_profiler.profiling.diagnose.intervals import (
    Interval,
    block_interval,
    difference_interval,
    mean_interval,
    ratio_of_sums,
    repeats_to_settle,
    saved_share,
    t_quantile,
)
from pipeline_profiler.profiling.diagnose.verdict import diagnose_session
from pipeline_profiler.profiling.diagnose.window import Window
from pipeline_profiler.profiling.record.arm import Arm
from pipeline_profiler.profiling.record.session import Run, Session
from pipeline_profiler.profiling.record.stages import THREAD
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
    none = estimate([])  # the recorder costs more than each step
    assert (math.isnan(none.share.value), none.share.n) == (True, 0)


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
    assert loader_reach_ns([(quiet, quiet)], 0) == 0
    assert loader_reach_ns([(metered(20.0, children_cpu_ns=10), quiet)], 0) == pytest.approx(
        0.5 * MS
    )
    # more than the step's own time on a core counts only where the step waited for one
    crowd = metered(20.0, children_cpu_ns=200, main_queued_ns=30)
    assert loader_reach_ns([(crowd, quiet)], 0) == pytest.approx((3 + 1) * MS)
    # a step with threads of its own may lose all that the loader used
    threads = metered(20.0, own_cpu_ns=50)
    used = metered(20.0, own_cpu_ns=50, children_cpu_ns=200)
    assert loader_reach_ns([(used, threads)], 0) == pytest.approx(20 * MS)
    # memory that the loader has made is read by the step, in the time it is on a core
    assert loader_reach_ns([(quiet, quiet)], 1e6) == pytest.approx(1 * MS)
    assert loader_reach_ns([(Window.of(Run(arm=Arm.WARM)), quiet)], 0) == math.inf


def test_only_threads_that_idle_beside_preloaded_batches_are_the_loaders() -> None:
    """The step's own thread uses 18 ms beside one and 5 ms beside the other: by chance."""
    step_thread, loader_thread = f"{THREAD}7", f"{THREAD}8"
    alone = metered(20.0, own_queued_ns=0, own_cpu_ns=105, **{step_thread: 50})
    warm = metered(20.0, own_queued_ns=0, own_cpu_ns=280, **{step_thread: 180})
    assert loader_reach_ns([(warm, alone)], 0) == 0
    with_loader = metered(20.0, own_queued_ns=0, **{step_thread: 180, loader_thread: 20})
    assert loader_reach_ns([(with_loader, alone)], 0) == pytest.approx(2 * MS)
    # one block in which others disturbed the step decides nothing
    disturbed = metered(20.0, own_queued_ns=0, children_cpu_ns=90, main_queued_ns=99)
    assert loader_reach_ns([(warm, alone), (warm, alone), (disturbed, alone)], 0) == 0


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


# ---- intervals: known values, coverage, and what little data gives ----


@pytest.mark.parametrize(
    ("df", "miss", "value"),
    [
        (1, 0.05, 12.706),
        (4, 0.05, 2.776),
        (10, 0.05, 2.228),
        (30, 0.05, 2.0423),
        (2.5, 0.05, 3.575),
        (1, 0.01, 63.657),
        (4, 0.01, 4.604),
        (1e9, 0.01, 2.579),
    ],
)
def test_t_quantiles_match_the_tables(df: float, miss: float, value: float) -> None:
    assert t_quantile(df, miss) == pytest.approx(value, abs=2e-3)


@pytest.mark.parametrize("repeats", [3, 4, 5, 8])
def test_few_repeats_cover_as_promised(repeats: int) -> None:
    """95 % of the intervals hold the true share; 1,500 draws leave 1.7 % of chance (3 sigma)."""
    rng = np.random.default_rng(repeats)
    draws, hits, shared = 1500, 0, 0.05
    for _ in range(draws):
        block = rng.lognormal(0, shared, repeats)
        pairs = [20 * block, 30 * block] * rng.lognormal(0, 0.02, (2, repeats))
        found = saved_share(list(zip(*pairs.tolist(), strict=True)))
        hits += found.low <= 1 / 3 <= found.high
    assert hits / draws == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize(("a", "b"), [(3, 3), (5, 5), (3, 8)])
def test_equal_sessions_differ_in_five_percent(a: int, b: int) -> None:
    rng = np.random.default_rng(a)
    draws, told = 1500, 0
    for _ in range(draws):
        found = difference_interval(rng.normal(0, 1, a).tolist(), rng.normal(0, 1, b).tolist())
        told += not found.low <= 0 <= found.high
    assert 0.02 <= told / draws <= 0.07


def test_an_end_beyond_all_numbers_is_unknown() -> None:
    assert saved_share([(1.0, 1e9), (1e9, 1.0)]).low == -math.inf


def test_one_repeat_says_nothing_and_equal_ones_everything() -> None:
    alone = mean_interval([0.4])
    assert (alone.value, alone.low, alone.high) == (0.4, -math.inf, math.inf)
    assert alone.as_dict() == {"share": 0.4, "low": None, "high": None, "n": 1}
    share = saved_share([(2.0, 3.0)])
    assert (share.value, share.low, share.high) == (pytest.approx(1 / 3), -math.inf, math.inf)
    same = mean_interval([0.4, 0.4, 0.4])
    assert (same.low, same.high) == pytest.approx((0.4, 0.4))


def test_blocks_keep_the_period_of_the_workers() -> None:
    """A sawtooth of period 4: blocks of 4 know its mean well, blocks of 1 do not."""
    saw = np.tile([0.0, 0.0, 0.0, 8.0], 50)
    wide, narrow = block_interval(saw, 1), block_interval(saw, 4)
    assert narrow.value == wide.value == 2.0
    assert narrow.half_width < wide.half_width / 3


def test_ratio_is_of_sums_not_a_mean_of_ratios() -> None:
    rows = np.array([[1.0, 10.0], [9.0, 10.0]] * 10)
    assert block_interval(rows, 2, ratio_of_sums).value == pytest.approx(0.5)


def test_more_repeats_grow_with_the_square_of_the_width() -> None:
    assert repeats_to_settle(Interval(0.06, 0.02, 0.10, 5), 0.01) == 75
    assert repeats_to_settle(Interval(0.10, 0.04, 0.16, 5), 0.05) == 3
    assert repeats_to_settle(Interval(0.1, -math.inf, math.inf, 1), 0.05) == 5


# ---- windows that other programs disturbed ----


DRAWS = 20
QUIET = {
    "window_ns": 1000 * MS, "cores_ns": 2000 * MS, "others_ns": 20 * MS, "steal_ns": 0,
    "main_queued_ns": 1 * MS, "own_cpu_ns": 800 * MS,
    "main_cpu_ns": 799 * MS, "children_cpu_ns": 0,
}  # fmt: skip


def disturbed_session(disturbed: set[int], others: int = 700) -> Session:
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


def test_disturbed_blocks_are_left_out_and_counted_unless_they_are_most() -> None:
    found = diagnose_session(disturbed_session({1, 3}))
    assert found.verdict == "not input-bound"
    left_out = {"name": "repeats left out", "text": "2 of 5, disturbed by other programs"}
    assert left_out in found.as_results()["conditions"]
    machine = found.as_results()["machine"]
    assert machine["others"] == pytest.approx(0.01, abs=1e-3)
    assert (machine["left_out"], machine["blocks"]) == (2, 5)
    most = diagnose_session(disturbed_session({0, 1, 2}))
    assert (most.verdict, most.evidence.machine.left_out) == ("inconclusive", 0)
    assert most.sentence.endswith("on this machine now.")


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
    assert not is_disturbed(Window.of(Run(arm=arm)))  # it was not metered
