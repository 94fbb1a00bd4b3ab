"""Session -> evidence: paired arm ratios, and what the loader would do without one cause.

Arms give shares with intervals (the arms of one block belong together). Inside the loader a
counterfactual does: replay the run's own batches with one cost taken out and compare the period
with the untouched replay. What the replay cannot reproduce of the measured period is added to
every interval that rests on it, and so is the usual error of the model itself.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pipeline_profiler.diagnose import predict
from pipeline_profiler.diagnose import window as metrics
from pipeline_profiler.diagnose.intervals import Floats, Interval, mean_interval
from pipeline_profiler.record.arm import REPORTED, SPLIT_ORDER, Arm
from pipeline_profiler.record.cores import usable_cores
from pipeline_profiler.record.session import MAIN, Run, Session

NULL_FACTOR = 20  # a step below so many empty next() calls is judged against the empty loader
REPLAY_ERROR = 0.06  # twice the median error of a replayed period in benchmarks/prediction.py
LEAST_DRIFT = 0.01  # of the period: what two runs of one loop differ by on a quiet machine
REPLAYED = 240  # batches of a replay, at least
SAMPLE_US = 5000  # distance of stack samples
LABELLED = ("read", "decode", "transform", "collate", "serialise")


@dataclass(frozen=True)
class Case:
    """One run of the warm loader, ready to be replayed with changes; nanoseconds, one entry a batch."""

    run: Run
    steps: metrics.Steps
    made: metrics.Batches
    fetch: Floats
    lag: Floats
    loop: Floats
    overhead: float
    ready: float
    startup: float  # a step
    workers: int
    prefetch: int
    in_order: bool
    period: float  # measured
    stages: dict[str, Floats]

    def play(self, **changes: Any) -> float:
        """Period of the replay with some inputs exchanged."""
        given: dict[str, Any] = {
            "fetch": self.fetch,
            "workers": self.workers,
            "prefetch": self.prefetch,
            "loop": self.loop,
            "overhead": self.overhead,
            "ready": self.ready,
            "serialise": self.lag,
            "in_order": self.in_order,
        } | {k: v for k, v in changes.items() if k != "startup"}
        # a short window again and again: the edges of the replay shall not decide
        often = -(-REPLAYED // max(1, len(given["fetch"])))
        given["fetch"] = np.tile(given["fetch"], often)
        return predict.replay(**given).period + float(changes.get("startup", self.startup))

    @property
    def traced(self) -> bool:
        """Whether worker-side rows travelled with the batches."""
        return len(self.made.batch) > 0


@dataclass
class Evidence:
    """Everything the rules look at."""

    session: Session
    config: dict[str, Any]
    cores: int
    periods: dict[Arm, list[float]]  # arm -> mean period a block, ns
    stall: Interval
    parts: dict[
        str, Interval
    ]  # copy, contention, preparation, fetch as shares of the warm (cold) loader's step
    observed: bool  # one recorded loop without arms
    recording_share: float  # cost of the recorder as a share of the step; 0 where not measured
    cases: list[Case]
    labels: dict[str, float]  # stage -> share of the time no hook could name
    places: dict[str, dict[str, float]]  # phase -> "stage|place" -> share of its samples
    stack_samples: float = 0.0  # how many stacks the labels rest on
    null_ns: float = 0.0  # the empty loader's mean next()
    null_p99_ns: float = 0.0
    beyond: Interval | None = None  # the stall less what an empty loader costs here
    floor_ns: float = 0.0  # empty loader's next(), taken off where the step is below 20 of them
    wobble: float = 0.0  # half width inside the runs, relative to the stall
    drift: float = 0.0  # how far periods of two single runs of one arm lie apart, relative
    notes: list[str] = field(default_factory=list)

    @property
    def period(self) -> float:
        """Mean step period with the warm loader, ns."""
        return float(np.mean(self.periods[Arm.WARM])) if self.periods.get(Arm.WARM) else math.nan

    @property
    def workers(self) -> int:
        """Worker processes of the loader; 0 where it runs in the trainer or is unknown."""
        return int(self.config.get("workers") or 0)

    def saving(self, without: Callable[[Case], float]) -> Interval:
        """Share of the period that goes when `without` (a replay) is true instead."""
        shares, errors = [], []
        for case in self.cases:
            base = case.play()
            shares.append((base - without(case)) / base)
            errors.append(abs(base - case.period) / case.period)
        found = self._interval(shares, float(np.mean(errors)) if errors else 0.0)
        return found.widened(REPLAY_ERROR * max(0.0, 1.0 - found.value))

    def share(self, of: Callable[[Case], float]) -> Interval:
        """Share of the measured period that `of` (ns a step) takes."""
        return self._interval([of(case) / case.period for case in self.cases], 0.0)

    def label_error(self, stage: str) -> float:
        """Half width of a labelled stage's size, relative to it: binomial, 95 %; 0 if measured."""
        share = self.labels.get(stage, 0.0)
        if not share or not self.stack_samples:
            return 0.0
        return 1.96 * math.sqrt((1 - share) / (share * self.stack_samples))

    def share_of_spans(self, stage: str) -> float:
        """Milliseconds a batch of a stage in detail ("read:remote data"); "requests": how many."""
        per_batch = []
        for case in self.cases:
            name = "read:remote latency" if stage == "requests" else stage
            rows = metrics._select(case.run, name, None)
            keep = rows["batch"] >= case.run.warmup
            column = rows["count"] if stage == "requests" else rows["wall"] / 1e6
            per_batch.append(float(column[keep].sum()) / max(1, len(case.fetch)))
        return float(np.mean(per_batch)) if per_batch else 0.0

    def loading_shares(self) -> dict[str, float]:
        """Where the loading time goes, mean over the warm loader's runs; {} where it is not known."""
        rows = [shares for case in self.cases if (shares := metrics.loading_shares(case.run))]
        return {key: float(np.mean([row[key] for row in rows])) for key in rows[0]} if rows else {}

    def _interval(self, shares: list[float], error: float) -> Interval:
        found = mean_interval(shares)
        if len(shares) == 1 and math.isfinite(self.stall.half_width):
            # one recorded loop: the spread of the observed stall carries over in proportion
            spread = self.stall.half_width / max(abs(self.stall.value), 1e-9) * abs(found.value)
            found = Interval(found.value, found.value - spread, found.value + spread, 1)
        inside = at_least(found, self.wobble * abs(found.value))
        instrument = LEAST_DRIFT * max(0.0, 1.0 - found.value)  # none where all of it is the cause
        return inside.widened(abs(found.value) * error + self.recording_share + instrument)


def tried(e: Evidence, key: str, predicted: Callable[[], Interval]) -> Interval:
    """The share measured by the trial setting where it ran with this one change, else the predicted one."""
    change = e.session.probes.change or {}
    pairs = paired(e.session, Arm.TRIAL, Arm.WARM)
    if list(change) != [key] or len(pairs) < 2:
        return predicted()
    found = mean_interval([(w - z) / w for z, w in pairs])
    return at_least(found, e.wobble * abs(found.value)).widened(e.recording_share + LEAST_DRIFT)


def gather(session: Session) -> Evidence:
    """Collect the evidence of a session; needs at least one run of the warm loader."""
    runs = [run for run in session.arm(Arm.WARM) if len(metrics.steps(run).batch) >= 5]
    periods = {arm: _periods(session, arm) for arm in (*REPORTED, Arm.BARE)}
    observed = not periods[Arm.RESIDENT]
    cores = int(session.environment.get("cores") or usable_cores())
    cost = 0.0 if observed else _recording_share(session, periods[Arm.WARM])
    labels, places = _labels(session)
    null = null_latency_ns(session)
    below = (
        bool(periods[Arm.RESIDENT]) and float(np.mean(periods[Arm.RESIDENT])) < NULL_FACTOR * null
    )
    floor = null if below else 0.0
    stall = metrics.starvation(runs[0]) if observed and runs else _stall(session, floor)
    wobble = 0.0 if observed else _wobble(runs)
    return Evidence(
        session=session,
        config=runs[0].config if runs else {},
        cores=cores,
        periods=periods,
        stall=at_least(stall, wobble).widened(cost),
        wobble=wobble / max(abs(stall.value), 0.02) if math.isfinite(stall.value) else 0.0,
        parts=_parts(session),
        observed=observed,
        recording_share=cost,
        cases=[make_case(run, labels) for run in runs],
        labels=labels,
        places=places,
        stack_samples=_stack_samples(session),
        drift=_drift(periods),
        null_ns=null,
        null_p99_ns=_null_p99(session),
        floor_ns=floor,
        beyond=None if observed else at_least(_stall(session, null), wobble).widened(cost),
    )


def at_least(found: Interval, half: float) -> Interval:
    """The interval, no narrower than `half` on either side of its value."""
    low, high = min(found.low, found.value - half), max(found.high, found.value + half)
    return Interval(found.value, low, high, found.n)


def _wobble(runs: list[Run]) -> float:
    """Half width of the waiting share inside the runs, by moving blocks.

    Repeats over the same samples in the same order agree more than other data would: then the
    spread of a single run counts in full, else it shrinks with the number of runs.
    """
    halves = [metrics.starvation(run).half_width for run in runs]
    known = [half for half in halves if math.isfinite(half)]
    if not known:
        return 0.0
    keys = [run.slow_keys[:20] for run in runs]
    same = len(keys) < 2 or not keys[0] or keys[0] == keys[1]
    return float(np.mean(known)) / (1.0 if same else math.sqrt(len(known)))


def _drift(periods: dict[Arm, list[float]]) -> float:
    """95 % half width of the ratio of two single runs, from the repeats of both main arms."""
    spreads = [
        np.std(v, ddof=1) / np.mean(v)
        for v in (periods[Arm.RESIDENT], periods[Arm.WARM])
        if len(v) > 1
    ]
    return max(LEAST_DRIFT, 1.96 * math.sqrt(2) * float(max(spreads, default=0.0)))


def _null_p99(session: Session) -> float:
    waits = _null_waits(session)
    return float(np.quantile(np.concatenate(waits), 0.99)) if waits else 0.0


def _null_waits(session: Session) -> list[metrics.Ints]:
    return [metrics.steps(run).wait for run in session.arm(Arm.NULL)]


def null_latency_ns(session: Session) -> float:
    """Mean next() of the empty loader with the same workers; 0 where it was not measured."""
    waits = _null_waits(session)
    return float(np.concatenate(waits).mean()) if waits else 0.0


def _periods(session: Session, arm: Arm) -> list[float]:
    if arm == Arm.BARE:
        totals = [run.totals for run in session.arm(Arm.BARE) if run.totals.get("steps")]
        return [t["elapsed_ns"] / t["steps"] for t in totals]
    values = [metrics.period_ns(run) for run in session.arm(arm)]
    return [v for v in values if math.isfinite(v)]


def paired(session: Session, low: Arm, high: Arm) -> list[tuple[float, float]]:
    """(period of `low`, period of `high`) of every block that has both arms, ns."""
    first = {run.block: metrics.period_ns(run) for run in session.arm(low)}
    second = {run.block: metrics.period_ns(run) for run in session.arm(high)}
    pairs = [(first[b], second[b]) for b in sorted(first.keys() & second.keys())]
    return [(a, b) for a, b in pairs if math.isfinite(a) and math.isfinite(b)]


def _stall(session: Session, floor: float) -> Interval:
    """1 - resident / warm; for very short steps 1 - AU / AU_null, which takes the baseline off."""
    return mean_interval([(b - a - floor) / b for a, b in paired(session, Arm.RESIDENT, Arm.WARM)])


def _parts(session: Session) -> dict[str, Interval]:
    """The split of the stall in the order of the arms, the cold loader last where it ran."""
    present = [arm for arm in SPLIT_ORDER if session.arm(arm)]
    if len(present) < 2 or Arm.RESIDENT not in present:
        return {}
    names = {Arm.HOST: "copy", Arm.SHADOW: "contention", Arm.WARM: "preparation", Arm.COLD: "fetch"}
    last = {run.block: metrics.period_ns(run) for run in session.arm(present[-1])}
    parts = {}
    for low, high in itertools.pairwise(present):
        a = {run.block: metrics.period_ns(run) for run in session.arm(low)}
        b = {run.block: metrics.period_ns(run) for run in session.arm(high)}
        blocks = sorted(a.keys() & b.keys() & last.keys())
        parts[names[high]] = mean_interval([(b[k] - a[k]) / last[k] for k in blocks])
    return parts


def _recording_share(session: Session, watched: list[float]) -> float:
    """(warm - bare) / warm where it is seen above its own noise, else at most 1 %."""
    bare = {
        run.block: run.totals["elapsed_ns"] / run.totals["steps"]
        for run in session.arm(Arm.BARE)
        if run.totals.get("steps")
    }
    with_recorder = {run.block: metrics.period_ns(run) for run in session.arm(Arm.WARM)}
    both = sorted(bare.keys() & with_recorder.keys())
    if not both or not watched:
        return 0.0
    shares = [(with_recorder[b] - bare[b]) / with_recorder[b] for b in both]
    seen = mean_interval(shares)
    return min(seen.value, 0.05) if seen.low > 0 else min(max(0.0, seen.value), 0.01)


def make_case(run: Run, labels: dict[str, float] | None = None) -> Case:
    """A run of the warm loader as replay input; w=0 and unknown loaders are serial, their wait is the fetch."""
    window, made = metrics.steps(run), metrics.batches(run)
    costs = predict.measured_costs(run)
    workers = int(run.config.get("workers") or 0)
    serial = workers == 0 or not len(made.batch) or bool(np.all(made.worker == MAIN))
    normal = ~window.first if (~window.first).any() else np.ones(len(window.first), bool)
    fetch = window.wait[normal] if serial else made.fetch
    return Case(
        run=run,
        steps=window,
        made=made,
        fetch=fetch.astype(float),
        lag=np.zeros(len(fetch)) if serial else np.maximum(costs.serialise, 0.0),
        loop=costs.loop,
        overhead=0.0 if serial else costs.overhead,
        ready=0.0 if serial else costs.ready,
        startup=costs.startup,
        workers=0 if serial else workers,
        prefetch=max(1, int(run.config.get("prefetch") or 1)),
        in_order=bool(run.config.get("in_order", True)),
        period=float(window.period.mean()),
        stages=_stages(run, window.batch[normal] if serial else made.batch, labels or {}),
    )


def _stages(run: Run, ids: metrics.Ints, labels: dict[str, float]) -> dict[str, Floats]:
    """Loader stages aligned to `ids`; the unnamed rest is split by what the stacks say."""
    walls, _ = metrics._stage_columns(run, ids)
    # compute-side stages carry the prefix step: and are no loader stages
    stages = {k: v.astype(float) for k, v in walls.items() if k != "index"}
    fetch = metrics._by_batch(metrics._select(run, "fetch", None), "wall", ids).astype(float)
    wait = metrics._by_batch(metrics._select(run, "wait"), "wall", ids).astype(float)
    if not fetch.any():  # unknown loader: what its own stages do not explain is unnamed
        stages["getitem"] = np.maximum(wait - sum(stages.values(), np.zeros(len(ids))), 0.0)
    rest = stages.pop("getitem", np.zeros(len(ids)))
    for name, share in labels.items():
        if name in LABELLED:
            stages[name] = stages.get(name, np.zeros(len(ids))) + rest * share
    stages["sample code"] = rest * max(0.0, 1 - sum(labels.get(n, 0.0) for n in LABELLED))
    return stages


def _labels(session: Session) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """Shares of unnamed loading time by stage word, and every place by phase, from the stack samples."""
    counts: dict[str, dict[str, float]] = {}
    for run in session.runs:
        for key, hits in run.stacks.items():
            phase, _, rest = key.partition("|")
            if rest != "|":  # an idle worker: no frame of the user's, no word
                counts.setdefault(phase, {})
                counts[phase][rest] = counts[phase].get(rest, 0) + hits
    places = {
        name: {k: v / sum(rows.values()) for k, v in rows.items()} for name, rows in counts.items()
    }
    loading = places.get("worker") or places.get("wait") or {}
    hooked = _hooked(session)
    unnamed = {k: v for k, v in loading.items() if k.partition("|")[0] not in hooked}
    total = sum(unnamed.values())
    labels: dict[str, float] = {}
    for key, share in unnamed.items():
        name = key.partition("|")[0]
        labels[name] = labels.get(name, 0.0) + share / total
    return labels, places


def _stack_samples(session: Session) -> float:
    """Stacks seen while loading, at one every 5 ms."""
    weights = [
        weight
        for run in session.runs
        for key, weight in run.stacks.items()
        if key.startswith(("worker|", "wait|")) and not key.endswith("||")
    ]
    return sum(weights) / SAMPLE_US


def _hooked(session: Session) -> set[str]:
    """Stages whose time was measured directly with the warm loader: not to be guessed again."""
    names = set()
    for run in session.arm(Arm.WARM):
        made = metrics.batches(run)
        fetch = max(1.0, float(made.fetch.sum()))
        names |= {k for k, v in made.stages.items() if k != "getitem" and v.sum() / fetch > 0.01}
    return names
