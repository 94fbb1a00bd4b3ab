"""The recorder on a fake clock: every span exact."""

import _thread
import gc
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline_profiler import ProfileError, Recorder, stage
from pipeline_profiler.profiling.diagnose.window import Window
from pipeline_profiler.profiling.record import recorder_live
from pipeline_profiler.profiling.record import session as session_module
from pipeline_profiler.profiling.record.recorder import Timeline
from pipeline_profiler.profiling.record.recorder_live import LEAST_HAND_OVER_NS, hand_over_cost
from pipeline_profiler.profiling.record.session import Session, Span
from pipeline_profiler.profiling.record.stages import StageTimer, activate, active
from tests.pipeline_profiler.fakes import MS, FakeClock, LateReadings, SlowList


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def rec(clock: FakeClock) -> Recorder:
    return Recorder(clock, cpu=lambda: 0)


def spans_of(rec: Recorder, name: str) -> list[Span]:
    return [span for span in rec.session().runs[0].spans if span.stage == name]


def test_waits_and_loops_are_exact(clock: FakeClock, rec: Recorder) -> None:
    for batch in rec.watch(SlowList(clock, [3, 0, 7], open_ms=11)):
        clock.advance(5 + batch)
    assert [s.wall_ns for s in spans_of(rec, "wait")] == [3 * MS, 0, 7 * MS]
    assert [s.wall_ns for s in spans_of(rec, "loop")] == [5 * MS, 6 * MS, 7 * MS]
    assert [s.wall_ns for s in spans_of(rec, "iter")] == [11 * MS]


def test_the_marked_step_is_told_from_the_work_beside_it(clock: FakeClock, rec: Recorder) -> None:
    for _ in rec.watch(SlowList(clock, [1, 1, 1, 1, 1])):
        with rec.step():
            clock.advance(4)
        clock.advance(2)
    window = Window.of(rec.session().runs[0]).steps
    assert window.step.tolist() == [4 * MS] * 5
    assert window.loop.tolist() == [6 * MS] * 5
    assert window.period.tolist() == [7 * MS] * 5


@pytest.mark.parametrize("validation_ms", [0.0, 500.0])
def test_epochs_count_on_and_what_is_between_them_is_no_waiting(
    clock: FakeClock, rec: Recorder, validation_ms: float
) -> None:
    loader = SlowList(clock, [1, 1], open_ms=20)
    for _ in range(2):
        for _ in rec.watch(loader):
            clock.advance(3)
        clock.advance(validation_ms)
    window = Window.of(rec.session().runs[0])
    assert window.steps.batch.tolist() == [0, 1, 2, 3]
    assert window.first_batch_ns == [21 * MS, 21 * MS]
    # the second iter() falls into the period of the last step of the first epoch
    assert window.steps.period.tolist() == [4 * MS, 24 * MS, 4 * MS, 4 * MS]
    assert window.exposed.sum() == (4 + 20) * MS


def test_a_break_keeps_its_step_ends_the_epoch_and_the_next_one_begins_anew(
    clock: FakeClock, rec: Recorder
) -> None:
    watched = rec.watch(SlowList(clock, [1, 1, 1]))
    for _ in range(2):
        for batch in watched:
            clock.advance(2)
            if batch == 1:
                break
    gc.collect()
    assert rec.steps == 4
    assert [s.wall_ns for s in spans_of(rec, "loop")] == [2 * MS] * 4
    assert len(Window.of(rec.session().runs[0]).first_batch_ns) == 2


def test_stages_nest_and_keep_self_time(clock: FakeClock) -> None:
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


def test_a_stage_in_the_loader_and_one_in_the_step_are_told_apart(
    clock: FakeClock, rec: Recorder
) -> None:
    def loader() -> object:
        for i in range(3):
            with stage("augment"):
                clock.advance(6)
            yield i

    for _ in rec.watch(loader()):
        with stage("log"):
            clock.advance(2)
    assert [s.wall_ns for s in spans_of(rec, "augment")] == [6 * MS] * 3
    assert [s.wall_ns for s in spans_of(rec, "step:log")] == [2 * MS] * 3


def test_an_error_in_the_loader_is_noted_and_passed_on(clock: FakeClock, rec: Recorder) -> None:
    def loader() -> object:
        yield 1
        raise OSError("disk gone")

    with pytest.raises(OSError, match="disk gone"):
        list(rec.watch(loader()))
    run = rec.session().runs[0]
    assert len(Window.of(run).steps.batch) == 1
    assert run.notes == ["step 1: OSError: disk gone"]


def test_garbage_collection_is_recorded_and_the_hook_removed(
    clock: FakeClock, rec: Recorder
) -> None:
    before = len(gc.callbacks)
    for _ in rec.watch(SlowList(clock, [1])):
        gc.collect()
    assert len(gc.callbacks) == before
    assert len(rec.session().runs[0].gc_pauses) >= 1


def test_an_object_that_cannot_be_iterated_is_refused_with_the_cure() -> None:
    with pytest.raises(ProfileError, match=r"No adapter can iterate a builtins\.int"):
        Recorder().watch(3)
    with pytest.raises(ProfileError, match="call it and hand over what it returns"):
        Recorder().watch(lambda: [1])


# ---- the timeline ----


def test_readings_move_forward_by_what_was_left_out_once() -> None:
    line = Timeline()
    assert line.at(7) == 7
    for stretch in ((10, 30), (20, 40), (15, 25), (50, 60)):
        line.leave_out(*stretch)
    assert line.left_out == 40
    readings = {5: 5, 10: 10, 30: 10, 40: 10, 45: 15, 50: 20, 55: 20, 60: 20, 61: 21}
    assert {reading: line.at(reading) for reading in readings} == readings


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


# ---- the recorder of a long loop: iterated again, with a length and stacks, saved as it goes ----


class Slow:
    """Four batches that take 60 ms each, for two looks at the stack a batch, or until one came."""

    sampler = "mine"
    seen: Callable[[], bool] = staticmethod(lambda: True)

    def __len__(self) -> int:
        return 4

    def __iter__(self) -> Iterator[int]:
        for i in range(4):
            time.sleep(0.06)  # read_from_disk
            while i == 3 and not self.seen():
                time.sleep(0.06)  # read_from_disk
            yield i


def test_what_is_watched_can_be_iterated_again_and_has_the_loaders_length() -> None:
    loader, rec = Slow(), Recorder(FakeClock(), cpu=lambda: 0)
    watched = rec.watch(loader)
    assert len(watched) == 4
    assert watched.sampler == "mine"
    watched.sampler = "another"
    assert loader.sampler == "another"
    assert [*watched, *watched] == [0, 1, 2, 3] * 2
    assert rec.steps == 8


def places(recorder: Recorder) -> list[str]:
    """Where stack samples of a recorder lie so far."""
    sampler = recorder._sampler
    return [*recorder.run.stacks, *(sampler.weights if sampler is not None else ())]


def test_a_line_for_a_cause_and_a_file_without_asking(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    rec = Recorder(save_to=path, every_s=0.05)
    loader = Slow()
    loader.seen = lambda: any("read_from_disk" in place for place in places(rec))
    for i in rec.watch(loader):
        time.sleep(0.02)
        while i == 3 and not path.exists():  # written while the loop goes on
            time.sleep(0.02)
    rec.end()
    run = Session.load(path).runs[0]
    assert len(Window.of(run)) == 4
    assert any("read_from_disk" in place for place in run.stacks if place.startswith("wait|"))


def test_a_loop_that_changes_the_folder_is_saved_where_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    rec = Recorder(save_to="p.json")
    assert list(rec.watch([1, 2])) == [1, 2]
    monkeypatch.chdir(tmp_path / "other")
    rec.end()
    assert (tmp_path / "p.json").exists()
    assert not (tmp_path / "other/p.json").exists()


def test_a_disk_that_takes_nothing_does_not_end_the_training(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    rec = Recorder(save_to=tmp_path / "file" / "p.json")
    assert list(rec.watch([1, 2])) == [1, 2]
    assert rec.save_now() is None
    rec.end()


def test_a_long_run_is_kept_to_its_last_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "MOST_STEPS", 30)
    monkeypatch.setattr(session_module, "KEPT_STEPS", 10)
    clock = FakeClock()
    rec = Recorder(clock, cpu=lambda: 0, save_to=tmp_path / "p.json")
    for i in rec.watch(SlowList(clock, [1] * 60)):
        clock.advance(3)
        if i in (29, 59):
            rec.save_now()
    run = rec.session().runs[0]
    steps = Window.of(run).steps
    totals = run.totals
    assert steps.batch.tolist() == list(range(totals["dropped_steps"], 60))
    assert totals["dropped_wait_ns"] + steps.wait.sum() == 60 * MS
    assert totals["dropped_loop_ns"] + steps.loop.sum() == 180 * MS
    rec.end()


class Row:
    """A part of a batch that takes 1 ms to pickle and 2 ms to read."""

    clock = FakeClock()

    def __reduce__(self) -> tuple[Any, ...]:
        self.clock.advance(1)
        return read_row, ()


def read_row() -> Row:
    Row.clock.advance(2)
    return Row()


@pytest.mark.parametrize("reading", [2, 14], ids=["pickled late", "read late"])
def test_a_batch_of_objects_has_a_dearer_hand_over_than_one_of_tensors(
    reading: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = LateReadings(reading)
    monkeypatch.setattr(Row, "clock", clock)
    monkeypatch.setattr(recorder_live.time, "perf_counter_ns", clock)
    heavy = hand_over_cost([Row() for _ in range(20)])
    assert heavy == {"pickling_ns": 20 * MS, "hand_over_ns": LEAST_HAND_OVER_NS + 40 * MS}
    assert hand_over_cost([1, 2, 3])["hand_over_ns"] == LEAST_HAND_OVER_NS
    assert hand_over_cost([lambda: None]) == {}
