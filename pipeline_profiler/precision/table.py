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

from pipeline_profiler.precision.trainer import Cell, Flags, Recipe, TimedWindow
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
    peak_bytes: int | None = None
    peak_how: str = "n/a"
    reserved_bytes: int | None = None
    occupied_bytes: int | None = None


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
    """Batches taken through a loader in one go; without a precision the loader is alone.

    `elapsed_ms`: until the device had finished. `start_ms`: until the first batch of an epoch,
    None where no epoch began.
    """

    model: str
    batch_size: int
    precision: str
    loss_scale: str
    workers: int
    round: int
    begin_s: float
    batches: int
    elapsed_ms: float
    start_ms: float | None = None
    skipped: int = 0

    @property
    def cell(self) -> Cell | None:
        """The cell that was trained; None for the loader alone."""
        names = self.model, self.batch_size, self.precision, self.loss_scale
        return Cell(*names) if self.precision else None


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

    def windows_of(self, cell: Cell) -> list[CellWindow]:
        """The timed windows of one cell, in order of measurement."""
        return [window for window in self.windows if window.cell == cell]

    def medians_by_round(self, cell: Cell) -> dict[int, float]:
        """Round -> median period, ms; windows whose steps AMP all skipped are left out."""
        medians = {window.round: window.timed.median_ms for window in self.windows_of(cell)}
        return {number: median for number, median in medians.items() if median}

    def batch_times(
        self, source: SourceRecord, cell: Cell | None, workers: int | None = None
    ) -> list[float]:
        """Mean time of a batch through the loader, ms, by passage; without a cell it is alone."""
        wanted = source.workers if workers is None else workers
        through = [
            each
            for each in self.passages
            if (each.model, each.batch_size) == (source.model, source.batch_size)
            and each.workers == (wanted or 0)
        ]
        starts = [each.start_ms for each in through if each.start_ms is not None]
        start_ms = sum(starts) / len(starts) if starts else 0.0
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
    peak_bytes: int | None
    peak_how: str
    skipped: int | None
    loss_scale_end: float | None
    marks: Sequence[LossMark]
    reserved_bytes: int | None = None
    occupied_bytes: int | None = None
    error: str = ""


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
        rows = {
            (row.source.model, row.source.batch_size): row
            for row in self.loaders
            if row.num_workers == (row.source.workers or 0)
        }
        return rows.get(cell.source)


# Keys are those of `profile/1` (docs/precision.md). Only the measurement is read again, and unknown
# keys are ignored; every key is written, `null` where nothing was measured.

Document: TypeAlias = dict[str, Any]  # JSON types by key
T = TypeVar("T")


def table_as_dict(table: PrecisionTable) -> Document:
    """The value of the session's key `precision`."""
    return {
        **measurement_as_dict(table.measurement),
        "rows": [_plain(row, "cell") for row in table.rows],
        "loaders": [_plain(row, "source") for row in table.loaders],
        "crossings": _plain(table.crossings),
        "sentences": list(table.sentences),
    }


def measurement_as_dict(measurement: Measurement) -> Document:
    """Only what was measured."""
    cells = [_plain(cell, "cell", "probe") for cell in measurement.cells]
    windows = [_plain(window, "cell", "timed") for window in measurement.windows]
    whole: Document = _plain(measurement)
    return whole | {"cells": cells, "windows": windows}


def _plain(value: Any, *beside: str) -> Any:
    """JSON types; the keys of the fields named in `beside` stand beside the other fields."""
    if isinstance(value, Interval):
        ends = {"low": value.low, "high": value.high}
        known = {name: end if math.isfinite(end) else None for name, end in ends.items()}
        return {"value": value.value, **known, "n": value.n}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if not is_dataclass(value):
        return value
    data = {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    for name in beside:
        data |= data.pop(name)
    return data


def measurement_from_dict(data: Mapping[str, Any]) -> Measurement:
    """Inverse of `measurement_as_dict`; also reads it out of a whole table."""
    return Measurement(
        data["backend"],
        data["device"],
        data["device_name"],
        _read(Recipe, data["recipe"]),
        data["flags"],
        [_read(ProbedCell, cell | _losses(cell)) for cell in data["cells"]],
        [_read(SourceRecord, source) for source in data["sources"]],
        [_read(LargestBatch, largest) for largest in data["largest"]],
        [_read(CellWindow, window) for window in data["windows"]],
        [_read(Passage, passage) for passage in data["passages"]],
        data.get("cores", 0),
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
