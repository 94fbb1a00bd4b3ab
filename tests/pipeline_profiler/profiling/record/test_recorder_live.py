"""The recorder of a long loop: iterated again, with a length and stacks, saved as it goes."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline_profiler import Recorder
from pipeline_profiler.profiling.diagnose.window import Window
from pipeline_profiler.profiling.record import recorder_live
from pipeline_profiler.profiling.record import session as session_module
from pipeline_profiler.profiling.record.recorder_live import LEAST_HAND_OVER_NS, hand_over_cost
from pipeline_profiler.profiling.record.session import Session
from tests.pipeline_profiler.fakes import MS, FakeClock, LateReadings, SlowList


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


def test_a_break_ends_the_epoch_and_the_next_one_begins_anew() -> None:
    clock = FakeClock()
    rec = Recorder(clock, cpu=lambda: 0)
    watched = rec.watch(SlowList(clock, [1, 1, 1]))
    for _ in range(2):
        for batch in watched:
            if batch == 1:
                break
    assert rec.steps == 4
    assert len(Window.of(rec.session().runs[0]).first_batch_ns) == 2


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
