"""What recording costs, and whether intervals hold: the profiler.

    python benchmarks/profiler.py overhead [--pairs 48] [--steps 100] [--workers 0,2] [--in-place]
    python benchmarks/profiler.py coverage [3 4 5 8] [--draws 400] [--steps 60] [--early-stop]

`overhead`: the watched loop against the same loop unwatched, a DataLoader with and without workers,
a 5 ms step; pairs in random order. A pair gives the difference of the mean step. Many short pairs
and their median, with its 95 % interval from the order statistics: what else the machine does falls
on few of them, on either side, and would decide a mean (printed beside it). Target: at most 1 % of
a 5 ms step (50 µs). With --in-place the loop is a small training, its steps by turns through the
hooks of `pipeline-profiler watch` and past them (--steps 20 --pairs 400); the figures are the CPU
time of the process, its sampling thread included, and the wall time. Target: at most 20 µs a step
below 10 ms, at most 1 % above. About 2 minutes.

`coverage`: do the 95 % intervals hold 95 % of the time? Sessions are made of drawn step times,
whose true stall is known: a step that is steady, noisy, short or long by turns or by chance, one
that drifts, a loader that lets the step wait, takes its cores, or neither. Blocks drift together,
runs differ by themselves. Counted is how often the stated interval of the stall holds the true
one, by number of repeats, how often a verdict is false, and how often `compare` tells two sessions
of one pipeline apart. Targets: 93 to 97 % (more where the loader's CPU time bounds the interval),
no more than 5 % told apart. About six minutes of CPU. With --early-stop a measurement ends after
the third or fourth block where its corrected interval decides, as `run --quick` does.
"""

from __future__ import annotations

import json
import math
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

import numpy as np
import torch
import typer
from bench import Document, hall, measures, told
from torch.utils.data import DataLoader

from pipeline_profiler import Recorder
from pipeline_profiler.profiling.diagnose.comparison import compare
from pipeline_profiler.profiling.diagnose.evidence import gather
from pipeline_profiler.profiling.diagnose.intervals import Interval
from pipeline_profiler.profiling.diagnose.verdict import HIGH, deciding_side, verdict_of
from pipeline_profiler.profiling.record.arm import Arm
from pipeline_profiler.profiling.record.session import MAIN, Run, Session

app = hall(__doc__)


# ---- what recording costs ----

STEP_MS = 5.0
WARM = 3  # steps in front of the timed ones


LIGHT: Any = [torch.zeros(8)] * 1_000_000  # cost next to nothing: the recorder's share is largest


def work(ms: float) -> None:
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
        from torch.optim import optimizer
        from torch.utils.data import dataloader

        from pipeline_profiler.profiling.monitor import torch_hooks
        from pipeline_profiler.profiling.monitor.process import VARIABLE, WatchOrder

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


def differences(
    cost: Callable[[int, bool], tuple[float, ...]], pairs: int, steps: int
) -> tuple[list[list[float]], list[tuple[float, ...]]]:
    """Return what watching adds in each of many pairs in random order, and the plain costs."""
    rng, added, plain = random.Random(0), [], []
    for _ in range(pairs):
        order = [True, False]
        rng.shuffle(order)
        found = {watched: cost(steps, watched) for watched in order}
        added.append([a - b for a, b in zip(found[True], found[False], strict=True)])
        plain.append(found[False])
    return added, plain


def measure_in_place(workers: int, pairs: int, steps: int) -> Document:
    """Medians of the differences between neighbours in time, of CPU and of wall."""
    place = InPlace(DataLoader(LIGHT, 16, num_workers=workers))
    added, plain = differences(place.costs_us, pairs, steps)
    step = statistics.median(wall for _, wall in plain)
    row: Document = {"step_us": step}
    for name, values in zip(("cpu", "wall"), zip(*added, strict=True), strict=True):
        cost = median_interval(list(values))
        row[name] = {"us_per_step": cost.value, "low": cost.low, "high": cost.high}
    print(told({"workers": workers, **row}), flush=True)
    return row


def measure_recorder(workers: int, pairs: int, steps: int) -> Document:
    """The median of the differences of the mean step, and its share of the step."""
    loader = DataLoader(LIGHT, 16, num_workers=workers)
    added, _ = differences(lambda n, watched: (period_us(loader, n, watched),), pairs, steps)
    values = [one for (one,) in added]
    cost, mean = median_interval(values), statistics.fmean(values)
    share = cost.scaled(1 / (STEP_MS * 1e3))
    row = {
        "us_per_step": cost.value, "low": cost.low, "high": cost.high, "mean": mean,
        "share": share.value, "share_high": share.high,
    }  # fmt: skip
    print(told({"workers": workers, **row}), flush=True)
    return row


def median_interval(values: list[float]) -> Interval:
    """Median with the order statistics that hold it with 95 % (binomial, normal approximation)."""
    ranked, n = sorted(values), len(values)
    at = max(0, math.floor(n / 2 - 0.98 * math.sqrt(n)))
    return Interval(statistics.median(ranked), ranked[at], ranked[n - 1 - at], n)


@measures(app)
def overhead(
    pairs: int = 48, steps: int = 100, workers: str = "0,2", in_place: bool = False
) -> Document:
    """What does recording add to a step?"""
    torch.set_num_threads(1)
    measure = measure_in_place if in_place else measure_recorder
    rows = {w: measure(int(w), pairs, steps) for w in workers.split(",")}
    return {"step_ms": STEP_MS, "by_workers": rows, "target": 0.01}


# ---- whether intervals hold ----

BLOCK_DRIFT, RUN_NOISE = 0.05, 0.015  # sigma of a factor on every time of a block, of a run
WARMUP = 2


@dataclass(frozen=True)
class Pipeline:
    """Milliseconds: the step's two lengths, the mean wait, and what the loader costs the step."""

    short: float
    long: float
    wait: float
    contention: float = 0.0
    used: float = 0.0  # CPU time of the loader's processes a step
    every: int = 0  # the long step comes that often; 0: by chance, half of the time
    spread: float = 0.1  # sigma of a step's logarithm
    drift: float = 0.0  # by which the step slows down or speeds up inside a run

    @property
    def stall(self) -> float:
        """The true share."""
        long = 1 / self.every if self.every else 0.5
        lost = self.wait + self.contention
        return lost / ((1 - long) * self.short + long * self.long + lost)


PIPELINES = {
    "steady, high": Pipeline(20, 20, 10),
    "steady, none": Pipeline(20, 20, 0.2),
    "steady, contention": Pipeline(20, 20, 1, contention=4, used=15),
    "bimodal, none": Pipeline(10, 30, 0.2, used=1),
    "bimodal, moderate": Pipeline(6, 44, 3, used=0.5),
    "bimodal, high": Pipeline(10, 30, 10),
    "bimodal, contention": Pipeline(10, 30, 3, contention=4, used=12),
    "noisy, none": Pipeline(20, 20, 0.3, used=0.4, spread=0.9),
    "noisy, high": Pipeline(20, 20, 12, contention=1, used=8, spread=0.9),
    "drifting, none": Pipeline(20, 20, 0.2, used=0.3, drift=0.3),
    "rhythmic, none": Pipeline(10, 60, 0.3, every=5),
    "rhythmic, high": Pipeline(10, 60, 8, contention=0.5, used=3, every=5),
}


def drawn_steps(p: Pipeline, count: int, rng: Any) -> np.ndarray[Any, Any]:
    """Milliseconds of so many steps, their mean as the pipeline says."""
    turns = np.arange(count) + rng.integers(0, max(1, p.every))
    long = turns % p.every == 0 if p.every else rng.random(count) < 0.5
    slope = 1 + rng.normal(0, p.drift) * np.linspace(-0.5, 0.5, count)
    spread = rng.lognormal(-(p.spread**2) / 2, p.spread, count)
    return np.asarray(np.where(long, p.long, p.short) * spread * np.maximum(slope, 0.2))


def drawn_run(p: Pipeline, arm: Arm, block: int, drift: float, steps: int, rng: Any) -> Run:
    run = Run(arm=arm, block=block, warmup=WARMUP, config={"kind": "iterable"})
    run.slow_keys = rng.integers(0, 1 << 30, 20).tolist()  # other samples in every run
    count, loading = steps + WARMUP, arm == Arm.WARM
    factor = 1e6 * drift * math.exp(rng.normal(0, RUN_NOISE))
    loops = drawn_steps(p, count, rng)
    loops += rng.exponential(p.contention, count) if loading else 0.0
    waits = rng.exponential(p.wait, count) if loading else np.zeros(count)
    loops, waits = ((x * factor).astype(np.int64) for x in (loops, waits))
    starts = np.concatenate([[0], np.cumsum(loops + waits)])
    rows = zip(starts[:-1].tolist(), waits.tolist(), loops.tolist(), strict=True)
    for i, (start, wait, loop) in enumerate(rows):
        run.spans.add("wait", i, MAIN, start, wait, 0)
        run.spans.add("loop", i, MAIN, start + wait, loop, loop)
    run.totals = {"own_cpu_ns": 0, "main_cpu_ns": 0, "main_queued_ns": 0}
    run.totals["children_cpu_ns"] = int(p.used * factor * steps) if loading else 0
    return run


def drawn_session(p: Pipeline, repeats: int, steps: int, rng: Any) -> Session:
    session = Session(environment={"cores": 2})
    session.probes.batch_bytes = 1000
    for block in range(repeats):
        drift = math.exp(rng.normal(0, BLOCK_DRIFT))
        for arm in (Arm.RESIDENT, Arm.WARM):
            session.runs.append(drawn_run(p, arm, block, drift, steps, rng))
    return session


def stopped(session: Session) -> Session:
    """The session as far as a measurement with early stop goes."""
    session.plan = replace(session.plan, early_stop=True)
    for blocks in (3, 4):
        part = replace(session, runs=[run for run in session.runs if run.block < blocks])
        if deciding_side(part):
            return part
    return session


def counted(
    p: Pipeline, repeats: int, draws: int, steps: int, rng: Any, early_stop: bool = False
) -> dict[str, float]:
    """Shares of the draws: intervals that hold the truth, false verdicts, equal ones told apart."""
    held = false = inconclusive = told = blocks = 0
    before: Session | None = None
    for _ in range(draws):
        session = drawn_session(p, repeats, steps, rng)
        session = stopped(session) if early_stop else session
        stall = gather(session).stall
        verdict, _ = verdict_of(stall)
        held += stall.low <= p.stall <= stall.high
        inconclusive += verdict == "inconclusive"
        false += verdict.bound != (p.stall > 0.05) and verdict != "inconclusive"
        false += verdict == "input-bound high" and p.stall < HIGH - 1e-9
        blocks += len(session.arm(Arm.WARM))
        if before is not None:
            told += not compare(before, session)["sentence"].startswith("inconclusive")
        before = session
    rates = {"held": held, "false_verdicts": false, "inconclusive": inconclusive, "blocks": blocks}
    return {k: v / draws for k, v in rates.items()} | {"told_apart": told / (draws - 1)}


@measures(app)
def coverage(
    repeats: Annotated[list[int] | None, typer.Argument()] = None,
    draws: int = 400,
    steps: int = 60,
    early_stop: bool = False,
) -> Document:
    """Do the stated intervals hold, with so many repeats?"""
    rng, rows = np.random.default_rng(0), {}
    for name, p in PIPELINES.items():
        for n in repeats or (2, 3, 5, 8):
            row = counted(p, n, draws, steps, rng, early_stop)
            rows[f"{name}, {n} repeats"] = row
            print(told({"pipeline": name, "repeats": n, **row}))
    error = 1.96 * math.sqrt(0.05 * 0.95 / draws)
    targets = {"held": [0.93, 0.97], "told_apart": 0.05, "false_verdicts": 0.0}
    return {"draws": draws, "rows": rows, "error_of_a_rate": round(error, 3), "targets": targets}


if __name__ == "__main__":
    app()
