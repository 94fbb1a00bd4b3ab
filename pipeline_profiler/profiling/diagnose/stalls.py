"""Stalls: when no batch could be delivered, why, and which samples held their batches up.

A batch is deliverable when it and every batch before it were sent or delivered; the stamps of
batches make queue depth exact. Stall event: maximal interval inside next() without a deliverable
batch, longer than tau = max(1 ms, 2% of the period).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipeline_profiler.profiling.diagnose.window import Batches, Steps, Window
from pipeline_profiler.profiling.record.plan import SlowSample
from pipeline_profiler.profiling.record.session import MAIN

MIN_STALL_NS = 1_000_000
PERIOD_FACTOR = 0.02


@dataclass(frozen=True, slots=True)
class StallEvent:
    """One stretch without a deliverable batch while the consumer asked for one."""

    batch: int
    start_ns: int
    wall_ns: int
    cause: str  # start-up | HOL | transport | oversubscribed | read | cpu | serial | unknown
    worker: int


def stall_events(timed: Window) -> list[StallEvent]:
    """Stall events of the timed window with their causes, in time order."""
    window, batches = timed.steps, timed.batches
    if not len(window.period):
        return []
    tau = max(float(MIN_STALL_NS), PERIOD_FACTOR * float(window.period.mean()))
    row = {int(b): i for i, b in enumerate(batches.batch)}
    events = []
    # one event per next(): inside it the loader is late all the time, or only the hand-over is
    for i in np.flatnonzero(window.wait > tau):
        entry, end = int(window.entry[i]), int(window.entry[i] + window.wait[i])
        j = row.get(int(window.batch[i]), -1)
        if j >= 0 and batches.worker[j] != MAIN:
            end = min(end, int(batches.sent[j]))  # from there on a batch was deliverable
        worker = int(batches.worker[j]) if j >= 0 else MAIN
        cause, wall = "transport", int(window.wait[i])
        if end - entry > tau:
            cause, wall = event_cause(window, batches, int(i), j, (entry, end)), end - entry
        events.append(StallEvent(int(window.batch[i]), entry, wall, cause, worker))
    return events


def event_cause(window: Steps, batches: Batches, i: int, j: int, span: tuple[int, int]) -> str:
    """Why no batch was deliverable in `span`: step row `i`, worker row `j` of the late batch."""
    if window.first[i]:
        return "start-up"
    if j < 0:
        blocked = window.wait_cpu[i] < 0.5 * window.wait[i]
        return "unknown" if blocked else "cpu"  # a disk, a lock, or a thread of the loader's own
    if batches.worker[j] == MAIN:
        return _mode(batches, j)
    # a later batch was sent before half of the stall had passed: one that came just before its end
    # has held nobody up
    middle = (span[0] + span[1]) // 2
    if np.any((batches.batch > window.batch[i]) & (batches.sent < middle)):
        return "HOL"
    if batches.start[j] + batches.fetch[j] < span[0]:
        return "transport"
    return _mode(batches, j)


def _mode(batches: Batches, j: int) -> str:
    wall, cpu, queued = int(batches.fetch[j]), int(batches.cpu[j]), max(0, int(batches.queued[j]))
    blocked = wall - cpu - queued
    # the largest part names the event; equal parts go to the later letter, which is stable
    return max((blocked, "read"), (queued, "oversubscribed"), (cpu, "cpu"))[1]


def head_of_line_share(timed: Window) -> float:
    """Share of the stalled time with another batch ready: the part of in-order delivery."""
    events = stall_events(timed)
    blocked = sum(event.wall_ns for event in events if event.cause == "HOL")
    return blocked / max(1, sum(event.wall_ns for event in events))


def readiness(timed: Window) -> float | None:
    """1 - time without a deliverable batch / time; None where batches carry no stamps."""
    window, batches = timed.steps, timed.batches
    if not len(batches.batch) or not len(window.period) or timed.in_main:
        return None
    ids = batches.batch
    delivered = np.interp(ids, window.batch, window.entry + window.wait)
    ready = np.maximum.accumulate(batches.sent)  # deliverable when all before it are sent
    begin, end = int(window.entry[0]), int(window.entry[-1] + window.wait[-1])
    # a counter over time: plus one when a batch becomes deliverable, minus one at its delivery
    times = np.concatenate([ready, delivered])
    order = np.argsort(times, kind="stable")
    change = np.concatenate([np.ones(len(ids)), -np.ones(len(ids))])[order]
    level = np.cumsum(change)
    at = np.clip(np.concatenate([[begin], times[order], [end]]), begin, end)
    empty = np.diff(at)[np.append(0, level) <= 0].sum()
    return float(1.0 - empty / max(1, end - begin))


HELD_UP = 0.4  # of its batch's loading time, from which one sample held the batch up


def stalled_by_sample(windows: Sequence[Window]) -> dict[int | str, float]:
    """Return the share of stalled time by a sample that took 40% of its batch's loading time."""
    total, by_key = 0, dict[int | str, int]()
    for window in windows:
        # keys have one entry per batch of the whole run, so rows are counted from its start
        batches, keys = window.whole.batches, window.run.slow_keys
        row = {int(b): i for i, b in enumerate(batches.batch)}
        for event in stall_events(window):
            total += event.wall_ns
            j = row.get(event.batch, -1)
            if j >= 0 and batches.samples[j] > 1 and batches.slow[j] > HELD_UP * batches.fetch[j]:
                by_key[keys[j]] = by_key.get(keys[j], 0) + event.wall_ns
    return {key: wall / total for key, wall in by_key.items()} if total else {}


def slowest_samples(windows: Sequence[Window], top: int = 20) -> list[SlowSample]:
    """The slowest samples over all runs: key, times seen, mean and worst milliseconds."""
    walls: dict[int | str, list[int]] = {}
    for window in windows:
        for slow in window.run.slow:
            walls.setdefault(slow["key"], []).append(slow["wall_ns"])
    rows: list[SlowSample] = [
        {"key": key, "seen": len(v), "ms": sum(v) / len(v) / 1e6, "worst_ms": max(v) / 1e6}
        for key, v in walls.items()
    ]
    stalled = stalled_by_sample(windows)
    for row in rows:
        row["stall_share"] = stalled.get(row["key"], 0.0)
    return sorted(rows, key=lambda r: -float(r["worst_ms"]))[:top]
