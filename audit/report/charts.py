"""Class counts as bars, one column a split, in inline SVG: no script, readable in both themes.

Every column has its own scale, from zero: what is compared is the shape of the class distribution
between splits, whose sizes differ by design. Colours come from the page's style sheet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from audit.printable import visible
from audit.report.contents import Dataset

ROW, BAR = 20, 12  # px
NAME, COLUMN, COUNT = 190, 190, 58  # px: class names, one split, room for its count
HEAD = 24  # px
MOST, FEWEST, SPLITS = 30, 10, 5  # what is drawn of a large dataset
# For viewers that keep style sheets out of SVG; elsewhere the page's colours win.
FILL = ("#3b6fb6", "#c2762b", "#3f8f5f", "#8a5fb0", "#7a7f87")

Rows = Sequence[str | None]


def class_bars(data: Dataset) -> str:
    """Return an SVG of files by class and split; of over 40 classes the extremes."""
    totals = data.by_class()
    if not set(totals) - {None}:
        return ""
    splits = list(data.by_split())[:SPLITS]
    cells = {(c.label, c.split): c.n for c in data.classes}
    ordered: list[str | None] = sorted(totals, key=lambda label: (-totals[label], label or ""))
    top, bottom, hidden = _extremes(ordered)
    rows = len(top) + len(bottom) + bool(hidden)
    width, height = NAME + len(splits) * (COLUMN + COUNT), HEAD + rows * ROW
    drawn = [*_columns(splits, top, cells, HEAD)]
    if hidden:
        at = HEAD + len(top) * ROW
        drawn.append(_text(0, at, f"{hidden:,} classes between, not drawn", "quiet"))
        drawn += _columns(splits, bottom, cells, at + ROW, scales=_scales(splits, cells))
    heads = [
        _text(NAME + i * (COLUMN + COUNT), 0, split or "all files", "quiet")
        for i, split in enumerate(splits)
    ]
    return (
        f'<svg class="bars" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-size="12" role="img" aria-label="files by class and split">'
        f"{''.join(heads + drawn)}</svg>"
    )


def _extremes(ordered: list[str | None]) -> tuple[Rows, Rows, int]:
    if len(ordered) <= MOST + FEWEST:
        return ordered, [], 0
    return ordered[:MOST], ordered[-FEWEST:], len(ordered) - MOST - FEWEST


def _scales(
    splits: Rows, cells: Mapping[tuple[str | None, str | None], int]
) -> dict[str | None, int]:
    return {s: max([n for (_, split), n in cells.items() if split == s] or [1]) for s in splits}


def _columns(
    splits: Rows,
    labels: Rows,
    cells: Mapping[tuple[str | None, str | None], int],
    top: int,
    scales: Mapping[str | None, int] | None = None,
) -> list[str]:
    largest = scales or _scales(splits, cells)
    drawn = []
    for row, label in enumerate(labels):
        y = top + row * ROW
        drawn.append(_text(0, y, label or "(no label)", "name"))
        for column, split in enumerate(splits):
            n, x = cells.get((label, split), 0), NAME + column * (COLUMN + COUNT)
            drawn.append(_bar(x, y, n, max(largest[split], 1), column))
    return drawn


def _bar(x: int, y: int, n: int, largest: int, column: int) -> str:
    if not n:
        return _text(x, y, "0", "count zero")
    # A class of one file among thousands must still be seen.
    length = max(2.0, COLUMN * n / largest)
    bar = (
        f'<rect class="split{column}" fill="{FILL[column]}" x="{x}" y="{y + 2}" '
        f'width="{length:.1f}" height="{BAR}"/>'
    )
    return bar + _text(x + round(length) + 5, y, f"{n:,}", "count")


def _text(x: int, y: int, words: str, kind: str) -> str:
    shown = visible(words)
    cut = shown if len(shown) <= 26 else shown[:25] + "…"
    title = f"<title>{escape(shown)}</title>" if cut != shown and kind == "name" else ""
    text = escape(cut if kind == "name" else shown)
    return f'<text class="{kind}" x="{x}" y="{y + 12}">{text}{title}</text>'
