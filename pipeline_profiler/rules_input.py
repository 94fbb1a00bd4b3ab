"""Rules for causes inside the loader: one small function each, thresholds named with their source.

Thresholds without a source were set so that the rule is silent on healthy pipelines of the
planted-bottleneck benchmark; they are constants here so that they can be argued about.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pipeline_profiler import metrics, predict
from pipeline_profiler.evidence import Case, Evidence, at_least, paired
from pipeline_profiler.finding import Diagnosis
from pipeline_profiler.intervals import Floats, Interval, mean_interval

DOMINANT = 0.50  # share of the worker's time from which one stage is "the" stage
STRAGGLER_TIMES = 4.0  # slowest sample against the typical one
STRAGGLER_SHARE = 0.4  # of its batch
RARE = 0.25  # share of batches up to which an outlier is rare
OUTLIER_TIMES = 2.5  # batch against the median batch
PERIODIC_SHARE = 0.12  # share of batches; more frequent ones are uneven, not interrupted
REGULAR_CV = 0.35  # spread of the gaps between stalls, of their mean
REPEATED_SHARE = 0.3  # of the loading time
CROWDED = 0.40  # share of worker time runnable without a core
BLOCKED = 0.5
TRY_PREFETCH = 8
STAGE_CODES = {
    "read": "PIPE001",
    "decode": "PIPE002",
    "transform": "PIPE003",
    "collate": "PIPE004",
    "serialise": "PIPE005",
}
REMOTE_PARTS = ("read:remote latency", "read:remote data", "requests")
STAGE_NEXT = {
    "read": "pack the samples into shards or a local copy, or read ahead with more workers: "
    "`pipeline-profiler sweep`",
    "decode": "store smaller or faster-decoding files (`audit report` lists the large ones), or "
    "decode at reduced size (PIL draft, simplejpeg)",
    "transform": "move the deterministic part offline, or onto the device in batches",
    "collate": "preallocate and stack once; pad to a multiple, not per batch",
    "serialise": "return tensors (shared memory), not Python objects or views of large arrays",
}


# ------------------------------------------------------------------- rare and isolated costs


def worker_startup(e: Evidence) -> Diagnosis | None:
    """Time from iter() to the first batch, spread over the steps of an epoch."""
    if not any(case.startup for case in e.cases):
        return _amortised_startup(e)
    predicted = e.saving(lambda case: case.play(startup=0.0))
    share = tried(e, "persistent", lambda: predicted)
    first = [ns for case in e.cases for ns in metrics.time_to_first_batch_ns(case.run)]
    mean = float(np.mean(first)) / 1e6
    return _startup(e, share, mean)


def _amortised_startup(e: Evidence) -> Diagnosis | None:
    """The timed window held no epoch start: spread the one seen over the known epoch length."""
    length = e.config.get("batches")
    if not length or e.observed:
        return None
    extra = []
    for case in e.cases:
        first = metrics.time_to_first_batch_ns(case.run)
        if first:
            typical = float(case.steps.wait.mean())
            whole = length * case.period
            extra.append(max(0.0, first[0] - typical) / (whole + first[0]))
    if not extra or np.mean(extra) < 0.05:
        return None
    share = Interval(float(np.mean(extra)), float(min(extra)), float(max(extra)), len(extra))
    return _startup(e, share, float(np.mean(extra)) * length * e.period / 1e6)


def _startup(e: Evidence, share: Interval, ms: float) -> Diagnosis:
    persistent = bool(e.config.get("persistent"))
    cure = (
        "set persistent_workers=True: `pipeline-profiler tune`"
        if e.workers and not persistent
        else "keep the iterator over epochs, fill buffers once, import less in the dataset's module"
    )
    return Diagnosis(
        "PIPE011",
        f"each epoch begins with {ms:.0f} ms before its first batch (worker start-up, first fetch)",
        share,
        {"first_batch_ms": ms, "persistent_workers": str(persistent)},
        cure,
        change={"persistent": True} if e.workers and not persistent else None,
    )


def collector_pauses(e: Evidence) -> Diagnosis | None:
    """Garbage collection inside next(), in the trainer or in the workers."""
    in_main = e.share(lambda case: _main_gc(case, "wait"))
    in_workers = e.saving(lambda case: case.play(fetch=_without_gc(case)))
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


def _main_gc(case: Case, phase: str) -> float:
    """GC nanoseconds a step of the trainer inside next() ("wait") or outside ("loop")."""
    if not case.run.gc_pauses:
        return 0.0
    pauses = np.array(case.run.gc_pauses, dtype=np.int64)
    entry, end = case.steps.entry, case.steps.entry + case.steps.wait
    at = np.searchsorted(entry, pauses[:, 0], side="right") - 1
    known = (at >= 0) & (pauses[:, 0] < entry[-1] + case.steps.period[-1])
    inside = known & (pauses[:, 0] < end[np.maximum(at, 0)])
    chosen = inside if phase == "wait" else known & ~inside
    return float(pauses[chosen, 1].sum()) / len(entry)


def _without_gc(case: Case) -> Floats:
    if not case.traced or len(case.made.gc) != len(case.fetch):
        return case.fetch
    return np.maximum(case.fetch - case.made.gc, 0.0)


def slow_sampler(e: Evidence) -> Diagnosis | None:
    """The sampler runs in the training process, also with workers."""
    share = e.share(lambda case: metrics.main_stage_ns(case.run, "sampler"))
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
    share = e.saving(lambda case: case.play(fetch=_capped_samples(case)))
    rows = e.session.plan.get("slow_samples") or metrics.slowest_samples(
        [case.run for case in e.cases], 5
    )
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
    )


def _typical_sample(case: Case) -> float:
    samples = np.maximum(case.made.samples, 1)
    return float(np.median((case.made.fetch - case.made.slow) / np.maximum(samples - 1, 1)))


def _stragglers(case: Case) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Batches whose slowest sample is an outlier and a large part of the batch."""
    made = case.made
    none = np.zeros(len(made.batch), bool)
    if not case.traced or np.median(made.samples) < 2 or len(made.batch) != len(case.fetch):
        return none
    if _periodic_by_probe(case):
        return none
    typical = max(_typical_sample(case), 1.0)
    hit = (made.slow > STRAGGLER_TIMES * typical) & (made.slow > STRAGGLER_SHARE * made.fetch)
    return hit if hit.mean() <= RARE else none


def _periodic_by_probe(case: Case) -> bool:
    """A second look at the slow samples alone found them fast: it is not the samples."""
    return case.run.totals.get("probe_ratio_percent", 1000) < 200


def _capped_samples(case: Case) -> Floats:
    hit = _stragglers(case)
    cut = np.where(hit, np.maximum(case.made.slow - _typical_sample(case), 0), 0)
    return np.maximum(case.fetch - cut, 0.0)


def periodic_stall(e: Evidence) -> Diagnosis | None:
    """Rare slow batches at regular distances that no single sample explains."""
    gaps = np.concatenate([_gaps(case) for case in e.cases])
    if len(gaps) < 3 or gaps.std() > REGULAR_CV * gaps.mean():
        return None
    share = e.saving(lambda case: case.play(fetch=_capped_batches(case)))
    every = float(gaps.mean())
    return Diagnosis(
        "PIPE009",
        f"every {every:.0f} batches one takes many times as long",
        share,
        {"every_batches": every},
        "look for what happens that often: opening a shard, a cache refill, a checkpoint or a log",
    )


def _slow_batches(case: Case) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    typical = float(np.median(case.fetch))
    # an outlier counts where it is long against the step too: light batches jitter by themselves
    enough = max(OUTLIER_TIMES * typical, typical + 0.5 * float(case.loop.mean()))
    # and against the worst: a foreign process's hiccups shall not blur a regular pattern
    enough = max(enough, typical + 0.25 * float(case.fetch.max() - typical))
    hit: np.ndarray[tuple[int], np.dtype[np.bool_]] = case.fetch > enough
    return hit


def _gaps(case: Case) -> Floats:
    """Distances in batches between the slow ones of a run; none where they are not rare."""
    at = np.flatnonzero(_slow_batches(case))
    rare = len(at) <= max(2, PERIODIC_SHARE * len(case.fetch))
    return np.diff(at).astype(float) if rare else np.zeros(0)


def _capped_batches(case: Case) -> Floats:
    return np.where(_slow_batches(case), float(np.median(case.fetch)), case.fetch)


# ------------------------------------------------------------------------------- settings


def heavy_transfer(e: Evidence) -> Diagnosis | None:
    """Pickling in the worker, the pipe, and unpickling in the trainer."""
    if not e.workers or not any(case.traced for case in e.cases):
        return None
    share = e.saving(_without_transfer)
    ms = float(np.mean([_handing_over(case) for case in e.cases])) / 1e6
    if ms < 0.2 * float(np.mean([case.fetch.mean() for case in e.cases])) / 1e6 / e.workers:
        return None
    return Diagnosis(
        "PIPE005",
        f"handing a batch over costs {ms:.1f} ms: pickling, the pipe, unpickling",
        share,
        {"ms_per_batch": ms},
        STAGE_NEXT["serialise"],
    )


def _handing_over(case: Case) -> float:
    return max(0.0, case.overhead - _sampling(case)) + float(case.lag.mean())


def _sampling(case: Case) -> float:
    """The sampler runs inside next() as well, but is a cause of its own."""
    return metrics.main_stage_ns(case.run, "sampler")


def _without_transfer(case: Case) -> float:
    late, at_hand = (min(_sampling(case), cost) for cost in (case.overhead, case.ready))
    return case.play(serialise=np.zeros(1), overhead=late, ready=at_hand)


def shallow_prefetch(e: Evidence) -> Diagnosis | None:
    """Too few batches in flight to ride out uneven batch costs."""
    if not e.workers or e.config.get("kind") != "torch" or _prefetch(e) > 1:
        return None
    share = tried(e, "prefetch", lambda: e.saving(lambda case: case.play(prefetch=TRY_PREFETCH)))
    return Diagnosis(
        "PIPE007",
        f"prefetch_factor={_prefetch(e)} leaves no batch in reserve: uneven batches stall the step",
        share,
        {"prefetch_factor": _prefetch(e), "tried": TRY_PREFETCH},
        "prefetch_factor=4: `pipeline-profiler tune`",
        change={"prefetch": TRY_PREFETCH},
    )


def _prefetch(e: Evidence) -> int:
    return int(e.config.get("prefetch") or 1)


def oversubscribed(e: Evidence) -> Diagnosis | None:
    """More runnable threads than cores, measured as run-queue delay or as the contention arm."""
    shares = [metrics.worker_shares(case.run) for case in e.cases if case.traced]
    queued = float(np.mean([s.get("queued", 0.0) for s in shares])) if shares else 0.0
    threads = float(np.mean([s.get("threads", 1.0) for s in shares])) if shares else 1.0
    contention = e.parts.get("contention")
    crowded = queued >= CROWDED and (e.workers > e.cores or threads > 1.5)
    beside = (
        contention is not None
        and contention.low > 0
        and (contention.value >= 0.5 * max(e.stall.value, 0.01))
    )
    if not (crowded or beside):
        return None
    share = contention if beside and contention is not None else e.stall
    return Diagnosis(
        "PIPE012",
        f"{e.workers} workers on {e.cores} cores: they wait {queued:.0%} of their time for a core"
        + (f", and slow the step by {contention.value:.1%}" if contention else ""),
        share,
        {"queued_share": queued, "threads_per_worker": threads, "cores": e.cores},
        f"num_workers={max(1, e.cores - 1)} and one thread in each (cv2.setNumThreads(0), "
        "OMP_NUM_THREADS=1)",
    )


def head_of_line(e: Evidence) -> Diagnosis | None:
    """A later batch is ready, in-order delivery waits for an earlier one."""
    if e.workers < 2 or not all(case.in_order for case in e.cases):
        return None
    blocked = float(np.mean([metrics.hol_share(case.run) for case in e.cases]))
    if blocked < 0.25:
        return None
    share = tried(e, "in_order", lambda: e.saving(lambda case: case.play(in_order=False)))
    return Diagnosis(
        "PIPE010",
        f"for {blocked:.0%} of the stalled time another batch was ready: in-order delivery blocks",
        share,
        {"stalled_with_another_ready": blocked},
        "in_order=False (check that order does not matter), or more prefetch: "
        "`pipeline-profiler tune`",
        change={"in_order": False},
    )


def too_few_workers_at_par(e: Evidence) -> Diagnosis | None:
    """Fewer workers than cores, and as many as cores would be enough."""
    if not e.workers or e.workers >= e.cores:
        return None
    found = _more_workers(e, e.cores)
    return found if found and found.share.value >= 0.85 * e.stall.value else None


def too_few_workers(e: Evidence) -> Diagnosis | None:
    """More workers would end the stall (blocked time does not need a core)."""
    if e.config.get("kind") != "torch":
        return None
    cpu = np.mean([predict.measured_costs(case.run).cpu_share for case in e.cases])
    most = e.cores if cpu >= predict.CPU_BOUND_SHARE else 4 * e.cores
    return _more_workers(e, max(most, 2)) if e.workers < most else None


def _more_workers(e: Evidence, most: int) -> Diagnosis | None:
    count = int((e.session.plan.get("try") or {}).get("workers") or _enough_workers(e, most))
    share = tried(e, "workers", lambda: e.saving(lambda case: _with_workers(case, count, e.cores)))
    where = "in the training process" if e.workers == 0 else f"in {e.workers} worker(s)"
    return Diagnosis(
        "PIPE006",
        f"the loader runs {where}; {count} would deliver in time ({e.cores} usable cores)",
        share,
        {"num_workers": e.workers, "tried": count, "cores": e.cores},
        f"num_workers={count}: `pipeline-profiler tune` applies and re-measures it",
        change={"workers": count},
    )


def tried(e: Evidence, key: str, predicted: Callable[[], Interval]) -> Interval:
    """The share measured by arm Z where it ran with this one change, else the predicted one."""
    change = e.session.plan.get("try") or {}
    pairs = paired(e.session, "Z", "W")
    if list(change) != [key] or len(pairs) < 2:
        return predicted()
    found = mean_interval([(w - z) / w for z, w in pairs])
    return at_least(found, e.wobble * abs(found.value)).widened(e.recording_share)


def _with_workers(case: Case, count: int, cores: int) -> float:
    costs = predict.measured_costs(case.run)
    setting = {"workers": count, "prefetch": max(2, case.prefetch), "in_order": case.in_order}
    return predict.shared(costs, setting, cores).period + case.startup


def _enough_workers(e: Evidence, most: int) -> int:
    """The smallest count whose predicted period is within 3 % of what the most would give."""
    case = e.cases[0]
    periods = {n: _with_workers(case, n, e.cores) for n in range(1, most + 1)}
    best = min(periods.values())
    return min(n for n, period in periods.items() if period <= 1.03 * best)


# ---------------------------------------------------------------------------------- stages


def dominant_stage(e: Evidence) -> Diagnosis | None:
    """One named stage that is most of the worker's time."""
    name, share_of_fetch = _top_stage(e)
    if name == "sample code" or share_of_fetch < DOMINANT:
        return None
    return _stage(e, name, share_of_fetch)


def largest_stage(e: Evidence) -> Diagnosis | None:
    """The stage that costs most, when nothing more specific explains the stall."""
    name, share_of_fetch = _top_stage(e)
    return _stage(e, name, share_of_fetch) if name else None


def stage_shares(e: Evidence) -> dict[str, float]:
    """Share of the loading time a stage, over all W runs, largest first."""
    total: dict[str, float] = {}
    for case in e.cases:
        for name, wall in case.stages.items():
            total[name] = total.get(name, 0.0) + float(wall.sum())
    whole = sum(total.values()) or 1.0
    return {k: v / whole for k, v in sorted(total.items(), key=lambda row: -row[1])}


def _top_stage(e: Evidence) -> tuple[str, float]:
    shares = stage_shares(e)
    return next(iter(shares.items()), ("", 0.0))


def _stage(e: Evidence, name: str, share_of_fetch: float) -> Diagnosis:
    share = e.saving(lambda case: case.play(fetch=_without_stage(case, name)))
    share = share.widened(share.value * e.label_error(name))
    ms = float(np.mean([case.stages[name].mean() for case in e.cases if name in case.stages])) / 1e6
    blocked = _blocked_share(e)
    how = "blocked (I/O or waiting)" if blocked > BLOCKED else "on CPU"
    place = top_place(e, name)
    if name == "read" and (remote := _remote(e, share, ms)) is not None:
        return remote
    code = STAGE_CODES.get(name, "PIPE025" if e.config.get("kind") != "tf" else "PIPE028")
    return Diagnosis(
        code,
        f"{name} takes {ms:.1f} ms a batch, {share_of_fetch:.0%} of the loading time, mostly {how}"
        + (f" ({place})" if place else ""),
        share,
        {"ms_per_batch": ms, "share_of_loading": share_of_fetch, "blocked": blocked, "at": place},
        STAGE_NEXT.get(name, "name its parts with `with stage(...)`, or look at the line shown"),
    )


def _remote(e: Evidence, share: Interval, ms: float) -> Diagnosis | None:
    """The data is not where the training is: first byte against the bytes that follow."""
    latency, data, calls = (e.share_of_spans(part) for part in REMOTE_PARTS)
    if latency + data < 0.5 * ms:
        return None
    batch_bytes = float(np.mean([np.maximum(c.made.read_chars, 0).mean() for c in e.cases]))
    pace = batch_bytes / 1e6 / max(data / 1e3, 1e-9)
    late = latency > data
    cure = (
        "ask for more at once: larger shards, more workers, or prefetch whole files"
        if late
        else "move fewer bytes: smaller encodings, or copy the data next to the training once"
    )
    return Diagnosis(
        "PIPE024",
        f"the source is remote: of {ms:.1f} ms reading a batch, {latency:.1f} ms wait for the "
        f"first byte and {data:.1f} ms for the rest ({pace:.1f} MB/s); "
        f"{'latency' if late else 'bandwidth'} is the larger part",
        share,
        {"latency_ms": latency, "data_ms": data, "megabytes_per_s": pace, "requests": calls},
        cure,
    )


def repeated_preprocessing(e: Evidence) -> Diagnosis | None:
    """Decoding and transforming gives the same bytes every epoch: once would do."""
    found = e.session.plan.get("repeatable") or {}
    shares = stage_shares(e)
    work = sum(shares.get(name, 0.0) for name in ("decode", "transform"))
    if not found.get("same") or work < REPEATED_SHARE:
        return None
    share = e.saving(lambda case: case.play(fetch=_prepared(case)))
    disk = found["bytes"] * found["samples"] / 1e9
    return Diagnosis(
        "PIPE023",
        f"decode and transform ({work:.0%} of the loading time) give the same bytes every epoch: "
        f"done once they would take {disk:.2f} GB on disk ({found['samples']} samples of "
        f"{found['bytes'] / 1e6:.2f} MB)",
        share,
        {"gigabytes": disk, "share_of_loading": work},
        "store the prepared samples once (np.save, a tar of arrays) and read those",
    )


def _prepared(case: Case) -> Floats:
    return _without_parts(case, ("decode", "transform"))


def _without_parts(case: Case, names: tuple[str, ...]) -> Floats:
    fetch = case.fetch
    for name in names:
        wall = case.stages.get(name)
        if wall is not None and len(wall) == len(fetch):
            fetch = np.maximum(fetch - wall, 0.0)
    return fetch


def _without_stage(case: Case, name: str) -> Floats:
    return _without_parts(case, (name,))


def _blocked_share(e: Evidence) -> float:
    costs = [predict.measured_costs(case.run) for case in e.cases]
    return float(np.mean([1 - c.cpu_share for c in costs]))


def top_place(e: Evidence, stage: str) -> str:
    """The line of user code seen most often in this stage, by the stack samples."""
    wanted = "" if stage == "sample code" else stage
    rows = {**e.places.get("wait", {}), **e.places.get("worker", {})}
    hits = {k.partition("|")[2]: v for k, v in rows.items() if k.partition("|")[0] == wanted}
    hits.pop("", None)
    return max(hits, key=lambda place: hits[place], default="")
