"""Two columns against each other, with a lasso: one canvas, because 20,000 points are too many for
a chart of separate marks. The lasso is reported in the units of the axes, so a link can hold it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import polars as pl
import streamlit as st

from audit.printable import visible
from audit.ui.gallery import component

COLOURS = 8
REST = "(others)"
Polygon = Sequence[tuple[float, float]]


def show_scatter(
    key: str,
    rows: pl.DataFrame,
    x: str,
    y: str,
    on_lasso: Callable[[list[tuple[float, float]]], None],
    lasso: Polygon = (),
) -> None:
    """Draw `rows` (x, y, colour); `on_lasso` gets the corners drawn, none to let go of them."""
    names = rows["colour"].value_counts(sort=True)["colour"].head(COLOURS - 1).to_list()
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
            "lasso": [list(corner) for corner in lasso],
        },
        on_lasso_change=drawn,
    )
