"""The schedule of the arms on a fake clock: figures exact, nothing slept."""

import itertools
import mmap
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from pipeline_profiler import ProfileError
from pipeline_profiler.profiling.diagnose import verdict
from pipeline_profiler.profiling.diagnose.window import Window
from pipeline_profiler.profiling.measure import environment, probes, schedule
from pipeline_profiler.profiling.measure.arms import (
    LEAST_STEPS,
    Bench,
    Look,
    Options,
    look_along,
)
from pipeline_profiler.profiling.measure.schedule import measure_arms
from pipeline_profiler.profiling.measure.watchdog import StoppedError
from pipeline_profiler.profiling.record.arm import Arm
from pipeline_profiler.profiling.record.session import Session
from tests.pipeline_profiler.fakes import MS, FakeClock, SlowList, made_run
from tests.pipeline_profiler.fakes import schedule as rows_of


def bench(
    clock: FakeClock,
    wait: float | list[float] = 10.0,
    step: float = 20.0,
    n: int = 400,
    open_ms: float = 0.0,
) -> Bench:
    """A loader whose batches take `wait` ms each, or the listed ones, beside a step of `step`."""
    loader = SlowList(clock, wait if isinstance(wait, list) else [wait] * n, open_ms)
    return Bench(lambda: loader, lambda batch: clock.advance(step), clock)


def reasons_of(session: Session) -> str:
    return "\n".join(session.plan.reasons)


def quick(**more: Any) -> Options:
    return Options(quick=True, steps=60, repeats=3, **more)


def test_all_arms_are_interleaved_and_exact_and_so_is_the_verdict() -> None:
    session = measure_arms(bench(FakeClock()), quick())
    assert session.plan.arms == (Arm.RESIDENT, Arm.WARM)
    assert [Window.of(run).period_ns for run in session.arm(Arm.RESIDENT)] == [20 * MS] * 3
    assert [Window.of(run).period_ns for run in session.arm(Arm.WARM)] == [30 * MS] * 3
    order = [run.arm for run in session.runs if run.arm in (Arm.RESIDENT, Arm.WARM)]
    assert {Arm.RESIDENT, Arm.WARM} == set(order[:2]) == set(order[2:4])
    text = schedule.announcement(session.plan)
    assert "Host-to-device copy: not measured (no GPU)" in text
    assert "GPU starvation" not in text
    found = verdict.diagnose_session(session)
    assert found.stall.value == pytest.approx(1 / 3)
    assert found.verdict == "input-bound high"


def test_the_loader_alone_is_timed_in_short_pieces_over_the_run() -> None:
    clock = FakeClock()
    session = measure_arms(bench(clock, wait=10), Options(quick=True))
    pieces = session.arm(Arm.ALONE)
    assert [run.block for run in pieces] == [*range(5)]
    assert [Window.of(run).period_ns for run in pieces] == [10 * MS] * 5
    assert {run.warmup for run in pieces} == {session.plan.warmup}
    spent = sum(int(Window.of(run).whole.steps.period.sum()) for run in pieces)
    assert 0.5e9 < spent < 1.6e9
    rates = verdict.diagnose_session(session).as_results()["throughput"]
    assert rates["sentence"] == (
        "Throughput (batches/s, 95% CI): loader alone 100 (100 to 100), with the step 33.3 (33.3 "
        "to 33.3), preloaded batches 50 (50 to 50)."
    )
    full = measure_arms(bench(FakeClock(), wait=2), Options(steps=60))
    assert [run.block for run in full.arm(Arm.ALONE)] == [*range(full.plan.repeats)] == [*range(5)]
    assert {len(Window.of(run)) for run in full.arm(Arm.ALONE)} == {500}


def test_a_piece_of_the_loader_alone_is_whole_rounds_of_its_workers() -> None:
    made = bench(FakeClock(), wait=[10.0, 1.0, 1.0, 1.0] * 200, step=20)
    made._settings = made.settings() | {"workers": 4, "prefetch": 2}
    pieces = measure_arms(made, Options(quick=True)).arm(Arm.ALONE)
    assert {len(Window.of(run)) % 4 for run in pieces} == {0}
    assert {Window.of(run).period_ns for run in pieces} == {3.25 * MS}


@pytest.mark.parametrize(
    ("made", "options", "reason"),
    [
        (lambda clock: bench(clock, wait=300), Options(quick=True), "not enough time"),
        (lambda clock: bench(clock, wait=40, step=2), Options(quick=True), "not enough time"),
        (lambda clock: bench(clock, open_ms=400.0), Options(quick=True), "not enough time"),
        (lambda clock: bench(clock, wait=40), Options(quick=True, seconds=12.0), "not enough time"),
    ],
    ids=["few repeats", "slow batches", "slow start", "short budget"],
)
def test_a_loader_too_slow_for_it_is_not_timed_alone(
    made: Callable[[FakeClock], Bench], options: Options, reason: str
) -> None:
    session = measure_arms(made(FakeClock()), options)
    assert not session.arm(Arm.ALONE)
    rates = verdict.diagnose_session(session).as_results()["throughput"]
    assert f"loader alone skipped ({reason}: give more --seconds)" in rates["sentence"]


def test_the_order_of_the_arms_depends_on_the_seed_only() -> None:
    orders = [
        [r.arm for r in measure_arms(bench(FakeClock()), quick(seed=s)).runs]
        for s in (0, 0, 1, 2, 3)
    ]
    assert orders[0] == orders[1]
    assert len({tuple(o) for o in orders}) > 1


def test_a_slow_pipeline_gets_fewer_steps_and_says_so() -> None:
    session = measure_arms(bench(FakeClock(), wait=300, step=200), Options(quick=True, seconds=30))
    assert session.plan.steps < 100
    assert "steps of warm-up instead of" in reasons_of(session)


@pytest.mark.parametrize(("wait", "step"), [(3, 5), (30, 20), (300, 200), (900, 900)])
def test_the_plan_keeps_to_its_budget(wait: float, step: float) -> None:
    clock = FakeClock()
    begun = clock()
    session = measure_arms(bench(clock, wait, step, 4000), Options(quick=True))
    slowest = (2 * wait + 2 * step) * 4 * 13 / 1e3  # ten steps and three of warm-up, four arms
    assert (clock() - begun) / 1e9 < max(30, slowest + 30)
    assert session.plan.steps >= LEAST_STEPS


@pytest.mark.parametrize(
    ("spent", "budget", "told"), [(0.5, 25.0, False), (6.0, 19.5, False), (40.0, 15.0, True)]
)
def test_quick_promises_the_end_so_imports_count(spent: float, budget: float, told: bool) -> None:
    options = Options(quick=True, spent=spent)
    assert options.budget == budget
    assert replace(options, seconds=60.0).budget == 60.0
    plan = measure_arms(bench(FakeClock(), n=4000), options).plan
    said = schedule.announcement(plan)
    assert ("of which imports and making the loader took 40 s" in said) == told
    assert told or spent + plan.seconds <= 30


def test_quick_says_beforehand_when_its_time_is_not_enough() -> None:
    slow = measure_arms(bench(FakeClock(), wait=2000, step=500), Options(quick=True))
    assert "Steps are slow: 25 s are too short" in reasons_of(slow)
    fast = measure_arms(bench(FakeClock()), Options(quick=True))
    assert "too short" not in reasons_of(fast)
    assert fast.plan.repeats == 5


def test_a_loader_that_gets_slower_still_has_four_repeats() -> None:
    """The loader gets twice as slow after the first pass: both main arms still have 4 blocks."""
    clock = FakeClock()
    loader = SlowList(clock, [10.0] * 75 + [40.0] * 4000)

    def step(batch: Any) -> None:
        clock.advance(20 if clock.now < 6_000 * MS else 40)

    session = measure_arms(Bench(lambda: loader, step, clock), Options(quick=True))
    counts = {arm: len(session.arm(arm)) for arm in (Arm.RESIDENT, Arm.WARM)}
    assert counts[Arm.RESIDENT] == counts[Arm.WARM] >= 4


def test_what_others_take_of_the_cores_is_a_share() -> None:
    taken = {"cores_ns": 200, "others_ns": 50, "steal_ns": 4, "idle_ns": 100, "window_ns": 100}
    shares = environment.shares_of_cores(taken)
    assert shares == {"others_cpu": 0.25, "steal": 0.02, "idle": 0.5}
    assert environment.shares_of_cores({"window_ns": 100}) == {}  # no /proc: nothing, not 0


def test_a_meter_tells_the_cpu_of_children_apart_from_the_training_process() -> None:
    meter = environment.Meter()
    burn = "import time\nwhile time.process_time() < 0.2: pass"
    subprocess.run([sys.executable, "-c", burn], check=True)
    taken = meter.taken()
    assert taken["children_cpu_ns"] >= 200 * MS > taken["own_cpu_ns"] >= taken["main_cpu_ns"] / 2


def test_a_meter_tells_on_which_cores_the_workers_may_run(monkeypatch: pytest.MonkeyPatch) -> None:
    started, go_on = multiprocessing.Event(), multiprocessing.Event()
    worker = multiprocessing.Process(target=_bound, args=(started, go_on))
    # other tests of this process may have left children that run on every core
    found = multiprocessing.active_children
    monkeypatch.setattr(multiprocessing, "active_children", lambda: {*found()} & {worker})
    worker.start()
    started.wait(60)
    taken = environment.Meter().taken()
    go_on.set()
    worker.join()
    assert taken["workers_cores"] == 1
    assert "workers_cores" not in environment.Meter().taken()


def _bound(started: Any, go_on: Any) -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    started.set()
    go_on.wait(60)


@pytest.mark.parametrize(
    ("grown", "said"),
    [
        ([9.0, 1.2, 1.0, 1.1], True),
        ([9.0, 4.0, 1.0, 0.0], False),  # buffers fill up
        ([0.0, 9.0, 0.5, 0.5], False),  # one large list
        ([1.0, 1.0], False),
    ],
)
def test_memory_that_grows_in_each_window_is_told(grown: list[float], said: bool) -> None:
    notes = environment.growth_notes([megabytes * 1e6 for megabytes in grown])
    assert bool(notes) == said
    assert not said or notes[0].startswith("The training process grows by 1.10 MB in each step")


def test_a_step_that_keeps_memory_is_told_of() -> None:
    kept: list[mmap.mmap] = []
    loader = [0] * 400

    def keep(batch: int) -> None:
        # never out of memory that was freed before, and more than other tests' garbage
        kept.append(mmap.mmap(-1, 2_000_000))
        kept[-1].write(b"x" * 2_000_000)

    options = Options(quick=True, steps=20, repeats=3, seconds=8.0)
    quiet = measure_arms(Bench(lambda: loader, lambda batch: None), options)
    growing = measure_arms(Bench(lambda: loader, keep), options)
    told = ["grows by" in "".join(session.notes) for session in (quiet, growing)]
    assert told == [False, True]


@pytest.mark.parametrize(("start_ms", "without"), [(0.0, False), (6000.0, True)])
def test_a_plan_without_room_drops_the_shadow_loader_by_its_reason(
    start_ms: float, without: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "has_cuda", lambda: True)
    rows = rows_of(60, 2, 2, 20.0, lambda j: 10.0)
    rows[0] |= {"iter": -start_ms}
    first = Window.of(made_run(rows, Arm.PILOT, workers=2, prefetch=2))
    plan = schedule.make_plan(first, Options(quick=True))
    assert (Arm.SHADOW in plan.arms) != without
    assert (schedule.BESIDE in plan.reasons) != without
    assert any("6.0 s to start" in reason for reason in plan.reasons) == without
    # where the step ends when it returns, the warm loader tells what it costs
    monkeypatch.setattr(environment, "has_cuda", lambda: False)
    assert Arm.SHADOW not in schedule.make_plan(first, Options(quick=True)).arms


@pytest.mark.parametrize(
    ("start_ms", "persistent", "whole"), [(1.0, False, 0), (900.0, False, 1), (900.0, True, 0)]
)
def test_windows_hold_whole_epochs_where_a_start_takes_long(
    start_ms: float, persistent: bool, whole: int
) -> None:
    rows = rows_of(60, 2, 2, 24.0, lambda j: 10.0)
    rows[0] |= {"iter": -start_ms}
    config = {"workers": 2, "prefetch": 2, "batches": 50, "persistent": persistent}
    first = Window.of(made_run(rows, Arm.PILOT, **config))
    plan = schedule.make_plan(first, Options(quick=True))
    assert (plan.steps == 50) == bool(whole)
    assert plan.repeats >= 3
    assert plan.seconds < 30


@pytest.mark.parametrize(("seconds", "repeats"), [(7.0, 2), (9.0, 3), (12.0, 3)])
def test_a_third_repeat_may_overrun_the_budget_a_little(seconds: float, repeats: int) -> None:
    rows = rows_of(60, 3, 2, 30.0, lambda j: 10.0)
    first = Window.of(made_run(rows, Arm.PILOT, workers=3, prefetch=2))
    plan = schedule.make_plan(first, Options(quick=True, seconds=seconds))
    assert plan.repeats == repeats
    assert plan.seconds < 1.05 * seconds


@pytest.mark.parametrize(
    ("loader", "words"),
    [
        (SlowList(FakeClock(), []), "gave no batch"),
        (iter(range(5)), r"exhausted after 5 batches, before the warm-up"),
    ],
)
def test_a_loader_without_enough_batches_is_a_sentence(loader: Any, words: str) -> None:
    clock = FakeClock()
    with pytest.raises(ProfileError, match=words):
        measure_arms(Bench(lambda: loader, lambda batch: clock.advance(20), clock), quick())


def test_a_generator_function_is_made_anew_for_each_arm_and_nan_is_noted() -> None:
    clock = FakeClock()

    def make() -> Iterator[int]:
        for i in range(500):
            clock.advance(10)
            yield i

    def step(batch: Any) -> float:
        clock.advance(20)
        return float("nan")

    session = measure_arms(Bench(make, step, clock), quick())
    assert [Window.of(run).period_ns for run in session.arm(Arm.WARM)] == [30 * MS] * 3
    assert not session.arm(Arm.ALONE)  # its batches may be read only once
    notes = [note for run in session.arm(Arm.WARM) for note in run.notes]
    assert len(notes) == 3
    assert "returned NaN" in notes[0]


@pytest.mark.parametrize(
    ("error", "interrupted", "note"),
    [(KeyboardInterrupt, True, ""), (RuntimeError, False, "Traceback")],
    ids=["interrupt", "error"],
)
def test_a_step_that_stops_the_measurement_leaves_a_partial_session(
    error: type[BaseException], interrupted: bool, note: str
) -> None:
    clock, calls = FakeClock(), itertools.count(1)

    def step(batch: Any) -> None:
        clock.advance(20)
        if next(calls) == 500:
            raise error("boom")

    loader = SlowList(clock, [10.0] * 400)
    said = r"Interrupted\." if interrupted else r"The step raised RuntimeError after \d+ bat"
    with pytest.raises(StoppedError, match=said) as caught:
        measure_arms(Bench(lambda: loader, step, clock), quick())
    assert caught.value.interrupted == interrupted
    assert caught.value.session.partial
    assert len(caught.value.session.arm(Arm.WARM)) >= 1
    assert Session.from_json(caught.value.session.to_json()).partial
    assert note in "".join(caught.value.session.notes)


def test_fields_that_no_step_reads_are_named_with_their_bytes() -> None:
    import numpy as np

    clock = FakeClock()

    class Dicts:
        def __iter__(self) -> Iterator[dict[str, Any]]:
            for _ in range(400):
                yield {"x": np.zeros(10), "y": np.zeros(1), "depth": np.zeros(1000)}

    def step(batch: dict[str, Any]) -> None:
        clock.advance(20)
        batch["x"] + batch.get("y")

    loader = Dicts()
    session = measure_arms(Bench(lambda: loader, step, clock), quick())
    assert session.probes.unused_fields == {"depth": 8000}
    causes = verdict.diagnose_session(session).causes
    assert any(c.code == "PIPE022" and "depth" in c.cause for c in causes)


def test_the_window_holds_whole_epochs() -> None:
    session = measure_arms(bench(FakeClock(), n=16), quick(seconds=25.0))
    assert session.plan.steps == 64  # of 60 asked for
    steps = [Window.of(run).steps for run in session.arm(Arm.WARM)]
    assert [(len(s.batch), int(s.first.sum())) for s in steps] == [(64, 4)] * 3

    class Sized(SlowList):
        def __len__(self) -> int:
            return len(self.waits)

    clock = FakeClock()
    loader = Sized(clock, [2.0] * 250)
    session = measure_arms(Bench(lambda: loader, lambda batch: clock.advance(3), clock), quick())
    assert session.plan.steps == 250  # a whole epoch fits: its start and its end are in the window


@pytest.mark.slow
def test_windows_of_a_loader_in_order_lie_anywhere_in_the_epoch() -> None:
    from torch.utils import data

    clock = FakeClock()

    def collate(rows: list[int]) -> int:
        clock.advance(10)
        return rows[0]

    loader = data.DataLoader(range(10_000), 1, collate_fn=collate)
    seen: list[int] = []
    made = Bench(lambda: loader, lambda batch: (seen.append(batch), clock.advance(20)), clock)
    session = measure_arms(made, quick())
    begins = [run.totals["from_batch"] for run in session.arm(Arm.WARM)]
    assert len(set(begins)) == 3
    assert max(seen) > 1000
    assert [Window.of(run).period_ns for run in session.arm(Arm.WARM)] == [30 * MS] * 3


@pytest.mark.parametrize("every", [3, 4, 7])
def test_windows_hold_whole_rounds_of_what_the_step_does_now_and_then(every: int) -> None:
    clock, done = FakeClock(), 0

    def step(batch: Any) -> None:
        nonlocal done
        done += 1
        clock.advance(100 if done % every == 0 else 40)

    loader = SlowList(clock, [0.5] * 4000)
    session = measure_arms(Bench(lambda: loader, step, clock), Options(quick=True))
    assert session.plan.steps % every == 0
    assert f"every {every} steps" in reasons_of(session)
    found = verdict.diagnose_session(session)
    assert found.verdict == "not input-bound"
    assert found.stall.half_width < 0.02  # four divides the number of batches in hand


@pytest.mark.slow
def test_the_bytes_that_go_through_the_pipe_are_counted() -> None:
    import numpy as np
    import torch

    made = Bench(list, lambda batch: None)
    made._settings = {"kind": "torch", "workers": 2}
    batch = {"x": np.zeros(1000), "y": [torch.zeros(1000), b"x" * 500]}
    size = probes.piped_bytes(made, [batch])
    assert 8500 < size < 9500
    many = probes.piped_bytes(made, [[list(range(10)) for _ in range(30_000)]])
    assert many == pytest.approx(300_000 * 28, rel=0.2)
    made._settings = {"kind": "torch", "workers": 0}
    assert probes.piped_bytes(made, [batch]) is None


def test_a_first_pass_does_not_count_its_first_step() -> None:
    """A device that is set up, or a graph that is compiled, would be planned with for ever."""
    clock = FakeClock()
    costs = itertools.chain([4000.0], itertools.repeat(10.0))
    session = measure_arms(
        Bench(lambda: SlowList(clock, [1.0] * 400), lambda _: clock.advance(next(costs)), clock),
        Options(quick=True),
    )
    pilot = Window.of(session.arm(Arm.PILOT)[0])
    assert len(pilot) > 40
    assert pilot.period_ns < 12 * MS
    assert session.plan.repeats == Options().repeats
    assert session.plan.steps > 40


def test_a_stream_is_timed_at_several_places_of_its_epoch() -> None:
    """The last half of the epoch is slow: a window at its begin alone would not see it."""
    made = bench(FakeClock(), [1.0] * 200 + [40.0] * 200)
    session = measure_arms(made, Options(quick=True, steps=40))
    places = [run.totals["from_batch"] for run in session.arm(Arm.WARM)]
    assert len(set(places)) == len(places) > 2
    assert verdict.diagnose_session(session).verdict != "not input-bound"


def test_the_length_of_a_stream_is_found_where_its_end_is_near() -> None:
    made = bench(FakeClock(), wait=1.0, step=0.0, n=150)
    near = look_along(made, 2.0, 20 * MS)
    assert near == Look(steps=150, epoch_steps=150, window_steps=20.0)
    far = look_along(made, 0.1, 20 * MS)
    assert far is not None
    assert (far.steps, far.epoch_steps) == (101, 0)
