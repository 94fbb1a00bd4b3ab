"""Measure other settings of a loader (`run --try`), or the step alone (`run --ceiling`)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from pipeline_profiler.profiling.adapters import module_for
from pipeline_profiler.profiling.diagnose import predict
from pipeline_profiler.profiling.diagnose.intervals import mean_interval
from pipeline_profiler.profiling.diagnose.window import Window
from pipeline_profiler.profiling.measure import environment
from pipeline_profiler.profiling.measure.arms import Bench, Options, drive, run_arm
from pipeline_profiler.profiling.measure.schedule import make_plan, pilot
from pipeline_profiler.profiling.measure.stopping import kept_when_stopped
from pipeline_profiler.profiling.record.arm import Arm
from pipeline_profiler.profiling.record.plan import Plan
from pipeline_profiler.profiling.record.recorder import Recorder
from pipeline_profiler.profiling.record.session import ProfileError, Session, utc_now

MIN_STEPS = 40  # a shorter window is start-up and buffers, whatever the budget


def ceiling(bench: Bench, options: Options) -> Session:
    """Measure the training step on preloaded batches: the most that any loader could give."""
    with _kept_session(bench) as session:
        first, kept_batches = pilot(bench, options, session)
        plan = replace(make_plan(first, options), arms=(Arm.RESIDENT,))
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
    """Measure the step alone, then every combination of the axes; predict each from other runs."""
    with _kept_session(bench) as session:
        loader = bench.loader()
        base = module_for(loader).describe(loader)
        if base.get("kind") != "torch":
            raise ProfileError(
                "--try changes settings of a DataLoader, and this loader has none: leave --try out."
            )
        mixed = itertools.product(*axes.values())
        settings = _distinct([dict(zip(axes, values, strict=True)) for values in mixed], base)
        first, kept_batches = pilot(bench, options, session)
        enough = max(options.budget / (len(settings) + 2) / _pace_s(first), MIN_STEPS)
        steps = int(min(enough, options.steps))
        session.plan = Plan((Arm.RESIDENT,), repeats=1, steps=steps, warmup=3)
        session.runs.append(run_arm(bench, Arm.RESIDENT, 0, session, kept_batches))
        lowest_ms = Window.of(session.runs[-1]).period_ns / 1e6
        costs = _calibrate(bench, session, steps)
        points: list[dict[str, Any]] = []
        for setting in settings:
            bench.tell(f"setting {_words(setting)}")
            run = time_setting(bench, loader, setting, steps, session)
            points.append(_point(run, setting, base, costs))
            # after each: what ends the sweep early leaves the points there are
            sentence = _sweep_sentence(points, lowest_ms)
            session.results |= {"sweep": points, "lowest_ms": lowest_ms}
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
) -> Window:
    """One run of the loader with a changed setting, kept in the session."""
    changed = module_for(loader).rebuild(loader, dict(setting))
    recorder = Recorder(bench.clock, arm=arm)
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
        "wait_ms": timed_window.input_wait_ns / 1e6,
        "wait_share": timed_window.starvation.value,
        "batch_scale": scale,
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


def _sweep_sentence(points: Sequence[Mapping[str, Any]], lowest_ms: float) -> str:
    """Name the fastest setting by sample, and how far it is from the step without loading."""
    best = min(points, key=lambda point: point["measured_ms"] / point["batch_scale"])
    parts = [
        f"best of {len(points)} settings: {best['setting']}, {best['measured_ms']:.2f} ms a step"
    ]
    if best["batch_scale"] == 1:
        above = max(0.0, best["measured_ms"] / lowest_ms - 1)
        parts.append(
            f"{above:.1%} above the lowest step time ({lowest_ms:.2f} ms, preloaded batches)"
        )
    inside = [abs(point["error"]) for point in points if not point["extrapolated"]]
    outside = [abs(point["error"]) for point in points if point["extrapolated"]]
    if inside:
        parts.append(f"median prediction error {np.median(inside):.1%}")
    if outside:
        parts.append(f"{len(outside)} extrapolated, median error {np.median(outside):.1%}")
    return "; ".join(parts)
