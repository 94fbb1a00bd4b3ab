"""The slowest samples, and the share of the stalled time that single samples explain.

Workers keep the slowest sample of each batch by its key; that costs one comparison a sample and is
enough, because a batch that is late is late by its slowest sample or by all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipeline_profiler.diagnose.stalls import stall_events
from pipeline_profiler.diagnose.window import Window
from pipeline_profiler.record.plan import SlowSample

HELD_UP = 0.4  # of its batch's loading time, from which one sample held the batch up


def stalled_by_sample(windows: Sequence[Window]) -> dict[int | str, float]:
    """Share of the stalled time whose late batch was held up by one sample, by that sample.

    A sample counts where it took at least 40 % of its batch's loading time.
    """
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
