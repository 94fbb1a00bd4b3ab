"""What a sweep measured, and what it concludes: rows, loaders and crossings.

All figures follow from the records of the measurement. Figures that were not measured are None.
Times are in ms, rates in samples per second; an `Interval` is a value with its 95% CI.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any, TypeAlias, TypeVar, get_args, get_type_hints

from pipeline_profiler.precision.trainer import Cell, Flags, PeakMemory, Recipe, TimedWindow
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
    setup_s: float = 0.0
    peak: PeakMemory = field(default_factory=PeakMemory)


@dataclass(frozen=True)
class ProbedCell:
    """A cell with its first visit."""

    cell: Cell
    probe: ProbeResult


@dataclass(frozen=True)
class CellWindow:
    """One window of a cell on preloaded batches; `begin_s`: seconds since the sweep began."""

    cell: Cell
    round: int
    begin_s: float
    timed: TimedWindow


@dataclass(frozen=True)
class Passage:
    """Batches taken through a loader in one go; with a cell of precision "" the loader is alone.

    `elapsed_ms`: until the device had finished. `start_ms`: until the first batch of an epoch,
    None where no epoch began.
    """

    cell: Cell
    workers: int
    round: int
    begin_s: float
    batches: int
    elapsed_ms: float
    start_ms: float | None = None
    skipped: int = 0


@dataclass(frozen=True)
class SourceRecord:
    """The setting of a data source; `problem` says why no row could use it."""

    model: str
    batch_size: int
    preloaded: int = 0
    problem: str = ""
    kind: str | None = None
    workers: int | None = None
    prefetch: int | None = None
    pin_memory: bool | None = None
    epoch_batches: int | None = None
    in_flight: int = 0
    whole_epochs: bool = False

    def batch_ms(self, passage: Passage, start_ms: float) -> float:
        """Time of a batch, ms; outside whole epochs with the batch's share of the epoch's start."""
        steady = passage.elapsed_ms / passage.batches
        if self.whole_epochs or not self.epoch_batches:
            return steady
        return steady + max(0.0, start_ms - steady) / self.epoch_batches


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
    sources: Sequence[SourceRecord] = ()
    largest: Sequence[LargestBatch] = ()
    windows: Sequence[CellWindow] = ()
    passages: Sequence[Passage] = ()
    cores: int = 0  # that this process may use

    def source_of(self, cell: Cell) -> SourceRecord | None:
        """The data source of a cell; None where it was not opened."""
        return next((s for s in self.sources if (s.model, s.batch_size) == cell.source), None)

    def medians_by_round(self, cell: Cell) -> dict[int, float]:
        """Round -> median period, ms; windows whose steps AMP all skipped are left out."""
        medians = {each.round: each.timed.median_ms for each in self.windows if each.cell == cell}
        return {number: median for number, median in medians.items() if median}

    def batch_times(
        self, source: SourceRecord, cell: Cell | None, workers: int | None = None
    ) -> list[float]:
        """Mean time of a batch through the loader, ms, by passage; without a cell it is alone."""
        wanted = (source.workers if workers is None else workers) or 0
        alone = Cell(source.model, source.batch_size, "")
        through = [p for p in self.passages if (p.cell.source, p.workers) == (alone.source, wanted)]
        starts = [each.start_ms for each in through if each.start_ms is not None]
        start_ms = sum(starts) / len(starts) if starts else 0.0
        cell = cell or alone
        return [source.batch_ms(each, start_ms) for each in through if each.cell == cell]


@dataclass(frozen=True)
class LossMark:
    """Mean loss and accuracy (0 to 1) of the steps since the last mark, up to `step`."""

    step: int
    loss: float
    accuracy: float | None


@dataclass(frozen=True)
class Row:
    """One line of the table; `sentence` explains another status than ok, `error` a rate.

    `step_ms`: on preloaded batches. `is_input_bound`: the loader slows the step beyond the noise.
    `needed_s`: seconds that would settle an inconclusive figure, 0 where none is.
    """

    cell: Cell
    status: str
    sentence: str
    step_ms: Interval | None
    preloaded_per_s: Interval | None
    with_loader_per_s: Interval | None
    stall: Interval | None
    speedup: Interval | None
    speedup_with_loader: Interval | None
    is_input_bound: bool
    is_launch_bound: bool
    needed_s: float
    epoch_s: float | None
    peak: PeakMemory
    skipped: int | None
    loss_scale_end: float | None
    marks: Sequence[LossMark]
    error: str


@dataclass(frozen=True)
class LoaderRow:
    """A data source and what its loader delivers with no step running: an upper bound.

    `start_s`: until the first batch of an epoch, mean.
    """

    source: SourceRecord
    num_workers: int
    alone_per_s: Interval
    start_s: float | None


@dataclass(frozen=True)
class Crossing:
    """The batch size from which a precision needs more than the loader delivers, and `per_s`.

    None: at no measured size. `workers`: what would feed the largest measured size if each delivers
    as much as now; None where nothing more is needed.
    """

    model: str
    precision: str
    loss_scale: str
    batch_size: float | None
    per_s: float
    workers: int | None


@dataclass(frozen=True)
class PrecisionTable:
    """The measurement with everything that was concluded from it."""

    measurement: Measurement
    rows: Sequence[Row]
    loaders: Sequence[LoaderRow]
    crossings: Sequence[Crossing]
    sentences: Sequence[str]

    def loader_of(self, cell: Cell) -> LoaderRow | None:
        """The loader that fed this cell."""
        for row in self.loaders:
            own = (row.source.model, row.source.batch_size) == cell.source
            if own and row.num_workers == (row.source.workers or 0):
                return row
        return None


# Keys are those of `profile/1` (docs/precision.md). Only the measurement is read again, and unknown
# keys are ignored; every key is written, `null` where nothing was measured.

Document: TypeAlias = dict[str, Any]  # JSON types by key
T = TypeVar("T")
BESIDE = {"cell", "probe", "peak", "timed", "source", "measurement"}  # keys beside those around


def as_document(value: Any) -> Any:
    """Return a table or a part of it, as the session's key `precision` has it."""
    if isinstance(value, Interval):
        ends = {"low": value.low, "high": value.high}
        known = {name: end if math.isfinite(end) else None for name, end in ends.items()}
        return {"value": value.value, **known, "n": value.n}
    if isinstance(value, list | tuple):
        return [as_document(part) for part in value]
    if not is_dataclass(value):
        return value
    data: Document = {}
    for key in fields(value):
        part = as_document(getattr(value, key.name))
        data |= part if key.name in BESIDE else {key.name: part}
    return data


def measurement_from_dict(data: Mapping[str, Any]) -> Measurement:
    """Inverse of `as_document`; also reads a measurement out of a whole table."""
    # JSON has no NaN: a loss that was not a number is null in the file
    cells = [
        cell | {"losses": [math.nan if loss is None else loss for loss in cell["losses"]]}
        for cell in data["cells"]
    ]
    return _read(Measurement, {**data, "cells": cells})


def _read(kind: Callable[..., T], data: Mapping[str, Any]) -> T:
    """Return a dataclass of known keys, its parts under their key or beside the others."""
    made: Document = {}
    for name, part in _parts(kind).items():
        inner = data.get(name, data)
        if part is None or inner is None:
            made |= {name: data[name]} if name in data else {}
        elif isinstance(inner, list):
            made[name] = [_read(part, each) for each in inner]
        else:
            made[name] = _read(part, inner)
    return kind(**made)


@cache
def _parts(kind: Callable[..., Any]) -> dict[str, Any]:
    """The fields of a dataclass, each with the dataclass that it holds, if any."""
    hints = get_type_hints(kind)
    return {
        name: next((part for part in (hint, *get_args(hint)) if is_dataclass(part)), None)
        for name, hint in hints.items()
    }
