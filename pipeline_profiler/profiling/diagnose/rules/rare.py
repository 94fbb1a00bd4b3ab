"""Rules for rare and isolated costs inside the loader: start-up, outliers, pauses, a slow worker.

They precede settings and stages, because they are specific. Thresholds without a source give no
finding on the healthy pipelines of the planted-bottleneck benchmark.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from pipeline_profiler.profiling.diagnose.evidence import Case, Evidence, measured_or_predicted
from pipeline_profiler.profiling.diagnose.finding import Diagnosis
from pipeline_profiler.profiling.diagnose.intervals import Floats, Interval
from pipeline_profiler.profiling.diagnose.rules.loader import shared_period
from pipeline_profiler.profiling.diagnose.stalls import slowest_samples
from pipeline_profiler.profiling.diagnose.window import Flags, Window
from pipeline_profiler.profiling.record.arm import Arm
from pipeline_profiler.profiling.record.session import MAIN

MOSTLY = 0.6  # of the stall
STRAGGLER_TIMES = 4.0  # slowest sample against the typical one
STRAGGLER_SHARE = 0.4  # of its batch
RARE = 0.25  # share of batches up to which an outlier is rare
OUTLIER_TIMES = 2.5  # batch against the median batch
PERIODIC_SHARE = 0.12  # share of batches; more frequent ones are uneven, not interrupted
REGULAR_CV = 0.25  # spread of the gaps between stalls, of their mean
SHORTEST_GAP = 3.0  # batches; closer ones are a run of slow batches
LEAST_GAPS = 4  # fewer look regular by chance


def worker_startup(e: Evidence) -> Diagnosis | None:
    """Time from iter() to the first batch, spread over the steps of a whole epoch."""
    if not any(case.costs.startup for case in e.cases) and not e.dear_start:
        return None
    # timed as it is, not replayed: the error of a model of the other steps is none of its
    predicted = e.share(_avoidable_start)
    if e.dear_start:
        predicted = Interval(e.open_start, 0.0, e.open_start, len(e.cases))
    share = measured_or_predicted(e, "persistent", lambda: predicted)
    ms = float(np.mean([ns for case in e.cases for ns in case.window.first_batch_ns])) / 1e6
    persistent, steps = bool(e.config.get("persistent")), max(c.window.epoch_steps for c in e.cases)
    seen: dict[str, float | int | str] = {"first_batch_ms": ms, "epoch_steps": steps}
    seen["persistent_workers"] = str(persistent)
    length = f" of {steps} steps" if steps else ""
    begins = f"each epoch{length} begins with {ms:.0f} ms before its first batch"
    if _buffer_fills(e):
        fix = "a smaller shuffle buffer over shuffled files, or shuffle before the costly map"
        said = f"{begins}: the shuffle buffer is filled first"
        return Diagnosis("PIPE020", said, share, seen, fix, relief=_without_start)
    fix = "keep the iterator over epochs, fill buffers once, import less in the dataset's module"
    change = None
    if e.workers and not persistent:
        fix, change = "set persistent_workers=True", {"persistent": True}
    said = f"{begins} (worker start-up, first fetch)"
    if steps == 1:
        said = f"each step makes a new iterator of the loader: {ms:.0f} ms before its first batch"
        fix, change = "iterate once an epoch: `for batch in loader:`", None
        return Diagnosis("PIPE011", said, share, seen, fix, relief=_without_start)
    if not e.workers and share.value > MOSTLY * e.stall.value:
        # most of what next() waits for, so the line seen most often in it is that of the start
        drawn = float(np.mean([_drawn_at_starts(case.window.whole) for case in e.cases]))
        place = e.labels.top_place("sample code")
        # of torch's own samplers no line is seen; one of the user's is a generator
        place = "the sampler" if drawn > MOSTLY and "__iter__" not in place else place
        said = f"{begins}" + (f", most of it at {place}" if place else " (sampler, first fetch)")
        fix = "make once what is made anew for each epoch: an order, an index, a filled buffer"
        seen |= {"at": place} if place else {}
    return Diagnosis("PIPE011", said, share, seen, fix, change=change, relief=_without_start)


def _without_start(case: Case) -> dict[str, float]:
    return {"startup": case.costs.startup - _avoidable_start(case)}


def _avoidable_start(case: Case) -> float:
    """An epoch's start over its steps (ns), without the first batch's own loading, which stays."""
    if not case.workers or not case.window.epoch_steps:
        return case.costs.startup  # the typical wait, which is taken off, is that loading
    typical = float(case.steps.wait[case.steps.normal].mean())
    loading = float(case.fetch.mean()) + case.costs.overhead - typical
    return max(0.0, case.costs.startup - max(0.0, loading) / case.window.epoch_steps)


def _drawn_at_starts(whole: Window) -> float:
    """The sampler's share of the time from iter() to the first batch."""
    steps = whole.steps
    drawing = whole.wall_of("sampler", steps.batch[steps.first], MAIN).sum()
    return float(drawing) / max(1.0, float(steps.startup.sum()))


def _buffer_fills(e: Evidence) -> bool:
    """tf.data: the first element waits for the shuffle more than for all before and after it."""
    before, fill = 0.0, 0.0
    for row in e.session.probes.prefixes or []:
        if row["operation"] == "Shuffle":
            fill = max(fill, row["first_ms"] - before)
        before = row["first_ms"]
    return fill > 0.5 * before


def collector_pauses(e: Evidence) -> Diagnosis | None:
    """Garbage collection inside next(), in the trainer or in the workers."""
    in_main = e.share(lambda case: main_gc(case, "wait"))
    in_workers = e.saving(lambda case: case.play(fetch=_without_gc(case)))
    # the larger of both, not their sum: workers collect while the trainer does
    share = max(in_main, in_workers, key=lambda s: s.value)
    where = "the trainer's next()" if share is in_main else "the workers"
    if share.value < 0.03:
        return None
    return Diagnosis(
        "PIPE013",
        f"garbage collection inside {where} takes {share.value:.1%} of the step",
        share,
        {"where": where},
        "gc.freeze() after building the dataset, hold indices in numpy arrays instead of lists of "
        "objects, or gc.disable() in the loop and collect between epochs",
    )


def main_gc(case: Case, phase: str) -> float:
    """GC nanoseconds a step of the trainer inside next() ("wait") or outside ("loop")."""
    if not case.window.run.gc_pauses:
        return 0.0
    pauses = np.array(case.window.run.gc_pauses, dtype=np.int64)
    entry, end = case.steps.entry, case.steps.entry + case.steps.wait
    # a pause belongs to the step whose next() was entered last before it
    at = np.searchsorted(entry, pauses[:, 0], side="right") - 1
    timed = (at >= 0) & (pauses[:, 0] < entry[-1] + case.steps.period[-1])
    inside = timed & (pauses[:, 0] < end[np.maximum(at, 0)])
    counted = inside if phase == "wait" else timed & ~inside
    return float(pauses[counted, 1].sum()) / len(entry)


def _without_gc(case: Case) -> Floats:
    if not case.traced or len(case.batches.gc) != len(case.fetch):
        return case.fetch
    return np.maximum(case.fetch - case.batches.gc, 0.0)


def slow_sampler(e: Evidence) -> Diagnosis | None:
    """The sampler runs in the training process, also with workers."""
    share = e.share(lambda case: case.window.main_stage_ns("sampler"))
    if share.value < 0.05:
        return None
    return Diagnosis(
        "PIPE017",
        f"the sampler takes {share.value:.1%} of the step, in the training process",
        share,
        {"ms_per_batch": share.value * e.period / 1e6},
        "draw the whole epoch's order at once (numpy), not index by index",
    )


def straggler_samples(e: Evidence) -> Diagnosis | None:
    """A few samples that cost many times the typical one."""
    if not any(_stragglers(case).any() for case in e.cases):
        return None
    share = e.saving_by(_capped_samples)
    rows = e.session.probes.slow_samples or slowest_samples([case.window for case in e.cases], 5)
    often = float(np.mean([_stragglers(case).mean() for case in e.cases]))
    keys = ", ".join(str(row.get("path", row["key"])) for row in rows[:3])
    return Diagnosis(
        "PIPE008",
        f"single samples up to {rows[0]['worst_ms']:.0f} ms hold up {often:.1%} of the batches "
        f"(slowest: {keys})",
        share,
        {"batches_affected": often, "worst_ms": rows[0]["worst_ms"], "slowest": keys},
        "re-encode or leave out these samples (`audit scan` gives their sizes), or deliver out of "
        "order with in_order=False",
        relief=_capped_samples,
    )


def _typical_sample(case: Case) -> float:
    samples = np.maximum(case.batches.samples, 1)
    return float(np.median((case.batches.fetch - case.batches.slow) / np.maximum(samples - 1, 1)))


def _stragglers(case: Case) -> Flags:
    """Batches whose slowest sample is an outlier and a large part of the batch."""
    batches = case.batches
    none = np.zeros(len(batches.batch), bool)
    if not case.traced or np.median(batches.samples) < 2 or len(batches.batch) != len(case.fetch):
        return none
    run = case.window.run
    # a second look at the slow samples alone found them fast: it is not the samples
    if run.totals.get("probe_ratio_percent", 1000) < 200:
        return none
    # a stream whose samples carry no name: the n-th of a worker is no sample to look at
    named = any(isinstance(key, str) for key in run.slow_keys[:100])
    if run.config.get("iterable_dataset") and not named:
        return none
    typical = max(_typical_sample(case), 1.0)
    hit = (batches.slow > STRAGGLER_TIMES * typical) & (
        batches.slow > STRAGGLER_SHARE * batches.fetch
    )
    return hit if hit.mean() <= RARE else none


def _capped_samples(case: Case) -> dict[str, Floats]:
    hit = _stragglers(case)
    cut = np.where(hit, np.maximum(case.batches.slow - _typical_sample(case), 0), 0)
    return {"fetch": np.maximum(case.fetch - cut, 0.0)}


def periodic_stall(e: Evidence) -> Diagnosis | None:
    """Rare slow batches at regular distances that no single sample explains."""
    gaps = _longest_gaps(e)
    if len(gaps) < LEAST_GAPS or gaps.std() > REGULAR_CV * gaps.mean():
        return None
    every = float(gaps.mean())
    if every < SHORTEST_GAP:
        return None
    return _interrupted(e, f"every {every:.0f} batches one takes many times as long", every)


def isolated_stall(e: Evidence) -> Diagnosis | None:
    """The same where the distances are irregular, or too few to tell."""
    often = float(np.mean([_rare_batches(case).mean() for case in e.cases]))
    if not often:
        return None
    return _interrupted(e, f"{often:.1%} of the batches take many times as long", 1 / often)


def _interrupted(e: Evidence, text: str, every: float) -> Diagnosis:
    def without(case: Case) -> dict[str, Floats]:
        typical = float(np.median(case.fetch))
        return {"fetch": np.where(_rare_batches(case), typical, case.fetch)}

    return Diagnosis(
        "PIPE009",
        f"{text} as the others",
        e.saving_by(without),
        {"every_batches": every},
        "look for what happens that often: opening a shard, a cache refill, a checkpoint, a lock "
        "or a log",
        relief=without,
    )


def _longest_gaps(e: Evidence) -> Floats:
    """Return distances between slow batches in the run with most, by all or by one worker."""
    windows = [*e.windows.arm(Arm.PILOT), *(case.window for case in e.cases)]
    loop = float(np.mean([case.step_ns for case in e.cases]))
    all_gaps = [gaps for window in windows for gaps in _gaps(window.whole, loop)]
    regular = [g for g in all_gaps if len(g) >= LEAST_GAPS and g.std() <= REGULAR_CV * g.mean()]
    return max(regular or all_gaps, key=len, default=np.zeros(0))


def _gaps(whole: Window, loop: float) -> list[Floats]:
    """Distances of a run's slow batches, warm-up included: in the run, and inside each worker."""
    batches = whole.batches
    if len(batches.batch):
        fetch, workers = batches.fetch.astype(float), batches.worker
    else:
        window = whole.steps
        fetch = window.wait[~window.first].astype(float)
        workers = np.zeros(len(fetch), np.int64)
    in_run = _between_slow(fetch, loop)
    inside = [_between_slow(fetch[workers == w], loop) for w in np.unique(workers)]
    return [in_run, np.concatenate(inside)] if inside else [in_run]


def _between_slow(fetch: Floats, loop: float) -> Floats:
    """Gaps between slow batches; the first may hold imports and first touches. [] if not rare."""
    own = fetch[1:]
    at = np.flatnonzero(_slow(own, loop)) if len(own) else np.zeros(0, np.int64)
    rare = len(at) <= max(2, PERIODIC_SHARE * len(own))
    return np.diff(at).astype(float) if rare else np.zeros(0)


def _slow(fetch: Floats, loop: float) -> Flags:
    typical = float(np.median(fetch))
    # an outlier counts where it is long against the step too: light batches jitter by themselves
    enough = max(OUTLIER_TIMES * typical, typical + 0.5 * loop)
    # and against the worst: a foreign process's hiccups shall not blur a regular pattern
    enough = max(enough, typical + 0.25 * float(fetch.max() - typical))
    return np.asarray(fetch > enough)


def _rare_batches(case: Case) -> Flags:
    hit = _slow(case.fetch, case.step_ns)
    return hit if hit.sum() <= max(2, PERIODIC_SHARE * len(hit)) else np.zeros(len(hit), bool)


SLOWER = 1.5  # median batch against the others', from which a worker is named
# share of pairs (its batch, another's) in which its own is slower: of equal workers with so many
# batches each, less than one in 5,000 is so far off by chance
SEPARATED = 0.9
LEAST_BATCHES = 12


def slow_worker(e: Evidence) -> Diagnosis | None:
    """Find one worker that is slow in every run; in order, it sets the pace of all."""
    found = _slowest(e.cases)
    if found is None:
        return None
    worker, own, others = found[0], found[1] / 1e6, found[2] / 1e6

    def evened(case: Case) -> dict[str, Floats]:
        return {"fetch": _evened(case, worker)}

    return Diagnosis(
        "PIPE030",
        f"the batches of worker {worker} take {own:.1f} ms each, those of the others "
        f"{others:.1f} ms: in order, all wait for it",
        e.saving_by(evened),
        {"worker": worker, "ms_per_batch": own, "others_ms_per_batch": others},
        "deal the work evenly: shards of equal cost, several small ones a worker, or an order of "
        "samples that is no multiple of the workers; in_order=False hides it in part",
        relief=evened,
    )


def _slowest(cases: Sequence[Case]) -> tuple[int, float, float] | None:
    """(worker, its median batch, the others', ns) where one is slower beyond doubt."""
    told = [c.workers > 1 and 0 < len(c.fetch) == len(c.batches.worker) for c in cases]
    if not cases or not all(told):
        return None
    workers = np.concatenate([case.batches.worker for case in cases])
    fetch = np.concatenate([case.fetch for case in cases])
    present, counts = np.unique(workers, return_counts=True)
    least = LEAST_BATCHES if len(cases) > 1 else 2 * LEAST_BATCHES
    if len(present) < 2 or counts.min() < least:
        return None
    medians = [float(np.median(fetch[workers == w])) for w in present]
    worker = int(present[int(np.argmax(medians))])
    own, others = fetch[workers == worker], fetch[workers != worker]
    slower = float(np.searchsorted(np.sort(others), own).mean()) / len(others)
    middle = float(np.median(others))
    if max(medians) < SLOWER * middle or slower < SEPARATED:
        return None
    return worker, max(medians), middle


def idle_worker(e: Evidence) -> Diagnosis | None:
    """Find a worker of a stream without samples while others load; by a replay of an even split."""
    idle, drawn = e.idle_workers, e.drawn_steps
    if not idle:
        return None
    marks = [0, *sorted(idle.values()), drawn]

    def evened(case: Case) -> float:
        of = {
            n: shared_period(e.cores, case, case.costs, workers=n) for n in range(1, e.workers + 1)
        }
        left = range(e.workers, 0, -1)
        whole = sum((b - a) * of[n] for n, (a, b) in zip(left, pairwise(marks), strict=False))
        return case.replayed * drawn * of[e.workers] / whole

    said = [
        f"worker {worker} has no batch " + (f"after step {step} of the" if step else "in the")
        for worker, step in sorted(idle.items())
    ]
    return Diagnosis(
        "PIPE032",
        f"the loader goes on without {len(idle)} of its {e.workers} workers: {', '.join(said)} "
        f"{drawn} steps that were drawn",
        e.saving(evened),
        {"idle_workers": len(idle), "drawn_steps": drawn},
        "deal the shards evenly: at least one a worker, as many and as large for each, or deal "
        "samples instead of shards",
    )


def _evened(case: Case, worker: int) -> Floats:
    """The loading times with those of one worker brought to the others' median."""
    own = case.batches.worker == worker
    times = float(np.median(case.fetch[~own])) / max(float(np.median(case.fetch[own])), 1.0)
    return np.where(own, case.fetch * times, case.fetch)
