"""What the table says, in sentences: what a precision or a bigger batch buys, and what it asks for.

A ratio is called a gain only when its whole interval lies on one side of 1. The run cannot be
faster than the loader (Amdahl for AMP), so each sentence about compute says what became of it with
the loader attached, why, and how many samples a second the loader would have to deliver.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from pipeline_profiler.diagnose.intervals import Interval
from pipeline_profiler.precision.cell import PRECISION_NAMES
from pipeline_profiler.precision.measurement import LargestBatch
from pipeline_profiler.precision.table import (
    Growth,
    LoaderRow,
    PrecisionTable,
    Row,
    Speedup,
    StepTimes,
)

AT_ITS_LIMIT = 0.9  # of what the loader delivers with no step running


def write_sentences(table: PrecisionTable) -> list[str]:
    """All sentences, the speed first."""
    measured = [row for row in table.rows if row.status == "ok"]
    return [
        *compare_speeds(table),
        *state_demands(table, measured),
        *compare_sizes(table.growths),
        *compare_loss_scales(measured),
        *describe_parity(measured),
        *list_problems(table.rows),
        *describe_largest(table.measurement.largest),
    ]


def format_percent(share: float) -> str:
    """'0.014 %', '2.1 %': two figures, down to what single precision resolves."""
    return "below 0.001 %" if 0 < share < 1e-5 else f"{100 * share:.2g} %"


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


# ---- speed ----


def compare_speeds(table: PrecisionTable) -> Iterator[str]:
    """What each precision buys over FP32, with the loader attached, and what it asks of it."""
    rows = {row.cell: row for row in table.rows}
    for speedup in table.speedups:
        cell = speedup.cell
        yield compare_speed(speedup, rows[cell], table.loader_of(cell))


def compare_speed(speedup: Speedup, row: Row, loader: LoaderRow | None) -> str:
    """The sentence of one precision."""
    cell = row.cell
    head = f"{cell.model}, batch {cell.batch_size}: {cell.name} makes the compute "
    text = f"{head}{format_ratio(speedup.compute)} and the run {format_ratio(speedup.run)}"
    if row.tiny:
        return f"{text}. This is the tiny row: it says nothing about a GPU."
    return f"{text}{name_reason(speedup, row, loader)}; {state_demand(row, loader)}"


def name_reason(speedup: Speedup, row: Row, loader: LoaderRow | None) -> str:
    """Why the run gains less than the compute; '' where that cannot be told from noise."""
    compute, run = speedup.compute, speedup.run
    if not math.isfinite(run.high) or compute.low <= 1 or run.high >= compute.low:
        return ""
    used = loader_utilisation(row, loader)
    # the stronger reason first: a loader near its limit explains the stall as well
    if used is not None and used >= AT_ITS_LIMIT:
        return f", because the loader is at {used:.0%} of its limit"
    # a stall whose interval reaches 0 may be noise and is no reason; an unknown end is -inf
    if row.stall is None or row.stall.low <= 0:
        return ""
    limit = "" if used is None else f" (the loader is at {used:.0%} of what it delivers alone)"
    return f", because {row.stall.value:.0%} of the step is data stall{limit}"


def loader_utilisation(row: Row, loader: LoaderRow | None) -> float | None:
    """Samples per second of the run over what the loader delivers with no step running."""
    if loader is None or not loader.loader_only_per_s or not row.loader_per_s:
        return None
    return row.loader_per_s.value / loader.loader_only_per_s.value


def state_demand(row: Row, loader: LoaderRow | None) -> str:
    """How much the loader would have to deliver for this row's compute."""
    need = row.synthetic_per_s.value if row.synthetic_per_s else math.nan
    text = f"the loader would have to deliver {need:,.0f} samples/s"
    if loader is None or not loader.loader_only_per_s:
        return f"{text}."
    # Measured without a step beside it, the loader's rate is an upper bound: below the need it
    # proves that the loader is too slow, above it it proves nothing, and the words differ.
    most = loader.loader_only_per_s.value
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
        head = f"{growth.model}, {growth.name}: from batch {growth.smallest} to {growth.largest}"
        compute, run = format_ratio(growth.compute), format_ratio(growth.run)
        yield f"{head} the compute is {compute} in samples/s and the run {run}."


# ---- losses ----


def compare_loss_scales(measured: Sequence[Row]) -> Iterator[str]:
    """Whether the loss scale made a difference, in time and in loss."""
    by_source: dict[tuple[str, int], list[tuple[Row, StepTimes, float]]] = {}
    for row in measured:
        if row.cell.precision == "fp16" and row.step and row.parity.last is not None:
            timed_row = row, row.step, row.parity.last
            by_source.setdefault(row.cell.source, []).append(timed_row)
    for (model, size), rows in by_source.items():
        if len(rows) > 1:
            yield f"{model}, batch {size}: {_compare_scales(rows)}"


def _compare_scales(rows: Sequence[tuple[Row, StepTimes, float]]) -> str:
    periods = [step.mean_ms for _, step, _ in rows]
    losses = [last for _, _, last in rows]
    apart = (max(losses) - min(losses)) / max(abs(min(losses)), 1e-12)
    # All intervals share a point exactly when the highest low end is not above the lowest high
    # end; an unknown end excludes nothing.
    overlap = max(step.low_ms or 0.0 for _, step, _ in rows) <= min(
        step.high_ms or math.inf for _, step, _ in rows
    )
    verdict = "no difference to the step beyond the noise" if overlap else "a difference"
    scales = ", ".join(row.cell.loss_scale for row, _, _ in rows)
    skips = ", ".join(str(row.skipped) for row, _, _ in rows)
    ends = ", ".join(f"{last:.4g}" for last in losses)
    return (
        f"loss scales {scales} make {verdict} ({min(periods):.1f} to {max(periods):.1f} ms); the "
        f"losses after {rows[0][0].parity.steps} steps are {ends}, {format_percent(apart)} apart"
        f"{_beside_chance(apart, [row.parity.floor for row, _, _ in rows])}, skipped steps {skips}."
    )


def _beside_chance(apart: float, floors: Sequence[float | None]) -> str:
    """The distance beside that of FP32 from itself; '' where that was not measured."""
    known = [floor for floor in floors if floor is not None]
    if not known:
        return ""
    words = "no farther than" if apart <= max(known) else "farther than"
    return f" ({words} FP32 from weights nudged by 1e-6, {format_percent(max(known))})"


def describe_parity(measured: Sequence[Row]) -> Iterator[str]:
    """How far the loss is from FP32: the farthest row of each model and precision."""
    farthest: dict[tuple[str, str], Row] = {}
    for row in measured:
        if row.parity.apart is None:
            continue
        key = row.cell.model, row.cell.precision
        # the farthest row speaks for all: an average would hide the one that diverges
        if key not in farthest or row.parity.apart > (farthest[key].parity.apart or 0.0):
            farthest[key] = row
    for row in farthest.values():
        yield _describe_distance(row)


def _describe_distance(row: Row) -> str:
    cell, parity = row.cell, row.parity
    # training magnifies any difference: without this yardstick every distance looks like a fault
    floor = parity.floor
    nudged = "FP32 from weights nudged by 1e-6"
    chance = "" if floor is None else f"; {nudged} is {format_percent(floor)} away"
    return (
        f"{cell.model}, {cell.name}: after {parity.steps} steps from one seed the loss is "
        f"{format_percent(parity.apart or 0.0)} from FP32's (batch {cell.batch_size}: "
        f"{parity.last:.4g}{chance})."
    )


# ---- what could not be measured, and memory ----


def list_problems(rows: Sequence[Row]) -> Iterator[str]:
    """Rows that could not be measured, each with what to do."""
    for row in rows:
        if row.status != "ok":
            cell = row.cell
            yield f"{cell.model}, batch {cell.batch_size}, {cell.name}: {row.sentence}"


def describe_largest(largest: Sequence[LargestBatch]) -> Iterator[str]:
    """The largest batch that fits, by model and precision."""
    for each in largest:
        limit = " (the limit of the search)" if each.limit_reached else ""
        trouble = f"; {each.trouble[0]}" if each.trouble else ""
        yield (
            f"{each.model}, {PRECISION_NAMES[each.precision]}: the largest batch that fits is "
            f"{each.batch_size}{limit}, found in {len(each.trials)} trials{trouble}."
        )
