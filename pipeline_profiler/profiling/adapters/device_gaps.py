"""When a GPU stood still for want of a batch: CUDA events around next()."""

from __future__ import annotations

from collections import deque
from typing import Any


class DeviceGaps:
    """Pairs of CUDA events, read without synchronisation when the device has passed them.

    A wait costs the device time between a step's last kernel and next()'s return, at most its wall.
    """

    def __init__(self, cuda: Any) -> None:
        self._cuda = cuda
        self._ended: Any = None
        self._open: deque[tuple[int, int, Any, Any]] = deque()

    def _event(self) -> Any:
        event = self._cuda.Event(enable_timing=True)
        event.record()
        return event

    def asked(self) -> None:
        """The step is enqueued and next() is called."""
        self._ended = self._event() if self._cuda.is_initialized() else None

    def delivered(self, step: int, wall: int) -> None:
        """next() has returned after `wall` nanoseconds, nothing of the next step is enqueued."""
        if self._ended is not None:
            self._open.append((step, wall, self._ended, self._event()))

    def resolved(self) -> list[tuple[int, int]]:
        """(step, nanoseconds that the device waited) of the steps it has passed."""
        rows = []
        while self._open and self._open[0][3].query():
            step, wall, before, after = self._open.popleft()
            rows.append((step, min(wall, max(0, round(before.elapsed_time(after) * 1e6)))))
        return rows
