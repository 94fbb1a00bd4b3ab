"""Figures from hand-made sessions, exact."""

from collections.abc import Iterator

import pytest

from pipeline_profiler import Recorder
from pipeline_profiler.diagnose.stalls import (
    head_of_line_share,
    readiness,
    stall_events,
    stall_threshold_ns,
)
from pipeline_profiler.diagnose.window import Window
from tests.pipeline_profiler.fakes import MS, FakeClock, made_run


def two_workers() -> list[dict[str, object]]:
    """Batch 2 of worker 0 is late while batch 3 of worker 1 is ready: head-of-line."""
    return [
        {"entry": 1, "got": 11, "end": 21, "worker": 0, "start": 1, "fetch": 10, "sent": 11,
         "first": True, "iter": 0},
        {"entry": 21, "got": 21, "end": 31, "worker": 1, "start": 1, "fetch": 12, "sent": 13},
        {"entry": 31, "got": 51, "end": 61, "worker": 0, "start": 11, "fetch": 40, "sent": 51,
         "cpu": 2},
        {"entry": 61, "got": 61, "end": 71, "worker": 1, "start": 13, "fetch": 12, "sent": 25},
        {"entry": 71, "got": 91, "end": 101, "worker": 0, "start": 51, "fetch": 40, "sent": 91,
         "cpu": 38},
    ]  # fmt: skip


def test_period_is_from_entry_to_entry() -> None:
    run = made_run(two_workers(), workers=2, prefetch=2)
    assert Window.of(run).steps.period.tolist() == [20 * MS, 10 * MS, 30 * MS, 10 * MS, 30 * MS]
    assert Window.of(run).period_ns == 20 * MS


def test_starvation_is_the_ratio_of_sums() -> None:
    run = made_run(two_workers(), workers=2, prefetch=2)
    assert Window.of(run).starvation.value == pytest.approx(50 / 100)
    assert Window.of(run).input_wait_ns == 10 * MS


def test_warm_up_steps_are_left_out() -> None:
    run = made_run(two_workers(), workers=2, prefetch=2)
    run.warmup = 3
    assert Window.of(run).steps.batch.tolist() == [3, 4]
    assert Window.of(run).batches.batch.tolist() == [3, 4]
    assert Window.of(run).period_ns == 20 * MS


def test_stall_events_name_their_cause() -> None:
    events = stall_events(Window.of(made_run(two_workers(), workers=2, prefetch=2)))
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
    rows = [{"entry": 0, "got": 0.9, "end": 100, "worker": 0, "start": 0, "fetch": 0.8}]
    assert stall_events(Window.of(made_run(rows, workers=1))) == []
    assert stall_threshold_ns(100 * MS, 0) == 2 * MS
    assert stall_threshold_ns(10 * MS, 5 * MS) == 15 * MS


def test_head_of_line_share_counts_only_time_with_another_batch_ready() -> None:
    # stalled: 10 (start-up, batch 1 sent after it), 20 (batch 3 ready all along), 20 (none)
    run = made_run(two_workers(), workers=2, prefetch=2)
    assert head_of_line_share(Window.of(run)) == pytest.approx(20 / 50)


def test_readiness_is_the_share_of_time_with_a_deliverable_batch() -> None:
    # between the first next() at 1 and the last delivery at 91: deliverable only 13-21
    # (batch 1) and 51-61 (batch 3, sent at 25, held back by batch 2 until 51)
    run = made_run(two_workers(), workers=2, prefetch=2)
    assert readiness(Window.of(run)) == pytest.approx((8 + 10) / 90)


def test_readiness_is_not_a_number_where_nothing_travelled() -> None:
    rows = [{"entry": 0, "got": 5, "end": 6}, {"entry": 6, "got": 9, "end": 12}]
    assert readiness(Window.of(made_run(rows))) is None


def test_clock_offset_is_bounded_by_cause_and_effect() -> None:
    run = made_run(two_workers(), workers=2, prefetch=2)
    low, high = Window.of(run).clock_error_ns
    assert (low, high) == (-1 * MS, 0)


def test_stages_are_named_without_their_details() -> None:
    row = {"entry": 0, "got": 9, "end": 10, "worker": 0, "start": 0, "fetch": 9}
    stages = {"read": 2, "transform:Crop": 3, "transform:Flip": 1, "getitem": 3}
    table = Window.of(made_run([row | {"stages": stages}], workers=1)).stage_table
    assert {r.stage: r.ms for r in table} == {"read": 2, "transform": 4, "getitem": 3}
    assert sum(r.share for r in table) == pytest.approx(1.0)


def test_worker_time_splits_into_cpu_queue_and_blocked() -> None:
    row = {"worker": 0, "start": 0, "fetch": 10, "cpu": 2, "queued": 3}
    run = made_run([{"entry": 0, "got": 10, "end": 20} | row], workers=1)
    shares = Window.of(run).loading_shares
    assert (shares.cpu, shares.queued, shares.blocked) == pytest.approx((0.2, 0.3, 0.5))


def test_a_steady_run_is_told_from_a_drifting_one() -> None:
    flat = [{"entry": 10 * i, "got": 10 * i + 4, "end": 10 * i + 10} for i in range(60)]
    drift = [
        {"entry": 10 * i + i * i / 20, "got": 10 * i + i * i / 20,
         "end": 10 * (i + 1) + (i + 1) ** 2 / 20}
        for i in range(60)
    ]  # fmt: skip
    assert Window.of(made_run(flat)).steady
    assert not Window.of(made_run(drift)).steady


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
