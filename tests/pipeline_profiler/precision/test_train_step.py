"""The timed window, the bisection and the sentences, on a clock that only moves when told."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_profiler.precision.data_source import DataSource
from pipeline_profiler.precision.sweep import bisect_largest
from pipeline_profiler.precision.trainer import (
    Cell,
    TimedWindow,
    Trainer,
    check_outputs,
    is_out_of_memory,
    split_batch,
    time_batches,
    time_window,
    train_steps,
)
from pipeline_profiler.profiling.record.session import ProfileError
from tests.pipeline_profiler.fakes import FakeClock
from tests.pipeline_profiler.precision.fakes import Batches, FakeTrainer

pytestmark = pytest.mark.slow


def slow_batches(clock: FakeClock, waits: list[float]) -> Iterator[int]:
    for i, wait in enumerate(waits):
        clock.advance(wait)
        yield i


def test_the_lead_in_is_not_marked_and_periods_run_from_step_to_step() -> None:
    clock = FakeClock()
    trainer = FakeTrainer(clock, 10.0)
    window = time_window(trainer, slow_batches(clock, [1, 90, 80, 3, 4, 5]), 3, 1)
    assert window.period_ms == [13.0, 14.0, 15.0]
    assert (window.median_ms, window.elapsed_ms, window.steps) == (14.0, 42.0, 3)


def test_the_device_is_synchronised_at_the_edges_only() -> None:
    clock = FakeClock()
    trainer = FakeTrainer(clock, 1.0)
    time_window(trainer, slow_batches(clock, [0] * 7), 4, 1)
    edges = ["step", "synchronise", "step", "step"]
    assert trainer.calls == [*edges, *["mark", "step"] * 4, "mark", "synchronise"]


def test_skipped_steps_are_counted_and_not_timed() -> None:
    clock = FakeClock()
    trainer = FakeTrainer(clock, 10.0, skips={0, 2, 5})
    window = time_window(trainer, slow_batches(clock, [0, 0, 0, 0, 0, 90, 0]), 3, 2)
    # one in the warm-up, one in the lead-in, one timed
    assert (window.warmup_skipped, window.skipped) == (2, [1])
    assert window.median_ms == 10.0


def test_a_window_of_skipped_steps_has_no_median() -> None:
    assert TimedWindow([5.0], 5.0, 1, skipped=[0]).median_ms is None
    assert TimedWindow([], 30.0, 3).median_ms == 10.0


def test_the_collector_is_off_inside_the_window_and_on_after_it() -> None:
    clock = FakeClock()
    seen: list[bool] = []

    class Watching(FakeTrainer):
        def step(self, batch: object) -> None:
            seen.append(gc.isenabled())
            super().step(batch)

    time_window(Watching(clock, 1.0), slow_batches(clock, [0] * 5), 2, 1)
    assert seen == [True, *[False] * 4]
    assert gc.isenabled()
    with pytest.raises(ProfileError, match="no full batch left"):
        time_window(Watching(clock, 1.0), slow_batches(clock, [0] * 4), 2, 1)
    assert gc.isenabled()


def test_a_passage_holds_the_start_of_its_batches_and_every_step() -> None:
    clock = FakeClock()
    trainer = FakeTrainer(clock, 10.0)
    assert time_batches(trainer, slow_batches(clock, [70, 1, 1])) == (3, 102.0)
    assert trainer.calls == ["synchronise", "mark", *["step"] * 3, "mark", "synchronise"]
    alone = Trainer("cpu", clock)
    assert time_batches(alone, slow_batches(clock, [70, 1, 1])) == (3, 72.0)


def test_the_first_step_is_told_from_the_others() -> None:
    clock = FakeClock()
    trainer = FakeTrainer(clock, 10.0)
    first_s, step_s = train_steps(trainer, slow_batches(clock, [50, 2, 4]), 3)
    assert (first_s, step_s) == pytest.approx((0.010, 0.013))


def test_partial_batches_are_left_out() -> None:
    rows = [*Batches(4, 2).rows, *Batches(3, 1).rows]
    epochs = {size: DataSource("m", size, rows).epochs(1) for size in (4, 5)}
    assert [len(batch[0]) for batch in epochs[4]] == [4, 4]
    assert list(epochs[5]) == []


@given(capacity=st.integers(0, 3000), start=st.integers(1, 600), limit=st.integers(1, 3000))
def test_the_bisection_finds_the_largest_that_fits(capacity: int, start: int, limit: int) -> None:
    trials: list[int] = []

    def fits(size: int) -> bool:
        trials.append(size)
        return size <= capacity

    found, most = bisect_largest(fits, start, limit), min(capacity, limit)
    assert found <= most < found + max(1, found // 64) + (most == limit)
    assert all(size <= limit for size in trials)
    assert len(trials) <= 2 * 12 + 2


@pytest.mark.slow
def test_what_counts_as_out_of_memory() -> None:
    import torch

    with pytest.raises(RuntimeError) as real:
        torch.empty(1 << 50)
    assert is_out_of_memory(real.value)
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(RuntimeError("shape mismatch"))
    assert not is_out_of_memory(ValueError("can't allocate memory"))


def test_sentences_about_shapes_and_labels() -> None:
    for labels in (None, (0, 9), (-100, 9)):
        check_outputs((8, 10), 8, labels)
    for shape, labels, words in [
        ((8, 10, 4, 4), None, "returned shape (8, 10, 4, 4) for 8 samples"),
        ((4, 10), None, "returned shape (4, 10) for 8 samples"),
        ((8, 10), (0, 12), "label 12 lies outside [0, 10): the model has 10 outputs; give it 13"),
        ((8, 10), (-1, 3), "label -1 lies outside"),
    ]:
        with pytest.raises(ProfileError, match=re.escape(words)):
            check_outputs(shape, 8, labels)


def test_batches_are_pairs() -> None:
    assert split_batch({"image": 1, "label": 2}) == (1, 2)
    with pytest.raises(ProfileError, match="not \\(inputs, labels\\)"):
        split_batch([1, 2, 3])


def test_a_cell_names_itself() -> None:
    assert Cell("r", 64, "fp16", "128").label == "r FP16 x64 scale 128"
