"""What a sweep measured, and what it concludes: rows, the comparisons between them, sentences.

All figures follow from the records of the measurement. Figures that were not measured are None.
Times are in ms, rates in samples per second; an `Interval` is a ratio or share with its 95% CI.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any, TypeAlias, TypeVar, get_args, get_type_hints

from pipeline_profiler.precision.trainer import (
    LOADER_ONLY,
    RESIDENT,
    WARM,
    Cell,
    Flags,
    Recipe,
    TimedWindow,
)
from pipeline_profiler.profiling.diagnose.intervals import Interval


@dataclass(frozen=True)
class ProbeResult:
    """The first visit of a cell; `status`: ok, refused, failed, oom or dropped."""

    status: str = "ok"
    sentence: str = ""
    losses: Sequence[float] = ()
    accuracies: Sequence[float] = ()
    skipped: int = 0
    scale: float | None = None
    step_s: float = 0.0
    seconds: float = 0.0
    setup_s: float = 0.0
    peak_bytes: int | None = None
    peak_how: str = "n/a"
    reserved_bytes: int | None = None
    occupied_bytes: int | None = None
    graphs: int = 0


@dataclass(frozen=True)
class ProbedCell:
    """A cell with its first visit."""

    cell: Cell
    probe: ProbeResult
    tiny: bool = False


@dataclass(frozen=True)
class Visit:
    """One window of one cell in one block; `recompiled` counts graphs made inside it."""

    arm: str
    block: int
    cell: Cell
    window: TimedWindow
    recompiled: int = 0


@dataclass(frozen=True)
class LoaderPass:
    """Batches taken from a loader with no step between them, in one block."""

    block: int
    model: str
    batch_size: int
    batches: int
    elapsed_ms: float


@dataclass(frozen=True)
class SourceRecord:
    """The setting of a data source; `problem` says why no row could use it."""

    model: str
    batch_size: int
    kept: int = 0
    problem: str = ""
    kind: str | None = None
    workers: int | None = None
    prefetch: int | None = None
    pin_memory: bool | None = None


@dataclass(frozen=True)
class LargestBatch:
    """The largest batch that fits; `trouble` says what else went wrong on the way."""

    model: str
    precision: str
    batch_size: int
    limit_reached: bool
    trials: Sequence[int]
    trouble: Sequence[str] = ()


@dataclass(frozen=True)
class Measurement:
    """All that a sweep measured, with the device and the flags it was measured under."""

    backend: str
    device: str
    device_name: str
    recipe: Recipe = field(default_factory=Recipe)
    flags: Mapping[str, Flags] = field(default_factory=dict)
    cells: Sequence[ProbedCell] = ()
    feeds: Sequence[SourceRecord] = ()
    largest: Sequence[LargestBatch] = ()
    visits: Sequence[Visit | LoaderPass] = ()

    def visits_of(self, cell: Cell) -> list[Visit]:
        """The timed windows of one cell, both arms, in order of measurement."""
        windows = (visit for visit in self.visits if isinstance(visit, Visit))
        return [v for v in windows if v.cell == cell and v.arm in (RESIDENT, WARM)]

    def means_by_block(self, cell: Cell, arm: str) -> dict[int, float]:
        """Block -> mean period of one arm, ms; windows whose steps AMP all skipped are left out."""
        means = {v.block: v.window.mean_ms for v in self.visits_of(cell) if v.arm == arm}
        return {block: mean for block, mean in means.items() if mean}

    def loader_means(self, model: str, batch_size: int) -> dict[int, float]:
        """Block -> mean time of a batch of the loader with no step running, ms."""
        passes = (visit for visit in self.visits if isinstance(visit, LoaderPass))
        own = (p for p in passes if (p.model, p.batch_size) == (model, batch_size) and p.batches)
        return {each.block: each.elapsed_ms / each.batches for each in own}


@dataclass(frozen=True)
class StepTimes:
    """One arm of a row: mean with interval over the repeats, quantiles of all single steps, ms."""

    mean_ms: float
    p50_ms: float | None
    p95_ms: float | None
    low_ms: float | None
    high_ms: float | None
    repeats: int
    steps: int


@dataclass(frozen=True)
class Rate:
    """Samples per second with interval; the ends are None where there is no interval."""

    value: float
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True)
class EarlyLosses:
    """The first and the last loss of the first `steps` steps from the recipe's seed."""

    steps: int
    first: float | None
    last: float | None


@dataclass(frozen=True)
class Row:
    """One line of the table; `sentence` explains another status than ok, `error` a rate."""

    cell: Cell
    status: str
    sentence: str
    tiny: bool
    step: StepTimes | None
    fed: StepTimes | None
    synthetic_per_s: Rate | None
    loader_per_s: Rate | None
    stall: Interval | None
    peak_bytes: int | None
    peak_how: str
    skipped: int | None
    skipped_timed: int
    loss_scale_end: float | None
    early: EarlyLosses
    warmup_s: float
    graphs: int
    recompiled: int
    reserved_bytes: int | None = None
    occupied_bytes: int | None = None
    error: str = ""


@dataclass(frozen=True)
class LoaderRow:
    """A data source and what its loader delivers with no step running: an upper bound."""

    source: SourceRecord
    alone_per_s: Rate | None


@dataclass(frozen=True)
class Speedup:
    """How many times as fast as FP32 a cell is: its compute alone, and the run with the loader."""

    cell: Cell
    tiny: bool
    compute: Interval
    run: Interval


@dataclass(frozen=True)
class Growth:
    """What the largest batch buys over the smallest, in samples/s."""

    model: str
    precision: str
    loss_scale: str
    smallest: int
    largest: int
    compute: Interval
    run: Interval


@dataclass(frozen=True)
class PrecisionTable:
    """The measurement with everything that was concluded from it."""

    measurement: Measurement
    rows: Sequence[Row]
    loaders: Sequence[LoaderRow]
    speedups: Sequence[Speedup]
    growths: Sequence[Growth]
    sentences: Sequence[str]

    def loader_of(self, cell: Cell) -> LoaderRow | None:
        """The loader that fed this cell."""
        sources = {(row.source.model, row.source.batch_size): row for row in self.loaders}
        return sources.get(cell.source)


# Keys are those of `profile/1` (docs/precision.md). Only the measurement is read again, and unknown
# keys are ignored; every key is written, `null` where nothing was measured.

Document: TypeAlias = dict[str, Any]  # JSON types by key
T = TypeVar("T")


def table_as_dict(table: PrecisionTable) -> Document:
    """The value of the session's key `precision`."""
    return {
        **measurement_as_dict(table.measurement),
        "rows": [_row_as_dict(row) for row in table.rows],
        "loaders": [_plain(row, "source") for row in table.loaders],
        "speedups": [_plain(speedup, "cell") for speedup in table.speedups],
        "growths": [
            data | {"from": data.pop("smallest"), "to": data.pop("largest")}
            for data in map(_plain, table.growths)
        ],
        "sentences": list(table.sentences),
    }


def measurement_as_dict(measurement: Measurement) -> Document:
    """Only what was measured."""
    cells = [_plain(cell, "cell", "probe") for cell in measurement.cells]
    visits = [
        _plain(visit, "window") if isinstance(visit, Visit) else {"arm": LOADER_ONLY, **vars(visit)}
        for visit in measurement.visits
    ]
    whole: Document = _plain(measurement)
    return whole | {"cells": cells, "visits": visits}


def _plain(value: Any, *beside: str) -> Any:
    """JSON types; the keys of the fields named in `beside` stand beside the other fields."""
    if isinstance(value, Interval):
        return value.as_dict()
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if not is_dataclass(value):
        return value
    data = {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    for name in beside:
        data |= data.pop(name)
    return data


def _row_as_dict(row: Row) -> Document:
    data: Document = _plain(row, "cell")
    early = data.pop("early")
    return data | {f"loss_{name}": value for name, value in early.items()}


def measurement_from_dict(data: Mapping[str, Any]) -> Measurement:
    """Inverse of `measurement_as_dict`; also reads it out of a whole table."""
    return Measurement(
        data["backend"],
        data["device"],
        data["device_name"],
        _read(Recipe, data["recipe"]),
        data["flags"],
        [_read(ProbedCell, cell | _losses(cell)) for cell in data["cells"]],
        [_read(SourceRecord, source) for source in data["feeds"]],
        [_read(LargestBatch, largest) for largest in data["largest"]],
        [
            _read(LoaderPass, v) if v["arm"] == LOADER_ONLY else _read(Visit, v)
            for v in data["visits"]
        ],
    )


def _read(kind: Callable[..., T], data: Mapping[str, Any]) -> T:
    """Return a dataclass of known keys, its parts under their key or beside the others."""
    made: Document = {}
    for name, part in _parts(kind).items():
        if part is None or data.get(name, data) is None:
            made |= {name: data[name]} if name in data else {}
        else:
            made[name] = _read(part, data.get(name, data))
    return kind(**made)


@cache
def _parts(kind: Callable[..., Any]) -> dict[str, Any]:
    """The fields of a dataclass, each with the dataclass that it holds, if any."""
    hints = get_type_hints(kind)
    return {
        name: next((one for one in (hint, *get_args(hint)) if is_dataclass(one)), None)
        for name, hint in hints.items()
    }


def _losses(cell: Document) -> dict[str, Sequence[float]]:
    """JSON has no NaN: a loss that was not a number is null in the file."""
    return {"losses": [math.nan if loss is None else loss for loss in cell["losses"]]}
