"""The time budget is kept, on a clock that only the simulated steps move."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline_profiler.precision.sweep import measure_precisions
from pipeline_profiler.profiling.measure.watchdog import StoppedError
from pipeline_profiler.profiling.record.session import Session
from tests.pipeline_profiler.fakes import FakeClock
from tests.pipeline_profiler.precision.fakes import SimulatedBackend, SimulatedLoader, job, quick

SIZES, PRECISIONS = (4, 8), ("fp32", "bf16")


def swept(ms: float, setup_ms: float = 0.0, **options: Any) -> tuple[Session, float]:
    """The session of four cells, and the seconds that the clock moved."""
    clock = FakeClock()
    began = clock()
    chosen = {"batch_sizes": SIZES, "precisions": PRECISIONS, "rounds": 12} | options
    session = measure_precisions(
        SimulatedBackend(clock, ms, setup_ms),
        [job(make_loader=lambda size: SimulatedLoader(clock, size))],
        quick(**chosen),
        clock=clock,
    )
    return session, (clock() - began) / 1e9


def statuses(session: Session) -> list[str]:
    return [row["status"] for row in session.results["precision"]["rows"]]


def reasons(session: Session) -> str:
    return " ".join(session.plan.reasons)


@pytest.mark.parametrize("setup_ms", [0.0, 150.0, 900.0])
@pytest.mark.parametrize("ms", [1.0, 15.0, 40.0, 100.0])
def test_a_sweep_ends_within_its_seconds(ms: float, setup_ms: float) -> None:
    session, took = swept(ms, setup_ms, seconds=35.0)
    assert took <= 35.0
    assert statuses(session)[0] == "ok"


def test_rows_that_do_not_fit_are_dropped_from_the_end_and_one_sentence_says_so() -> None:
    session, _ = swept(100.0, seconds=35.0)
    found = statuses(session)
    kept = found.count("ok")
    assert 0 < kept < 4
    assert found == ["ok"] * kept + ["dropped"] * (4 - kept)
    said = [text for text in session.results["precision"]["sentences"] if "dropped to end" in text]
    assert len(said) == 1
    assert f" and {3 - kept} more: " in said[0]
    assert "give --seconds for more" in said[0]


def test_nothing_is_dropped_or_cut_where_there_is_time() -> None:
    session, _ = swept(1.0, seconds=3600.0)
    assert statuses(session) == ["ok"] * 4
    assert "instead of" not in reasons(session)


def test_the_seconds_that_the_refusal_names_are_enough() -> None:
    with pytest.raises(StoppedError, match=r"flat FP32 x4 alone needs about \d+ s") as stopped:
        swept(1000.0, seconds=20.0)
    named = float(str(stopped.value).split("Give --seconds ")[1].split(",")[0])
    session, took = swept(1000.0, seconds=named)
    assert statuses(session)[0] == "ok"
    assert took <= named


def test_fewer_losses_are_taken_where_steps_are_slow() -> None:
    session, _ = swept(500.0, seconds=200.0, parity_steps=50)
    assert "instead of 50, because a step takes 2 s" in reasons(session)


def test_the_largest_batch_is_given_up_rather_than_the_budget() -> None:
    session, took = swept(40.0, seconds=35.0, largest=True, largest_limit=65536)
    largest = session.results["precision"]["largest"]
    assert took <= 35.0 + 2 * 40.0 * max(largest[0]["trials"]) / 1e3
    assert "it is at least this" in largest[0]["trouble"][0]


def test_a_limit_of_memory_on_a_device_without_one_is_a_sentence() -> None:
    session, _ = swept(1.0, seconds=60.0, memory_limit=1 << 30)
    assert "nothing to limit" in reasons(session)
