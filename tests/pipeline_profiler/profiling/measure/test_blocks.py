"""Blocks of arms: where a quick run ends, what is repeated, and the trial of its first advice."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pipeline_profiler.profiling.diagnose.evidence import gather, measured_share
from pipeline_profiler.profiling.diagnose.intervals import (
    LOOK_MISS,
    MISS,
    Interval,
    mean_interval,
    miss_of,
)
from pipeline_profiler.profiling.diagnose.verdict import Verdict, deciding_side, diagnose_session
from pipeline_profiler.profiling.diagnose.window import Window
from pipeline_profiler.profiling.measure import schedule as schedule_module
from pipeline_profiler.profiling.measure import trials
from pipeline_profiler.profiling.measure.arms import LEAST_STEPS, Bench, Options, TimeLimit
from pipeline_profiler.profiling.measure.preloaded_batches import Preloaded
from pipeline_profiler.profiling.measure.probes import repeatable, slow_samples
from pipeline_profiler.profiling.measure.schedule import announcement, measure_arms
from pipeline_profiler.profiling.record.arm import Arm
from pipeline_profiler.profiling.record.plan import Plan
from pipeline_profiler.profiling.record.session import Run, Session
from pipeline_profiler.report import render
from tests.pipeline_profiler.fakes import (
    MS,
    FakeClock,
    LateReadings,
    SlowList,
    made_run,
    made_session,
    schedule,
)

# ---- a quick run stops where its corrected interval decides ----


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
    session.plan = Plan(main, len(stalls), 40, early_stop=early_stop, alone_s=0.4)

    def run(bench: Bench, arm: Arm, block: int, session: Session, *rest: Any) -> Run:
        made = simulated_run(arm, block, stalls[block])
        others = 10**9 * (block in disturbed)
        made.totals |= {"window_ns": 10**9, "cores_ns": 2 * 10**9, "others_ns": others}
        return made

    monkeypatch.setattr(schedule_module, "run_arm", run)
    bench = Bench(list, lambda batch: None, FakeClock())
    first = Window.of(simulated_run(Arm.PILOT, 0, 0.0))
    options = Options(repeats=len(stalls), steps=40)
    pacing = schedule_module.Pacing(first, options, session.plan, 10**15)
    schedule_module._run_blocks(bench, session, Preloaded(), pacing)
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


def test_a_full_run_never_stops_early_and_two_blocks_never_decide(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = measured(monkeypatch, CLEAR, early_stop=False)
    assert len(session.arm(Arm.WARM)) == 5
    assert session.notes == []
    two = measured(monkeypatch, (0.35,) * 5)
    two.runs = [run for run in two.runs if run.block < 2]
    assert diagnose_session(two).verdict == "input-bound high"
    assert deciding_side(two) == ""


@pytest.mark.parametrize(("early_stop", "blocks"), [(True, [0, 1, 2]), (False, [0, 1, 2, 3, 4])])
def test_the_loader_alone_is_timed_before_a_quick_run_may_stop(
    early_stop: bool, blocks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = measured(monkeypatch, BORDERLINE, early_stop)
    assert len(session.arm(Arm.WARM)) == 5
    assert [run.block for run in session.arm(Arm.ALONE)] == blocks


def test_a_disturbed_block_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(measured(monkeypatch, CLEAR, disturbed=[1]).arm(Arm.WARM)) == 4
    busy = measured(monkeypatch, CLEAR, disturbed=range(5))
    assert len(busy.arm(Arm.WARM)) == 3  # the interval decides as on a quiet machine
    schedule_module.repeat_disturbed(Bench(list, print), busy, Preloaded(), 10**15)
    assert len(busy.arm(Arm.WARM)) == 3  # no wait for a machine that is always busy


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
    assert "Stopped after" not in render.to_screen(again)  # a condition
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


@pytest.mark.parametrize(("batches", "blocks"), [(16, 3), (4000, 5)], ids=["epochs", "a stream"])
def test_a_quick_run_of_a_clear_stall_takes_three_blocks_but_all_of_a_stream(
    batches: int, blocks: int
) -> None:
    clock = FakeClock()
    loader = SlowList(clock, [10.0] * batches)
    bench = Bench(lambda: loader, lambda batch: clock.advance(20), clock)
    begun = clock()
    session = measure_arms(bench, Options(quick=True))
    assert len(session.arm(Arm.WARM)) == blocks
    assert session.plan.early_stop == (blocks == 3)
    assert ("3 to 5 repeats" in announcement(session.plan)) == (blocks == 3)
    assert (clock() - begun) / 1e9 < (15 if blocks == 3 else 30)
    assert diagnose_session(session).verdict == "input-bound high"


# ---- more blocks, and a trial of the first advice ----


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

    def run(bench: Bench, arm: Arm, block: int, session: Session, *rest: Any) -> Run:
        rows = schedule(60, 2, 2, period, lambda j: 1.0)
        made: Run = made_session(rows, period, repeats=1, workers=2, prefetch=2).arm(Arm.WARM)[0]
        made.arm, made.block = arm, block
        clock.advance(60 * period)
        return made

    monkeypatch.setattr(trials, "run_arm", run)
    trials.try_first_advice(bench, session, Preloaded(), clock() + 10**12, budget)
    return len(session.arm(Arm.TRIAL))


@pytest.mark.parametrize(
    ("widths", "blocks"), [([0.2, 0.1, 0.02], 2), ([0.02], 0), ([0.2] * 20, 5)]
)
def test_more_repeats_end_by_the_width_of_the_interval_not_by_the_verdict(
    widths: list[float], blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, bench = one_worker(), Bench(list, lambda batch: None, FakeClock())
    for run in session.runs:
        run.totals["window_ns"] = 10**9
    before = len(session.arm(Arm.WARM))
    told = iter(widths)

    def diagnosed(session: Session) -> SimpleNamespace:
        # what is said after the first look is sure, and changes nothing
        verdict = Verdict.HIGH if session.arm(Arm.WARM)[before:] else Verdict.INCONCLUSIVE
        half = next(told) / 2
        return SimpleNamespace(verdict=verdict, stall=Interval(0.1, 0.1 - half, 0.1 + half, 2))

    def run(bench: Bench, arm: Arm, block: int, session: Session, *rest: Any) -> Run:
        return replace(session.arm(arm)[0], block=block)

    monkeypatch.setattr(schedule_module, "diagnose_session", diagnosed)
    monkeypatch.setattr(schedule_module, "run_arm", run)
    schedule_module.settle(bench, session, Preloaded(), 10**15)
    assert len(session.arm(Arm.WARM)) - before == blocks


@pytest.mark.parametrize(
    ("disturbed", "repeated", "deadline"),
    [(set(), 0, 10**15), ({1}, 1, 10**15), ({0, 2}, 2, 10**15), ({1}, 0, 0)],
)
def test_blocks_that_others_disturbed_are_repeated_while_they_fit(
    disturbed: set[int], repeated: int, deadline: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, bench = one_worker(), Bench(list, lambda batch: None, FakeClock())
    session.runs = [run for run in session.runs if run.block < 3]
    metered = {"window_ns": 10**9, "cores_ns": 2 * 10**9}
    for run in session.runs:
        run.totals |= metered | {"others_ns": 10**9 * (run.block in disturbed)}

    def run(bench: Bench, arm: Arm, block: int, session: Session, *rest: Any) -> Run:
        return replace(session.arm(arm)[0], block=block, totals=metered | {"others_ns": 0})

    monkeypatch.setattr(schedule_module, "run_arm", run)
    schedule_module.repeat_disturbed(bench, session, Preloaded(), deadline)
    assert len(session.arm(Arm.WARM)) == len(session.arm(Arm.RESIDENT)) == 3 + repeated


def test_epoch_starts_in_a_trial_are_no_noise_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    session = one_worker()
    trying(session, 25.0, monkeypatch)
    without = measured_share(gather(session), "workers")
    for run in session.arm(Arm.TRIAL):
        spans, late = list(run.spans), 0
        run.spans = type(run.spans)()
        for span in spans:
            if span.stage == "wait" and span.batch % 20 == 10:
                run.spans.add("iter", span.batch, span.worker, span.start_ns + late, 100 * MS)
                late += 100 * MS
            run.spans.add(span.stage, span.batch, span.worker, span.start_ns + late, span.wall_ns)
    share = measured_share(gather(session), "workers")
    assert without is not None
    assert share is not None
    assert share.value < without.value - 0.1  # 5 ms a step more
    assert share.half_width < without.half_width + 0.01


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


def test_a_loader_that_fails_with_another_setting_ends_no_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    session, bench = one_worker(), Bench(list, lambda batch: None, FakeClock())
    bench._settings = {"kind": "torch", "workers": 1, "prefetch": 2}

    def run(bench: Bench, arm: Arm, block: int, session: Session, *rest: Any) -> Run:
        session.runs.append(replace(session.arm(Arm.WARM)[0], arm=arm))  # cut off, but left there
        raise IndexError("tuple index out of range")

    monkeypatch.setattr(trials, "run_arm", run)
    trials.try_first_advice(bench, session, Preloaded(), bench.clock() + 10**12, 25.0)
    assert not session.arm(Arm.TRIAL)
    session.save(tmp_path / "s.json")
    cause = diagnose_session(Session.load(tmp_path / "s.json")).causes[0]
    assert cause.code == "PIPE006"
    assert "num_workers=2 was tried, and" in cause.next
    assert "raised IndexError: tuple index out of range" in cause.next
    assert not cause.change


def test_a_trial_that_does_not_fit_a_fifth_of_the_budget_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = one_worker()
    assert trying(session, 25.0, monkeypatch, budget=9.0) == 0
    cause = diagnose_session(session).causes[0]
    assert "not tried: 2 more seconds" in cause.next


class OneSlow:
    """Samples of 1 ms, and one of `ms` that holds up its batch."""

    def __init__(self, clock: FakeClock, ms: float) -> None:
        self.clock, self.ms = clock, ms

    def __getitem__(self, index: int) -> int:
        self.clock.advance(self.ms if index == SLOW_KEY else 1.0)
        return index


SLOW_KEY = 60


def slow_batch(usual: float, slow: float) -> Callable[[int], float]:
    return lambda j: slow if j == SLOW_KEY else usual


def probed_percent(clock: FakeClock, ms: float) -> set[int]:
    """Load time, alone, of the slowest samples of a profile in percent of that of a usual one."""
    rows = schedule(120, 1, 2, 20.0, slow_batch(10.0, 400.0), slow=slow_batch(1.0, 390.0))
    session = made_session(rows, 20.0, repeats=1, workers=1, prefetch=2)
    bench = Bench(lambda: SimpleNamespace(dataset=OneSlow(clock, ms)), lambda batch: None, clock)
    bench._settings = {"kind": "torch", "workers": 1, "iterable_dataset": False}
    slow_samples(bench, session)
    return {run.totals["probe_ratio_percent"] for run in session.arm(Arm.WARM)}


@pytest.mark.parametrize("reading", range(1, 61))
def test_one_late_reading_of_the_clock_makes_no_sample_slow_or_fast(reading: int) -> None:
    assert probed_percent(LateReadings(reading, 1000.0), 1.0) == {100}
    assert probed_percent(LateReadings(reading, 1000.0), 50.0) == {5000}


# ---- a pace that changes after the first pass, and the end of a run ----


def paced(
    before: float, after: float, turn_s: float, options: Options, rhythm: bool = False
) -> tuple[Session, float]:
    """Measure a step of `before` ms, from `turn_s` on of `after` ms; return the seconds too."""
    clock = FakeClock()
    begun, steps = clock(), [0]

    def step(batch: Any) -> None:
        steps[0] += 1
        long = 3.0 if rhythm and steps[0] % 4 == 0 else 1.0
        clock.advance(long * (before if clock() - begun < turn_s * 1e9 else after))

    loader = SlowList(clock, [1.0] * 60)  # epochs of 60 steps
    return measure_arms(Bench(lambda: loader, step, clock), options), (clock() - begun) / 1e9


@pytest.mark.parametrize("turn_s", [3.0, 8.0, 12.0])
def test_steps_that_become_slower_make_later_windows_shorter_and_the_run_ends_in_time(
    turn_s: float,
) -> None:
    session, seconds = paced(30.0, 150.0, turn_s, Options(quick=True))
    assert seconds < 28
    main = {arm: session.arm(arm) for arm in (Arm.RESIDENT, Arm.WARM)}
    assert len(main[Arm.WARM]) == len(main[Arm.RESIDENT]) >= 3
    lengths = [[len(Window.of(run)) for run in runs] for runs in main.values()]
    assert min(min(row) for row in lengths) >= LEAST_STEPS
    # the same number for all arms of a block, but of that in which the pace changes
    assert sum(a != b for a, b in zip(*lengths, strict=True)) <= 1
    assert lengths[0][-1] < session.runs[-1].warmup + 80


def test_a_note_says_that_steps_became_slower() -> None:
    session, _ = paced(30.0, 90.0, 8.0, Options(quick=True))
    assert any(note.startswith("Steps take ") for note in session.notes)
    steady, _ = paced(30.0, 30.0, 8.0, Options(quick=True))
    assert not any(note.startswith("Steps take ") for note in steady.notes)


def test_steps_that_become_faster_get_longer_windows() -> None:
    session, seconds = paced(150.0, 30.0, 3.0, Options(quick=True))
    lengths = [len(Window.of(run)) for run in session.arm(Arm.WARM)]
    assert lengths[-1] > session.arm(Arm.WARM)[0].warmup + lengths[0] / 2
    assert seconds < 28


def test_a_window_is_cut_after_whole_rounds_of_the_step() -> None:
    session, _ = paced(20.0, 150.0, 7.0, Options(quick=True), rhythm=True)
    cut = [run for run in session.runs if run.arm in (Arm.RESIDENT, Arm.WARM)]
    assert {len(Window.of(run)) % 4 for run in cut} == {0}


@pytest.mark.parametrize(
    ("limit", "steps", "now", "reached"),
    [
        (TimeLimit(), 10**6, 10**12, False),
        (TimeLimit(seconds=1.0), 1, 10**9 - 1, False),
        (TimeLimit(seconds=1.0), 1, 10**9, True),
        (TimeLimit(end_ns=5, min_steps=12), 11, 9, False),
        (TimeLimit(end_ns=5, min_steps=12), 12, 9, True),
        (TimeLimit(end_ns=5, min_steps=12, rounds=4), 15, 9, False),
        (TimeLimit(end_ns=5, min_steps=12, rounds=4), 16, 9, True),
    ],
)
def test_a_run_ends_at_its_limit(limit: TimeLimit, steps: int, now: int, reached: bool) -> None:
    assert limit.reached(steps, 0, now) == reached


def test_a_slow_step_is_announced_with_all_its_time() -> None:
    session, seconds = paced(1500.0, 1500.0, 0.0, Options(quick=True))
    told = session.plan.seconds
    assert announcement(session.plan).startswith(f"Needs {told:.0f} s (2 repeats x 6 steps): ")
    assert any("are too short" in reason for reason in session.plan.reasons)
    assert 0.7 * told < seconds < told


def test_no_probe_of_samples_begins_that_would_not_end_in_time() -> None:
    clock = FakeClock()
    loader = SimpleNamespace(dataset=SlowSamples(clock))
    bench = Bench(lambda: loader, lambda batch: None, clock)
    bench._settings = {"kind": "torch", "workers": 1, "iterable_dataset": False}
    assert repeatable(bench)["samples"] == 100
    bench.end_ns = clock() + 1000 * MS
    assert repeatable(bench) == {}
    assert clock() < bench.end_ns


class SlowSamples:
    """Samples of 400 ms."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        self.clock.advance(400.0)
        return index
