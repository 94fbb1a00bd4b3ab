"""The recorder of a watched loop: clock readings put aside, spans made of them by the thousand.

Beside a step of a fraction of a millisecond the code of a recorder is never in the caches: every
function it calls costs ten times what it costs alone. So a step leaves one tuple and a part of it
another; names, the timeline and estimates are put in when a thousand of them are there, or when
the run is saved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipeline_profiler.record.arm import Arm
from pipeline_profiler.record.recorder import Source
from pipeline_profiler.record.recorder_live import LiveRecorder
from pipeline_profiler.record.session import MAIN
from pipeline_profiler.record.stages import StageTimer
from pipeline_profiler.watching.looks import Looks

STEPS_HELD = 1024
# its number, next() called, its CPU and its run-queue time, next() returned, the wait for other
# loaders after it, end of the step, its CPU time; nanoseconds of the clock, -1 where not looked at
HeldStep = tuple[int, int, int, int, int, int, int, int]
Row = tuple[Any, ...]


class LoopRecorder(LiveRecorder):
    """Kept to its last steps; what it needs of a step is plain numbers."""

    def __init__(self, workers: bool) -> None:
        """With workers the batches come in parcels, and the wait is not this thread's work."""
        super().__init__(arm=Arm.WARM)
        self.trims, self.parcels = True, workers
        # the wall time of a sampler or of a stage in the step: its CPU time is a system call more
        self.timer = StageTimer(self.clock, lambda: 0)
        self.looks_at = Looks(self, workers)
        self.held: list[HeldStep] = []
        self.parts: list[tuple[str, int, int, int]] = []  # name, step, start, end
        self._lately = (0, 0, 0)

    def unwrap(self, source: Source, item: Any, wall: int) -> Any:
        """The user's batch; what travelled with it or was timed in next() is put aside."""
        batch, rows = self.receive(source, item, (0, wall, -1, -1), -1)
        self._rows.extend(rows[1:])  # the wait itself is held with its step
        return batch

    def end_step(self, step: HeldStep) -> None:
        """A step is over."""
        if self.timer.has_sums:
            at = self.timeline.at
            for name, begin, wall, busy, calls in self.timer.collect():
                row = (f"step:{name}", self.steps, MAIN, at(begin), wall, busy, -1, calls)
                self._rows.append(row)
        self.held.append(step)
        self.steps += 1
        if len(self.held) > STEPS_HELD:
            self._put_down()

    def _put_down(self, more: Sequence[Row] = ()) -> None:
        with self._table:
            # those known now: a thread that saves may do this while the loop puts more aside
            steps, parts = self.held[:], self.parts[:]
            rows = [row for step in steps for row in self._spans(step)]
            rows += [self._part(*part) for part in parts]
            self._lately = _sums(rows) if rows else self._lately
            del self.held[: len(steps)], self.parts[: len(parts)]
        super()._put_down([*rows, *more])

    def _spans(self, step: HeldStep) -> tuple[Row, Row]:
        number, asked, used, delay, returned, added, end, cpu = step
        looks, at = self.looks_at, self.timeline.at
        wall, start = returned - asked, returned + added
        if used < 0:
            used, delay = looks.waited(wall)
        inside = at(end) - at(start)
        if cpu < 0:
            cpu = looks.worked(inside)
        return (
            ("wait", number, MAIN, at(asked), wall + added, used, delay, 1),
            ("loop", number, MAIN, at(start), inside, cpu, -1, 1),
        )

    def _part(self, name: str, number: int, start: int, end: int) -> Row:
        return (f"step:{name}", number, MAIN, self.timeline.at(start), end - start, -1, -1, 1)

    def recent(self) -> tuple[int, int, int]:
        """Steps lately, nanoseconds that they waited and nanoseconds of the rest."""
        steps = self.held[:]
        if not steps:
            return _sums(self._rows[:]) if self._rows else self._lately
        wait = sum(s[4] - s[1] + s[5] for s in steps)
        return len(steps), wait, sum(s[6] - s[1] for s in steps) - wait


def _sums(rows: Sequence[Row]) -> tuple[int, int, int]:
    """Steps, waiting and the rest, of spans."""
    loops = [row[4] for row in rows if row[0] == "loop"]
    return len(loops), sum(row[4] for row in rows if row[0] == "wait"), sum(loops)
