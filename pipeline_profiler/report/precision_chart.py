"""The chart of a precision sweep: two bars per measured row, in samples per second.

The upper bar is the compute with batches in hand, the lower one the same step with the loader
attached; a bar's whisker is the 95 % interval, and the line is what the loader delivers alone.
Where the lower bar ends at the line, a faster step buys nothing.
"""

from __future__ import annotations

from html import escape

from pipeline_profiler.precision.table import LoaderRow, PrecisionTable, Rate
from pipeline_profiler.report.charts import COLOURS

WIDTH, LABEL, ROW, BAR = 720, 230, 40, 13
NAMES = ("batches in hand", "with the loader")
_DASHED = f'stroke="{COLOURS[4]}" stroke-width="2" stroke-dasharray="4 2"'


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


def draw_rates(table: PrecisionTable) -> str:
    """The chart as SVG; '' without a measured row."""
    rows = [
        (row, (row.synthetic_per_s, row.loader_per_s))
        for row in table.rows
        if row.synthetic_per_s and row.loader_per_s
    ]
    if not rows:
        return ""
    # wide intervals are cut at the edge: they must not squeeze the bars
    most = 1.3 * max(rate.value for _, rates in rows for rate in rates if rate)
    scale = (WIDTH - LABEL - 10) / most
    body = [_legend()]
    for i, (row, rates) in enumerate(rows):
        top = 30 + i * ROW
        label = f"{row.cell.model} {row.cell.name} x{row.cell.batch_size}"
        body.append(_text(LABEL - 8, top + BAR + 4, label, "end"))
        for j, rate in enumerate(rates):
            if rate:
                body += _bar(rate, top + j * (BAR + 2), scale, j)
        body += _limit(table.loader_of(row.cell), top, scale, most)
    title = "Samples a second by row: batches in hand, and with the loader attached"
    height = 36 + len(rows) * ROW
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}" '
        f'xmlns="http://www.w3.org/2000/svg"><title>{escape(title)}</title>{"".join(body)}</svg>'
    )


def _bar(rate: Rate, y: float, scale: float, arm: int) -> list[str]:
    """A bar with its whisker and value; `arm` 0 is the upper one."""
    width, middle = rate.value * scale, y + BAR / 2
    title = f"{NAMES[arm]}: {format_rate(rate)} samples/s"
    shapes = [
        f'<rect x="{LABEL}" y="{y}" width="{max(width, 0.5):.1f}" height="{BAR}" '
        f'fill="{COLOURS[arm]}"><title>{escape(title)}</title></rect>'
    ]
    end = width
    if rate.low is not None and rate.high is not None:
        end = min(rate.high * scale, WIDTH - LABEL - 40.0)
        x1, x2 = LABEL + rate.low * scale, LABEL + end
        shapes.append(
            f'<path d="M{x1:.1f} {middle}H{x2:.1f}M{x1:.1f} {middle - 3}v6'
            f'M{x2:.1f} {middle - 3}v6" stroke="currentColor" stroke-width="1.2" fill="none"/>'
        )
    return [*shapes, _text(LABEL + end + 6, y + BAR - 2, format_number(rate.value))]


def _limit(loader: LoaderRow | None, top: float, scale: float, most: float) -> list[str]:
    """What the loader delivers alone, where that is not beyond the chart."""
    rate = loader.loader_only_per_s if loader else None
    if rate is None or rate.value > most:
        return []
    x = LABEL + rate.value * scale
    return [
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top - 3}" y2="{top + 2 * BAR + 5}" {_DASHED}>'
        f"<title>loader alone: {format_number(rate.value)} samples/s</title></line>"
    ]


def _legend() -> str:
    shapes = [_text(8, 16, "samples/s, 95 % interval:")]
    for i, name in enumerate(NAMES):
        x = 170 + i * 140
        shapes.append(f'<rect x="{x}" y="6" width="12" height="12" fill="{COLOURS[i]}"/>')
        shapes.append(_text(x + 18, 16, name))
    shapes.append(f'<line x1="455" x2="455" y1="5" y2="19" {_DASHED}/>')
    return "".join([*shapes, _text(463, 16, "loader alone (none: beyond the edge)")])


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="12" '
        f'font-family="system-ui, sans-serif" fill="currentColor">{escape(text)}</text>'
    )
