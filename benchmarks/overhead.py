"""What recording costs: the watched loop against the same loop unwatched, interleaved pairs.

A DataLoader with and without workers, a 5 ms step; pairs in random order. A pair gives the
difference of the mean step. Many short pairs and their median, with its 95 % interval from the
order statistics: what else the machine does falls on few of them, on either side, and would
decide a mean (printed beside it). Target: at most 1 % of a 5 ms step (50 µs).

With --in-place the loop is a small training, its steps by turns through the hooks of
`pipeline-profiler watch` and past them (--steps 20 --pairs 400); the figures are the CPU time of
the process, its sampling thread included, and the wall time. Target: at most 20 µs a step below
10 ms, at most 1 % above.

    python benchmarks/overhead.py [--pairs 48] [--steps 100] [--workers 0,2] [--in-place]

About 2 minutes. Last line: one JSON document.
"""

from __future__ import annotations

import argparse
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
WARM = 3  # steps in front of the timed ones


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
    """A small training, its steps by turns through the hooks of `watch` and past them.

    Past them are the functions that were there before; putting hooks in and out would measure how
    Python warms up to them.
    """

    def __init__(self, loader: Any) -> None:
        """The order that the program would give, and an iterator of either kind."""
        import os
        import tempfile

        from torch.optim import optimizer
        from torch.utils.data import dataloader

        from pipeline_profiler.watching import torch_hooks
        from pipeline_profiler.watching.process import VARIABLE, WatchOrder

        folder = tempfile.mkdtemp()
        order = WatchOrder(f"{folder}/p.json", 60.0, folder, "", os.getppid(), quiet=True)
        os.environ[VARIABLE] = json.dumps(asdict(order))
        self.model = torch.nn.Linear(8, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.01)
        iterator = dataloader._BaseDataLoaderIter
        plain = (iter(loader), iterator.__next__, torch.Tensor.backward)
        torch_hooks.hook_loaders(dataloader)
        self.ways = {False: plain, True: (iter(loader), iterator.__next__, torch.Tensor.backward)}
        self._tables: list[dict[int, Any]] = [
            optimizer._global_optimizer_pre_hooks,
            optimizer._global_optimizer_post_hooks,
        ]
        self._hooks = [dict(table) for table in self._tables]

    def costs_us(self, steps: int, watched: bool) -> tuple[float, float]:
        """CPU microseconds of this process a step, its sampling thread included; and wall."""
        for table, hooks in zip(self._tables, self._hooks, strict=True):
            table.update(hooks) if watched else table.clear()
        iterator, deliver, backward = self.ways[watched]
        begin = (0, 0)
        for done in range(WARM + steps):
            if done == WARM:
                begin = (time.process_time_ns(), time.perf_counter_ns())
            batch = deliver(iterator)
            self.optimizer.zero_grad()
            backward(self.model(batch).sum())
            self.optimizer.step()
        end = (time.process_time_ns(), time.perf_counter_ns())
        cpu, wall = ((b - a) / steps / 1e3 for a, b in zip(begin, end, strict=True))
        return cpu, wall


def measure_in_place(workers: int, pairs: int, steps: int) -> dict[str, Any]:
    """Medians of the differences between neighbours in time, of CPU and of wall."""
    loader = DataLoader(Light(), 16, num_workers=workers)
    place, rng = InPlace(loader), random.Random(0)
    differences, plain = [], []
    for _ in range(pairs):
        order = [True, False]
        rng.shuffle(order)
        found = {watched: place.costs_us(steps, watched) for watched in order}
        differences.append([a - b for a, b in zip(found[True], found[False], strict=True)])
        plain.append(found[False][1])
    step = statistics.median(plain)
    row: dict[str, Any] = {"step_us": step}
    for name, values in zip(("cpu", "wall"), zip(*differences, strict=True), strict=True):
        cost = median_interval(list(values))
        row[name] = {"us_per_step": cost.value, "low": cost.low, "high": cost.high}
        print(
            f"workers={workers}: {cost.value:+.1f} us of {name} a step ({cost.low:+.1f} to "
            f"{cost.high:+.1f}), beside a step of {step:.0f} us",
            flush=True,
        )
    return row


def measure(workers: int, pairs: int, steps: int) -> dict[str, Any]:
    loader = DataLoader(Light(), 16, num_workers=workers)
    rng, differences = random.Random(0), []
    for _ in range(pairs):
        order = [True, False]
        rng.shuffle(order)
        found = {watched: period_us(loader, steps, watched) for watched in order}
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
        w: (measure_in_place if args.in_place else measure)(int(w), args.pairs, args.steps)
        for w in args.workers.split(",")
    }
    print(
        json.dumps(
            {"benchmark": "overhead", "step_ms": STEP_MS, "by_workers": rows, "target": 0.01}
        )
    )


if __name__ == "__main__":
    main()
