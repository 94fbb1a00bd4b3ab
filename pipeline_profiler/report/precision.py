"""The precision sweep's part of a report: table, flags and sentences; its chart is precision_chart.

Reads the session's key `precision` once into a `PrecisionTable`; from there on every figure has a
type, and what was not measured is "n/a", never 0.
"""

from __future__ import annotations

from typing import TypedDict

from pipeline_profiler.diagnose.intervals import Interval
from pipeline_profiler.precision.cell import OWN_OPTIMIZER, name_precision
from pipeline_profiler.precision.document import table_from_dict
from pipeline_profiler.precision.measurement import ProbeResult
from pipeline_profiler.precision.sentences import format_percent
from pipeline_profiler.precision.table import PrecisionTable, Row, StepTimes
from pipeline_profiler.record.session import Session
from pipeline_profiler.report.precision_chart import draw_rates, format_number, format_rate

HEAD = (
    *("model", "batch", "precision", "step", "p50 / p95", "samples/s", "with loader", "stall"),
    *("peak memory", "skipped", "loss", "from FP32"),
)
CURVE_STEPS = 50  # as in the published tables


class Part(TypedDict, total=False):
    """The fields of one section of the report."""

    title: str
    lines: tuple[str, ...]
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    chart: str


def parts(session: Session) -> list[Part]:
    """Title, lines, head, rows and chart of each section; [] for other sessions."""
    saved = session.results.get("precision")
    if not saved:
        return []
    table = table_from_dict(saved)
    return [
        {
            "title": "Precision",
            "head": HEAD,
            "rows": tuple(format_row(row) for row in table.rows),
            "chart": draw_rates(table),
        },
        *_curves(table),
        {"title": "What the table says", "lines": (*table.sentences, explain_columns(table))},
        {"title": "What the precisions mean here", "lines": tuple(describe_flags(table))},
    ]


def _curves(table: PrecisionTable) -> list[Part]:
    """Loss and accuracy of the first steps, every CURVE_STEPS; none where nothing was trained."""
    trained = [probed for probed in table.measurement.cells if probed.probe.losses]
    if not trained:
        return []
    longest = max(len(probed.probe.losses) for probed in trained)
    marks = sorted({*range(CURVE_STEPS, longest, CURVE_STEPS), longest})
    rows = tuple(
        (
            *(probed.cell.model, str(probed.cell.batch_size), probed.cell.name),
            *(_at_mark(probed.probe, mark) for mark in marks),
        )
        for probed in trained
    )
    return [
        {
            "title": f"Loss / accuracy, mean of up to {CURVE_STEPS} steps (the batches in hand)",
            "head": ("model", "batch", "precision", *(f"step {mark}" for mark in marks)),
            "rows": rows,
        }
    ]


def _at_mark(probe: ProbeResult, mark: int) -> str:
    """'2.182 / 17.60 %' over the steps that end at the mark; n/a where it took fewer."""
    if len(probe.losses) < mark:
        return "n/a"
    begin = (mark - 1) // CURVE_STEPS * CURVE_STEPS
    losses, shares = probe.losses[begin:mark], probe.accuracies[begin:mark]
    accuracy = f"{100 * sum(shares) / len(shares):.2f} %" if shares else "n/a"
    return f"{sum(losses) / len(losses):.4g} / {accuracy}"


def explain_columns(table: PrecisionTable) -> str:
    """How to read the columns."""
    repeats = max((row.step.repeats for row in table.rows if row.step), default=0)
    return (
        f"Means with 95 % interval over {repeats} interleaved repeats on "
        f"{table.measurement.device_name}; "
        "samples/s with batches in hand, then with the loader attached, measured in one run. "
        "Warm-up and compilation are not in them; steps that AMP skipped are counted, not timed."
    )


def format_row(row: Row) -> tuple[str, ...]:
    """One line of the table, as text."""
    cell, parity = row.cell, row.parity
    head = (cell.model, str(cell.batch_size), cell.name + (" (tiny)" if row.tiny else ""))
    if row.status != "ok":
        word = {"oom": "out of memory"}.get(row.status, row.status)
        return (*head, word, *["n/a"] * (len(HEAD) - 4))
    return (
        *head,
        format_step(row.step),
        format_quantiles(row.step),
        format_rate(row.synthetic_per_s),
        format_rate(row.loader_per_s),
        format_share(row.stall),
        format_memory(row),
        "n/a" if row.skipped is None else str(row.skipped),
        "n/a" if parity.last is None else f"{parity.last:.4g}",
        "n/a" if parity.apart is None else format_percent(parity.apart),
    )


def format_step(step: StepTimes | None) -> str:
    """'12.3 ms (12.1 to 12.6)'."""
    if step is None:
        return "n/a"
    mean = f"{format_number(step.mean_ms)} ms"
    if step.low_ms is None or step.high_ms is None:
        return mean
    return f"{mean} ({format_number(step.low_ms)} to {format_number(step.high_ms)})"


def format_quantiles(step: StepTimes | None) -> str:
    """'12.2 / 13.0 ms'."""
    if step is None or step.p50_ms is None or step.p95_ms is None:
        return "n/a"
    return f"{format_number(step.p50_ms)} / {format_number(step.p95_ms)} ms"


def format_share(share: Interval | None) -> str:
    """'12% (10% to 14%)'; one repeat has no interval."""
    data = None if share is None else share.as_dict()
    if data is None or data["share"] is None:
        return "n/a"
    if data["low"] is None or data["high"] is None:
        return _whole_percent(data["share"])
    low, high = _whole_percent(data["low"]), _whole_percent(data["high"])
    return f"{_whole_percent(data['share'])} ({low} to {high})"


def _whole_percent(value: float) -> str:
    """Whole percent, without a minus before 0."""
    return f"{round(100 * value) + 0:d}%"


def format_memory(row: Row) -> str:
    """'812 MB'; on a GPU 'allocated / reserved / occupied', as '9.0 / 11.2 / 12.1 GB'."""
    if row.reserved_bytes is None or row.occupied_bytes is None or row.peak_bytes is None:
        return format_bytes(row.peak_bytes)
    parts = (row.peak_bytes, row.reserved_bytes, row.occupied_bytes)
    return f"{' / '.join(f'{part / 1e9:.2f}' for part in parts)} GB"


def format_bytes(count: int | None) -> str:
    """'812 MB', '13.0 GB'."""
    if count is None:
        return "n/a"
    return f"{count / 1e9:.1f} GB" if count >= 1e10 else f"{count / 1e6:,.0f} MB"


def describe_flags(table: PrecisionTable) -> list[str]:
    """One line per precision, then what holds for all."""
    measurement, recipe = table.measurement, table.measurement.recipe
    lines = [
        f"{name_precision(precision)}: {', '.join(_flag(k, v) for k, v in flags.items())}"
        for precision, flags in measurement.flags.items()
    ]
    nhwc = recipe.channels_last or measurement.backend == "keras"
    layout = "channels last (NHWC)" if nhwc else "contiguous (NCHW)"
    rate = "" if recipe.optimizer == OWN_OPTIMIZER else f" at {recipe.lr:g}"
    lines.append(
        f"all rows: {measurement.backend} on {measurement.device_name}, optimizer "
        f"{recipe.optimizer}{rate}, memory format {layout}, compiled: "
        f"{'yes' if recipe.compile else 'no'}, seed {recipe.seed}"
    )
    how = dict.fromkeys(row.peak_how for row in table.rows if row.status == "ok")
    lines += [f"peak memory: {text}" for text in how]
    if any(row.reserved_bytes is not None for row in table.rows):
        lines.append(
            "memory: allocated by training / reserved by torch's allocator / occupied on the "
            "device by everything, CUDA's context and other programs included"
        )
    return lines


def _flag(key: str, value: str | bool | int) -> str:
    text = ("on" if value else "off") if isinstance(value, bool) else value
    return f"{key.replace('_', ' ')} {text}"
