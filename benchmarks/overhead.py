"""What recording costs: the watched loop against the same loop unwatched, interleaved pairs.

A DataLoader with and without workers, a 5 ms step; pairs in random order. A pair gives the
difference of the mean step. Many short pairs and their median, with its 95 % interval from the
order statistics: what else the machine does falls on few of them, on either side, and would
decide a mean (printed beside it). Target: at most 1 % of a 5 ms step (50 µs).

With --in-place the loop is a small training, with the hooks of `pipeline-profiler watch` in and out
by turns; a figure is the training thread's CPU time in the fastest of several blocks of 50 steps,
which other programs disturb least. Target: at most 20 µs a step.

    python benchmarks/overhead.py [--pairs 48] [--steps 100] [--workers 0,2] [--in-place]

About 2 minutes. Last line: one JSON document.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import statistics
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from torch.utils.data import DataLoader, Dataset

from pipeline_profiler import Recorder
from pipeline_profiler.diagnose.intervals import Interval

STEP_MS = 5.0
BLOCK = 50


class Light(Dataset[Any]):
    """Samples that cost next to nothing, 16 a batch: the recorder's share is at its largest."""

    def __len__(self) -> int:
        """Length of what is wrapped."""
        return 1_000_000

    def __getitem__(self, i: int) -> torch.Tensor:
        """One sample, timed."""
        return torch.zeros(8)


def work(ms: float) -> None:
    """A step on the host: steadier than sleep."""
    end = time.perf_counter_ns() + ms * 1e6
    while time.perf_counter_ns() < end:
        pass


def period_us(loader: Any, steps: int, watched: bool) -> float:
    """Mean microseconds a step, warm-up left out."""
    recorder = Recorder()
    start = 0
    batches = recorder.watch(loader) if watched else loader
    for done, batch in enumerate(batches, 1):
        if watched:
            with recorder.step():
                work(STEP_MS)
        else:
            work(STEP_MS)
        del batch
        if done == 20:
            start = time.perf_counter_ns()
        if done == 20 + steps:
            break
    return (time.perf_counter_ns() - start) / steps / 1e3


class InPlace:
    """A small training, and the hooks of `watch` around it."""

    def __init__(self) -> None:
        """The order that the program would give."""
        import os
        import tempfile

        from pipeline_profiler.watching.process import VARIABLE, WatchOrder

        folder = tempfile.mkdtemp()
        order = WatchOrder(f"{folder}/p.json", 60.0, folder, "", os.getppid(), quiet=True)
        os.environ[VARIABLE] = json.dumps(asdict(order))
        self.model = torch.nn.Linear(8, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.01)

    def period_us(self, loader: Any, steps: int, watched: bool) -> float:
        """CPU microseconds of the training thread a step, in the fastest of the blocks of 50."""
        from pipeline_profiler.watching import torch_hooks

        if watched:
            torch_hooks.hook_loaders(torch.utils.data.dataloader)
        marks = []
        for done, batch in enumerate(loader):
            self.optimizer.zero_grad()
            self.model(batch).sum().backward()
            self.optimizer.step()
            if done % BLOCK == 0:
                marks.append(time.thread_time_ns())
            if done == BLOCK + steps:
                break
        torch_hooks.unhook_torch()
        return min(b - a for a, b in itertools.pairwise(marks[1:])) / BLOCK / 1e3


def measure(workers: int, pairs: int, steps: int, in_place: bool) -> dict[str, Any]:
    loader = DataLoader(Light(), 16, num_workers=workers)
    one = InPlace().period_us if in_place else period_us
    rng, differences = random.Random(0), []
    for _ in range(pairs):
        order = [True, False]
        rng.shuffle(order)
        found = {watched: one(loader, steps, watched) for watched in order}
        differences.append(found[True] - found[False])
    cost, mean = median_interval(differences), statistics.fmean(differences)
    share = cost.scaled(1 / (STEP_MS * 1e3))
    print(
        f"workers={workers}: {cost.value:+.1f} us a step ({cost.low:+.1f} to {cost.high:+.1f}), "
        f"{share.value:+.2%} of a {STEP_MS:g} ms step; mean {mean:+.1f} us",
        flush=True,
    )
    return {
        "us_per_step": cost.value,
        "low": cost.low,
        "high": cost.high,
        "mean": mean,
        "share": share.value,
        "share_high": share.high,
    }


def median_interval(values: list[float]) -> Interval:
    """Median with the order statistics that hold it with 95 % (binomial, normal approximation)."""
    ranked, n = sorted(values), len(values)
    at = max(0, math.floor(n / 2 - 0.98 * math.sqrt(n)))
    return Interval(statistics.median(ranked), ranked[at], ranked[n - 1 - at], n)


def main() -> None:
    ap = argparse.ArgumentParser()
    ap.add_argument("--pairs", type=int, default=48)
    ap.add_argument("--steps", type=int, default=100)
    ap.add_argument("--workers", default="0,2")
    ap.add_argument("--in-place", action="store_true")
    args = ap.parse_args()
    torch.set_num_threads(1)
    rows = {
        w: measure(int(w), args.pairs, args.steps, args.in_place) for w in args.workers.split(",")
    }
    print(
        json.dumps(
            {"benchmark": "overhead", "step_ms": STEP_MS, "by_workers": rows, "target": 0.01}
        )
    )


if __name__ == "__main__":
    main()
