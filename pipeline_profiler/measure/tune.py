"""Recommend -> apply -> re-run -> keep or reject, predicted beside measured; sweep and compare.

A recommendation is a change of loader settings that the replay model says is worth it. It is kept
only if a fresh, interleaved comparison says so too: the whole interval of the speed-up must lie
above 1 by more than the noise. Tuning ends when nothing predicted is worth more than the noise.
"""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pipeline_profiler.adapters import module_for
from pipeline_profiler.diagnose import predict
from pipeline_profiler.diagnose.intervals import Interval, difference_interval, mean_interval
from pipeline_profiler.diagnose.window import Window
from pipeline_profiler.measure import environment
from pipeline_profiler.measure.arms import Bench, Options, drive, run_arm
from pipeline_profiler.measure.schedule import make_plan, pilot
from pipeline_profiler.measure.stopping import kept_when_stopped
from pipeline_profiler.record.arm import Arm
from pipeline_profiler.record.cores import usable_cores
from pipeline_profiler.record.recorder import Recorder
from pipeline_profiler.record.session import ProfileError, Session

NOISE = 0.02  # a speed-up below 2 % is not told from noise on a shared machine
WAITING = 0.05  # share of the step
ROUNDS = 4


def ceiling(bench: Bench, options: Options) -> Session:
    """`replay`: the step fed with cached batches, the most any loader could give."""
    session = _session()
    with kept_when_stopped(session, bench.guard):
        _measure_ceiling(bench, options, session)
    return session


def _measure_ceiling(bench: Bench, options: Options, session: Session) -> None:
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
            f"ceiling: {1000 / mean.value:.1f} steps/s with cached batches "
            f"({mean.value:.2f} ms a step, 95 %: {mean.low:.2f} to {mean.high:.2f}); the first "
            f"pass of the real loader took {real:.2f} ms"
        ),
        "arms": {Arm.RESIDENT: {"period_ms": mean.value, "repeats": mean.n}},
    }


def _session() -> Session:
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return Session(created=created, environment=environment.describe())


# ---------------------------------------------------------------------------------- sweep


def sweep(bench: Bench, options: Options, axes: Mapping[str, Sequence[Any]]) -> Session:
    """Measure every combination of the axes, and predict each from one calibration run."""
    session = _session()
    with kept_when_stopped(session, bench.guard):
        _sweep_settings(bench, options, axes, session)
    return session


def _sweep_settings(
    bench: Bench, options: Options, axes: Mapping[str, Sequence[Any]], session: Session
) -> None:
    loader = bench.loader()
    base = module_for(loader).describe(loader)
    if base.get("kind") != "torch":
        raise ProfileError("sweep changes DataLoader settings; this loader has none: use `run`.")
    settings = [
        dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())
    ]
    settings = _distinct(settings, base)
    steps = _sweep_steps(bench, options, session, len(settings))
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


def _sweep_steps(bench: Bench, options: Options, session: Session, settings: int) -> int:
    first, _ = pilot(bench, options, session)
    period = max(first.period_ns / 1e9, 1e-4)
    # 40 steps at least: a shorter window is start-up and buffers, whatever the budget
    return int(min(max(options.budget / (settings + 1) / period, 40), options.steps))


def _calibrate(bench: Bench, session: Session, steps: int) -> predict.Costs:
    """One worker, prefetch 2: costs without a crowd; a serial run adds the cost of next()."""
    loader = bench.loader()
    one = time_setting(
        bench, loader, {"workers": 1, "prefetch": 2}, steps, session, Arm.CALIBRATION
    )
    serial = time_setting(
        bench, loader, {"workers": 0}, max(20, steps // 3), session, Arm.CALIBRATION
    )
    return calibrated(one, serial)


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


# ----------------------------------------------------------------------------------- tune


def tune_loader(bench: Bench, options: Options) -> Session:
    """Change one thing at a time until nothing predicted is worth more than the noise."""
    session = _session()
    with kept_when_stopped(session, bench.guard):
        _tune(bench, options, session)
    return session


def _tune(bench: Bench, options: Options, session: Session) -> None:
    first, _ = pilot(bench, options, session)
    loader = bench.loader()
    if first.run.config.get("kind") == "tf":
        from pipeline_profiler.measure import tune_tf

        tune_tf.tune_dataset(bench, options, session)
        return
    if first.run.config.get("kind") != "torch":
        raise ProfileError("tune changes DataLoader or tf.data settings; this loader has none.")
    kept_setting: dict[str, Any] = {}
    trials: list[dict[str, Any]] = []
    tried_settings: set[str] = set()
    doubted = False
    steps = _trial_steps(first, options)
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
        trials.append(_trial(change, promised, gain, good))
        session.results["trials"] = trials
        bench.save_meanwhile(session)
    session.results |= _tuned(trials, kept_setting)


def _trial_steps(first: Window, options: Options) -> int:
    period = max(first.period_ns / 1e9, 1e-4)
    # a trial needs to show 2 %, no more: a twentieth of the budget is enough for that
    most = 100 if options.quick else options.steps
    return int(min(max(options.budget / 20 / period, 10 + 2 * first.in_flight, 30), most))


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
    """Every combination of the settings that can be changed, but the one that is there."""
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
    rng, logs = random.Random(options.seed), []
    for block in range(options.repeats):
        order = [(Arm.CURRENT, old), (Arm.TRIAL, new)]
        rng.shuffle(order)
        period = {
            arm: time_setting(bench, loader, setting, steps, session, arm, block).epoch_period_ns
            for arm, setting in order
        }
        # ratios are averaged as logarithms: twice as fast and half as fast must cancel
        logs.append(math.log(period[Arm.CURRENT] / period[Arm.TRIAL]))
    mean = mean_interval(logs)
    return Interval(math.exp(mean.value), math.exp(mean.low), math.exp(mean.high), mean.n)


def _trial(
    change: Mapping[str, Any], promised: float, gain: Interval, good: bool
) -> dict[str, Any]:
    noise = f"the whole interval must lie above {1 + NOISE:.2f}"
    return {
        "change": _words(change),
        "setting": dict(change),
        "predicted": promised,
        "measured": f"{gain.value:.2f}x ({gain.low:.2f} to {gain.high:.2f})",
        "speedup": gain.as_dict(),
        "decision": "kept" if good else "rejected",
        "why": "faster beyond the noise" if good else noise,
    }


def _tuned(trials: list[dict[str, Any]], kept_setting: dict[str, Any]) -> dict[str, Any]:
    ended = "nothing recommended is worth more than the noise"
    sentence = (
        f"keep {_words(kept_setting)}; then {ended}"
        if kept_setting
        else f"keep the loader as it is: {ended}"
    )
    return {
        "verdict": "tuned",
        "sentence": sentence,
        "kept": kept_setting,
        "kept_sentence": sentence,
        "trials": trials,
    }


# -------------------------------------------------------------------------------- compare


def _periods_ns(session: Session) -> list[float]:
    """Periods of the runs of the warm loader that have one."""
    periods = [Window.of(run).epoch_period_ns for run in session.arm(Arm.WARM)]
    return [period for period in periods if period > 0]


def compare(a: Session, b: Session) -> dict[str, Any]:
    """Speed-up of B over A by their warm loaders, with 95 % interval; independent sessions."""
    first, second = (_periods_ns(s) for s in (a, b))
    if len(first) < 2 or len(second) < 2:
        raise ProfileError(
            "compare needs two repeats of the warm loader in each session: record with --repeats 3."
        )
    logs = difference_interval(np.log(first).tolist(), np.log(second).tolist())
    low, high = math.exp(logs.low), math.exp(logs.high)
    if low > 1:
        sentence = f"B is {low:.2f} to {high:.2f} times faster than A (95 %)"
    elif high < 1:
        sentence = f"B is {1 / high:.2f} to {1 / low:.2f} times slower than A (95 %)"
    else:
        sentence = f"no difference told: B / A speed {low:.2f} to {high:.2f} (95 %)"
    return {
        "schema": "profile-compare/1",
        "sentence": sentence,
        "speedup": {"value": math.exp(logs.value), "low": low, "high": high},
        "stall": {"a": a.results.get("stall"), "b": b.results.get("stall")},
    }
