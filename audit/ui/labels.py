"""Labels: how the classes fill the splits, what is said of them; boxes on their pictures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt
import polars as pl
import streamlit as st

from audit.browse import findings as browse
from audit.browse.findings import FindingFilter
from audit.browse.labels import bar_conditions, class_by_split, label_table, shown_classes
from audit.printable import visible_frame
from audit.report.contents import Dataset
from audit.report.wording import counted
from audit.ui import html, link
from audit.ui.boxes import draw_boxes_view
from audit.ui.detail import dialogue, open_image
from audit.ui.gallery import show_gallery
from audit.ui.listing import ListColumn, ListRow, show_listing
from audit.ui.opened import Opened, open_chosen_run
from audit.ui.strip import clickable, clicked_place, explore_where, show_selectable

FAMILIES = ("LABEL", "BOX", "DIST")
COLUMNS = (
    ListColumn("severity", "Severity", "severity", "7rem"),
    ListColumn("code", "Code", "code", "6.4rem"),
    ListColumn("message", "What was found"),
    ListColumn("status", "", "chip", "5.4rem"),
)
VIEWS = ("Classes", "Boxes")
SHOWN = 60
GALLERY = 12


def page() -> None:
    """Show the page."""
    run = open_chosen_run()
    st.title("Labels")
    annotated = run.report().boxes is not None
    # A link may ask for boxes that this run has not: it gets the sentence that says so.
    if (annotated or link.get("view") == VIEWS[1]) and link.switch("View", "view", VIEWS) != VIEWS[
        0
    ]:
        draw_boxes_view(run)
        dialogue()
        return
    data = run.report().dataset
    table = label_table(data)
    if table.is_empty():
        html.empty(
            "This dataset has no labels.",
            "Scan a manifest with a label column, or folders named by class.",
        )
    else:
        _classes(data, table)
    _findings(run)
    _conflicts(run)
    dialogue()


def _classes(data: Dataset, table: pl.DataFrame) -> None:
    """Draw a bar a class and split; a click on one opens Explore with its files."""
    st.header("Files by class and split")
    chosen = link.switch("Scale", "scale", ("Files", "Share of the split"))
    named, said = shown_classes(table)
    rows = visible_frame(named).with_row_index("place")
    share = chosen != "Files"
    field, title = ("share:Q", "share of the split") if share else ("files:Q", "files")
    axis = alt.Axis(format="%" if share else "~s", tickMinStep=0 if share else 1)
    order = rows["class"].unique(maintain_order=True).to_list()
    bars = (
        alt.Chart(rows)
        .mark_bar(cursor="pointer")
        .encode(
            y=alt.Y("class:N", sort=order, title=None, axis=alt.Axis(labelLimit=180)),
            x=alt.X(field, title=title, axis=axis),
            yOffset=alt.YOffset("split:N", sort=None),
            color=alt.Color("split:N", sort=None, title="split"),
            tooltip=[
                "class",
                "split",
                alt.Tooltip("files:Q", format=","),
                alt.Tooltip("share:Q", format=".1%"),
            ],
        )
        .properties(height=max(160, 30 * len(order)))
    )

    def explore(chosen: Mapping[str, Any]) -> None:
        place = clicked_place(chosen, named.height)
        if place is not None:
            row = named.row(place, named=True)
            explore_where(*bar_conditions(data, row["class"], row["split"]))

    left, right = st.columns([3, 2], gap="large")
    with left:
        show_selectable(clickable(bars), "class bars", explore)
        if said:
            html.paragraph(said, "quiet small")
    with right:
        wide = visible_frame(class_by_split(table))
        st.dataframe(wide, hide_index=True, width="stretch", height=min(560, 38 + 35 * wide.height))


def _findings(run: Opened) -> None:
    st.header("What the checks say of labels and boxes")
    with run.store() as store:
        rows = browse.page(store, FindingFilter(codes=FAMILIES, folded=True), size=SHOWN)
        total = browse.count_findings(store, FindingFilter(codes=FAMILIES))
    if not rows.rows:
        html.empty("The checks of labels, boxes and class counts found nothing.")
        return
    lines = [
        ListRow(
            row.fingerprint,
            {
                "severity": row.severity.value,
                "code": row.code,
                "message": _said(row),
                "status": "" if row.status == "open" else row.status,
            },
            row.status != "open",
        )
        for row in rows.rows
    ]
    folds = {row.fingerprint: row.fold for row in rows.rows if row.n_folded > 1}
    show_listing(
        "label findings",
        COLUMNS,
        lines,
        lambda f: link.go(
            "findings", run=link.get("run"), finding=f, status="all", fold=folds.get(f)
        ),
    )
    shown = sum(row.n_folded for row in rows.rows)
    if total > shown:
        html.paragraph(
            f"The first {shown:,} of {counted(total, 'finding')}: the rest is on "
            "the page Findings.",
            "quiet small",
        )


def _said(row: browse.Row) -> str:
    return f"{row.n_folded:,} findings like: {row.message}" if row.n_folded > 1 else row.message


def _conflicts(run: Opened) -> None:
    # One pass under the store's lock: other tabs wait for it.
    with run.store() as store:
        rows = browse.page(store, FindingFilter(codes=("LABEL005",)), size=GALLERY)
        members = browse.members_of(store, [row.fingerprint for row in rows.rows])
    if not rows.rows:
        return
    st.header("One picture, two labels")
    for number, row in enumerate(rows.rows):
        files = members[row.fingerprint]
        with st.container(border=True):
            html.paragraph(row.message)
            show_gallery(
                f"conflict {number}",
                files,
                run.thumbnails().many(files),
                marks={c.id: c.label or "no label" for c in files},
                on_open=open_image,
                width=150,
            )
