"""From a measurement to the results of a session: rows, comparisons, sentences, in this order.

Pure functions over a `Measurement`. Means, because stalls are heavy-tailed; intervals are Student's
over repeats, and ratios are taken inside a block. Data stall: (T_W - T_D) / T_W, signed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pipeline_profiler.precision.table import (
    EarlyLosses,
    Growth,
    LargestBatch,
    LoaderRow,
    Measurement,
    PrecisionTable,
    ProbedCell,
    Rate,
    Row,
    SourceRecord,
    Speedup,
    StepTimes,
    table_as_dict,
)
from pipeline_profiler.precision.trainer import (
    PRECISION_NAMES,
    RESIDENT,
    WARM,
    Cell,
    name_precision,
)
from pipeline_profiler.profiling.diagnose.intervals import Interval, mean_interval

MOST_EXPONENT = 700.0  # exp() of more overflows a double


MOST_ABOVE = 1.05  # times a limit, which a rate may lie above it by chance
MIN_FED_STEPS = 8  # with the loader: fewer steps do not show that a rate is impossible
T_95 = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812)
"""One-sided 95 % quantiles of Student's t by degrees of freedom; the last holds for more."""


def impossible_rate(fed: Mapping[int, float], limits: Mapping[str, Mapping[int, float]]) -> str:
    """Return why a rate with the loader is an error of the measurement, "" if it can hold.

    `limits` and `fed`: ms a batch by block. The one-sided 95% limit must exceed `MOST_ABOVE`.
    """
    above = []
    for name, limit in limits.items():
        logs = [math.log(limit[block] / fed[block]) for block in sorted(limit.keys() & fed.keys())]
        if len(logs) < 2:
            continue
        spread = float(np.std(logs, ddof=1)) / math.sqrt(len(logs))
        low = float(np.mean(logs)) - T_95[min(len(logs) - 1, len(T_95)) - 1] * spread
        if low > math.log(MOST_ABOVE):
            above.append(f"{math.exp(float(np.mean(logs))):.2f} times the rate of {name}")
    return " and ".join(above)


def _make_row(measurement: Measurement, probed: ProbedCell) -> Row:
    cell, probe = probed.cell, probed.probe
    synthetic = measurement.means_by_block(cell, RESIDENT)
    fed = measurement.means_by_block(cell, WARM)
    limits = {
        "the step alone": synthetic,
        "the loader alone": measurement.loader_means(*cell.source),
    }
    visits = measurement.visits_of(cell)
    fed_steps = sum(visit.window.steps for visit in visits if visit.arm == WARM)
    error = impossible_rate(fed, limits) if fed_steps >= MIN_FED_STEPS else ""
    fed = {} if error else fed
    skipped_timed = sum(len(v.window.skipped) for v in visits)
    skipped_warmup = sum(v.window.warmup_skipped for v in visits)
    return Row(
        cell,
        probe.status,
        probe.sentence,
        probed.tiny,
        step=summarise_steps(measurement, cell, RESIDENT),
        fed=None if error else summarise_steps(measurement, cell, WARM),
        synthetic_per_s=samples_per_second(synthetic, cell.batch_size),
        loader_per_s=samples_per_second(fed, cell.batch_size),
        stall=data_stall(synthetic, fed),
        peak_bytes=probe.peak_bytes,
        peak_how=probe.peak_how,
        # None, not 0, without a loss scale: nothing could have been skipped
        skipped=probe.skipped + skipped_timed + skipped_warmup if cell.loss_scale else None,
        skipped_timed=skipped_timed,
        loss_scale_end=probe.scale,
        early=read_losses(probe.losses),
        warmup_s=round(probe.seconds + sum(v.window.warmup_s for v in visits), 3),
        graphs=probe.graphs,
        recompiled=sum(v.recompiled for v in visits),
        reserved_bytes=probe.reserved_bytes,
        occupied_bytes=probe.occupied_bytes,
        error=error,
    )


def data_stall(synthetic: Mapping[int, float], fed: Mapping[int, float]) -> Interval | None:
    """Share of the fed step that the same step on batches in hand does not need."""
    # Paired inside each block, where heat and other programs slow both windows alike. Not cut at 0:
    # the mean of noise would become positive.
    shares = [(fed[b] - synthetic[b]) / fed[b] for b in sorted(synthetic.keys() & fed.keys())]
    return mean_interval(shares) if shares else None


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


def read_losses(losses: Sequence[float]) -> EarlyLosses:
    """Return the first and the last of a row's losses."""
    first, last = (losses[0], losses[-1]) if losses else (None, None)
    return EarlyLosses(len(losses), first, last)


def make_loader_row(measurement: Measurement, source: SourceRecord) -> LoaderRow:
    """Return what the loader delivers alone: an upper bound of the throughput of a training."""
    blocks = measurement.loader_means(source.model, source.batch_size)
    return LoaderRow(source, samples_per_second(blocks, source.batch_size))


def compare_with_fp32(measurement: Measurement, rows: Sequence[Row]) -> list[Speedup]:
    """Each row against the FP32 row of its model and batch size: compute and run."""
    sound = [row for row in rows if not row.error]
    bases = {row.cell.source: row.cell for row in sound if row.cell.precision == "fp32"}
    speedups = []
    for row in sound:
        base = bases.get(row.cell.source)
        if base is not None and row.cell.precision != "fp32":
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
    ratios = [above[block] / below[block] for block in sorted(above.keys() & below.keys())]
    # On the log scale 2x and 0.5x are equally far from 1, so A against B is the inverse of B
    # against A; an arithmetic mean of ratios favours whichever row stands above.
    return positive_mean(ratios, geometric=True) if ratios else None


AT_ITS_LIMIT = 0.9  # of what the loader delivers with no step running


def write_sentences(table: PrecisionTable) -> list[str]:
    """All sentences, the speed first."""
    measured = [row for row in table.rows if row.status == "ok"]
    return [
        *list_errors(measured),
        *compare_speeds(table),
        *state_demands(table, measured),
        *compare_sizes(table.growths),
        *compare_loss_scales(measured),
        *list_problems(table.rows),
        *describe_largest(table.measurement.largest),
    ]


def list_errors(measured: Sequence[Row]) -> Iterator[str]:
    """The rates with the loader that no loop can reach."""
    for row in measured:
        if row.error:
            yield (
                f"{row.cell.model}, batch {row.cell.batch_size}, {row.cell.name}: error of the "
                f"measurement: with the loader it is {row.error}, beyond the noise, which no loop "
                "can be. No speed-up and no data stall follow from it: measure again with more "
                "steps (`--set measure.steps=N`)."
            )


def format_ratio(ratio: Interval) -> str:
    """'2.1x faster (2.0 to 2.2)', '9.0x slower', or that it cannot be told from noise."""
    value, low, high = ratio.value, ratio.low, ratio.high
    if not (math.isfinite(low) and math.isfinite(high)):
        return f"{value:.2f}x as fast (one repeat: no interval)"
    # the whole interval must lie on one side of 1: anything else may be noise
    if low > 1:
        return f"{value:.2f}x faster ({low:.2f} to {high:.2f})"
    if high < 1 and low > 0:
        # turned round, so that a reader need not divide; the ends change places
        return f"{1 / value:.2f}x slower ({1 / high:.2f} to {1 / low:.2f})"
    return f"no faster or slower beyond the noise ({value:.2f}x, {low:.2f} to {high:.2f})"


def compare_speeds(table: PrecisionTable) -> Iterator[str]:
    """What each precision buys over FP32, with the loader attached, and what it asks of it."""
    rows = {row.cell: row for row in table.rows}
    for speedup in table.speedups:
        cell = speedup.cell
        row, loader = rows[cell], table.loader_of(cell)
        head = f"{cell.model}, batch {cell.batch_size}: {cell.name} makes the compute "
        text = f"{head}{format_ratio(speedup.compute)} and the run {format_ratio(speedup.run)}"
        if row.tiny:
            yield f"{text}. This is the tiny row: it says nothing about a GPU."
        else:
            yield f"{text}{name_reason(speedup, row, loader)}; {state_demand(row, loader)}"


def name_reason(speedup: Speedup, row: Row, loader: LoaderRow | None) -> str:
    """Why the run gains less than the compute; '' where that cannot be told from noise."""
    compute, run = speedup.compute, speedup.run
    if not math.isfinite(run.high) or compute.low <= 1 or run.high >= compute.low:
        return ""
    used = None  # of what the loader delivers with no step running
    if loader is not None and loader.alone_per_s and row.loader_per_s:
        used = row.loader_per_s.value / loader.alone_per_s.value
    # the stronger reason first: a loader near its limit explains the stall as well
    if used is not None and used >= AT_ITS_LIMIT:
        return f", because the loader is at {used:.0%} of its limit"
    # a stall whose interval reaches 0 may be noise and is no reason; an unknown end is -inf
    if row.stall is None or row.stall.low <= 0:
        return ""
    limit = "" if used is None else f" (the loader is at {used:.0%} of what it delivers alone)"
    return f", because {row.stall.value:.0%} of the step is data stall{limit}"


def state_demand(row: Row, loader: LoaderRow | None) -> str:
    """How much the loader would have to deliver for this row's compute."""
    need = row.synthetic_per_s.value if row.synthetic_per_s else math.nan
    text = f"the loader would have to deliver {need:,.0f} samples/s"
    if loader is None or not loader.alone_per_s:
        return f"{text}."
    # Measured without a step beside it, the loader's rate is an upper bound: below the need it
    # proves that the loader is too slow, above it it proves nothing, and the words differ.
    most = loader.alone_per_s.value
    compared = "and delivers at most" if most < need else "and delivers, with the cores to itself,"
    return f"{text} {compared} {most:,.0f}."


def state_demands(table: PrecisionTable, measured: Sequence[Row]) -> Iterator[str]:
    """Rows that no comparison speaks of: what they ask of the loader."""
    compared = {speedup.cell.source for speedup in table.speedups}
    for row in measured:
        cell = row.cell
        if cell.source not in compared and row.synthetic_per_s:
            stall = (
                "" if row.stall is None else f", {row.stall.value:.0%} of the step is data stall"
            )
            head = f"{cell.model}, batch {cell.batch_size}, {cell.name}"
            yield f"{head}{stall}; {state_demand(row, table.loader_of(cell))}"


def compare_sizes(growths: Sequence[Growth]) -> Iterator[str]:
    """From the smallest to the largest batch of a model and precision."""
    for growth in growths:
        name = name_precision(growth.precision, growth.loss_scale)
        head = f"{growth.model}, {name}: from batch {growth.smallest} to {growth.largest}"
        compute, run = format_ratio(growth.compute), format_ratio(growth.run)
        yield f"{head} the compute is {compute} in samples/s and the run {run}."


def compare_loss_scales(measured: Sequence[Row]) -> Iterator[str]:
    """Whether the loss scale made a difference to the step."""
    by_source: dict[tuple[str, int], list[tuple[Row, StepTimes]]] = {}
    for row in measured:
        if row.cell.precision == "fp16" and row.step:
            by_source.setdefault(row.cell.source, []).append((row, row.step))
    for (model, size), rows in by_source.items():
        if len(rows) > 1:
            yield f"{model}, batch {size}: {_compare_scales(rows)}"


def _compare_scales(timed: Sequence[tuple[Row, StepTimes]]) -> str:
    rows, steps = zip(*timed, strict=True)
    periods = [step.mean_ms for step in steps]
    # All intervals share a point exactly when the highest low end is not above the lowest high
    # end; an unknown end excludes nothing.
    low, high = (step.low_ms or 0.0 for step in steps), (step.high_ms or math.inf for step in steps)
    verdict = (
        "no difference to the step beyond the noise" if max(low) <= min(high) else "a difference"
    )
    scales = ", ".join(row.cell.loss_scale for row in rows)
    skips = ", ".join(str(row.skipped) for row in rows)
    return (
        f"loss scales {scales} make {verdict} ({min(periods):.1f} to {max(periods):.1f} ms); "
        f"skipped steps {skips}."
    )


def list_problems(rows: Sequence[Row]) -> Iterator[str]:
    """Rows that could not be measured, with what to do; those with one reason together."""
    alike: dict[str, list[Cell]] = {}
    for row in rows:
        if row.status != "ok":
            alike.setdefault(row.sentence, []).append(row.cell)
    for sentence, cells in alike.items():
        names = [f"{cell.model}, batch {cell.batch_size}, {cell.name}" for cell in cells]
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        yield f"{names[0]}{more}: {sentence}"


def describe_largest(largest: Sequence[LargestBatch]) -> Iterator[str]:
    """The largest batch that fits, by model and precision."""
    for each in largest:
        limit = " (the limit of the search)" if each.limit_reached else ""
        trouble = f"; {each.trouble[0]}" if each.trouble else ""
        yield (
            f"{each.model}, {PRECISION_NAMES[each.precision]}: the largest batch that fits is "
            f"{each.batch_size:,}{limit}, to 2%, found in {len(each.trials)} trials{trouble}."
        )


def summarise(measurement: Measurement) -> PrecisionTable:
    """Everything that follows from a measurement."""
    rows = [_make_row(measurement, probed) for probed in measurement.cells]
    table = PrecisionTable(
        measurement,
        rows,
        # a source with a problem delivered nothing: its rows carry the sentence
        [make_loader_row(measurement, s) for s in measurement.feeds if not s.problem],
        compare_with_fp32(measurement, rows),
        compare_batch_sizes(measurement, rows),
        sentences=(),
    )
    return replace(table, sentences=write_sentences(table))


def as_results(table: PrecisionTable) -> dict[str, Any]:
    """The results of a session: verdict, the first sentence, and `precision` with everything."""
    first = table.sentences[0] if table.sentences else "No row could be measured."
    return {"verdict": "precision", "sentence": first, "precision": table_as_dict(table)}
