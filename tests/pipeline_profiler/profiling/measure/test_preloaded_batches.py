"""Batches in hand stay as the loader gave them, whatever the step does to them."""

from collections import UserDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from pipeline_profiler.profiling.diagnose.window import Window
from pipeline_profiler.profiling.measure.arms import Bench, Options
from pipeline_profiler.profiling.measure.preloaded_batches import (
    Cycle,
    Preloaded,
    as_given,
    parts_of,
    try_step,
)
from pipeline_profiler.profiling.measure.probes import hand_over, recording_ns
from pipeline_profiler.profiling.measure.schedule import measure_arms
from pipeline_profiler.profiling.record.arm import Arm
from pipeline_profiler.profiling.record.session import Session
from tests.pipeline_profiler.fakes import MS, FakeClock, LateReadings

pytestmark = pytest.mark.slow


class Dicts:
    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for _ in range(400):
            self.clock.advance(10)
            yield {"x": torch.ones(3), "n": np.ones(2), "labels": [1, 2, 3]}


def measured(step: Callable[[Any], Any]) -> Session:
    clock = FakeClock()

    def timed(batch: Any) -> None:
        clock.advance(20)
        step(batch)

    options = Options(quick=True, steps=60, repeats=3)
    return measure_arms(Bench(lambda: Dicts(clock), timed, clock), options)


def test_a_step_that_takes_its_labels_out_is_measured_in_every_arm() -> None:
    session = measured(lambda batch: (batch.pop("labels"), batch["x"], batch["n"]))
    assert [Window.of(run).period_ns for run in session.arm(Arm.RESIDENT)] == [20 * MS] * 3
    assert any("takes labels out of its batch" in note for note in session.notes)
    assert session.probes.unused_fields == {}


def test_a_step_in_place_sees_every_batch_as_it_was() -> None:
    sums: set[float] = set()

    def step(batch: Any) -> None:
        sums.add(float(batch["x"].sum() + batch["n"].sum()))
        batch["x"].mul_(2)
        batch["n"] *= 2

    session = measured(step)
    assert sums == {5.0}
    assert any("works in place on n, x" in note for note in session.notes)


def test_a_step_that_changes_nothing_is_given_the_kept_tensors_and_no_note() -> None:
    kept, step = Preloaded([{"x": torch.ones(3)}]), float
    assert try_step(kept, lambda batch: step(batch["x"].sum())) == set()
    assert kept.hand_out(0)["x"] is kept[0]["x"]
    assert kept.hand_out(0) is not kept[0]
    assert not measured(lambda batch: batch["x"] + 1).notes


def test_a_change_that_no_trial_saw_is_seen_by_the_version_counter() -> None:
    kept = Preloaded([{"x": torch.full((2,), float(i))} for i in range(3)])
    seen = []
    for turn, batch in zip(range(8), Cycle(kept, FakeClock()), strict=False):
        seen.append(float(batch["x"][0]))
        if turn == 1:
            batch["x"].add_(50)
    assert kept.in_place == {("x",)}
    assert max(seen) == 2  # the changed batch is left out


def test_one_late_reading_of_the_clock_ends_no_look() -> None:
    kept, late = (
        Preloaded([{"x": torch.ones(2)}]),
        4 * 4 + 2,
    )  # the reading after the fifth look
    for turn, batch in zip(range(7), Cycle(kept, LateReadings(late)), strict=False):
        if turn == 5:
            batch["x"].add_(1)
    assert kept.in_place == {("x",)}


@pytest.mark.parametrize("reading", range(1, 8))
def test_what_recording_costs_is_no_single_reading(reading: int) -> None:
    assert recording_ns(Bench(list, float, LateReadings(reading)), 3) == 0


def test_what_a_worker_would_cost_is_no_single_reading() -> None:
    loader = torch.utils.data.DataLoader(list(range(80)), 2)
    kept, timed = [{"x": torch.ones(2)}], Bench(lambda: loader, float, LateReadings(40))
    assert hand_over(timed, kept, 0.0)["hand_over_ns"] == 0


def test_what_copying_takes_is_in_no_period() -> None:
    clock = FakeClock()

    class Slow:
        """An array whose copy takes 5 ms."""

        is_cuda, _version = False, 0

        def is_inference(self) -> bool:
            return False

        is_pinned = is_inference

        def detach(self) -> Any:
            return self

        def clone(self) -> Any:
            clock.advance(5)
            return Slow()

        def touch(self) -> None:
            self._version += 1

    def step(batch: Slow) -> None:
        clock.advance(20)
        batch.touch()

    session = measure_arms(
        Bench(lambda: [Slow() for _ in range(400)], step, clock), Options(quick=True, steps=40)
    )
    run = session.arm(Arm.RESIDENT)[0]
    assert run.totals["copying_ns"] > 0
    assert Window.of(run).period_ns == pytest.approx(20 * MS)


class Pair(NamedTuple):
    x: Any
    y: Any


@dataclass(frozen=True)
class Sample:
    x: Any


@pytest.mark.parametrize(
    "make",
    [
        lambda x: {"x": x},
        lambda x: UserDict(x=x),
        lambda x: [x],
        lambda x: (x, 1),
        lambda x: Pair(x, 1),
        lambda x: Sample(x),
        lambda x: x,
    ],
)
def test_a_copy_has_the_kind_of_the_batch_and_its_own_memory(make: Callable[[Any], Any]) -> None:
    x = torch.ones(2)
    batch = make(x)
    copy = as_given(batch)
    assert type(copy) is type(batch)
    x.zero_()
    kept = Preloaded([copy])
    assert float(next(part for _, part in parts_of(kept[0])).sum()) == 2
