"""Inline SVG charts for the HTML report: no script, no outside file, readable in black and white.

Each function returns one <figure> with a caption and an <svg> as text. Colours are an Okabe-Ito
subset (colour-blind safe); every chart carries a <title>, its unit, and its numbers as text.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#999999")
_WIDTH, _ROW, _LABEL = 720, 24, 170
_AXIS = 'stroke="currentColor" stroke-opacity="0.4"'


def svg_figure(height: float, title: str, body: Sequence[str]) -> str:
    """A figure around SVG elements; `height` in the units of a page that is 720 wide."""
    head = (
        f'<svg viewBox="0 0 {_WIDTH} {height:.0f}" role="img" aria-label="{escape(title)}" '
        f'xmlns="http://www.w3.org/2000/svg"><title>{escape(title)}</title>'
    )
    caption = f"<figcaption>{escape(title)}</figcaption>"
    return f"<figure>{caption}{head}{''.join(body)}</svg></figure>"


def svg_text(x: float, y: float, words: str, anchor: str = "start") -> str:
    """A line of text with its baseline at (x, y)."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="12" '
        f'font-family="system-ui, sans-serif" fill="currentColor">{escape(words)}</text>'
    )


def svg_bar(x: float, y: float, width: float, colour: str, words: str, height: float = 16) -> str:
    """A horizontal bar; `words` is what a pointer on it shows."""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.5):.1f}" height="{height:.1f}" '
        f'fill="{colour}"><title>{escape(words)}</title></rect>'
    )


def bars(title: str, rows: Sequence[tuple[str, float]], unit: str) -> str:
    """Horizontal bars, one per row, the value beside it."""
    most = max((value for _, value in rows), default=0.0) or 1.0
    room = _WIDTH - _LABEL - 90
    body = []
    for i, (label, value) in enumerate(rows):
        y, width = i * _ROW + 4, max(0.0, value) / most * room
        body += [
            svg_text(_LABEL - 8, y + 13, label, "end"),
            svg_bar(_LABEL, y, width, COLOURS[0], f"{label}: {value:.3g} {unit}"),
            svg_text(_LABEL + width + 6, y + 13, f"{value:.3g} {unit}"),
        ]
    return svg_figure(len(rows) * _ROW + 8, title, body)


def stacked_rows(title: str, rows: Sequence[tuple[str, dict[str, float]]], unit: str) -> str:
    """One bar a row, all on one scale, cut into the same parts, with a legend."""
    most = max((sum(parts.values()) for _, parts in rows), default=0.0) or 1.0
    room, names = _WIDTH - _LABEL - 90, list(rows[0][1]) if rows else []
    body = []
    for i, (label, parts) in enumerate(rows):
        x, y = float(_LABEL), i * _ROW + 4
        body.append(svg_text(_LABEL - 8, y + 13, label, "end"))
        for name, value in parts.items():
            colour, width = COLOURS[names.index(name)], value / most * room
            if value:
                body.append(svg_bar(x, y, width, colour, f"{label}, {name}: {value:.3g} {unit}"))
            x += width
        body.append(svg_text(x + 6, y + 13, f"{sum(parts.values()):.3g} {unit}"))
    foot = len(rows) * _ROW + 8.0
    for i, name in enumerate(names):
        at = _LABEL + i * 130
        body += [svg_bar(at, foot, 12, COLOURS[i], name, 12), svg_text(at + 18, foot + 10, name)]
    return svg_figure(foot + 20, title, body)


def stacked(title: str, parts: Sequence[tuple[str, float]], unit: str) -> str:
    """One bar cut into parts, with a legend; negative parts are noise and shown as zero width."""
    total = sum(max(0.0, value) for _, value in parts) or 1.0
    x, body = 0.0, []
    for i, (label, value) in enumerate(parts):
        width = max(0.0, value) / total * _WIDTH
        colour = COLOURS[i % len(COLOURS)]
        body.append(svg_bar(x, 4, width, colour, f"{label}: {value:.3g} {unit}", 28))
        body.append(svg_bar(8 + (i % 3) * 240, 44 + i // 3 * 20, 12, colour, label, 12))
        words = f"{label} {value:.3g} {unit}"
        body.append(svg_text(26 + (i % 3) * 240, 54 + i // 3 * 20, words))
        x += width
    return svg_figure(52 + -(-len(parts) // 3) * 20, title, body)


def line(title: str, points: Sequence[tuple[float, float]], x_unit: str, y_unit: str) -> str:
    """A step-less line through the points."""
    if not points:
        return ""
    xs, ys = [p[0] for p in points], [p[1] for p in points]
    span_x, top = (max(xs) - min(xs)) or 1.0, max(*ys, 0.0) or 1.0
    height, left = 160.0, 60.0
    at = [
        (
            left + (x - min(xs)) / span_x * (_WIDTH - left - 10),
            height - 24 - y / top * (height - 40),
        )
        for x, y in points
    ]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
    return svg_figure(
        height,
        title,
        [
            f'<path d="M{left} 8V{height - 24}H{_WIDTH - 10}" fill="none" {_AXIS}/>',
            f'<polyline points="{path}" fill="none" stroke="{COLOURS[0]}" stroke-width="1.2"/>',
            svg_text(left - 6, 20, f"{top:.3g} {y_unit}", "end"),
            svg_text(left - 6, height - 24, "0", "end"),
            svg_text(left, height - 6, f"{x_unit} {min(xs):.4g}"),
            svg_text(_WIDTH - 10, height - 6, f"{x_unit} {max(xs):.4g}", "end"),
        ],
    )


def dots(title: str, rows: Sequence[tuple[str, float, float, float]], unit: str) -> str:
    """Values with intervals: label, value, low, high."""
    known = [v for _, value, low, high in rows for v in (value, low, high)]
    least, most = min([0.0, *known]), max([*known, 1e-9])
    room = _WIDTH - _LABEL - 230

    def x(value: float) -> float:
        return _LABEL + (value - least) / (most - least) * room

    body = []
    for i, (label, value, low, high) in enumerate(rows):
        y = i * _ROW + 14
        words = f"{label}: {value:.3g} ({low:.3g} to {high:.3g}) {unit}"
        body += [
            svg_text(_LABEL - 8, y + 4, label, "end"),
            f'<line x1="{x(low):.1f}" x2="{x(high):.1f}" y1="{y}" y2="{y}" '
            f'stroke="{COLOURS[0]}" stroke-width="3"><title>{escape(words)}</title></line>',
            f'<circle cx="{x(value):.1f}" cy="{y}" r="4" fill="{COLOURS[4]}"/>',
            svg_text(_WIDTH, y + 4, f"{value:.1f} {unit} ({low:.1f} to {high:.1f})", "end"),
        ]
    zero = f'<line x1="{x(0):.1f}" x2="{x(0):.1f}" y1="0" y2="{len(rows) * _ROW + 4}" {_AXIS}/>'
    return svg_figure(len(rows) * _ROW + 12, title, [zero, *body])
