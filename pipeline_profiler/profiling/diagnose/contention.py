"""What other programs add to the data stall, by the time that threads wait for a core.

A thread that is ready and has no core is counted by the kernel (`queued`). Loading without this
time gives the part of other programs; processes of the pipeline itself still compete in the replay.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from pipeline_profiler.profiling.diagnose.disturbance import DISTURBED
from pipeline_profiler.profiling.diagnose.evidence import Case, Evidence
from pipeline_profiler.profiling.diagnose.finding import NOT_BOUND, Diagnosis
from pipeline_profiler.profiling.diagnose.intervals import FIRST_LOOK, Interval
from pipeline_profiler.profiling.diagnose.rules.loader import shared_period, uncrowded
from pipeline_profiler.profiling.diagnose.window import Window

MIN_POINTS = 0.01  # of the step, from which their part is reported
HIDDEN = 0.5  # of the time in next(): below it other threads do the loading
ADVICE = "end the other programs, or measure on a quieter machine"


@dataclass(frozen=True)
class Contention:
    """Share of the step that loading waits for cores of other programs; None without any."""

    share: Interval | None = None
    sentence: str = ""


def measure_contention(e: Evidence) -> Contention:
    """Return what other programs add to the stall, as a share of the step."""
    if e.machine.others < DISTURBED or not e.cases:
        return Contention()
    share = e.share(lambda case: case.period * _added(e, case))
    share = replace(share, low=max(0.0, share.low), value=max(0.0, share.value))
    sentence = ""
    if share.value >= MIN_POINTS and (share.n >= FIRST_LOOK or e.observed):
        ends = f" (95% CI {100 * share.low:.0f} to {100 * min(share.high, 1.0):.0f})"
        ends = ends if math.isfinite(share.high) else ""
        points = f"{100 * share.value:.0f} points{ends}"
        sentence = f"Of that, other programs cost about {points}."
    return Contention(share, sentence)


def _added(e: Evidence, case: Case) -> float:
    """Return the share of the step that loading waits for a core, beside the step as it is."""
    step, wait = case.step_ns, case.window.input_wait_ns
    return _waiting(step, wait) - _waiting(step, _quiet_wait(e, case))


def _waiting(step: float, wait: float) -> float:
    return wait / max(step + wait, 1.0)


def other_programs(e: Evidence, share: Interval | None) -> Diagnosis | None:
    """Name other programs as a cause where they surely add `share` of the step to the stall."""
    if share is None or share.value < NOT_BOUND or share.low <= 0:
        return None
    taken = f"other programs take {e.machine.others:.0%} of the cores"
    waiting = f"loading waits {e.loading_shares().queued:.0%} of its time for a core"
    seen = {"others": e.machine.others}
    return Diagnosis("PIPE033", f"{taken}: {waiting}", share, seen, ADVICE)


def _quiet_wait(e: Evidence, case: Case) -> float:
    """Return the wait a step (ns) without other programs."""
    if case.workers:
        loop = case.costs.loop
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
