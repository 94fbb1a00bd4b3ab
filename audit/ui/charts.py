"""Charts that filter: the strip above the images, and a scatter of two columns with a lasso.

A drawn range or a clicked bar becomes a condition of the link. A column is counted under all
filters but its own. The scatter is a canvas: 20,000 points are too many marks for a chart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import altair as alt
import polars as pl
import streamlit as st

from audit.report.thumbnails import Thumbnail
from audit.results import distributions
from audit.results.boxes import COLOURS
from audit.results.filters import (
    Between,
    ColumnOf,
    Condition,
    Kind,
    OneOf,
    from_link,
    to_link,
    without,
)
from audit.results.formatting import number_text
from audit.sources.tables import visible_frame
from audit.ui import html, link
from audit.ui.gallery import component, show_gallery
from audit.ui.opened import Opened
from dataset_preflight.foundation.terminal import visible

HEIGHT = 100  # px, with its axis: the first row of pictures is seen without scrolling
LARGE = 1000
EXTREMES = 16
BRUSH, CLICK = "brush", "click"
NONE = "(none)"


def show_strip(run: Opened, one: ColumnOf, conditions: Sequence[Condition]) -> None:
    """Draw the distribution of a column; what is drawn on it filters the page."""
    others = tuple(without(conditions, one.name))
    bars = run.ask(distributions.histogram, one.name, others)
    if bars.is_empty():
        return
    mine = next((c for c in conditions if getattr(c, "column", "") == one.name), None)
    bars = bars.with_row_index("place").with_columns(inside=_inside(bars, mine))
    key = f"strip {one.name} {link.get('where')}"
    if one.kind is Kind.NUMBER:
        brushed = partial(_brushed, one.name, conditions)
        show_selectable(_numbers(bars), key, brushed, f"Files by {one.name}")
    else:
        clicked = partial(_clicked, one.name, conditions, bars["value"].to_list())
        show_selectable(_choices(bars), key, clicked, f"Files by {one.name}")


def show_extremes(run: Opened, one: ColumnOf, where: str) -> None:
    """Show the pictures with the least and the greatest values of a number column."""
    if one.kind is not Kind.NUMBER:
        html.empty(f"{one.name} holds no numbers.", "Choose another column to show.")
        return
    html.paragraph(f"{one.name}: {one.doc}" if one.doc else one.name, "quiet small")
    least, greatest = run.ask(distributions.extremes, one.name, from_link(where), EXTREMES)
    for title, key, cards in (("Lowest", "low strip", least), ("Highest", "high strip", greatest)):
        st.header(title)
        show_gallery(run, key, cards, lines=lambda card: [number_text(card.value)], width=130)


def _inside(bars: pl.DataFrame, mine: Condition | None) -> pl.Expr:
    match mine:
        case Between(_, low, high) if "low" in bars.columns:
            return (pl.col("high") > low) & (pl.col("low") <= high)
        case OneOf(_, values) if "value" in bars.columns:
            return pl.col("value").is_in([NONE if v is None else v for v in values])
    return pl.lit(value=True)


def show_selectable(
    chart: alt.Chart, key: str, act: Callable[[Mapping[str, Any]], None], said: str = ""
) -> None:
    """Show a chart; `act` gets a selection by its name; `said` is the accessible name."""

    def selected() -> None:
        chosen = st.session_state[key].get("selection")
        if isinstance(chosen, Mapping):
            act(chosen)

    st.altair_chart(chart, width="stretch", key=key, on_select=selected, alt=said or None)


def range_of(chosen: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return the range that was brushed, to five digits; None for none, or for no numbers."""
    drawn = chosen.get(BRUSH)
    ends = next(iter(drawn.values()), None) if isinstance(drawn, Mapping) else None
    try:
        low, high = (float(f"{float(end):.5g}") for end in ends or ())
    except (TypeError, ValueError):
        return None
    return (low, high) if math.isfinite(low) and math.isfinite(high) and low <= high else None


def clicked_place(chosen: Mapping[str, Any], n: int) -> int | None:
    """Return which of `n` marks was clicked; None for none of them."""
    clicked = chosen.get(CLICK)
    first = clicked[0] if isinstance(clicked, list) and clicked else None
    place = first.get("place") if isinstance(first, Mapping) else None
    return place if isinstance(place, int) and 0 <= place < n else None


def clickable(chart: alt.Chart) -> alt.Chart:
    """Return the chart with marks to click, told apart by their column `place`."""
    return chart.add_params(alt.selection_point(name=CLICK, fields=["place"]))


def _brushed(name: str, conditions: Sequence[Condition], chosen: Mapping[str, Any]) -> None:
    drawn = range_of(chosen)
    if drawn is not None:
        put_conditions([*without(conditions, name), Between(name, *drawn)])


def _clicked(
    name: str, conditions: Sequence[Condition], values: Sequence[str], chosen: Mapping[str, Any]
) -> None:
    place = clicked_place(chosen, len(values))
    if place is not None:
        value = None if values[place] == NONE else values[place]
        put_conditions(toggled(conditions, name, value))


def toggled(conditions: Sequence[Condition], name: str, value: str | None) -> list[Condition]:
    """Return the conditions with a value of a column chosen, or let go of where it was."""
    mine = next((c for c in conditions if isinstance(c, OneOf) and c.column == name), None)
    before = mine.values if mine else ()
    after = tuple(v for v in before if v != value) if value in before else (*before, value)
    return [*without(conditions, name), *([OneOf(name, after)] if after else [])]


def put_conditions(conditions: Sequence[Condition]) -> None:
    """Write the filters to the link, and go to the first page."""
    link.first_page("lasso")
    link.put(where=to_link(conditions))


def explore_where(*conditions: Condition) -> None:
    """Open Explore with the pictures under these conditions."""
    link.go("explore", run=link.get("run"), where=to_link(conditions))


def _bars(bars: pl.DataFrame, cursor: str, x: alt.X, *told: Any, **more: Any) -> alt.Chart:
    files = alt.Axis(format="~s", tickMinStep=1, tickCount=2)
    return (
        alt.Chart(visible_frame(bars))
        .properties(height=HEIGHT)
        .mark_bar(cursor=cursor)
        .encode(
            x=x,
            y=alt.Y("files:Q", title=None, axis=files),
            tooltip=[*told, alt.Tooltip("files:Q", format=",")],
            opacity=alt.condition("datum.inside", alt.value(1.0), alt.value(0.3)),
            **more,
        )
    )


def _numbers(bars: pl.DataFrame) -> alt.Chart:
    large = float(bars["high"].max() or 0) >= LARGE  # type: ignore[arg-type]
    axis = alt.Axis(format="~s" if large else ".4~g")
    x = alt.X("low:Q", title=None, bin="binned", axis=axis)
    low = alt.Tooltip("low:Q", format=".4~g", title="from")
    high = alt.Tooltip("high:Q", format=".4~g", title="to")
    drawn = _bars(bars, "crosshair", x, low, high, x2="high:Q")
    return drawn.add_params(alt.selection_interval(name=BRUSH, encodings=["x"]))


def _choices(bars: pl.DataFrame) -> alt.Chart:
    axis = alt.Axis(labelAngle=0, labelLimit=120, labelOverlap=True)
    x = alt.X("value:N", sort=None, title=None, axis=axis)
    return clickable(_bars(bars, "pointer", x, "value"))


def show_viewer(key: str, images: Sequence[tuple[str, bytes]], height: int) -> None:
    """Show a JPEG that can be zoomed and panned, or two of one view with a slider between them."""
    component("viewer")(
        key=key,
        data={
            "height": height,
            "images": [
                {"name": visible(name), "src": Thumbnail(data).data_uri} for name, data in images
            ],
        },
    )


MOST = 11  # values with a colour of their own
REST = "(others)"
GREY = "rgb(122, 127, 135)"
Polygon = Sequence[tuple[float, float]]


def show_scatter(
    key: str,
    rows: pl.DataFrame,
    x: str,
    y: str,
    on_lasso: Callable[[list[tuple[float, float]]], None],
    lasso: Polygon = (),
    order: Sequence[str] = (),
) -> None:
    """Draw `rows` (x, y, colour); `on_lasso` gets the corners; `order` fixes the colours."""
    names = rows["colour"].value_counts(sort=True)["colour"].head(MOST).to_list()
    places = {name: place for place, name in enumerate(order)}
    known = {name: number for number, name in enumerate(names)}
    more = rows["colour"].n_unique() > len(names)
    codes = rows["colour"].replace_strict(known, default=len(names), return_dtype=pl.Int32)

    def drawn() -> None:
        value = st.session_state[key].get("lasso")
        if isinstance(value, list):
            on_lasso([(float(a), float(b)) for a, b in value])

    component("scatter")(
        key=key,
        data={
            "xs": rows["x"].round(6).to_list(),
            "ys": rows["y"].round(6).to_list(),
            "colours": codes.to_list(),
            "xName": visible(x),
            "yName": visible(y),
            "names": [visible(n) for n in (*names, *([REST] if more else []))],
            "palette": [
                *(f"rgb{COLOURS[places.get(n, k) % len(COLOURS)]}" for k, n in enumerate(names)),
                GREY,
            ],
            "lasso": [list(corner) for corner in lasso],
        },
        on_lasso_change=drawn,
    )
