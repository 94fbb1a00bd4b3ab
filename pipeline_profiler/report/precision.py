"""The precision sweep's part of a report: screen, chart, table, losses and flags.

The chart has a line a precision over the batch sizes, preloaded; hollow marks are with the loader,
whiskers 95% CI. The band is the loader alone, a dot its crossing, a cross out of memory.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from dataset_preflight.foundation import charts
from dataset_preflight.foundation.charts import dot, line, text
from dataset_preflight.foundation.text import format_number
from pipeline_profiler.precision import summary
from pipeline_profiler.precision.summary import format_rate, format_times
from pipeline_profiler.precision.table import (
    LoaderRow,
    LossMark,
    PrecisionTable,
    Row,
    measurement_from_dict,
)
from pipeline_profiler.precision.trainer import (
    DYNAMIC,
    OWN_OPTIMIZER,
    PRECISION_NAMES,
    name_precision,
)
from pipeline_profiler.profiling.diagnose.intervals import Interval
from pipeline_profiler.profiling.record.session import Session
from pipeline_profiler.report.section import Section

if TYPE_CHECKING:
    from markupsafe import Markup

HEAD = (
    *("model", "batch", "precision", "step", "FP32 / step", "preloaded, samples/s"),
    *("with the loader", "data stall", "time per epoch", "peak memory", "skipped", "loss"),
)
LOADER_HEAD = ("model", "batch", "num_workers", "samples/s", "samples/s a worker", "epoch start")
WIDTH = 100  # columns of the screen
MAX_LINES = 20


def read_table(session: Session) -> PrecisionTable | None:
    """The table of a precision session; None for other sessions."""
    saved = session.results.get("precision")
    return summary.summarise(measurement_from_dict(saved)) if saved else None


def precision_sections(session: Session) -> list[Section]:
    """The sections of a precision sweep; [] for other sessions."""
    table = read_table(session)
    if table is None:
        return []
    rows = tuple(format_row(row) for row in table.rows)
    lines = (*table.sentences[1:], explain_columns(table))  # the first one is the verdict
    loaders = tuple(format_loader(row) for row in table.loaders)
    return [
        Section("Precision", lines, HEAD, rows, partial(draw_rates, table)),
        *([Section("Loader alone", (), LOADER_HEAD, loaders)] if loaders else []),
        *curves(table),
        Section("What the precisions mean here", tuple(describe_flags(table))),
    ]


# ---- the screen ----


def precision_screen(session: Session) -> str:
    """The answer, a row for each precision at the best batch size, and what limits them.

    At most MAX_LINES lines of WIDTH columns, whatever the number of models and batch sizes.
    """
    table = read_table(session)
    if table is None or not table.rows:
        return "No row could be measured.\n"
    models = list(dict.fromkeys(row.cell.model for row in table.rows))
    best = summary.best_row([row for row in table.rows if row.cell.model == models[0]])
    lines = [line for text in summary.write_answer(table, models[0])[:2] for line in _fold(text)]
    if best is None:
        lines += [line for text in table.sentences[1:] for line in _fold(text)]
        return "\n".join(lines[:MAX_LINES]) + "\n"
    lines += ["", *_fold(_describe_run(table, best)), *_screen_table(table, best)]
    largest = [each for each in table.measurement.largest if each.model == models[0]]
    notes = [
        *summary.list_errors(table.rows),
        *_list_uncertain(table.rows),
        *summary.list_problems(table.rows),
        *summary.describe_largest(largest),
        *_list_loaders(table, best),
        *summary.list_crossings(table, models[0]),
        *summary.list_launch_bound(table.rows),
        *_compare_losses(table.rows, best),
        *(summary.write_answer(table, model)[0] for model in models[1:]),
        *_next_command(table, best),
    ]
    for folded in map(_fold, notes):
        lines += folded if len(lines) + len(folded) <= MAX_LINES else []
    return "\n".join(lines) + "\n"


def _fold(text: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def _describe_run(table: PrecisionTable, best: Row) -> str:
    """'resnet18, batch 512, 50,000 samples an epoch, H100, SGD, num_workers=8, 16 cores'."""
    measurement, loader = table.measurement, table.loader_of(best.cell)
    parts = [best.cell.model, f"batch {best.cell.batch_size}", measurement.device_name]
    if loader and loader.source.epoch_batches:
        samples = loader.source.epoch_batches * best.cell.batch_size
        parts.insert(1, f"{samples:,} samples an epoch")
    parts.append(f"optimizer {measurement.recipe.optimizer}")
    if loader:
        parts.append(f"num_workers={loader.num_workers}")
    rounds = best.step_ms.n if best.step_ms else 0
    return f"{', '.join(parts)}, {measurement.cores} cores; {rounds} rounds, ± is the 95% CI:"


SCREEN_HEAD = (
    ("precision", "step", "FP32 /", "preloaded", "with loader", "data", "time per", "peak", "loss",
     "AMP"),
    ("", "", "step", "samples/s", "samples/s", "stall", "epoch", "memory", "accuracy", "skipped"),
)  # fmt: skip


def _screen_table(table: PrecisionTable, best: Row) -> list[str]:
    """Two lines of head, then a row for each cell with the model and batch size of the best."""
    rows = [row for row in table.rows if row.cell.source == best.cell.source]
    lines = [*SCREEN_HEAD, *(_screen_row(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for gap in ("  ", " "):
        text = [
            gap.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        ]
        if max(map(len, text)) <= WIDTH:
            break
    return text


def _screen_row(row: Row) -> tuple[str, ...]:
    scale = "" if row.cell.loss_scale in ("", DYNAMIC) else f" x{row.cell.loss_scale}"
    name = PRECISION_NAMES.get(row.cell.precision, row.cell.precision) + scale
    if row.status != "ok":
        return (name, _status(row), *[""] * (len(SCREEN_HEAD[0]) - 2))
    return (
        name,
        f"{format_number(row.step_ms.value)} ms" if row.step_ms else "n/a",
        f"{row.speedup.value:.2f}x" if row.speedup else "",
        format_rate(row.preloaded_per_s),
        "error" if row.error else format_rate(row.with_loader_per_s),
        f"{max(0.0, row.stall.value):.0%}" if row.stall else "n/a",
        format_seconds(row.epoch_s),
        format_bytes(row.peak.peak_bytes),
        format_mark(row.marks),
        "-" if row.skipped is None else str(row.skipped),
    )


def format_seconds(seconds: float | None) -> str:
    """'33 ms', '6.9 s', '12 min'."""
    if seconds is None:
        return "n/a"
    if seconds < 1:
        return f"{format_number(1e3 * seconds)} ms"
    return f"{seconds / 60:,.0f} min" if seconds >= 600 else f"{format_number(seconds)} s"


def format_mark(marks: Sequence[LossMark]) -> str:
    """'2.02 24%', of the last mark."""
    if not marks:
        return "n/a"
    accuracy = "" if marks[-1].accuracy is None else f" {marks[-1].accuracy:.0%}"
    return f"{marks[-1].loss:.3g}{accuracy}"


def _list_uncertain(rows: Sequence[Row]) -> Iterator[str]:
    """One line with the figures whose interval is too wide, and the time that they need."""
    wide = [row for row in rows if row.needed_s > 0]
    if wide:
        names = ", ".join(f"{row.cell.name} at batch {row.cell.batch_size}" for row in wide[:4])
        more = f" and {len(wide) - 4} more" if len(wide) > 4 else ""
        seconds = sum(row.needed_s for row in wide)
        yield (
            f"inconclusive (95% CI wider than ±25%): {names}{more}; about {seconds:.0f} s more "
            "would settle it (--seconds)"
        )


def _list_loaders(table: PrecisionTable, best: Row) -> Iterator[str]:
    """What the loader of the best row delivers alone, by number of workers."""
    for loader in table.loaders:
        if (loader.source.model, loader.source.batch_size) == best.cell.source:
            _, batch, workers, rate, each, start = format_loader(loader)
            yield (
                f"loader alone (num_workers={workers}, batch {batch}): {rate} samples/s, {each} a "
                f"worker; an epoch starts with {start} of wait"
            )


def format_loader(row: LoaderRow) -> tuple[str, ...]:
    """One line of the table of loaders, as text."""
    rate, workers = row.alone_per_s, row.num_workers
    return (
        row.source.model,
        str(row.source.batch_size),
        str(workers),
        format_rate(rate),
        format_number(rate.value / max(1, workers)),
        format_seconds(row.start_s),
    )


def _compare_losses(rows: Sequence[Row], best: Row) -> Iterator[str]:
    """How far apart the losses of the precisions are at the last mark."""
    marks = [row.marks[-1] for row in rows if row.cell.source == best.cell.source and row.marks]
    losses = [mark.loss for mark in marks if math.isfinite(mark.loss)]
    if len(losses) > 1:
        yield (
            f"loss: mean up to step {marks[0].step}; the precisions differ by at most "
            f"{max(losses) - min(losses):.2g} (one seed each; not a comparison)"
        )


def _next_command(table: PrecisionTable, best: Row) -> Iterator[str]:
    needed = summary.needed_workers(best, table.loader_of(best.cell))
    if best.is_input_bound and needed and needed <= table.measurement.cores:
        precisions = dict.fromkeys(["fp32", best.cell.precision])
        yield (
            f"next: the same command with --batch-sizes {best.cell.batch_size} --precisions "
            f"{','.join(precisions)} --workers {needed}"
        )


# ---- the sections ----


def curves(table: PrecisionTable) -> list[Section]:
    """Loss and accuracy of the first steps, at each mark; none where nothing was trained."""
    trained = [row for row in table.rows if row.marks]
    steps = sorted({mark.step for row in trained for mark in row.marks})
    rows = []
    for row in trained:
        marks = [[mark for mark in row.marks if mark.step == step] for step in steps]
        rows.append((*_names(row), *map(format_mark, marks)))
    head = ("model", "batch", "precision", *(f"step {step}" for step in steps))
    title = "Loss and accuracy through the loader, mean since the last mark"
    return [Section(title, (), head, tuple(rows))] if rows else []


def explain_columns(table: PrecisionTable) -> str:
    """How to read the columns."""
    rounds = max((row.step_ms.n for row in table.rows if row.step_ms), default=0)
    return (
        f"Step: geometric mean of window medians over up to {rounds} rounds on "
        f"{table.measurement.device_name}, on preloaded batches. With the loader: samples over "
        "seconds, epoch starts included. ± is the 95% CI. Warm-up and compilation are not in it; "
        "steps that AMP skipped are counted, not timed."
    )


def format_row(row: Row) -> tuple[str, ...]:
    """One line of the table, as text."""
    if row.status != "ok":
        return (*_names(row), _status(row), *["n/a"] * (len(HEAD) - 4))
    return (
        *_names(row),
        f"{format_number(row.step_ms.value)} ms" if row.step_ms else "n/a",
        format_times(row.speedup) if row.speedup else "n/a",
        format_rate(row.preloaded_per_s),
        "error" if row.error else format_rate(row.with_loader_per_s),
        format_share(row.stall),
        format_seconds(row.epoch_s),
        format_memory(row),
        "n/a" if row.skipped is None else str(row.skipped),
        format_mark(row.marks),
    )


def _names(row: Row) -> tuple[str, ...]:
    return row.cell.model, str(row.cell.batch_size), row.cell.name


def _status(row: Row) -> str:
    return "out of memory" if row.status == "oom" else row.status


def format_share(share: Interval | None) -> str:
    """'12% (10 to 14)'; without an interval the value alone."""
    if share is None:
        return "n/a"
    known = math.isfinite(share.low) and math.isfinite(share.high)
    return f"{share.value:.0%}" + f" ({100 * share.low:.0f} to {100 * share.high:.0f})" * known


def format_memory(row: Row) -> str:
    """'812 MB'; on a GPU 'allocated / reserved / occupied', as '9.0 / 11.2 / 12.1 GB'."""
    peak = row.peak
    parts = (peak.peak_bytes, peak.reserved_bytes, peak.occupied_bytes)
    known = [f"{part / 1e9:.2f}" for part in parts if part is not None]
    return f"{' / '.join(known)} GB" if known[2:] else format_bytes(peak.peak_bytes)


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
    how = dict.fromkeys(row.peak.peak_how for row in table.rows if row.status == "ok")
    lines += [f"peak memory: {text}" for text in how]
    if any(row.peak.reserved_bytes is not None for row in table.rows):
        lines.append(
            "memory: allocated by training / reserved by torch's allocator / occupied on the "
            "device by everything, CUDA's context and other programs included"
        )
    return lines


def _flag(key: str, value: str | bool | int) -> str:
    text = ("on" if value else "off") if isinstance(value, bool) else value
    return f"{key.replace('_', ' ')} {text}"


# ---- the chart ----

TITLE = "Throughput by batch size: preloaded batches (lines), with the loader (hollow)"
LEFT, RIGHT, TOP, BOTTOM = 70, 530, 20, 260  # px of the axes; the legend is on the right
BAND = 'stroke="#999999" stroke-width="1.5"'
FAINT = 'stroke="#999999" stroke-opacity="0.5" stroke-dasharray="4 3"'


@dataclass(frozen=True)
class Axes:
    """Batch size (logarithmic) and samples/s to px."""

    sizes: tuple[float, float]
    highest: float

    def x(self, size: float) -> float:
        """Px of a batch size."""
        low, high = self.sizes
        share = math.log(size / low) / math.log(high / low) if high > low else 0.5
        return LEFT + 20 + share * (RIGHT - LEFT - 40)

    def y(self, rate: float) -> float:
        """Px of a rate; above the axes it is cut."""
        return BOTTOM - min(1.0, max(0.0, rate / self.highest)) * (BOTTOM - TOP)


def draw_rates(table: PrecisionTable) -> Markup:
    """A chart for each model; '' without a measured row."""
    from markupsafe import Markup

    drawn = []
    for model in dict.fromkeys(row.cell.model for row in table.rows if row.preloaded_per_s):
        shapes = _draw_model(table, [row for row in table.rows if row.cell.model == model])
        drawn.append(charts.figure(BOTTOM + 44, f"{model}. {TITLE}", shapes))
    return Markup("").join(drawn)


def _draw_model(table: PrecisionTable, rows: Sequence[Row]) -> list[Markup]:
    measured = [row for row in rows if row.preloaded_per_s]
    sizes = sorted({row.cell.batch_size for row in rows})
    rates = [row.preloaded_per_s.value for row in measured if row.preloaded_per_s]
    axes = Axes((sizes[0], sizes[-1]), 1.15 * max(rates))
    shapes = [
        line(LEFT, BOTTOM, RIGHT, BOTTOM),
        line(LEFT, TOP, LEFT, BOTTOM),
        text(LEFT - 6, TOP + 6, format_number(axes.highest), "end"),
        text(LEFT - 6, BOTTOM, "0", "end"),
        text(LEFT, TOP - 6, "samples/s"),
        text((LEFT + RIGHT) / 2, BOTTOM + 34, "batch size", "middle"),
        *(text(axes.x(size), BOTTOM + 16, str(size), "middle") for size in sizes),
        *_draw_loaders(table, measured, axes),
    ]
    kinds = dict.fromkeys((row.cell.precision, row.cell.loss_scale) for row in measured)
    for number, kind in enumerate(kinds):
        own = [row for row in measured if (row.cell.precision, row.cell.loss_scale) == kind]
        shapes += _draw_kind(table, own, axes, number)
    for cell in (row.cell for row in rows if row.status == "oom"):
        words = f"{cell.name} at batch {cell.batch_size}: out of memory"
        shapes += charts.cross(axes.x(cell.batch_size), BOTTOM, 4, words)
    return shapes


def _draw_kind(table: PrecisionTable, rows: Sequence[Row], axes: Axes, number: int) -> list[Markup]:
    """The line of a precision with whiskers, its hollow marks, its crossing, its legend."""
    colour, name = charts.COLOURS[number % len(charts.COLOURS)], rows[0].cell.name
    stroke = f'stroke="{colour}" stroke-width="1.6"'
    shapes: list[Markup] = []
    points = [(row, row.preloaded_per_s) for row in rows if row.preloaded_per_s]
    for (row, rate), (next_row, next_rate) in pairwise(points):
        x, next_x = axes.x(row.cell.batch_size), axes.x(next_row.cell.batch_size)
        shapes.append(line(x, axes.y(rate.value), next_x, axes.y(next_rate.value), stroke))
    for row, rate in points:
        x, at = axes.x(row.cell.batch_size), f"{name} at batch {row.cell.batch_size}"
        if math.isfinite(rate.high):
            shapes.append(line(x, axes.y(rate.low), x, axes.y(rate.high), stroke))
        words = f"{at}, preloaded: {format_rate(rate)} samples/s"
        shapes.append(dot(x, axes.y(rate.value), 3.5, colour, words))
        if fed := row.with_loader_per_s:
            words = f"{at}, with the loader: {format_rate(fed)} samples/s"
            shapes.append(dot(x, axes.y(fed.value), 4.5, colour, words, hollow=True))
    kind = rows[0].cell.model, rows[0].cell.precision, rows[0].cell.loss_scale
    for crossing in table.crossings:
        own = (crossing.model, crossing.precision, crossing.loss_scale) == kind
        if own and crossing.batch_size is not None:
            words = f"{name} is input-bound from batch {crossing.batch_size:.0f}"
            x, y = axes.x(crossing.batch_size), axes.y(crossing.per_s)
            shapes.append(dot(x, y, 6, "currentColor", words))
    y = TOP + 8 + 18 * number
    shapes += [line(RIGHT + 14, y, RIGHT + 34, y, stroke), text(RIGHT + 40, y + 4, name)]
    return shapes


def _draw_loaders(table: PrecisionTable, rows: Sequence[Row], axes: Axes) -> list[Markup]:
    """The loader alone as a band over the batch sizes; fainter for other numbers of workers."""
    shapes: list[Markup] = []
    own = [row for row in table.loaders if row.source.model == rows[0].cell.model]
    own.sort(key=lambda row: row.source.batch_size)
    for number, workers in enumerate(sorted({row.num_workers for row in own})):
        loaders = [row for row in own if row.num_workers == workers]
        primary = workers == (loaders[0].source.workers or 0)
        slowest = min((row.alone_per_s for row in loaders), key=lambda rate: rate.value)
        words = f"num_workers={workers}: {format_number(slowest.value)}"
        if slowest.value < axes.highest:
            ends = [_loader_ends(row, axes) for row in loaders]
            if len(ends) == 1:
                ends = [(LEFT, *ends[0][1:]), (RIGHT, *ends[0][1:])]
            opacity = 0.35 if primary else 0.15
            shapes.append(charts.band(ends, opacity, f"loader alone, {words} samples/s"))
        y = BOTTOM - 8 - 18 * number
        shapes.append(line(RIGHT + 14, y, RIGHT + 34, y, BAND if primary else FAINT))
        shapes.append(text(RIGHT + 40, y + 4, words))
    best = summary.best_row(rows)
    loader = table.loader_of(best.cell) if best else None
    needed = summary.needed_workers(best, loader) if best else None
    if loader and needed and needed <= table.measurement.cores:
        rate = loader.alone_per_s.value / loader.num_workers * needed
        shapes.append(line(LEFT, axes.y(rate), RIGHT, axes.y(rate), FAINT))
        shapes.append(text(RIGHT - 4, axes.y(rate) - 4, f"{needed} workers (predicted)", "end"))
    return shapes


def _loader_ends(row: LoaderRow, axes: Axes) -> tuple[float, float, float]:
    """(x, y of the lower end, y of the upper end) px; at least 3 px high."""
    rate = row.alone_per_s
    ends = (rate.low, rate.high) if math.isfinite(rate.high) else (rate.value, rate.value)
    below, above = map(axes.y, ends)
    middle, half = (below + above) / 2, max(1.5, (below - above) / 2)
    return axes.x(row.source.batch_size), middle + half, middle - half
