"""Traces of other profilers (torch, JAX, TensorFlow; Chrome JSON), in terms of this profiler.

A step runs from mark to mark (`ProfilerStep#3`, `StepTraceAnnotation`), else from next() to next().
Waiting is the time inside next(), with GPU kernels only while the device idles.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from pipeline_profiler.profiling.diagnose.intervals import (
    Floats,
    Interval,
    block_interval,
    ratio_of_sums,
)
from pipeline_profiler.profiling.diagnose.verdict import verdict_of
from pipeline_profiler.profiling.record.session import ProfileError, open_unpacked

LARGEST = 1 << 30  # bytes of JSON: some ten times as much is needed to read it
LEAST_STEPS = 5
MARKED = "from mark to mark"
_HEAD = 1 << 16  # where the key of the events is looked for
_STEP = re.compile(r"ProfilerStep#\d+$")
_NEXT = re.compile(r"DataLoader\)#.*__next__")
_WAIT = re.compile(r"DataLoader\)#.*__next__|IteratorGetNext|Iterator::GetNext$")
_TO_DEVICE = re.compile(r"memcpy ?(htod|h2d)|MemcpyH(to)?2?D", re.IGNORECASE)
_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")

Event = dict[str, Any]


def is_foreign_trace(path: str) -> bool:
    """Whether the file is a Chrome trace that another profiler wrote, or one of XPlane's."""
    if path.endswith(".xplane.pb"):
        return True
    try:
        with open_unpacked(Path(path)) as file:
            head = file.read(_HEAD)
    except (OSError, EOFError, ValueError, zlib.error):  # a value: no path, with a NUL in it
        return False
    return b'"traceEvents"' in head and b'"pipeline-profiler"' not in head


def _events(path: str) -> list[Event]:
    """The complete slices of a trace; ProfileError where it cannot be read."""
    if path.endswith(".xplane.pb"):
        raise ProfileError(
            f"{path} is an XPlane file: give the trace.json.gz beside it, or the one that "
            "TensorBoard's trace viewer saves."
        )
    try:
        with open_unpacked(Path(path)) as file:
            blob = file.read(LARGEST + 1)
        if len(blob) > LARGEST:
            raise ProfileError(
                f"{path} has more than 1 GiB of events: record fewer steps (a schedule)."
            )
        rows = json.loads(blob)["traceEvents"]
        return [row for row in rows if isinstance(row, dict) and _is_timed_slice(row)]
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, RecursionError):
        raise ProfileError(f"{path} is cut or damaged: its events cannot be read.") from None


def _is_timed_slice(row: Event) -> bool:
    times = (row.get("ts"), row.get("dur"))
    return (
        row.get("ph") == "X"
        and isinstance(row.get("name"), str)
        and all(isinstance(t, (int, float)) and abs(t) < float("inf") for t in times)
    )


def trace_lines(path: str) -> list[str]:
    """What the trace says of its steps, a sentence each; ProfileError where it is no trace."""
    events = _events(path)
    steps, between = _steps(events), MARKED
    if len(steps) < LEAST_STEPS:
        drawn = _longest_lane(row for row in events if _NEXT.search(row["name"]))
        # the one that ends the epoch draws nothing, and closes the last step
        steps, between = (drawn, "from next() to next()") if len(drawn) else (steps, MARKED)
    if len(steps) < LEAST_STEPS:
        return [
            f"inconclusive: {len(steps)} step marks in this trace, and at least {LEAST_STEPS} are "
            "needed; call `profiler.step()` each step (torch) or wrap it in "
            "`StepTraceAnnotation` (JAX, TensorFlow)"
        ]
    edges = steps[:, 0]
    waits = _union(row for row in events if _WAIT.search(row["name"]))
    device = _union(row for row in events if row.get("cat") in _ON_DEVICE)
    period = np.diff(edges)
    lines = [_verdict_line(edges, waits, device)]
    lines.append(f"{len(period)} steps of {period.mean() / 1e3:.3f} ms (mean), {between}")
    if between == MARKED:
        gaps = np.maximum(steps[1:, 0] - steps[:-1, 1], 0.0)
        lines.append(
            f"gaps between the marks: {gaps.sum() / period.sum():.1%} of the time, the longest "
            f"{gaps.max() / 1e3:.3f} ms"
        )
    return lines + _device_lines(edges, device) + _copy_lines(events, edges)


def _steps(events: list[Event]) -> Floats:
    """(start, end) of the marked steps in order, microseconds; those of one process."""
    marks = [row for row in events if _STEP.match(row["name"]) or _numbered(row)]
    # a GPU has a copy of each mark, with the time of its kernels
    host = [row for row in marks if row.get("cat") != "gpu_user_annotation"]
    return _longest_lane(host)


def _longest_lane(rows: Iterable[Event]) -> Floats:
    """(start, end) in order of the slices of the thread that has most of them; microseconds."""
    lanes: dict[Any, list[tuple[float, float]]] = {}
    for row in rows:
        lane = (str(row.get("pid")), str(row.get("tid")))
        lanes.setdefault(lane, []).append((row["ts"], row["ts"] + row["dur"]))
    most = max(lanes.values(), key=len, default=[])
    return np.array(sorted(most), dtype=np.float64).reshape(-1, 2)


def _numbered(row: Event) -> bool:
    return isinstance(row.get("args"), dict) and "step_num" in row["args"]


def _union(rows: Iterable[Event]) -> Floats:
    """Stretches of time that the slices cover, in order, without overlaps; microseconds."""
    merged: list[list[float]] = []
    for start, end in sorted((row["ts"], row["ts"] + row["dur"]) for row in rows):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return np.array(merged, dtype=np.float64).reshape(-1, 2)


def _before(stretches: Floats, at: Floats) -> Floats:
    """Time that the stretches cover before each reading of `at`."""
    if not len(stretches):
        return np.zeros(len(at))
    starts, ends = stretches.T
    sums = np.concatenate([[0.0], np.cumsum(ends - starts)])
    row = np.searchsorted(starts, at, side="right")
    over = np.where(row > 0, np.maximum(ends[np.maximum(row - 1, 0)] - at, 0.0), 0.0)
    covered: Floats = sums[row] - over
    return covered


def _idle_of(waits: Floats, device: Floats) -> Floats:
    """Parts of the waits in which the device stood still: each wait without what it computed."""
    busy = _before(device, waits[:, 1]) - _before(device, waits[:, 0])
    # where in a wait the device stopped is not needed: a step holds whole waits
    return np.stack([waits[:, 0], waits[:, 1] - busy], axis=1)


def _verdict_line(edges: Floats, waits: Floats, device: Floats) -> str:
    if not len(waits):
        return (
            "inconclusive: no span of a loader's next() is in this trace (a DataLoader or a "
            "tf.data iterator that is drawn on the host)"
        )
    exposed = _idle_of(waits, device) if len(device) else waits
    waited = np.diff(_before(exposed, edges))
    rows = np.stack([waited, np.diff(edges)], axis=1)
    stall = block_interval(rows, 5, ratio_of_sums)
    name = "device idle while the loader is waited for" if len(device) else "input wait"
    return f"{verdict_of(stall)[0]}: {name} {_shown(stall)} of the step"


def _shown(share: Interval) -> str:
    return f"{share.value:.1%} (95%: {share.low:.1%} to {share.high:.1%})"


def _device_lines(edges: Floats, device: Floats) -> list[str]:
    if not len(device):
        return ["device: not measured, this trace has no GPU kernel"]
    busy = np.diff(_before(device, edges[[0, -1]]))[0] / (edges[-1] - edges[0])
    return [f"device: kernels or copies in {busy:.1%} of the time"]


def _copy_lines(events: list[Event], edges: Floats) -> list[str]:
    copies = [row for row in events if _TO_DEVICE.search(row["name"])]
    inside = [row for row in copies if edges[0] <= row["ts"] < edges[-1]]
    if not inside:
        return ["host-to-device copies: none in this trace"]
    share = np.diff(_before(_union(inside), edges[[0, -1]]))[0] / (edges[-1] - edges[0])
    pageable = sum("ageable" in row["name"] for row in inside)
    text = f"host-to-device copies: {len(inside)}, {share:.1%} of the time"
    return [text + (f"; {pageable} from pageable memory (pin_memory=True)" if pageable else "")]
