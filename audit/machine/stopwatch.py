"""Where the time of a scan goes: wall and CPU seconds by stage, of this process and its workers."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from audit.machine.workers import worker_cpu_s


@dataclass(frozen=True, slots=True)
class Lap:
    """Seconds of one stage: on the clock, of CPU in this process (all threads), and in workers."""

    wall_s: float
    cpu_s: float
    workers_cpu_s: float


def _now() -> Lap:
    return Lap(time.perf_counter(), time.process_time(), worker_cpu_s())


def _process_began() -> float:
    """Return when this process began, on the clock of `perf_counter`; now where Linux is absent."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, ValueError, IndexError):
        age = 0.0
    return time.perf_counter() - age


@dataclass(slots=True)
class Stopwatch:
    """Seconds since the last lap, by the name of the stage; a stage may have several laps."""

    laps: dict[str, Lap] = field(default_factory=dict)
    last: Lap = field(default_factory=_now)

    @classmethod
    def of_process(cls) -> Stopwatch:
        """Return a stopwatch whose first lap begins with this process: imports are part of it."""
        return cls(last=Lap(_process_began(), 0.0, 0.0))

    def lap(self, stage: str) -> None:
        """End a stage."""
        now, last = _now(), self.last
        before = self.laps.get(stage, Lap(0.0, 0.0, 0.0))
        self.laps[stage] = Lap(
            round(before.wall_s + now.wall_s - last.wall_s, 3),
            round(before.cpu_s + now.cpu_s - last.cpu_s, 3),
            round(before.workers_cpu_s + now.workers_cpu_s - last.workers_cpu_s, 3),
        )
        self.last = now
