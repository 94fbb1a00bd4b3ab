"""The strip above the pictures: how a column is distributed, and a filter by drawing on it.

A range drawn on numbers, and a click on a bar of choices, become a condition of the link. The bars
of a column are counted under every other filter but its own, so that a drawn range can be drawn
anew and a second choice be added; what its own filter leaves out is pale.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import altair as alt
import polars as pl
import streamlit as st

from audit.browse import distributions
from audit.browse.columns import ColumnOf, Kind
from audit.browse.conditions import Between, Condition, OneOf, from_link, to_link, without
from audit.browse.images import Card
from audit.printable import visible_frame
from audit.report.wording import number_text
from audit.ui import html, link
from audit.ui.detail import open_image
from audit.ui.gallery import show_gallery
from audit.ui.opened import Opened, cached

HEIGHT = 100  # px, with its axis: the first row of pictures is seen without scrolling
LARGE = 1000
EXTREMES = 16
BRUSH, CLICK = "brush", "click"
NONE = "(none)"


def show_strip(run: Opened, one: ColumnOf, conditions: Sequence[Condition]) -> None:
    """Draw the distribution of a column; what is drawn on it filters the page."""
    others = to_link(without(conditions, one.name))
    bars = _bars(run.key, one.name, others, run)
    if bars.is_empty():
        return
    mine = next((c for c in conditions if getattr(c, "column", "") == one.name), None)
    bars = bars.with_row_index("place").with_columns(inside=_inside(bars, mine))
    if one.kind is Kind.NUMBER:
        show_selectable(
            _numbers(bars),
            f"strip {one.name} {link.get('where')}",
            lambda chosen: _brushed(one.name, chosen, conditions),
        )
        return
    values = bars["value"].to_list()
    show_selectable(
        _choices(bars),
        f"strip {one.name} {link.get('where')}",
        lambda chosen: _clicked(one.name, values, chosen, conditions),
    )


def show_extremes(run: Opened, one: ColumnOf, where: str) -> None:
    """Show the pictures with the least and the greatest values of a number column."""
    if one.kind is not Kind.NUMBER:
        html.empty(f"{one.name} holds no numbers.", "Choose another column to show.")
        return
    html.paragraph(f"{one.name}: {one.doc}" if one.doc else one.name, "quiet small")
    least, greatest = _extremes(run.key, one.name, where, run)
    for title, key, cards in (("Lowest", "low strip", least), ("Highest", "high strip", greatest)):
        st.header(title)
        show_gallery(
            key,
            cards,
            run.thumbnails().many(cards),
            on_open=open_image,
            lines=lambda card: [number_text(card.value)],
            width=130,
        )


@cached
def _bars(key: str, name: str, where: str, _run: Opened) -> pl.DataFrame:
    with _run.store() as store:
        return distributions.histogram(store, name, from_link(where))


@cached
def _extremes(
    key: str, name: str, where: str, _run: Opened
) -> tuple[tuple[Card, ...], tuple[Card, ...]]:
    with _run.store() as store:
        return distributions.extremes(store, name, from_link(where), EXTREMES)


def _inside(bars: pl.DataFrame, mine: Condition | None) -> pl.Expr:
    match mine:
        case Between(_, low, high) if "low" in bars.columns:
            return (pl.col("high") > low) & (pl.col("low") <= high)
        case OneOf(_, values) if "value" in bars.columns:
            return pl.col("value").is_in([NONE if v is None else v for v in values])
    return pl.lit(value=True)


# ---- what was drawn ----


def show_selectable(chart: alt.Chart, key: str, act: Callable[[Mapping[str, Any]], None]) -> None:
    """Show a chart; `act` gets what is selected on it by the name of the selection."""

    def selected() -> None:
        chosen = st.session_state[key].get("selection")
        if isinstance(chosen, Mapping):
            act(chosen)

    st.altair_chart(chart, width="stretch", key=key, on_select=selected)


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


def _brushed(name: str, chosen: Mapping[str, Any], conditions: Sequence[Condition]) -> None:
    drawn = range_of(chosen)
    if drawn is not None:
        put_conditions([*without(conditions, name), Between(name, *drawn)])


def _clicked(
    name: str, values: Sequence[str], chosen: Mapping[str, Any], conditions: Sequence[Condition]
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


# ---- charts ----


def _base(bars: pl.DataFrame) -> alt.Chart:
    return alt.Chart(visible_frame(bars)).properties(height=HEIGHT)


def _files() -> alt.Y:
    return alt.Y("files:Q", title=None, axis=alt.Axis(format="~s", tickMinStep=1, tickCount=2))


def _paleness() -> Any:
    return alt.condition("datum.inside", alt.value(1.0), alt.value(0.3))


def _numbers(bars: pl.DataFrame) -> alt.Chart:
    large = float(bars["high"].max() or 0) >= LARGE  # type: ignore[arg-type]
    axis = alt.Axis(format="~s" if large else ".4~g")
    tooltip = [
        alt.Tooltip("low:Q", format=".4~g", title="from"),
        alt.Tooltip("high:Q", format=".4~g", title="to"),
        alt.Tooltip("files:Q", format=","),
    ]
    x = alt.X("low:Q", title=None, bin="binned", axis=axis)
    drawn = _base(bars).mark_bar(cursor="crosshair").encode(
        x=x, x2="high:Q", y=_files(), tooltip=tooltip, opacity=_paleness()
    )  # fmt: skip
    return drawn.add_params(alt.selection_interval(name=BRUSH, encodings=["x"]))


def _choices(bars: pl.DataFrame) -> alt.Chart:
    axis = alt.Axis(labelAngle=0, labelLimit=120, labelOverlap=True)
    x = alt.X("value:N", sort=None, title=None, axis=axis)
    tooltip = ["value", alt.Tooltip("files:Q", format=",")]
    drawn = _base(bars).mark_bar(cursor="pointer").encode(
        x=x, y=_files(), tooltip=tooltip, opacity=_paleness()
    )  # fmt: skip
    return clickable(drawn)
