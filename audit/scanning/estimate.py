"""Estimate what a large scan takes: from its first files, and from larger scans.

Source of `RELATE_S` (CPU s per image), `DISK_BYTES` (per image) and memory: docs/benchmarks.md.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from audit.scanning.measuring import Progress

FIRST = 1000  # files that are read before anything is said
LEAST_S = 60.0  # a shorter scan says nothing
RELATE_S, DISK_BYTES = 0.0035, 3700
BUSY = 0.7  # share of the cores that comparing keeps busy
MEMORY_GB = ((60_000, 2.2), (1_000_000, 3.8))


def expected_seconds(total: int, done: int, seconds: float, cores: int) -> float:
    """Return the seconds that are left after `done` of `total` files were read in `seconds`."""
    comparing = total * RELATE_S / max(1.0, BUSY * cores)
    return (total - done) * seconds / done + comparing


def expected_memory_gb(total: int) -> float:
    """Return the peak memory of a scan: that of 60,000 files at least, then by their logarithm."""
    (low, least), (high, most) = MEMORY_GB
    share = (math.log(max(total, low)) - math.log(low)) / (math.log(high) - math.log(low))
    return least + (most - least) * share


@dataclass
class Forecast:
    """Say once what the rest of a scan will take; called with each state of the progress."""

    say: Callable[[str], None]
    cores: int
    clock: Callable[[], float] = time.monotonic
    said: bool = False
    began: tuple[float, int] | None = None

    def __call__(self, state: Progress) -> None:
        """Look at one state."""
        if self.said or state.phase != "measure":
            return
        self.began = self.began or (self.clock(), state.done)
        start, first = self.began
        done = state.done - first
        if done < FIRST:
            return
        self.said = True
        left = expected_seconds(state.total - first, done, self.clock() - start, self.cores)
        if left < LEAST_S:
            return
        minutes = f"{left / 60:,.0f} minutes" if left >= 90 else "a minute"
        disk, memory = state.total * DISK_BYTES / 1e6, expected_memory_gb(state.total)
        self.say(
            f"About {minutes} left for {state.total:,} files; {disk:,.0f} MB of disk for the run, "
            f"at most about {memory:.1f} GB of memory."
        )
