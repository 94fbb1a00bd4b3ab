"""What other programs add to the data stall, by the time that threads wait for a core.

A thread that is ready and has no core is counted by the kernel (`queued`). Loading without this
time gives the part of other programs; processes of the pipeline itself still compete in the replay.
The stall without other programs also needs the step without this time: threads of a step that wait
for each other burn CPU time, so it is estimated for steps of one thread alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from pipeline_profiler.profiling.diagnose.data_stall import HELPED
from pipeline_profiler.profiling.diagnose.disturbance import DISTURBED
from pipeline_profiler.profiling.diagnose.evidence import Case, Evidence
from pipeline_profiler.profiling.diagnose.finding import NOT_BOUND, Diagnosis
from pipeline_profiler.profiling.diagnose.intervals import FIRST_LOOK, Interval, mean_interval
from pipeline_profiler.profiling.diagnose.rules.loader import shared_period, uncrowded
from pipeline_profiler.profiling.diagnose.window import Window
from pipeline_profiler.profiling.record.arm import Arm

MIN_POINTS = 0.01  # of the step, from which their part is reported
MAX_HALF_WIDTH = 0.10  # of an estimate without other programs that is reported
HIDDEN = 0.5  # of the time in next(): below it other threads do the loading
MODEL_ERROR = 0.05  # of the step: how far the model is off on pipelines measured on both machines
ADVICE = "end the other programs, or measure on a quieter machine"


@dataclass(frozen=True)
class Contention:
    """Share of the step that loading waits for cores of other programs; None where there are none.

    `stall_alone`: the stall without other programs; None where it cannot be estimated.
    """

    share: Interval | None = None
    stall_alone: Interval | None = None
    sentence: str = ""


def measure_contention(e: Evidence) -> Contention:
    """Return what other programs add to the stall, as a share of the step."""
    if e.machine.others < DISTURBED or not e.cases:
        return Contention()
    share = e.share(lambda case: case.period * _added(e, case))
    share = replace(share, low=max(0.0, share.low), value=max(0.0, share.value))
    alone = _stall_alone(e)
    sentences = []
    if share.value >= MIN_POINTS and (share.n >= FIRST_LOOK or e.observed):
        ends = f" (95% CI {_ends(share)})" if math.isfinite(share.high) else ""
        points = f"{100 * share.value:.0f} points{ends}"
        sentences.append(f"Of that, other programs cost about {points}.")
    if alone is not None:
        value = f"{100 * alone.value:.0f}% (95% CI {_ends(alone)})"
        sentences.append(f"Without other programs it would be about {value}.")
    return Contention(share, alone, " ".join(sentences))


def _ends(share: Interval) -> str:
    return f"{100 * share.low:.0f} to {100 * min(share.high, 1.0):.0f}"


def _added(e: Evidence, case: Case) -> float:
    """Return the share of the step that loading waits for a core, beside the step as it is."""
    step, wait = case.step_ns, case.window.input_wait_ns
    return _waiting(step, wait) - _waiting(step, _quiet_wait(e, case, 1.0))


def _stall_alone(e: Evidence) -> Interval | None:
    """Return the stall without other programs; None where blocks disagree or threads hide it."""
    resident = {window.run.block: window for window in e.windows.arm(Arm.RESIDENT)}
    if not resident or _has_threads(resident.values()):
        return None
    alone = []
    for case in e.cases:
        if (window := resident.get(case.window.run.block)) is not None:
            left = 1 - _queued_share(window)
            alone.append(_waiting(left * case.step_ns, _quiet_wait(e, case, left)))
    return _defended(mean_interval(alone))


def _waiting(step: float, wait: float) -> float:
    return wait / max(step + wait, 1.0)


def _has_threads(resident: Iterable[Window]) -> bool:
    """Whether the step has threads of its own: their waits for each other are not counted."""
    return any(
        w.run.totals["own_cpu_ns"] - w.run.totals["main_cpu_ns"]
        > HELPED * w.run.totals["window_ns"]
        for w in resident
        if "window_ns" in w.run.totals
    )


def _defended(stall: Interval) -> Interval | None:
    """Return the interval if blocks with more and with less contention agree, else None."""
    wide = stall.widened(MODEL_ERROR)
    agree = stall.n >= FIRST_LOOK and wide.half_width <= MAX_HALF_WIDTH
    return replace(wide, low=max(0.0, wide.low), high=min(1.0, wide.high)) if agree else None


def other_programs(e: Evidence, share: Interval | None) -> Diagnosis | None:
    """Name other programs as a cause where they surely add `share` of the step to the stall."""
    if share is None or share.value < NOT_BOUND or share.low <= 0:
        return None
    taken = f"other programs take {e.machine.others:.0%} of the cores"
    waiting = f"loading waits {e.loading_shares().queued:.0%} of its time for a core"
    seen = {"others": e.machine.others}
    return Diagnosis("PIPE033", f"{taken}: {waiting}", share, seen, ADVICE)


def _quiet_wait(e: Evidence, case: Case, of_step: float) -> float:
    """Return the wait a step (ns) without other programs; `of_step`: what is left of the step."""
    if case.workers:
        loop = case.costs.loop * of_step
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
