"""Small drawings of boxes in inline SVG: histograms and a map of positions, one a split.

Each has its own scale: what is compared between splits is the shape. Colours come from the page's
style sheet, the darkness of a map from `fill-opacity`, which both themes show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from audit.annotations.box_summary import BoxBin, BoxPlace
from audit.printable import visible
from audit.report.charts import FILL

WIDTH, HEIGHT, FOOT, HEAD = 200, 90, 18, 18  # px
CELL, GRID = 9, 16  # px; cells a side
STEPS = ((0, "0"), (1, "1"), (2, "2"), (3, "3"), (5, "5"), (9, "9"), (17, "17"), (33, "33"),
         (65, "65"), (129, "129+"))  # fmt: skip


def count_bars(bins: Sequence[BoxBin], column: int, title: str) -> str:
    """Return pictures by number of boxes: 0, 1, 2, 3-4, 5-8, ..."""
    edges = [low for low, _ in STEPS]
    heights = dict.fromkeys((name for _, name in STEPS), 0)
    for one in bins:
        at = max(i for i, low in enumerate(edges) if low <= one.low)
        heights[STEPS[at][1]] += one.n
    last = max((i for i, n in enumerate(heights.values()) if n), default=0)
    return bars(dict(list(heights.items())[: max(last + 1, 4)]), column, title)


def ratio_bars(bins: Sequence[BoxBin], column: int, title: str) -> str:
    """Return boxes by width / height, from 1:16 to 16:1, in quarters of a doubling."""
    found = {one.low: one.n for one in bins}
    lows = [k / 4 for k in range(-16, 16)]
    names: dict[float, str] = {
        -3: "1:8",
        -2: "1:4",
        -1: "1:2",
        0: "1:1",
        1: "2:1",
        2: "4:1",
        3: "8:1",
    }
    named = {f"{names.get(low, '')}\0{low}": found.get(low, 0) for low in lows}
    return bars(named, column, title)


def overlap_bars(bins: Sequence[BoxBin], column: int, title: str) -> str:
    """Return boxes by their greatest IoU with another box of the picture."""
    found = {one.low: one.n for one in bins}
    lows = [k / 10 for k in range(10)]
    named = {"none": found.get(-1.0, 0)} | {f"{low:.1f}": found.get(low, 0) for low in lows}
    return bars(named, column, title)


def bars(heights: Mapping[str, int], column: int, title: str) -> str:
    """Return upright bars; of a name only what stands before a NUL is written."""
    most, step = max([*heights.values(), 1]), WIDTH / max(len(heights), 1)
    drawn = [_title(title)]
    for i, (name, n) in enumerate(heights.items()):
        word = name.partition("\0")[0]
        # One box among thousands must still be seen.
        height = max(1.5, (HEIGHT - 4) * n / most) if n else 0
        drawn.append(
            f'<rect class="split{column}" fill="{FILL[column]}" x="{i * step + 0.5:.1f}" '
            f'y="{HEAD + HEIGHT - height:.1f}" width="{step - 1:.1f}" height="{height:.1f}">'
            f"<title>{escape(word)}: {n:,}</title></rect>"
        )
        if word:
            drawn.append(
                f'<text class="quiet" text-anchor="middle" font-size="10" '
                f'x="{(i + 0.5) * step:.1f}" y="{HEAD + HEIGHT + 13}">{escape(word)}</text>'
            )
    return _svg(WIDTH, HEAD + HEIGHT + FOOT, drawn, title)


def position_map(places: Sequence[BoxPlace], column: int, title: str) -> str:
    """Return where the centres of boxes lie: the darker, the more."""
    most = max([place.n for place in places] or [1])
    side = CELL * GRID
    drawn = [
        _title(title),
        f'<rect class="outline" fill="none" stroke="{FILL[4]}" x="0.5" y="{HEAD + 0.5}" '
        f'width="{side}" height="{side}"/>',
    ]
    drawn += [
        f'<rect class="split{column}" fill="{FILL[column]}" x="{place.cell_x * CELL + 0.5}" '
        f'y="{HEAD + place.cell_y * CELL + 0.5}" width="{CELL}" height="{CELL}" '
        f'fill-opacity="{max(0.06, place.n / most):.2f}"><title>{place.n:,}</title></rect>'
        for place in places
    ]
    return _svg(side + 2, HEAD + side + 2, drawn, title)


def _title(words: str) -> str:
    return f'<text class="quiet" x="0" y="12">{escape(visible(words))}</text>'


def _svg(width: int, height: int, drawn: Sequence[str], title: str) -> str:
    return (
        f'<svg class="bars" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-size="12" role="img" aria-label="{escape(visible(title))}">{"".join(drawn)}</svg>'
    )
