"""The recorder on a fake clock: every span exact."""

import _thread
import gc
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pipeline_profiler import ProfileError, Recorder, stage
from pipeline_profiler.profiling.diagnose.window import Window
from pipeline_profiler.profiling.record.recorder import Timeline
from pipeline_profiler.profiling.record.session import Span
from pipeline_profiler.profiling.record.stages import StageTimer, activate, active
from tests.pipeline_profiler.fakes import MS, FakeClock, SlowList


def recorder(clock: FakeClock) -> Recorder:
    return Recorder(clock, cpu=lambda: 0)


def spans_of(rec: Recorder, name: str) -> list[Span]:
    return [span for span in rec.session().runs[0].spans if span.stage == name]


def test_waits_and_loops_are_exact() -> None:
    clock = FakeClock()
    rec = recorder(clock)
    for batch in rec.watch(SlowList(clock, [3, 0, 7], open_ms=11)):
        clock.advance(5 + batch)
    assert [s.wall_ns for s in spans_of(rec, "wait")] == [3 * MS, 0, 7 * MS]
    assert [s.wall_ns for s in spans_of(rec, "loop")] == [5 * MS, 6 * MS, 7 * MS]
    assert [s.wall_ns for s in spans_of(rec, "iter")] == [11 * MS]


def test_the_marked_step_is_told_from_the_work_beside_it() -> None:
    clock = FakeClock()
    rec = recorder(clock)
    for _ in rec.watch(SlowList(clock, [1, 1, 1, 1, 1])):
        with rec.step():
            clock.advance(4)
        clock.advance(2)
    window = Window.of(rec.session().runs[0]).steps
    assert window.step.tolist() == [4 * MS] * 5
    assert window.loop.tolist() == [6 * MS] * 5
    assert window.period.tolist() == [7 * MS] * 5


def test_a_break_keeps_the_step_in_which_it_happened() -> None:
    clock = FakeClock()
    rec = recorder(clock)
    for batch in rec.watch(SlowList(clock, [1, 1, 1])):
        clock.advance(2)
        if batch == 1:
            break
    gc.collect()
    assert [s.wall_ns for s in spans_of(rec, "loop")] == [2 * MS, 2 * MS]


def test_epochs_count_on_and_keep_their_start_up() -> None:
    clock = FakeClock()
    rec, loader = recorder(clock), SlowList(clock, [1, 1], open_ms=20)
    for _ in range(2):
        for _ in rec.watch(loader):
            clock.advance(3)
    run = rec.session().runs[0]
    assert Window.of(run).steps.batch.tolist() == [0, 1, 2, 3]
    assert Window.of(run).first_batch_ns == [21 * MS, 21 * MS]
    # the second iter() falls into the period of the last step of the first epoch
    assert Window.of(run).steps.period.tolist() == [4 * MS, 24 * MS, 4 * MS, 4 * MS]


def test_stages_nest_and_keep_self_time() -> None:
    clock = FakeClock()
    timer = StageTimer(clock, lambda: 0)
    activate(timer)
    try:
        with stage("decode"):
            clock.advance(2)
            with stage("read"):
                clock.advance(5)
            clock.advance(1)
        with stage("read"):
            clock.advance(4)
    finally:
        activate(None)
    sums = {name: (wall, calls) for name, _, wall, _, calls in timer.collect()}
    assert sums == {"read": (9 * MS, 2), "decode": (3 * MS, 1)}
    assert timer.collect() == ()


def test_stage_is_free_of_effects_without_a_recorder() -> None:
    assert active() is None

    @stage("augment")
    def double(x: int) -> int:
        return 2 * x

    assert double(4) == 8


def test_a_stage_in_the_loader_and_one_in_the_step_are_told_apart() -> None:
    clock = FakeClock()

    def loader() -> object:
        for i in range(3):
            with stage("augment"):
                clock.advance(6)
            yield i

    rec = recorder(clock)
    for _ in rec.watch(loader()):
        with stage("log"):
            clock.advance(2)
    assert [s.wall_ns for s in spans_of(rec, "augment")] == [6 * MS] * 3
    assert [s.wall_ns for s in spans_of(rec, "step:log")] == [2 * MS] * 3


def test_an_error_in_the_loader_is_noted_and_passed_on() -> None:
    clock = FakeClock()

    def loader() -> object:
        yield 1
        raise OSError("disk gone")

    rec = recorder(clock)
    with pytest.raises(OSError, match="disk gone"):
        list(rec.watch(loader()))
    run = rec.session().runs[0]
    assert len(Window.of(run).steps.batch) == 1
    assert run.notes == ["step 1: OSError: disk gone"]


def test_garbage_collection_is_recorded_and_the_hook_removed() -> None:
    clock = FakeClock()
    rec = recorder(clock)
    before = len(gc.callbacks)
    for _ in rec.watch(SlowList(clock, [1])):
        gc.collect()
    assert len(gc.callbacks) == before
    assert len(rec.session().runs[0].gc_pauses) >= 1


def test_an_object_that_cannot_be_iterated_is_refused_with_the_cure() -> None:
    with pytest.raises(ProfileError, match=r"No adapter knows how to iterate a builtins\.int"):
        Recorder().watch(3)
    with pytest.raises(ProfileError, match="call it and hand over what it returns"):
        Recorder().watch(lambda: [1])


def test_a_validation_between_epochs_is_no_waiting() -> None:
    clock = FakeClock()
    rec, loader = recorder(clock), SlowList(clock, [1, 1, 1], open_ms=2)
    for _ in range(2):
        for _ in rec.watch(loader):
            clock.advance(3)
        clock.advance(500)
    window = Window.of(rec.session().runs[0])
    # the iter() call of the second epoch is waiting, the validation before it is not
    assert window.steps.period.tolist() == [4 * MS, 4 * MS, 6 * MS, 4 * MS, 4 * MS, 4 * MS]
    assert window.exposed.sum() == (6 + 2) * MS


# ---- the timeline ----


def test_readings_move_forward_by_what_was_left_out() -> None:
    line = Timeline()
    assert line.at(7) == 7
    line.leave_out(10, 30)
    line.leave_out(50, 60)
    readings = {5: 5, 10: 10, 20: 10, 30: 10, 40: 20, 50: 30, 55: 30, 60: 30, 61: 31}
    assert {reading: line.at(reading) for reading in readings} == readings


def test_a_stretch_that_overlaps_the_one_before_counts_once() -> None:
    line = Timeline()
    line.leave_out(10, 30)
    line.leave_out(20, 40)
    line.leave_out(15, 25)
    assert line.left_out == 30
    assert line.at(45) == 15


def test_a_stage_that_ends_while_the_sums_are_handed_out_is_of_the_next_ones() -> None:
    """As a collector does that runs in the middle of it and opens a file in its own time."""
    timer = StageTimer(lambda: 0, lambda: 0)

    class Interrupted(list[int]):
        def __iter__(self) -> Iterator[int]:
            timer.enter("read")
            timer.leave()
            return super().__iter__()

    timer.sums = {"decode": Interrupted([0, 1, 2, 3]), "collate": [0, 4, 5, 6]}
    assert timer.collect() == (("decode", 0, 1, 2, 3), ("collate", 0, 4, 5, 6))
    assert [name for name, *_ in timer.collect()] == ["read"]


def returning_late(start: Callable[..., Any]) -> Callable[..., Any]:
    """What starts a thread and loses its core before it returns."""

    def started(*values: Any, **named: Any) -> Any:
        made = start(*values, **named)
        time.sleep(0.1)
        return made

    return started


@pytest.mark.parametrize("late", [False, True], ids=["at once", "without a core"])
def test_an_interrupt_while_the_collector_works_ends_the_loop(
    late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if late:
        monkeypatch.setattr(threading.Timer, "start", returning_late(threading.Timer.start))
        monkeypatch.setattr(_thread, "start_new_thread", returning_late(_thread.start_new_thread))

    class Late:
        """What a signal does: it is raised in the next Python code, a callback."""

        def __call__(self, phase: str, info: object) -> None:
            gc.callbacks.remove(self)
            raise KeyboardInterrupt

    seen: list[int] = []

    def loop() -> None:
        for number in Recorder().watch(list(range(400))):
            seen.append(number)
            if number == 3:
                gc.callbacks.append(Late())
                gc.collect()
            time.sleep(0.01)

    # a suite that a shell runs in the background ignores the signal
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            loop()
    finally:
        signal.signal(signal.SIGINT, before)
    assert 3 in seen
    assert len(seen) < 400
