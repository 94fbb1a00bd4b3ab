"""From a measurement to the results of a session: rows, loaders, crossings, the answer.

Pure functions over a `Measurement`. The step on preloaded batches is the geometric mean of window
medians, and its ratios are paired by round. With the loader, sums over passages count.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, zip_longest
from operator import itemgetter
from typing import Any

import numpy as np

from dataset_preflight.foundation.text import format_number
from pipeline_profiler.precision.estimate import (
    LOOKS,
    MIN_WINDOWS,
    is_inconclusive,
    paired_ratio,
    relative_half_width,
    unpaired_ratio,
    window_mean,
    windows_to_settle,
)
from pipeline_profiler.precision.table import (
    Crossing,
    LargestBatch,
    LoaderRow,
    LossMark,
    Measurement,
    PrecisionTable,
    ProbedCell,
    ProbeResult,
    Row,
    SourceRecord,
    as_document,
)
from pipeline_profiler.precision.trainer import DYNAMIC, PRECISION_NAMES, Cell, name_precision
from pipeline_profiler.profiling.diagnose.intervals import Interval
from pipeline_profiler.profiling.diagnose.throughput import (
    explain_excess,
    limit_rate,
)

INPUT_BOUND = 1.05  # times the step on preloaded batches
FED = 0.1  # the data stall below which a loader feeds a step
LAUNCH_BOUND = 1.2  # times as long for twice the batch
MARK_STEPS = 50
WINDOW_STEPS = 13  # of a window, the untimed ones included
ALIKE = 1.03  # precisions that are recommended together differ by less


@dataclass(frozen=True)
class Timing:
    """The times of one cell, ms a batch: `preloaded` by round, `fed` by passage in time order.

    `fed` is shared by the cells of a source that its loader limits.
    """

    preloaded: Mapping[int, float]
    fed: Sequence[float]
    is_input_bound: bool

    @property
    def steps(self) -> list[float]:
        """The preloaded times in the order of rounds."""
        return [self.preloaded[number] for number in sorted(self.preloaded)]


def time_cells(measurement: Measurement) -> dict[Cell, Timing]:
    """The times of each cell that was measured; input-bound cells share the loader's times."""
    timings: dict[Cell, Timing] = {}
    bound: dict[tuple[str, int], list[Cell]] = {}
    for cell in (probed.cell for probed in measurement.cells):
        source = measurement.source_of(cell)
        preloaded = measurement.medians_by_round(cell)
        fed = measurement.batch_times(source, cell) if source else []
        timing = timings[cell] = Timing(preloaded, fed, False)
        if fed and preloaded and unpaired_ratio(fed, timing.steps).low > INPUT_BOUND:
            timings[cell] = replace(timing, is_input_bound=True)
            bound.setdefault(cell.source, []).append(cell)
    # the input-bound cells of a source, as far as they agree with the fastest, get one list
    for cells in bound.values():
        fastest = min((timings[cell].fed for cell in cells), key=lambda fed: sum(fed) / len(fed))
        alike = [cell for cell in cells if unpaired_ratio(timings[cell].fed, fastest).low <= 1]
        # a passage of each cell in turn, as they were measured: neighbours may agree
        turns = zip_longest(*(timings[cell].fed for cell in alike))
        whole = [ms for turn in turns for ms in turn if ms is not None]
        timings |= {cell: replace(timings[cell], fed=whole) for cell in alike}
    return timings


def samples_per_s(batch_ms: Sequence[float], batch_size: int) -> Interval | None:
    """The rate of times of a batch; None without any."""
    if not batch_ms:
        return None
    samples, mean = 1e3 * batch_size, window_mean(batch_ms)
    low, high = -math.inf, math.inf
    if math.isfinite(mean.high):
        low, high = samples / mean.high, samples / mean.low
    return Interval(samples / mean.value, low, high, mean.n)


def stall_share(fed: Sequence[float], preloaded: Sequence[float]) -> Interval:
    """Share of the step time with the loader that the step on preloaded batches does not need."""
    slower = unpaired_ratio(fed, preloaded)
    low, high = ((1 - 1 / end) if end > 0 else end for end in (slower.low, slower.high))
    return Interval(1 - 1 / slower.value, low, 1.0 if math.isinf(slower.high) else high, slower.n)


def _make_row(measurement: Measurement, probed: ProbedCell, timings: Mapping[Cell, Timing]) -> Row:
    cell, probe, timing = probed.cell, probed.probe, timings[probed.cell]
    source = measurement.source_of(cell)
    alone = measurement.batch_times(source, None) if source else []
    limits = {"the step alone": timing.steps, "the loader alone": alone}
    error = explain_excess(
        {name: unpaired_ratio(limit, timing.fed) for name, limit in limits.items()}
    )
    fed = [] if error else timing.fed
    step_ms = window_mean(timing.steps) if timing.steps else None
    preloaded_per_s, alone_per_s, fed_per_s = (
        samples_per_s(times, cell.batch_size) for times in (timing.steps, alone, fed)
    )
    if fed_per_s:
        fed_per_s = limit_rate(fed_per_s, [alone_per_s, preloaded_per_s])
    epoch = source.epoch_batches * cell.batch_size if source and source.epoch_batches else None
    windows = [each.timed for each in measurement.windows if each.cell == cell]
    skipped = sum(timed.warmup_skipped + len(timed.skipped) for timed in windows)
    skipped += probe.skipped + sum(p.skipped for p in measurement.passages if p.cell == cell)
    base = replace(cell, precision="fp32", loss_scale="")
    basis = None if cell == base else timings.get(base)
    speedup = paired_ratio(basis.preloaded, timing.preloaded) if basis else None
    return Row(
        cell,
        probe.status,
        probe.sentence,
        step_ms,
        preloaded_per_s=preloaded_per_s,
        with_loader_per_s=fed_per_s,
        stall=stall_share(fed, timing.steps) if fed and timing.steps else None,
        speedup=speedup,
        speedup_with_loader=unpaired_ratio(basis.fed, fed) if basis and basis.fed and fed else None,
        is_input_bound=timing.is_input_bound,
        is_launch_bound=_is_launch_bound(cell, timings),
        needed_s=_needed_s(speedup, step_ms, window_mean(fed) if fed else None, probe, source),
        epoch_s=epoch / fed_per_s.value if epoch and fed_per_s else None,
        peak=probe.peak,
        # None, not 0, without a loss scale: nothing could have been skipped
        skipped=skipped if cell.loss_scale else None,
        loss_scale_end=probe.scale,
        marks=loss_marks(probe),
        error=error,
    )


def _is_launch_bound(cell: Cell, timings: Mapping[Cell, Timing]) -> bool:
    """Whether about twice the batch takes less than LAUNCH_BOUND times as long."""
    sizes = [
        other.batch_size
        for other, timing in timings.items()
        if replace(other, batch_size=cell.batch_size) == cell and timing.preloaded
    ]
    larger = min((size for size in sizes if size >= 2 * cell.batch_size), default=0)
    if not larger or larger > 2.5 * cell.batch_size:
        return False
    ratio = paired_ratio(
        timings[replace(cell, batch_size=larger)].preloaded, timings[cell].preloaded
    )
    return ratio is not None and not is_inconclusive(ratio) and ratio.value < LAUNCH_BOUND


def _needed_s(
    speedup: Interval | None,
    step_ms: Interval | None,
    fed_ms: Interval | None,
    probe: ProbeResult,
    source: SourceRecord | None,
) -> float:
    """Seconds of more windows and passages that make an inconclusive row conclusive."""
    needed = 0.0
    wide = [each for each in (speedup, step_ms) if each is not None and is_inconclusive(each)]
    if wide and step_ms is not None:
        windows = min(LOOKS[-1], max(map(windows_to_settle, wide)))
        needed += windows * (probe.setup_s + WINDOW_STEPS * step_ms.value / 1e3)
    if fed_ms is not None and source is not None and is_inconclusive(fed_ms):
        batches = max(WINDOW_STEPS, 2 * source.in_flight, source.epoch_batches or 0)
        passages = min(LOOKS[-1], windows_to_settle(fed_ms))
        needed += passages * (probe.setup_s + batches * fed_ms.value / 1e3)
    return needed


def loss_marks(probe: ProbeResult) -> list[LossMark]:
    """Means of the losses and accuracies, every MARK_STEPS steps and after the last step."""
    marks = []
    for begin in range(0, len(probe.losses), MARK_STEPS):
        losses = probe.losses[begin : begin + MARK_STEPS]
        shares = probe.accuracies[begin : begin + MARK_STEPS]
        accuracy = float(np.mean(shares)) if shares else None
        marks.append(LossMark(begin + len(losses), float(np.mean(losses)), accuracy))
    return marks


def _make_loader_rows(measurement: Measurement) -> Iterator[LoaderRow]:
    """What each loader delivers alone, for each number of workers that was tried."""
    for source in measurement.sources:
        alone = Cell(source.model, source.batch_size, "")
        through = [each for each in measurement.passages if each.cell == alone]
        for workers in sorted({each.workers for each in through}):
            starts = [each.start_ms for each in through if each.workers == workers]
            known = [start / 1e3 for start in starts if start is not None]
            start_s = sum(known) / len(known) if known else None
            times = measurement.batch_times(source, None, workers)
            if rate := samples_per_s(times, source.batch_size):
                yield LoaderRow(source, workers, rate, start_s)


def find_crossings(rows: Sequence[Row], table: PrecisionTable) -> list[Crossing]:
    """Where each precision begins to need more than the loader delivers, by batch size."""
    kinds: dict[tuple[str, str, str], list[tuple[int, float, float, int | None]]] = {}
    for row in rows:
        loader = table.loader_of(row.cell)
        if row.preloaded_per_s and loader:
            kind = row.cell.model, row.cell.precision, row.cell.loss_scale
            needed, delivered = row.preloaded_per_s.value, loader.alone_per_s.value
            workers = needed_workers(row, loader)
            point = row.cell.batch_size, needed, needed / delivered, workers
            kinds.setdefault(kind, []).append(point)
    return [
        Crossing(*kind, *_cross([point[:3] for point in sorted(points)]), max(points)[3])
        for kind, points in kinds.items()
    ]


def _cross(points: Sequence[tuple[int, float, float]]) -> tuple[float | None, float]:
    """Batch size and needed rate where need over supply passes 1, on logarithmic scales."""
    size, needed, ratio = points[0]
    if ratio > 1:
        return size, needed
    for (size, needed, below), (next_size, next_needed, above) in pairwise(points):
        if above > 1:
            share = math.log(1 / below) / math.log(above / below)
            return size * (next_size / size) ** share, needed * (next_needed / needed) ** share
    return None, points[-1][1]


def needed_workers(row: Row, loader: LoaderRow | None) -> int | None:
    """Workers that would feed the row, if each delivers as much as now; None where enough do."""
    if loader is None or not loader.num_workers or row.preloaded_per_s is None:
        return None
    times = row.preloaded_per_s.value / loader.alone_per_s.value
    return math.ceil(times * loader.num_workers) if times > 1 else None


# ---- sentences ----


def format_times(ratio: Interval) -> str:
    """'4.0x (95% CI 3.9 to 4.1)'; without an interval the value alone."""
    value = f"{ratio.value:.2f}x"
    if not (math.isfinite(ratio.low) and math.isfinite(ratio.high)):
        return f"{value} (no interval: {ratio.n} windows)"
    return f"{value} (95% CI {ratio.low:.2f} to {ratio.high:.2f})"


def best_row(rows: Sequence[Row]) -> Row | None:
    """The row with the highest throughput on preloaded batches; conclusive rows come first.

    A fixed loss scale is a variant of FP16: it is not chosen where another row was measured.
    """

    def rank(row: Row) -> tuple[bool, bool, float]:
        rate = row.preloaded_per_s.value if row.preloaded_per_s else 0.0
        return not is_inconclusive(_deciding(row)), row.cell.loss_scale in ("", DYNAMIC), rate

    measured = [r for r in rows if r.status == "ok" and r.preloaded_per_s and not r.error]
    return max(measured, key=rank, default=None)


def _deciding(row: Row) -> Interval:
    """The figure that a recommendation rests on: the ratio to FP32, without one the step."""
    return row.speedup or row.step_ms or Interval(math.nan, -math.inf, math.inf)


def write_answer(table: PrecisionTable, model: str) -> list[str]:
    """Which precision and batch size to use for a model, and what the loader makes of it."""
    rows = [row for row in table.rows if row.cell.model == model]
    best = best_row(rows)
    if best is None:
        return [f"{model}: no row could be measured."]
    at = f"at batch {best.cell.batch_size}"
    feeding = _describe_feeding(table, best)
    if is_inconclusive(_deciding(best)):
        number = _deciding(best).n
        few = f"are {number}, and an interval needs {MIN_WINDOWS}"
        why = few if number < MIN_WINDOWS else "differ by more than 25%"
        return [
            f"Inconclusive: the windows of {best.cell.name} {at} {why}; about "
            f"{best.needed_s:.0f} s more would settle it (`--seconds`)."
        ]
    if best.cell.precision == "fp32" or best.speedup is None:
        here = [row for row in rows if row.cell.source == best.cell.source]
        others = [f"{r.cell.name} {format_times(r.speedup)}" for r in here if r.speedup]
        slower = f"no other precision is faster ({', '.join(others)})" if others else "no other row"
        rate = f"{format_rate(best.preloaded_per_s)} samples/s on preloaded batches"
        if best.cell.precision != "fp32":
            return [f"{best.cell.name} {at}: {rate}; no FP32 row.", *feeding]
        return [f"Use FP32 {at} ({rate}): {slower}.", *feeding]
    if best.speedup.low <= 1:
        slower = f"{best.cell.name} is not faster beyond the noise: {format_times(best.speedup)}"
        return [f"Stay with FP32 {at}: {slower}.", *feeding]
    names = " or ".join(row.cell.name for row in _equals(rows, best))
    gain = f"{format_times(best.speedup)} the throughput of FP32 on preloaded batches"
    through = best.speedup_with_loader
    if through is not None and through.low <= 1 and best.is_input_bound:
        head = f"Fix the loader first: {names} {at} would have {gain}"
        return [f"{head}, and {through.value:.2f}x with the loader.", *feeding]
    end = f", {format_times(through)} with the loader" if through is not None else ""
    return [f"Use {names} {at}: {gain}{end}.", *feeding]


def _equals(rows: Sequence[Row], best: Row) -> list[Row]:
    """The rows at the same batch size that are as fast as the best one, the best one first."""
    fastest = best.preloaded_per_s.value if best.preloaded_per_s else math.inf
    usual = [each for each in rows if each.cell.loss_scale in ("", DYNAMIC)]
    here = [each for each in usual if each.cell.source == best.cell.source]
    rates = [(each.preloaded_per_s.value, each) for each in here if each.preloaded_per_s]
    ranked = sorted(rates, key=itemgetter(0), reverse=True)
    return [each for rate, each in ranked if rate * ALIKE > fastest] or [best]


def _describe_feeding(table: PrecisionTable, best: Row) -> list[str]:
    """Whether the loader feeds the best row, and how many workers would."""
    loader = table.loader_of(best.cell)
    if loader is None or best.with_loader_per_s is None:
        return []
    setting, stall = f"num_workers={loader.num_workers}", best.stall
    size = "n/a" if stall is None else f"{max(0.0, stall.value):.0%}"
    if not best.is_input_bound:
        is_fed = stall is not None and stall.high < FED
        verdict = "the loader feeds it" if is_fed else "it is inconclusive if the loader feeds it"
        return [f"With {setting} {verdict} (data stall {size})."]
    text = f"With {setting} the training is input-bound (data stall {size})."
    tried = [
        row
        for row in table.loaders
        if row.source == loader.source and best.preloaded_per_s
        and row.alone_per_s.value > best.preloaded_per_s.value
    ]  # fmt: skip
    needed, cores = needed_workers(best, loader), table.measurement.cores
    if tried:
        text += f" num_workers={tried[0].num_workers} delivers enough (tried, loader alone)."
    elif needed is not None and needed > max(cores, 1):
        text += f" It needs about {needed} workers (predicted); this machine has {cores} cores."
    elif needed is not None:
        text += f" num_workers={needed} would feed it (predicted, not tried)."
    return [text]


def format_rate(rate: Interval | None) -> str:
    """'1,840 ±2%' or '1,840'."""
    if rate is None:
        return "n/a"
    width = relative_half_width(rate)
    end = "" if math.isinf(width) else " ±>100%" if width > 1 else f" ±{width:.0%}"
    return f"{format_number(rate.value)}{end}"


def write_sentences(table: PrecisionTable) -> list[str]:
    """The answer for each model, then what is wrong, then facts of the rows."""
    models = dict.fromkeys(row.cell.model for row in table.rows)
    return [
        *(text for model in models for text in write_answer(table, model)),
        *list_errors(table.rows),
        *(text for model in models for text in list_crossings(table, model)),
        *list_launch_bound(table.rows),
        *list_problems(table.rows),
        *describe_largest(table.measurement.largest),
    ]


def list_errors(rows: Sequence[Row]) -> Iterator[str]:
    """The rates with the loader that no loop can reach."""
    for row in rows:
        if row.error:
            yield (
                f"{row.cell.model}, batch {row.cell.batch_size}, {row.cell.name}: error of the "
                f"measurement: with the loader it is {row.error}, beyond the noise, which no loop "
                "can be. No speed-up and no data stall follow from it: give more `--seconds`."
            )


def list_crossings(table: PrecisionTable, model: str) -> Iterator[str]:
    """From which batch size the loader limits each precision of a model."""
    parts = []
    for crossing in table.crossings:
        if crossing.model != model:
            continue
        name, size = name_precision(crossing.precision, crossing.loss_scale), crossing.batch_size
        fed = f" ({crossing.workers} workers would feed it, predicted)" if crossing.workers else ""
        parts.append(f"{name} never" if size is None else f"{name} from batch {size:.0f}{fed}")
    if parts:
        yield f"crossing: {model} needs more than the loader delivers: {', '.join(parts)}"


def list_launch_bound(rows: Sequence[Row]) -> Iterator[str]:
    """One line with the cells where a larger batch costs nothing."""
    cells = [row.cell for row in rows if row.is_launch_bound]
    bound = [f"{cell.name} at batch {cell.batch_size}" for cell in cells]
    if bound:
        text = f"launch-bound (twice the batch takes about as long): {', '.join(bound)}"
        yield f"{text}; use a larger batch or --compile"


def list_problems(rows: Sequence[Row]) -> Iterator[str]:
    """Rows that could not be measured, with what to do; those with one reason together."""
    alike: dict[str, list[Cell]] = {}
    for row in rows:
        if row.status != "ok":
            alike.setdefault(row.sentence, []).append(row.cell)
    for sentence, cells in alike.items():
        first = cells[0]
        more = f" and {len(cells) - 1} more" if len(cells) > 1 else ""
        yield f"{first.model}, batch {first.batch_size}, {first.name}{more}: {sentence}"


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
    timings = time_cells(measurement)
    rows = [_make_row(measurement, probed, timings) for probed in measurement.cells]
    loaders = list(_make_loader_rows(measurement))
    table = PrecisionTable(measurement, rows, loaders, crossings=(), sentences=())
    table = replace(table, crossings=find_crossings(rows, table))
    return replace(table, sentences=write_sentences(table))


def as_results(table: PrecisionTable) -> dict[str, Any]:
    """The results of a session: verdict, the first sentence, and `precision` with everything."""
    first = table.sentences[0] if table.sentences else "No row could be measured."
    return {"verdict": "precision", "sentence": first, "precision": as_document(table)}
