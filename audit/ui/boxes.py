"""Boxes: statistics by class and split, and the annotated pictures, those with findings first."""

from __future__ import annotations

import altair as alt
import polars as pl
import streamlit as st

from audit.annotations.box_summary import BoxStatistics
from audit.browse import annotated
from audit.browse.annotated import AnnotatedPage, AnnotatedPicture, BoxChoices, BoxFilter
from audit.browse.drawing import COLOURS
from audit.browse.thumbnails import with_boxes
from audit.printable import visible, visible_frame
from audit.records import Severity
from audit.report.box_section import box_sentences
from audit.report.wording import ICONS, counted
from audit.ui import html, link
from audit.ui.deciding import page_key
from audit.ui.detail import open_image
from audit.ui.gallery import show_gallery
from audit.ui.opened import Opened, cached

PAGE = 24
LEGEND = 12  # classes named below the filters
PAIRS = 100


def draw_boxes_view(run: Opened) -> None:
    """Draw the statistics and the pictures; a sentence where the run has no annotations."""
    stats = run.report().boxes
    if stats is None:
        html.empty(
            "This dataset has no boxes that could be read.",
            "Annotations of COCO, YOLO, Pascal VOC, LabelMe, Open Images and tables are read.",
        )
        return
    for sentence in box_sentences(stats):
        html.paragraph(sentence)
    above = st.container()
    _pictures(run)
    if stats.boxes:  # folded away: the pictures, which are seen, are sent first
        with above, st.expander("Statistics by class and split", expanded=False):
            _statistics(run, stats)


# ---- statistics ----


def _statistics(run: Opened, stats: BoxStatistics) -> None:
    left, middle, right = st.columns(3, gap="large")
    with left:
        html.paragraph("Boxes in a picture: pictures, as a share of the split", "quiet small")
        st.altair_chart(_shares(stats, "counts", "boxes in a picture"), width="stretch")
    with middle:
        html.paragraph("log2 of width / height: 0 square, 1 twice as wide as tall", "quiet small")
        st.altair_chart(_shares(stats, "ratios", "log2 of width / height"), width="stretch")
    with right:
        html.paragraph("Greatest IoU with another box; below 0: touches none", "quiet small")
        st.altair_chart(_shares(stats, "overlaps", "greatest IoU"), width="stretch")
    places, table = st.columns([1, 2], gap="large")
    with places:
        html.paragraph("Where the centres of boxes lie", "quiet small")
        st.altair_chart(_map(stats), width="stretch")
    with table:
        html.paragraph("By class and split; effective: near-duplicates counted once", "quiet small")
        st.dataframe(visible_frame(_table(stats)), hide_index=True, width="stretch", height=300)
    if stats.pairs:
        html.paragraph(f"Classes in one picture: {stats.n_pairs:,} pairs", "quiet small")
        rows = [(p.label, p.other, p.pictures) for p in stats.pairs[:PAIRS]]
        frame = pl.DataFrame(rows, schema=["class", "and", "pictures"], orient="row")
        st.dataframe(visible_frame(frame), hide_index=True, width="stretch", height=240)


def _shares(stats: BoxStatistics, name: str, title: str) -> alt.Chart:
    bins = getattr(stats, name)
    frame = pl.DataFrame(
        [(b.split or "all pictures", b.low, b.n) for b in bins],
        schema={"split": pl.String, "from": pl.Float64, "n": pl.Int64},
        orient="row",
    ).with_columns(share=pl.col("n") / pl.col("n").sum().over("split"))
    tooltip = ["split", "from", alt.Tooltip("n:Q", format=","), alt.Tooltip("share", format=".1%")]
    return (
        alt.Chart(visible_frame(frame))
        .mark_line(point=True, interpolate="step-after" if name != "counts" else "linear")
        .encode(
            x=alt.X("from:Q", title=title),
            y=alt.Y("share:Q", title=None, axis=alt.Axis(format="%")),
            color=alt.Color("split:N", sort=None, title="split"),
            tooltip=tooltip,
        )
        .properties(height=190)
    )


def _map(stats: BoxStatistics) -> alt.Chart:
    frame = (
        pl.DataFrame(
            [(p.cell_x, p.cell_y, p.n) for p in stats.places],
            schema=["across", "down", "boxes"],
            orient="row",
        )
        .group_by("across", "down")
        .agg(pl.col("boxes").sum())
    )
    return (
        alt.Chart(frame)
        .mark_rect()
        .encode(
            x=alt.X("across:O", title=None, axis=None),
            y=alt.Y("down:O", title=None, axis=None),
            color=alt.Color("boxes:Q", legend=None),
            tooltip=[alt.Tooltip("boxes:Q", format=",")],
        )
        .properties(height=280)
    )


def _table(stats: BoxStatistics) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "class": [c.label or annotated.UNLISTED for c in stats.classes],
            "split": [c.split or "all" for c in stats.classes],
            "boxes": [c.boxes for c in stats.classes],
            "pictures": [c.pictures for c in stats.classes],
            "effective boxes": [c.effective_boxes for c in stats.classes],
            "effective pictures": [c.effective_pictures for c in stats.classes],
            "small": [c.small for c in stats.classes],
            "medium": [c.medium for c in stats.classes],
            "large": [c.large for c in stats.classes],
            "median side, px": [round(c.side_median, 1) for c in stats.classes],
            "median width / height": [round(c.aspect_median, 2) for c in stats.classes],
            "IoU of half or more": [c.overlapping for c in stats.classes],
        }
    ).sort("boxes", descending=True)


# ---- pictures ----


def _pictures(run: Opened) -> None:
    st.header("Annotated pictures, those with findings first")
    choices = _choices(run.key, run)
    filters = _filters(choices)
    shown = _page(run.key, filters, *_start(), run)
    if not shown.pictures:
        html.empty("No picture fits.", "Choose another class, size, split or check.")
        return
    _turning(shown)
    _legend(shown, choices)
    _cards(run, shown, choices, filters)


def _start() -> tuple[bool, int]:
    """Return whether the link turns back, and the place that it names: -24 is what lies before."""
    text = link.get("start")
    digits = text.removeprefix("-")
    named = digits.isascii() and digits.isdigit() and len(digits) < 12
    return (text.startswith("-"), int(digits)) if named else (False, 0)


@cached
def _choices(key: str, _run: Opened) -> BoxChoices:
    with _run.store() as store:
        return annotated.box_choices(store)


@cached
def _page(key: str, filters: BoxFilter, back: bool, start: int, _run: Opened) -> AnnotatedPage:
    with _run.store() as store:
        return annotated.annotated_page(store, filters, start=start, back=back, size=PAGE)


def _filters(choices: BoxChoices) -> BoxFilter:
    label, size, split, code = st.columns(4)
    with label:
        chosen = link.choose("Class", "box_class", choices.labels)
    with size:
        area = link.choose("Size", "box_size", annotated.SIZES)
    with split:
        part = link.choose("Split", "split", choices.splits)
    with code:
        check = link.choose("Check", "code", choices.codes)
    return BoxFilter(chosen, area, part, check)


def _turning(shown: AnnotatedPage) -> None:
    first, last = shown.pictures[0].place, shown.pictures[-1].place
    with st.container(horizontal=True, vertical_alignment="center"):
        html.paragraph(counted(shown.total, "picture"))
        st.button("Previous page", disabled=not shown.before, shortcut=page_key("PageUp"),
                  on_click=_turn, args=(f"-{first}",))  # fmt: skip
        st.button("Next page", disabled=not shown.after, shortcut=page_key("PageDown"),
                  on_click=_turn, args=(str(last + 1),))  # fmt: skip


def _turn(start: str) -> None:
    link.put(start=start)


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
        "annotated",
        cards,
        thumbnails,
        marks=run.ledger.by_sample,
        lines=lambda card: lines[card.id],
        on_open=open_image,
        width=230,
    )


def _lines(picture: AnnotatedPicture) -> list[str]:
    names = sorted({visible(box.label or annotated.UNLISTED) for box in picture.boxes})
    n = len(picture.boxes)
    said = f"{n:,} {'box' if n == 1 else 'boxes'}: {', '.join(names)}" if n else "no boxes"
    return [said, _finding_line(picture)]


def _finding_line(picture: AnnotatedPicture) -> str:
    if picture.severity is None:
        return "no finding"
    return f"{ICONS[Severity(picture.severity)]} {', '.join(picture.codes)}"
