"""The overlap of the splits: which share of one is shown in another, as a matrix."""

from __future__ import annotations

from functools import partial

import altair as alt
import polars as pl
import streamlit as st

from audit.browse.duplicates import overlap_matrix
from audit.printable import visible_frame
from audit.ui import html, link
from audit.ui.listing import ListColumn, ListRow, show_listing
from audit.ui.opened import Opened, cached

COLUMNS = (
    ListColumn("of", "Files of"),
    ListColumn("in", "also in"),
    ListColumn("files", "Files", "number", "7rem"),
    ListColumn("share", "Share", "bar", "7rem"),
)
FULL = 0.2  # leaked share of the darkest colour; light text begins at half of it
NOTHING = "#88888818"  # of a cell in which nothing is shared: hardly there, light or dark


def show_overlap(run: Opened) -> None:
    """Draw the matrix, and the way to the groups behind it."""
    matrix = _matrix(run.key, run)
    if matrix.is_empty():
        html.empty(
            "This dataset has fewer than two splits with pictures.",
            "There is nothing that could leak from one into another.",
        )
        return
    html.paragraph(
        "Of the files of a row's split, how many show a picture that the column's split "
        "shows too: by bytes, by pixels, or as a verified near-duplicate."
    )
    left, right = st.columns([3, 2], gap="large")
    with left:
        st.altair_chart(heat_of_splits(matrix), width="stretch")
    with right:
        _rows(matrix)
    said = [c.completeness for c in run.report().checks if c.code == "SPLIT001"]
    for sentence in filter(None, said):
        html.paragraph(sentence, "quiet small")
    st.button("See the leaking groups", on_click=partial(link.put, view=None, code="SPLIT001"))


def _rows(matrix: pl.DataFrame) -> None:
    """Draw the cells as rows, the largest share first: a click opens the groups of both splits."""
    cells = matrix.sort("share", descending=True, maintain_order=True).rows(named=True)
    lines = [
        ListRow(
            str(place),
            {
                "of": cell["of"],
                "in": cell["in"],
                "files": f"{cell['shared']:,} of {cell['files']:,}",
                "share": {"share": cell["share"], "text": f"{cell['share']:.1%}"},
            },
            settled=not cell["shared"],
        )
        for place, cell in enumerate(cells)
    ]

    def opened(place: str) -> None:
        if place.isdecimal() and int(place) < len(cells):
            open_cell(cells[int(place)]["of"], cells[int(place)]["in"])

    show_listing("overlap cells", COLUMNS, lines, opened)


def open_cell(of: str, within: str) -> None:
    """Open the duplicates that two splits share."""
    link.first_page("finding")
    link.put(view=None, code=None, split=of, beside=within)


@cached
def _matrix(key: str, _run: Opened) -> pl.DataFrame:
    with _run.store() as store:
        return overlap_matrix(store)


def heat_of_splits(matrix: pl.DataFrame) -> alt.LayerChart:
    """Return the matrix as cells with their shares; a cell without overlap has no colour."""
    shown = visible_frame(matrix).rename({"of": "row", "in": "column"})
    base = alt.Chart(shown).encode(
        x=alt.X("column:N", title="… also shown in", axis=alt.Axis(orient="top", labelAngle=0)),
        y=alt.Y("row:N", title="files of"),
    )
    colour = alt.Color(
        "share:Q",
        title="leaked share",
        scale=alt.Scale(range=["#eef3f8", "#0b5c8a"], domain=[0, FULL], clamp=True),
        legend=alt.Legend(format="%"),
    )
    tooltip = [
        "row",
        "column",
        alt.Tooltip("shared", format=","),
        alt.Tooltip("files", format=","),
        alt.Tooltip("share", format=".1%"),
    ]
    empty = "datum.shared == 0"
    cells = base.mark_rect(cornerRadius=4).encode(
        color=alt.condition(empty, alt.value(NOTHING), colour), tooltip=tooltip
    )
    # on a cell without colour, a grey that is read on light and on dark
    ink = alt.when(empty).then(alt.value("#7a7f87"))
    ink = ink.when(f"datum.share > {FULL / 2}").then(alt.value("white"))
    text = base.mark_text(fontSize=14, fontWeight=600).encode(
        text=alt.Text("share:Q", format=".1%"), color=ink.otherwise(alt.value("#1c1e21"))
    )
    return alt.layer(cells, text).properties(height=90 * matrix["of"].n_unique() + 40)
