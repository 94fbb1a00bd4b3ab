"""From measured windows to the table: means with intervals, loss parity, peak memory by cell.

Pure functions over a `Measurement`, so that a saved session can be summarised again. Means, not
medians: stalls are heavy-tailed. Intervals are BCa over the repeats, because steps inside one
window are not independent. The data stall is (T_W - T_D) / T_W, signed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from pipeline_profiler.diagnose.intervals import Interval, mean_interval
from pipeline_profiler.precision.cell import RESIDENT, WARM, Cell
from pipeline_profiler.precision.measurement import (
    LoaderPass,
    Measurement,
    ProbedCell,
    SourceRecord,
)
from pipeline_profiler.precision.table import LoaderRow, Parity, Rate, Row, StepTimes

MOST_EXPONENT = 700.0  # exp() of more overflows a double


def make_rows(measurement: Measurement) -> list[Row]:
    """One row per cell, in the order they were planned."""
    return [_make_row(measurement, probed) for probed in measurement.cells]


def _make_row(measurement: Measurement, probed: ProbedCell) -> Row:
    cell, probe = probed.cell, probed.probe
    synthetic = measurement.means_by_block(cell, RESIDENT)
    fed = measurement.means_by_block(cell, WARM)
    visits = measurement.visits_of(cell)
    skipped_timed = sum(len(v.window.skipped) for v in visits)
    skipped_warmup = sum(v.window.warmup_skipped for v in visits)
    return Row(
        cell,
        probe.status,
        probe.sentence,
        probed.tiny,
        step=summarise_steps(measurement, cell, RESIDENT),
        fed=summarise_steps(measurement, cell, WARM),
        synthetic_per_s=samples_per_second(synthetic, cell.batch_size),
        loader_per_s=samples_per_second(fed, cell.batch_size),
        stall=data_stall(synthetic, fed),
        peak_bytes=probe.peak_bytes,
        peak_how=probe.peak_how,
        # None, not 0, without a loss scale: nothing could have been skipped
        skipped=probe.skipped + skipped_timed + skipped_warmup if cell.loss_scale else None,
        skipped_timed=skipped_timed,
        loss_scale_end=probe.scale,
        parity=compare_losses(probed),
        warmup_s=round(probe.seconds + sum(v.window.warmup_s for v in visits), 3),
        graphs=probe.graphs,
        recompiled=sum(v.recompiled for v in visits),
        reserved_bytes=probe.reserved_bytes,
        occupied_bytes=probe.occupied_bytes,
    )


def data_stall(synthetic: Mapping[int, float], fed: Mapping[int, float]) -> Interval | None:
    """Share of the fed step that the same step on batches in hand does not need."""
    both = sorted(set(synthetic) & set(fed))
    if not both:
        return None
    # Paired inside each block, where heat and other programs slow both windows alike. Not cut at 0:
    # the mean of noise would become positive.
    return mean_interval([(fed[block] - synthetic[block]) / fed[block] for block in both])


def summarise_steps(measurement: Measurement, cell: Cell, arm: str) -> StepTimes | None:
    """Mean with interval over the repeats, and the quantiles of all single steps, ms."""
    blocks = measurement.means_by_block(cell, arm)
    if not blocks:
        return None
    # One mean per block, not all steps: steps of one window share heat and the loader's phase, and
    # as independent values they would give an interval that is far too narrow.
    mean = positive_mean(list(blocks.values()))
    steps = [ms for v in measurement.visits_of(cell) if v.arm == arm for ms in v.window.counted_ms]
    median, tail = np.quantile(steps, [0.5, 0.95]).tolist() if steps else (None, None)
    return StepTimes(
        mean.value, median, tail, _finite(mean.low), _finite(mean.high), mean.n, len(steps)
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def samples_per_second(blocks: Mapping[int, float], batch_size: int) -> Rate | None:
    """Samples per second with interval, from mean periods in ms by block."""
    if not blocks:
        return None
    # Mean of periods, inverted once: the mean of the blocks' rates would report more samples than
    # the run delivered (Jensen's inequality).
    period, samples = positive_mean(list(blocks.values())), batch_size * 1e3
    has_ends = period.low > 0 and math.isfinite(period.high)
    return Rate(
        samples / period.value,
        samples / period.high if has_ends else None,
        samples / period.low if has_ends else None,
        period.n,
    )


def positive_mean(values: Sequence[float], geometric: bool = False) -> Interval:
    """Mean with an interval above 0; two values, and geometric means, go through logarithms."""
    if not geometric and len(values) != 2:
        return mean_interval(values)
    # Two repeats leave Student's t one degree of freedom: +-12.7 standard errors reach below 0 for
    # almost any pair. Times are positive and errors multiply them, hence logarithms.
    logs = mean_interval([math.log(v) for v in values])
    value = math.exp(logs.value) if geometric else float(np.mean(values))
    if not math.isfinite(logs.half_width):
        return Interval(value, logs.low, logs.high, logs.n)
    high = math.exp(min(logs.high, MOST_EXPONENT))
    return Interval(value, math.exp(logs.low), high, logs.n)


# ---- losses ----


def compare_losses(probed: ProbedCell) -> Parity:
    """Loss after k steps and how far it is from FP32 with the same seed, as a share of FP32's.

    None where there is no FP32 run to compare with, and for FP32 itself.
    """
    losses, reference = probed.probe.losses, probed.reference
    compared = probed.cell.precision != "fp32"
    apart = relative_distances(losses, reference) if compared else []
    chance = relative_distances(probed.floor, reference)
    return Parity(
        steps=len(losses),
        first=losses[0] if losses else None,
        last=losses[-1] if losses else None,
        # the largest on the way shows that two curves which meet at the end did not run together
        apart=apart[-1] if apart else None,
        apart_most=float(np.max(apart)) if apart else None,
        floor=chance[-1] if chance else None,
    )


def relative_distances(losses: Sequence[float], reference: Sequence[float]) -> list[float]:
    """|loss - reference| / |reference| at each common step."""
    count = min(len(losses), len(reference))
    ours, theirs = np.asarray(losses[:count]), np.asarray(reference[:count])
    # relative, because the scale of a loss is the user's choice; 1e-12 for a loss of exactly 0
    distances: list[float] = (np.abs(ours - theirs) / np.maximum(np.abs(theirs), 1e-12)).tolist()
    return distances


# ---- loaders ----


def make_loader_row(measurement: Measurement, source: SourceRecord) -> LoaderRow:
    """What the loader delivers with no step running: an upper bound of what a run can get.

    The trainer's Python thread and the loader's workers share cores, so in a run it is less.
    """
    passes = [
        visit
        for visit in measurement.visits
        if isinstance(visit, LoaderPass)
        and (visit.model, visit.batch_size) == (source.model, source.batch_size)
        and visit.batches
    ]
    blocks = {each.block: each.elapsed_ms / each.batches for each in passes}
    return LoaderRow(source, samples_per_second(blocks, source.batch_size))
