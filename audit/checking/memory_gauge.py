"""How much memory a check takes: the growth of the process's resident memory while it runs.

A thread reads the resident size every 10 ms, so a rise that is shorter is seen only where it lifts
the process above everything that it ever took, which the system keeps exactly. What one check
leaves behind for the next (freed pages that the allocator keeps, the database's own cache) is no
growth of the next. So a figure says which check asks for more than is there; it is a lower bound of
what the check would take alone, in steps of a page. A reading takes about 10 us. Without
`/proc` (macOS), only a rise above everything before is seen.
"""

from __future__ import annotations

import os
import resource
import sys
from threading import Event, Thread

EVERY_S = 0.01
STATM = "/proc/self/statm"
PEAK_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes of one unit of ru_maxrss


class MemoryGauge:
    """The peak of the resident memory since the last `start`; use it in a `with` block."""

    def __init__(self) -> None:
        """Make a gauge that does not read yet."""
        self._stopped = Event()
        self._thread = Thread(target=self._watch, name="memory gauge", daemon=True)
        self._first = self._peak = self._highest = 0

    def __enter__(self) -> MemoryGauge:
        """Begin to read."""
        self.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End reading."""
        self._stopped.set()
        self._thread.join()

    def start(self) -> None:
        """Forget what was; growth counts from here."""
        self._highest = _highest_ever()
        self._first = self._peak = _resident() or self._highest

    def growth(self) -> int:
        """Return by how many bytes the peak since `start` lies above the size at `start`."""
        highest = _highest_ever()
        risen = highest if highest > self._highest else 0
        return max(self._peak, _resident(), risen) - self._first

    def _watch(self) -> None:
        while not self._stopped.wait(EVERY_S):
            self._peak = max(self._peak, _resident())


def _resident() -> int:
    """Return the bytes of memory that this process holds now; 0 where the system does not say."""
    try:
        with open(STATM, "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def _highest_ever() -> int:
    """Return the bytes of the highest resident size that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * PEAK_UNIT
