"""Figures from hand-made sessions, exact."""

from collections.abc import Iterator

import numpy as np
import pytest

from pipeline_profiler import Recorder, Run
from pipeline_profiler.profiling.diagnose.stalls import (
    head_of_line_share,
    readiness,
    stall_events,
)
from pipeline_profiler.profiling.diagnose.window import Ints, Window, find_rhythm, without_rhythm
from tests.pipeline_profiler.fakes import MS, FakeClock, made_run


@pytest.fixture
def run() -> Run:
    """Batch 2 of worker 0 is late while batch 3 of worker 1 is ready: head-of-line."""
    rows = [
        {"entry": 1, "got": 11, "end": 21, "worker": 0, "start": 1, "fetch": 10, "sent": 11,
         "first": True, "iter": 0},
        {"entry": 21, "got": 21, "end": 31, "worker": 1, "start": 1, "fetch": 12, "sent": 13},
        {"entry": 31, "got": 51, "end": 61, "worker": 0, "start": 11, "fetch": 40, "sent": 51,
         "cpu": 2},
        {"entry": 61, "got": 61, "end": 71, "worker": 1, "start": 13, "fetch": 12, "sent": 25},
        {"entry": 71, "got": 91, "end": 101, "worker": 0, "start": 51, "fetch": 40, "sent": 91,
         "cpu": 38},
    ]  # fmt: skip
    return made_run(rows, workers=2, prefetch=2)


def test_period_is_from_entry_to_entry_and_starvation_the_ratio_of_sums(run: Run) -> None:
    assert Window.of(run).steps.period.tolist() == [20 * MS, 10 * MS, 30 * MS, 10 * MS, 30 * MS]
    assert Window.of(run).period_ns == 20 * MS
    assert Window.of(run).starvation.value == pytest.approx(50 / 100)
    assert Window.of(run).input_wait_ns == 10 * MS


def test_warm_up_steps_are_left_out(run: Run) -> None:
    run.warmup = 3
    assert Window.of(run).steps.batch.tolist() == [3, 4]
    assert Window.of(run).batches.batch.tolist() == [3, 4]
    assert Window.of(run).period_ns == 20 * MS


def test_stall_events_name_their_cause(run: Run) -> None:
    events = stall_events(Window.of(run))
    assert [(e.batch, e.wall_ns, e.cause, e.worker) for e in events] == [
        (0, 10 * MS, "start-up", 0),
        (2, 20 * MS, "HOL", 0),
        (4, 20 * MS, "cpu", 0),
    ]


@pytest.mark.parametrize(
    ("cpu", "queued", "cause"), [(1, 1, "read"), (15, 1, "cpu"), (2, 15, "oversubscribed")]
)
def test_a_late_worker_is_judged_by_where_its_time_went(
    cpu: float, queued: float, cause: str
) -> None:
    late = {"worker": 0, "start": 0, "fetch": 20, "sent": 20, "cpu": cpu, "queued": queued}
    rows = [{"entry": 0, "got": 20, "end": 30} | late]
    assert [e.cause for e in stall_events(Window.of(made_run(rows, workers=1)))] == [cause]


def test_a_batch_that_was_sent_but_not_received_stalls_in_transport() -> None:
    rows = [{"entry": 30, "got": 50, "end": 60, "worker": 0, "start": 0, "fetch": 9, "sent": 10}]
    assert [e.cause for e in stall_events(Window.of(made_run(rows, workers=1)))] == ["transport"]


def test_short_waits_are_no_stalls() -> None:
    rows = [{"entry": 0, "got": 1.9, "end": 100, "worker": 0, "start": 0, "fetch": 1.8}]
    assert stall_events(Window.of(made_run(rows, workers=1))) == []


def test_head_of_line_share_counts_only_time_with_another_batch_ready(run: Run) -> None:
    # stalled: 10 (start-up, batch 1 sent after it), 20 (batch 3 ready all along), 20 (none)
    assert head_of_line_share(Window.of(run)) == pytest.approx(20 / 50)


def test_readiness_is_the_share_of_time_with_a_deliverable_batch(run: Run) -> None:
    # between the first next() at 1 and the last delivery at 91: deliverable only 13-21
    # (batch 1) and 51-61 (batch 3, sent at 25, held back by batch 2 until 51)
    assert readiness(Window.of(run)) == pytest.approx((8 + 10) / 90)
    alone = [{"entry": 0, "got": 5, "end": 6}, {"entry": 6, "got": 9, "end": 12}]
    assert readiness(Window.of(made_run(alone))) is None  # nothing travelled


def test_stages_are_named_without_their_details() -> None:
    row = {"entry": 0, "got": 9, "end": 10, "worker": 0, "start": 0, "fetch": 9}
    stages = {"read": 2, "transform:Crop": 3, "transform:Flip": 1, "getitem": 3}
    walls = Window.of(made_run([row | {"stages": stages}], workers=1)).batches.stages
    assert {name: wall[0] / MS for name, wall in walls.items()} == {
        "read": 2, "transform": 4, "getitem": 3
    }  # fmt: skip


def test_worker_time_splits_into_cpu_queue_and_blocked() -> None:
    row = {"worker": 0, "start": 0, "fetch": 10, "cpu": 2, "queued": 3}
    run = made_run([{"entry": 0, "got": 10, "end": 20} | row], workers=1)
    shares = Window.of(run).loading_shares
    assert (shares.cpu, shares.queued, shares.blocked) == pytest.approx((0.2, 0.3, 0.5))


def test_waiting_for_a_core_is_told_from_being_blocked_in_any_loop() -> None:
    clock, cpu, queued = FakeClock(), FakeClock(), FakeClock()
    recorder = Recorder(clock, cpu, queued=queued)

    def rows() -> Iterator[int]:
        for i in range(20):
            clock.advance(10)
            cpu.advance(2)
            queued.advance(5)
            yield i

    for _ in recorder.watch(rows()):
        clock.advance(10)
    shares = Window.of(recorder.session().runs[0]).loading_shares
    assert shares.cpu == pytest.approx(0.2)
    assert shares.queued == pytest.approx(0.5)
    assert shares.blocked == pytest.approx(0.3)


def test_every_epoch_has_its_start_up_so_it_is_not_drawn_by_chance() -> None:
    """Ten epochs of 10 steps, each with 100 ms before its first batch: no spread at all."""
    rows, now = [], 0.0
    for j in range(100):
        row: dict[str, object] = {"entry": now, "got": now + (101 if j % 10 == 0 else 1)}
        row |= {"first": True, "iter": now} if j % 10 == 0 else {}
        now = float(str(row["got"])) + 20
        rows.append(row | {"end": now})
    found = Window.of(made_run(rows)).starvation
    assert found.value == pytest.approx((100 + 10 * 100) / (100 * 21 + 10 * 100))
    assert found.half_width < 1e-9


# ---- a step's own rhythm is found, and nothing is called one that is noise ----


def step_times(n: int, every: int, more: float, seed: int = 0) -> Ints:
    """Nanoseconds of `n` steps of 20 ms, each `every`-th longer by `more`; one in a hundred off."""
    rng = np.random.default_rng(seed)
    walls = 20.0 * (1 + 0.01 * rng.standard_normal(n))
    walls[every - 1 :: every] += more
    return (walls * MS).astype(np.int64)


@pytest.mark.parametrize(("every", "more"), [(2, 10.0), (4, 30.0), (10, 140.0), (4, -8.0)])
@pytest.mark.parametrize("seed", range(3))
def test_the_smallest_round_is_found(every: int, more: float, seed: int) -> None:
    assert find_rhythm(step_times(45, every, more, seed)) == every


def test_a_long_run_is_looked_at_in_part() -> None:
    walls = np.concatenate([step_times(1500, 4, 30.0), step_times(200_000, 7, 30.0)])
    assert find_rhythm(walls) == 4


def test_a_round_that_was_seen_twice_is_none() -> None:
    assert find_rhythm(step_times(22, 10, 140.0)) == 1


@pytest.mark.parametrize("n", [0, 1, 8, 20, 30, 120])
def test_noise_has_no_rhythm(n: int) -> None:
    found = []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        spikes = np.where(np.random.default_rng(seed).random(n) < 0.1, 160.0, 20.0)
        kinds = (rng.lognormal(3, 0.5, n), 20 + rng.pareto(1.5, n), np.full(n, 20.0), spikes)
        found += [find_rhythm((walls * MS).astype(np.int64)) > 1 for walls in kinds]
    assert sum(found) <= 1


def test_without_its_rhythm_a_step_keeps_its_mean_and_loses_its_swing() -> None:
    walls = step_times(48, 4, 30.0)
    flat = without_rhythm(walls, 4)
    assert flat.mean() == pytest.approx(walls.mean())
    assert flat.std() < 0.02 * flat.mean() < 0.2 * walls.std()
    assert without_rhythm(walls, 1) == pytest.approx(walls)
    assert len(without_rhythm(walls[:0], 4)) == 0
