"""One run as figures: step period, waiting, loading shares, stages. Each is computed once.

Definitions. Step period: from next() entry to next() entry, a mean (stalls are heavy-tailed).
Waiting: the time inside next() and iter(). A `Window` is made once per run and handed on; it reads
the spans when the first figure is asked for and keeps what it has computed, so ten rules that ask
for the same column cost one pass. A run must not change after its window was made.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pipeline_profiler.diagnose.columns import (
    Batches,
    Ints,
    Rows,
    Steps,
    batch_columns,
    spans_of,
    step_columns,
    sum_by_batch,
)
from pipeline_profiler.diagnose.intervals import Floats, Interval, block_interval, ratio_of_sums
from pipeline_profiler.diagnose.rhythm import find_rhythm
from pipeline_profiler.record.arm import Arm
from pipeline_profiler.record.session import MAIN, Run, Session

DRIFT_SHARE = 0.02  # of the mean period over the window: less is steady for the eye and the figures


class LoadingShares(NamedTuple):
    """Where the loading time goes; shares of its wall time. `threads`: CPU time of the process
    over that of its loading thread, above 1 with hidden thread pools.
    """

    cpu: float = 0.0
    queued: float = 0.0  # runnable without a core
    blocked: float = 0.0
    threads: float = 1.0
    known: bool = False


class StageRow(NamedTuple):
    """One loader stage; milliseconds a batch."""

    stage: str
    ms: float
    cpu_ms: float | None
    share: float  # of the loading time


@dataclass(frozen=True)
class Window:
    """The steps of one run from `first_batch` on, with everything that follows from them."""

    run: Run
    first_batch: int

    @classmethod
    def of(cls, run: Run) -> Window:
        """The timed window: what comes after the warm-up."""
        return cls(run, run.warmup)

    @classmethod
    def whole_of(cls, run: Run) -> Window:
        """The run with its warm-up."""
        return cls(run, 0)

    @cached_property
    def whole(self) -> Window:
        """The same run with its warm-up."""
        return self if self.first_batch == 0 else Window(self.run, 0)

    # ------------------------------------------------------------------------------- columns

    @cached_property
    def steps(self) -> Steps:
        """One row per step."""
        return step_columns(self.run, self.first_batch)

    @cached_property
    def batches(self) -> Batches:
        """One row per delivered batch; empty where nothing travelled with the batches."""
        return batch_columns(self.run, self.first_batch)

    @cached_property
    def epochs(self) -> Rows:
        """The iter() calls of the run."""
        return spans_of(self.run, "iter")

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
        """Number of steps."""
        return len(self.steps.batch)

    # -------------------------------------------------------------------------- step and wait

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
        told = spans_of(self.run, "step:training exposed")
        if not len(told["batch"]):
            return wait
        device = sum_by_batch(told, "wall", self.steps.batch, -1)
        return np.where(device < 0, wait, np.minimum(device, wait))

    @cached_property
    def input_wait_ns(self) -> float:
        """Mean nanoseconds a step spent waiting for data, iter() calls included."""
        return float(self.exposed.mean()) if len(self) else float("nan")

    @cached_property
    def starvation(self) -> Interval:
        """Observed share of the time spent waiting, moving-block interval inside one run.

        The steps around an epoch's start are not drawn by chance: every epoch has one, so they
        count as they are and the bootstrap draws from the others.
        """
        if not len(self):
            return Interval(float("nan"), float("-inf"), float("inf"))
        window = self.steps
        rows = np.stack([self.exposed, window.period], axis=1).astype(float)
        edge = window.first | np.append(window.first[1:], False)  # iter() is in the period before
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
        return find_rhythm(self.whole.steps.loop)

    @property
    def _block(self) -> int:
        # step times repeat with the batches in flight, and with whatever the step does now and
        # then; a shorter block would cut that pattern
        least = max(5, self.in_flight)
        return -(-least // self.rhythm) * self.rhythm

    @cached_property
    def steady(self) -> bool:
        """Two halves with overlapping intervals, and |Theil-Sen slope| x window below 2 %."""
        period = self.steps.period.astype(float)
        if len(period) < 12:
            return False
        half = len(period) // 2
        a, b = (block_interval(part, self._block) for part in (period[:half], period[half:]))
        # the slope over ten chunk means: Theil-Sen over all pairs of steps would be quadratic
        chunks = np.array_split(period, min(10, len(period) // 2))
        means = np.array([chunk.mean() for chunk in chunks])
        i, j = np.triu_indices(len(means), 1)
        slope = abs(float(np.median((means[j] - means[i]) / (j - i)))) * len(means)
        overlap = a.low <= b.high and b.low <= a.high
        return overlap and slope < DRIFT_SHARE * period.mean() + a.half_width

    # ------------------------------------------------------------------------------ start-up

    @cached_property
    def first_batch_ns(self) -> list[int]:
        """iter() call to first batch, one entry per epoch, the run's first epoch included."""
        everything = self.whole.steps
        return [int(v) for v in everything.startup[everything.first]]

    @cached_property
    def first_fetch_ns(self) -> int | None:
        """iter() to the begin of the run's first fetch: process start, imports, pickled dataset."""
        whole = self.whole
        if not len(whole.batches.batch) or not len(self.epochs["start"]) or whole.in_main:
            return None
        return int(whole.batches.start.min() - self.epochs["start"][0])

    @cached_property
    def clock_error_ns(self) -> tuple[int, int]:
        """Bounds of the workers' clock offset that cause and effect allow (low, high).

        A batch cannot begin before iter() nor arrive before it was sent. Linux gives all processes
        one monotonic clock, so the bounds should hold zero; the width is how well that is known.
        """
        batches, epochs = self.whole.batches, self.epochs
        remote = batches.worker != MAIN
        if not remote.any() or not len(epochs["start"]):
            return 0, 0
        high = int((batches.received - batches.receive - batches.sent)[remote].min())
        low = int(epochs["start"][0] - batches.start[remote].min())
        return low, high

    @cached_property
    def epoch_steps(self) -> int:
        """Steps of an epoch: the user's word, else as seen, else the loader's; 0 unknown."""
        config, steps = self.run.config, self.whole.steps
        apart = np.diff(steps.batch[steps.first])
        seen = int(apart.max()) if len(apart) else 0
        return int(config.get("epoch_steps") or seen or config.get("batches") or 0)

    @cached_property
    def epoch_start_ns(self) -> float:
        """What an epoch's begin costs beyond the pace after it: start-up, first fetch, filling up.

        Mean over the epochs that begin in the run. Workers that persist start once a training.
        """
        whole = self.whole.steps
        starts = np.flatnonzero(whole.first)[1 if self.run.config.get("persistent") else 0 :]
        later = ~self.steps.first
        if not len(starts) or not later.any():
            return 0.0
        typical = float(self.steps.wait[later].mean())
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
        """Mean step period over whole epochs: each start counts as often as it does in one.

        A window of whole epochs is that already; a cut one holds too many starts, or none.
        """
        return self.steady_ns + self.startup_ns if self.epoch_steps else self.period_ns

    # -------------------------------------------------------------------------------- stages

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

    @cached_property
    def stage_table(self) -> list[StageRow]:
        """The loader's stages, largest first."""
        batches = self.batches
        total = float(batches.fetch.sum() + batches.serialise.sum())
        walls = dict(batches.stages)
        if batches.serialise.any():
            walls["serialise"] = batches.serialise
        rows = []
        for name, wall in walls.items():
            cpu = batches.stage_cpu.get(name)
            on_cpu = float(cpu.mean()) / 1e6 if cpu is not None else None
            share = float(wall.sum()) / total if total else 0.0
            rows.append(StageRow(name, float(wall.mean()) / 1e6, on_cpu, share))
        return sorted(rows, key=lambda row: -row.share)


class Windows:
    """The windows of a session's runs, each made once; the way from an arm to its figures."""

    def __init__(self, session: Session) -> None:
        """Windows of the runs that the session holds now."""
        self._by_arm: dict[Arm, list[Window]] = {}
        for arm in Arm:
            self._by_arm[arm] = [Window.of(run) for run in session.arm(arm)]

    def arm(self, *arms: Arm) -> list[Window]:
        """Windows of one arm in block order, then those of the next."""
        return [window for arm in arms for window in self._by_arm[arm]]


def first_with_steps(windows: Iterable[Window], least: int = 2) -> Window | None:
    """The first window that has something to show."""
    return next((window for window in windows if len(window) >= least), None)
