"""Recommend -> apply -> re-run -> keep or reject (`run --tune`); `run --try`, `report --against`.

A change of settings is kept only if the interval of its measured speed-up lies above 1 by more than
the noise.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from pipeline_profiler.profiling.adapters import module_for, tf_graph
from pipeline_profiler.profiling.diagnose import predict
from pipeline_profiler.profiling.diagnose.intervals import (
    Interval,
    difference_interval,
    geometric_mean,
    mean_interval,
)
from pipeline_profiler.profiling.diagnose.window import Window
from pipeline_profiler.profiling.measure import environment
from pipeline_profiler.profiling.measure.arms import Bench, Options, drive, run_arm
from pipeline_profiler.profiling.measure.schedule import make_plan, pilot
from pipeline_profiler.profiling.measure.stopping import kept_when_stopped
from pipeline_profiler.profiling.record.arm import Arm
from pipeline_profiler.profiling.record.plan import TriedIntervention
from pipeline_profiler.profiling.record.recorder import Recorder
from pipeline_profiler.profiling.record.session import ProfileError, Session, utc_now
from preflight.cores import usable_cores

NOISE = 0.02  # a speed-up below 2 % is not told from noise on a shared machine
WAITING = 0.05  # share of the step
ROUNDS = 4


def ceiling(bench: Bench, options: Options) -> Session:
    """Measure the training step on preloaded batches: the most that any loader could give."""
    with _kept_session(bench) as session:
        first, kept_batches = pilot(bench, options, session)
        plan = replace(make_plan(first, options, bench.loader()), arms=(Arm.RESIDENT,))
        session.plan = plan
        for block in range(plan.repeats):
            session.runs.append(run_arm(bench, Arm.RESIDENT, block, session, kept_batches))
        periods = [Window.of(run).period_ns / 1e6 for run in session.arm(Arm.RESIDENT)]
        mean = mean_interval(periods)
        real = first.period_ns / 1e6
        session.results = {
            "verdict": "ceiling",
            "sentence": (
                f"ceiling: {1000 / mean.value:.1f} steps/s for the training step alone, on "
                f"preloaded batches ({mean.value:.2f} ms a step, 95% CI {mean.low:.2f} to "
                f"{mean.high:.2f}); the first pass of the real loader took {real:.2f} ms a step"
            ),
            "arms": {Arm.RESIDENT: {"period_ms": mean.value, "repeats": mean.n}},
        }
    return session


@contextmanager
def _kept_session(bench: Bench) -> Iterator[Session]:
    session = Session(created=utc_now(), environment=environment.describe())
    with kept_when_stopped(session, bench.guard):
        yield session


def sweep(bench: Bench, options: Options, axes: Mapping[str, Sequence[Any]]) -> Session:
    """Measure every combination of the axes, and predict each from one calibration run."""
    with _kept_session(bench) as session:
        loader = bench.loader()
        base = module_for(loader).describe(loader)
        if base.get("kind") != "torch":
            raise ProfileError(
                "--try changes settings of a DataLoader, and this loader has none: leave --try out."
            )
        mixed = itertools.product(*axes.values())
        settings = _distinct([dict(zip(axes, values, strict=True)) for values in mixed], base)
        first, _ = pilot(bench, options, session)
        # 40 steps at least: a shorter window is start-up and buffers, whatever the budget
        enough = max(options.budget / (len(settings) + 1) / _pace_s(first), 40)
        steps = int(min(enough, options.steps))
        costs = _calibrate(bench, session, steps)
        points = []
        for setting in settings:
            bench.tell(f"setting {_words(setting)}")
            run = time_setting(bench, loader, setting, steps, session)
            points.append(_point(run, setting, base, costs))
            # after each: what ends the sweep early leaves the points there are
            sentence = _sweep_sentence(points)
            session.results |= {"sweep": points, "sweep_sentence": sentence}
            session.results |= {"verdict": "sweep", "sentence": sentence}
            bench.save_meanwhile(session)
    return session


def _distinct(settings: list[dict[str, Any]], base: Mapping[str, Any]) -> list[dict[str, Any]]:
    """num_workers=0 has no prefetch: its combinations are one."""
    keys, distinct = set(), []
    for setting in settings:
        if not setting.get("workers", base.get("workers")):
            setting = {k: v for k, v in setting.items() if k != "prefetch"}
        key = tuple(sorted(setting.items()))
        if key not in keys:
            keys.add(key)
            distinct.append(setting)
    return distinct


def _pace_s(first: Window) -> float:
    return max(first.period_ns / 1e9, 1e-4)


def _calibrate(bench: Bench, session: Session, steps: int) -> predict.Costs:
    """One worker, prefetch 2: costs without a crowd; a serial run adds the cost of next()."""
    settings = (({"workers": 1, "prefetch": 2}, steps), ({"workers": 0}, max(20, steps // 3)))
    runs = [
        time_setting(bench, bench.loader(), setting, count, session, Arm.CALIBRATION)
        for setting, count in settings
    ]
    return calibrated(*runs)


def calibrated(one: Window, serial: Window) -> predict.Costs:
    """Costs from a one-worker run, with the serial overhead of a num_workers=0 run."""
    costs, alone = predict.measured_costs(one), predict.measured_costs(serial)
    return replace(costs, overhead_serial=alone.overhead_serial, startup=0.0)


def time_setting(
    bench: Bench,
    loader: Any,
    setting: Mapping[str, Any],
    steps: int,
    session: Session,
    arm: Arm = Arm.SETTING,
    block: int = 0,
) -> Window:
    """One run of the loader with a changed setting, kept in the session."""
    changed = module_for(loader).rebuild(loader, dict(setting))
    recorder = Recorder(bench.clock, arm=arm)
    recorder.run.block = block
    config = module_for(changed).describe(changed)
    held = int(config.get("workers") or 0) * int(config.get("prefetch") or 0)
    # twice the batches in flight: the first of them are there before the clock starts
    recorder.run.warmup = max(4, 2 * held)
    drive(bench, changed, recorder, recorder.run.warmup + steps)
    session.runs.append(recorder.run)
    return Window.of(recorder.run)


def _point(
    timed_window: Window, setting: Mapping[str, Any], base: Mapping[str, Any], costs: predict.Costs
) -> dict[str, Any]:
    full = {"prefetch": 2} | dict(base) | dict(setting)
    # costs of a batch grow with it; that is assumed, hence marked as extrapolated below
    scale = float(full.get("batch_size") or 1) / float(base.get("batch_size") or 1)
    guess = predict.predict_period(_scaled(costs, scale), full)
    steady = timed_window.steady_ns  # the prediction has no start-up either
    return {
        "setting": _words(setting),
        "measured_ms": steady / 1e6,
        "predicted_ms": guess.period.value / 1e6,
        "low_ms": guess.period.low / 1e6,
        "high_ms": guess.period.high / 1e6,
        "error": guess.period.value / steady - 1,
        "fluid_ms": guess.fluid_ns / 1e6,
        "fluid_error": guess.fluid_ns / steady - 1,
        "limit": guess.limit,
        "extrapolated": guess.extrapolated or (f"batch size x{scale:g}" if scale != 1 else ""),
    }


def _scaled(costs: predict.Costs, scale: float) -> predict.Costs:
    return replace(
        costs,
        blocked=costs.blocked * scale,
        cpu=costs.cpu * scale,
        serialise=costs.serialise * scale,
        overhead=costs.overhead * scale,
    )


def _words(setting: Mapping[str, Any]) -> str:
    return ", ".join(f"{k}={v}" for k, v in setting.items()) or "as it is"


def _sweep_sentence(points: Sequence[Mapping[str, Any]]) -> str:
    best = min(points, key=lambda p: float(p["measured_ms"]))
    inside = [abs(float(p["error"])) for p in points if not p["extrapolated"]]
    outside = [abs(float(p["error"])) for p in points if p["extrapolated"]]
    fluid = float(np.median([abs(float(p["fluid_error"])) for p in points]))
    parts = [
        f"best of {len(points)} settings: {best['setting']}, {best['measured_ms']:.2f} ms a step"
    ]
    if inside:
        parts.append(f"median prediction error {np.median(inside):.1%} (fluid bound {fluid:.1%})")
    if outside:
        parts.append(f"{len(outside)} extrapolated, median error {np.median(outside):.1%}")
    return "; ".join(parts)


def tune_loader(bench: Bench, options: Options) -> Session:
    """Change one thing at a time until nothing predicted is worth more than the noise."""
    with _kept_session(bench) as session:
        _tune(bench, options, session)
    return session


def _tune(bench: Bench, options: Options, session: Session) -> None:
    first, _ = pilot(bench, options, session)
    loader = bench.loader()
    if first.run.config.get("kind") == "tf":
        tune_dataset(bench, options, session)
        return
    if first.run.config.get("kind") != "torch":
        raise ProfileError(
            "--tune changes settings of a DataLoader or of tf.data, and this loader has none."
        )
    kept_setting: dict[str, Any] = {}
    trials: list[dict[str, Any]] = []
    tried_settings: set[str] = set()
    doubted = False
    # a trial needs to show 2 %, no more: a twentieth of the budget is enough for that
    most = 100 if options.quick else options.steps
    enough = max(options.budget / 20 / _pace_s(first), 10 + 2 * first.in_flight, 30)
    steps = int(min(enough, most))
    for _ in range(ROUNDS):
        run = time_setting(bench, loader, kept_setting, steps, session, Arm.SETTING)
        offers = [o for o in recommend(run) if _words(o[0]) not in tried_settings]
        promising = bool(offers) and offers[0][1] >= 1 + NOISE
        # the model may miss what a step that still waits could gain: its best offer is tried, once
        if not offers or not (promising or (run.starvation.value >= WAITING and not doubted)):
            break
        doubted = not promising
        change, promised = offers[0]
        tried_settings.add(_words(change))
        bench.tell(f"trying {_words(change)}: {promised:.2f} times as fast is predicted")
        gain = versus(bench, loader, kept_setting, kept_setting | change, steps, session, options)
        good = gain.low > 1 + NOISE
        kept_setting |= change if good else {}
        noise = f"the whole interval must lie above {1 + NOISE:.2f}"
        decided = ("kept", "faster beyond the noise") if good else ("rejected", noise)
        trials.append(_trial(change, _words(change), promised, gain, *decided))
        session.results["trials"] = trials
        bench.save_meanwhile(session)
    words = _words(kept_setting) if kept_setting else ""
    ended = "nothing recommended is worth more than the noise"
    session.results |= _tuned(trials, kept_setting, words, "the loader", ended)


def recommend(timed_window: Window, cores: int | None = None) -> list[tuple[dict[str, Any], float]]:
    """Changes with the speed-up that the replay predicts for each, best first."""
    cores = cores or usable_cores()
    costs, config = predict.measured_costs(timed_window), dict(timed_window.run.config)
    now = predict.shared(costs, config, cores).period + costs.startup
    rows = []
    for change in _candidates(config, cores, costs, timed_window.needs_core(costs.cpu_share)):
        setting = config | change
        # workers that persist start once a training, and epochs are many
        startup = 0.0 if change.get("persistent") else costs.startup
        rows.append((change, now / (predict.shared(costs, setting, cores).period + startup)))
    best = max((gain for _, gain in rows), default=0.0)
    # among changes within 1 % of each other the smallest one is the better advice
    near = [row for row in rows if row[1] > 0.99 * best]
    far = [row for row in rows if row[1] <= 0.99 * best]
    return [*sorted(near, key=lambda r: _size(r[0])), *sorted(far, key=lambda r: -r[1])]


def _size(change: Mapping[str, Any]) -> tuple[int, float]:
    return len(change), sum(float(v) for v in change.values() if not isinstance(v, bool))


def _candidates(
    config: Mapping[str, Any], cores: int, costs: predict.Costs, cpu_share: float
) -> list[dict[str, Any]]:
    workers, prefetch = int(config["workers"]), int(config.get("prefetch") or 2)
    # blocked time needs no core
    most = cores if cpu_share >= predict.CPU_BOUND_SHARE else 4 * cores
    axes: list[list[dict[str, Any]]] = [
        [{}, *({"workers": n} for n in range(1, most + 1) if n != workers)],
        [{}, *({"prefetch": p} for p in (2, 4, 8) if p > prefetch)],
    ]
    if costs.startup and not config.get("persistent"):
        axes.append([{}, {"persistent": True}])
    if config.get("in_order") and not config.get("iterable_dataset"):
        axes.append([{}, {"in_order": False}])
    if environment.has_cuda() and not config.get("pin_memory"):
        axes.append([{}, {"pin_memory": True}])
    mixed = [
        {k: v for part in parts for k, v in part.items()} for parts in itertools.product(*axes)
    ]
    # without workers there is nothing to fetch ahead, to keep, or to reorder
    return [change for change in mixed if change and (workers or "workers" in change)]


def versus(
    bench: Bench,
    loader: Any,
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    steps: int,
    session: Session,
    options: Options,
) -> Interval:
    """Speed-up of `new` over `old`, interleaved pairs in random order, with its interval."""
    rng, ratios = random.Random(options.seed), []
    for block in range(options.repeats):
        order = [(Arm.CURRENT, old), (Arm.TRIAL, new)]
        rng.shuffle(order)
        period = {
            arm: time_setting(bench, loader, setting, steps, session, arm, block).epoch_period_ns
            for arm, setting in order
        }
        # ratios are averaged as logarithms: twice as fast and half as fast must cancel
        ratios.append(period[Arm.CURRENT] / period[Arm.TRIAL])
    return geometric_mean(ratios)


def _trial(
    setting: Mapping[str, Any], change: str, promised: float, gain: Interval, decided: str, why: str
) -> dict[str, Any]:
    return {
        "change": change,
        "setting": dict(setting),
        "predicted": promised,
        "measured": f"{gain.value:.2f}x ({gain.low:.2f} to {gain.high:.2f})",
        "speedup": gain.as_dict(),
        "decision": decided,
        "why": why,
    }


def _tuned(
    trials: list[dict[str, Any]], kept: dict[str, Any], words: str, loader: str, ended: str
) -> dict[str, Any]:
    """The results; `words` names what is kept, '' for nothing."""
    sentence = f"keep {words}; then {ended}" if words else f"keep {loader} as it is: {ended}"
    return {
        "verdict": "tuned",
        "sentence": sentence,
        "kept": kept,
        "kept_sentence": sentence,
        "trials": trials,
    }


def compare(a: Session, b: Session) -> dict[str, Any]:
    """Speed-up of B over A by their warm loaders, with 95% CI; independent sessions."""
    first, second = (
        [ns for run in s.arm(Arm.WARM) if (ns := Window.of(run).epoch_period_ns) > 0]
        for s in (a, b)
    )
    if len(first) < 2 or len(second) < 2:
        raise ProfileError(
            "A comparison needs two repeats of the loader in each session: record them with "
            "--set measure.repeats=3."
        )
    logs = difference_interval(np.log(first).tolist(), np.log(second).tolist())
    low, high = math.exp(logs.low), math.exp(logs.high)
    if low > 1:
        sentence = f"B is {low:.2f} to {high:.2f} times faster than A (95% CI)"
    elif high < 1:
        sentence = f"B is {1 / high:.2f} to {1 / low:.2f} times slower than A (95% CI)"
    else:
        sentence = f"inconclusive: B is {low:.2f} to {high:.2f} times as fast as A (95% CI)"
    return {
        "schema": "profile-compare/1",
        "sentence": sentence,
        "speedup": {"value": math.exp(logs.value), "low": low, "high": high},
        "stall": {"a": a.results.get("stall"), "b": b.results.get("stall")},
    }


TF_ROUNDS, TF_REPEATS = 3, 4
# these change what is trained on or need another machine: recommended, never kept unasked
ADVICE_ONLY = ("cache", "smaller shuffle buffer", "tf.data service")


def tune_dataset(bench: Bench, options: Options, session: Session) -> None:
    """Apply interventions one by one; those that change semantics are shown as advice."""
    dataset, kept_names, trials = bench.loader(), [], []
    seconds = options.budget / (TF_ROUNDS * 12 * TF_REPEATS / 2)
    for _ in range(TF_ROUNDS):
        rows, notes = tf_graph.try_all(dataset, bench.step, seconds, repeats=TF_REPEATS)
        session.notes += [note for note in notes if note not in session.notes]
        ranked = sorted(rows, key=lambda row: float(row["period_ms"]) / float(row["baseline_ms"]))
        gains = [(r, geometric_mean(1 / (1 - gain) for gain in r["gains"])) for r in ranked]
        best = next(
            (r for r, g in gains if g.low > 1 + NOISE and r["name"] not in ADVICE_ONLY), None
        )
        trials += [_tf_trial(row, gain, row is best) for row, gain in gains]
        if best is None:
            break
        kept_names.append(str(best["name"]))
        bench.tell(f"kept: {best['name']}")
        dataset = tf_graph.apply(dataset, str(best["name"]))
    ended = "nothing else that can be applied is worth more than the noise"
    words = ", ".join(kept_names)
    session.results |= _tuned(trials, {"interventions": kept_names}, words, "it", ended)


def _tf_trial(row: TriedIntervention, gain: Interval, best: bool) -> dict[str, Any]:
    name, predicted = row["name"], row["baseline_ms"] / row["period_ms"]
    advice = name in ADVICE_ONLY and gain.low > 1 + NOISE
    decided = "kept" if best else "advice" if advice else "rejected"
    why = row["how"] if advice or best else "not faster beyond the noise"
    return _trial({"intervention": name}, name, predicted, gain, decided, why)
