"""The throughput model: a replay of exact DataLoader semantics.

A max-plus recursion over batches: worker j mod w takes batch j when batch j - w*P was delivered,
and the trainer takes batches in order. More runnable processes than cores slow each other down (a
mean-field fixed point).
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dataset_preflight.foundation.cores import usable_cores
from pipeline_profiler.profiling.diagnose.intervals import Floats
from pipeline_profiler.profiling.diagnose.window import Batches, Steps, Window

CPU_BOUND_SHARE = 0.3  # fetch time on CPU from which the number of cores limits the workers
Times = list[float]


@dataclass(frozen=True)
class Costs:
    """What one batch costs, nanoseconds; arrays hold one entry a batch, in delivery order."""

    blocked: Floats  # worker: neither on CPU nor waiting for a core
    cpu: Floats  # worker: on CPU
    serialise: Floats  # after the fetch, beside the next one
    loop: Floats  # trainer: next() return to next() entry
    loop_cpu: float
    overhead: float  # from sent to delivered when the trainer waits: pipe, wake-up, receipt
    ready: float  # next() when the batch has long been sent: receipt alone
    overhead_serial: float  # the same with num_workers=0
    startup: float = 0.0  # extra wait on the first batch of an epoch, spread over all steps
    device: float = 0.0  # what a GPU takes for a step, while the host goes on

    @property
    def fetch(self) -> Floats:
        """Worker time a batch on an idle machine."""
        return self.blocked + self.cpu


@dataclass(frozen=True)
class Replay:
    """What the model says: mean period, waits a step (ns)."""

    period: float
    wait: Floats

    def beside(self, device: float) -> Replay:
        """The same with a device that takes at least so long for a step."""
        return replace(self, period=max(self.period, device))


def measured_costs(timed: Window) -> Costs:
    """Costs of a recorded run; where no trace travelled, the wait is taken as the fetch."""
    window, batches = timed.steps, timed.batches
    startup, loop = timed.startup_ns, window.loop.astype(float)
    loop_cpu = float(np.maximum(timed.spans("loop")["cpu"], 0).mean() or 0.0)
    if not len(batches.batch):
        # from what the trainer saw alone; the first batch of an epoch is start-up, not pace
        normal = window.normal
        wait, cpu = window.wait[normal], np.maximum(window.wait_cpu[normal], 0).astype(float)
        blocked, none = np.maximum(wait - cpu, 0).astype(float), np.zeros(len(wait))
        return Costs(blocked, cpu, none, loop, loop_cpu, 0.0, 0.0, 0.0, startup, timed.device_ns)
    steady = ~window.first
    cpu = np.minimum(batches.cpu, batches.fetch).astype(float)
    queued = np.maximum(batches.queued, 0)
    # delay behind the loader's own crowd is predicted; what a foreign load adds stays a delay
    own = cpu * (_own_crowd(cpu, loop_cpu, timed) - 1)
    blocked = np.maximum(batches.fetch - cpu - np.minimum(queued, own), 0.0)
    lag = np.maximum(batches.sent - batches.start - batches.fetch, 0).astype(float)
    late, ready = _overheads(window, batches)
    fetched = dict(zip(batches.batch.tolist(), batches.fetch.tolist(), strict=True))
    aligned = np.array([fetched.get(int(b), 0) for b in window.batch], np.int64)
    waits = np.maximum(window.wait - aligned, 0)[steady]
    serial = float(waits.mean()) if len(waits) else 0.0  # a new iterator each step: none is steady
    return Costs(
        *(blocked, cpu, lag, loop, loop_cpu),
        *((0.0, 0.0, serial) if timed.in_main else (late, ready, 0.0)),
        startup,
        timed.device_ns,
    )


def _own_crowd(cpu: Floats, loop_cpu: float, timed: Window) -> float:
    """The slow-down that the run's own workers and trainer explain."""
    workers, period = int(timed.run.config.get("workers") or 0), timed.period_ns
    if workers == 0:
        return 1.0
    busy = [float(cpu.mean()) / (period * workers)] * (workers - 1) + [loop_cpu / period]
    return crowd(busy, usable_cores())


def _overheads(window: Steps, batches: Batches) -> tuple[float, float]:
    """Return (sent to delivered while the trainer waits, next() of a ready batch), as means."""
    sent = dict(zip(batches.batch.tolist(), batches.sent.tolist(), strict=True))
    late: list[int] = []
    ready: list[int] = []
    ends = window.entry + window.wait
    for b, entry, end, first in zip(window.batch, window.entry, ends, window.first, strict=True):
        at = sent.get(int(b))
        if at is not None and not first:
            (late if at > entry else ready).append(int(end) - max(int(entry), at))
    receipt = float(batches.receive.mean())
    waiting = float(np.mean(late)) if late else 0.0
    at_hand = float(np.mean(ready)) if len(ready) >= 5 else min(receipt, waiting or receipt)
    return max(0.0, waiting or at_hand), max(0.0, at_hand)


def replay(
    fetch: Floats,
    workers: int,
    prefetch: int,
    loop: Floats | float,
    overhead: float = 0.0,
    serialise: Floats | float = 0.0,
    in_order: bool = True,
    ready: float | None = None,
) -> Replay:
    """Play the loader for len(fetch) batches, times in one unit; drops the first w*P batches."""
    n = len(fetch)
    step = np.resize(np.atleast_1d(np.asarray(loop, float)), n)
    lag = np.resize(np.atleast_1d(np.asarray(serialise, float)), n)
    if workers <= 0:
        wait = np.asarray(fetch, float) + overhead
        return Replay(float((wait + step).mean()), wait)
    play = _in_order if in_order else _any_order
    costs = (overhead, overhead if ready is None else ready)
    rows = play(fetch.tolist(), lag.tolist(), step.tolist(), workers, prefetch, costs)
    # the first w*P batches are dispatched at once, before anything waits: they are no steady state
    skip = min(workers * prefetch, n // 3)
    got, wait = rows[skip:, 0], rows[skip:, 1]
    # the period of the last step counts too: it ends where a further next() would begin
    span = got[-1] + step[-1] - (rows[skip - 1, 0] + step[skip - 1] if skip else 0.0)
    return Replay(float(span / len(got)), wait)


def _in_order(
    fetch: Times, lag: Times, step: Times, w: int, p: int, costs: tuple[float, float]
) -> Floats:
    """(delivered, waited) of each batch; `costs`: of a late batch and of one that was there."""
    (late, at_hand), slots, now = costs, w * p, 0.0
    free, got, rows = [0.0] * w, [0.0] * len(fetch), []
    for j, cost in enumerate(fetch):
        # an index is sent out when the batch w*P before it was taken
        dispatched = got[j - slots] if j >= slots else 0.0
        done = max(free[j % w], dispatched) + cost
        free[j % w] = done
        # either the batch was there (receipt alone) or the trainer waits for pickling and hand-over
        entry = now
        got[j] = max(entry + at_hand, done + lag[j] + late)
        rows.append((got[j], got[j] - entry))
        now = got[j] + step[j]
    return np.array(rows)


def _any_order(
    fetch: Times, lag: Times, step: Times, w: int, p: int, costs: tuple[float, float]
) -> Floats:
    """in_order=False, approximately: a new index goes to the worker with the fewest tasks."""
    (late, at_hand), now, n = costs, 0.0, len(fetch)
    free, held = [0.0] * w, [0] * w
    pending: list[tuple[float, int]] = []
    rows: list[tuple[float, float]] = []
    sent = 0

    def dispatch(at: float) -> None:
        nonlocal sent
        if sent >= n:
            return
        # torch looks for a worker with room in turn; the least loaded one is close to that
        k = min(range(w), key=lambda i: (held[i], free[i]))
        free[k] = max(free[k], at) + fetch[sent]
        held[k] += 1
        heapq.heappush(pending, (free[k] + lag[sent], k))
        sent += 1

    for _ in range(min(w * p, n)):
        dispatch(0.0)
    for j in range(n):
        ready, k = heapq.heappop(pending)
        held[k] -= 1
        got = max(now + at_hand, ready + late)
        rows.append((got, got - now))
        now = got + step[j]
        dispatch(got)
    return np.array(rows)


def crowd(busy: list[float], cores: int) -> float:
    """Expected slow-down of one runnable process beside others that are busy with these shares."""
    chances = np.array([1.0])
    for share in busy:
        share = min(max(share, 0.0), 1.0)
        # the number of runnable processes is a sum of independent yes-no events
        chances = np.convolve(chances, [1 - share, share])
    runnable = 1 + np.arange(len(chances))
    return float((chances * np.maximum(1.0, runnable / cores)).sum())


def shared(costs: Costs, setting: Mapping[str, Any], cores: int) -> Replay:
    """Replay with CPU shared between workers and trainer: iterate period -> load -> slow-down."""
    w, p = int(setting["workers"]), max(1, int(setting.get("prefetch") or 2))
    order = bool(setting.get("in_order", True))
    overhead = costs.overhead if w else costs.overhead_serial
    fetch, loop = costs.fetch, costs.loop
    result = replay(fetch, w, p, loop, overhead, costs.serialise, order, costs.ready)
    if w == 0:
        return result.beside(costs.device)
    slow = slow_main = 1.0
    for _ in range(20):
        # runnable, not running: who waits for a core crowds the others just as much
        per_worker = float(costs.cpu.mean()) * slow / (result.period * w)
        trainer = (costs.loop_cpu + costs.ready) * slow_main / result.period
        slow = crowd([per_worker] * (w - 1) + [trainer], cores)
        slow_main = crowd([per_worker] * w, cores)
        fetch = costs.blocked + costs.cpu * slow
        loop = costs.loop + costs.loop_cpu * (slow_main - 1)
        previous = result.period
        lag, at_hand = overhead * slow_main, costs.ready * slow_main
        result = replay(fetch, w, p, loop, lag, costs.serialise, order, at_hand)
        # within 0.1 % is well below the noise of any measured period
        if abs(result.period - previous) < 1e-3 * previous:
            break
    return result.beside(costs.device)
