"""One run as figures: step period, waiting, loading shares, stages. Each is computed once.

Spans become a row per step and a row per delivered batch, in int64 nanoseconds. Step period: mean
from next() entry to next() entry; waiting: time inside next() and iter(). A run must not change
after its window was made.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_profiler.profiling.diagnose.intervals import (
    Floats,
    Interval,
    block_interval,
    ratio_of_sums,
)
from pipeline_profiler.profiling.record.arm import EXPOSED, SPLIT_ORDER, Arm
from pipeline_profiler.profiling.record.session import MAIN, Run, Session

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Rows = dict[str, Ints]  # the columns of some spans, all of one length


@dataclass(frozen=True, slots=True)
class Steps:
    """The timed window of one run: one entry a step, nanoseconds."""

    batch: Ints
    entry: Ints  # next() called
    wait: Ints  # inside next()
    wait_cpu: Ints
    loop: Ints  # next() return to next() entry
    period: Ints  # entry to entry, the epoch's iter() call included
    step: Ints  # the marked step; equals loop where nothing was marked
    first: Flags  # first batch of an epoch
    startup: Ints  # iter() call to first batch, on the first batch of an epoch, else 0

    @property
    def normal(self) -> Flags:
        """The steps that begin no epoch; all where each does."""
        return ~self.first if not self.first.all() else self.first


@dataclass(frozen=True, slots=True)
class Batches:
    """What workers did for the batches of the timed window, nanoseconds, in delivery order."""

    batch: Ints
    worker: Ints
    start: Ints  # fetch begins
    fetch: Ints
    cpu: Ints
    queued: Ints  # runnable without a core; -1 unknown
    sent: Ints
    receive: Ints
    samples: Ints
    slow: Ints  # slowest sample
    stages: dict[str, Ints]  # self wall time a batch
    stage_cpu: dict[str, Ints]
    gc: Ints
    process_cpu: Ints
    read_bytes: Ints
    read_chars: Ints


def spans_of(run: Run, stage: str, worker: int | None = MAIN) -> Rows:
    """Spans of one stage in one process; `worker` None takes all processes."""
    spans = run.spans
    columns = {k: np.frombuffer(v, np.int64) for k, v in spans.columns.items()}
    if stage not in spans.stages:
        return {k: np.zeros(0, np.int64) for k in columns}
    mask: Flags = columns["stage"] == spans.stages.index(stage)
    if worker is not None:
        mask &= columns["worker"] == worker
    return {k: v[mask] for k, v in columns.items()}


def sum_by_batch(rows: Rows, name: str, batches: Ints, fill: int = 0) -> Ints:
    """Column `name` of the rows summed per batch, aligned to `batches`."""
    out = np.full(len(batches), fill, np.int64)  # `fill` keeps "unknown" apart from 0
    if not len(rows["batch"]) or not len(batches):
        return out
    # batches arrive out of order with in_order=False: sort once, then look each span's batch up
    order = np.argsort(batches, kind="stable")
    where = np.clip(np.searchsorted(batches[order], rows["batch"]), 0, len(batches) - 1)
    hit = batches[order][where] == rows["batch"]
    at = order[where[hit]]
    out[at] = 0
    # add.at, as a batch has many spans of one stage and plain indexing would keep the last alone
    np.add.at(out, at, rows[name][hit])
    return out


def step_columns(run: Run, from_batch: int) -> Steps:
    """One row per step, from batch number `from_batch` on."""
    wait, loop, marked = (spans_of(run, stage) for stage in ("wait", "loop", "step"))
    # a loop that was cut off has a last wait without a step: it has no period
    n = min(len(wait["batch"]), len(loop["batch"]))
    wait, loop = ({k: v[:n] for k, v in rows.items()} for rows in (wait, loop))
    epochs = spans_of(run, "iter")
    first = np.isin(wait["batch"], epochs["batch"])
    end = loop["start"] + loop["wall"]
    # entry to entry, so that iter() between two epochs counts; the last step ends with its loop
    following = np.append(wait["start"][1:], end[-1:])
    step = sum_by_batch(marked, "wall", wait["batch"], -1)
    began = sum_by_batch(epochs, "start", wait["batch"], 0)
    # an epoch cut off before its first batch leaves a second iter() row for the same batch number
    startup = np.where(first, wait["start"] + wait["wall"] - began, 0)
    keep = wait["batch"] >= from_batch
    return Steps(
        batch=wait["batch"][keep],
        entry=wait["start"][keep],
        wait=wait["wall"][keep],
        wait_cpu=wait["cpu"][keep],
        loop=loop["wall"][keep],
        period=(following - wait["start"])[keep],
        step=np.where(step < 0, loop["wall"], step)[keep],
        first=first[keep],
        startup=startup[keep],
    )


def batch_columns(run: Run, from_batch: int) -> Batches:
    """One row per delivered batch; empty where nothing travelled with the batches."""
    rows = {k: np.frombuffer(v, np.int64) for k, v in run.batches.items()}
    keep = rows["batch"] >= from_batch
    rows = {k: v[keep] for k, v in rows.items()}
    ids = rows["batch"]
    fetch, receive = (spans_of(run, stage, None) for stage in ("fetch", "receive"))
    stages, stage_cpu = stage_columns(run, ids)
    recorded = ("worker", "sent", "samples", "read_bytes", "read_chars", "process_cpu")
    return Batches(
        **{name: rows[name] for name in recorded},
        batch=ids,
        start=sum_by_batch(fetch, "start", ids),
        fetch=sum_by_batch(fetch, "wall", ids),
        cpu=sum_by_batch(fetch, "cpu", ids),
        queued=sum_by_batch(fetch, "queued", ids, -1),
        receive=sum_by_batch(receive, "wall", ids),
        slow=rows["slow_ns"],
        stages=stages,
        stage_cpu=stage_cpu,
        gc=rows["gc_ns"],
    )


def stage_columns(run: Run, ids: Ints) -> tuple[dict[str, Ints], dict[str, Ints]]:
    """Self wall and CPU time of each loader stage, details summed, aligned to the batches `ids`."""
    # spans of the loop itself; what is left is loading
    own = {"iter", "wait", "loop", "step", "fetch", "serialise", "receive", "sampler"}
    wall: dict[str, Ints] = {}
    cpu: dict[str, Ints] = {}
    for stage in run.spans.stages:
        if stage in own or stage.startswith("step:"):
            continue
        rows = spans_of(run, stage, None)
        name = stage.partition(":")[0]  # "transform:Crop" is part of "transform"
        for target, column in ((wall, "wall"), (cpu, "cpu")):
            values = sum_by_batch(rows, column, ids)
            target[name] = target[name] + values if name in target else values
    return wall, cpu


# If every fourth step is twice as long, only windows of whole rounds hold equally many long steps.
LEAST_ROUNDS = 3  # of a rhythm that were seen
LEAST_STEPS = 18  # of noise, so many have a rhythm in less than one of 1,000 cases
EXPLAINED = 0.8  # of the variance of the step, from which the place in the round decides it
LEAST_SPREAD = 0.02  # standard deviation over mean, below which a step is the same for every batch
SETTLING = 2  # first steps, which fill caches
LOOKED_AT = 1000  # steps: a rhythm is there from the start, and looking costs their square


def find_rhythm(walls: NDArray[np.int64]) -> int:
    """Return the number of steps after which step times (ns, one a step) repeat; 1 where not."""
    x = np.asarray(walls[SETTLING : SETTLING + LOOKED_AT], dtype=np.float64)
    n = len(x)
    if n < LEAST_STEPS or x.std() <= LEAST_SPREAD * x.mean():
        return 1
    whole = float(((x - x.mean()) ** 2).sum()) / (n - 1)
    for length in range(2, n // LEAST_ROUNDS + 1):
        place = np.arange(n) % length
        means = np.bincount(place, x) / np.bincount(place)
        left = float(((x - means[place]) ** 2).sum()) / (n - length)
        if left <= (1 - EXPLAINED) * whole:
            return length
    return 1


def without_rhythm(walls: NDArray[np.int64], length: int) -> NDArray[np.float64]:
    """Return step times with the mean of each place in a round of `length` taken to the mean."""
    x = np.asarray(walls, dtype=np.float64)
    place = np.arange(len(x)) % length
    means = np.bincount(place, x) / np.maximum(np.bincount(place), 1)
    return x - means[place] + (x.mean() if len(x) else 0.0)


class LoadingShares(NamedTuple):
    """Shares of the loading's wall time; `threads`: CPU of the process over that of its thread."""

    cpu: float = 0.0
    queued: float = 0.0  # runnable without a core
    blocked: float = 0.0
    threads: float = 1.0
    known: bool = False


@dataclass(frozen=True)
class Window:
    """The steps of one run from `first_batch` on, with everything that follows from them."""

    run: Run
    first_batch: int

    @classmethod
    def of(cls, run: Run) -> Window:
        """The timed window: what comes after the warm-up."""
        return cls(run, run.warmup)

    @cached_property
    def whole(self) -> Window:
        """The same run with its warm-up."""
        return self if self.first_batch == 0 else Window(self.run, 0)

    @cached_property
    def steps(self) -> Steps:
        """One row per step."""
        return step_columns(self.run, self.first_batch)

    @cached_property
    def batches(self) -> Batches:
        """One row per delivered batch; empty where nothing travelled with the batches."""
        return batch_columns(self.run, self.first_batch)

    def spans(self, stage: str, worker: int | None = MAIN) -> Rows:
        """Spans of one stage inside the window; `worker` None takes all processes."""
        rows = spans_of(self.run, stage, worker)
        inside = rows["batch"] >= self.first_batch
        return {name: column[inside] for name, column in rows.items()}

    def wall_of(self, stage: str, ids: Ints, worker: int | None = None) -> Floats:
        """Nanoseconds of a stage in each of the batches `ids`."""
        return sum_by_batch(spans_of(self.run, stage, worker), "wall", ids).astype(float)

    @property
    def in_flight(self) -> int:
        """Batches that the loader holds at most: workers x prefetch."""
        config = self.run.config
        return int(config.get("workers") or 0) * int(config.get("prefetch") or 0)

    @cached_property
    def in_main(self) -> bool:
        """Whether the batches were loaded in the training process, as far as traces tell."""
        return bool(np.all(self.batches.worker == MAIN))

    def __len__(self) -> int:
        return len(self.steps.batch)

    @cached_property
    def period_ns(self) -> float:
        """Mean step period without the copying of batches in hand; nan without a step."""
        if not len(self):
            return float("nan")
        copying = self.run.totals.get("copying_ns", 0) / len(self.whole)
        return float(self.steps.period.mean()) - copying

    @cached_property
    def exposed(self) -> Ints:
        """Nanoseconds that each step waited for data."""
        # the iter() call sits between two next() calls; its time is waiting for data too
        between = self.steps.period - self.steps.wait - self.steps.loop
        waited: Ints = self._late + np.maximum(between, 0)
        return waited

    @cached_property
    def _late(self) -> Ints:
        """The wait of each step; on a GPU what the device waited, where its events told."""
        wait = self.steps.wait
        device = self._device_waited
        return np.where(device < 0, wait, np.minimum(device, wait))

    @cached_property
    def _device_waited(self) -> Ints:
        told = spans_of(self.run, f"step:{EXPOSED}")
        waited: Ints = sum_by_batch(told, "wall", self.steps.batch, -1)
        return waited

    @property
    def tells_of_device(self) -> bool:
        """Whether events of a GPU tell what it waited for each batch."""
        return bool((self._device_waited >= 0).all()) and len(self) > 0

    @cached_property
    def device_ns(self) -> float:
        """Mean nanoseconds a step without those that a GPU waited for data; 0: not known."""
        return float((self.steps.period - self.exposed).mean()) if self.tells_of_device else 0.0

    @cached_property
    def input_wait_ns(self) -> float:
        """Mean nanoseconds a step spent waiting for data, iter() calls included."""
        return float(self.exposed.mean()) if len(self) else float("nan")

    @cached_property
    def at_epoch_start(self) -> Flags:
        """The steps that begin an epoch, and those before them, whose period holds its iter()."""
        first = self.steps.first
        edge: Flags = first | np.append(first[1:], False)
        return edge

    @cached_property
    def starvation(self) -> Interval:
        """Return the share of the time spent waiting, with a moving-block interval inside one run.

        Steps around an epoch's start count as they are, and are not resampled.
        """
        if not len(self):
            return Interval(math.nan, -math.inf, math.inf)
        window = self.steps
        rows = np.stack([self.exposed, window.period], axis=1).astype(float)
        edge = self.at_epoch_start
        fixed = rows[edge].sum(axis=0)
        # below six free steps there is nothing to draw from: let the edges be drawn as well
        if fixed[1] == 0 or (~edge).sum() < 6:
            return block_interval(rows, self._block, ratio_of_sums)

        def with_starts(drawn: Floats) -> Floats:
            sums: Floats = drawn.sum(axis=1) + fixed
            return sums[:, 0] / sums[:, 1]

        return block_interval(rows[~edge], self._block, with_starts)

    @cached_property
    def rhythm(self) -> int:
        """Steps after which the step's own time repeats, the warm-up asked too; 1: it does not."""
        passed_over = self.run.totals.get("from_batch", 0) > 0  # batches without a step
        return find_rhythm((self if passed_over else self.whole).steps.loop)

    @property
    def _block(self) -> int:
        # step times repeat with the batches in flight, and with whatever the step does now and
        # then; a shorter block would cut that pattern
        least = max(5, self.in_flight)
        return -(-least // self.rhythm) * self.rhythm

    @cached_property
    def first_batch_ns(self) -> list[int]:
        """iter() call to first batch, one entry per epoch, the run's first epoch included."""
        everything = self.whole.steps
        return [int(v) for v in everything.startup[everything.first]]

    @cached_property
    def first_fetch_ns(self) -> int | None:
        """iter() to the begin of the run's first fetch: process start, imports, pickled dataset."""
        whole, epochs = self.whole, spans_of(self.run, "iter")["start"]
        if not len(whole.batches.batch) or not len(epochs) or whole.in_main:
            return None
        return int(whole.batches.start.min() - epochs[0])

    @cached_property
    def epoch_steps(self) -> int:
        """Steps of an epoch: the user's word, else as seen, else the loader's; 0 unknown."""
        config, steps = self.run.config, self.whole.steps
        apart = np.diff(steps.batch[steps.first])
        seen = int(apart.max()) if len(apart) else 0
        return int(config.get("epoch_steps") or seen or config.get("batches") or 0)

    @cached_property
    def least_epoch_steps(self) -> int:
        """Steps that an epoch has at least: as many as were seen, or drawn, without a new one."""
        steps = self.whole.steps
        starts = [*np.flatnonzero(steps.first), len(steps.batch)]
        return max(int(np.diff(starts).max(initial=0)), self.run.totals.get("drawn_steps", 0))

    @cached_property
    def epoch_start_ns(self) -> float:
        """Return the mean cost of an epoch's start above the pace after it."""
        whole = self.whole.steps
        starts = np.flatnonzero(whole.first)[1 if self.run.config.get("persistent") else 0 :]
        later = ~self.steps.first
        if not len(starts) or not (later.any() or len(self.batches.fetch)):
            return 0.0
        # an iterator for each step leaves no other step: the batch's own loading is subtracted
        typical = float((self.steps.wait[later] if later.any() else self.batches.fetch).mean())
        costs = []
        for start, end in zip(starts, [*starts[1:], len(whole.batch)], strict=True):
            # the batches in flight come late or at once while the workers begin
            filling = whole.wait[start + 1 : min(end, start + max(1, self.in_flight))]
            costs.append(float(whole.startup[start]) + float(filling.sum()))
            costs[-1] -= typical * (1 + len(filling))
        return max(0.0, float(np.mean(costs)))

    @property
    def startup_ns(self) -> float:
        """An epoch's begin, spread over the steps of a whole epoch; 0 if that is unknown."""
        return self.epoch_start_ns / self.epoch_steps if self.epoch_steps else 0.0

    @property
    def steady_ns(self) -> float:
        """Mean step period without the epoch starts that lie in the window."""
        inside = int(self.steps.first[1:].sum())  # the first step's iter() lies before the window
        return self.period_ns - self.epoch_start_ns * inside / max(1, len(self))

    @property
    def epoch_period_ns(self) -> float:
        """Return the mean step period over whole epochs, with each start once per epoch."""
        return self.steady_ns + self.startup_ns if self.epoch_steps else self.period_ns

    def main_stage_ns(self, stage: str) -> float:
        """Mean nanoseconds a step of a stage on the main thread."""
        return float(self.spans(stage)["wall"].sum() / max(1, len(self)))

    def stage_cpu_ns(self, stage: str) -> float:
        """Mean CPU nanoseconds a batch of a stage in the workers."""
        cpu = self.spans(stage, None)["cpu"]
        return float(np.maximum(cpu, 0).mean()) if len(cpu) else 0.0

    @cached_property
    def loading_shares(self) -> LoadingShares:
        """Of the workers' fetches, or of next() where nothing travelled with the batches."""
        batches = self.batches
        if len(batches.batch):
            wall, cpu, queued, hidden = batches.fetch, batches.cpu, batches.queued, 0
            threads = float(np.maximum(batches.process_cpu, 0).sum()) / max(float(cpu.sum()), 1.0)
        else:
            # all of the run, as the CPU time of hidden threads is known for all of it only
            rows = spans_of(self.run, "wait")
            wall, cpu, queued = (rows[name] for name in ("wall", "cpu", "queued"))
            hidden, threads = self.run.totals.get("hidden_cpu_ns", 0), 1.0
        total = float(wall.sum())
        if total <= 0 or not (cpu >= 0).all():
            return LoadingShares()
        on_cpu = min(1.0, (float(cpu.sum()) + hidden) / total)
        waiting = float(np.maximum(queued, 0).sum()) / total
        return LoadingShares(on_cpu, waiting, max(0.0, 1 - on_cpu - waiting), threads, known=True)

    def needs_core(self, otherwise: float) -> float:
        """Share of the loading time that needs a core; `otherwise` where it is not known."""
        shares = self.loading_shares
        # the wait for a core is left out: a foreign load makes CPU-bound loading wait, which does
        # not make it I/O, and more workers would only wait too
        working = shares.cpu + shares.blocked
        return shares.cpu / working if working > 0 else otherwise


class Windows:
    """The windows of a session's runs, each made once; the way from an arm to its figures."""

    def __init__(self, session: Session) -> None:
        self._by_arm: dict[Arm, list[Window]] = {}
        for arm in Arm:
            self._by_arm[arm] = [Window.of(run) for run in session.arm(arm)]
        self.left_out: frozenset[int] = frozenset()  # blocks that other programs disturbed
        self.beside: list[Window] = []  # their windows, some of which nobody disturbed

    def leave_out(self, blocks: frozenset[int]) -> None:
        """Forget the arms of some blocks; what is compared inside a block goes together."""
        self.left_out = blocks
        for arm in SPLIT_ORDER:
            self.beside += [w for w in self._by_arm[arm] if w.run.block in blocks]
            self._by_arm[arm] = [w for w in self._by_arm[arm] if w.run.block not in blocks]

    def arm(self, *arms: Arm) -> list[Window]:
        """Windows of one arm in block order, then those of the next."""
        return [window for arm in arms for window in self._by_arm[arm]]

    def periods(self, arm: Arm) -> dict[int, float]:
        """Block -> mean step period of an arm over whole epochs, ns."""
        periods = {w.run.block: w.epoch_period_ns for w in self.arm(arm)}
        return {block: period for block, period in periods.items() if 0 < period < math.inf}


def first_with_steps(windows: Iterable[Window]) -> Window | None:
    """The first window that has something to show."""
    return next((window for window in windows if len(window) >= 2), None)
