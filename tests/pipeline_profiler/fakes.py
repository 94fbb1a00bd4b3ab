"""A clock that only moves when told, loaders that move it, and sessions made by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pipeline_profiler.profiling.record.arm import Arm
from pipeline_profiler.profiling.record.plan import Plan
from pipeline_profiler.profiling.record.session import BATCH_COLUMNS, MAIN, Run

MS = 1_000_000


def broken_rule(evidence: object) -> None:
    """A diagnosis rule that raises."""
    raise ZeroDivisionError("no batch at all")


class FakeClock:
    """Nanoseconds; `advance` is the only thing that passes time."""

    def __init__(self) -> None:
        self.now = 1_000 * MS

    def __call__(self) -> int:
        return self.now

    def advance(self, ms: float) -> None:
        self.now += round(ms * MS)


class LateReadings(FakeClock):
    """A clock with one long reading: as if another program took the core just then."""

    def __init__(self, reading: int, ms: float = 100.0) -> None:
        super().__init__()
        self.left, self.ms = reading, ms

    def __call__(self) -> int:
        self.left -= 1
        if not self.left:
            self.advance(self.ms)
        return self.now


class SlowList:
    """An iterable whose i-th batch takes waits[i] milliseconds."""

    def __init__(self, clock: FakeClock, waits: Sequence[float], open_ms: float = 0.0) -> None:
        self.clock, self.waits, self.open_ms = clock, waits, open_ms

    def __iter__(self) -> Iterator[int]:
        self.clock.advance(self.open_ms)
        return self._batches()

    def _batches(self) -> Iterator[int]:
        for i, wait in enumerate(self.waits):
            self.clock.advance(wait)
            yield i


def made_run(rows: Sequence[dict[str, Any]], arm: Arm = Arm.WARM, **config: Any) -> Run:
    """A run from rows with times in ms: entry, got, end, and for worker batches worker, start,
    fetch, cpu, queued, sent; every row is one step, in order. `first` marks an epoch start.
    """
    run = Run(arm=arm, config={"kind": "torch", "workers": 0, "prefetch": 0} | config)

    def ns(value: float) -> int:
        return round(value * MS)

    for batch, row in enumerate(rows):
        entry, got, end = ns(row["entry"]), ns(row["got"]), ns(row["end"])
        if row.get("first"):
            run.spans.add("iter", batch, MAIN, ns(row["iter"]), entry - ns(row["iter"]))
        run.spans.add(
            "wait", batch, MAIN, entry, got - entry, ns(row.get("wait_cpu", row.get("receive", 0)))
        )
        run.spans.add("loop", batch, MAIN, got, end - got, ns(row.get("loop_cpu", 0)))
        if "fetch" not in row:
            continue
        worker, start, fetch = row.get("worker", MAIN), ns(row["start"]), ns(row["fetch"])
        cpu, queued = ns(row.get("cpu", 0)), ns(row.get("queued", 0))
        run.spans.add("fetch", batch, worker, start, fetch, cpu, queued, 8)
        stages = row.get("stages", {"getitem": row["fetch"]})
        for name, wall in stages.items():
            run.spans.add(name, batch, worker, start, ns(wall), 0)
        sent = ns(row.get("sent", row["start"] + row["fetch"]))
        run.spans.add(
            "serialise", batch, worker, sent - ns(row.get("pickle", 0)), ns(row.get("pickle", 0))
        )
        received = ns(row.get("received", row["got"]))
        unpickle = ns(row.get("receive", 0))
        run.spans.add("receive", batch, MAIN, received - unpickle, unpickle)
        values = {
            "batch": batch,
            "worker": worker,
            "samples": row.get("samples", 8),
            "slow_ns": ns(row.get("slow", 0)),
            "read_bytes": 0,
            "read_chars": 0,
            "gc_ns": ns(row.get("gc", 0)),
            "process_cpu": cpu,
            "sent": sent,
            "received": received,
        }
        for name in BATCH_COLUMNS:
            run.batches[name].append(values[name])
        run.slow_keys.append(batch)
        run.slow.append({"key": batch, "wall_ns": values["slow_ns"]})
    return run


def schedule(
    n: int,
    workers: int,
    prefetch: int,
    step: float | Sequence[float],
    cost: Any,
    stages: dict[str, float] | None = None,
    overhead: float = 0.0,
    **extra: Any,
) -> list[dict[str, Any]]:
    """Rows of an ideal in-order DataLoader: cost(j) ms a batch; stages are shares of it.

    `step` in ms, or a round of steps that comes again and again.
    """
    rows: list[dict[str, Any]] = []
    steps = step if isinstance(step, Sequence) else [step]
    free, now = [0.0] * max(workers, 1), 0.0
    for j in range(n):
        took, entry = float(cost(j)), now
        if workers == 0:
            start, got, sent = entry, entry + took + overhead, entry + took
        else:
            dispatched = rows[j - workers * prefetch]["got"] if j >= workers * prefetch else 0.0
            start = max(free[j % workers], dispatched)
            sent = free[j % workers] = start + took
            got = max(entry, sent) + overhead
        shares = stages or {"getitem": 1.0}
        rows.append(
            {
                "entry": entry,
                "got": got,
                "end": got + steps[j % len(steps)],
                "start": start,
                "fetch": took,
                "sent": sent,
                "received": got,
                "worker": j % workers if workers else MAIN,
                "stages": {name: share * took for name, share in shares.items()},
                **{k: v(j) if callable(v) else v for k, v in extra.items()},
            }
        )
        now = rows[-1]["end"]
    rows[0] |= {"first": True, "iter": 0}
    return rows


def made_session(
    rows: list[dict[str, Any]],
    step: float | Sequence[float],
    repeats: int = 5,
    jitter: float = 0.0,
    **config: Any,
) -> Any:
    """D and W runs in blocks; `jitter` ms is added to the W steps of every other block."""
    from pipeline_profiler.profiling.record.session import Session

    session = Session(environment={"cores": 2}, plan=Plan(arms=(Arm.RESIDENT, Arm.WARM)))
    ideal = schedule(len(rows), 0, 0, step, lambda j: 0.0)
    for row in ideal:
        del row["fetch"]
    ideal[0]["first"] = False
    for block in range(repeats):
        extra = jitter * (block - repeats // 2)
        for arm, source, late in ((Arm.RESIDENT, ideal, 0.0), (Arm.WARM, rows, extra)):
            moved = [
                row | {"end": row["end"] + i * late, "entry": row["entry"] + i * late,
                       "got": row["got"] + i * late}
                for i, row in enumerate(source)
            ]  # fmt: skip
            run = made_run(moved, arm, **(config if arm == Arm.WARM else {}))
            run.block, run.warmup = block, 8 if arm == Arm.WARM else 0
            session.runs.append(run)
    return session
