"""When the GPU stood still for want of a batch, from events on its own stream.

An event after the last kernel of a step and one right after next() has returned: the time between
them on the device, at most the wall time of next(), is what the wait cost. A wait that the device
spends computing costs nothing. Nothing is synchronised: events are read once they have passed.
"""

from __future__ import annotations

from collections import deque
from typing import Any


class DeviceGaps:
    """Pairs of CUDA events, read when the device has passed them."""

    def __init__(self, cuda: Any) -> None:
        """`cuda` is torch.cuda."""
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
        """next() has returned after `wall` nanoseconds."""
        if self._ended is not None:
            self._open.append((step, wall, self._ended, self._event()))

    def resolved(self) -> list[tuple[int, int]]:
        """(step, nanoseconds that the device waited) of the steps it has passed."""
        rows = []
        while self._open and self._open[0][3].query():
            step, wall, before, after = self._open.popleft()
            rows.append((step, min(wall, max(0, round(before.elapsed_time(after) * 1e6)))))
        return rows


def device_gaps(torch: Any) -> DeviceGaps | None:
    """Gaps of the current GPU; None without one."""
    return DeviceGaps(torch.cuda) if torch.cuda.is_available() else None
