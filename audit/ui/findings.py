"""Findings: a filtered list beside the open finding, with its evidence, images and page.

Keys: N next, P previous, K keep, D drop, F false positive, U undo; of a box also X fix, R remove.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from audit.checking.check import all_checks
from audit.checking.check import page as check_page
from audit.decisions.box_fixes import FIXABLE, describe_fix
from audit.decisions.decisions import COPIES, is_of_box
from audit.records import Action, Severity
from audit.report.previews import with_boxes
from audit.report.thumbnails import Thumbnail
from audit.results import findings as browse
from audit.results.boxes import load_boxes
from audit.results.distributions import class_order
from audit.results.findings import PLACES, FindingFilter, OpenedFinding, Rows
from audit.results.formatting import counted, number_text
from audit.results.report_data import Card
from audit.ui import html, link
from audit.ui.deciding import NOTE, button, decide_finding, drawn_late, page_buttons
from audit.ui.detail import dialogue
from audit.ui.frame import make_fragment, page_changed
from audit.ui.gallery import show_gallery
from audit.ui.listing import ListColumn, finding_row, list_of_link, show_listing
from audit.ui.opened import Opened, open_chosen_run
from audit.ui.queue import (
    FIXED,
    draw_members,
    proposed_fixes,
    show_queue,
    show_settled,
    value_key,
    why_stays,
)
from dataset_preflight.foundation.terminal import visible

STATUSES = ("open", "decided", "waived")
ALL = "all"
COLUMNS = (
    ListColumn("severity", "", "dot", "1.4rem"),
    ListColumn("code", "Code", "code", "5.3rem"),
    ListColumn("about", "About"),
    ListColumn("status", "", "chip", "4.9rem"),
)
PICKED = "picked of the finding"


def page() -> None:
    """Show the page."""
    run = open_chosen_run()
    st.title("Findings")
    _filters(run)
    _body(run)
    dialogue()


@make_fragment
def _body(run: Opened) -> None:
    filters = filter_of_link()
    listed = list_of_link(run, filters, "finding")
    if listed.current is None:
        _nothing(run)
        show_settled(run)
        return
    left, right = st.columns([5, 8], gap="medium")
    with left:
        _list(listed.rows, listed.total, listed.current)
    with right:
        finding(run, filters, listed.current)


def filter_of_link() -> FindingFilter:
    """Return the filter that the link holds."""
    severity = link.get("severity")
    status = link.chosen_option("status", (*STATUSES, ALL))
    return FindingFilter(
        codes=(link.get("code"),) if link.get("code") else (),
        severity=severity if severity in list(Severity) else None,
        split=link.get("split") or None,
        label=link.get("class") or None,
        status=status if status in STATUSES else None,
        text=link.get("q"),
        fold=link.get("fold"),
        folded=not link.get("fold"),
        distinct=not link.get("code"),
        order=link.chosen_option("order", tuple(PLACES)),
    )


def _filters(run: Opened) -> None:
    filters = filter_of_link()
    facets = {
        "code": browse.facet(run, replace(filters, codes=()), "code"),
        "severity": browse.facet(run, replace(filters, severity=None), "severity"),
        "splits": browse.facet(run, replace(filters, split=None), "splits"),
        "labels": browse.facet(run, replace(filters, label=None), "labels"),
    }
    names = {check.code: check.name for check in run.report().checks}
    box = st.columns([3, 2, 2, 3, 2, 2, 3], vertical_alignment="bottom")
    codes = {c: f"{c} {name} ({facets['code'].get(c, 0):,})" for c, name in names.items()}
    resets = ["finding", "fold"]
    link.choose("Check", "code", list(names), at=box[0], resets=resets, shown=codes.__getitem__)
    shown = partial(_with_count, facets["severity"])
    link.choose("Severity", "severity", list(Severity), at=box[1], resets=resets, shown=shown)
    for place, title, name, facet in (
        (box[2], "Split", "split", facets["splits"]),
        (box[3], "Class", "class", facets["labels"]),
    ):
        shown, options = partial(_with_count, facet), link.offered(name, facet)
        link.choose(title, name, options, at=place, resets=["finding"], shown=shown)
    statuses = (*STATUSES, ALL)
    link.choose("Status", "status", statuses, at=box[4], any_=None, resets=["finding"])
    link.choose("Order", "order", tuple(PLACES), at=box[5], any_=None, resets=["finding"])
    hint = "file name or message"
    link.write_link("Search", "q", at=box[6], resets=["finding"], placeholder=hint)


def _with_count(facet: Mapping[str, int], value: str) -> str:
    return f"{value} ({facet.get(value, 0):,})"


def _nothing(run: Opened) -> None:
    if not run.report().counts.total:
        html.empty(
            "No check found anything in this dataset.", "The Overview says what was examined."
        )
        return
    html.empty("No finding fits these filters.", "Clear them, or look at another status.")
    st.button("Clear the filters", on_click=_clear)


def _clear() -> None:
    link.first_page("code", "severity", "split", "class", "status", "q", "finding", "fold")


def _list(rows: Rows, total: int, current: OpenedFinding | None) -> None:
    html.paragraph(f"{counted(total, 'finding')}, the most severe first", "quiet small")
    if link.get("fold"):
        st.button("Back to all findings", on_click=_unfold, args=("",))
    lines = [finding_row(row, _about(row)) for row in rows.rows]
    chosen = current.finding.fingerprint if current else None
    folds = {row.fingerprint: row.fold or "" for row in rows.rows if row.n_folded > 1}
    show_listing("findings list", COLUMNS, lines, partial(open_line, folds=folds), chosen)
    turn_pages(rows)


def turn_pages(rows: Rows) -> None:
    """Draw the buttons that turn the pages of a list of findings."""
    with st.container(horizontal=True):
        page_buttons(
            _turn,
            ("before", rows.rows[0].fingerprint) if rows.before else None,
            ("start", rows.rows[-1].fingerprint) if rows.after else None,
        )


def _about(row: browse.Row) -> str:
    """Return what a line of the list says: of one finding, or of those that it stands for."""
    if row.n_folded > 1:
        return f"{row.n_folded:,} findings like this, open to list them: {row.message}"
    if row.first is None:
        return row.message
    more = f" and {row.n_samples - 1:,} more" if row.n_samples > 1 else ""
    return f"{row.first.rsplit('/', 1)[-1]}{more}: {row.message}"


def _turn(way: str, fingerprint: str) -> None:
    page_changed()
    link.first_page("finding")
    link.put(**{way: fingerprint})


def open_line(fingerprint: str, folds: Mapping[str, str] | None = None) -> None:
    """Open the finding of a line, or the list of those that the line stands for."""
    if fold := (folds or {}).get(fingerprint):
        _unfold(fold)
        return
    pick([])
    link.put(finding=fingerprint)


def _unfold(fold: str) -> None:
    pick([])
    link.first_page("finding")
    link.put(fold=fold)


def write_head(current: OpenedFinding, *more: str) -> None:
    """Write what an open finding is; `more` are elements behind its name."""
    found = current.finding
    html.write_html(
        html.chip(found.severity.value, found.severity.value),
        html.tag("span", f"{found.code} {found.name}", "strong"),
        *more,
        html.chip(current.status, "good") if current.status != "open" else "",
        html.tag("p", found.message),
    )


def finding(run: Opened, filters: FindingFilter, current: OpenedFinding) -> None:
    """Show a finding: what, why, the pictures, the decision and the check's page."""
    picked = selected(current)
    strip = _decision_bar(run, filters, current, picked)
    with st.container(key="of finding"):  # which the queue hides while it is ahead
        _below(run, filters, current, picked)
    with strip:  # last: what it says is open is drawn by then
        show_queue(run, filters, current, picked, partial(step_from, run, filters))


def _below(run: Opened, filters: FindingFilter, current: OpenedFinding, picked: list[str]) -> None:
    found = current.finding
    write_head(current, html.tag("span", f"  suggested: {found.action}", "quiet small"))
    if filters.folded and current.n_folded > 1:
        n = current.n_folded
        said = f"One of {n:,} findings of this kind; a decision is about this one."
        html.paragraph(said, "quiet small")
        st.button(f"List all {n:,}", key="unfold", on_click=_unfold, args=(found.fold,))
    _pictures(run, current, picked)
    with st.expander("Evidence", expanded=True):
        evidence = {k: number_text(v) for k, v in found.evidence.items()}
        html.write_html(html.value_table(evidence)) if evidence else html.paragraph(
            "No figures.", "quiet"
        )
    check = all_checks().get(found.code)
    with st.expander(f"About {found.code}: what it does, its limits, what to do"):
        if check is None:
            own = next((c.page for c in run.report().checks if c.code == found.code), "")
            st.text(own or "The package that brought this check is no longer installed.")
        else:
            st.markdown(check_page(check))


def selected(current: OpenedFinding) -> list[str]:
    """Return the samples of the finding that are selected."""
    there = {card.id for card in current.members}
    return [i for i in st.session_state.get(PICKED, []) if i in there]


def _decision_bar(
    run: Opened, filters: FindingFilter, current: OpenedFinding, picked: list[str]
) -> DeltaGenerator:
    """Draw the buttons with their numbers of samples; return the container of the queue."""
    fingerprint = current.finding.fingerprint
    n = len(picked) or current.finding.n_samples
    what = f"{counted(len(picked), 'selected')}" if picked else f"all {n:,}" if n > 1 else ""

    def act(verb: Action, value: str | None = None) -> Callable[[], None]:
        then = partial(step, run, filters, current.place)
        return lambda: decide_finding(run, fingerprint, verb, value, samples=picked, then=then)

    found, go = current.finding, partial(go_on, run, filters, current.place)
    boxed = found.n_samples > 0 and is_of_box(found.code)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        button(f"Keep {what} (K)", "keep", act(Action.KEEP))
        if boxed:
            button("Fix (X)", "fix", drawn_late, disabled=found.code not in FIXABLE)
            button("Remove this box (R)", "remove box", drawn_late)
            button("Drop the image (D)", "drop", drawn_late)
        elif picked or not why_stays(found.code, found.n_samples):
            button(f"Drop {what} (D)", "drop", act(Action.DROP))
        button("False positive (F)", "waive", act(Action.FALSE_POSITIVE))
        button("Previous (P)", "previous", partial(go, back=True))
        button("Next (N)", "next", go, primary=True)
    strip = st.container()
    if found.code.startswith(COPIES) and not picked:
        html.paragraph(
            "Of copies one stays: select those to drop, or use the page Duplicates.", "quiet small"
        )
    with st.expander("Relabel, move, note"):
        _values(run, act, disabled=found.n_samples == 0)
    return strip


def _values(
    run: Opened, act: Callable[[Action, str | None], Callable[[], None]], *, disabled: bool
) -> None:
    st.text_input(
        "Note, kept with the decision", key=NOTE, placeholder="why", on_change=page_changed
    )
    data = run.report().dataset
    classes = [c for c in data.by_class() if c]
    splits = [s for s in data.by_split() if s]
    left, right = st.columns(2, vertical_alignment="bottom")
    for place, verb, label, options in (
        (left, Action.RELABEL, "New class", classes),
        (right, Action.MOVE, "New split", splits),
    ):
        with place.container(horizontal=True, vertical_alignment="bottom"):
            value = st.selectbox(
                label,
                options,
                index=None,
                key=value_key(verb),
                accept_new_options=True,
                on_change=page_changed,
                placeholder="choose or type",
                format_func=visible,
            )
            button(
                verb.value.capitalize(),
                f"do {verb}",
                act(verb, value),
                disabled=disabled or not value,
            )


def step(run: Opened, filters: FindingFilter, place: int, *, back: bool = False) -> None:
    """Open the neighbour of a place in the list, as the list stands before the decision shows."""
    other = browse.neighbour(run, filters, place, back=back)
    st.session_state[PICKED] = []
    link.put(finding=other)


def step_from(run: Opened, filters: FindingFilter, fingerprint: str) -> None:
    """Open the neighbour of a finding that was decided."""
    place = browse.place_of(run, fingerprint, filters.order)
    if place is not None:
        step(run, filters, place)


def go_on(run: Opened, filters: FindingFilter, place: int, *, back: bool = False) -> None:
    """Step on without a decision: only the fragment is drawn again."""
    page_changed()
    step(run, filters, place, back=back)


def _pictures(run: Opened, current: OpenedFinding, picked: list[str]) -> None:
    found, members = current.finding, current.members
    if not members:
        about = "the whole dataset" if not found.n_samples else "samples that are no longer listed"
        html.paragraph(f"This finding is about {about}.", "quiet")
        return
    if found.n_samples > len(members):
        html.paragraph(f"The first {len(members):,} of {found.n_samples:,} files", "quiet small")
    drawn = draw_members(run, [found], {found.fingerprint: members}, groups=False)
    (shown, images), fixed = drawn, None
    if shown[found.fingerprint][0][1]:  # of a box: as it is, and as a fix leaves it
        first, *after = (images[name] for name, _ in shown[found.fingerprint])
        thumbnails, fixed = [first, *(images[card.id] for card in members[1:])], after
    else:
        thumbnails = _with_all_boxes(run, members, images)
    left, right = st.columns(2) if fixed else (st.container(), None)
    with left:
        show_gallery(
            run,
            "finding images",
            members,
            thumbnails=thumbnails,
            marks=run.decisions.by_sample,
            on_pick=pick if len(members) > 1 else None,
            picked=picked,
            width=260 if len(members) <= 4 else 170,
        )
    if fixed and right:
        fixes = proposed_fixes(run, [found.fingerprint])[found.fingerprint]
        with right:
            st.image(fixed[0].data, width=260, alt=FIXED)
            html.paragraph("; ".join(map(describe_fix, fixes)), "small")


def _with_all_boxes(
    run: Opened, members: Sequence[Card], images: Mapping[str, Thumbnail]
) -> list[Thumbnail]:
    boxes = load_boxes(run, [card.id for card in members])
    names = run.ask(class_order) if boxes else []
    return [with_boxes(images[card.id], card, boxes.get(card.id, ()), names) for card in members]


def pick(ids: list[str]) -> None:
    """Keep what is selected."""
    page_changed()
    st.session_state[PICKED] = ids
