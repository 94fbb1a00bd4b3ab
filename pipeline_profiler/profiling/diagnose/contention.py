"""What other programs add to the data stall, by the time that threads wait for a core.

A thread that is ready and has no core is counted by the kernel (`queued`). Step and loading without
this time give the stall without other programs; processes of the pipeline itself still compete in
the replay. Only the difference is reported.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from pipeline_profiler.profiling.diagnose.disturbance import DISTURBED
from pipeline_profiler.profiling.diagnose.evidence import Case, Evidence
from pipeline_profiler.profiling.diagnose.finding import NOT_BOUND, Diagnosis
from pipeline_profiler.profiling.diagnose.intervals import Interval, mean_interval
from pipeline_profiler.profiling.diagnose.rules.loader import shared_period, uncrowded
from pipeline_profiler.profiling.diagnose.window import Window
from pipeline_profiler.profiling.record.arm import Arm

MIN_POINTS = 0.01  # of the step, from which their part is reported
HIDDEN = 0.5  # of the time in next(): below it other threads do the loading
MODEL_ERROR = 0.05  # of the step: how far the model is off on pipelines measured on both machines
ADVICE = "end the other programs, or measure on a quieter machine"


@dataclass(frozen=True)
class Contention:
    """Share of the step that other programs add to the stall; None where they have no part."""

    share: Interval | None = None
    sentence: str = ""


def measure_contention(e: Evidence) -> Contention:
    """Return what other programs add to the stall, as a share of the step."""
    if e.machine.others < DISTURBED or not e.cases:
        return Contention()
    resident = {window.run.block: window for window in e.windows.arm(Arm.RESIDENT)}
    points = [_added(e, case, resident.get(case.window.run.block)) for case in e.cases]
    known = [point for point in points if math.isfinite(point)]
    if not known:
        return Contention()
    share = mean_interval(known).widened(MODEL_ERROR)
    if abs(share.value) < MIN_POINTS:
        return Contention(share)
    low, high = 100 * share.low, 100 * share.high
    verb = "cost" if share.value > 0 else "hide"
    of_it = "Of that, other" if share.value > 0 else "Other"
    points_text = f"{100 * abs(share.value):.0f} points (95% CI {low:.0f} to {high:.0f})"
    return Contention(share, f"{of_it} programs {verb} about {points_text}.")


def other_programs(e: Evidence) -> Diagnosis | None:
    """Name other programs as a cause where they add to the stall."""
    share = measure_contention(e).share
    if share is None or share.value < NOT_BOUND:
        return None
    taken = f"other programs take {e.machine.others:.0%} of the cores"
    waiting = f"loading waits {e.loading_shares().queued:.0%} of its time for a core"
    seen = {"others": e.machine.others}
    return Diagnosis("PIPE033", f"{taken}: {waiting}", share, seen, ADVICE)


def _added(e: Evidence, case: Case, resident: Window | None) -> float:
    """Return the waiting share as measured minus that without other programs, in one block."""
    step, wait = case.step_ns, case.window.input_wait_ns
    # a step that waits for cores is shorter without other programs, as its threads' queue tells
    left = 1 - (_queued_share(resident) if resident is not None else 0.0)
    quiet_step, quiet_wait = left * step, _quiet_wait(e, case, left)
    if step + wait <= 0 or quiet_step + quiet_wait <= 0:
        return math.nan
    return wait / (step + wait) - quiet_wait / (quiet_step + quiet_wait)


def _quiet_wait(e: Evidence, case: Case, of_step: float) -> float:
    """Return the wait a step (ns) without other programs; `of_step`: what is left of the step."""
    if case.workers:
        loop = case.loop * of_step
        costs = replace(uncrowded(e, case), loop=loop)
        saved = shared_period(e.cores, case, costs) / case.replayed
        return max(0.0, case.period * saved - float(loop.mean()))
    wait = case.window.input_wait_ns
    totals, rows = case.window.run.totals, case.window.spans("wait")
    on_main = float(np.maximum(rows["cpu"], 0).sum() + np.maximum(rows["queued"], 0).sum())
    if on_main >= HIDDEN * float(rows["wall"].sum()) or "own_queued_ns" not in totals:
        queued = float(np.maximum(rows["queued"], 0).sum())
        return wait * (1 - min(1.0, queued / max(1.0, float(rows["wall"].sum()))))
    return wait * (1 - _queued_share(case.window))  # other threads load


def _queued_share(window: Window) -> float:
    """Return the share of a window by which it is longer because threads wait for a core."""
    totals: Mapping[str, int] = window.run.totals
    if not totals.get("own_queued_ns") or not totals.get("window_ns"):
        return 0.0
    # threads that wait at the same time delay the step once
    active = (totals["own_cpu_ns"] + totals["own_queued_ns"]) / totals["window_ns"]
    return min(0.95, totals["own_queued_ns"] / max(1.0, active) / totals["window_ns"])
