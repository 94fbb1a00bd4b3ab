"""The precision sweep's part of a report: chart, table, flags and sentences.

The chart has two bars a row, in samples/s: preloaded batches, and with the loader. A whisker is the
95% CI, the dashed line the loader alone.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pipeline_profiler.precision.summary import summarise
from pipeline_profiler.precision.table import (
    LoaderRow,
    PrecisionTable,
    ProbeResult,
    Rate,
    Row,
    StepTimes,
    measurement_from_dict,
)
from pipeline_profiler.precision.trainer import OWN_OPTIMIZER, name_precision
from pipeline_profiler.profiling.diagnose.intervals import Interval
from pipeline_profiler.profiling.record.session import Session
from pipeline_profiler.report.section import Section

if TYPE_CHECKING:
    from markupsafe import Markup

HEAD = (
    *("model", "batch", "precision", "step", "p50 / p95", "samples/s", "with loader", "stall"),
    *("peak memory", "skipped", "loss"),
)
CURVE_STEPS = 50  # as in the published tables


TITLE = "Samples/s by row: preloaded batches, and with the loader attached"
NAMES = ("preloaded batches", "with the loader")
LABEL, ROW, BAR, RIGHT = 230, 40, 13, 720  # px: labels, a row, a bar, the chart's width
DASHED = 'stroke="#D55E00" stroke-width="2" stroke-dasharray="4 2"'


def precision_sections(session: Session) -> list[Section]:
    """The sections of a precision sweep; [] for other sessions."""
    saved = session.results.get("precision")
    if not saved:
        return []
    table = summarise(measurement_from_dict(saved))
    rows = tuple(format_row(row) for row in table.rows)
    said = (*table.sentences, explain_columns(table))
    return [
        Section("Precision", (), HEAD, rows, partial(draw_rates, table)),
        *curves(table),
        Section("What the table says", said),
        Section("What the precisions mean here", tuple(describe_flags(table))),
    ]


def curves(table: PrecisionTable) -> list[Section]:
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
    title = f"Loss / accuracy, mean of up to {CURVE_STEPS} steps (preloaded batches)"
    head = ("model", "batch", "precision", *(f"step {mark}" for mark in marks))
    return [Section(title, (), head, rows)]


def _at_mark(probe: ProbeResult, mark: int) -> str:
    """'2.182 / 17.60 %' over the steps that end at the mark; n/a where it took fewer."""
    if len(probe.losses) < mark:
        return "n/a"
    begin = (mark - 1) // CURVE_STEPS * CURVE_STEPS
    losses, shares = probe.losses[begin:mark], probe.accuracies[begin:mark]
    accuracy = f"{100 * sum(shares) / len(shares):.2f}%" if shares else "-"
    return f"{sum(losses) / len(losses):.4g} / {accuracy}"


def explain_columns(table: PrecisionTable) -> str:
    """How to read the columns."""
    repeats = max((row.step.repeats for row in table.rows if row.step), default=0)
    return (
        f"Means with 95% CI over {repeats} interleaved repeats on "
        f"{table.measurement.device_name}; "
        "samples/s with preloaded batches, then with the loader attached, measured in one run. "
        "Warm-up and compilation are not in them; steps that AMP skipped are counted, not timed."
    )


def format_row(row: Row) -> tuple[str, ...]:
    """One line of the table, as text."""
    cell = row.cell
    head = (cell.model, str(cell.batch_size), cell.name + (" (tiny)" if row.tiny else ""))
    if row.status != "ok":
        word = {"oom": "out of memory"}.get(row.status, row.status)
        return (*head, word, *["n/a"] * (len(HEAD) - 4))
    return (
        *head,
        format_step(row.step),
        format_quantiles(row.step),
        format_rate(row.synthetic_per_s),
        "error" if row.error else format_rate(row.loader_per_s),
        format_share(row.stall),
        format_memory(row),
        "n/a" if row.skipped is None else str(row.skipped),
        "n/a" if row.early.last is None else f"{row.early.last:.4g}",
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


def format_number(value: float) -> str:
    """Three figures below 100, whole numbers above."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def format_rate(rate: Rate | None) -> str:
    """'1,840 (1,790 to 1,900)'."""
    if rate is None:
        return "n/a"
    if rate.low is None or rate.high is None:
        return format_number(rate.value)
    return f"{format_number(rate.value)} ({format_number(rate.low)} to {format_number(rate.high)})"


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


def draw_rates(table: PrecisionTable) -> Markup | str:
    """The chart as a figure; '' without a measured row."""
    from preflight.charts import figure, text

    rows = [
        (row, (row.synthetic_per_s, row.loader_per_s))
        for row in table.rows
        if row.synthetic_per_s and (row.loader_per_s or row.error)
    ]
    if not rows:
        return ""
    # wide intervals are cut at the edge: they must not squeeze the bars
    most = 1.3 * max(rate.value for _, rates in rows for rate in rates if rate)
    scale = (RIGHT - LABEL - 10) / most
    body = _legend()
    for i, (row, rates) in enumerate(rows):
        top = 30 + i * ROW
        label = f"{row.cell.model} {row.cell.name} x{row.cell.batch_size}"
        body.append(text(LABEL - 8, top + BAR + 4, label, "end"))
        for arm, rate in enumerate(rates):
            if rate:
                body += _bar(rate, top + arm * (BAR + 2), scale, arm)
        body += _limit(table.loader_of(row.cell), top, scale, most)
    return figure(36 + len(rows) * ROW, TITLE, body)


def _bar(rate: Rate, y: float, scale: float, arm: int) -> list[Markup]:
    """A bar with its whisker and value; `arm` 0 is the upper one."""
    from preflight.charts import bar, line, text

    width, middle = rate.value * scale, y + BAR / 2
    words = f"{NAMES[arm]}: {format_rate(rate)} samples/s"
    shapes = [bar(LABEL, y, max(width, 0.5), BAR, arm, words)]
    if rate.low is not None and rate.high is not None:
        low, width = rate.low * scale, min(rate.high * scale, RIGHT - LABEL - 40.0)
        style = 'stroke="currentColor" stroke-width="1.2"'
        shapes.append(line(LABEL + low, middle, LABEL + width, middle, style))
        ends = (LABEL + low, LABEL + width)
        shapes += [line(end, middle - 3, end, middle + 3, style) for end in ends]
    return [*shapes, text(LABEL + width + 6, y + BAR - 2, format_number(rate.value))]


def _limit(loader: LoaderRow | None, top: float, scale: float, most: float) -> list[Markup]:
    """What the loader delivers alone, where that is not beyond the chart."""
    from preflight.charts import line

    rate = loader.alone_per_s if loader else None
    if rate is None or rate.value > most:
        return []
    x, words = LABEL + rate.value * scale, f"loader alone: {format_number(rate.value)} samples/s"
    return [line(x, top - 3, x, top + 2 * BAR + 5, DASHED, words)]


def _legend() -> list[Markup]:
    from preflight.charts import bar, line, text

    shapes = [text(8, 16, "samples/s, 95% CI:")]
    for i, name in enumerate(NAMES):
        x = 170 + i * 140
        shapes += [bar(x, 6, 12, 12, i, name), text(x + 18, 16, name)]
    alone = text(463, 16, "loader alone (none: beyond the edge)")
    return [*shapes, line(455, 5, 455, 19, DASHED), alone]
