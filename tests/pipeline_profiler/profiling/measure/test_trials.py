"""The first advice is tried before it is given, for at most a fifth of the budget."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline_profiler.profiling.diagnose.evidence import gather, measured_share
from pipeline_profiler.profiling.diagnose.intervals import Interval
from pipeline_profiler.profiling.diagnose.verdict import Verdict, diagnose_session
from pipeline_profiler.profiling.measure import schedule as schedule_module
from pipeline_profiler.profiling.measure import trials
from pipeline_profiler.profiling.measure.arms import Bench
from pipeline_profiler.profiling.measure.kept_batches import KeptBatches
from pipeline_profiler.profiling.measure.probes import slow_samples
from pipeline_profiler.profiling.record.arm import Arm
from pipeline_profiler.profiling.record.session import Run, Session
from tests.pipeline_profiler.fakes import MS, FakeClock, LateReadings, made_session, schedule


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

    def run(bench: Bench, arm: Arm, block: int, session: Session, kept: Any) -> Run:
        return replace(session.arm(arm)[0], block=block)

    monkeypatch.setattr(schedule_module, "diagnose_session", diagnosed)
    monkeypatch.setattr(schedule_module, "run_arm", run)
    schedule_module.settle(bench, session, KeptBatches(), 10**15)
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

    def run(bench: Bench, arm: Arm, block: int, session: Session, kept: Any) -> Run:
        return replace(session.arm(arm)[0], block=block, totals=metered | {"others_ns": 0})

    monkeypatch.setattr(schedule_module, "run_arm", run)
    schedule_module.repeat_disturbed(bench, session, KeptBatches(), deadline)
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

    def run(bench: Bench, arm: Arm, block: int, session: Session, kept: Any) -> Run:
        session.runs.append(replace(session.arm(Arm.WARM)[0], arm=arm))  # cut off, but left there
        raise IndexError("tuple index out of range")

    monkeypatch.setattr(trials, "run_arm", run)
    trials.try_first_advice(bench, session, KeptBatches(), bench.clock() + 10**12, 25.0)
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


def probed_percent(clock: FakeClock, ms: float) -> set[int]:
    """Load time, alone, of the slowest samples of a profile in percent of that of a usual one."""
    session = made_session(
        schedule(
            120,
            1,
            2,
            20.0,
            lambda j: 400.0 if j == SLOW_KEY else 10.0,
            slow=lambda j: 390.0 if j == SLOW_KEY else 1.0,
        ),
        20.0,
        repeats=1,
        workers=1,
        prefetch=2,
    )
    bench = Bench(lambda: SimpleNamespace(dataset=OneSlow(clock, ms)), lambda batch: None, clock)
    bench._settings = {"kind": "torch", "workers": 1, "iterable_dataset": False}
    slow_samples(bench, session)
    return {run.totals["probe_ratio_percent"] for run in session.arm(Arm.WARM)}


@pytest.mark.parametrize("reading", range(1, 61))
def test_one_late_reading_of_the_clock_makes_no_sample_slow_or_fast(reading: int) -> None:
    assert probed_percent(LateReadings(reading, 1000.0), 1.0) == {100}
    assert probed_percent(LateReadings(reading, 1000.0), 50.0) == {5000}
