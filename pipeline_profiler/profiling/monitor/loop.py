"""One loader's loop, recorded at its iterator: what lies between two next() calls is the step.

A step without backward or optimizer counts as evaluation if another loop trains; its time is cut
out of the step it interrupts. Waits of two loaders in one step (`zip`) add up. A step leaves plain
tuples, because code of the recorder is never in the caches; names and estimates come later.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from typing import Any

from pipeline_profiler.profiling.adapters.device_gaps import DeviceGaps
from pipeline_profiler.profiling.measure.environment import resident_bytes
from pipeline_profiler.profiling.record.arm import Arm
from pipeline_profiler.profiling.record.recorder import Recorder, Row, Source
from pipeline_profiler.profiling.record.recorder_live import ASKED_AT, LiveRecorder
from pipeline_profiler.profiling.record.session import MAIN
from pipeline_profiler.profiling.record.stages import StageTimer, activate

LOOK_NS = 10_000_000  # a look costs some tens of microseconds beside a training
MOST_STEPS = 64  # from one look to the next, on average


class Share:
    """What part of a wall time a counter took, in the steps that were looked at."""

    __slots__ = ("_taken", "_wall")

    def __init__(self) -> None:
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
    """Which steps of a loop are looked at, and the estimate for the other steps; ns.

    Counters are system calls: steps of `LOOK_NS` or more are always looked at, shorter ones at
    random, once in `LOOK_NS` on average. Other steps get the share of their wall time that these
    had.
    """

    def __init__(self, recorder: Recorder, workers: bool) -> None:
        self._cpu = recorder.cpu
        self._queue: Callable[[], int] | None = None if workers else recorder._queue_clock()
        self._draw = random.Random(0)  # of its own: the script's numbers stay what they are
        self.left = 0  # steps before the next look; the loop counts it down, a look is below 0
        self.looking = False
        self._since = self._step = 0  # when the last look began, and at which step
        self._before = self._after = self._queued = 0
        self._waits, self.steps, self._delays = Share(), Share(), Share()

    def begin(self, now: int, step: int) -> None:
        """next() of a step that is looked at is called."""
        period = (now - self._since) // max(1, step - self._step)
        mean = min(MOST_STEPS, LOOK_NS // (period + 1)) if self._since else 0
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
        return self.steps.seen(self._cpu() - self._after, wall)

    def waited(self, wall: int) -> tuple[int, int]:
        """CPU and run-queue time of a next() that was not looked at."""
        return self._waits.of(wall), -1 if self._queue is None else self._delays.of(wall)


STEPS_HELD = 1024
STEPS_A_WINDOW = 50  # less between two saves says nothing of memory
# its number, next() called, next() returned, end of the step; where more is known of it: CPU and
# run-queue time of next(), the wait for other loaders after it, CPU time of the step; nanoseconds
# of the clock, -1 where not looked at
HeldStep = tuple[int, ...]
NOT_LOOKED_AT = (-1, -1, 0, -1)


class LoopRecorder(LiveRecorder):
    """Kept to its last steps; what it needs of a step is plain numbers."""

    def __init__(self, workers: bool) -> None:
        super().__init__(arm=Arm.WARM)
        self.trims, self.parcels = True, workers
        # the wall time of a sampler or of a stage in the step: its CPU time is a system call more
        self.timer = StageTimer(self.clock, lambda: 0)
        self.looks_at = Looks(self, workers)
        self.held: list[HeldStep] = []
        self.parts: list[tuple[str, int, int, int]] = []  # name, step, start, end
        self._lately = (0, 0, 0)
        self.grown: list[float] = []  # bytes a step, of each stretch of steps
        self._resident = 0

    def unwrap(self, source: Source, item: Any, wall: int) -> Any:
        """The user's batch; what travelled with it or was timed in next() is put aside."""
        batch, rows = self.receive(source, item, (0, wall, -1, -1), -1)
        self._rows.extend(rows[1:])  # the wait itself is held with its step
        return batch

    def collect_parts(self) -> None:
        """Put aside what `stage()` has timed in the step that ends."""
        at = self.timeline.at
        for name, begin, wall, busy, calls in self.timer.collect():
            row = (f"step:{name}", self.steps, MAIN, at(begin), wall, busy, -1, calls)
            self._rows.append(row)

    def _put_down(self, more: Sequence[Row] = ()) -> None:
        with self._table:
            # those known now: a thread that saves may do this while the loop puts more aside
            steps, parts = self.held[:], self.parts[:]
            rows = [row for step in steps for row in self._spans(step)]
            rows += [
                (f"step:{name}", number, MAIN, self.timeline.at(start), end - start, -1, -1, 1)
                for name, number, start, end in parts
            ]
            self._lately = _sums(rows) if rows else self._lately
            if len(steps) >= STEPS_A_WINDOW:
                resident = resident_bytes()
                self.grown.append((resident - self._resident) / len(steps))
                self._resident = resident
            del self.held[: len(steps)], self.parts[: len(parts)]
        super()._put_down([*rows, *more])

    def _spans(self, step: HeldStep) -> tuple[Row, Row]:
        number, asked, returned, end, *more = step
        used, delay, added, cpu = more or NOT_LOOKED_AT
        looks, at = self.looks_at, self.timeline.at
        wall, start = returned - asked, returned + added
        if used < 0:
            used, delay = looks.waited(wall)
        inside = at(end) - at(start)
        if cpu < 0:
            cpu = looks.steps.of(inside)
        return (
            ("wait", number, MAIN, at(asked), wall + added, used, delay, 1),
            ("loop", number, MAIN, at(start), inside, cpu, -1, 1),
        )

    def recent(self) -> tuple[int, int, int]:
        """Steps lately, nanoseconds that they waited and nanoseconds of the rest."""
        steps = self.held[:]
        if not steps:
            return _sums(self._rows[:]) if self._rows else self._lately
        wait = sum(s[2] - s[1] + sum(s[6:7]) for s in steps)
        return len(steps), wait, sum(s[3] - s[1] for s in steps) - wait


def _sums(rows: Sequence[Row]) -> tuple[int, int, int]:
    loops = [row[4] for row in rows if row[0] == "loop"]
    return len(loops), sum(row[4] for row in rows if row[0] == "wait"), sum(loops)


class TrainingCount:
    """Every piece of training in this process, counted, and the thread of the last one."""

    __slots__ = ("count", "thread")

    def __init__(self) -> None:
        self.count = self.thread = 0


class Loop:
    """The loop over one loader; `trained` counts the steps in which something was trained."""

    def __init__(self, source: Source, training: TrainingCount, number: int) -> None:
        self.source, self.training, self.number = source, training, number
        self.recorder = LoopRecorder(bool(source.config.get("workers")))
        self.recorder.run.config |= source.config
        self.looks, self.timer = self.recorder.looks_at, self.recorder.timer
        self.gaps: DeviceGaps | None = None
        self.trained = 0
        self.complete = 0  # epochs up to the last batch
        self.graded = False  # a batch was asked for while gradients are recorded
        self.listed: Any = ()  # rows (path, class) of the dataset, as ImageFolder has
        self.elsewhere = 0  # trained in another thread than the one that asks for batches
        self.thread = 0  # that called next() last; 0: none in this epoch
        self.of_queue = False  # the batches of another loop, at get() of a queue
        self.unclear = False  # who waits here, where nothing trains
        self.waits_since = 0  # when its queue was first asked for the next batch
        self.ended = False  # what the queue gave last is no batch: it ends an epoch
        self.opened = 0  # when the epoch began
        self.asked = 0  # when next() was called for the step that is open
        self.returned = 0  # when it gave the batch; 0: no step is open
        self.seen = 0  # how much training there had been when it was called
        self._used = (-1, -1)  # CPU and run-queue time of that next()
        self._trained_before = 0  # this epoch
        self.at = ""  # file and line of the loop
        self.iterator: Any = None  # a weak reference
        self.together = False  # its epochs lie inside another's, or beside it
        self.looked = 0  # steps whose parts were timed
        self.stacks: dict[str, int] = {}
        self._others: dict[int, int] = {}  # ns that other loaders took before this step trained

    @property
    def in_step(self) -> bool:
        """Whether a batch was delivered and the next one not asked for."""
        return bool(self.returned)

    @property
    def busy(self) -> bool:
        """Whether something was trained with the batch in hand."""
        return bool(self.returned) and self.training.count != self.seen

    @property
    def own(self) -> int:
        """The steps that the thread which asks for batches has trained."""
        return self.trained - self.elsewhere

    @property
    def training_waits(self) -> bool:
        """Whether the wait at next() is that of the training, or of a script without training."""
        in_main = self.thread in (0, threading.main_thread().ident)
        return self.own > 0 or (in_main and not self.trained and not self.unclear)

    @property
    def trained_here(self) -> int:
        """The steps of this epoch in which something was trained."""
        return self.trained - self._trained_before

    @property
    def plain(self) -> bool:
        """Whether next() and its step need no more than their three readings of the clock."""
        r, more = self.recorder, self.looks.looking or self._others or self.of_queue
        here = self.training.thread in (0, self.thread)
        return here and not (more or self.gaps or r.parcels) and r.steps > ASKED_AT

    @property
    def waited(self) -> int:
        """Nanoseconds of the next() that gave the batch in hand."""
        return self.returned - self.asked

    def open(self, start: int, end: int) -> None:
        """An epoch begins: its iter() call."""
        self.end_step(start)
        self.recorder.open_epoch(start, end)
        self.opened, self.thread = start, 0
        self._trained_before = self.trained
        activate(self.recorder.timer)

    def ask(self, deliver: Callable[[Any], Any], iterator: Any) -> Any:
        """The next batch; `deliver` is the iterator's own next()."""
        r, looks = self.recorder, self.looks
        start = r.clock()
        self.end_step(start)
        self.seen = self.training.count  # another thread may train while this one waits
        if self.gaps is not None:
            self.gaps.asked()
        looks.left -= 1
        if looks.left < 0:
            looks.begin(start, r.steps)
        item = deliver(iterator)
        end = r.clock()
        self.asked = self.waits_since or start
        self._used = looks.delivered(end - start) if looks.looking else (-1, -1)
        if self.waits_since:
            self._used = (0, -1)  # a thread that waits at a queue needs no core
        if r.parcels or r.timer.sums or r.steps == ASKED_AT:
            item = r.unwrap(self.source, item, end - start)
        if self.gaps is not None:
            self.gaps.delivered(r.steps, end - start)
        self.returned = end
        return item

    def begin_wait(self, now: int) -> None:
        """The queue of this loop is asked for a batch, maybe again: nothing has trained since."""
        if not self.waits_since or self.training.count != self.seen:
            self.end_step(now)
            self.waits_since, self.seen = now, self.training.count

    def end_step(self, now: int) -> None:
        """The step that is open ends here."""
        start, busy = self.returned, self.busy
        self.returned = 0
        r = self.recorder
        if not start:
            return
        if self.ended and not busy:
            r.timeline.leave_out(start, now)
            self.looks.looking = False
            self._others.clear()
            return
        if busy:
            self.trained += 1
            self.elsewhere += self.training.thread != self.thread
        cpu = -1
        if self.looks.looking:
            cpu = self.looks.stepped(now - start)
            self.looked += 1
        more = 0
        if self._others:
            more = min(sum(self._others.values()), now - start)
            self._others.clear()
        if self.gaps is not None:
            r.add_exposed(start, self.gaps.resolved())
        if r.timer.sums:
            r.collect_parts()
        r.held.append((r.steps, self.asked, start, now, *self._used, more, cpu))
        self._used = (-1, -1)
        r.steps += 1
        if len(r.held) > STEPS_HELD:
            r._put_down()

    def wait_for_other(self, other: Loop, wall: int) -> None:
        """Another loader was asked for a batch before this step trained."""
        if not self.busy:
            self._others[id(other)] = self._others.get(id(other), 0) + wall

    def interrupted(self, other: Loop, now: int) -> None:
        """Another loop ended that ran inside this step and trained nothing: an evaluation."""
        self._others.pop(id(other), None)
        self.recorder.timeline.leave_out(max(other.opened, self.returned), now)

    def add_stage(self, name: str, start: int, end: int) -> None:
        """A part of the step that is open."""
        self.recorder.parts.append((name, self.recorder.steps, start, end))

    def close(self) -> None:
        """The epoch is over."""
        self.end_step(self.recorder.clock())
        self.recorder.close_epoch()
        activate(None)
