"""Predicted against measured throughput over a sweep of real DataLoaders.

Per cost profile (sleep-bound light, sleep-bound heavy-tailed, CPU-bound) one run with one worker
and one with none calibrate the model; then each setting (workers 0-4, prefetch 1-4, step 0-20 ms)
is predicted first and measured after. Target: median |error| <= 10 % inside the calibrated range
(CPU-bound: workers up to the usable cores); beside it the fluid bound's error, and the error of
the points that the model itself calls extrapolated.

    python benchmarks/prediction.py [--batches 150] [--tiny]

Full: 3 x 52 settings, about 7 minutes. Last line: one JSON document.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from pipeline_profiler.diagnose import predict
from pipeline_profiler.diagnose.window import Window
from pipeline_profiler.measure import tune
from pipeline_profiler.measure.arms import Bench, drive
from pipeline_profiler.record.arm import Arm
from pipeline_profiler.record.cores import usable_cores
from pipeline_profiler.record.recorder import Recorder

BATCH = 4
USABLE = usable_cores()


class Costly(Dataset[Any]):
    """Sample i costs costs[i] ms, asleep or on a core."""

    def __init__(self, costs: np.ndarray[Any, Any], cpu: bool) -> None:
        """Keep what is wrapped or measured."""
        self.costs, self.cpu = costs, cpu

    def __len__(self) -> int:
        """Length of what is wrapped."""
        return len(self.costs)

    def __getitem__(self, i: int) -> torch.Tensor:
        """One sample, timed."""
        ms = float(self.costs[i])
        if self.cpu:
            end = time.thread_time_ns() + ms * 1e6
            while time.thread_time_ns() < end:
                pass
        else:
            time.sleep(ms / 1e3)
        return torch.zeros(16)


def profiles(samples: int) -> dict[str, Costly]:
    rng = np.random.default_rng(0)
    heavy = rng.lognormal(0, 1.0, samples)
    return {
        "sleep, light": Costly(rng.uniform(2.0, 4.0, samples), cpu=False),
        "sleep, heavy-tailed": Costly(3.0 * heavy / heavy.mean(), cpu=False),
        "cpu": Costly(rng.uniform(2.0, 4.0, samples), cpu=True),
    }


def run_of(dataset: Costly, setting: dict[str, int], step_ms: float, batches: int) -> Window:
    workers, prefetch = setting["workers"], setting.get("prefetch", 2)
    kwargs = {"prefetch_factor": prefetch} if workers else {}
    loader = DataLoader(dataset, BATCH, num_workers=workers, shuffle=True, **kwargs)
    step: Callable[[Any], Any] = lambda batch: time.sleep(step_ms / 1e3)  # noqa: E731
    if step_ms == 0:
        step = lambda batch: None  # noqa: E731
    recorder = Recorder(arm=Arm.SETTING)
    recorder.run.warmup = max(8, 2 * workers * prefetch)
    drive(Bench(lambda: loader, step), loader, recorder, recorder.run.warmup + batches)
    return Window.of(recorder.run)


def settings(tiny: bool) -> list[tuple[dict[str, int], float]]:
    steps = (0.0, 10.0) if tiny else (0.0, 5.0, 10.0, 20.0)
    workers = (0, 1, 2) if tiny else (0, 1, 2, 3, 4)
    rows = []
    for w in workers:
        for p in (1,) if w == 0 else ((2,) if tiny else (1, 2, 4)):
            rows += [({"workers": w, "prefetch": p}, t) for t in steps]
    return rows


def sweep(name: str, dataset: Costly, batches: int, tiny: bool) -> list[dict[str, Any]]:
    rows = []
    chosen = settings(tiny)
    for step_ms in sorted({t for _, t in chosen}):
        one = run_of(dataset, {"workers": 1, "prefetch": 2}, step_ms, batches)
        serial = run_of(dataset, {"workers": 0}, step_ms, max(30, batches // 3))
        costs = tune.calibrated(one, serial)
        for setting, t in chosen:
            if t == step_ms:
                guess = predict.predict_period(costs, setting)
                run = run_of(dataset, setting, step_ms, batches)
                rows.append(point(name, setting, t, guess, run.period_ns))
    return rows


def point(
    name: str, setting: dict[str, int], step_ms: float, guess: predict.Prediction, measured: float
) -> dict[str, Any]:
    error = guess.period.value / measured - 1
    label = f"extrapolated: {guess.extrapolated}" if guess.extrapolated else ""
    print(
        f"{name:20s} w={setting['workers']} P={setting['prefetch']} t={step_ms:4.0f} ms  "
        f"measured {measured / 1e6:7.2f}  predicted {guess.period.value / 1e6:7.2f} ms  "
        f"{error:+7.1%}  fluid {guess.fluid_ns / measured - 1:+7.1%}  {label}",
        flush=True,
    )
    return {
        "error": error,
        "fluid_error": guess.fluid_ns / measured - 1,
        "extrapolated": bool(guess.extrapolated),
        "inside": guess.period.low <= measured <= guess.period.high,
    }


def summary(rows: list[dict[str, Any]], key: str) -> float | None:
    return float(np.median([abs(r[key]) for r in rows])) if rows else None


def main() -> None:
    ap = argparse.ArgumentParser()
    ap.add_argument("--batches", type=int, default=150)
    ap.add_argument("--tiny", action="store_true")
    args = ap.parse_args()
    torch.set_num_threads(1)
    batches = 30 if args.tiny else args.batches
    rows: list[dict[str, Any]] = []
    by_profile = {}
    for name, dataset in profiles(4 * BATCH * (batches + 100)).items():
        found = sweep(name, dataset, batches, args.tiny)
        by_profile[name] = summary([r for r in found if not r["extrapolated"]], "error")
        rows += found
    inside = [r for r in rows if not r["extrapolated"]]
    outside = [r for r in rows if r["extrapolated"]]
    result = {
        "benchmark": "prediction",
        "usable_cores": USABLE,
        "points": len(rows),
        "median_abs_error_calibrated": summary(inside, "error"),
        "median_abs_error_fluid": summary(inside, "fluid_error"),
        "extrapolated_points": len(outside),
        "median_abs_error_extrapolated": summary(outside, "error"),
        "by_profile": by_profile,
        "target": 0.10,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
