"""Rates in samples/s, their limits, and the time per epoch, from sessions made by hand."""

import dataclasses
from typing import Any

import pytest

from pipeline_profiler.profiling.diagnose.intervals import Interval, geometric_mean
from pipeline_profiler.profiling.diagnose.throughput import (
    Throughput,
    explain_excess,
    limit_rate,
    measure_throughput,
)
from pipeline_profiler.profiling.diagnose.verdict import diagnose_session
from pipeline_profiler.profiling.diagnose.window import Windows
from pipeline_profiler.profiling.record.arm import Arm
from pipeline_profiler.profiling.record.session import Session
from tests.pipeline_profiler.fakes import made_run, made_session, schedule


def recorded(
    alone_ms: float = 25.0, pieces: int = 5, alone_s: float | None = 1.0, **config: Any
) -> Session:
    """A step of 20 ms on preloaded batches, 30 ms with its loader: 5 blocks of both."""
    rows = schedule(80, 2, 2, 20.0, lambda j: 60.0)
    session: Session = made_session(rows, 20.0, workers=2, prefetch=2, **config)
    for block in range(pieces):
        run = made_run(schedule(40, 0, 0, 0.0, lambda j: alone_ms), Arm.ALONE)
        run.block = block
        session.runs.append(run)
    session.plan = dataclasses.replace(session.plan, alone_s=alone_s)
    return session


def throughput(session: Session) -> Throughput:
    found = measure_throughput(session, Windows(session))
    assert found is not None
    return found


def test_three_rates_and_the_time_per_epoch() -> None:
    session = recorded(batch_size=8, batches=100)
    session.probes.repeatable = {"samples": 796}  # the last batch of an epoch has 4
    found = throughput(session)
    assert found.loader_alone is not None
    assert found.with_step is not None
    assert found.loader_alone.value == pytest.approx(8 / 0.025)
    assert found.with_step.value == pytest.approx(8 / 0.0304)  # an epoch of 100 starts with 40 ms
    assert found.preloaded.value == pytest.approx(8 / 0.020)
    assert found.epoch_s == pytest.approx(796 / found.with_step.value)
    assert found.sentence == (
        "Throughput (samples/s, 95% CI): loader alone 320 (320 to 320), with the step 263 (263 to "
        "263), preloaded batches 400 (400 to 400). Time per epoch 3.02 s (796 samples)."
    )
    stored = diagnose_session(session).as_results()["throughput"]
    assert stored["sentence"] == found.sentence
    assert stored["loader_alone"] == dataclasses.asdict(found.loader_alone)
    assert (stored["unit"], stored["reason"], stored["error"]) == ("samples", "", "")
    assert (stored["epoch_size"], stored["epoch_s"]) == (796, found.epoch_s)


def test_without_a_batch_size_the_unit_is_batches_and_without_a_length_there_is_no_epoch() -> None:
    text = throughput(recorded(batches=100)).sentence
    assert "(batches/s, 95% CI): loader alone 40 (40 to 40), with the step 32.9" in text
    assert text.endswith("Time per epoch 3.04 s (100 batches).")
    found = throughput(recorded())
    assert (found.epoch_s, found.epoch_size) == (None, 0)
    assert found.sentence.endswith("preloaded batches 50 (50 to 50).")


@pytest.mark.parametrize(
    ("more", "part"),
    [
        ({"pieces": 0, "alone_s": None}, ": with the step "),  # of an older version
        (
            {"pieces": 0, "alone_s": 0.0},
            "loader alone skipped (not enough time: give more --seconds), ",
        ),
        ({"pieces": 2}, "loader alone skipped (not enough time: give more --seconds), with"),
        ({"pieces": 0, "one_shot": True}, "loader alone skipped (it can be read only once), with"),
        ({}, "loader alone 40 (40 to 40), with"),
    ],
)
def test_a_loader_alone_that_was_not_timed_has_its_reason(more: dict[str, Any], part: str) -> None:
    assert part in throughput(recorded(**more)).sentence


def test_short_pieces_do_not_count() -> None:
    session = recorded()
    for run in session.arm(Arm.ALONE):
        run.warmup = 33  # of 40 batches
    assert throughput(session).loader_alone is None
    session.runs = [run for run in session.runs if run.block < 2]
    assert "Throughput (batches/s): " in throughput(session).sentence  # no interval of two repeats
    session.runs = session.arm(Arm.WARM)
    assert measure_throughput(session, Windows(session)) is None


def test_a_rate_above_its_limits_is_capped_within_the_noise_and_an_error_beyond_it() -> None:
    capped = throughput(recorded(31.0))
    assert capped.loader_alone is not None
    assert capped.with_step is not None
    assert capped.with_step.value == capped.loader_alone.value
    assert capped.with_step.high <= capped.loader_alone.high
    assert capped.error == ""
    wrong = throughput(recorded(40.0, batches=100))
    assert (wrong.with_step, wrong.epoch_s) == (None, None)
    assert wrong.sentence.endswith(
        "loader alone 25 (25 to 25), preloaded batches 50 (50 to 50). Error of the measurement: "
        "the rate with the step is 1.32 times the rate of the loader alone."
    )


def test_a_stream_timed_elsewhere_than_alone_is_capped_and_no_error() -> None:
    session = recorded(40.0)
    for number, run in enumerate(session.arm(Arm.WARM)):
        run.totals["from_batch"] = 10 * number + 5
    found = throughput(session)
    assert found.error == ""
    assert found.with_step is not None
    assert found.with_step.value == pytest.approx(25.0)


def test_the_rule_of_limits() -> None:
    noise, beyond = geometric_mean([1.0, 1.3, 1.2]), geometric_mean([1.20, 1.21, 1.22])
    assert explain_excess({"the loader alone": noise, "the step alone": noise}) == ""
    assert (
        explain_excess({"the loader alone": noise, "the step alone": beyond})
        == "1.21 times the rate of the step alone"
    )
    rate = Interval(110.0, 90.0, 130.0, 5)
    assert limit_rate(rate, [None, Interval(120.0, 100.0, 125.0, 5)]) == rate
    assert limit_rate(rate, [Interval(100.0, 95.0, 105.0, 5)]) == Interval(100.0, 90.0, 105.0, 5)
    assert limit_rate(rate, [Interval(80.0, 75.0, 85.0, 5)]) == Interval(80.0, 80.0, 85.0, 5)
