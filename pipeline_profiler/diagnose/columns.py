"""Spans in columns, aligned to steps and batches: the arrays that every figure starts from.

Spans are recorded in the order in which they ended, those of several processes mixed. Here they
become one row per step (what the trainer saw) and one row per delivered batch (what its worker
did), in int64 nanoseconds. Pure functions; a pass over the columns costs some milliseconds for
10,000 steps, so `Window` asks once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline_profiler.record.session import MAIN, Run

Ints = NDArray[np.int64]
Rows = dict[str, Ints]  # the columns of some spans, all of one length


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


def spans_of(run: Run, stage: str, worker: int | None = MAIN) -> Rows:
    """Spans of one stage in one process; `worker` None takes all processes."""
    spans = run.spans
    columns = {k: np.frombuffer(v, np.int64) for k, v in spans.columns.items()}
    if stage not in spans.stages:
        return {k: np.zeros(0, np.int64) for k in columns}
    mask: NDArray[np.bool_] = columns["stage"] == spans.stages.index(stage)
    if worker is not None:
        mask &= columns["worker"] == worker
    return {k: v[mask] for k, v in columns.items()}


def sum_by_batch(rows: Rows, name: str, batches: Ints, fill: int = 0) -> Ints:
    """Column `name` of the rows summed per batch, aligned to `batches`."""
    out = np.full(len(batches), fill, np.int64)  # `fill` keeps "unknown" apart from 0
    if not len(rows["batch"]) or not len(batches):
        return out
    # batches arrive out of order with in_order=False: sort once, then look each span's batch up
    order = np.argsort(batches, kind="stable")
    where = np.searchsorted(batches[order], rows["batch"])
    where = np.clip(where, 0, len(batches) - 1)
    hit = batches[order][where] == rows["batch"]
    # add.at, as a batch has many spans of one stage and plain indexing would keep the last alone
    sums = np.zeros(len(batches), np.int64)
    np.add.at(sums, order[where[hit]], rows[name][hit])
    has_spans = np.zeros(len(batches), bool)
    has_spans[order[where[hit]]] = True
    return np.where(has_spans, sums, out)


def step_columns(run: Run, from_batch: int) -> Steps:
    """One row per step, from batch number `from_batch` on."""
    wait, loop, marked = (spans_of(run, stage) for stage in ("wait", "loop", "step"))
    # a loop that was cut off has a last wait without a step: it has no period
    n = min(len(wait["batch"]), len(loop["batch"]))
    wait, loop = ({k: v[:n] for k, v in rows.items()} for rows in (wait, loop))
    epochs = spans_of(run, "iter")
    first = np.isin(wait["batch"], epochs["batch"])
    end = loop["start"] + loop["wall"]
    # entry to entry, so that iter() between two epochs counts; the last step ends with its loop
    following = np.append(wait["start"][1:], end[-1:])
    step = sum_by_batch(marked, "wall", wait["batch"], -1)
    began = sum_by_batch(epochs, "start", wait["batch"], 0)
    # an epoch cut off before its first batch leaves a second iter() row for the same batch number
    startup = np.where(first, wait["start"] + wait["wall"] - began, 0)
    keep = wait["batch"] >= from_batch
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


def batch_columns(run: Run, from_batch: int) -> Batches:
    """One row per delivered batch; empty where nothing travelled with the batches."""
    rows = {k: np.frombuffer(v, np.int64) for k, v in run.batches.items()}
    keep = rows["batch"] >= from_batch
    rows = {k: v[keep] for k, v in rows.items()}
    ids = rows["batch"]
    fetch, serialise, receive = (
        spans_of(run, stage, None) for stage in ("fetch", "serialise", "receive")
    )
    stages, stage_cpu = stage_columns(run, ids)
    return Batches(
        batch=ids,
        worker=rows["worker"],
        start=sum_by_batch(fetch, "start", ids),
        fetch=sum_by_batch(fetch, "wall", ids),
        cpu=sum_by_batch(fetch, "cpu", ids),
        queued=sum_by_batch(fetch, "queued", ids, -1),
        serialise=sum_by_batch(serialise, "wall", ids),
        sent=rows["sent"],
        received=rows["received"],
        receive=sum_by_batch(receive, "wall", ids),
        samples=rows["samples"],
        slow=rows["slow_ns"],
        stages=stages,
        stage_cpu=stage_cpu,
        gc=rows["gc_ns"],
        process_cpu=rows["process_cpu"],
        read_bytes=rows["read_bytes"],
        read_chars=rows["read_chars"],
    )


def stage_columns(run: Run, ids: Ints) -> tuple[dict[str, Ints], dict[str, Ints]]:
    """Self wall and CPU time of each loader stage, details summed, aligned to the batches `ids`."""
    # spans of the loop itself; what is left is loading
    own = {"iter", "wait", "loop", "step", "fetch", "serialise", "receive", "sampler"}
    wall: dict[str, Ints] = {}
    cpu: dict[str, Ints] = {}
    for stage in run.spans.stages:
        if stage in own or stage.startswith("step:"):
            continue
        rows = spans_of(run, stage, None)
        name = stage.partition(":")[0]  # "transform:Crop" is part of "transform"
        for target, column in ((wall, "wall"), (cpu, "cpu")):
            values = sum_by_batch(rows, column, ids)
            target[name] = target[name] + values if name in target else values
    return wall, cpu
