"""Where the time of a scan goes: wall and CPU seconds by stage, of this process and its workers."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import Any

from audit.machine.workers import worker_cpu_s


@dataclass(frozen=True, slots=True)
class Lap:
    """Seconds of one stage: on the clock, of CPU in this process (all threads), and in workers."""

    wall_s: float
    cpu_s: float
    workers_cpu_s: float


def _now() -> Lap:
    return Lap(time.perf_counter(), time.process_time(), worker_cpu_s())


@dataclass(slots=True)
class Stopwatch:
    """Seconds since the last lap, by the name of the stage; a stage may have several laps."""

    laps: dict[str, Lap] = field(default_factory=dict)
    last: Lap = field(default_factory=_now)

    @classmethod
    def of_process(cls) -> Stopwatch:
        """Return a stopwatch whose first lap has all CPU seconds of this process, imports too."""
        return cls(last=Lap(time.perf_counter(), 0.0, 0.0))

    def stages(self) -> list[dict[str, Any]]:
        """Return a row for each stage: its name and the seconds of its lap."""
        return [{"stage": name, **asdict(lap)} for name, lap in self.laps.items()]

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
