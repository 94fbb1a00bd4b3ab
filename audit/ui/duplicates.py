"""Duplicates: groups with their differences, keeper rules, comparisons, and split overlap.

Keys: 1 to 9 the copy that stays, K the rule chooses, D drop the selected, F false positive, U undo,
N next group, P previous.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import altair as alt
import polars as pl
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from audit.records import Action
from audit.report.file_card import evidence_lines
from audit.report.previews import PictureDifference, difference
from audit.results import findings as browse
from audit.results.findings import FindingFilter, OpenedFinding, overlap_matrix
from audit.results.formatting import counted, number_text, size_text
from audit.results.pair_details import PairCard, show_pair
from audit.results.report_data import Card
from audit.sources.tables import visible_frame
from audit.ui import html, link
from audit.ui.charts import clickable, clicked_place, show_selectable, show_viewer
from audit.ui.deciding import (
    button,
    choose_rule,
    decide_finding,
    explained,
    marks,
    proposed,
    record_rule,
    rule_for_all,
    rule_of_link,
    would_drop,
)
from audit.ui.detail import dialogue
from audit.ui.findings import (
    COLUMNS,
    go_on,
    open_line,
    pick,
    selected,
    step,
    step_from,
    turn_pages,
    write_head,
)
from audit.ui.frame import make_fragment
from audit.ui.gallery import place, show_gallery
from audit.ui.listing import finding_row, list_of_link, show_listing
from audit.ui.opened import Opened, cached, open_chosen_run
from audit.ui.queue import DIGITS, copies_left, show_queue, show_settled

VIEWS = ("Groups", "Overlap of splits")
CODES = ("DUP003", "DUP002", "DUP001", "SPLIT001")
FAMILY = ("DUP", "SPLIT001")
STATUSES = ("open", "decided", "waived", "all")


def page() -> None:
    """Show the page."""
    run = open_chosen_run()
    st.title("Duplicates")
    if link.switch("View", "view", VIEWS) == VIEWS[1]:
        show_overlap(run)
        return
    _filters(run)
    choose_rule(run)
    _body(run)
    _for_all(run)
    dialogue()


@make_fragment
def _body(run: Opened) -> None:
    filters = _asked()
    listed = list_of_link(run, filters, "group")
    current = listed.current
    if current is None:
        _nothing(filters)
        show_settled(run)
        return
    left, right = st.columns([4, 9], gap="medium")
    with left:
        _list(listed.rows, listed.total, current)
    with right:
        group(run, filters, current)


def _for_all(run: Opened) -> None:
    """Draw the rule for all groups of the chosen kind, which each decision changes: not with it."""
    counts = browse.facet(run, FindingFilter(codes=CODES, status="open"), "code")
    if link.get("code") in CODES:
        rule_for_all(run, link.get("code"))
    elif counts:
        html.paragraph(
            "Select a duplicate type above to apply this rule to all groups.", "quiet small"
        )


def _filters(run: Opened) -> None:
    counts = browse.facet(run, FindingFilter(codes=FAMILY, status="open"), "code")
    splits = link.offered("split", browse.facet(run, FindingFilter(codes=FAMILY), "splits"))
    labels = link.offered("class", browse.facet(run, FindingFilter(codes=FAMILY), "labels"))
    names = {check.code: check.name for check in run.report().checks}
    both = bool(link.get("split"))
    box = iter(st.columns([3, *([2, 2] if both else [2]), 3, 2, 3], vertical_alignment="bottom"))
    resets = ["finding"]
    link.choose(
        "Kind",
        "code",
        [c for c in CODES if c in names],
        at=next(box),
        resets=resets,
        shown=lambda c: f"{c} {names[c]} ({counts.get(c, 0):,} open)",
    )
    link.choose("Split", "split", splits, at=next(box), resets=["finding", "beside"])
    if both:
        others = [s for s in link.offered("beside", splits) if s != link.get("split")]
        link.choose("and in", "beside", others, at=next(box), resets=resets)
    link.choose("Class", "class", labels, at=next(box), resets=resets)
    link.choose("Status", "status", STATUSES, at=next(box), any_=None, resets=resets)
    link.write_link("Search", "q", at=next(box), resets=resets, placeholder="file name")


def _asked() -> FindingFilter:
    status = link.chosen_option("status", STATUSES)
    return FindingFilter(
        codes=(link.get("code"),) if link.get("code") in CODES else FAMILY,
        split=link.get("split") or None,
        beside=(link.get("split") and link.get("beside")) or None,
        label=link.get("class") or None,
        status=None if status == "all" else status,
        text=link.get("q"),
        once=link.get("code") not in CODES,
    )


def _nothing(filters: FindingFilter) -> None:
    if filters.status == "open" and not (filters.split or filters.label or filters.text):
        kind = "duplicates" if filters.codes == FAMILY else filters.codes[0]
        html.empty(
            f"No open group of {kind}.", "Choose the status all to see those that were decided."
        )
    else:
        html.empty("No group fits these filters.", "Widen them, or look at another status.")


def _list(rows: browse.Rows, total: int, current: OpenedFinding) -> None:
    html.paragraph(counted(total, "group"), "quiet small")
    lines = [
        finding_row(row, f"{(row.first or '').rsplit('/', 1)[-1]} and {row.n_samples - 1:,} more")
        for row in rows.rows
    ]
    show_listing("groups list", COLUMNS, lines, open_line, current.finding.fingerprint)
    turn_pages(rows)


def group(run: Opened, filters: FindingFilter, current: OpenedFinding) -> None:
    """Draw the open group; `filters` is the list that Next goes on in."""
    found = current.finding
    proposal = proposed(run, found.code, (found.fingerprint,))
    picked = selected(current)
    strip = _group_bar(run, filters, current, proposal, picked)
    with st.container(key="of finding"):  # which the queue hides while it is ahead
        write_head(current)
        _below(run, current, proposal, picked)
    with strip:  # last: what it says is open is drawn by then
        then = partial(step_from, run, filters)
        show_queue(run, filters, current, picked, then, rule_of_link())


def _below(
    run: Opened, current: OpenedFinding, proposal: pl.DataFrame | None, picked: list[str]
) -> None:
    found = current.finding
    show_gallery(
        run,
        "group members",
        current.members,
        marks=marks(proposal) | dict(run.decisions.by_sample),
        on_pick=pick,
        picked=picked,
        lines=partial(_card_lines, copies_left(run, current.members)[:DIGITS]),
        width=230 if len(current.members) <= 4 else 170,
    )
    if proposal is not None and proposal["keep"].null_count():
        why = explained(proposal["why"].drop_nulls()[0])
        html.notice(f"The rule leaves this group open: {why}.")
    _compare(run, current)
    with st.expander("Evidence"):
        html.write_html(html.value_table({k: number_text(v) for k, v in found.evidence.items()}))


def _card_lines(keyed: Sequence[str], card: Card) -> list[str]:
    key = f"{keyed.index(card.id) + 1} · " if card.id in keyed else ""
    quality = f" · quality {card.jpeg_quality}" if card.jpeg_quality else ""
    sharp = f"sharpness {number_text(card.sharpness)}" if card.sharpness is not None else ""
    return [
        f"{key}{place(card)}",
        size_text(card.width, card.height, card.n_bytes),
        f"{card.format or 'no format'}{quality}",
        sharp,
    ]


def _group_bar(
    run: Opened,
    filters: FindingFilter,
    current: OpenedFinding,
    proposal: pl.DataFrame | None,
    picked: list[str],
) -> DeltaGenerator:
    """Draw the buttons; returns the place of the queue, which is below them."""
    fingerprint = current.finding.fingerprint
    then = partial(step, run, filters, current.place)
    go = partial(go_on, run, filters, current.place)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        # Their keys and clicks are the queue's: Streamlit makes one of several presses.
        button(
            "Keep by the rule (K)",
            "apply rule",
            partial(record_rule, run, proposal, then),
            disabled=not would_drop(proposal),
            help_="Drops the copies marked drop (rule).",
        )
        label = f"Drop {counted(len(picked), 'selected')} (D)" if picked else "Drop selected (D)"
        button(
            label,
            "drop selected",
            lambda: decide_finding(run, fingerprint, Action.DROP, samples=picked, then=then),
            disabled=not picked,
        )
        button(
            "False positive (F)",
            "waive group",
            lambda: decide_finding(run, fingerprint, Action.FALSE_POSITIVE, then=then, once=True),
        )
        button("Previous (P)", "previous group", partial(go, back=True))
        button("Next (N)", "next group", go, primary=True)
    return st.container()


def _compare(run: Opened, current: OpenedFinding) -> None:
    members = {card.id: card for card in current.members}
    if len(members) < 2:
        return
    st.header("Compare two")
    names = list(members)
    left, right = st.columns(2)
    first = link.choose("First", "a", names, at=left, any_=None)
    others = [n for n in names if n != first]
    second = link.choose("Second", "b", others, at=right, any_=None)
    shown = _difference(run.key, first, second, members[first], members[second])
    if shown.error:
        html.empty("No difference image", shown.error)
        return
    for side, data, title in zip(
        st.columns(3),
        (shown.first, shown.second, shown.difference),
        ("First", "Second", "Difference, 4 times as strong"),
        strict=True,
    ):
        with side:
            st.image(data, width="stretch", alt=title)
            html.paragraph(title, "quiet small")
    html.paragraph("Overlay or flicker the two images.", "quiet small")
    show_viewer("two copies", [("First", shown.first), ("Second, aligned", shown.laid)], 420)
    html.write_html(html.value_table(_evidence(shown, run.ask(show_pair, first, second))))


@cached
def _difference(key: str, first: str, second: str, _a: Card, _b: Card) -> PictureDifference:
    return difference(_a, _b)


def _evidence(shown: PictureDifference, pair: PairCard) -> Sequence[tuple[str, str]]:
    stored = dict(evidence_lines(pair))
    rows = [("verdict", stored["verdict"])]
    if pair.transformation and pair.kind == "near":
        rows.append(("what changed", f"{pair.transformation} (first to second)"))
    rows.append(
        (
            "difference",
            f"{shown.mean:.1f} grey levels of 255 mean pixel difference "
            f"({shown.covered:.0%} of the first image); transformation of the second: {shown.said}",
        )
    )
    names = ("hashes", "match score", "similarity")
    return rows + [(name, stored[name]) for name in names if name in stored]


FULL = 0.2  # leaked share of the darkest colour; light text begins at half of it
NOTHING = "#88888818"  # of a cell in which nothing is shared: hardly there, light or dark


def show_overlap(run: Opened) -> None:
    """Draw the matrix, and the way to the groups behind it."""
    matrix = run.ask(overlap_matrix)
    if matrix.is_empty():
        html.empty(
            "This dataset has fewer than two splits with images.",
            "No image can leak from one split into another.",
        )
        return
    html.paragraph(
        "Share of the files of a row's split whose image is also in the column's split: "
        "equal bytes, equal pixels or a verified near-duplicate."
    )

    def opened(chosen: Mapping[str, Any]) -> None:
        if (place := clicked_place(chosen, matrix.height)) is not None:
            cell = matrix.row(place, named=True)
            open_cell(cell["of"], cell["in"])

    shares = "Share of files that a split has in common with another"
    show_selectable(heat_of_splits(matrix), "overlap cells", opened, shares)
    html.paragraph("A click on a cell opens the groups that both splits share.", "quiet small")
    said = [c.completeness for c in run.report().checks if c.code == "SPLIT001"]
    for sentence in filter(None, said):
        html.paragraph(sentence, "quiet small")
    st.button("See the leaking groups", on_click=partial(link.put, view=None, code="SPLIT001"))


def open_cell(of: str, within: str) -> None:
    """Open the duplicates that two splits share."""
    link.first_page("finding")
    link.put(view=None, code=None, split=of, beside=within)


def heat_of_splits(matrix: pl.DataFrame) -> alt.LayerChart:
    """Return the matrix as cells with their shares; a cell without overlap has no colour."""
    shown = visible_frame(matrix).rename({"of": "row", "in": "column"}).with_row_index("place")
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
    cells = base.mark_rect(cornerRadius=4, cursor="pointer").encode(
        color=alt.condition(empty, alt.value(NOTHING), colour), tooltip=tooltip
    )
    # on a cell without colour, a grey that is read on light and on dark
    ink = alt.when(empty).then(alt.value("#7a7f87"))
    ink = ink.when(f"datum.share > {FULL / 2}").then(alt.value("white"))
    text = base.mark_text(fontSize=14, fontWeight=600).encode(
        text=alt.Text("share:Q", format=".1%"), color=ink.otherwise(alt.value("#1c1e21"))
    )
    return alt.layer(clickable(cells), text).properties(height=90 * matrix["of"].n_unique() + 40)
