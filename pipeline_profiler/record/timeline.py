"""The time of a recorded loop: the clock's, without the stretches that belong to no step.

A validation between two epochs, or in the middle of one, is neither waiting for data nor training.
It is cut out of the timeline once, so that every figure made from the spans is right by itself:
what lies after the cut moves forward by its length, what lies inside it falls on its beginning.
"""

from __future__ import annotations

from bisect import bisect_right


class Timeline:
    """Clock readings without what was left out; nanoseconds."""

    def __init__(self) -> None:
        """Nothing is left out yet."""
        self._starts: list[int] = []
        self._before: list[int] = []  # left out before each start
        self.left_out = 0
        self._end = 0

    def leave_out(self, start: int, end: int) -> None:
        """Cut a stretch out; stretches come in order of time, and one inside another is part of it.

        `start` and `end` are clock readings.
        """
        start = max(start, self._end)
        if end <= start:
            return
        self._starts.append(start)
        self._before.append(self.left_out)
        self.left_out += end - start
        self._end = end

    def at(self, reading: int) -> int:
        """Where a clock reading lies."""
        if reading >= self._end:
            return reading - self.left_out
        row = bisect_right(self._starts, reading) - 1
        if row < 0:
            return reading
        last = row + 1 == len(self._starts)
        length = (self.left_out if last else self._before[row + 1]) - self._before[row]
        into = min(reading - self._starts[row], length)
        return reading - self._before[row] - into
