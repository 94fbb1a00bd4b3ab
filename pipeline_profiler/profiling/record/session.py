"""The recorded profile as plain data: spans in columns, runs of a configuration, a session of runs.

Spans are integer columns (nanoseconds, as differences); JSON, with gzip above 1 MB. Before anything
is built from a file, its size and its lists are counted. Standard library only; format:
docs/profile.md.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import time
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, field
from itertools import compress
from operator import attrgetter, sub
from pathlib import Path
from typing import Any

from pipeline_profiler.profiling.record.arm import Arm
from pipeline_profiler.profiling.record.errors import ProfileError as ProfileError
from pipeline_profiler.profiling.record.plan import Plan, Probes
from pipeline_profiler.profiling.record.session_form import BATCH_COLUMNS as BATCH_COLUMNS
from pipeline_profiler.profiling.record.session_form import (
    DELTA,
    LARGEST,
    SPAN_COLUMNS,
    FormError,
    check_document,
    read_columns,
)
from pipeline_profiler.profiling.record.session_form import MAIN as MAIN

GZIP_ABOVE_BYTES = 1_000_000
GZIP_HEAD = b"\x1f\x8b"
MOST_BYTES = 128_000_000  # of JSON text: 300,000 steps and more
MOST_VALUES = 12_000_000  # commas
MOST_CONTAINERS = 1_000_000  # lists and objects, which cost most memory by the byte


def read_document(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The JSON object in a file, unpacked; ProfileError with the fix for anything else."""
    try:
        with open(path, "rb") as file:
            blob = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise ProfileError(f"No session at {path}: record one with `run ... -o {path}`.") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise _unreadable(path, error) from None
    return parse_document(blob, str(path))


def parse_document(blob: bytes, where: str) -> dict[str, Any]:
    """The JSON object in these bytes, plain or gzip; `where` is how a message calls them."""
    try:
        if blob[:2] == GZIP_HEAD:
            with gzip.GzipFile(fileobj=io.BytesIO(blob)) as packed:
                blob = packed.read(MOST_BYTES + 1)
        if problem := describe_excess(blob):
            raise ProfileError(
                f"{where} is not read: {problem}. Record fewer steps (`--set measure.steps=N`)."
            )
        data = json.loads(blob, parse_constant=_refuse_constant)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise _unreadable(where, error) from None
    except RecursionError:
        raise _unreadable(where, ValueError("nested too deeply")) from None
    if not isinstance(data, dict):
        raise ProfileError(f"{where} is JSON but not a session: give a file that `run` saved.")
    return data


def open_unpacked(path: Path) -> io.BufferedIOBase:
    """Open a file for reading, unpacked if it is gzip."""
    with path.open("rb") as file:
        packed = file.read(2) == GZIP_HEAD
    return gzip.open(path) if packed else path.open("rb")


def describe_excess(text: bytes) -> str:
    """Which limit a document breaks, in words; '' for none."""
    if len(text) > MOST_BYTES:
        return f"it holds more than {MOST_BYTES / 1e6:.0f} MB of text, the most a session may have"
    counts = (
        (text.count(b","), MOST_VALUES, "values"),
        (text.count(b"[") + text.count(b"{"), MOST_CONTAINERS, "rows"),
    )
    for count, most, name in counts:
        if count > most:
            return f"it holds {count:,} {name}, and a session may have {most:,}"
    return ""


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is no JSON number")


def _unreadable(where: object, error: Exception) -> ProfileError:
    said = getattr(error, "strerror", None) or " ".join(str(error).split())[:120]
    return ProfileError(f"{where} is not a readable session ({said}): record it again with `run`.")


def _encode(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode()


def write_packed(text: bytes, path: str | os.PathLike[str]) -> Path:
    """Write atomically; above 1 MB as gzip with `.gz` added. Returns the path written."""
    target = Path(path)
    if len(text) > GZIP_ABOVE_BYTES or target.suffix == ".gz":
        text = gzip.compress(text, compresslevel=4)
        target = target if target.suffix == ".gz" else Path(f"{target}.gz")
    write_whole(text, target)
    return target


def write_whole(blob: bytes, target: Path) -> None:
    """Make the file appear whole or not at all; its folder is made, a link is written through."""
    real = Path(os.path.realpath(target))
    draft = real.with_name(f".{real.name}.{os.getpid()}")
    try:
        real.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(blob)
        draft.replace(real)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()


SCHEMA = "profile/1"
_LETTERS = frozenset(Arm)
Columns = dict[str, "array[int]"]


def utc_now() -> str:
    """The time of day as a session holds it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


@dataclass(frozen=True, slots=True)
class Span:
    """A named stretch of time. `wall_ns` of a loader stage is its self time summed over a batch.

    `cpu_ns` (thread) and `queued_ns` (runnable without a core): -1 means unknown.
    """

    stage: str
    batch: int
    worker: int
    start_ns: int
    wall_ns: int
    cpu_ns: int = -1
    queued_ns: int = -1
    count: int = 1


def _pack(columns: Columns) -> dict[str, list[int]]:
    """Columns as lists; those of times as differences to the row before."""
    return {k: list(map(sub, v, [0, *v])) if k in DELTA else list(v) for k, v in columns.items()}


def plain(value: Any) -> Any:
    """Return JSON types: numpy scalars as numbers, not finite as None, other values as text."""
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


_ROW = attrgetter(*Span.__slots__)


class SpanTable:
    """Spans in columns; iterating gives Span rows."""

    def __init__(self, spans: Iterable[Span] = ()) -> None:
        self.stages: list[str] = []
        self._codes: dict[str, int] = {}
        self.columns: Columns = {name: array("q") for name in SPAN_COLUMNS}
        self.extend([_ROW(span) for span in spans])

    def add(self, stage: str, *numbers: int) -> None:
        """Append one span, its numbers in the order of `Span`."""
        self.extend([_ROW(Span(stage, *numbers))])

    def extend(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Append spans given as rows in the order of `Span`; a column at a time, for its speed."""
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
        return len(self.columns["start"])

    def __iter__(self) -> Iterator[Span]:
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
    """One pass of one configuration: its spans, one row a batch, the slowest samples, its setting.

    `totals` of the timed window: steps, elapsed_ns; of the whole run: hidden_cpu_ns, CPU time of
    other threads during next().
    """

    arm: Arm
    block: int = 0
    config: dict[str, Any] = field(default_factory=dict)
    warmup: int = 0  # steps at the head that no figure uses
    spans: SpanTable = field(default_factory=SpanTable)
    batches: Columns = field(default_factory=lambda: {name: array("q") for name in BATCH_COLUMNS})
    slow_keys: list[int | str] = field(default_factory=list)  # slowest sample of each batch
    slow: list[dict[str, Any]] = field(default_factory=list)
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
        body["plan"] = self.plan.to_json() | self.probes.to_json()  # `profile/1` has both there
        runs = [run.to_json() for run in self.runs]
        head: dict[str, Any] = plain(self.results | body)
        return {"schema": SCHEMA, **head, "runs": runs}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], where: str = "the session") -> Session:
        """Inverse of `to_json`; ProfileError for another or newer schema, or a damaged one."""
        _check_schema(data.get("schema"), where)
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
        document = self.to_json()
        text = _encode(document)
        if problem := describe_excess(text):
            note = f"The recorded runs are left out of this file: {problem}."
            text = _encode({**document, "runs": [], "notes": [*document["notes"], note]})
        return text

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


def _check_schema(schema: Any, where: str) -> None:
    if schema == SCHEMA:
        return
    name, _, version = str(schema).partition("/")
    if name == "profile" and version.isdigit() and int(version) > int(SCHEMA.split("/")[1]):
        raise ProfileError(
            f"{where} was written by a newer pipeline-profiler (schema {schema}, this one reads "
            f"{SCHEMA}): upgrade dataset-preflight."
        )
    raise ProfileError(
        f"{where} is not a profile session (schema {str(schema)[:40]!r}): record one with `run`."
    )


# Twelve million values are the most that a file may hold, and a save must stay cheap beside the
# training. The sums of what is dropped say what share of all steps was waiting.
MOST_STEPS, KEPT_STEPS = 12_000, 8_000


def copy_run(run: Run) -> Run:
    """A copy that the loop does not write to any more."""
    parts = {name: copy(value) for name, value in vars(run).items()}
    return Run(**parts | {"spans": deepcopy(run.spans), "batches": deepcopy(run.batches)})


def drop_steps(run: Run, steps: int) -> None:
    """Keep the last steps of a run that has recorded `steps`, once it holds too many."""
    totals = run.totals
    dropped = totals.get("dropped_steps", 0)
    if steps - dropped < MOST_STEPS:
        return
    first = steps - KEPT_STEPS
    for span in run.spans:  # waiting and training time of the steps that go
        if span.stage in ("wait", "loop", "iter") and dropped <= span.batch < first:
            name = f"dropped_{span.stage}_ns"
            totals[name] = totals.get(name, 0) + span.wall_ns
    spans, batches = run.spans.columns, run.batches
    kept = [batch >= first for batch in spans["batch"]]
    rows = [batch >= first for batch in batches["batch"]]
    run.slow_keys = list(compress(run.slow_keys, rows))
    for table, mask in ((spans, kept), (batches, rows)):
        for name, column in table.items():
            table[name] = array("q", compress(column, mask))
    begin = min(compress(spans["start"], (w == MAIN for w in spans["worker"])), default=0)
    run.gc_pauses = [pause for pause in run.gc_pauses if pause[0] >= begin]
    totals["dropped_steps"] = first
