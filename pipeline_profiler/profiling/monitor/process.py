"""What a watched process records: its loops, the phases of its step, and where that is saved."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import util
from pathlib import Path
from time import perf_counter_ns
from types import TracebackType
from typing import Any

from dataset_preflight.foundation.ending import end_process
from dataset_preflight.foundation.terminal import show_progress
from pipeline_profiler.profiling.measure.environment import (
    Meter,
    describe,
    growth_notes,
    shares_of_cores,
)
from pipeline_profiler.profiling.monitor.loop import Loop, TrainingCount
from pipeline_profiler.profiling.monitor.prediction_grid import PredictionGrid
from pipeline_profiler.profiling.record.opened_files import current_log
from pipeline_profiler.profiling.record.recorder import Source
from pipeline_profiler.profiling.record.recorder_live import (
    MAIN_INTERVAL_S,
    WORKER_INTERVAL_S,
    Repeated,
    replace_saved,
)
from pipeline_profiler.profiling.record.session import Run, Session, utc_now
from pipeline_profiler.profiling.record.stack_sampler import StackSampler
from pipeline_profiler.profiling.record.stages import activate

EVERY_S = 2.0
LEAST_STEPS = 20  # of a loop that is judged beside the main one
MOST_LOOPS = 4  # of one process that are judged
MAX_STEP_S = 10.0  # the script ends within its step at the latest so long after its time
UNTRAINED = "a thread draws the batches and no training shows whether another thread waits for them"


def live_text(main: Loop | None) -> str:
    """'watch: step 812 · wait 12 % · 512 samples/s · 1.2 GB', of the newest rows."""
    if main is None or not main.recorder.steps:
        return "watch: no step yet"
    steps, wait, loop = main.recorder.recent()
    parts = [f"watch: step {main.recorder.steps}"]
    if wait + loop and main.training_waits and main.recorder.run.config.get("wait_told", True):
        parts.append(f"wait {wait / (wait + loop):.0%}")
    size = main.recorder.run.config.get("batch_size")
    if size and wait + loop:
        parts.append(f"{size * steps / (wait + loop) * 1e9:,.0f} samples/s")
    return " · ".join([*parts, _memory()])


def _memory() -> str:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return f"{torch.cuda.memory_allocated() / 1e9:.1f} GB on the GPU"
    import resource

    return f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.1f} GB"


VARIABLE = "PIPELINE_PROFILER_WATCH"
_HERE = str(Path(__file__).parents[2])  # as frames say it: links stay


@dataclass(frozen=True)
class WatchOrder:
    """What the program that started the script asks of every process."""

    output: str  # absolute
    every_s: float
    folder: str  # each process leaves a note there: where it has saved
    home: str  # the folder that holds this package and nothing that is not ours
    parent: int
    quiet: bool = False
    grid: int | list[int] = 0  # samples whose predictions are recorded: a number, or indices
    seconds: float = 0.0  # from the first batch on, then the script is ended; 0: it runs to its end
    opened: str = ""  # a file for the names of the files that are read; '': not recorded
    hold: tuple[str, ...] = ()  # scratch and copied folder, where no overlay holds writes back
    hooks: Mapping[str, str] = field(default_factory=dict)


class WatchedProcess:
    """The loops of this process, the training one among them, and the session they make."""

    def __init__(self, order: WatchOrder) -> None:
        self.order, self.pid = order, os.getpid()
        self.loops: dict[Any, Loop] = {}
        self.active: list[Loop] = []  # epochs that are open, the innermost last
        self.alone: Loop | None = None  # the only one that is open, where it is plain
        self.training = TrainingCount()
        self.drawing: dict[int, Loop] = {}  # what threads of the script draw, by thread
        self.looking = False  # whether the parts of the open step are timed; `Looks` decides
        self.on_look: Callable[[bool], None] = lambda on: None
        self.on_draw: Callable[[], None] = lambda: None  # a thread draws: its queues are followed
        self.fitting: Callable[[int, int], None] | None = None  # told what a step of Keras draws
        self.phase = "outside"
        self.totals = {"evaluation_ns": 0, "checkpoint_ns": 0}
        self.rank: int | None = None
        self.undo: list[Callable[[], None]] = []  # takes the hooks out again
        self.predictions: PredictionGrid | None = None
        self._saved: dict[Path, Path] = {}  # where each session was last written
        self._machine = Meter()
        self._saving = threading.Lock()
        self._sampler = StackSampler.start_beside(lambda: self.phase, MAIN_INTERVAL_S)
        self._until = 0.0  # when the script is ended
        self._ended = False
        self._autosave = Repeated(self._save_or_end, order.every_s, "profile-autosave")
        self._line: Repeated | None = None
        first = os.environ.get("RANK", "0") == "0"
        if first and not order.quiet and sys.stderr is not None and sys.stderr.isatty():
            say = lambda: show_progress(live_text(self.main))  # noqa: E731
            self._line = Repeated(say, EVERY_S, "profile-live-line")
        _hide_our_frames()
        atexit.register(self.end)
        util.Finalize(None, self.end, exitpriority=1)  # children that multiprocessing has forked

    def loop_of(self, key: Any, source: Source) -> Loop:
        """The loop over a loader; loaders of one kind, made anew each epoch, share one."""
        found = self.loops.get(key)
        if found is None:
            found = self.loops[key] = Loop(source, self.training, len(self.loops) + 1)
        found.source = source
        return found

    def open(self, loop: Loop, start: int, end: int) -> None:
        """An epoch of `loop` begins."""
        if loop in self.active:  # left by `break`
            self.close(loop)
        if self.order.seconds and not self._until:
            self._until = time.monotonic() + self.order.seconds
        loop.together |= bool(self.active)
        self.alone = None
        loop.open(start, end)
        self.active.append(loop)

    def take_over(self, loop: Loop, start: int, end: int) -> None:
        """This thread takes its batches from a queue; what it does is the training's."""
        thread = threading.get_ident()
        self.active[:] = [other for other in self.active if other.thread == thread]
        loop.end_step(start)
        if loop.trained:
            self._put_in_order(loop)
        self.open(loop, start, end)
        self._sampler.stop()
        self._sampler = StackSampler.start_beside(lambda: self.phase, MAIN_INTERVAL_S)

    def follow(self, loop: Loop, iterator: Any) -> None:
        """Close the epoch of `loop` when its iterator is gone: the loop was left by `break`."""

        def gone(reference: Any) -> None:
            if loop.iterator is reference and loop in self.active:
                self.close(loop)

        loop.iterator = weakref.ref(iterator, gone)

    def ask(self, loop: Loop, deliver: Callable[[Any], Any], iterator: Any, trains: bool) -> Any:
        """The next batch of `loop`, `deliver(iterator)`; `trains`: gradients are recorded here."""
        plain = loop is self.alone and loop.looks.left > 0 and not loop.timer.sums
        if not plain:
            if self.is_late:
                self.leave()
            loop.graded |= trains
            if (log := current_log()) is not None:
                log.loader = loop.number
        known = plain or loop.thread == self.training.thread == threading.get_ident()
        if not known and self._only_draws(loop):
            return loop.ask(deliver, iterator)
        if not plain and (len(self.active) != 1 or self.active[0] is not loop):
            self._put_in_order(loop)
            activate(loop.recorder.timer)
        self.phase = "wait" if trains else "outside"
        try:
            if plain:  # most steps of a fraction of a millisecond: see `loop`
                start, r, training = perf_counter_ns(), loop.recorder, self.training
                if loop.returned:
                    r.held.append((r.steps, loop.asked, loop.returned, start))
                    r.steps += 1
                    if training.count != loop.seen:
                        loop.trained += 1
                        loop.elsewhere += training.thread != loop.thread
                        loop.seen = training.count
                loop.asked, loop.returned = start, 0
                loop.looks.left -= 1
                batch = deliver(iterator)
                loop.returned = perf_counter_ns()
                self.phase = "step" if trains else "outside"
                return batch
            batch = loop.ask(deliver, iterator)
        except BaseException as error:
            if isinstance(error, StopIteration):
                loop.complete += 1
            else:
                said = f"{type(error).__name__}: {error}"[:200]
                loop.recorder.run.notes.append(f"step {loop.recorder.steps}: {said}")
            self.close(loop)
            raise
        self.phase = "step" if trains else "outside"
        # ranks are compared part by part, in every step
        looking = loop.looks.looking or self.rank is not None
        if looking is not self.looking:
            self.looking = looking
            self.on_look(looking)
        if len(self.active) > 1:
            for outer in self.active:
                if outer is not loop and outer.in_step:
                    outer.wait_for_other(loop, loop.waited)
        self.alone = loop if self.active == [loop] and not looking and loop.plain else None
        return batch

    def _only_draws(self, loop: Loop) -> bool:
        """Whether this thread hands the batches over; its queues are followed where it may."""
        thread, training = threading.get_ident(), self.training.thread
        loop.thread = thread
        beside = thread != training and bool(training or loop.unclear) and not loop.own
        if beside or thread != threading.main_thread().ident:
            if not self.drawing:
                self.on_draw()
            self.drawing[thread] = loop
        if beside and loop in self.active:
            self.active[:] = [other for other in self.active if other is not loop]
            self.alone = None
        return beside

    def _put_in_order(self, loop: Loop) -> None:
        """Close the inner loops that were left by `break`; open one whose iterator lives on."""
        for inner in [other for other in self.active if other.opened > loop.opened]:
            if not inner.trained_here and (loop.trained or not inner.in_step):
                self.close(inner)
        if loop not in self.active:
            self.active.append(loop)

    def close(self, loop: Loop) -> None:
        """The epoch of `loop` is over."""
        self.alone = None
        self._drain()
        loop.close()
        if loop in self.active:
            self.active.remove(loop)
        now = loop.recorder.clock()
        if not loop.trained_here:
            outer = [other for other in self.active if other.in_step]
            for other in outer:
                other.interrupted(loop, now)
            if outer or any(other.trained for other in self.loops.values()):
                self.totals["evaluation_ns"] += now - loop.opened
        self.phase = "step" if any(other.in_step for other in self.active) else "outside"
        if self.active:
            activate(self.active[-1].recorder.timer)

    def trains(self) -> None:
        """Something trains, whose time is not taken in this step."""
        self.training.count += 1
        self.training.thread = threading.get_ident()

    @property
    def trained(self) -> bool:
        """Whether something has trained with each batch in hand."""
        return all(loop.busy for loop in self.active if loop.returned)

    @property
    def steps(self) -> int:
        """Steps of the outermost loop that is open."""
        return self.active[0].recorder.steps if self.active else 0

    def train(self, name: str, start: int, end: int) -> None:
        """A part of the step that trains: book it, and tell the loops that hold a batch."""
        self.trains()
        self.add_stage(name, start, end)

    def add_stage(self, name: str, start: int, end: int) -> None:
        """A part of the step, booked to the outermost loop that holds a batch."""
        for loop in self.active:
            if loop.returned:
                loop.add_stage(name, start, end)
                return

    def leave_out(self, start: int, end: int) -> None:
        """A stretch that is ours and no part of the step."""
        for loop in self.active[:1]:
            loop.recorder.timeline.leave_out(start, end)

    @property
    def main(self) -> Loop | None:
        """The loop that trains; where none does, the longest."""
        rank = lambda a: (a.own, a.trained, a.training_waits, a.recorder.steps)  # noqa: E731
        return max(list(self.loops.values()), key=rank, default=None)

    def sessions(self) -> list[Session]:
        """What was recorded so far: the main loop, then others that trained for themselves."""
        main = self.main
        others = [
            loop
            for loop in list(self.loops.values())
            if loop is not main
            and main is not None
            and loop.own >= LEAST_STEPS
            and not (loop.together or main.together)
        ]
        others.sort(key=lambda loop: -loop.own)
        apart = others[: MOST_LOOPS - 1]
        return [self.session(apart), *(self._session_of(loop, [], {}) for loop in apart)]

    def session(self, apart: Sequence[Loop] = ()) -> Session:
        """What was recorded so far of the loop that trains; `apart` have sessions of their own."""
        main = self.main
        if main is None:
            return self._session_of(None, [], {})
        totals = {k: v for k, v in self.totals.items() if v}
        made = self._session_of(main, _other_loops(main, list(self.loops.values()), apart), totals)
        if self.predictions is not None:
            made.results["predictions"] = self.predictions.document()
        return made

    def _session_of(self, loop: Loop | None, notes: list[str], totals: dict[str, int]) -> Session:
        runs: list[Run] = []
        if loop is not None:
            run = loop.recorder.snapshot()
            run.totals |= totals
            run.totals["trained_steps"] = loop.trained
            run.totals["elsewhere_steps"] = loop.elsewhere
            if not (loop.trained or loop.training_waits):
                run.config = run.config | {"wait_told": False, "wait_untold": UNTRAINED}
            run.totals["looked_steps"] = loop.looked
            if self.rank is not None:
                run.totals["rank"] = self.rank
            self._add_stacks(run, loop)
            runs.append(run)
            notes += growth_notes(loop.recorder.grown)
        return Session(
            runs=runs,
            notes=notes,
            created=utc_now(),
            environment=describe()
            | shares_of_cores(self._machine.taken())
            | {"watched": " ".join(sys.argv)[:200]}
            | ({"loop_at": loop.at} if loop is not None and loop.at else {}),
        )

    def _drain(self) -> None:
        """Stack samples belong to the outermost loop that is open, between two to the main one."""
        loop = self.active[0] if self.active else self.main
        if loop is None:
            return
        for place, weight in self._sampler.drain():
            loop.stacks[place] = loop.stacks.get(place, 0) + weight

    def _add_stacks(self, run: Run, loop: Loop) -> None:
        self._drain()
        for place, weight in loop.stacks.items():
            run.stacks[place] = run.stacks.get(place, 0) + weight
        interval = WORKER_INTERVAL_S if run.config.get("workers") else MAIN_INTERVAL_S
        run.totals["stack_us"] = round(interval * 1e6)

    def save(self) -> None:
        """Write the session, in silence: nothing here may end a training."""
        if os.getpid() != self.pid:
            return
        with self._saving, contextlib.suppress(Exception):
            self.rank = process_rank(self.rank)
            path = self._path()
            for number, session in enumerate(self.sessions(), 1):
                own = (
                    path
                    if number == 1
                    else path.with_name(f"{path.stem}-loop{number}{path.suffix}")
                )
                self._saved[own] = replace_saved(session, own, self._saved.get(own))
            told = "\n".join(map(str, self._saved.values()))
            Path(self.order.folder, f"{self.pid}.note").write_text(told)

    @property
    def is_late(self) -> bool:
        """Whether the script has had its time."""
        return 0 < self._until < time.monotonic()

    def _save_or_end(self) -> None:
        self.save()
        if self.is_late:
            self.alone = None  # the next batch is asked for where `is_late` is read
            if time.monotonic() > self._until + MAX_STEP_S:
                self.leave()

    def leave(self) -> None:
        """Save, and end the process: nothing of the script runs after this."""
        self.end()
        end_process()

    def _path(self) -> Path:
        """`profile.json` for the script itself, `profile-rank1.json` for a rank, else by number."""
        path = Path(self.order.output)
        if self.rank is not None:
            return path.with_name(f"{path.stem}-rank{self.rank}{path.suffix}")
        if os.getppid() == self.order.parent:
            return path
        return path.with_name(f"{path.stem}-process{self.pid}{path.suffix}")

    def end(self) -> None:
        """Stop what goes on beside the loops, and save for the last time."""
        if os.getpid() != self.pid:
            return
        atexit.unregister(self.end)
        self.phase = "outside"
        if self._line is not None:
            self._line.end()
            show_progress("")
        self._autosave.end()
        for loop in list(self.active):
            self.close(loop)
        self.save()
        if (log := current_log()) is not None and not self._ended:
            trained = any(loop.trained for loop in self.loops.values())
            for loop in self.loops.values():
                kind = "train" if (loop.trained if trained else loop.graded) else "evaluation"
                log.add_loader(loop.number, kind, loop.complete, loop.listed)
        self._ended = True
        self._sampler.stop()
        for undo in self.undo:
            undo()


def _hide_our_frames() -> None:
    """A traceback of the script shows the frames it would show unwatched."""
    if sys.excepthook is not sys.__excepthook__:
        return

    def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        kept = []
        while trace is not None:
            if not trace.tb_frame.f_code.co_filename.startswith(_HERE):
                kept.append((trace.tb_frame, trace.tb_lasti, trace.tb_lineno))
            trace = trace.tb_next
        for row in reversed(kept):
            trace = TracebackType(trace, *row)
        sys.__excepthook__(kind, error.with_traceback(trace), trace)

    sys.excepthook = show


def _other_loops(main: Loop, loops: Sequence[Loop], apart: Sequence[Loop]) -> list[str]:
    known = (main, *apart)
    rows = [loop for loop in loops if loop not in known and loop.recorder.steps]
    trained = sum(loop.recorder.steps for loop in rows if loop.own)
    passive = sum(loop.recorder.steps for loop in rows if not (loop.trained or loop.unclear))
    notes = []
    if trained:
        notes.append(f"{trained} more training steps had another loader: they are not judged.")
    if passive and main.trained:
        notes.append(f"{passive} batches were evaluated: they are no part of the training step.")
    return notes


def process_rank(known: int | None) -> int | None:
    """This process's rank among several, once it is known; the group may be gone at the end."""
    if known is not None:
        return known
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and os.environ.get("RANK", "").isdigit():
        return int(os.environ["RANK"])
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return int(distributed.get_rank()) if distributed.get_world_size() > 1 else None


_STATE: WatchedProcess | None = None


def watched_process() -> WatchedProcess:
    """The state of this process; made at its first batch, and anew after a fork."""
    global _STATE
    if _STATE is None:
        _STATE = WatchedProcess(WatchOrder(**json.loads(os.environ[VARIABLE])))
        os.register_at_fork(after_in_child=_forget)
    if _STATE.rank is None:
        _STATE.rank = process_rank(None)
    return _STATE


def known_process() -> WatchedProcess | None:
    """The state of this process where it has begun to record."""
    return _STATE


def _forget() -> None:
    """In a fork: what it trains, if it does, is a process of its own."""
    global _STATE
    _STATE = None
