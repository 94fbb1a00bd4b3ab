"""Session -> figures: step period, wait, stages, readiness, stall events. Pure functions.

Definitions. Step period: from next() entry to next() entry, a mean (stalls are heavy-tailed).
Ready: a batch whose worker has finished sending it and that has not been delivered; it is
deliverable when every batch before it was delivered or is ready too. All of it follows from the
stamps that travel with the batches, so queue depth is exact, not sampled. Stall event: maximal
interval inside next() without a deliverable batch, longer than tau = max(1 ms, 3 x p99 of the
null loader's next(), 2 % of the period).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_profiler.diagnose.intervals import Floats, Interval, block_interval, ratio_of_sums
from pipeline_profiler.record.plan import SlowSample
from pipeline_profiler.record.session import MAIN, Run

Ints = NDArray[np.int64]
MIN_STALL_NS = 1_000_000
NULL_FACTOR = 3.0
PERIOD_FACTOR = 0.02
PARTS = ("getitem", "read", "decode", "transform", "collate")


@dataclass(frozen=True, slots=True)
class Steps:
    """The timed window of one run: one entry a step, nanoseconds."""

    batch: Ints
    entry: Ints  # next() called
    wait: Ints  # inside next()
    wait_cpu: Ints
    loop: Ints  # next() return to next() entry
    period: Ints  # entry to entry, the epoch's iter() call included
    step: Ints  # the marked step; equals loop where nothing was marked
    first: NDArray[np.bool_]  # first batch of an epoch
    startup: Ints  # iter() call to first batch, on the first batch of an epoch, else 0


@dataclass(frozen=True, slots=True)
class Batches:
    """What workers did for the batches of the timed window, nanoseconds, in delivery order."""

    batch: Ints
    worker: Ints
    start: Ints  # fetch begins
    fetch: Ints
    cpu: Ints
    queued: Ints  # runnable without a core; -1 unknown
    serialise: Ints
    sent: Ints
    received: Ints
    receive: Ints
    samples: Ints
    slow: Ints  # slowest sample
    stages: dict[str, Ints]  # self wall time a batch
    stage_cpu: dict[str, Ints]
    gc: Ints
    process_cpu: Ints
    read_bytes: Ints
    read_chars: Ints


@dataclass(frozen=True, slots=True)
class StallEvent:
    """One stretch without a deliverable batch while the consumer asked for one."""

    batch: int
    start_ns: int
    wall_ns: int
    cause: str  # start-up | HOL | transport | oversubscribed | read | cpu | serial | unknown
    worker: int


def _select(run: Run, stage: str, worker: int | None = MAIN) -> dict[str, Ints]:
    spans = run.spans
    columns = {k: np.frombuffer(v, np.int64) for k, v in spans.columns.items()}
    if stage not in spans.stages:
        return {k: np.zeros(0, np.int64) for k in columns}
    mask = columns["stage"] == spans.stages.index(stage)
    if worker is not None:
        mask &= columns["worker"] == worker
    return {k: v[mask] for k, v in columns.items()}


def _by_batch(rows: dict[str, Ints], name: str, batches: Ints, fill: int = 0) -> Ints:
    """Column `name` of the rows summed per batch, aligned to `batches`."""
    out = np.full(len(batches), fill, np.int64)
    if not len(rows["batch"]) or not len(batches):
        return out
    order = np.argsort(batches, kind="stable")
    where = np.searchsorted(batches[order], rows["batch"])
    where = np.clip(where, 0, len(batches) - 1)
    hit = batches[order][where] == rows["batch"]
    sums = np.zeros(len(batches), np.int64)
    np.add.at(sums, order[where[hit]], rows[name][hit])
    seen = np.zeros(len(batches), bool)
    seen[order[where[hit]]] = True
    return np.where(seen, sums, out)


def steps(run: Run, from_batch: int | None = None) -> Steps:
    """The steps of the timed window (those after `run.warmup`, or after `from_batch`)."""
    wait, loop, marked = (_select(run, stage) for stage in ("wait", "loop", "step"))
    n = min(len(wait["batch"]), len(loop["batch"]))
    wait, loop = ({k: v[:n] for k, v in rows.items()} for rows in (wait, loop))
    epochs = _select(run, "iter")
    first = np.isin(wait["batch"], epochs["batch"])
    end = loop["start"] + loop["wall"]
    following = np.append(wait["start"][1:], end[-1:])
    step = _by_batch(marked, "wall", wait["batch"], -1)
    began = _by_batch(epochs, "start", wait["batch"], 0)
    # an epoch cut off before its first batch leaves a second iter() row for the same batch number
    startup = np.where(first, wait["start"] + wait["wall"] - began, 0)
    keep = wait["batch"] >= (run.warmup if from_batch is None else from_batch)
    return Steps(
        batch=wait["batch"][keep],
        entry=wait["start"][keep],
        wait=wait["wall"][keep],
        wait_cpu=wait["cpu"][keep],
        loop=loop["wall"][keep],
        period=(following - wait["start"])[keep],
        step=np.where(step < 0, loop["wall"], step)[keep],
        first=first[keep],
        startup=startup[keep],
    )


def batches(run: Run, from_batch: int | None = None) -> Batches:
    """Worker-side rows of the timed window; empty where nothing travelled with the batches."""
    rows = {k: np.frombuffer(v, np.int64) for k, v in run.batches.items()}
    keep = rows["batch"] >= (run.warmup if from_batch is None else from_batch)
    rows = {k: v[keep] for k, v in rows.items()}
    ids = rows["batch"]
    fetch, serialise, receive = (
        _select(run, stage, None) for stage in ("fetch", "serialise", "receive")
    )
    stages, stage_cpu = _stage_columns(run, ids)
    return Batches(
        batch=ids,
        worker=rows["worker"],
        start=_by_batch(fetch, "start", ids),
        fetch=_by_batch(fetch, "wall", ids),
        cpu=_by_batch(fetch, "cpu", ids),
        queued=_by_batch(fetch, "queued", ids, -1),
        serialise=_by_batch(serialise, "wall", ids),
        sent=rows["sent"],
        received=rows["received"],
        receive=_by_batch(receive, "wall", ids),
        samples=rows["samples"],
        slow=rows["slow_ns"],
        stages=stages,
        stage_cpu=stage_cpu,
        gc=rows["gc_ns"],
        process_cpu=rows["process_cpu"],
        read_bytes=rows["read_bytes"],
        read_chars=rows["read_chars"],
    )


def _stage_columns(run: Run, ids: Ints) -> tuple[dict[str, Ints], dict[str, Ints]]:
    own = {"iter", "wait", "loop", "step", "fetch", "serialise", "receive", "sampler"}
    wall: dict[str, Ints] = {}
    cpu: dict[str, Ints] = {}
    for stage in run.spans.stages:
        if stage in own or stage.startswith("step:"):
            continue
        rows = _select(run, stage, None)
        name = stage.partition(":")[0]
        for target, column in ((wall, "wall"), (cpu, "cpu")):
            values = _by_batch(rows, column, ids)
            target[name] = target[name] + values if name in target else values
    return wall, cpu


def main_stage_ns(run: Run, stage: str) -> float:
    """Mean nanoseconds a step of a stage on the main thread, over the timed window."""
    rows = _select(run, stage)
    window = steps(run).batch
    return float(rows["wall"][rows["batch"] >= run.warmup].sum() / max(1, len(window)))


def stage_cpu_ns(run: Run, stage: str) -> float:
    """Mean CPU nanoseconds a batch of a stage in the workers, over the timed window."""
    rows = _select(run, stage, None)
    cpu = rows["cpu"][rows["batch"] >= run.warmup]
    return float(np.maximum(cpu, 0).mean()) if len(cpu) else 0.0


# ---------------------------------------------------------------------------------- one run


def period_ns(run: Run) -> float:
    """Mean step period of the timed window."""
    window = steps(run)
    return float(window.period.mean()) if len(window.period) else float("nan")


def starvation(run: Run) -> Interval:
    """Observed share of the time spent inside next(), moving-block interval inside one run.

    The steps around an epoch's start are not drawn by chance: every epoch has one, so they count
    as they are and the bootstrap draws from the others.
    """
    window = steps(run)
    if not len(window.period):
        return Interval(float("nan"), float("-inf"), float("inf"))
    rows = np.stack([_exposed(window), window.period], axis=1).astype(float)
    edge = window.first | np.append(window.first[1:], False)  # iter() lies in the period before
    fixed = rows[edge].sum(axis=0)
    if fixed[1] == 0 or (~edge).sum() < 6:
        return block_interval(rows, _block(run), ratio_of_sums)

    def with_starts(drawn: Floats) -> Floats:
        sums: Floats = drawn.sum(axis=1) + fixed
        return sums[:, 0] / sums[:, 1]

    return block_interval(rows[~edge], _block(run), with_starts)


def _exposed(window: Steps) -> Ints:
    # the iter() call sits between two next() calls; its time is waiting for data too
    between = window.period - window.wait - window.loop
    exposed: Ints = window.wait + np.maximum(between, 0)
    return exposed


def _block(run: Run) -> int:
    buffered = int(run.config.get("workers") or 0) * int(run.config.get("prefetch") or 0)
    return max(5, buffered)


def input_wait_ns(run: Run) -> float:
    """Mean nanoseconds a step spent waiting for data, iter() calls included."""
    window = steps(run)
    return float(_exposed(window).mean()) if len(window.period) else float("nan")


def stall_threshold_ns(period: float, null_p99: float) -> float:
    """tau of the definition."""
    return max(float(MIN_STALL_NS), NULL_FACTOR * null_p99, PERIOD_FACTOR * period)


def stall_events(run: Run, null_p99_ns: float = 0.0) -> list[StallEvent]:
    """Stall events of the timed window with their causes, in time order."""
    window, made = steps(run), batches(run)
    if not len(window.period):
        return []
    tau = stall_threshold_ns(float(window.period.mean()), null_p99_ns)
    row = {int(b): i for i, b in enumerate(made.batch)}
    events = []
    for i in np.flatnonzero(window.wait > tau):
        entry, end = int(window.entry[i]), int(window.entry[i] + window.wait[i])
        j = row.get(int(window.batch[i]), -1)
        if j >= 0 and made.worker[j] != MAIN:
            end = min(end, int(made.sent[j]))
        if end - entry > tau:
            cause = event_cause(window, made, int(i), j, (entry, end))
            worker = int(made.worker[j]) if j >= 0 else MAIN
            events.append(StallEvent(int(window.batch[i]), entry, end - entry, cause, worker))
        elif j >= 0 and window.wait[i] > tau:
            wall = int(window.wait[i])
            worker = int(made.worker[j])
            events.append(StallEvent(int(window.batch[i]), entry, wall, "transport", worker))
    return events


def event_cause(window: Steps, made: Batches, i: int, j: int, span: tuple[int, int]) -> str:
    """Why no batch was deliverable in `span`: step row `i`, worker row `j` of the late batch."""
    if window.first[i]:
        return "start-up"
    if j < 0:
        blocked = window.wait_cpu[i] >= 0 and window.wait_cpu[i] < 0.5 * window.wait[i]
        return "read" if blocked else "cpu"
    if made.worker[j] == MAIN:
        return _mode(made, j)
    if others_ready(window, made, i, span):
        return "HOL"
    if made.start[j] + made.fetch[j] < span[0]:
        return "transport"
    return _mode(made, j)


def others_ready(window: Steps, made: Batches, i: int, span: tuple[int, int]) -> bool:
    """Whether a later batch was sent, and not delivered, before half of the stall had passed."""
    middle = (span[0] + span[1]) // 2
    return bool(np.any((made.batch > window.batch[i]) & (made.sent < middle)))


def _mode(made: Batches, j: int) -> str:
    wall, cpu, queued = int(made.fetch[j]), int(made.cpu[j]), max(0, int(made.queued[j]))
    blocked = wall - cpu - queued
    return max((blocked, "read"), (queued, "oversubscribed"), (cpu, "cpu"))[1]


def hol_share(run: Run) -> float:
    """Share of the stalled time during which another batch was ready: in-order delivery's part."""
    window, made = steps(run), batches(run)
    row = {int(b): i for i, b in enumerate(made.batch)}
    stalled = blocked = 0
    for i in np.flatnonzero(window.wait > MIN_STALL_NS):
        j = row.get(int(window.batch[i]), -1)
        if j < 0 or made.worker[j] == MAIN:
            continue
        entry, end = (
            int(window.entry[i]),
            min(int(window.entry[i] + window.wait[i]), int(made.sent[j])),
        )
        later = made.sent[made.batch > window.batch[i]]
        stalled += max(0, end - entry)
        if len(later):
            blocked += max(0, end - max(entry, int(later.min())))
    return blocked / stalled if stalled else 0.0


def readiness(run: Run) -> float | None:
    """1 - time without a deliverable batch / time; None where batches carry no stamps."""
    window, made = steps(run), batches(run)
    if not len(made.batch) or not len(window.period) or bool(np.all(made.worker == MAIN)):
        return None
    ids = made.batch
    delivered = np.interp(ids, window.batch, window.entry + window.wait)
    ready = np.maximum.accumulate(made.sent)  # deliverable when all before it are sent
    begin, end = int(window.entry[0]), int(window.entry[-1] + window.wait[-1])
    times = np.concatenate([ready, delivered])
    order = np.argsort(times, kind="stable")
    change = np.concatenate([np.ones(len(ids)), -np.ones(len(ids))])[order]
    level = np.cumsum(change)
    at = np.clip(np.concatenate([[begin], times[order], [end]]), begin, end)
    empty = np.diff(at)[np.append(0, level) <= 0].sum()
    return float(1.0 - empty / max(1, end - begin))


def clock_error_ns(run: Run) -> tuple[int, int]:
    """Bounds of the workers' clock offset that cause and effect allow (low, high).

    A batch cannot begin before iter() nor arrive before it was sent. Linux gives all processes
    one monotonic clock, so the bounds should hold zero; the width is how well that is known.
    """
    made, epochs = batches(run, 0), _select(run, "iter")
    remote = made.worker != MAIN
    if not remote.any() or not len(epochs["start"]):
        return 0, 0
    high = int((made.received - made.receive - made.sent)[remote].min())
    low = int(epochs["start"][0] - made.start[remote].min())
    return low, high


def time_to_first_batch_ns(run: Run) -> list[int]:
    """iter() call to first batch, one entry an epoch, the first epoch of the run included."""
    everything = steps(run, 0)
    return [int(v) for v in everything.startup[everything.first]]


def first_fetch_ns(run: Run) -> int | None:
    """iter() to the begin of the run's first fetch: process start, imports, dataset pickling."""
    made, epochs = batches(run, 0), _select(run, "iter")
    if not len(made.batch) or not len(epochs["start"]) or bool(np.all(made.worker == MAIN)):
        return None
    return int(made.start.min() - epochs["start"][0])


def loading_shares(run: Run) -> dict[str, float]:
    """Shares of the loading time on CPU, runnable without a core, blocked; {} where unknown.

    Of the workers' fetches, or of next() where nothing travelled with the batches. "threads" is
    the process's CPU time over that of its loading thread: above 1, hidden thread pools.
    """
    made = batches(run)
    if len(made.batch):
        wall, cpu, queued, hidden = made.fetch, made.cpu, made.queued, 0
        threads = float(np.maximum(made.process_cpu, 0).sum()) / max(float(cpu.sum()), 1.0)
    else:
        rows = _select(run, "wait")
        wall, cpu, queued = (rows[name] for name in ("wall", "cpu", "queued"))
        hidden, threads = run.totals.get("hidden_cpu_ns", 0), 1.0
    total = float(wall.sum())
    if total <= 0 or not (cpu >= 0).all():
        return {}
    on_cpu = min(1.0, (float(cpu.sum()) + hidden) / total)
    waiting = float(np.maximum(queued, 0).sum()) / total
    return {
        "cpu": on_cpu,
        "queued": waiting,
        "blocked": max(0.0, 1 - on_cpu - waiting),
        "threads": threads,
    }


def needs_core(run: Run, otherwise: float) -> float:
    """Share of the loading time that needs a core, the wait for one left out; `otherwise` unknown.

    A foreign load makes CPU-bound loading wait: that does not make it I/O, and more workers would
    only wait too.
    """
    shares = loading_shares(run)
    working = shares.get("cpu", 0.0) + shares.get("blocked", 0.0)
    return shares["cpu"] / working if working > 0 else otherwise


def stage_table(run: Run) -> list[dict[str, Any]]:
    """One row a loader stage: wall and CPU ms a batch, share of the fetch; largest first."""
    made = batches(run)
    total = float(made.fetch.sum() + made.serialise.sum())
    rows = []
    walls = dict(made.stages)
    if made.serialise.any():
        walls["serialise"] = made.serialise
    for name, wall in walls.items():
        cpu = made.stage_cpu.get(name)
        rows.append(
            {
                "stage": name,
                "ms": float(wall.mean()) / 1e6,
                "cpu_ms": float(cpu.mean()) / 1e6 if cpu is not None else None,
                "share": float(wall.sum()) / total if total else 0.0,
            }
        )
    return sorted(rows, key=lambda r: -r["share"])


def steady(run: Run) -> bool:
    """Two halves with overlapping intervals, and |Theil-Sen slope| x window < 2 % of the mean."""
    period = steps(run).period.astype(float)
    if len(period) < 12:
        return False
    half, block = len(period) // 2, _block(run)
    a, b = block_interval(period[:half], block), block_interval(period[half:], block)
    means = np.array([chunk.mean() for chunk in np.array_split(period, min(10, len(period) // 2))])
    i, j = np.triu_indices(len(means), 1)
    drift = abs(float(np.median((means[j] - means[i]) / (j - i)))) * len(means)
    return a.low <= b.high and b.low <= a.high and drift < 0.02 * period.mean() + a.half_width


def stalled_by_sample(runs: Sequence[Run]) -> dict[int | str, float]:
    """Share of the stalled time whose late batch was held up by one sample, by that sample.

    A sample counts where it took at least 40 % of its batch's loading time.
    """
    total, by_key = 0, dict[int | str, int]()
    for run in runs:
        made, keys = batches(run, 0), run.slow_keys
        row = {int(b): i for i, b in enumerate(made.batch)}
        for event in stall_events(run):
            total += event.wall_ns
            j = row.get(event.batch, -1)
            if j >= 0 and made.samples[j] > 1 and made.slow[j] > 0.4 * made.fetch[j]:
                by_key[keys[j]] = by_key.get(keys[j], 0) + event.wall_ns
    return {key: wall / total for key, wall in by_key.items()} if total else {}


def slowest_samples(runs: Sequence[Run], top: int = 20) -> list[SlowSample]:
    """The slowest samples over all runs: key, times seen, mean and worst milliseconds."""
    seen: dict[int | str, list[int]] = {}
    for run in runs:
        for slow in run.slow:
            seen.setdefault(slow["key"], []).append(slow["wall_ns"])
    rows: list[SlowSample] = [
        {"key": key, "seen": len(v), "ms": sum(v) / len(v) / 1e6, "worst_ms": max(v) / 1e6}
        for key, v in seen.items()
    ]
    stalled = stalled_by_sample(runs)
    for row in rows:
        row["stall_share"] = stalled.get(row["key"], 0.0)
    return sorted(rows, key=lambda r: -float(r["worst_ms"]))[:top]
