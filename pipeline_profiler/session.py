"""The recorded profile as plain data: spans in columns, runs of one arm, a session of runs.

Measure once, judge many times: a Session knows nothing of verdicts or rendering, and every view
is a pure function of it. Spans live in integer columns (nanoseconds; times as differences to the
row before), which is what keeps 10,000 steps x 4 workers x 6 stages below 20 MB and 2 s to load.
JSON, because any tool reads it; gzip above 1 MB. Standard library only, so that a recorder works
on a machine that has nothing but the training framework. Format: docs/profiler-session.md.
"""

from __future__ import annotations

import gc
import gzip
import json
import math
import os
import threading
import time
from array import array
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar, Protocol

from pipeline_profiler.stages import (
    BatchTrace,
    Clock,
    Counters,
    StageTimer,
    activate,
    difference,
)

SCHEMA = "profile/1"
GZIP_ABOVE_BYTES = 1_000_000
SLOW_SAMPLES_KEPT = 256
MAIN = -1  # worker number of the training process itself


class ProfileError(Exception):
    """A mistake the caller can mend; the text is one sentence that ends with the cure."""


@dataclass(frozen=True, slots=True)
class Span:
    """A named stretch of time. `wall_ns` of a loader stage is its self time summed over a batch.

    `cpu_ns` is thread-CPU time and `queued_ns` time runnable without a core; -1 means unknown,
    which is not zero.
    """

    stage: str
    batch: int
    worker: int
    start_ns: int
    wall_ns: int
    cpu_ns: int = -1
    queued_ns: int = -1
    count: int = 1

    @property
    def end_ns(self) -> int:
        """Where the span ends on the recorder's clock."""
        return self.start_ns + self.wall_ns


_SPAN_COLUMNS = ("stage", "batch", "worker", "start", "wall", "cpu", "queued", "count")
_DELTA = frozenset({"batch", "start", "sent", "received"})  # columns stored as differences
BATCH_COLUMNS = (
    *("batch", "worker", "tag", "samples", "slow_ns", "slow_cpu", "read_bytes", "read_chars"),
    *("gc_ns", "process_cpu", "sent", "received"),
)


def _deltas(values: Iterable[int]) -> list[int]:
    column = list(values)
    return [now - before for now, before in zip(column, [0, *column], strict=False)]


def _pack(columns: Mapping[str, Iterable[int]]) -> dict[str, list[int]]:
    return {k: _deltas(v) if k in _DELTA else list(v) for k, v in columns.items()}


def _unpack(columns: Mapping[str, list[int]], names: Iterable[str]) -> dict[str, array[int]]:
    return {
        k: array("q", accumulate(columns[k]) if k in _DELTA else columns[k])
        for k in names
        if k in columns
    }


def plain(value: Any) -> Any:
    """JSON types only: numpy scalars become numbers, what is not finite becomes None."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(v) for v in value]
    if hasattr(value, "item") and not isinstance(value, (str, bytes)):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


class SpanTable:
    """Spans in columns; iterating gives Span rows."""

    def __init__(self, spans: Iterable[Span] = ()) -> None:
        """Start with the given spans."""
        self.stages: list[str] = []
        self._codes: dict[str, int] = {}
        self.columns: dict[str, array[int]] = {name: array("q") for name in _SPAN_COLUMNS}
        self._appenders = tuple(column.append for column in self.columns.values())
        for s in spans:
            self.add(
                s.stage, s.batch, s.worker, s.start_ns, s.wall_ns, s.cpu_ns, s.queued_ns, s.count
            )

    def add(
        self,
        stage: str,
        batch: int,
        worker: int,
        start: int,
        wall: int,
        cpu: int = -1,
        queued: int = -1,
        count: int = 1,
    ) -> None:
        """Append one span; integers only, nanoseconds."""
        code = self._codes.get(stage)
        if code is None:
            code = self._codes[stage] = len(self.stages)
            self.stages.append(stage)
        row = (code, batch, worker, start, wall, cpu, queued, count)
        for append, value in zip(self._appenders, row, strict=True):
            append(value)

    def __len__(self) -> int:
        """Number of spans."""
        return len(self.columns["start"])

    def __iter__(self) -> Iterator[Span]:
        """Spans as rows, in order of recording."""
        rows = zip(*self.columns.values(), strict=True)
        return (Span(self.stages[code], *rest) for code, *rest in rows)

    def to_json(self) -> dict[str, Any]:
        """Columns as plain lists, times as differences."""
        return {"stages": self.stages, **_pack(self.columns)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SpanTable:
        """Inverse of `to_json`."""
        table = cls()
        table.stages = list(data["stages"])
        table._codes = {name: code for code, name in enumerate(table.stages)}
        table.columns = _unpack(data, _SPAN_COLUMNS)
        table._appenders = tuple(column.append for column in table.columns.values())
        return table


@dataclass
class Run:
    """One pass of one arm: its spans, one row a batch, the slowest samples, and its setting.

    `config` holds the loader's setting (kind, workers, prefetch, batch_size, ...); `totals` sums
    over the timed window: steps, elapsed_ns; over the whole run: hidden_cpu_ns, CPU time of other
    threads of the process during next(); `depths` is (batch, early, outstanding) at
    each next() entry where the loader tells.
    """

    arm: str
    block: int = 0
    config: dict[str, Any] = field(default_factory=dict)
    warmup: int = 0  # steps at the head that no figure uses
    spans: SpanTable = field(default_factory=SpanTable)
    batches: dict[str, array[int]] = field(
        default_factory=lambda: {name: array("q") for name in BATCH_COLUMNS}
    )
    slow_keys: list[int | str] = field(default_factory=list)  # slowest sample of each batch
    slow: list[dict[str, Any]] = field(default_factory=list)
    depths: list[list[int]] = field(default_factory=list)
    gc_pauses: list[list[int]] = field(default_factory=list)  # [start_ns, wall_ns], main process
    totals: dict[str, int] = field(default_factory=dict)
    stacks: dict[str, int] = field(default_factory=dict)  # "phase|stage|place" -> microseconds
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types."""
        data = {k: v for k, v in self.__dict__.items() if k not in ("spans", "batches")}
        return data | {"spans": self.spans.to_json(), "batches": _pack(self.batches)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Run:
        """Inverse of `to_json`; unknown keys of the same schema are ignored."""
        known = {k: v for k, v in data.items() if k in cls.__dataclass_fields__}
        known["spans"] = SpanTable.from_json(data["spans"])
        known["batches"] = _unpack(data["batches"], BATCH_COLUMNS)
        return cls(**known)

    def __len__(self) -> int:
        """Number of batches with a trace."""
        return len(self.batches["batch"])


@dataclass
class Session:
    """A saved profile: runs, the machine, the plan with its reasons, and what was concluded."""

    runs: list[Run] = field(default_factory=list)
    environment: dict[str, Any] = field(default_factory=dict)
    plan: dict[str, Any] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)  # verdict, stall, causes, arms
    notes: list[str] = field(default_factory=list)
    created: str = ""
    partial: bool = False

    def to_json(self) -> dict[str, Any]:
        """One document: the results at the top level, the evidence below them."""
        body = {k: v for k, v in self.__dict__.items() if k not in ("runs", "results")}
        runs = [run.to_json() for run in self.runs]
        head: dict[str, Any] = plain(self.results | body)
        return {"schema": SCHEMA, **head, "runs": runs}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], where: str = "the session") -> Session:
        """Inverse of `to_json`; raises ProfileError for another or a newer schema."""
        check_schema(data.get("schema"), where)
        own = set(cls.__dataclass_fields__) - {"runs", "results"}
        results = {k: v for k, v in data.items() if k not in own | {"schema", "runs"}}
        runs = [Run.from_json(run) for run in data.get("runs", ())]
        return cls(runs=runs, results=results, **{k: data[k] for k in own if k in data})

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write atomically; above 1 MB as gzip with `.gz` added. Returns the path written."""
        text = json.dumps(self.to_json(), separators=(",", ":"), allow_nan=False).encode()
        target = Path(path)
        if len(text) > GZIP_ABOVE_BYTES or target.suffix == ".gz":
            text = gzip.compress(text, compresslevel=4)
            target = target if target.suffix == ".gz" else Path(f"{target}.gz")
        draft = target.with_name(f".{target.name}.{os.getpid()}")
        draft.write_bytes(text)
        draft.replace(target)
        return target

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Session:
        """Read what `save` wrote; ProfileError with the cure for anything else."""
        try:
            blob = Path(path).read_bytes()
            text = gzip.decompress(blob) if blob[:2] == b"\x1f\x8b" else blob
            data = json.loads(text)
        except FileNotFoundError:
            raise ProfileError(
                f"No session at {path}: record one with `run ... -o {path}`."
            ) from None
        except (OSError, EOFError, ValueError) as error:
            raise ProfileError(
                f"{path} is not a readable session ({error}): record it again with `run`."
            ) from None
        if not isinstance(data, dict):
            raise ProfileError(f"{path} is JSON but not a session: give a file that `run` saved.")
        return cls.from_json(data, str(path))

    @classmethod
    def combine(cls, sessions: Iterable[Session]) -> Session:
        """Runs of several sessions as one, blocks renumbered so that pairs stay pairs."""
        merged, offset = cls(), 0
        for part in sessions:
            merged.environment = merged.environment or part.environment
            merged.plan = merged.plan or part.plan
            merged.created = merged.created or part.created
            merged.partial |= part.partial
            merged.notes += [note for note in part.notes if note not in merged.notes]
            for run in part.runs:
                merged.runs.append(Run(**(run.__dict__ | {"block": run.block + offset})))
            offset = 1 + max((run.block for run in merged.runs), default=-1)
        return merged

    def arm(self, name: str) -> list[Run]:
        """Runs of one arm, in block order."""
        return sorted((run for run in self.runs if run.arm == name), key=lambda run: run.block)


def check_schema(schema: Any, where: str) -> None:
    """Raise ProfileError unless `schema` is profile/1."""
    if schema == SCHEMA:
        return
    name, _, version = str(schema).partition("/")
    if name == "profile" and version.isdigit() and int(version) > int(SCHEMA.split("/")[1]):
        raise ProfileError(
            f"{where} was written by a newer pipeline-profiler (schema {schema}, this one reads "
            f"{SCHEMA}): upgrade with `pip install -U dataset-preflight`."
        )
    raise ProfileError(
        f"{where} is not a profile session (schema {schema!r}): record one with `run`."
    )


# --------------------------------------------------------------------------------- recording


class Source(Protocol):
    """A loader made watchable by an adapter."""

    iterable: Iterable[Any]
    config: dict[str, Any]
    notes: list[str]

    def unwrap(self, item: Any) -> tuple[Any, Delivery | None]:
        """Split what the loader yields into the user's batch and its trace."""

    def depth(self, iterator: Any) -> tuple[int, int] | None:
        """(batches arrived early, tasks outstanding), or None where the loader does not tell."""


@dataclass(slots=True)
class Delivery:
    """How one batch travelled: the worker's trace and the stamps of its (un)pickling, ns."""

    trace: BatchTrace
    serialise: tuple[int, int, int] | None = None  # start, wall, cpu
    receive: tuple[int, int] | None = None  # start, wall


def _flat(batch: int, d: Delivery) -> tuple[Any, ...]:
    """Plain tuples of numbers: the garbage collector stops looking at those.

    Thousands of kept objects would bring its full collections on, in the middle of a training
    loop: a pause of 0.1 s that nobody but the recorder caused.
    """
    plain_stages: Any = tuple(tuple(s) for s in d.trace.stages)
    return batch, tuple(d.trace._replace(stages=plain_stages)), d.serialise, d.receive


def _unknown() -> int:
    return -1


class Recorder:
    """Records one loop: `for batch in rec.watch(loader)`, optionally `with rec.step():` inside.

    Clocks are injected (nanoseconds): tests run on a fake one. Nothing is analysed while the loop
    runs; the cost is a handful of clock reads and appends a step.
    """

    attach: ClassVar[Any] = None  # set by the package: picks the adapter for a loader

    def __init__(
        self,
        clock: Clock = time.perf_counter_ns,
        cpu: Clock = time.thread_time_ns,
        arm: str = "W",
        queued: Clock | None = None,
    ) -> None:
        """Clocks are injected, nanoseconds; `arm` names the run.

        `queued` counts the time runnable without a core; None asks the system where `clock` is
        the system's too.
        """
        self.clock, self.cpu = clock, cpu
        self.queued = queued
        self._hidden_ns = 0  # CPU time of other threads of this process during next()
        self._counted: tuple[int, Counters] | None = None
        self.run = Run(arm=arm)
        self.timer = StageTimer(clock, cpu)
        self.steps = 0
        self.sample_stacks = False  # workers sample their stacks too: for a run of its own
        self.phase = "outside"  # what the main thread is doing: outside | wait | step
        self._gc_start = 0
        self._unwrapped: Any = None
        self._sources: dict[int, tuple[Any, Source]] = {}
        self._deliveries: list[tuple[Any, ...]] = []

    def watch(self, loader: Any) -> Iterator[Any]:
        """Iterate `loader` for one epoch, recording each next(); call again for the next epoch."""
        held = self._sources.get(id(loader))
        if held is None:
            held = (loader, Recorder.attach(loader, self))  # holding the loader keeps its id unique
            self._sources[id(loader)] = held
            self.run.config |= held[1].config
            self.run.notes += held[1].notes
        return self._iterate(held[1])

    def _iterate(self, source: Source) -> Iterator[Any]:
        clock, cpu, spans = self.clock, self.cpu, self.run.spans
        queued = self._queue_clock()
        process = time.process_time_ns if clock is time.perf_counter_ns else _unknown
        activate(self.timer)
        gc.callbacks.append(self._on_gc)
        try:
            start = clock()
            iterator = iter(source.iterable)
            spans.add("iter", self.steps, MAIN, start, clock() - start)
            while True:
                depth = source.depth(iterator)
                hidden = process()
                begin, cpu_begin, queued_begin = clock(), cpu(), queued()
                self.phase = "wait"
                try:
                    item = next(iterator)
                except StopIteration:
                    self.timer.collect()
                    break
                delay, cpu_end, end = difference(queued(), queued_begin), cpu(), clock()
                self.phase = "step"
                hidden = process() - hidden - (cpu_end - cpu_begin)
                self._hidden_ns += max(0, hidden)
                wait = (begin, end - begin, cpu_end - cpu_begin, delay)
                self._record_wait(source, item, wait, depth)
                batch, item, self._unwrapped = self._unwrapped, None, None
                after = cpu()
                try:
                    yield batch
                finally:  # a `break` in the caller's loop closes the generator here
                    self._record_step(end, clock(), cpu() - after)
        except BaseException as error:
            if not isinstance(error, GeneratorExit):
                self.run.notes.append(f"step {self.steps}: {type(error).__name__}: {error}")
            raise
        finally:
            self.phase = "outside"
            gc.callbacks.remove(self._on_gc)
            activate(None)

    def _queue_clock(self) -> Clock:
        """Run-queue delay of the calling thread: the system's counter beside the system's clock."""
        if self.queued is not None:
            return self.queued
        if self.clock is not time.perf_counter_ns:
            return _unknown
        thread = threading.get_ident()
        if self._counted is None or self._counted[0] != thread:
            self._counted = (thread, Counters())
        return self._counted[1].queued_ns

    def _on_gc(self, phase: str, info: Mapping[str, int]) -> None:
        now = self.clock()
        if phase == "start":
            self._gc_start = now
        elif self._gc_start:
            self.run.gc_pauses.append([self._gc_start, now - self._gc_start])

    def _record_wait(
        self,
        source: Source,
        item: Any,
        wait: tuple[int, int, int, int],
        depth: tuple[int, int] | None,
    ) -> None:
        """`wait`: start, wall, CPU and run-queue nanoseconds of next()."""
        batch = self.steps
        self._unwrapped, delivery = source.unwrap(item)
        self.run.spans.add("wait", batch, MAIN, *wait)
        for s in self.timer.collect():
            self.run.spans.add(s.name, batch, MAIN, s.start_ns, s.wall_ns, s.cpu_ns, -1, s.calls)
        if delivery is not None:
            self._deliveries.append(_flat(batch, delivery))
        if depth is not None:
            self.run.depths.append([batch, *depth])

    def _record_step(self, start: int, end: int, cpu: int) -> None:
        """Between next() return and next() entry; `step()` narrows it to the user's own block."""
        spans, batch = self.run.spans, self.steps
        for s in self.timer.collect():
            spans.add(f"step:{s.name}", batch, MAIN, s.start_ns, s.wall_ns, s.cpu_ns, -1, s.calls)
        spans.add("loop", batch, MAIN, start, end - start, cpu)
        self.steps += 1

    @contextmanager
    def step(self) -> Iterator[None]:
        """Mark the training step inside the loop, so that work beside it is told apart."""
        start, cpu_start = self.clock(), self.cpu()
        try:
            yield
        finally:
            cpu = self.cpu() - cpu_start
            self.run.spans.add("step", self.steps, MAIN, start, self.clock() - start, cpu)

    def session(self) -> Session:
        """Everything recorded so far, frozen."""
        self._settle()
        return Session(runs=[self.run], created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))

    def _settle(self) -> None:
        """Turn deliveries into spans and batch rows; done after the loop to keep it light."""
        run = self.run
        run.totals["hidden_cpu_ns"] = self._hidden_ns
        for batch, fields, serialise, receive in self._deliveries:
            d = Delivery(BatchTrace(*fields), serialise, receive)
            t, worker = d.trace, d.trace.worker
            run.spans.add(
                "fetch", batch, worker, t.start_ns, t.wall_ns, t.cpu_ns, t.queued_ns, t.samples
            )
            for name, start, wall, cpu, calls in t.stages:
                run.spans.add(name, batch, worker, start, wall, cpu, -1, calls)
            if d.serialise:
                run.spans.add("serialise", batch, worker, *d.serialise)
            if d.receive:
                run.spans.add("receive", batch, MAIN, *d.receive)
            self._batch_row(batch, d)
            for place, hits in t.stacks:
                run.stacks[place] = run.stacks.get(place, 0) + hits
        self._deliveries.clear()
        run.slow = sorted(run.slow, key=lambda row: -row["wall_ns"])[:SLOW_SAMPLES_KEPT]

    def _batch_row(self, batch: int, d: Delivery) -> None:
        t = d.trace
        sent = d.serialise[0] + d.serialise[1] if d.serialise else t.start_ns + t.wall_ns
        received = sum(d.receive) if d.receive else sent
        row = (
            *(batch, t.worker, t.tag, t.samples, t.slow_ns, t.slow_cpu_ns),
            *(t.read_bytes, t.read_chars, t.gc_ns, t.process_cpu_ns, sent, received),
        )
        for name, value in zip(BATCH_COLUMNS, row, strict=True):
            self.run.batches[name].append(value)
        self.run.slow_keys.append(t.slow_key)
        if t.samples:
            self.run.slow.append(
                {"key": t.slow_key, "wall_ns": t.slow_ns, "cpu_ns": t.slow_cpu_ns, "batch": batch}
            )


__all__ = [
    *("SCHEMA", "MAIN", "Span", "SpanTable", "Run", "Session", "Recorder", "Source", "Delivery"),
    *("ProfileError", "StageSum", "check_schema"),
]
