"""A session as the tables that the page draws: configurations, causes, stages, samples.

Pure functions of a `Session`. Times are in ms, positions on the time line in s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from pipeline_profiler.profiling.diagnose.stalls import slowest_samples, stall_events
from pipeline_profiler.profiling.diagnose.window import Window, Windows
from pipeline_profiler.profiling.record.arm import REPORTED, Arm
from pipeline_profiler.profiling.record.session import MAIN, Session
from pipeline_profiler.report.sections import shown

MOST_POINTS = 2000
Lookup = Callable[[Sequence[str]], Mapping[str, Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class TimeLine:
    """`depth` (second, ready): batches ready to deliver; `stalls` (start, end, ms, cause, batch,
    worker); `seconds` shown of `total`.
    """

    depth: pl.DataFrame
    stalls: pl.DataFrame
    seconds: float
    total: float


def periods_frame(session: Session) -> pl.DataFrame:
    """Return `arm, ms`: the mean step period of each measured arm."""
    rows = []
    for arm in REPORTED:
        periods = [Window.of(run).period_ns / 1e6 for run in session.arm(arm)]
        if any(map(np.isfinite, periods)):
            rows.append((arm.label, float(np.mean(periods, where=np.isfinite(periods)))))
    return pl.DataFrame(rows, schema={"arm": pl.String, "ms": pl.Float64}, orient="row")


def time_line(session: Session, most: int = MOST_POINTS) -> TimeLine | None:
    """Return ready depth and stalls of the first recorded loop, at most `most` steps; else None."""
    timed = shown(Windows(session))
    if timed is None:
        return None
    window = timed.steps
    origin = int(window.entry[0])
    end = int(window.entry[-1] + window.wait[-1])
    last = int(window.entry[min(most, len(window.entry)) - 1] + window.period[-1])
    last = min(max(last, origin + 1), end)
    events = [e for e in stall_events(timed) if e.start_ns <= last]
    stalls = pl.DataFrame(
        [
            ((e.start_ns - origin) / 1e9, (e.start_ns + e.wall_ns - origin) / 1e9, e.wall_ns / 1e6,
             e.cause, e.batch, e.worker)
            for e in events
        ],
        schema={"start": pl.Float64, "end": pl.Float64, "ms": pl.Float64, "cause": pl.String,
                "batch": pl.Int64, "worker": pl.Int64},
        orient="row",
    )  # fmt: skip
    seconds, total = (last - origin) / 1e9, (end - origin) / 1e9
    return TimeLine(_depth(timed, origin, last), stalls, seconds, total)


def _depth(timed: Window, origin: int, last: int) -> pl.DataFrame:
    """Return the number of batches sent by workers and not yet delivered, at each change."""
    window, batches = timed.steps, timed.batches
    remote = (batches.worker != MAIN) & np.isin(batches.batch, window.batch)
    delivered = np.interp(batches.batch[remote], window.batch, window.entry + window.wait)
    times = np.concatenate([batches.sent[remote], delivered])
    change = np.concatenate([np.ones(remote.sum()), -np.ones(remote.sum())])
    order = np.argsort(times, kind="stable")
    level = np.maximum(np.cumsum(change[order]), 0).astype(np.int64)
    at = times[order]
    # What was ready before the window counts from its start.
    keep = (at >= origin) & (at <= last)
    return pl.DataFrame({"second": (at[keep] - origin) / 1e9, "ready": level[keep]})


def slow_samples_frame(session: Session, lookup: Lookup | None = None) -> pl.DataFrame:
    """Return the slowest samples with size, pixels and format of `lookup` (by name or path)."""
    rows = session.probes.slow_samples or slowest_samples(Windows(session).arm(Arm.WARM), 20)
    names = [str(row.get("path", row["key"])) for row in rows]
    known = lookup(names) if lookup is not None and names else {}
    return pl.DataFrame([
        {
            "sample": name,
            "mean ms": round(float(row["ms"]), 2),
            "worst ms": round(float(row["worst_ms"]), 2),
            "times slowest": int(row["seen"]),
            "share of stall": float(row.get("stall_share") or 0.0),
            **known.get(name, {}),
        }
        for name, row in zip(names, rows, strict=True)
    ])  # fmt: skip


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> pl.DataFrame:
    """Return a report section's table; names that repeat get blanks."""
    names = [f"{name}{' ' * i}" if head[:i].count(name) else name for i, name in enumerate(head)]
    return pl.DataFrame([list(row) for row in rows], schema=dict.fromkeys(names, pl.String),
                        orient="row")  # fmt: skip
