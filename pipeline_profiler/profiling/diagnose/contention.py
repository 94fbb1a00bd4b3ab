"""The share of the data stall that other programs cost, by the time that threads wait for a core."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline_profiler.profiling.diagnose.evidence import Evidence
from pipeline_profiler.profiling.diagnose.intervals import Interval


@dataclass(frozen=True)
class Contention:
    """Points of the stall that other programs cost; None where they had no part."""

    share: Interval | None = None
    sentence: str = ""


def measure_contention(e: Evidence) -> Contention:
    return Contention()
