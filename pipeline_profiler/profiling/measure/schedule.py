"""The schedule: a first pass that measures the pace, a plan with its reasons, then blocks.

Steps and warm-up are planned again before each block, from the newest measured pace. A timed window
ends at its share of the remaining time.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pipeline_profiler.profiling.adapters.tf_data import settled_after
from pipeline_profiler.profiling.diagnose.disturbance import disturbed_blocks
from pipeline_profiler.profiling.diagnose.intervals import FIRST_LOOK, LOOK_MISS
from pipeline_profiler.profiling.diagnose.throughput import MIN_STEPS
from pipeline_profiler.profiling.diagnose.verdict import Verdict, deciding_side, diagnose_session
from pipeline_profiler.profiling.diagnose.window import Window
from pipeline_profiler.profiling.measure import environment, probes, trials
from pipeline_profiler.profiling.measure.arms import (
    ENDING_S,
    LEAST_STEPS,
    NULL_SECONDS,
    QUICK_END_S,
    REPORT_S,
    Bench,
    Options,
    TimeLimit,
    drive,
    look_along,
    null_run,
    run_arm,
)
from pipeline_profiler.profiling.measure.preloaded_batches import Preloaded
from pipeline_profiler.profiling.measure.trials import TRIAL_SHARE
from pipeline_profiler.profiling.measure.watchdog import LEAST_LIMIT_S, kept_when_stopped
from pipeline_profiler.profiling.record.arm import (
    IN_HAND,
    SPLIT_ORDER,
    TRAINED_FROM_LOADER,
    Arm,
)
from pipeline_profiler.profiling.record.plan import Plan
from pipeline_profiler.profiling.record.recorder import Recorder
from pipeline_profiler.profiling.record.session import ProfileError, Session, utc_now

WARMUP_STEPS = 20
BUFFERS_IN_WINDOW = 10
QUICK_LOOK_S = 7.0  # of the blocks before the first look of --quick, where the least steps fit
OVERRUN = 1.05  # of the budget: beyond it no further block begins; --quick alone has none
THIRD_OVERRUN = 1.12  # of the budget, by a plan of three repeats: two rarely decide
LONG_START = 0.05  # of an epoch, from which its start must lie in the window
THIRD_LATE_S = 3.0  # by which a third repeat may end late
OTHER_PACE = 1.5  # times as slow or fast as in the first pass, from which a note says so
QUIET_BLOCKS = 3  # wanted, of those that no other program disturbed
MOST_BLOCKS = 10  # beyond it an interval hardly shrinks
NARROW = 0.03  # width of the stall's interval with which no more repeats are asked for
MOST_OVERRUN = 3.0  # a loader that got so much slower after its first pass is ended
PILOT_SECONDS, QUICK_PILOT_SECONDS = 6.0, 2.5
PILOT_SHARE = 0.1  # of a shorter budget
ALONE_SHARE, QUICK_ALONE_SHARE = 0.1, 0.06  # of the budget, for the loader alone
FIXED_STEPS = 4  # of the probes, however slow they are
LOOK_SHARE = 0.06  # of the budget, to see how long a stream's epoch is

DIFFERENCE = "Data stall = step time with the real loader minus step time with preloaded batches."
HOST = "Host batches show what the copy to the device costs."
NO_HOST = "Host-to-device copy: not measured (no GPU)."
BESIDE = "The loader beside the step shows what its CPU costs the step."
OVER_BUDGET = "Steps are slow: {:.0f} s are too short."
LATE_END = "Total {:.0f} s, of which imports and making the loader took {:.0f} s."
NEW_PACE = "Steps take {:.3g} times as long as in the first pass: block {} has {} steps, not {}."
TIME_IS_UP = "Stopped after {} of {} repeats: the time is used up."
STOPPED = "Stopped after {} of {} blocks: the interval, corrected for {} looks, lies {}."
ROUNDS = "The step's own time repeats every {} steps: windows are whole rounds of it."
SLOW = (
    "The loader takes {:.1f} s to start and {:.2g} s a step: only preloaded batches and the real "
    "loader are measured. Give more --seconds."
)


def pilot_seconds(options: Options) -> float:
    """How long the first pass may take."""
    usual = QUICK_PILOT_SECONDS if options.quick else PILOT_SECONDS
    return min(usual, PILOT_SHARE * options.budget)


def pilot(bench: Bench, options: Options, session: Session) -> tuple[Window, Preloaded]:
    """First pass over the loader: how long steps take, which batches to keep."""
    recorder = Recorder(bench.clock, arm=Arm.PILOT)
    seconds = pilot_seconds(options)
    bench.guard.pulse.doing = "first pass"
    session.runs.append(recorder.run)
    steps = 60 if options.quick else 120
    preloaded = Preloaded()
    sampler = probes.sample_beside(recorder) if bench.clock is time.perf_counter_ns else None
    try:
        drive(bench, bench.loader(), recorder, steps, TimeLimit(seconds), preloaded)
    finally:
        probes.keep_stacks(recorder, sampler)
    # now: a step has begun to use its GPU, if any
    session.environment = environment.describe() | {"command": bench.command}
    # the buffers' worth is left out, but never more than half: a short pass must say something
    recorder.run.warmup = min(max(1, Window.of(recorder.run).in_flight), recorder.steps // 2)
    if not preloaded:
        raise ProfileError(
            "The loader gave no batch: check that its dataset is not empty and that drop_last "
            "does not drop the only batch."
        )
    return Window.of(recorder.run), preloaded


def make_plan(first: Window, options: Options) -> Plan:
    """Arms, steps and repeats with the reason for each, and the seconds they will take."""
    device = environment.has_cuda()
    # the order of the file and of the seeded shuffle
    arms = (Arm.RESIDENT, *[Arm.HOST] * device, Arm.WARM, *[Arm.SHADOW] * _wants_shadow(first))
    reasons = [DIFFERENCE, HOST if device else NO_HOST, *[BESIDE] * (Arm.SHADOW in arms)]
    fixed, speed = _fixed_seconds(first, options), Speed.of(first)
    pace = _pace(speed, first, arms)
    least = FIRST_LOOK * pace.of(LEAST_STEPS + _warmups(first)[-1])
    if Arm.SHADOW in arms and least > options.budget - fixed:
        arms, reasons[-1] = arms[:-1], SLOW.format(speed.start, speed.period)
        pace = _pace(speed, first, arms)
    alone = (QUICK_ALONE_SHARE if options.quick else ALONE_SHARE) * options.budget
    steps, repeats, warmup, why = _fit(first, options, pace, max(options.budget - fixed, 2.0))
    shorter = _fit(first, options, pace, max(options.budget - fixed - alone, 2.0))
    early_stop = options.quick and repeats > FIRST_LOOK and not _is_stream(first)
    pieces = FIRST_LOOK if early_stop else repeats
    piece_s = round(alone / pieces - speed.start, 3)
    # a quick run ends a little later for it; else it takes the time of steps, of no repeat
    spare = shorter[1:3] == (repeats, warmup) and shorter[0] > LEAST_STEPS
    at_end = options.exact
    long_enough = piece_s > (warmup + MIN_STEPS) * first.input_wait_ns / 1e9
    once = first.run.config.get("one_shot")
    timed_alone = pieces >= FIRST_LOOK and (spare or at_end) and long_enough and not once
    if timed_alone and not at_end:
        steps, why = shorter[0], shorter[3]
    seconds = round(pace.of(steps + warmup) * repeats + fixed, 1)
    if seconds > OVERRUN * options.budget:
        why.append(OVER_BUDGET.format(options.budget))
    end = options.spent + seconds + ENDING_S
    if options.exact and end > QUICK_END_S + 1:
        why.append(LATE_END.format(end, options.spent))
    return Plan(
        arms=arms,
        repeats=repeats,
        steps=steps,
        warmup=warmup,
        seconds=round(seconds + timed_alone * alone, 1),
        reasons=(*reasons, *why),
        seed=options.seed,
        emulate_ms=options.emulate_ms,
        alone_s=piece_s if timed_alone else 0.0,
        early_stop=early_stop,
    )


@dataclass(frozen=True)
class Speed:
    """Seconds of a step with the loader, of one on preloaded batches, of a start of the loader."""

    period: float
    alone: float
    start: float

    @classmethod
    def of(cls, first: Window) -> Speed:
        """Return the speed in the first pass."""
        starts = [*first.first_batch_ns[:1], 0]
        return cls(first.period_ns / 1e9, float(first.steps.loop.mean()) / 1e9, starts[0] / 1e9)

    def newest(self, session: Session) -> Speed:
        """Return the speed at the end of the newest runs; this speed where there is none."""
        ends = {}
        for run in session.runs:
            if run.arm in (Arm.WARM, Arm.RESIDENT) and len(window := Window.of(run)):
                ends[run.arm] = float(window.steps.period[-(len(window) // 2) :].mean()) / 1e9
        alone = ends.get(Arm.RESIDENT, self.alone)
        return Speed(ends.get(Arm.WARM, max(self.period, alone)), alone, self.start)

    def of_run(self, arm: Arm, steps: int) -> float:
        """Return the seconds of so many steps of an arm."""
        loader = self.start if arm not in IN_HAND else 0.0
        return loader + steps * (self.alone if arm in (*IN_HAND, Arm.SHADOW) else self.period)


@dataclass(frozen=True)
class Pace:
    """What one block of all arms costs: seconds a step, and seconds to start the loaders."""

    step: float
    start: float

    def of(self, steps: int) -> float:
        """Seconds of a block whose arms take so many steps each."""
        return self.step * steps + self.start

    def steps_in(self, seconds: float) -> int:
        """Steps of each arm that fit one block of so many seconds."""
        return int((seconds - self.start) / self.step)


def _pace(speed: Speed, first: Window, arms: Sequence[Arm]) -> Pace:
    """Return the pace of a block."""
    beside = Arm.SHADOW in arms
    # the way to a later place of a stream takes half a window on average
    loading = (0.5 if _is_stream(first) else 0.0) + (Arm.WARM in arms)
    step = speed.period * loading + speed.alone * (sum(arm in IN_HAND for arm in arms) + beside)
    return Pace(max(step, 1e-6), speed.start * (loading + beside))


def _is_stream(first: Window) -> bool:
    """Whether batches come in their order alone, for longer than the first pass saw."""
    config = first.run.config
    if len(first.first_batch_ns) > 1:
        return False
    return config.get("kind") != "torch" or bool(config.get("iterable_dataset"))


def _fixed_seconds(first: Window, options: Options) -> float:
    budget = options.budget
    slow = _starts_slowly(first, options)
    probing = pilot_seconds(options) + (0.0 if slow else probes.stack_seconds(options))
    probing += LOOK_SHARE * budget if _is_stream(first) else 0.0
    if first.run.config.get("kind") == "tf":
        probing += probes.PREFIX_SHARE * budget + probes.trying_seconds(options)
    if first.run.config.get("kind") == "torch":
        probing += TRIAL_SHARE * budget
    speed = Speed.of(first)
    # the steps that exceed the first pass and the stack samples, and those of a probe
    starts = (1 if slow else 2) * speed.start
    probing += 2 * NULL_SECONDS + starts + FIXED_STEPS * speed.alone
    return min(probing, 0.6 * budget)


def _wants_shadow(first: Window) -> bool:
    """With a GPU alone: where the step has ended when it returns, the warm loader shows as much."""
    config = first.run.config
    beside = config.get("kind") == "tf" or (config.get("kind") == "torch" and config.get("workers"))
    return environment.has_cuda() and bool(beside)


def _fit(
    first: Window, options: Options, pace: Pace, budget: float, done: int = 0
) -> tuple[int, int, int, list[str]]:
    """Return (steps, further repeats, warm-up, reasons) that fit the budget (seconds).

    Reduced in this order: steps to the floor, warm-up, repeats to 3, the floor. `done`: repeats
    that were measured.
    """
    held = first.in_flight
    wanted = min(options.steps, 80) if options.quick else options.steps
    most = options.repeats - done
    # ten buffers: then what lay ready at the start is below a tenth of the window; short ones buy
    # repeats, without which no interval says anything
    buffers = BUFFERS_IN_WINDOW // (2 if options.quick else 1)
    floor = min(wanted, max(WARMUP_STEPS * (1 if options.quick else 2), buffers * held))
    # the blocks of a stream must reach the places of its epoch: long ones, and all of them
    brisk = options.quick and not _is_stream(first)
    long, short = _warmups(first, WARMUP_STEPS // 2 if brisk else WARMUP_STEPS)
    if brisk and not options.seconds:
        wanted = max(floor, min(wanted, pace.steps_in(QUICK_LOOK_S / FIRST_LOOK) - long))
    fewer = sorted({max(1, min(most, n - done)) for n in (most + done, 4, 3)}, reverse=True)
    # repeats go last: the interval shrinks with them, not with steps
    for repeats, warmup in itertools.product(fewer, (long, short)):
        affordable = pace.steps_in(budget / repeats) - warmup
        if affordable >= floor:
            break
    # the third repeat may overrun a little: of two, hardly any interval settles anything
    third = repeats * pace.of(LEAST_STEPS + warmup) <= THIRD_OVERRUN * budget
    if affordable < LEAST_STEPS and repeats + done > 2 and not third:
        repeats = max(1, 2 - done)
        affordable = pace.steps_in(budget / repeats) - warmup
    steps = max(min(wanted, affordable), min(LEAST_STEPS, wanted))
    epoch, rhythm = first.epoch_steps, first.rhythm
    reasons: list[str] = []
    whole = [n for n in fewer if n * pace.of(epoch + warmup) <= THIRD_OVERRUN * budget]
    # whole epochs where they fit: their starts and their ends are then in the window
    if 0 < epoch <= max(steps, affordable):
        steps = epoch * max(1, min(round(steps / epoch), affordable // epoch))
    elif _starts_matter(first) and whole:
        steps, repeats = epoch, max(whole)
    elif 1 < rhythm <= steps:
        steps -= steps % rhythm
        reasons.append(ROUNDS.format(rhythm))
    chosen = (steps, repeats, warmup)
    return *chosen, [*reasons, *_given_up(chosen, (wanted, most, long), budget, held)]


def _starts_matter(first: Window) -> bool:
    """Return whether each epoch starts so slowly that windows without a start are too fast."""
    once = first.run.config.get("persistent") or first.run.config.get("one_shot")
    epoch, speed = first.epoch_steps, Speed.of(first)
    return not once and epoch > 0 and speed.start > LONG_START * epoch * speed.period


def _warmups(first: Window, usual: int = WARMUP_STEPS) -> tuple[int, int]:
    """Return the steps of a usual warm-up and of the shortest."""
    return max(usual, 2 * first.in_flight, _settled(first)), max(3, 2 * first.in_flight)


def _settled(first: Window) -> int:
    """Steps of the pilot after which tf.data's AUTOTUNE had settled; 0 for other loaders."""
    if first.run.config.get("kind") != "tf":
        return 0
    return settled_after(first.whole.steps.period.tolist())


def _given_up(
    chosen: tuple[int, int, int], wanted: tuple[int, int, int], budget: float, held: int
) -> list[str]:
    """Return a sentence of what is less than wanted: steps, repeats, warm-up."""
    names = ("steps", "repeats", "steps of warm-up")
    rows = zip(chosen, wanted, names, strict=True)
    less = [f"{has} {name} instead of {want}" for has, want, name in rows if has < want]
    sentences = [f"{', '.join(less)}, to fit {budget:.0f} s."] if less else []
    if chosen[0] < BUFFERS_IN_WINDOW * held:
        sentences.append(
            f"{chosen[0]} steps are fewer than {BUFFERS_IN_WINDOW} x the {held} batches in flight, "
            "so the buffer affects the result: give more --seconds and measure.steps."
        )
    return sentences


def measure_arms(bench: Bench, options: Options) -> Session:
    """Run all arms; raises StoppedError with the partial session when something ends it early."""
    session = Session(created=utc_now())

    def delivered() -> int:
        trained = [run for run in session.runs if run.arm in TRAINED_FROM_LOADER]
        return sum(len(Window.of(run).whole) for run in trained)

    with kept_when_stopped(session, bench.guard, delivered):
        _measure(bench, options, session)
    return session


def _measure(bench: Bench, options: Options, session: Session) -> None:
    start = bench.clock()
    first, preloaded = pilot(bench, options, session)
    if first.run.config.get("one_shot") and hasattr(bench.loader(), "__next__"):
        bench._loader = None
    bench.guard.pulse.doing = "a look along the epoch"
    if _is_stream(first):
        bench.save_meanwhile(session)  # it goes where nothing has been: the loader may hang there
        bench.look = look_along(bench, LOOK_SHARE * options.budget, first.period_ns)
    if bench.look:
        first.run.totals["drawn_steps"] = bench.look.steps
        session.probes.delivered = bench.look.delivered or None
        if bench.look.epoch_steps:
            bench.epoch_steps = first.run.config["epoch_steps"] = bench.look.epoch_steps
    plan = session.plan = make_plan(first, options)
    once, taken = first.run.config.get("one_shot"), len(first.whole)
    if once and taken < plan.warmup:
        raise ProfileError(
            f"The loader was exhausted after {taken} batches, before the warm-up of "
            f"{plan.warmup} was over: give a loader that can be iterated again (a list, a "
            "DataLoader, an object with __iter__), or one with more batches."
        )
    bench.progress(announcement(plan))
    bench.save_meanwhile(session)
    alone = float(first.steps.loop.mean())
    _probe_before(bench, options, session, preloaded, alone)
    session.runs.append(null_run(bench, preloaded, alone))
    pacing = Pacing.of(first, options, plan, start)
    longest_s = MOST_OVERRUN * max(options.budget, plan.seconds) + LEAST_LIMIT_S
    bench.guard.pulse.end_s = time.monotonic() + longest_s
    bench.end_ns = pacing.end_ns + (ENDING_S - REPORT_S) * 1e9
    bench.rhythm = first.rhythm if plan.steps % first.rhythm == 0 else 1
    machine = environment.Meter()
    _run_blocks(bench, session, preloaded, pacing)
    bench.run_end_ns = pacing.end_ns
    # half of what a trial may take stays for it
    kept = int(TRIAL_SHARE / 2 * options.budget * 1e9)
    repeat_disturbed(bench, session, preloaded, pacing.end_ns - kept)
    trials.try_first_advice(bench, session, preloaded, pacing.end_ns, options.budget)
    settle(bench, session, preloaded, pacing.end_ns)
    if bench.clock is time.perf_counter_ns:  # a clock that tests move meters no machine
        session.environment |= environment.shares_of_cores(machine.taken())
    # the baseline again: clocks and neighbours change while the arms run, and its mean holds both
    alone = 1e9 * Speed.of(first).newest(session).alone
    session.runs.append(null_run(bench, preloaded, alone))
    bench.guard.pulse.doing = "the last probes"
    session.probes.repeatable = probes.repeatable(bench)
    session.notes += environment.growth_notes(
        [
            run.totals.get("resident_bytes", 0) / max(1, len(Window.of(run)))
            for run in session.arm(Arm.WARM)
        ]
    )
    probes.probe_device(bench, preloaded, session)
    session.probes.slow_samples = probes.slow_samples(bench, session)
    after = environment.describe()  # its packages too: the probes have loaded samples here
    session.environment |= {"load_after": after["load"], "packages": after["packages"]}


def _probe_before(
    bench: Bench, options: Options, session: Session, preloaded: Preloaded, alone_ns: float
) -> None:
    bench.guard.pulse.doing = "the first probes"
    first = Window.of(session.runs[0])
    if not _starts_slowly(first, options):
        session.runs.append(probes.sample_stacks(bench, options, session))
    probes.probe_step(bench, preloaded, options, session)
    session.probes.recording_ns = probes.recording_ns(bench)
    session.probes.loading_ns = probes.loading_ns(bench, first.input_wait_ns)
    session.probes.piped_bytes = probes.piped_bytes(bench, preloaded)
    bench.handed_over = probes.hand_over(bench, preloaded, alone_ns)
    if bench.settings().get("kind") == "tf":
        probes.try_interventions(bench, options, session)


@dataclass(frozen=True)
class Pacing:
    """What plans a block again: the first pass, the first plan, and when blocks must have ended."""

    first: Window
    options: Options
    plan: Plan
    end_ns: int  # of the clock, also for all that follows but the last probes

    @classmethod
    def of(cls, first: Window, options: Options, plan: Plan, start_ns: int) -> Pacing:
        """Return the ends of a measurement that began at `start_ns`."""
        # the loader alone may lengthen a plan that no sentence announces as too long
        announced = plan.seconds > OVERRUN * options.budget
        seconds = plan.seconds if announced else options.budget
        overrun = 1 if options.exact else OVERRUN
        return cls(first, options, plan, int(start_ns + 1e9 * seconds * overrun))

    def plan_block(self, session: Session, order: list[Arm], block: int, now: int) -> bool:
        """Plan steps and warm-up of a block by the newest pace; return whether it fits.

        Drop the shadow loader from `order` where blocks would not fit with it.
        """
        left = (self.end_ns - now) / 1e9
        speed, plan = Speed.of(self.first).newest(session), session.plan
        pace = _pace(speed, self.first, order)
        whole = pace.of(self.plan.steps + self.plan.warmup)
        more = self.plan.repeats - block
        if whole * more > left:
            order[:] = [arm for arm in order if arm != Arm.SHADOW]
            pace = _pace(speed, self.first, order)
        least = pace.of(LEAST_STEPS + _warmups(self.first)[-1])
        # of two repeats hardly any interval decides: the third may end later
        late_s = THIRD_LATE_S if block < FIRST_LOOK else 0.0
        if block >= 2 and least > left + late_s:
            return False
        # what the loader alone and a trial take, unless the first blocks need it
        pieces = max(0, (FIRST_LOOK if plan.early_stop else plan.repeats) - block)
        reserve = pieces * (plan.alone_s or 0.0)
        if self.first.run.config.get("kind") == "torch":
            reserve += TRIAL_SHARE * self.options.budget
        room = max(left - reserve, min(left, least * max(1, FIRST_LOOK - block)))
        steps, warmup = self.plan.steps, self.plan.warmup
        change = speed.period / Speed.of(self.first).period
        other = not 1 / OTHER_PACE < change < OTHER_PACE
        if other or pace.of(steps + warmup) * more > room:
            steps, _, warmup, _ = _fit(self.first, self.options, pace, room, block)
            if other and not any(note.startswith(NEW_PACE[:10]) for note in session.notes):
                text = NEW_PACE.format(change, block + 1, steps, self.plan.steps)
                session.notes += [text] if steps != self.plan.steps else []
        session.plan = replace(plan, steps=steps, warmup=warmup)
        return True

    def spares_alone(self, session: Session, block: int, now: int) -> bool:
        """Return whether the loader alone leaves time for the blocks of the first look."""
        pace = _pace(Speed.of(self.first).newest(session), self.first, self.plan.arms)
        least = pace.of(LEAST_STEPS + _warmups(self.first)[-1])
        left = (self.end_ns - now) / 1e9 - (self.plan.alone_s or 0.0)
        return left >= least * max(0, FIRST_LOOK - 1 - block)

    def run_end_ns(self, session: Session, order: Sequence[Arm], block: int, now: int) -> int:
        """Return when the first run of `order` is cut: at its share of the remaining time."""
        speed, steps = Speed.of(self.first).newest(session), session.plan.steps
        costs = [speed.of_run(arm, steps + session.plan.warmup) for arm in order]
        blocks = max(0, FIRST_LOOK - 1 - block)
        later = blocks * sum(speed.of_run(arm, steps) for arm in self.plan.arms)
        return int(now + max(0, self.end_ns - now) * costs[0] / (sum(costs) + later))


def _starts_slowly(first: Window, options: Options) -> bool:
    """Return whether a start of the loader takes as long as the stack samples may."""
    return Speed.of(first).start > probes.stack_seconds(options)


def _run_blocks(bench: Bench, session: Session, preloaded: Preloaded, pacing: Pacing) -> None:
    """Run all repeats while they fit, until a look at the interval decides."""
    rng, repeats = random.Random(session.plan.seed), session.plan.repeats
    for block in range(repeats):
        order = list(session.plan.arms)
        if not pacing.plan_block(session, order, block, bench.clock()):
            session.notes.append(TIME_IS_UP.format(block, repeats))
            break
        rng.shuffle(order)
        _run_block(bench, session, preloaded, pacing, block, order)
        wanted = block < FIRST_LOOK or not session.plan.early_stop
        if session.plan.alone_s and wanted and pacing.spares_alone(session, block, bench.clock()):
            bench.tell(f"block {block + 1} of {repeats}: {Arm.ALONE.label}")
            session.runs.append(run_arm(bench, Arm.ALONE, block, session, preloaded))
        bench.save_meanwhile(session)
        # the last look is at the last block
        done, looks = block + 1, min(len(LOOK_MISS), repeats - FIRST_LOOK + 1)
        may_stop = session.plan.early_stop and 0 <= done - FIRST_LOOK < looks - 1
        if may_stop and (side := deciding_side(session)):
            session.notes.append(STOPPED.format(done, repeats, looks, side))
            break


def _run_block(
    bench: Bench,
    session: Session,
    preloaded: Preloaded,
    pacing: Pacing,
    block: int,
    order: Sequence[Arm],
) -> None:
    """Run the arms of a block; after a window that was cut, the others have no more steps."""
    planned = session.plan.steps
    for number, arm in enumerate(order):
        if arm == Arm.SHADOW and session.plan.steps < planned:
            continue
        bench.tell(f"block {block + 1} of {session.plan.repeats}: {arm.label}")
        bench.run_end_ns = pacing.run_end_ns(session, order[number:], block, bench.clock())
        run = run_arm(bench, arm, block, session, preloaded)
        session.runs.append(run)
        steps = len(Window.of(run))
        if 0 < steps < session.plan.steps:
            session.plan = replace(session.plan, steps=steps)


def repeat_disturbed(bench: Bench, session: Session, preloaded: Preloaded, deadline: int) -> None:
    """Repeat blocks that other programs disturbed, before anything is tried, while they fit."""
    done = len(session.arm(Arm.WARM))
    wanted = min(QUIET_BLOCKS, done)
    for block in range(done, done + wanted):
        runs = [Window.of(run) for run in session.runs if run.arm in SPLIT_ORDER]
        quiet = block - len(disturbed_blocks(runs))
        # a quick run does not wait for a machine that was busy all the time
        if quiet >= wanted or (session.plan.early_stop and not quiet):
            return
        if not _one_more(bench, session, preloaded, deadline, "other programs disturbed one"):
            return


def settle(bench: Bench, session: Session, preloaded: Preloaded, deadline: int) -> None:
    """Add blocks of the main configurations in the remaining time, until the interval is narrow.

    Its width decides, because a stop at a sure verdict would be wrong more often.
    """
    done = len(session.arm(Arm.WARM))
    for block in range(done, MOST_BLOCKS):
        found = diagnose_session(session)
        sure = block == done and found.verdict != Verdict.INCONCLUSIVE
        if sure or found.stall.high - found.stall.low <= NARROW:
            return
        if not _one_more(bench, session, preloaded, deadline, "nothing is settled yet"):
            return


def _one_more(
    bench: Bench, session: Session, preloaded: Preloaded, deadline: int, why: str
) -> bool:
    """One more block of the main arms; False where it does not fit."""
    plan, block = session.plan, len(session.arm(Arm.WARM))
    blocks = [run for run in session.runs if run.arm in (Arm.RESIDENT, Arm.WARM)]
    longest = max((run.totals.get("window_ns", 0) for run in blocks), default=0)
    # an arm is its window, its warm-up and its start
    whole = 2 * longest
    whole += longest * plan.warmup // max(1, plan.steps)
    whole += max((ns for run in blocks for ns in Window.of(run).first_batch_ns[:1]), default=0)
    if not longest or bench.clock() + whole > deadline:
        return False
    bench.tell(f"one more repeat ({block + 1}), as {why}")
    bench.run_end_ns = deadline
    for arm in (Arm.WARM, Arm.RESIDENT) if block % 2 else (Arm.RESIDENT, Arm.WARM):
        session.runs.append(run_arm(bench, arm, block, session, preloaded))
    return True


def announcement(plan: Plan) -> str:
    """What will run, for how long, and why."""
    least = ("up to ", f"{FIRST_LOOK} to ") if plan.early_stop else ("", "")
    labels = ", ".join(arm.label for arm in plan.arms)
    head = (
        f"Needs {least[0]}{plan.seconds:.0f} s ({least[1]}{plan.repeats} repeats x {plan.steps} "
        f"steps): {labels}. Warm-up: {plan.warmup} steps."
    )
    return "\n".join([head, *(f"  {reason}" for reason in plan.reasons)])
