"""Labels: probably wrong labels, most doubtful first; classes by split; boxes on their images.

Keys of the first view: K the label is right, R relabel as suggested, 1 to 9 relabel to that class,
N next, P previous, U undo.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import polars as pl
import streamlit as st

from audit.report.boxes import render_boxes
from audit.report.previews import with_boxes
from audit.results import boxes
from audit.results import findings as browse
from audit.results.boxes import COLOURS, AnnotatedPage, AnnotatedPicture, BoxChoices, BoxFilter
from audit.results.distributions import bar_conditions, class_by_split, label_table, shown_classes
from audit.results.findings import FindingFilter
from audit.results.formatting import ICONS, counted
from audit.results.images import cards
from audit.results.label_review import (
    Suspect,
    count_suspects,
    load_suspects,
    rank_of,
    read_reviewed,
)
from audit.results.report_data import Card, Dataset
from audit.sources.tables import visible_frame
from audit.ui import html, link
from audit.ui.charts import clickable, clicked_place, explore_where, show_selectable
from audit.ui.deciding import button, drawn_late, page_buttons
from audit.ui.detail import dialogue, largest_classes
from audit.ui.frame import make_fragment, page_changed
from audit.ui.gallery import component, show_gallery
from audit.ui.opened import Opened, open_chosen_run
from audit.ui.queue import BEHIND, SUSPECTS, show_label_queue
from dataset_preflight.foundation.terminal import visible

FAMILIES = {"LABEL": "Labels", "BOX": "Boxes", "DIST": "Class counts"}
SUSPECTS_VIEW, CLASSES, BOXES = "Suspects", "Classes", "Boxes"
OTHER = "class to relabel a suspect to"
GALLERY = 12
RANKS_AT_ONCE = 256


def page() -> None:
    """Show the page."""
    run = open_chosen_run()
    st.title("Labels")
    # A link may ask for boxes that this run has not: it gets the sentence that says so.
    boxed = run.report().boxes is not None or link.get("view") == BOXES
    judged = bool(count_suspects(run))
    views = [SUSPECTS_VIEW] * judged + [CLASSES] + [BOXES] * boxed
    view = link.switch("View", "view", views) if len(views) > 1 else CLASSES
    if view != CLASSES:
        _suspects(run) if view == SUSPECTS_VIEW else draw_boxes_view(run)
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
    dialogue()


@make_fragment
def _suspects(run: Opened) -> None:
    total = count_suspects(run)
    asked = rank_of(run, link.get("suspect")) if link.get("suspect") else None
    first = asked or _next_rank(run, 1, total) or 1
    (current,) = load_suspects(run, first, 1)
    ranked = load_suspects(run, max(first - BEHIND, 1), BEHIND + SUSPECTS + GALLERY)
    told = read_reviewed(run, run.decisions.labels)
    left = [one for one in ranked if one.id == current.id or not _is_decided(run, one)]
    at = left.index(current)
    html.paragraph(
        f"{counted(total, 'label')} most suspicious first. This is number {first:,}. {told.said()}",
        "quiet small",
    )
    classes = largest_classes(run)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        button("Correct (K)", "suspect keep", drawn_late)
        button(
            "Relabel as suggested (R)", "suspect relabel", drawn_late,
            disabled=not current.suggested,
        )  # fmt: skip
        button("Previous (P)", "suspect previous", drawn_late)
        button("Next (N)", "suspect next", drawn_late, primary=True)
        other = st.selectbox(
            "Another class", [c for c in run.report().dataset.by_class() if c], index=None,
            key=OTHER, accept_new_options=True, on_change=page_changed,
            placeholder="choose or type", format_func=visible,
        )  # fmt: skip
        button("Relabel to this class", "suspect other", drawn_late, disabled=not other)
    show_label_queue(run, left, current.id, classes, other or "")
    _ranked(run, left[at:])


def _is_decided(run: Opened, one: Suspect) -> bool:
    return any(name in run.decisions.by_sample for name in one.samples)


def _next_rank(run: Opened, first: int, total: int) -> int | None:
    """Return the first rank from `first` on that nothing was decided about."""
    while first <= total:
        for one in load_suspects(run, first, RANKS_AT_ONCE):
            if not _is_decided(run, one):
                return one.rank
        first += RANKS_AT_ONCE
    return None


def _ranked(run: Opened, suspects: Sequence[Suspect]) -> None:
    st.header("The next in the list")
    by_id = {one.id: one for one in suspects}
    shown = cards(run, list(by_id))

    def lines(card: Card) -> list[str]:
        one = by_id[card.id]
        chance = "" if one.chance is None else f": wrong {one.chance:.0%}"
        return [f"{one.rank:,}{chance}", f"{one.label} → {one.suggested or 'no suggestion'}"]

    show_gallery(run, "ranked labels", shown, lines=lines, marks=run.decisions.by_sample, width=150)


def _classes(data: Dataset, table: pl.DataFrame) -> None:
    st.header("Files by class and split")
    chosen = link.switch("Scale", "scale", ("Files", "Share of the split"))
    named, said = shown_classes(table)
    rows = visible_frame(named).with_row_index("place")
    share = chosen != "Files"
    field, title = ("share:Q", "share of the split") if share else ("files:Q", "files")
    axis = alt.Axis(format="%" if share else "~s", tickMinStep=0 if share else 1)
    order = rows["class"].unique(maintain_order=True).to_list()
    numbers = alt.Tooltip("files:Q", format=","), alt.Tooltip("share:Q", format=".1%")
    bars = (
        alt.Chart(rows)
        .mark_bar(cursor="pointer")
        .encode(
            y=alt.Y("class:N", sort=order, title=None, axis=alt.Axis(labelLimit=180)),
            x=alt.X(field, title=title, axis=axis),
            yOffset=alt.YOffset("split:N", sort=None),
            color=alt.Color("split:N", sort=None, title="split"),
            tooltip=["class", "split", *numbers],
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
        show_selectable(clickable(bars), "class bars", explore, "Files by class and split")
        if said:
            html.paragraph(said, "quiet small")
    with right:
        wide = class_by_split(table)
        html.table(wide, height=min(560, 38 + 35 * wide.height))


def _findings(run: Opened) -> None:
    st.header("Findings about labels and bounding boxes")
    counts = {f: browse.count_findings(run, FindingFilter(codes=(f,))) for f in FAMILIES}
    if not any(counts.values()):
        html.empty("The checks of labels, boxes and class counts found nothing.")
    with st.container(horizontal=True):
        for family, n in counts.items():
            if n and st.button(f"{FAMILIES[family]}: {counted(n, 'finding')}", f"see {family}"):
                link.go("findings", run=link.get("run"), code=family, status="all")
                st.rerun()


PAGE = 24
LEGEND = 12  # classes named below the filters
PAIRS = 100


def draw_boxes_view(run: Opened) -> None:
    """Draw the statistics and the pictures; a sentence where the run has no annotations."""
    stats = run.report().boxes
    if stats is None:
        html.empty(
            "This dataset has no readable bounding boxes.",
            "Annotations of COCO, YOLO, Pascal VOC, LabelMe, Open Images and tables are read.",
        )
        return
    above = st.container()
    _pictures(run)
    with above:  # the pictures, which are seen, are sent first
        component("drawn")(key="boxes drawn", data={"markup": str(render_boxes(stats))})


def _pictures(run: Opened) -> None:
    st.header("Annotated images, those with findings first")
    choices = run.ask(boxes.box_choices)
    filters = _filters(choices)
    start = int(link.number_of("start", -(10**11), 10**11, 0))  # below 0: what lies before
    shown = run.ask(boxes.annotated_page, filters, start=abs(start), back=start < 0, size=PAGE)
    if not shown.pictures:
        html.empty("No image fits.", "Choose another class, size, split or check.")
        return
    _turning(shown)
    _legend(shown, choices)
    _cards(run, shown, choices, filters)


def _filters(choices: BoxChoices) -> BoxFilter:
    label, size, split, code = st.columns(4)
    return BoxFilter(
        link.choose("Class", "box_class", choices.labels, at=label),
        link.choose("Size", "box_size", boxes.SIZES, at=size),
        link.choose("Split", "split", choices.splits, at=split),
        link.choose("Check", "code", choices.codes, at=code),
    )


def _turning(shown: AnnotatedPage) -> None:
    first, last = shown.pictures[0].place, shown.pictures[-1].place
    with st.container(horizontal=True, vertical_alignment="center"):
        html.paragraph(counted(shown.total, "image"))
        page_buttons(
            lambda start: link.put(start=start),
            (f"-{first}",) if shown.before else None,
            (str(last + 1),) if shown.after else None,
        )


def _legend(shown: AnnotatedPage, choices: BoxChoices) -> None:
    there = {box.label for picture in shown.pictures for box in picture.boxes}
    named = [name for name in choices.labels if name in there]
    chips = [
        html.chip(name, f"box{choices.labels.index(name) % len(COLOURS)}")
        for name in named[:LEGEND]
    ]
    if len(named) > LEGEND:
        chips.append(html.tag("span", f"and {len(named) - LEGEND:,} more", "quiet small"))
    html.write_html(*chips)


def _cards(run: Opened, shown: AnnotatedPage, choices: BoxChoices, filters: BoxFilter) -> None:
    cards = [picture.card for picture in shown.pictures]
    some = filters.holds if filters.label or filters.size else None
    thumbnails = [
        with_boxes(thumbnail, picture.card, picture.boxes, choices.labels, some)
        for thumbnail, picture in zip(run.thumbnails().many(cards), shown.pictures, strict=True)
    ]
    lines = {picture.card.id: _lines(picture) for picture in shown.pictures}
    show_gallery(
        run,
        "annotated",
        cards,
        thumbnails=thumbnails,
        marks=run.decisions.by_sample,
        lines=lambda card: lines[card.id],
        width=230,
    )


def _lines(picture: AnnotatedPicture) -> list[str]:
    names = sorted({visible(box.label or boxes.UNLISTED) for box in picture.boxes})
    n, worst = len(picture.boxes), picture.severity
    said = f"{n:,} {'box' if n == 1 else 'boxes'}: {', '.join(names)}" if n else "no boxes"
    return [said, f"{ICONS[worst]} {', '.join(picture.codes)}" if worst else "no finding"]
