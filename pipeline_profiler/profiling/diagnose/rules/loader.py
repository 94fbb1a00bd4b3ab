"""Rules for the loader's settings: hand-over, prefetch, cores, order, workers, tf.data's graph.

A trial that changed the setting replaces the prediction by its measured gain. Thresholds without a
source give no finding on the healthy pipelines of the planted-bottleneck benchmark.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from pipeline_profiler.profiling.diagnose import predict
from pipeline_profiler.profiling.diagnose.evidence import (
    Case,
    Evidence,
    measured_or_predicted,
    trials_of,
)
from pipeline_profiler.profiling.diagnose.finding import NOT_BOUND, Diagnosis
from pipeline_profiler.profiling.diagnose.intervals import Floats, Interval
from pipeline_profiler.profiling.diagnose.window import Window
from pipeline_profiler.profiling.record.arm import Arm

CROWDED = 0.40  # share of worker time runnable without a core
MIN_HAND_OVER = 0.2  # of what one worker needs for a batch
PICKLED_PART = 0.25  # of the hand-over, from which the batch's weight is its cause
PIPE_BYTES_PER_MS = 2.5e5  # measured: 25 MB through a worker's pipe take 100 ms
LOCKED = re.compile(r"\bwith\b[^:]*\block|\.acquire\(|\bflock\(|\blockf\(", re.IGNORECASE)
LOCKED_SHARE = 0.25  # of the stack samples of loading
NO_LOCK = "load in worker processes, or by code that releases the lock (numpy, Pillow, OpenCV)"
ONE_CORE = 1.15  # cores that threads which take turns keep busy at most
FREE_CORES = (
    "let them run on every core: look for taskset, sched_setaffinity, OMP_PROC_BIND, a quota"
)
PREFETCH_FACTORS = (2, 4, 8, 16, 32)
NEAR_BEST = 1.03  # of the shortest period, within which the smaller setting is advised
LIGHTER_BATCH = "return tensors (shared memory), not Python objects or views of large arrays"


def heavy_transfer(e: Evidence) -> Diagnosis | None:
    """Pickling in the worker, the pipe, and unpickling in the trainer."""
    if not e.workers or not any(case.traced for case in e.cases):
        return None
    ms = _late_ms(e)
    if not _hands_over_late(e, ms):
        return None
    if _weight_ms(e) < PICKLED_PART * ms and not e.config.get("pin_memory"):
        return None  # nobody took the batch when it was there: see `late_hand_over`
    return Diagnosis(
        "PIPE005",
        f"handing a batch over costs {ms:.1f} ms: pickling, the pipe, unpickling",
        e.saving_by(partial(_without_transfer, e)),
        {"ms_per_batch": ms},
        LIGHTER_BATCH,
        relief=partial(_without_transfer, e),
    )


def _hands_over_late(e: Evidence, ms: float) -> bool:
    """Whether a hand-over of `ms` does not hide behind the next fetch."""
    fetch_ms = float(np.mean([case.fetch.mean() for case in e.cases])) / 1e6
    return ms >= MIN_HAND_OVER * fetch_ms / e.workers


def late_hand_over(e: Evidence) -> float | None:
    """Return the ms that a finished batch waits where its weight is not the reason, else None."""
    if not e.workers or not any(case.traced for case in e.cases):
        return None
    ms = _late_ms(e)
    light = _weight_ms(e) < PICKLED_PART * ms and not e.config.get("pin_memory")
    # where the workers' own demand crowds the cores, a late trainer is a consequence
    return ms if light and _hands_over_late(e, ms) and not crowded_by_itself(e) else None


def _weight_ms(e: Evidence) -> float:
    """Return the ms for the weight of a batch: CPU of pickling, receipt above an empty loader's."""
    rows = []
    for case in e.cases:
        if case.traced:
            on_cpu = float(np.maximum(case.steps.wait_cpu, 0).mean())
            # unpickling cannot take more CPU than all of next() did
            receipt = min(float(case.batches.receive.mean()), on_cpu)
            beyond = max(0.0, receipt - e.null_ns)
            rows.append(case.window.stage_cpu_ns("serialise") + beyond)
    piped = (e.session.probes.piped_bytes or 0.0) / PIPE_BYTES_PER_MS
    return float(np.mean(rows)) / 1e6 + piped if rows else 0.0


def _late_ms(e: Evidence) -> float:
    """Milliseconds from a batch's end in the worker to the step, beyond an empty loader's."""
    late = [max(0.0, c.costs.overhead - _floor(e, c)) + float(c.lag.mean()) for c in e.cases]
    return float(np.mean(late)) / 1e6


def relieved(e: Evidence, case: Case, left: float) -> dict[str, Any]:
    """Return what a hand-over costs when only `left` of the loading remains, as inputs of a replay.

    The wait for the worker's interpreter lock, and the contention of a loader in the training
    process, shrink in proportion to the loading.
    """
    if not case.workers:
        alone = _loop_alone(e, case)
        return {"loop": alone + left * (case.costs.loop - alone)}
    if _weight_ms(e) >= PICKLED_PART * _late_ms(e):
        return {}
    costs = {name: getattr(case.costs, name) for name in ("overhead", "ready")}
    floor = {name: min(_floor(e, case), cost) for name, cost in costs.items()}
    return {name: low + left * (costs[name] - low) for name, low in floor.items()}


def _floor(e: Evidence, case: Case) -> float:
    """What of next() is not the batch's weight: the sampler, and the hand-over of nothing."""
    return case.window.main_stage_ns("sampler") + e.null_ns


def _without_transfer(e: Evidence, case: Case) -> dict[str, Any]:
    late, at_hand = (min(_floor(e, case), cost) for cost in (case.costs.overhead, case.costs.ready))
    # many small objects slow the step too: collections, and caches they have emptied
    loop = _loop_alone(e, case)
    return {"serialise": np.zeros(1), "overhead": late, "ready": at_hand, "loop": loop}


def _loop_alone(e: Evidence, case: Case) -> Floats:
    """Return the steps (ns) scaled to the period with preloaded batches, if measured."""
    alone = e.periods.get(Arm.RESIDENT) or [math.inf]
    loop = case.costs.loop
    return loop * min(1.0, float(np.mean(alone)) / max(float(loop.mean()), 1.0))


def shallow_prefetch(e: Evidence) -> Diagnosis | None:
    """Too few batches in flight for bursts of slow batches, by a replay of every larger factor."""
    if not e.workers or e.config.get("kind") != "torch":
        return None
    tried = trials_of(e, "prefetch")
    factor = int(tried[0].run.config["prefetch"]) if tried else _enough_prefetch(e)
    if factor <= _prefetch(e):
        return None

    def deeper(case: Case) -> dict[str, int]:
        return {"prefetch": factor}

    share = measured_or_predicted(e, "prefetch", lambda: e.saving_by(deeper))
    return Diagnosis(
        "PIPE007",
        f"prefetch_factor={_prefetch(e)} holds too few batches in reserve for uneven batch times",
        share,
        {"prefetch_factor": _prefetch(e), "tried": factor},
        f"prefetch_factor={factor}",
        change={"prefetch": factor},
        relief=deeper,
    )


def _enough_prefetch(e: Evidence) -> int:
    """Return the smallest factor whose replayed period is within 3% of the best factor's."""
    case, now = e.cases[0], _prefetch(e)
    periods = {now: case.replayed}
    periods |= {n: case.play(prefetch=n) for n in PREFETCH_FACTORS if n > now}
    best = min(periods.values())
    return min(n for n, period in periods.items() if period <= NEAR_BEST * best)


def _prefetch(e: Evidence) -> int:
    return int(e.config.get("prefetch") or 1)


def oversubscribed(e: Evidence) -> Diagnosis | None:
    """More threads of the pipeline than cores, by run-queue delay or by the step that it slows."""
    threads, queued = e.loading_shares().threads, _own_queued(e)
    bound, cores = _bound_to_cores(e)
    crowded = queued >= CROWDED and (_short_of_cores(e) or threads > 1.5 or bool(bound))
    contention = e.parts.get("contention")
    # contention names the cores where it is sure, and at least half of what there is to explain
    least = 0.5 * max(e.stall.value, 0.01)
    if contention and (contention.low <= 0 or contention.value < least):
        contention = None
    if not (crowded or contention):
        return None
    crowd, fix = _crowd(e, threads)
    crowd, fix = (bound, FREE_CORES) if bound else (f"{crowd} share {e.cores} cores", fix)
    where = e.where_loading_goes
    if contention and not crowded and e.cores > 1 and _one_at_a_time(e):
        crowd, fix = (
            "a thread of the loader holds the interpreter lock, with a core to spare",
            NO_LOCK,
        )
    slows = f", and slows the step by {contention.value:.1%}" if contention else ""
    return Diagnosis(
        "PIPE012",
        f"{crowd}: loading waits {queued:.0%} of its time for a core{slows}" + where,
        contention or _queueing(e, cores),
        {"queued_share": queued, "threads_per_worker": threads, "cores": e.cores},
        fix,
    )


def _crowd(e: Evidence, threads: float) -> tuple[str, str]:
    """Return which threads share the cores, and what to do about it."""
    calls = "(torch.set_num_threads(1), cv2.setNumThreads(0))"
    if not e.workers:
        return f"the loader's {threads:.1f} threads and the step", f"one thread {calls}"
    fewer = f"num_workers={max(1, e.cores - 1)} and " if e.workers >= e.cores else ""
    many = f" of {threads:.1f} busy threads each" if threads > 1.5 else ""
    return f"{e.workers} workers{many} and the step", f"{fewer}one thread in each {calls}"


def _own_queued(e: Evidence) -> float:
    """Return the share of loading that waits for a core which the pipeline itself uses."""
    return e.loading_shares().queued * (1 - e.machine.foreign)


def _short_of_cores(e: Evidence) -> bool:
    """Whether threads of the pipeline want more cores at a time, on average, than there are."""
    rows = []
    for case in e.cases:
        step = np.maximum(case.window.whole.spans("loop")["cpu"], 0)
        wanting = float(step.mean()) if len(step) else 0.0
        if case.traced:  # what runs and what waits behind it
            queued = np.maximum(case.batches.queued, 0) * (1 - e.machine.foreign)
            wanting += float((case.batches.cpu + queued).mean())
        rows.append(wanting / case.period)
    # a tenth above the cores, as counters of CPU and queue do not end at the same moment
    return float(np.mean(rows)) > 1.1 * e.cores


def _one_at_a_time(e: Evidence) -> bool:
    """Whether loading goes on in threads of this process, which keep no more than one core busy."""
    rows = [case.window.run.totals for case in e.cases if not e.workers]
    busy = [row["own_cpu_ns"] / row["window_ns"] for row in rows if row.get("window_ns")]
    beside = [1 - row["main_cpu_ns"] / row["own_cpu_ns"] for row in rows if row.get("own_cpu_ns")]
    return bool(busy) and max(busy) <= ONE_CORE and min(beside) > 0.1


def _bound_to_cores(e: Evidence) -> tuple[str, int]:
    """('', cores), or which processes may not run on all cores, and the cores without that."""
    told = e.session.environment
    held = [case.window.run.totals.get("workers_cores", e.cores) for case in e.cases]
    if min(held, default=e.cores) < min(e.workers, e.cores):
        return f"the {e.workers} workers are bound to {min(held)} of {e.cores} cores", e.cores
    machine = int(told.get("cores_of_machine") or e.cores)
    if e.cores < min(machine, e.workers):
        return f"{e.workers} workers may use {e.cores} of the machine's {machine} cores", machine
    return "", e.cores


def _queueing(e: Evidence, cores: int) -> Interval:
    """Return what the wait for a core is worth, with workers and trainer alone on the cores."""

    def idle(case: Case) -> float:
        if not case.workers:
            return case.play(fetch=_without_queueing(case), loop=_loop_alone(e, case))
        return shared_period(cores, case, uncrowded(e, case))

    return e.saving(idle)


def uncrowded(e: Evidence, case: Case) -> predict.Costs:
    """What a batch of a loader with workers costs when nobody waits for a core."""
    costs = case.costs
    # no loader hands over faster than the empty one did
    receipt = max(e.null_ns, float(np.maximum(case.steps.wait_cpu, 0).mean()))
    pickling = case.window.stage_cpu_ns("serialise") + e.null_ns
    return replace(
        costs,
        blocked=np.maximum(_without_queueing(case) - costs.cpu, 0.0),
        serialise=np.minimum(case.lag, pickling),
        loop=_loop_alone(e, case),
        overhead=min(case.costs.overhead, receipt),
        ready=min(case.costs.ready, receipt),
    )


def shared_period(cores: int, case: Case, costs: predict.Costs, **changes: int) -> float:
    """The period with these costs and settings, workers and trainer sharing the cores; ns."""
    setting = {"workers": case.workers, "prefetch": case.prefetch, "in_order": case.in_order}
    return predict.shared(costs, setting | changes, cores) + case.costs.startup


def crowded_by_itself(e: Evidence) -> bool:
    """Whether the workers' own demand is more than the cores, and they wait for one."""
    return bool(e.workers) and _own_queued(e) >= CROWDED and _short_of_cores(e)


def _without_queueing(case: Case) -> Floats:
    if not case.traced or len(case.batches.queued) != len(case.fetch):
        return case.fetch
    return np.maximum(case.fetch - np.maximum(case.batches.queued, 0), 0.0)


def too_few_workers_at_par(e: Evidence) -> Diagnosis | None:
    """Fewer workers than cores, and as many as cores would be enough."""
    if not e.workers or e.workers >= e.cores:
        return None
    diagnosis = _more_workers(e, e.cores)
    # otherwise the work itself is too much, and its stage is the better advice
    return diagnosis if diagnosis and diagnosis.share.value >= 0.85 * e.stall.value else None


def too_few_workers(e: Evidence) -> Diagnosis | None:
    """More workers would end the stall (blocked time does not need a core)."""
    if e.config.get("kind") != "torch":
        return None
    cpu = np.mean([case.window.needs_core(0.0) for case in e.cases])
    # blocked time needs no core: four workers on each still help a slow disk or network
    most = e.cores if cpu >= predict.CPU_BOUND_SHARE else 4 * e.cores
    return _more_workers(e, max(most, 2)) if e.workers < most else None


def _more_workers(e: Evidence, most: int) -> Diagnosis | None:
    if e.idle_workers or _at_a_lock(e):
        return None  # more of them would have nothing to load, or wait for the same lock
    tried = trials_of(e, "workers")
    count = int(tried[0].run.config["workers"]) if tried else _enough_workers(e, most)
    if count <= e.workers:
        return None
    share = measured_or_predicted(
        e, "workers", lambda: e.saving(lambda case: with_workers(e, case, count), True)
    )
    where = "in the training process" if e.workers == 0 else f"in {e.workers} worker(s)"
    left = _waiting_left(e, tried, count)
    enough = "deliver in time" if left < NOT_BOUND else f"leave {left:.0%} of the step waiting"
    return Diagnosis(
        "PIPE006",
        f"the loader runs {where}; {count} would {enough} ({e.cores} usable cores)"
        + e.where_loading_goes,
        share,
        {"num_workers": e.workers, "tried": count, "cores": e.cores},
        f"num_workers={count}",
        change={"workers": count},
        relief=lambda case: {"workers": count},
    )


def _at_a_lock(e: Evidence) -> bool:
    """Whether workers spend much of the loading at a line that takes a lock."""
    at_locks = sum(share for line, share in e.loading_lines.items() if LOCKED.search(line))
    return e.workers > 1 and at_locks >= LOCKED_SHARE


def _waiting_left(e: Evidence, tried: Sequence[Window], count: int) -> float:
    """The share of the step that waits with so many workers: as tried, else as replayed."""
    if tried:
        return float(np.mean([window.input_wait_ns / window.period_ns for window in tried]))
    rows = [(with_workers(e, case, count), case.step_ns) for case in e.cases]
    return float(np.mean([max(0.0, 1 - loop / period) for period, loop in rows]))


def with_workers(e: Evidence, case: Case, count: int) -> float:
    """Return the period (ns) with so many workers, no shorter than the cores allow."""
    costs = _handed_over(case)
    period = shared_period(e.cores, case, costs, workers=count, prefetch=max(2, case.prefetch))
    # all threads of the step need cores too, not its main thread alone
    return max(period, (float(costs.cpu.mean()) + e.step_cpu_ns) / e.cores)


def _handed_over(case: Case) -> predict.Costs:
    """The costs with a hand-over where a loop without workers was recorded, which has none."""
    totals, costs = case.window.run.totals, case.costs
    receipt = float(totals.get("hand_over_ns", 0))
    if case.workers or not receipt:
        return costs
    # pickling runs in the worker beside its next fetch, under the same interpreter lock
    pickling = float(totals.get("pickling_ns", 0))
    return replace(costs, cpu=costs.cpu + pickling, overhead=receipt, ready=receipt)


def _enough_workers(e: Evidence, most: int) -> int:
    """The smallest count whose predicted period is within 3 % of what the most would give."""
    case = e.cases[0]
    periods = {n: with_workers(e, case, n) for n in range(e.workers + 1, most + 1)}
    best = min(periods.values())
    return min(n for n, period in periods.items() if period <= NEAR_BEST * best)


MOST_OF_IT = 0.7  # of the best gain; a cache is always best and rarely what is missing
CODES = {
    "prefetch": "PIPE019",
    "parallel map": "PIPE018",
    "parallel interleave": "PIPE026",
    "smaller shuffle buffer": "PIPE020",
    "cache": "PIPE027",
    "drop unused fields": "PIPE022",
}


def intervention(e: Evidence) -> Diagnosis | None:
    """The simplest tried intervention that gets most of what the best one gets."""
    trials = e.session.probes.interventions or []
    gains = [(row, 1 - row["period_ms"] / row["baseline_ms"]) for row in trials]
    useful = [(row, gain) for row, gain in gains if gain > 0.05]
    if not useful:
        return None
    best = max(gain for _, gain in useful)
    row, gain = next((r, g) for r, g in useful if g >= MOST_OF_IT * best)
    spread = float(row.get("spread", 0.05))
    return Diagnosis(
        CODES.get(row["name"], "PIPE028"),
        f"{row['name']}: {row['why']} (tried: {row['baseline_ms']:.1f} ms a step becomes "
        f"{row['period_ms']:.1f} ms)",
        Interval(gain, gain - spread, gain + spread, int(row.get("repeats", 1))),
        {"baseline_ms": row["baseline_ms"], "period_ms": row["period_ms"]},
        row["how"],
    )
