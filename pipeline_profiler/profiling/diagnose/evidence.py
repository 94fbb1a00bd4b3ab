"""Session -> evidence: paired ratios of configurations, and replays without one cause.

A `Case` replays the batches of the run with one cost removed. The error of the replay is added to
each interval that rests on it. Stack samples name loading time and decide no verdict.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from dataset_preflight.foundation.cores import usable_cores
from pipeline_profiler.profiling.diagnose import predict
from pipeline_profiler.profiling.diagnose.data_stall import DataStall, estimate, paired_blocks
from pipeline_profiler.profiling.diagnose.disturbance import (
    Machine,
    is_disturbed,
    leave_out_disturbed,
)
from pipeline_profiler.profiling.diagnose.finding import NOT_BOUND
from pipeline_profiler.profiling.diagnose.intervals import (
    Floats,
    Interval,
    mean_interval,
    miss_of,
    t_quantile,
)
from pipeline_profiler.profiling.diagnose.window import (
    Batches,
    Ints,
    LoadingShares,
    Steps,
    Window,
    Windows,
    stage_columns,
    without_rhythm,
)
from pipeline_profiler.profiling.record.arm import PRELOADED, REPORTED, SPLIT_ORDER, Arm
from pipeline_profiler.profiling.record.plan import idle_workers
from pipeline_profiler.profiling.record.session import MAIN, Run, Session

REPLAYED = 240  # batches of a replay, at least
ENOUGH_LABELLED = 0.8  # of the loading time in stages that have stack samples
LABELLED = ("read", "decode", "transform", "collate", "serialise")


@dataclass(frozen=True)
class Case:
    """One run of the warm loader; nanoseconds, one entry a batch."""

    window: Window
    costs: predict.Costs
    fetch: Floats
    lag: Floats
    workers: int
    prefetch: int
    in_order: bool
    period: float  # measured, over whole epochs
    stages: Mapping[str, Floats]

    def play(self, startup: float | None = None, **changes: Any) -> float:
        """Period of the replay with some inputs exchanged."""
        own = {name: getattr(self, name) for name in ("fetch", "workers", "prefetch", "in_order")}
        costs = {name: getattr(self.costs, name) for name in ("loop", "overhead", "ready")}
        inputs = own | costs | {"serialise": self.lag} | changes
        # a short window again and again: the edges of the replay shall not decide
        often = -(-REPLAYED // max(1, len(inputs["fetch"])))
        inputs["fetch"] = np.tile(inputs["fetch"], often)
        period = max(predict.replay(**inputs), self.costs.device)
        return period + (self.costs.startup if startup is None else startup)

    @property
    def step_ns(self) -> float:
        """What a step takes, on the host or on its device."""
        return max(float(self.costs.loop.mean()), self.costs.device)

    @cached_property
    def replayed(self) -> float:
        """Period of the untouched replay, which every rule compares with."""
        return self.play()

    @property
    def steps(self) -> Steps:
        """One row per step."""
        return self.window.steps

    @property
    def batches(self) -> Batches:
        """One row per delivered batch."""
        return self.window.batches

    @property
    def traced(self) -> bool:
        """Whether worker-side rows travelled with the batches."""
        return len(self.batches.batch) > 0


def make_case(window: Window, labels: Mapping[str, float]) -> Case:
    """A window as replay input; `labels` split the loading time that no hook could name."""
    steps, batches, config = window.steps, window.batches, window.run.config
    costs = predict.measured_costs(window)
    workers = int(config.get("workers") or 0)
    if config.get("iterable_dataset") and len(batches.batch) > LEAST_STEPS:
        workers = min(workers, len(np.unique(batches.worker)))  # others have nothing to deliver
    # without workers, or with a loader that tells nothing, the wait is the fetch
    serial = workers == 0 or not len(batches.batch) or window.in_main
    fetch = steps.wait[steps.normal] if serial else batches.fetch
    return Case(
        window=window,
        costs=costs,
        fetch=fetch.astype(float),
        lag=np.zeros(len(fetch)) if serial else np.maximum(costs.serialise, 0.0),
        workers=0 if serial else workers,
        prefetch=max(1, int(config.get("prefetch") or 1)),
        in_order=bool(config.get("in_order", True)),
        period=window.epoch_period_ns,
        stages=_stages(window, steps.batch[steps.normal] if serial else batches.batch, labels),
    )


def _stages(window: Window, ids: Ints, labels: Mapping[str, float]) -> dict[str, Floats]:
    """Loader stages aligned to `ids`; the unnamed rest is split by what the stacks say."""
    walls, _ = stage_columns(window.run, ids)
    stages = {k: v.astype(float) for k, v in walls.items() if k != "index"}
    none = np.zeros(len(ids))
    if not window.wall_of("fetch", ids).any():
        # an unknown loader: what its own stages do not explain of the wait is unnamed
        wait = window.wall_of("wait", ids, MAIN)
        stages["getitem"] = np.maximum(wait - sum(stages.values(), none), 0.0)
    rest = stages.pop("getitem", none)
    for name, share in labels.items():
        if name in LABELLED:
            stages[name] = stages.get(name, none) + rest * share
    stages["sample code"] = rest * max(0.0, 1 - sum(labels.get(n, 0.0) for n in LABELLED))
    return stages


SAMPLE_US = 5000  # distance of stack samples
HOOKED_SHARE = 0.01  # of the fetch, from which a stage counts as measured by its hook
Shares = dict[str, float]


@dataclass(frozen=True)
class Labels:
    """What the stack samples say."""

    by_stage: Shares = field(default_factory=dict)  # share of the time that no hook could name
    places: dict[str, Shares] = field(default_factory=dict)  # phase -> "stage|place" -> share
    samples: float = 0.0  # how many stacks the shares rest on
    step_samples: float = 0.0  # the same for those seen in the step
    first_place: str = ""  # the line that the first pass loaded at, more than half of its time

    def error(self, stage: str) -> float:
        """Half width of a stage's size, relative to it: binomial, 95 %; 0 if it was measured."""
        seen = self.by_stage.get(stage, 0.0) * self.samples
        left = max(0.0, 1 - self.by_stage.get(stage, 0.0))  # a sum of shares may pass 1 by rounding
        return 1.96 * math.sqrt(left / seen) if seen else 0.0

    def top_place(self, stage: str) -> str:
        """The line of user code seen most often in this stage of loading; '' unknown."""
        label = "" if stage == "sample code" else stage
        rows = {**self.places.get("wait", {}), **self.places.get("worker", {})}
        hits = {k.partition("|")[2]: v for k, v in rows.items() if k.partition("|")[0] == label}
        hits.pop("", None)
        return max(hits, key=lambda place: hits[place], default="")

    @property
    def loading_lines(self) -> dict[str, Shares]:
        """Stack samples of loading: stage -> line of user code -> share of all of them."""
        stages: dict[str, Shares] = {}
        for key, share in (self.places.get("worker") or self.places.get("wait") or {}).items():
            stage, _, place = key.partition("|")
            if line := place.partition(" < ")[0]:
                lines = stages.setdefault(stage or "sample code", {})
                lines[line] = lines.get(line, 0.0) + share
        return stages

    def step_places(self) -> Shares:
        """Lines of the step with their share of it, whatever stage the words around them told."""
        places: Shares = {}
        for key, share in self.places.get("step", {}).items():
            place = key.partition("|")[2]
            places[place] = places.get(place, 0.0) + share
        return places

    def step_error(self, share: float) -> float:
        """Half width of a share of the step: binomial, 95 %."""
        variance = max(0.0, share * (1 - share))
        return 1.96 * math.sqrt(variance / self.step_samples) if self.step_samples else 0.0


def read_labels(session: Session, warm: Sequence[Window]) -> Labels:
    """Labels of a session; `warm` tells which stages were measured already."""
    places = {
        phase: {key: hits / sum(rows.values()) for key, hits in rows.items()}
        for phase, rows in _hits(session).items()
    }
    # workers where there are any: the trainer's next() then only waits for them
    phase = "worker" if places.get("worker") else "wait"
    loading = places.get(phase) or {}
    hooked_stages = _hooked(warm)
    unnamed = {k: v for k, v in loading.items() if k.partition("|")[0] not in hooked_stages}
    total = sum(unnamed.values())
    by_stage: Shares = {}
    for key, share in unnamed.items():
        name = key.partition("|")[0]
        by_stage[name] = by_stage.get(name, 0.0) + share / total
    # the shares are of what was unnamed: no other stack says anything of them
    counts = total * _count(session, phase), _count(session, "step")
    return Labels(by_stage, places, *counts, _first_place(session))


def _first_place(session: Session) -> str:
    hits: Shares = {}
    for run in session.arm(Arm.PILOT):
        workers = bool(run.config.get("workers"))
        for key, weight in run.stacks.items():
            phase, _, place = key.split("|", 2)
            # of workers what they do when they do something: the trainer only waits for them
            if phase == ("worker" if workers else "wait") and (place or not workers):
                hits[place] = hits.get(place, 0) + weight
    place = max(hits, key=lambda name: hits[name], default="")
    return place if place and hits[place] > 0.5 * sum(hits.values()) else ""


def sampled(session: Session) -> list[Run]:
    """The runs whose stacks tell of the loop as it goes on: the first pass is apart."""
    return [run for run in session.runs if run.arm != Arm.PILOT]


def _hits(session: Session) -> dict[str, Shares]:
    """Microseconds seen, by phase and place."""
    hits: dict[str, Shares] = {}
    for run in sampled(session):
        for key, weight in run.stacks.items():
            phase, _, place = key.partition("|")
            if place != "|":  # an idle worker: no frame of the user's, no word
                rows = hits.setdefault(phase, {})
                rows[place] = rows.get(place, 0) + weight
    return hits


def _count(session: Session, phase: str) -> float:
    """Stacks seen in a phase: one every 5 ms, or what the run says."""
    return sum(
        weight / run.totals.get("stack_us", SAMPLE_US)
        for run in sampled(session)
        for key, weight in run.stacks.items()
        if key.startswith(f"{phase}|") and not key.endswith("||")
    )


def _hooked(warm: Sequence[Window]) -> set[str]:
    """Stages whose time was measured directly: not to be guessed again."""
    return {
        name
        for batches in (window.batches for window in warm)
        for name, wall in batches.stages.items()
        if name != "getitem" and wall.sum() / max(1.0, batches.fetch.sum()) > HOOKED_SHARE
    }


NULL_FACTOR = 20  # a step below so many empty next() calls is judged against the empty loader
REPLAY_ERROR = 0.06  # twice the median error of a replayed period in benchmarks/profiler.py
LEAST_RUN_TO_RUN = 0.01  # of the period: what two runs of one loop differ by on a quiet machine
UNLIKE = 2.64  # 99 % quantile of F with 7 and many degrees of freedom: batches that differ
LEAST_STEPS = 5  # of a run that can be judged
MOST_RECORDING, UNSEEN_RECORDING = 0.05, 0.01  # caps of the recorder's cost, measured and unseen
PARTS = {
    Arm.HOST: "copy",
    Arm.SHADOW: "contention",
    Arm.WARM: "preparation",
}


@dataclass(frozen=True)
class RecorderCost:
    """What the recorder costs a step, ns; taken out of the stall, as nobody trains with it."""

    step_ns: float = 0.0  # as measured over preloaded batches
    loading_ns: float = 0.0  # as measured with the loader
    share: float = 0.0  # of the step with the loader

    @property
    def left(self) -> float:
        """Return the share of the step that the loader's recorder may still add to the stall."""
        return min(self.share, UNSEEN_RECORDING)


@dataclass
class Evidence:
    """Everything the rules look at."""

    session: Session
    windows: Windows
    config: dict[str, Any]
    cores: int
    periods: dict[Arm, list[float]]  # mean period of each block, ns
    stall: Interval
    parts: dict[str, Interval]  # copy, contention, preparation as shares of the step
    observed: bool  # one recorded loop without arms
    cases: list[Case]
    labels: Labels
    null_ns: float = 0.0  # mean next() of the empty-loader baseline
    above_null: Interval | None = None  # the stall less what an empty loader costs here
    floor_ns: float = 0.0  # the baseline, taken off where the step is below 20 of it
    with_floor: Interval | None = None  # the stall with it, where it was taken off
    within_run_error: float = 0.0  # half width inside the runs, relative to the stall
    run_to_run_error: float = 0.0  # how far periods of two runs of one arm lie apart, relative
    recording: RecorderCost = field(default_factory=RecorderCost)
    machine: Machine = field(default_factory=Machine)

    @property
    def period(self) -> float:
        """Mean step period with the warm loader, ns."""
        return mean_or_nan(self.periods.get(Arm.WARM) or [])

    @property
    def workers(self) -> int:
        """Worker processes of the loader; 0 where it runs in the trainer or is unknown."""
        return int(self.config.get("workers") or 0)

    @property
    def drawn_steps(self) -> int:
        """Steps that a stream was seen or drawn for at its first look."""
        return max((w.least_epoch_steps for w in self.windows.arm(Arm.PILOT)), default=0)

    @cached_property
    def step_cpu_ns(self) -> float:
        """CPU time of a step in all threads of the process, without a loader; 0 unknown."""
        windows = self.windows.arm(Arm.RESIDENT)
        used = [w.run.totals["own_cpu_ns"] / len(w) for w in windows if _has_cpu_total(w)]
        return float(np.mean(used)) if used else 0.0

    @property
    def idle_workers(self) -> dict[str, int]:
        """Workers of a stream that had nothing more, and the last step of each."""
        return idle_workers(self.session.probes.delivered or {}, self.drawn_steps)

    @cached_property
    def open_start(self) -> float:
        """The share that epoch starts have at most, where no epoch's end was seen; else 0."""
        if self.observed or not self.cases or any(c.window.epoch_steps for c in self.cases):
            return 0.0
        start = max(0.0, mean_or_nan([case.window.epoch_start_ns for case in self.cases]))
        seen = [*self.windows.arm(Arm.PILOT), *(case.window for case in self.cases)]
        least = max(window.least_epoch_steps for window in seen)
        endless = self.config.get("endless") or not start
        return 0.0 if endless else start / (start + least * self.period)

    @property
    def dear_start(self) -> bool:
        """Whether epoch starts of unknown number may alone make it input-bound."""
        known = [share.high for share in (self.stall, self.above_null) if share is not None]
        return self.open_start > 0 and max(0.0, min(known)) + self.open_start >= NOT_BOUND

    def saving(self, without: Callable[[Case], float], modelled: bool = False) -> Interval:
        """Return the share that `without` (a replay) saves; `modelled`: it has workers."""
        shares, errors = [], []
        for case in self.cases:
            shares.append((case.replayed - without(case)) / case.replayed)
            errors.append(abs(case.replayed - case.period) / case.period)
        saved = self._interval(shares, float(np.mean(errors)) if errors else 0.0)
        if not modelled and not any(case.workers for case in self.cases):
            return saved  # loading and step one after the other: a sum, and no model
        # the model errs on what remains: a cause that is all of the step leaves nothing to err on
        return saved.widened(REPLAY_ERROR * max(0.0, 1.0 - saved.value))

    def saving_by(self, relief: Callable[[Case], Mapping[str, Any]]) -> Interval:
        """Return the share that a replay with these inputs exchanged saves."""
        return self.saving(lambda case: case.play(**relief(case)))

    def share(self, of: Callable[[Case], float]) -> Interval:
        """Share of the measured period that `of` (ns a step) takes."""
        return self._interval([of(case) / case.period for case in self.cases], 0.0)

    @cached_property
    def stage_shares(self) -> Shares:
        """Share of the loading time a stage, over all runs of the warm loader, largest first."""
        total: Shares = {}
        for case in self.cases:
            for name, wall in case.stages.items():
                total[name] = total.get(name, 0.0) + float(wall.sum())
        whole = sum(total.values()) or 1.0
        return {k: v / whole for k, v in sorted(total.items(), key=lambda row: -row[1])}

    @property
    def top_stage(self) -> tuple[str, float]:
        """The stage that most of the loading time goes to, with its share of it."""
        return next(iter(self.stage_shares.items()), ("", 0.0))

    @property
    def where_loading_goes(self) -> str:
        """'; 83 % of it is transform (data.py:9 blur: ...)' where a line is known, else ''."""
        name, share = self.top_stage
        place = self.labels.top_place(name)
        return f"; {share:.0%} of loading is {name} ({place})" if place else ""

    @cached_property
    def loading_lines(self) -> Shares:
        """Lines of user code with their share of the loading time.

        Stack samples divide the measured time of each stage, or all of it where stages lack
        samples.
        """
        sampled_lines = self.labels.loading_lines
        known = {k: v for k, v in self.stage_shares.items() if k in sampled_lines}
        measured = sum(known.values()) >= ENOUGH_LABELLED
        total: Shares = {}
        for stage, lines in sampled_lines.items():
            part = known.get(stage, 0.0) / sum(lines.values()) if measured else 1.0
            for line, share in lines.items():
                total[line] = total.get(line, 0.0) + part * share
        return total

    def remote_reads(self) -> tuple[float, float, float]:
        """(milliseconds a batch to first bytes, to the bytes that follow, number of requests)."""
        rows = []
        for case in self.cases:
            latency = case.window.spans("read:remote latency", None)
            data = case.window.spans("read:remote data", None)
            sums = (latency["wall"].sum() / 1e6, data["wall"].sum() / 1e6, latency["count"].sum())
            rows.append([float(value) / max(1, len(case.fetch)) for value in sums])
        latency_ms, data_ms, requests = np.mean(rows, axis=0) if rows else (0.0, 0.0, 0.0)
        return float(latency_ms), float(data_ms), float(requests)

    def loading_shares(self) -> LoadingShares:
        """Where the loading time goes, mean over the runs of the warm loader that know it."""
        rows = [shares for case in self.cases if (shares := case.window.loading_shares).known]
        if not rows:
            return LoadingShares()
        cpu, queued, blocked, threads = (float(np.mean([r[i] for r in rows])) for i in range(4))
        return LoadingShares(cpu, queued, blocked, threads, known=True)

    def _interval(self, shares: list[float], error: float) -> Interval:
        share = mean_interval(shares)
        if len(shares) == 1 and math.isfinite(self.stall.half_width):
            # one recorded loop: the spread of the observed stall carries over in proportion
            spread = self.stall.half_width / max(abs(self.stall.value), 1e-9) * abs(share.value)
            share = Interval(share.value, share.value - spread, share.value + spread, 1)
        inside = at_least(share, self.within_run_error * abs(share.value))
        # who follows the advice measures anew, and two sessions of as many repeats differ by this
        # much; by none of it where the cause is all of the step
        again = max(LEAST_RUN_TO_RUN, self.run_to_run_error / math.sqrt(max(1, len(shares))))
        again *= max(0.0, 1.0 - share.value)
        # their errors are independent: squares add up
        low, high = (math.hypot(end - inside.value, again) for end in (inside.low, inside.high))
        both = Interval(inside.value, inside.value - low, inside.value + high, inside.n)
        return both.widened(abs(share.value) * error + min(self.recording.share, MOST_RECORDING))


def _has_cpu_total(window: Window) -> bool:
    return "own_cpu_ns" in window.run.totals and len(window) > 0


def trials_of(e: Evidence, setting: str) -> list[Window]:
    """Runs of the loader with this one setting changed, those of its last value."""
    changed = [
        w for w in e.windows.arm(Arm.TRIAL) if w.run.config.get(setting) != e.config.get(setting)
    ]
    last = changed[-1].run.config.get(setting) if changed else None
    of_last = [w for w in changed if w.run.config.get(setting) == last]
    return [w for w in of_last if not is_disturbed(w)] or of_last


def measured_share(e: Evidence, setting: str) -> Interval | None:
    """Return the share of the period that trial runs with this setting saved; None without trial.

    Trials share the spread of the other runs, because one or two have none: Student's t with both
    degrees of freedom.
    """
    tried = [math.log(w.epoch_period_ns) for w in trials_of(e, setting) if len(w) >= LEAST_STEPS]
    plain = [math.log(period) for period in e.periods.get(Arm.WARM) or []]
    plain += [
        math.log(w.epoch_period_ns)
        for w in e.windows.beside
        if w.run.arm == Arm.WARM and len(w) >= LEAST_STEPS and not is_disturbed(w)
    ]
    freedom = len(tried) + len(plain) - 2
    if not tried or freedom < 1:
        return None
    squares = sum(float(np.var(rows)) * len(rows) for rows in (tried, plain))
    inside = float(np.mean([_relative_noise(w) for w in trials_of(e, setting)]))
    spread = max(math.sqrt(squares / freedom), inside)
    half = t_quantile(freedom) * spread * math.sqrt(1 / len(tried) + 1 / len(plain))
    middle = float(np.mean(tried) - np.mean(plain))
    value, low, high = (1 - math.exp(middle + half * side) for side in (0, 1, -1))
    return Interval(value, low, high, len(tried)).widened(LEAST_RUN_TO_RUN)


def _relative_noise(window: Window) -> float:
    # every epoch has its start: no chance decides whether one is in the window
    period = window.steps.period[~window.at_epoch_start]
    period = period if len(period) >= LEAST_STEPS else window.steps.period
    return float(period.std(ddof=1)) / math.sqrt(len(period)) / float(window.steps.period.mean())


def measured_or_predicted(e: Evidence, setting: str, predicted: Callable[[], Interval]) -> Interval:
    """Return the share that trial runs of this `setting` measured, else `predicted`."""
    measured = measured_share(e, setting)
    return predicted() if measured is None else measured


def gather(session: Session) -> Evidence:
    """Collect the evidence of a session; needs at least one run of the warm loader with steps."""
    windows = Windows(session)
    machine = leave_out_disturbed(windows, session.environment)
    # a run whose clock stood still says nothing, and would be divided by
    warm = [w for w in windows.arm(Arm.WARM) if len(w) >= LEAST_STEPS and w.period_ns > 0]
    periods = {arm: _periods(windows, arm) for arm in REPORTED}
    observed = not periods[Arm.RESIDENT]
    recording = RecorderCost() if observed else _recording(session, periods[Arm.WARM])
    labels = read_labels(session, windows.arm(Arm.WARM))
    # what an empty loader costs a step that sleeps is hidden where a device has a queue
    null_ns = 0.0 if _on_gpu(session) else _null_latency_ns(windows)
    # a hand-over is no fault of the dataset: against a very short step it would be all of the stall
    below = bool(periods[Arm.RESIDENT]) and np.mean(periods[Arm.RESIDENT]) < NULL_FACTOR * null_ns
    floor = null_ns if below else 0.0
    stalls = _Stall(windows, session, recording, miss_of(machine.blocks, session.plan.early_stop))
    found = None if observed else stalls.beyond(floor)
    seen = warm[0].starvation if warm else Interval(math.nan, -math.inf, math.inf)
    stall = found.share if found else seen
    # with the loader no batch comes twice, so a rhythm is the step's own there
    rhythm = max((w.rhythm for w in windows.arm(Arm.PILOT, Arm.WARM)), default=1)
    # batches in hand are a few of many: that matters where they are what is compared with
    in_hand = [] if found is None or found.by_waiting else windows.arm(Arm.RESIDENT)
    # on a GPU a window as a whole has a time, its steps have none: they go on after their return
    timed = not (observed or _on_gpu(session))
    inside = _within_run(warm, in_hand, rhythm) if timed else 0.0
    # relative to at least 2 % of the step, as a stall near zero would make any error infinite
    relative = inside / max(abs(stall.value), 0.02) if math.isfinite(stall.value) else 0.0
    beyond = None if observed else at_least(stalls.beyond(null_ns).share, inside)
    return Evidence(
        session=session,
        windows=windows,
        config=warm[0].run.config if warm else {},
        cores=int(session.environment.get("cores") or usable_cores()),
        periods=periods,
        stall=at_least(stall, inside).widened(recording.left),
        parts=_parts(windows, found),
        observed=observed,
        recording=recording,
        machine=machine,
        cases=[make_case(window, labels.by_stage) for window in warm],
        labels=labels,
        null_ns=null_ns,
        above_null=beyond and beyond.widened(recording.left),
        floor_ns=floor,
        with_floor=at_least(stalls.beyond(0.0).share, inside) if floor else None,
        within_run_error=relative,
        run_to_run_error=_run_to_run(periods),
    )


def mean_or_nan(values: Sequence[float]) -> float:
    """The mean; nan of nothing."""
    return float(np.mean(values)) if values else math.nan


def at_least(share: Interval, half: float) -> Interval:
    """The interval, no narrower than `half` on either side of its value."""
    low, high = min(share.low, share.value - half), max(share.high, share.value + half)
    return Interval(share.value, low, high, share.n)


def _within_run(warm: Sequence[Window], resident: Sequence[Window], rhythm: int) -> float:
    """Return the half width of the stall inside a run, for repeats that share their samples."""
    halves = [window.starvation.half_width for window in warm]
    known = [half for half in halves if math.isfinite(half)]
    keys = [window.run.slow_keys[:20] for window in warm]
    same = len(keys) < 2 or not keys[0] or keys[0] == keys[1]
    waiting = float(np.mean(known)) if known and same else 0.0
    left = 1 - float(np.mean([window.starvation.value for window in warm])) if warm else 1.0
    return math.hypot(waiting, left * _unlike_batches(resident, rhythm))


def _unlike_batches(resident: Sequence[Window], rhythm: int) -> float:
    """Return the relative half width of the step over preloaded batches of different step times."""
    steps = [window.steps for window in resident if len(window)]
    if not steps:
        return 0.0
    which = np.concatenate([s.batch % PRELOADED for s in steps])
    loop = np.concatenate([without_rhythm(s.loop, rhythm) for s in steps])
    groups = [loop[which == i] for i in range(PRELOADED)]
    if min(map(len, groups)) < 2:
        return 0.0
    means = np.array([group.mean() for group in groups])
    by_chance = float(np.mean([group.var(ddof=1) / len(group) for group in groups]))
    between = float(means.var(ddof=1))
    if between <= UNLIKE * by_chance:
        return 0.0
    half = t_quantile(PRELOADED - 1) * math.sqrt((between - by_chance) / PRELOADED)
    return half / max(float(loop.mean()), 1.0)


def _run_to_run(periods: dict[Arm, list[float]]) -> float:
    """95 % half width of the ratio of two single runs, from the repeats of both main arms."""
    rows = (periods[Arm.RESIDENT], periods[Arm.WARM])
    spreads = [np.std(v, ddof=1) / np.mean(v) for v in rows if len(v) > 1]
    # the square root of 2: numerator and denominator of the ratio vary alike and independently
    return max(LEAST_RUN_TO_RUN, 1.96 * math.sqrt(2) * float(max(spreads, default=0.0)))


def _null_latency_ns(windows: Windows) -> float:
    """Mean next() of the empty-loader baseline; 0 where not measured."""
    waits: list[Ints] = [window.steps.wait for window in windows.arm(Arm.NULL)]
    return float(np.concatenate(waits).mean()) if waits else 0.0


def _periods(windows: Windows, arm: Arm) -> list[float]:
    values = [window.epoch_period_ns for window in windows.arm(arm)]
    return [v for v in values if math.isfinite(v) and v > 0]


@dataclass(frozen=True)
class _Stall:
    """The stall of a session with arms, without what recording costs."""

    windows: Windows
    session: Session
    recording: RecorderCost
    miss: float

    def beyond(self, floor: float) -> DataStall:
        """1 - resident / warm; with a floor 1 - AU / AU_null, which takes the baseline off."""
        arms = [
            {w.run.block: w for w in self.windows.arm(arm) if 0 < w.epoch_period_ns < math.inf}
            for arm in (Arm.RESIDENT, Arm.WARM)
        ]
        more = floor - self.recording.step_ns
        blocks = [
            replace(
                block,
                in_hand=block.in_hand + more,
                loop=block.loop + more,
                period=block.period - self.recording.loading_ns,
            )
            for block in paired_blocks(arms[0], arms[1], self.session.probes.batch_bytes or 0)
        ]
        positive = [b for b in blocks if min(b.in_hand, b.loop, b.period) > 0]
        timed = not _on_gpu(self.session)
        told = all(window.tells_of_device for window in arms[1].values())
        return estimate(positive, timed or told, timed, self.miss)


def _on_gpu(session: Session) -> bool:
    """Whether the step may go on after it has returned."""
    torch = session.environment.get("torch")
    return isinstance(torch, dict) and torch.get("device", "cpu") != "cpu"


def _parts(windows: Windows, stall: DataStall | None) -> dict[str, Interval]:
    """The split of the stall in the order of the arms."""
    present = [arm for arm in SPLIT_ORDER if windows.arm(arm)]
    if len(present) < 2 or Arm.RESIDENT not in present:
        return {}
    # all parts over the last arm's step, so that they add up
    last = windows.periods(present[-1])
    parts = {}
    for low, high in itertools.pairwise(present):
        a, b = windows.periods(low), windows.periods(high)
        blocks = sorted(a.keys() & b.keys() & last.keys())
        parts[PARTS[high]] = mean_interval([(b[k] - a[k]) / last[k] for k in blocks])
        if (low, high) == (Arm.RESIDENT, Arm.WARM) and stall is not None and stall.metered:
            whole = float(np.mean([b[k] / last[k] for k in blocks])) if blocks else 1.0
            parts["contention"] = stall.contention.scaled(whole)
            parts["preparation"] = stall.wait.scaled(whole)
    return parts


def _recording(session: Session, periods: Sequence[float]) -> RecorderCost:
    """Return what the probe measured, as time and as a share of the step with the loader."""
    step_ns = float(session.probes.recording_ns or 0.0)
    loading_ns = step_ns + float(session.probes.loading_ns or 0.0)
    share = loading_ns / mean_or_nan(periods) if periods else 0.0
    return RecorderCost(step_ns, loading_ns, share)
