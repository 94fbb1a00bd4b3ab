"""The recorded profile as plain data: spans in columns, runs of one arm, a session of runs.

Measure once, judge many times: a Session knows nothing of verdicts or rendering, and every view
is a pure function of it. Spans live in integer columns (nanoseconds; times as differences to the
row before), which is what keeps 10,000 steps x 4 workers x 6 stages below 20 MB and 2 s to load.
JSON, because any tool reads it; gzip above 1 MB. Standard library only, so that a recorder works
on a machine that has nothing but the training framework. Format: docs/profiler-session.md.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline_profiler.record.arm import Arm
from pipeline_profiler.record.errors import ProfileError as ProfileError
from pipeline_profiler.record.form import LARGEST, FormError
from pipeline_profiler.record.plan import Plan, Probes
from pipeline_profiler.record.session_file import (
    pack_document,
    parse_document,
    read_document,
    write_packed,
)
from pipeline_profiler.record.session_form import BATCH_COLUMNS as BATCH_COLUMNS
from pipeline_profiler.record.session_form import DELTA, SPAN_COLUMNS, check_document, read_columns
from pipeline_profiler.record.session_form import MAIN as MAIN

SCHEMA = "profile/1"
_LETTERS = frozenset(Arm)


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


def _deltas(values: Iterable[int]) -> list[int]:
    column = list(values)
    return [now - before for now, before in zip(column, [0, *column], strict=False)]


def _pack(columns: Mapping[str, Iterable[int]]) -> dict[str, list[int]]:
    return {k: _deltas(v) if k in DELTA else list(v) for k, v in columns.items()}


def plain(value: Any) -> Any:
    """JSON types only: numpy scalars become numbers, what is not finite becomes None.

    What JSON has no word for becomes its text: nothing that a loader says of itself may cost the
    measurement.
    """
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(v) for v in value]
    if getattr(value, "shape", None) == ():
        value = value.item()
    if isinstance(value, float) and not abs(value) <= LARGEST:
        return None
    if value is None or isinstance(value, (bool, str, float)):
        return value
    # an endless loader may call itself 2**63 batches long
    return max(-LARGEST, min(value, LARGEST)) if isinstance(value, int) else str(value)


class SpanTable:
    """Spans in columns; iterating gives Span rows."""

    def __init__(self, spans: Iterable[Span] = ()) -> None:
        """Start with the given spans."""
        self.stages: list[str] = []
        self._codes: dict[str, int] = {}
        self.columns: dict[str, array[int]] = {name: array("q") for name in SPAN_COLUMNS}
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
        self.extend([(stage, batch, worker, start, wall, cpu, queued, count)])

    def extend(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Append spans given as rows in the order of `add`; a column at a time, for its speed."""
        if not rows:
            return
        names, *numbers = zip(*rows, strict=True)
        codes = self._codes
        for name in names:
            if name not in codes:
                codes[name] = len(self.stages)
                self.stages.append(name)
        self.columns["stage"].extend([codes[name] for name in names])
        for column, values in zip(SPAN_COLUMNS[1:], numbers, strict=True):
            self.columns[column].extend(values)

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
        table.columns = read_columns(data, SPAN_COLUMNS)
        return table


@dataclass
class Run:
    """One pass of one arm: its spans, one row a batch, the slowest samples, and its setting.

    `config` holds the loader's setting (kind, workers, prefetch, batch_size, ...); `totals` sums
    over the timed window: steps, elapsed_ns; over the whole run: hidden_cpu_ns, CPU time of other
    threads of the process during next(); `depths` is (batch, early, outstanding) at
    each next() entry where the loader tells.
    """

    arm: Arm
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
        head: dict[str, Any] = plain(data)
        return head | {"spans": self.spans.to_json(), "batches": _pack(self.batches)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Run:
        """Inverse of `to_json`; unknown keys of the same schema are ignored."""
        known = {k: v for k, v in data.items() if k in cls.__dataclass_fields__}
        known["arm"] = Arm(data["arm"])
        known["spans"] = SpanTable.from_json(data["spans"])
        known["batches"] = read_columns(data["batches"], BATCH_COLUMNS)
        return cls(**known)

    def __len__(self) -> int:
        """Number of batches with a trace."""
        return len(self.batches["batch"])


@dataclass
class Session:
    """A saved profile: runs, the machine, what was planned, probed and concluded."""

    runs: list[Run] = field(default_factory=list)
    environment: dict[str, Any] = field(default_factory=dict)
    plan: Plan = field(default_factory=Plan)
    probes: Probes = field(default_factory=Probes)
    results: dict[str, Any] = field(default_factory=dict)  # verdict, stall, causes, arms
    notes: list[str] = field(default_factory=list)
    created: str = ""
    partial: bool = False

    def to_json(self) -> dict[str, Any]:
        """One document: the results at the top level, the evidence below them."""
        body = {name: getattr(self, name) for name in _BODY}
        body["plan"] = self.plan.to_json() | self.probes.to_json()  # where 0.1 put both
        runs = [run.to_json() for run in self.runs]
        head: dict[str, Any] = plain(self.results | body)
        return {"schema": SCHEMA, **head, "runs": runs}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], where: str = "the session") -> Session:
        """Inverse of `to_json`; ProfileError for another or newer schema, or a damaged one."""
        check_schema(data.get("schema"), where)
        try:
            check_document(data)
        except FormError as error:
            raise ProfileError(
                f"{where} is a damaged session ({error}): record it again with `run`."
            ) from None
        own = {*_BODY, "plan", "schema", "runs"}
        results = {k: v for k, v in data.items() if k not in own}
        if results.get("arms"):
            results["arms"] = {k: v for k, v in results["arms"].items() if k in _LETTERS}
        plan = data.get("plan") or {}
        # an arm of a later version has no meaning here: its runs are left out, the rest is read
        runs = [Run.from_json(run) for run in data.get("runs", ()) if run["arm"] in _LETTERS]
        return cls(
            runs=runs,
            plan=Plan.from_json(plan),
            probes=Probes.from_json(plan),
            results=results,
            **{k: data[k] for k in _BODY if k in data},
        )

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write atomically; above 1 MB as gzip with `.gz` added. Returns the path written."""
        return write_packed(self.packed(), path)

    def packed(self) -> bytes:
        """The file's text; its runs are left out where `load` would refuse that many."""
        return pack_document(self.to_json())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Session:
        """Read what `save` wrote; ProfileError with the fix for anything else."""
        return cls.from_json(read_document(path), str(path))

    @classmethod
    def parse(cls, blob: bytes, where: str) -> Session:
        """`load` for bytes in hand, which messages call `where`."""
        return cls.from_json(parse_document(blob, where), where)

    def arm(self, name: Arm) -> list[Run]:
        """Runs of one arm, in block order."""
        return sorted((run for run in self.runs if run.arm == name), key=lambda run: run.block)


_BODY = ("environment", "notes", "created", "partial")


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
        f"{where} is not a profile session (schema {str(schema)[:40]!r}): record one with `run`."
    )
