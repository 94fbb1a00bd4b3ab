"""What a sweep concludes: the rows of the table, the comparisons between them, the sentences.

Figures that were not measured are None, never 0. Times are in ms, rates in samples per second;
an `Interval` is a ratio or a share with its 95 % interval, infinite where one repeat gives none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline_profiler.diagnose.intervals import Interval
from pipeline_profiler.precision.cell import Cell, name_precision
from pipeline_profiler.precision.measurement import Measurement, SourceRecord


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
class Parity:
    """Loss of a row beside FP32's from the same seed; distances as a share of FP32's loss.

    `apart_most` is the largest distance on the way; `floor` the distance of FP32 from itself with
    nudged weights, which is what chance alone does.
    """

    steps: int
    first: float | None
    last: float | None
    apart: float | None
    apart_most: float | None
    floor: float | None = None


@dataclass(frozen=True)
class Row:
    """One line of the table; `sentence` says why there is nothing where the status is not ok."""

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
    parity: Parity
    warmup_s: float
    graphs: int
    recompiled: int
    reserved_bytes: int | None = None
    occupied_bytes: int | None = None


@dataclass(frozen=True)
class LoaderRow:
    """A data source and what its loader delivers with no step running: an upper bound."""

    source: SourceRecord
    loader_only_per_s: Rate | None

    @property
    def key(self) -> tuple[str, int]:
        """Model and batch size."""
        return self.source.model, self.source.batch_size


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

    @property
    def name(self) -> str:
        """'FP16 (scale 128)'."""
        return name_precision(self.precision, self.loss_scale)


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
        return next((row for row in self.loaders if row.key == cell.source), None)
