"""CPU and run-queue time of a watched step, read in some of the steps where steps are short.

The counters are system calls: with what they push out of the caches they cost a short step more
than everything else that is recorded. A step of `LOOK_NS` or more is looked at every time; shorter
ones at random, so that no rhythm of the loop is met, on average once in `LOOK_NS`. A step that is
not looked at gets the share of its wall time that those looked at had so far: sums are right, a
single step's is an estimate.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from pipeline_profiler.record.recorder import Recorder

LOOK_NS = 5_000_000  # a look costs about 25 microseconds beside a training: half a percent
MOST_STEPS = 64  # from one look to the next, on average


class Share:
    """What part of a wall time a counter took, in the steps that were looked at."""

    __slots__ = ("_taken", "_wall")

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._taken = self._wall = 0

    def seen(self, taken: int, wall: int) -> int:
        """A step was looked at; its own figure."""
        self._taken += taken
        self._wall += wall
        return taken

    def of(self, wall: int) -> int:
        """What a step that was not looked at took."""
        return self._taken * wall // self._wall if self._wall else 0


class Looks:
    """Which steps of a loop are looked at, and what the others are taken to have used; ns."""

    def __init__(self, recorder: Recorder, workers: bool) -> None:
        """With workers the wait is for them, and no queue of this thread is asked."""
        self._cpu = recorder.cpu
        self._queue: Callable[[], int] | None = None if workers else recorder._queue_clock()
        self._draw = random.Random(0)  # of its own: the script's numbers stay what they are
        self.left = 0  # steps before the next look; the loop counts it down, a look is below 0
        self.looking = False
        self._since = self._step = 0  # when the last look began, and at which step
        self._before = self._after = self._queued = 0
        self._waits, self._steps, self._delays = Share(), Share(), Share()

    def begin(self, now: int, step: int) -> None:
        """next() of a step that is looked at is called."""
        period = (now - self._since) // max(1, step - self._step)
        mean = min(MOST_STEPS, LOOK_NS // max(1, period)) if self._since else 0
        self.left = self._draw.randrange(2 * mean + 1) if mean else 0
        self._since, self._step, self.looking = now, step, True
        self._queued = self._queue() if self._queue is not None else -1
        self._before = self._cpu()

    def delivered(self, wall: int) -> tuple[int, int]:
        """It has returned after `wall`: its CPU time and its time in the run queue, or -1."""
        self._after = self._cpu()
        used = self._waits.seen(self._after - self._before, wall)
        if self._queue is None or self._queued < 0:
            return used, -1
        return used, self._delays.seen(max(0, self._queue() - self._queued), wall)

    def stepped(self, wall: int) -> int:
        """The step that was looked at is over: its CPU time."""
        self.looking = False
        return self._steps.seen(self._cpu() - self._after, wall)

    def waited(self, wall: int) -> tuple[int, int]:
        """CPU and run-queue time of a next() that was not looked at."""
        return self._waits.of(wall), -1 if self._queue is None else self._delays.of(wall)

    def worked(self, wall: int) -> int:
        """CPU time of a step that was not looked at."""
        return self._steps.of(wall)
