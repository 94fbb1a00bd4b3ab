"""Estimate the data stall with one interval, from the time in next() and from configurations.

T is the step period with the loader, L its part outside next(), D the step period with preloaded
batches: S = 1 - D/T = (1 - L/T) + (L - D)/T = W + C, wait and contention. W <= S <= W + `reach`,
the time that the loader used. The estimate W + a*C + (1 - a)*reach/2 has a = 0 or 1 by the spread
of steps; only the difference counts if the step continues while it waits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipeline_profiler.profiling.diagnose.intervals import (
    MISS,
    Interval,
    mean_interval,
    saved_share,
    t_quantile,
)
from pipeline_profiler.profiling.diagnose.window import Window
from pipeline_profiler.profiling.record.session import MAIN
from pipeline_profiler.profiling.record.stages import THREAD

SLOWED = 0.5  # of a thread's CPU time: what sharing a core's units, caches and memory costs at most
TOUCH_NS = 1.0  # a byte that the loader has made, until it is in the trainer's caches: 1 GB/s
IDLE = 0.05  # of a window: CPU time of a thread that is not the step's
HELPED = 0.02  # of the period: CPU of other threads, from which a step has threads of its own
SURE = 1.6  # 99.5 % quantile of t over that of 97.5 %, for few repeats: what a bound must exceed
ASSUMED_NOISE = 0.005  # of a run's mean period, which the spread inside it does not show


@dataclass(frozen=True)
class Block:
    """One repeat: the warm loader and the batches in hand beside it; nanoseconds a step."""

    period: float  # T
    loop: float  # L
    in_hand: float  # D
    reach: float  # at most that much of L is the loader's doing; infinite where it is not known
    noise: float  # relative standard error of L and D by the spread of their steps

    @property
    def wait(self) -> float:
        """W."""
        return 1 - self.loop / self.period

    @property
    def contention(self) -> float:
        """C."""
        return (self.loop - self.in_hand) / self.period


@dataclass(frozen=True)
class DataStall:
    """The stall, and its parts: waiting at next(), and what the loader costs the step."""

    share: Interval
    wait: Interval
    contention: Interval
    by_waiting: bool  # the stopwatch decided; else the difference of arms
    metered: bool = False  # whether the contention has a bound


def paired_blocks(
    resident: Mapping[int, Window], warm: Mapping[int, Window], batch_bytes: float
) -> list[Block]:
    """Blocks that have both arms, with the reach of the loader where the machine was metered."""
    rows, numbers = [], sorted(resident.keys() & warm.keys())
    reach = loader_reach_ns([(warm[number], resident[number]) for number in numbers], batch_bytes)
    for number in numbers:
        w, d = warm[number], resident[number]
        # of a device's step, what its events leave: the host's is over when all is launched
        loop = w.device_ns or float(w.steps.loop.mean())
        noise = math.hypot(_relative_error(w), _relative_error(d))
        rows.append(Block(w.epoch_period_ns, loop, d.epoch_period_ns, reach, noise))
    return rows


def _relative_error(window: Window) -> float:
    loop = window.steps.loop
    rounds = loop[: len(loop) - len(loop) % window.rhythm].reshape(-1, window.rhythm).mean(axis=1)
    if len(rounds) < 3 or loop.mean() <= 0:
        return 1.0
    spread = float(rounds.std(ddof=1)) / math.sqrt(len(rounds)) / float(loop.mean())
    return math.hypot(spread, ASSUMED_NOISE)


def loader_reach_ns(pairs: Sequence[tuple[Window, Window]], batch_bytes: float) -> float:
    """Return what the loader can have cost a step at most (ns); infinite where it was not metered.

    pairs: warm and resident window of each block; medians over the blocks.
    """
    metered = ("own_cpu_ns", "main_cpu_ns", "children_cpu_ns", "main_queued_ns")
    windows = [window for pair in pairs for window in pair]
    if not pairs or not all(name in w.run.totals for w in windows for name in metered):
        return math.inf
    in_process = float(np.median([_threads_of_loader(*pair) for pair in pairs]))
    rows = [(*_beside_main(warm), *_beside_main(resident)) for warm, resident in pairs]
    _, children, own_alone, children_alone = np.median(rows, axis=0).tolist()
    used = in_process + max(0.0, children - children_alone)
    touched = TOUCH_NS * batch_bytes
    queued, on_cpu = np.median([_step_delays(warm) for warm, _ in pairs], axis=0).tolist()
    helped = own_alone > HELPED * float(np.median([d.period_ns for _, d in pairs]))
    slowed = SLOWED * min(on_cpu, used) + min(touched, on_cpu)
    return float(min(used + touched, queued + slowed + (used if helped else in_process)))


def _step_delays(warm: Window) -> tuple[float, float]:
    """Nanoseconds a step that the trainer's thread waits for a core in the step, and is on CPU."""
    rows = warm.spans("wait")
    in_next = float(np.maximum(rows["queued"], 0).sum()) / max(1, len(warm))
    queued = max(0.0, warm.run.totals["main_queued_ns"] / max(1, len(warm)) - in_next)
    on_cpu = float(np.maximum(warm.spans("loop", MAIN)["cpu"], 0).sum()) / max(1, len(warm))
    return queued, on_cpu


def _threads_of_loader(warm: Window, resident: Window) -> float:
    """Return the CPU nanoseconds a step of threads that are idle beside preloaded batches.

    Threads of the step are busy beside both: how much CPU they use differs by chance.
    """
    if "own_queued_ns" not in warm.run.totals:  # a session without figures of threads
        return max(0.0, _beside_main(warm)[0] - _beside_main(resident)[0])
    alone, window_ns = resident.run.totals, resident.run.totals.get("window_ns", 0)
    busy = {k: ns for k, ns in warm.run.totals.items() if k.startswith(THREAD)}
    idle = [ns for k, ns in busy.items() if alone.get(k, 0) <= IDLE * window_ns]
    return float(sum(idle)) / len(warm)


def _beside_main(window: Window) -> tuple[float, float]:
    """CPU nanoseconds a step of the trainer's other threads, and of its children."""
    totals, steps = window.run.totals, max(1, len(window))
    others = totals["own_cpu_ns"] - totals["main_cpu_ns"]
    return max(0, others) / steps, totals["children_cpu_ns"] / steps


def estimate(
    blocks: Sequence[Block], waits_bound: bool = True, steps_timed: bool = True, miss: float = MISS
) -> DataStall:
    """Return the stall of these blocks; `miss`: probability that the interval misses it.

    `waits_bound`: the end of a step is known; `steps_timed`: by its return.
    """
    difference = saved_share([(block.in_hand, block.period) for block in blocks], miss)
    wait = mean_interval([block.wait for block in blocks], miss)
    contention = mean_interval([block.contention for block in blocks], miss)
    reach = max((block.reach / block.period for block in blocks), default=math.inf)
    least = wait.value - SURE * (wait.value - wait.low)
    chance = _expected_half_width(blocks, miss) if steps_timed else difference.half_width
    overlapped = difference.high < least and contention.value < -chance
    if not waits_bound or not math.isfinite(reach):
        return DataStall(difference, wait, contention, by_waiting=False)
    most = wait.value + SURE * (wait.high - wait.value) + reach
    if overlapped:
        # a loader makes no step faster: a difference that says so is of arms that cannot be
        # compared, and leaves all that the wait allows
        high = min(difference.high, most) if difference.high >= 0 else most
        share = _cut(replace(difference, high=high), 0.0, max(high, 0.0))
        return DataStall(share, wait, contention, by_waiting=False)
    by_waiting = reach / 2 <= chance
    low, high = (wait.low, wait.high + reach) if by_waiting else (difference.low, difference.high)
    low, high = max(low, least), min(high, most)
    value = min(max(difference.value, wait.value), wait.value + reach)
    held = Interval(min(max(value, low), high), low, high, difference.n)
    return DataStall(held, wait, _cut(contention, 0.0, reach), by_waiting, metered=True)


def _expected_half_width(blocks: Sequence[Block], miss: float) -> float:
    """Of the contention by the difference of arms, from the noise inside the runs."""
    noise = math.sqrt(sum((b.noise * b.loop / b.period) ** 2 for b in blocks)) / max(1, len(blocks))
    return t_quantile(len(blocks) - 1, miss) * noise


def _cut(share: Interval, least: float, most: float) -> Interval:
    value, low, high = (min(max(x, least), most) for x in (share.value, share.low, share.high))
    return Interval(value, low, high, share.n)
