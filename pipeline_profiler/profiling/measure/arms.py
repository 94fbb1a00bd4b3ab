"""The measured configurations and their interleaved schedule.

Preloaded batches on the device, the same from host memory (CUDA), the same while the real loader
runs beside them (shadow), and the warm loader. Configurations of a block run in random order, and
ratios are taken inside it. The stall (warm - resident) splits into copy (host - resident),
contention (shadow - host) and preparation (warm - shadow).
"""

from __future__ import annotations

import gc
import itertools
import math
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pipeline_profiler.profiling.adapters import attach, module_for, tf_data, torch_loader
from pipeline_profiler.profiling.adapters.device_gaps import DeviceGaps
from pipeline_profiler.profiling.measure import environment
from pipeline_profiler.profiling.measure.preloaded_batches import Cycle, Preloaded, as_given
from pipeline_profiler.profiling.measure.watchdog import Guard
from pipeline_profiler.profiling.record.arm import (
    IN_HAND,
    PRELOADED,
    TRAINED_FROM_LOADER,
    WITH_LOADER,
    Arm,
)
from pipeline_profiler.profiling.record.plan import Plan, Setting, idle_workers
from pipeline_profiler.profiling.record.recorder import Recorder, Source
from pipeline_profiler.profiling.record.session import Run, Session
from pipeline_profiler.profiling.record.stages import Clock, median_ns

Step = Callable[[Any], Any]
Progress = Callable[[str], None]
NULL_WARMUP, NULL_LEAST, NULL_STEPS, NULL_SECONDS = 10, 20, 110, 0.8
HANDING_SHARE = 0.2  # of the step, that handing it a batch may take
LOOK_ON = 3.0  # times as long is a stream looked along whose first worker has nothing more
ALONE_STEPS = 500  # of the loader alone in a block, at most
LONGEST_NULL_MS = 40.0  # 20 hand-overs of 2 ms: beyond it the floor is never asked for
FULL_SECONDS, QUICK_SECONDS = 105.0, 25.0
MOST_NS = 1 << 62
QUICK_END_S = 30.0  # from the start of the process to its end, with --quick
ENDING_S, REPORT_S = 4.5, 2.2  # for the last probes and the report; for the report alone
LEAST_QUICK_SECONDS = 15.0  # budget of --quick after a slow import
LEAST_STEPS = 6  # timed steps of a configuration in a block
SAVED_EVERY_S = 10.0
NAN_NOTE = (
    "The step returned NaN: timings are kept, but check the training first "
    "(learning rate, input range) with `pipeline-profiler check`."
)


@dataclass(frozen=True)
class Options:
    """What the caller chose."""

    steps: int = 300
    repeats: int = 5
    quick: bool = False
    seed: int = 0
    seconds: float | None = None  # budget; None: 105 s, quick 25 s
    emulate_ms: float | None = None
    spent: float = 0.0  # seconds before the measurement began: imports, making the loader

    @property
    def exact(self) -> bool:
        """Whether the end of the command is promised: `--quick` without `--seconds`."""
        return self.quick and not self.seconds

    @property
    def budget(self) -> float:
        """Seconds all arms together may take; `--quick` promises the end, not the length."""
        if not self.exact:
            return self.seconds or FULL_SECONDS
        return max(LEAST_QUICK_SECONDS, min(QUICK_SECONDS, QUICK_END_S - ENDING_S - self.spent))


@dataclass(frozen=True)
class TimeLimit:
    """The time after which a run ends before its last step."""

    seconds: float = math.inf  # from the first batch, in a first pass from the end of its step
    end_ns: float = math.inf  # reading of the clock
    min_steps: int = 0  # that are run in any case
    rounds: int = 1  # steps beyond `min_steps` are whole rounds of so many

    def reached(self, steps: int, first_ns: float, now: int) -> bool:
        """Return whether a run of so many steps, whose first batch came at `first_ns`, ends."""
        whole = steps >= self.min_steps and (steps - self.min_steps) % self.rounds == 0
        return whole and now >= min(self.end_ns, first_ns + self.seconds * 1e9)


NO_LIMIT = TimeLimit()


@dataclass
class Bench:
    """The measured thing: how to make a loader, the step, and the clock."""

    make_loader: Callable[[], Any]
    step: Step
    clock: Clock = time.perf_counter_ns
    progress: Progress = field(default=lambda text: None)
    guard: Guard = field(default_factory=Guard)
    command: dict[str, str] = field(default_factory=dict)  # what a session keeps of it
    epoch_steps: int = 0  # as the user says; 0: as the loader tells
    seed: int = 0
    look: Look | None = None  # at a stream whose places are reached by drawing alone
    handed_over: dict[str, int] = field(default_factory=dict)  # what a first worker would cost, ns
    run_end_ns: float = math.inf  # reading of the clock at which a timed window is cut
    end_ns: float = math.inf  # at which no further probe begins
    rhythm: int = 1  # steps after which the step's own time repeats
    _saved_ns: int = 0
    _loader: Any = None
    _settings: dict[str, Any] | None = None

    def loader(self) -> Any:
        """The loader; made again only where one pass uses it up."""
        if self._loader is None or hasattr(self._loader, "__next__"):
            self._loader = self.make_loader()
        return self._loader

    def tell(self, text: str) -> None:
        """Say what begins now, to the reader and to the watchdog."""
        self.guard.pulse.doing = text.partition("\n")[0]
        self.progress(text)

    def has_time(self, seconds: float) -> bool:
        """Return whether so many seconds are left for probes."""
        return self.clock() + seconds * 1e9 <= self.end_ns

    def save_meanwhile(self, session: Session) -> None:
        """Save what there is; seconds apart, as writing disturbs the page cache."""
        if self.clock() - self._saved_ns > SAVED_EVERY_S * 1e9:
            self.guard.save_meanwhile(session)
            self._saved_ns = self.clock()

    def settings(self) -> dict[str, Any]:
        """The loader's settings, by its adapter; asked for once."""
        if self._settings is None:
            loader = self.loader()
            self._settings = dict(module_for(loader).describe(loader))
        return self._settings


def emulated_step(milliseconds: float) -> Step:
    """A step that takes its time and no core, as an accelerator's does (time.sleep)."""
    seconds = milliseconds / 1e3

    def step(batch: Any) -> None:
        time.sleep(seconds)

    return step


def drive(
    bench: Bench,
    loader: Any,
    recorder: Recorder,
    steps: int,
    limit: TimeLimit = NO_LIMIT,
    preloaded: Preloaded | None = None,
    passed_over: range = range(0),
) -> None:
    """Train for `steps` steps, or until the limit, over as many epochs as that takes.

    Fill `preloaded` with the first batches. Batches of `passed_over` are drawn without training.
    The device is synchronised at the edges of the timed window only.
    """
    bench.guard.pulse.recorder = recorder
    if bench.epoch_steps:
        recorder.run.config["epoch_steps"] = bench.epoch_steps
    first_ns = math.inf
    watched = recorder.run.arm in TRAINED_FROM_LOADER and environment.has_cuda()
    gaps = DeviceGaps(sys.modules["torch"].cuda) if watched else None
    pulse = bench.guard.pulse
    real = bench.clock is time.perf_counter_ns  # a clock that tests move meters no machine
    # a first pass is metered from its start, else the timed window
    meter = environment.Meter() if real and recorder.run.arm == Arm.PILOT else None
    try:
        while recorder.steps < steps and not limit.reached(recorder.steps, first_ns, bench.clock()):
            before = recorder.steps
            epoch = recorder.watch(loader)
            for batch in epoch:
                if gaps is not None:
                    gaps.delivered(recorder.steps, MOST_NS)
                first_ns = min(first_ns, bench.clock())
                if preloaded is not None and len(preloaded) < PRELOADED:
                    preloaded.append(as_given(batch))  # now: the step may change its batch
                if recorder.steps not in passed_over:
                    with recorder.step():
                        _check(bench.step(batch), recorder.run.notes)
                if gaps is not None:
                    gaps.asked()
                pulse.steps += 1
                if preloaded is not None and len(preloaded) == 1:
                    first_ns = bench.clock()
                # one more: the last step is counted when the generator is closed
                done = recorder.steps + 1
                over = done >= steps or limit.reached(done, first_ns, bench.clock())
                if over or done == recorder.run.warmup:
                    synchronise()
                    meter = _at_edge(recorder, meter) if real else None
                if over:
                    break
            _close(epoch)
            # an empty epoch would be asked for again for ever
            if recorder.steps == before:
                break
    finally:
        if meter is not None and recorder.run.arm == Arm.PILOT:
            recorder.run.totals |= meter.taken()
        if gaps is not None:
            recorder.add_exposed(bench.clock(), gaps.resolved())
        recorder.session()


def _at_edge(recorder: Recorder, meter: environment.Meter | None) -> environment.Meter:
    """Meter the machine from the first edge of the timed window, store totals at the last."""
    begin = recorder.clock()
    if meter is None:
        meter = environment.Meter()
    else:
        recorder.run.totals |= meter.taken()
    recorder.timeline.leave_out(begin, recorder.clock())
    return meter


def _check(result: Any, notes: list[str]) -> None:
    """A NaN loss is worth a sentence: its arithmetic may take another path on some hardware."""
    if isinstance(result, float) and math.isnan(result) and NAN_NOTE not in notes:
        notes.append(NAN_NOTE)  # once a run, not once a step


def _close(epoch: Any) -> None:
    epoch.close()


def synchronise() -> None:
    """Wait for the device; nothing where there is none."""
    if environment.has_cuda():
        sys.modules["torch"].cuda.synchronize()


class Shadow:
    """The shadow loader: the real one, drained by a thread at one batch a step, and dropped."""

    def __init__(self, source: Source) -> None:
        self.source = source
        # one token a step: without it the shadow would load ahead as fast as it can
        self._tokens = threading.Semaphore(0)
        self._stop = False
        self.error: BaseException | None = None
        self._iterator: Any = iter(source.iterable)
        self._thread = threading.Thread(target=self._drain, daemon=True, name="shadow-loader")
        self._thread.start()

    def take(self) -> None:
        """Allow the thread one more batch."""
        self._tokens.release()

    def _drain(self) -> None:
        while True:
            self._tokens.acquire()
            if self._stop:
                return
            try:
                next(self._iterator)
            except StopIteration:
                self._iterator = iter(self.source.iterable)
            except BaseException as error:  # noqa: BLE001 - handed to the main thread, raised there
                self.error = error
                return

    def close(self) -> None:
        """Stop the thread and the loader's workers."""
        self._stop = True
        self._tokens.release()
        self._thread.join(timeout=30.0)
        self._iterator = None


class _Shadowed:
    """Kept batches that let the shadow take one batch each."""

    def __init__(self, cycle: Cycle, shadow: Shadow) -> None:
        self.cycle, self.shadow = cycle, shadow

    def __iter__(self) -> Iterator[Any]:
        for batch in self.cycle:
            if self.shadow.error is not None:
                raise self.shadow.error
            self.shadow.take()
            yield batch


def run_arm(
    bench: Bench,
    arm: Arm,
    block: int,
    session: Session,
    preloaded: Preloaded,
    change: Setting | None = None,
) -> Run:
    """One repeat of one arm, or of the loader with a `change` of its settings.

    A run that an error cuts off is left in the session.
    """
    if bench.settings().get("workers"):
        # an iterator of the last arm that waits for the collector would be inherited by new workers
        gc.collect()
    recorder = Recorder(bench.clock, arm=arm)
    recorder.run.block = block
    try:
        _run_arm(bench, recorder, session.plan, preloaded, change)
    except BaseException:
        if recorder.steps:
            session.runs.append(recorder.run)
        raise
    return recorder.run


def _run_arm(
    bench: Bench, recorder: Recorder, plan: Plan, preloaded: Preloaded, change: Setting | None
) -> None:
    arm = recorder.run.arm
    # without a loader nothing fills up: three steps are for the caches of the step alone
    recorder.run.warmup = plan.warmup if arm in WITH_LOADER else min(3, plan.warmup)
    recorder.run.totals |= bench.handed_over if arm == Arm.WARM else {}
    if change is not None:
        # the changed loader may hold more batches, and the first of them show its buffers alone
        setting = bench.settings() | change
        held = int(setting.get("workers") or 0) * int(setting.get("prefetch") or 2)
        recorder.run.warmup = max(plan.warmup, 2 * held)
    total = recorder.run.warmup + plan.steps
    if arm in IN_HAND or arm == Arm.SHADOW:
        _run_cycle(bench, recorder, total, preloaded)
    elif arm == Arm.ALONE:
        loader = _somewhere_in_the_epoch(bench, recorder, total)
        most = plan.warmup + ALONE_STEPS
        limit = TimeLimit(plan.alone_s or 0.0)
        drive(bench, loader, recorder, most, limit, passed_over=range(most))
        # workers deliver in turn: a part of a round would be too fast or too slow
        workers = int(bench.settings().get("workers") or 1)
        recorder.run.warmup += (recorder.steps - plan.warmup) % workers
    elif change is not None:
        changed = torch_loader.rebuild(bench.loader(), change)
        drive(bench, changed, recorder, total, TimeLimit(end_ns=bench.run_end_ns))
    else:
        begin = 1 + int(bench.settings().get("workers") or 0) * int(
            bench.settings().get("prefetch") or 0
        )
        ahead = _steps_ahead(bench, recorder.run, plan) if arm == Arm.WARM else 0
        recorder.run.warmup += ahead
        drive(
            bench,
            _somewhere_in_the_epoch(bench, recorder, total),
            recorder,
            total + ahead,
            _limit(bench, recorder.run.warmup),
            passed_over=range(begin, begin + ahead),
        )


def _limit(bench: Bench, warmup: int) -> TimeLimit:
    """Return where a run is cut: after the least steps, and after whole rounds of the step."""
    least = -(-LEAST_STEPS // bench.rhythm) * bench.rhythm
    return TimeLimit(end_ns=bench.run_end_ns, min_steps=warmup + least, rounds=bench.rhythm)


def _steps_ahead(bench: Bench, run: Run, plan: Plan) -> int:
    """Return how far into a stream this block is timed: another position in each block."""
    look, total = bench.look, plan.warmup + plan.steps
    if look is None:
        return 0
    room = min((look.epoch_steps or look.steps) - total, int(total * look.window_steps))
    # one place in each part of the way, in an order that no drift follows
    parts = max(1, plan.repeats)
    place = (
        run.block * (2 if parts % 2 else 1) % parts + random.Random(bench.seed).random()
    ) / parts
    ahead = max(0, int(room * place))
    run.totals["from_batch"] = ahead
    return ahead


@dataclass(frozen=True)
class Look:
    """A stream as it was drawn once without the step."""

    steps: int  # drawn
    epoch_steps: int  # where its end was reached; else 0
    window_steps: float  # steps that are drawn in the time of one with training
    delivered: dict[str, int] = field(default_factory=dict)  # worker -> its last step


def look_along(bench: Bench, seconds: float, period_ns: float) -> Look | None:
    """Draw a stream for `seconds` without training, to learn the length of its epoch.

    Longer if a worker has ended. None for a dataset that is read by index.
    """
    settings = bench.settings()
    by_index = settings.get("kind") == "torch" and not settings.get("iterable_dataset")
    if by_index or settings.get("one_shot"):
        return None
    recorder, begin, count, ended = Recorder(bench.clock), bench.clock(), 0, True
    limit = seconds * 1e9
    epoch = recorder.watch(bench.loader())
    for _ in epoch:
        count += 1
        bench.guard.pulse.steps += 1
        if bench.clock() - begin > limit:
            if limit == seconds * 1e9 and idle_workers(_delivered(recorder, settings), count):
                limit *= LOOK_ON
                continue
            ended = False
            break
    _close(epoch)
    pace = (bench.clock() - begin) / max(1, count)
    length = bench.epoch_steps or int(settings.get("batches") or 0) or (count if ended else 0)
    return Look(count, length, period_ns / max(pace, 1.0), _delivered(recorder, settings))


def _delivered(recorder: Recorder, settings: dict[str, Any]) -> dict[str, int]:
    """The last step that each worker of a DataLoader delivered, 0 of none; {} where not told."""
    rows, workers = recorder.snapshot().batches, int(settings.get("workers") or 0)
    last = dict.fromkeys(map(str, range(workers)), 0) if len(rows["batch"]) else {}
    for step, worker in zip(rows["batch"], rows["worker"], strict=True):
        last[str(worker)] = max(last.get(str(worker), 0), step + 1)
    return last


def _somewhere_in_the_epoch(bench: Bench, recorder: Recorder, total: int) -> Any:
    """The loader, where it can be from another batch on in each block: the first may be special."""
    loader, settings, run = bench.loader(), bench.settings(), recorder.run
    room = int(settings.get("batches") or 0) - total
    if settings.get("kind") != "torch" or run.arm not in (Arm.WARM, Arm.ALONE) or room <= 0:
        return loader
    number = random.Random(f"{bench.seed}/{run.block}").randint(0, room)
    moved = torch_loader.from_batch(loader, number)
    if moved is None:
        return loader
    run.totals["from_batch"] = number
    return moved


def _placed(arm: Arm, preloaded: Preloaded) -> Preloaded:
    """On the device, or where the loader put them: pageable memory costs more than pinned."""
    on_device = arm == Arm.RESIDENT and environment.has_cuda()
    return preloaded.moved(lambda tensor: tensor.cuda()) if on_device else preloaded


def _run_cycle(bench: Bench, recorder: Recorder, total: int, preloaded: Preloaded) -> None:
    """Run the step over preloaded batches; store what copying them took."""
    limit = _limit(bench, recorder.run.warmup)
    cycle = Cycle(_placed(recorder.run.arm, preloaded), bench.clock)
    if recorder.run.arm == Arm.SHADOW:
        shadow = Shadow(attach(bench.loader(), recorder))
        try:
            drive(bench, _Shadowed(cycle, shadow), recorder, total, limit)
        finally:
            shadow.close()
    else:
        drive(bench, cycle, recorder, total, limit)
    if cycle.copying_ns:
        recorder.run.totals["copying_ns"] = cycle.copying_ns


def null_run(bench: Bench, preloaded: Preloaded, step_ns: float) -> Run:
    """Time next() of an empty loader: a constant for a DataLoader, a repeated batch for tf.data.

    It runs beside the user's step, because the hand-over takes longer after a long step; long steps
    become a shorter pause.
    """
    recorder = Recorder(bench.clock, arm=Arm.NULL)
    recorder.run.warmup = NULL_WARMUP
    bench.guard.pulse.recorder = recorder
    kind = bench.settings().get("kind")
    if kind == "tf" or (kind == "torch" and bench.settings().get("workers")):
        handing = median_ns(lambda: (preloaded.hand_out(0), preloaded.versions(0)), bench.clock)
        short = step_ns <= LONGEST_NULL_MS * 1e6
        # a batch of very many objects takes longer to hand out than the step takes
        own = short and handing <= HANDING_SHARE * step_ns
        step = bench.step if own else emulated_step(min(step_ns / 1e6, LONGEST_NULL_MS))
        # at least 1 ms a step, or the count below would be in the thousands
        paced = max(step_ns, 1e6) if short else LONGEST_NULL_MS * 1e6
        steps = NULL_WARMUP + max(NULL_LEAST, min(NULL_STEPS, int(NULL_SECONDS * 1e9 / paced)))
        batches = iter(Cycle(preloaded, bench.clock)) if own else itertools.repeat(None)
        empty = (
            tf_data.repeated_batch(preloaded[0], steps)
            if kind == "tf"
            else torch_loader.null_loader(bench.loader(), steps)
        )
        for _ in recorder.watch(empty):
            begin = bench.clock()
            step(next(batches))
            bench.guard.pulse.steps += 1
            if bench.clock() - begin > 2 * LONGEST_NULL_MS * 1e6:  # steps that became slower
                step, batches = emulated_step(LONGEST_NULL_MS), itertools.repeat(None)
    else:
        for _ in zip(range(500), recorder.watch(itertools.cycle(preloaded)), strict=False):
            pass
    recorder.session()
    return recorder.run
