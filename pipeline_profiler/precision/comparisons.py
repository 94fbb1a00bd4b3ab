"""Ratios between rows: each precision against FP32, the largest batch against the smallest.

A ratio is taken inside each block first and averaged after, because the blocks of a sweep are
minutes apart: a machine that slows down changes both rows of a block alike and leaves their ratio.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pipeline_profiler.diagnose.intervals import Interval
from pipeline_profiler.precision.cell import RESIDENT, WARM, Cell
from pipeline_profiler.precision.measurement import Measurement
from pipeline_profiler.precision.rows import positive_mean
from pipeline_profiler.precision.table import Growth, Row, Speedup


def compare_with_fp32(measurement: Measurement, rows: Sequence[Row]) -> list[Speedup]:
    """Each row against the FP32 row of its model and batch size: compute and run."""
    bases = {row.cell.source: row.cell for row in rows if row.cell.precision == "fp32"}
    speedups = []
    for row in rows:
        base = bases.get(row.cell.source)
        if row.cell.precision == "fp32" or base is None:
            continue
        compute = _cell_ratio(measurement, base, row.cell, RESIDENT)
        run = _cell_ratio(measurement, base, row.cell, WARM)
        if compute is not None and run is not None:
            speedups.append(Speedup(row.cell, row.tiny, compute, run))
    return speedups


def compare_batch_sizes(measurement: Measurement, rows: Sequence[Row]) -> list[Growth]:
    """What the largest batch of a model and precision buys over the smallest, in samples/s."""
    by_kind: dict[tuple[str, str, str], list[Cell]] = {}
    for row in rows:
        # tiny rows have one step per window: too few to compare batch sizes by
        if row.step and row.fed and not row.tiny:
            kind = row.cell.model, row.cell.precision, row.cell.loss_scale
            by_kind.setdefault(kind, []).append(row.cell)
    growths = [_compare_extremes(measurement, cells) for cells in by_kind.values()]
    return [growth for growth in growths if growth is not None]


def _compare_extremes(measurement: Measurement, cells: Sequence[Cell]) -> Growth | None:
    smallest = min(cells, key=lambda cell: cell.batch_size)
    largest = max(cells, key=lambda cell: cell.batch_size)
    times = largest.batch_size / smallest.batch_size
    compute = _cell_ratio(measurement, smallest, largest, RESIDENT)
    run = _cell_ratio(measurement, smallest, largest, WARM)
    if times <= 1 or compute is None or run is None:
        return None
    return Growth(
        *(largest.model, largest.precision, largest.loss_scale),
        smallest.batch_size,
        largest.batch_size,
        # a step of the larger batch takes longer and holds `times` as many samples: the ratio of
        # periods times the ratio of sizes is the ratio of samples per second
        compute.scaled(times),
        run.scaled(times),
    )


def _cell_ratio(measurement: Measurement, base: Cell, cell: Cell, arm: str) -> Interval | None:
    """How many times as fast as the base one step is: its period is the divisor."""
    return paired_ratio(
        measurement.means_by_block(base, arm), measurement.means_by_block(cell, arm)
    )


def paired_ratio(above: Mapping[int, float], below: Mapping[int, float]) -> Interval | None:
    """Geometric mean of the ratios inside each block; None without a common block."""
    # blocks where either window is missing (out of memory, all steps skipped) have no pair
    both = sorted(set(above) & set(below))
    if not both:
        return None
    # On the log scale 2x and 0.5x are equally far from 1, so A against B is the inverse of B
    # against A; an arithmetic mean of ratios favours whichever row stands above.
    return positive_mean([above[block] / below[block] for block in both], geometric=True)
