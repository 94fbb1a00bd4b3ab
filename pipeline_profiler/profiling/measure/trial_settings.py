"""Measure other settings of a loader (`run --try`)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline_profiler.profiling.diagnose.window import Window
from pipeline_profiler.profiling.measure import environment
from pipeline_profiler.profiling.measure.arms import Bench, Options, run_arm
from pipeline_profiler.profiling.measure.schedule import pilot
from pipeline_profiler.profiling.measure.watchdog import kept_when_stopped
from pipeline_profiler.profiling.record.arm import Arm
from pipeline_profiler.profiling.record.plan import Plan
from pipeline_profiler.profiling.record.session import ProfileError, Session, utc_now

MIN_STEPS = 40  # a shorter window is start-up and buffers, whatever the budget


def sweep(bench: Bench, options: Options, axes: Mapping[str, Sequence[Any]]) -> Session:
    """Measure the step alone, then every combination of the axes."""
    session = Session(created=utc_now(), environment=environment.describe())
    with kept_when_stopped(session, bench.guard):
        base = bench.settings()
        if base.get("kind") != "torch":
            raise ProfileError(
                "--try changes settings of a DataLoader, and this loader has none: leave --try out."
            )
        mixed = itertools.product(*axes.values())
        settings = _distinct([dict(zip(axes, values, strict=True)) for values in mixed], base)
        first, preloaded = pilot(bench, options, session)
        enough = max(
            options.budget / (len(settings) + 1) / max(first.period_ns / 1e9, 1e-4), MIN_STEPS
        )
        steps = int(min(enough, options.steps))
        session.plan = Plan((Arm.RESIDENT,), repeats=1, steps=steps, warmup=4)
        session.runs.append(run_arm(bench, Arm.RESIDENT, 0, session, preloaded))
        lowest_ms = Window.of(session.runs[-1]).period_ns / 1e6
        points: list[dict[str, Any]] = []
        for setting in settings:
            bench.tell(f"setting {_words(setting)}")
            session.runs.append(run_arm(bench, Arm.SETTING, 0, session, preloaded, setting))
            points.append(_point(Window.of(session.runs[-1]), setting, base))
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


def _point(
    timed_window: Window, setting: Mapping[str, Any], base: Mapping[str, Any]
) -> dict[str, Any]:
    size = setting.get("batch_size") or base.get("batch_size") or 1
    return {
        "setting": _words(setting),
        "measured_ms": timed_window.steady_ns / 1e6,
        "wait_ms": timed_window.input_wait_ns / 1e6,
        "wait_share": timed_window.starvation.value,
        "batch_scale": float(size) / float(base.get("batch_size") or 1),
    }


def _words(setting: Mapping[str, Any]) -> str:
    return ", ".join(f"{k}={v}" for k, v in setting.items()) or "as it is"


def _sweep_sentence(points: Sequence[Mapping[str, Any]], lowest_ms: float) -> str:
    """Name the fastest setting by sample, and how far it is from the step without loading."""
    best = min(points, key=lambda point: point["measured_ms"] / point["batch_scale"])
    sentence = (
        f"best of {len(points)} settings: {best['setting']}, {best['measured_ms']:.2f} ms a step"
    )
    if best["batch_scale"] != 1:
        return sentence
    above = max(0.0, best["measured_ms"] / lowest_ms - 1)
    return (
        f"{sentence}; {above:.1%} above the lowest step time ({lowest_ms:.2f} ms, preloaded "
        "batches)"
    )
