"""Charts of reports as inline SVG, without scripts, readable in black and white.

Shapes (`bar`, `text`, `line`) return escaped markup; charts take rows of labels and numbers.
Colours: Okabe and Ito (2008).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dataset_preflight.foundation.text import format_number

if TYPE_CHECKING:
    from markupsafe import Markup

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#999999")
WIDTH, ROW, LABEL, FIGURES = 720, 24, 170, 90  # px: a chart, a row, its label, its value
SMALL, TALL, HEAD, FOOT = 200, 90, 18, 18  # px: a histogram, its bars, its title, its labels
CELL = 9  # px of a map
AXIS = 'stroke="currentColor" stroke-opacity="0.4"'


def _markup(element: str) -> Markup:
    """Return text that is markup already; imported here, because few commands draw."""
    from markupsafe import Markup

    return Markup(element)


def text(x: float, y: float, words: str, anchor: str = "start", kind: str = "") -> Markup:
    """Return a line of text with its baseline at (x, y), px."""
    element = '<text x="{:.1f}" y="{:.1f}" text-anchor="{}" class="{}">{}</text>'
    return _markup(element).format(x, y, anchor, kind, words)


def bar(
    x: float, y: float, width: float, height: float, colour: int, words: str, opacity: float = 1.0
) -> Markup:
    """Return a rectangle in px; `colour` counts, `words` are what a pointer on it shows."""
    element = (
        '<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" fill="{}" '
        'fill-opacity="{:.2f}"><title>{}</title></rect>'
    )
    fill = COLOURS[colour % len(COLOURS)]
    return _markup(element).format(x, y, width, height, fill, opacity, words)


def line(x1: float, y1: float, x2: float, y2: float, style: str = AXIS, words: str = "") -> Markup:
    """Return a straight line in px; `style` are attributes in our own words."""
    element = '<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" {}><title>{}</title></line>'
    return _markup(element).format(x1, y1, x2, y2, _markup(style), words)


def dot(x: float, y: float, r: float, fill: str, words: str, hollow: bool = False) -> Markup:
    """Return a circle of radius `r` px; `words` are what a pointer on it shows."""
    element = (
        '<circle cx="{:.1f}" cy="{:.1f}" r="{}" fill="{}" stroke="{}" stroke-width="1.6">'
        "<title>{}</title></circle>"
    )
    return _markup(element).format(x, y, r, "none" if hollow else fill, fill, words)


def cross(x: float, y: float, r: float, words: str) -> list[Markup]:
    """Return a cross of 2 `r` px."""
    style = 'stroke="currentColor" stroke-width="2"'
    return [
        line(x - r, y - r, x + r, y + r, style, words),
        line(x - r, y + r, x + r, y - r, style, words),
    ]


def band(ends: Sequence[tuple[float, float, float]], opacity: float, words: str) -> Markup:
    """Return a grey area between two lines; an end is x, lower y, upper y, px."""
    there = [f"{x:.1f},{below:.1f}" for x, below, _ in ends]
    back = [f"{x:.1f},{above:.1f}" for x, _, above in reversed(ends)]
    element = '<polygon points="{}" fill="{}" fill-opacity="{}"><title>{}</title></polygon>'
    return _markup(element).format(" ".join([*there, *back]), COLOURS[-1], opacity, words)


def drawing(width: float, height: float, title: str, shapes: Sequence[Markup]) -> Markup:
    """Return shapes as an `<svg>` of this size, px."""
    head = (
        '<svg viewBox="0 0 {0:.0f} {1:.0f}" width="{0:.0f}" height="{1:.0f}" role="img" '
        'aria-label="{2}" font-size="12" xmlns="http://www.w3.org/2000/svg"><title>{2}</title>{3}'
        "</svg>"
    )
    return _markup(head).format(width, height, title, _markup("").join(shapes))


def figure(height: float, title: str, shapes: Sequence[Markup]) -> Markup:
    """Return shapes, as wide as a chart, below their title."""
    drawn = drawing(WIDTH, height, title, shapes)
    return _markup('<figure tabindex="0"><figcaption>{}</figcaption>{}</figure>').format(
        title, drawn
    )


def _spaced(unit: str) -> str:
    return unit if unit in ("", "%") else f" {unit}"


def bars(title: str, rows: Sequence[tuple[str, float]], unit: str) -> Markup:
    """Return horizontal bars on one scale, the value beside each; a negative one has no length."""
    return stacked_bars(title, [(label, {"": value}) for label, value in rows], unit)


def stacked_bars(title: str, rows: Sequence[tuple[str, Mapping[str, float]]], unit: str) -> Markup:
    """Return a bar a row, all on one scale, cut into the same parts, which a legend names."""
    most = max((sum(parts.values()) for _, parts in rows), default=0.0) or 1.0
    scale, names = (WIDTH - LABEL - FIGURES) / most, list(rows[0][1]) if rows else []
    shapes = []
    for i, (label, parts) in enumerate(rows):
        x, y = float(LABEL), i * ROW + 4
        shapes.append(text(LABEL - 8, y + 13, label, "end"))
        for name, value in parts.items():
            if value > 0:
                said = ", ".join(filter(None, (label, name)))
                words = f"{said}: {format_number(value)}{_spaced(unit)}"
                shapes.append(bar(x, y, max(value * scale, 0.5), 16, names.index(name), words))
            x += max(0.0, value) * scale
        shapes.append(text(x + 6, y + 13, f"{format_number(sum(parts.values()))}{_spaced(unit)}"))
    foot = len(rows) * ROW + 8
    if len(names) < 2:
        return figure(foot, title, shapes)
    at = float(LABEL)
    for i, name in enumerate(names):
        width = 40 + 6.5 * len(name)  # px: the square and its margins, and each letter
        if at + width > WIDTH and at > LABEL:
            at, foot = float(LABEL), foot + 18
        shapes += [bar(at, foot, 12, 12, i, name), text(at + 18, foot + 10, name)]
        at += width
    return figure(foot + 20, title, shapes)


def curve(title: str, points: Sequence[tuple[float, float]], x_unit: str, y_unit: str) -> Markup:
    """Return a line through the points; nothing without any."""
    if not points:
        return _markup("")
    xs, ys = zip(*points, strict=True)
    least, most, top = min(xs), max(xs), max(*ys, 0.0) or 1.0
    height, left, right = 160.0, 60.0, WIDTH - 10
    across, up = (right - left) / ((most - least) or 1.0), (height - 40) / top
    path = " ".join(f"{left + (x - least) * across:.1f},{height - 24 - y * up:.1f}"
                    for x, y in points)  # fmt: skip
    shapes = [
        line(left, 8, left, height - 24),
        line(left, height - 24, right, height - 24),
        _markup('<polyline points="{}" fill="none" stroke="{}" stroke-width="1.2"/>').format(
            path, COLOURS[0]
        ),
        text(left - 6, 20, f"{format_number(top)}{_spaced(y_unit)}", "end"),
        text(left - 6, height - 24, "0", "end"),
        text(left, height - 6, f"{x_unit} {least:.4g}"),
        text(right, height - 6, f"{x_unit} {most:.4g}", "end"),
    ]
    return figure(height, title, shapes)


def intervals(title: str, rows: Sequence[tuple[str, float, float, float]], unit: str) -> Markup:
    """Return values with their intervals; a row is label, value, low, high."""
    known = [number for _, *numbers in rows for number in numbers]
    least, most = min([0.0, *known]), max([*known, 1e-9])
    scale = (WIDTH - LABEL - 230) / (most - least)
    style = f'stroke="{COLOURS[0]}" stroke-width="3"'
    shapes = [line(LABEL - least * scale, 0, LABEL - least * scale, len(rows) * ROW + 4)]
    for i, (label, *numbers) in enumerate(rows):
        y, (value, low, high) = i * ROW + 14, numbers
        interval = f"{format_number(low)} to {format_number(high)}"
        words = f"{label}: {format_number(value)} ({interval}){_spaced(unit)}"
        middle, left, right = (LABEL + (number - least) * scale for number in numbers)
        shapes += [
            text(LABEL - 8, y + 4, label, "end"),
            line(left, y, right, y, style, words),
            dot(middle, y, 4, COLOURS[4], words),
            text(WIDTH, y + 4, f"{value:.1f}{_spaced(unit)} ({low:.1f} to {high:.1f})", "end"),
        ]
    return figure(len(rows) * ROW + 12, title, shapes)


def histogram(title: str, heights: Sequence[tuple[str, int]], colour: int) -> Markup:
    """Return upright bars; a height is its label ("": none is written) and its number."""
    most, step = max([n for _, n in heights] + [1]), SMALL / max(len(heights), 1)
    shapes = [text(0, 12, title, kind="quiet")]
    for i, (label, n) in enumerate(heights):
        # One among thousands must still be seen.
        height = max(1.5, (TALL - 4) * n / most) if n else 0
        at = HEAD + TALL - height
        shapes.append(bar(i * step + 0.5, at, step - 1, height, colour, f"{label}: {n:,}"))
        if label:
            shapes.append(text((i + 0.5) * step, HEAD + TALL + 13, label, "middle", "quiet tick"))
    return drawing(SMALL, HEAD + TALL + FOOT, title, shapes)


def density(title: str, cells: Sequence[tuple[int, int, int]], side: int, colour: int) -> Markup:
    """Return a map of `side` cells a side; a cell is (column, row, number), darker for more."""
    most, edge = max([n for *_, n in cells] + [1]), CELL * side
    frame = '<rect x="0.5" y="{}" width="{}" height="{}" fill="none" {}/>'
    shapes: list[Any] = [
        text(0, 12, title, kind="quiet"),
        _markup(frame).format(HEAD + 0.5, edge, edge, _markup(AXIS)),
    ]
    shapes += [
        bar(x * CELL + 0.5, HEAD + y * CELL + 0.5, CELL, CELL, colour, f"{n:,}",
            max(0.06, n / most))
        for x, y, n in cells
    ]  # fmt: skip
    return drawing(edge + 2, HEAD + edge + 2, title, shapes)
