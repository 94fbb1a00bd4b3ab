"""What a large scan will take is said once, from its first thousand files."""

from __future__ import annotations

import pytest

from audit.scanning.estimate import Forecast, expected_memory_gb, expected_seconds
from audit.scanning.measuring import Progress


def forecast_of(total: int, per_file_s: float, step: int = 250) -> list[str]:
    """What is said while `total` files are read at this pace."""
    now, said = [0.0], []
    forecast = Forecast(said.append, 2, clock=lambda: now[0])
    forecast(Progress("list", total, total))
    for done in range(0, total + 1, step):
        now[0] = done * per_file_s
        forecast(Progress("measure", done, total))
    return said


def test_a_long_scan_says_once_what_it_takes() -> None:
    (said,) = forecast_of(100_000, 0.004)
    # 99,000 files at 4 ms, then 100,000 compared at 3.5 ms of 1.4 cores
    assert said == (
        "About 11 minutes more for 100,000 files, 370 MB of disk for the run, at most about 2.5 GB "
        "of memory."
    )


def test_a_short_scan_says_nothing() -> None:
    assert forecast_of(5_000, 0.002) == []
    assert forecast_of(900, 1.0, step=100) == []


def test_a_resumed_scan_counts_from_where_it_goes_on() -> None:
    now, said = [0.0], []
    forecast = Forecast(said.append, 2, clock=lambda: now[0])
    for done in (90_000, 92_000):
        forecast(Progress("measure", done, 100_000))
        now[0] += 10.0
    # 2,000 in 10 s
    assert len(said) == 1
    assert expected_seconds(10_000, 2_000, 10.0, 2) == pytest.approx(40 + 10_000 * 0.0035 / 1.4)


def test_memory_grows_by_the_logarithm_of_what_was_measured() -> None:
    assert expected_memory_gb(1_000) == expected_memory_gb(60_000) == pytest.approx(2.2)
    assert expected_memory_gb(1_000_000) == pytest.approx(3.8)
