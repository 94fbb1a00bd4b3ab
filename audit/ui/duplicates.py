"""Duplicates: groups side by side with what differs, keeper rules with a preview, and the overlap
of the splits.

Keys: 1 to 9 the copy that stays, K the rule chooses, D drop the selected, F false positive, U take
back, N next group, P previous.
"""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from audit.browse import findings as browse
from audit.browse.findings import FindingFilter, OpenedFinding
from audit.report.wording import counted
from audit.ui import html, link
from audit.ui.detail import dialogue
from audit.ui.duplicate_group import group
from audit.ui.findings import COLUMNS, page_buttons
from audit.ui.fragment import make_fragment, page_changed
from audit.ui.keeper_rule import choose_rule, rule_for_all
from audit.ui.listed import list_of_link
from audit.ui.listing import ListRow, show_listing
from audit.ui.opened import Opened, open_chosen_run
from audit.ui.split_overlap import show_overlap

VIEWS = ("Groups", "Overlap of splits")
CODES = ("DUP003", "DUP002", "DUP001", "SPLIT001")
FAMILY = ("DUP", "SPLIT001")
STATUSES = ("open", "decided", "waived", "all")
SIZE = 24


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
    """Draw the list, the rule and the open group."""
    filters = _asked()
    with run.store() as store:
        listed = list_of_link(store, filters, SIZE, "group")
    with st.container():  # what is below keeps its place
        if listed.said:
            html.notice(listed.said)
    current = listed.current
    if current is None:
        _nothing(filters)
        return
    left, right = st.columns([4, 9], gap="medium")
    with left:
        _list(listed.rows, listed.total, current)
    with right:
        group(run, filters, current)


def _for_all(run: Opened) -> None:
    """Draw the rule for all groups of the chosen kind, which each decision changes: not with it."""
    with run.store() as store:
        counts = browse.facet(store, FindingFilter(codes=CODES, status="open"), "code")
    code = (
        link.get("code")
        if link.get("code") in CODES
        else next((c for c in CODES if c in counts), "")
    )
    if code:
        rule_for_all(run, code)


def _filters(run: Opened) -> None:
    with run.store() as store:
        counts = browse.facet(store, FindingFilter(codes=FAMILY, status="open"), "code")
        splits = _offered(browse.facet(store, FindingFilter(codes=FAMILY), "splits"), "split")
        labels = _offered(browse.facet(store, FindingFilter(codes=FAMILY), "labels"), "class")
    names = {check.code: check.name for check in run.report().checks}
    both = bool(link.get("split"))
    box = iter(st.columns([3, *([2, 2] if both else [2]), 3, 2, 3], vertical_alignment="bottom"))
    with next(box):
        codes = [c for c in CODES if c in names]
        link.choose(
            "Kind",
            "code",
            codes,
            resets=["finding"],
            shown=lambda c: f"{c} {names[c]} ({counts.get(c, 0):,} open)",
        )
    with next(box):
        link.choose("Split", "split", splits, resets=["finding", "beside"])
    if both:
        others = sorted({*splits, link.get("beside")} - {"", link.get("split")})
        with next(box):
            link.choose("and in", "beside", others, resets=["finding"])
    with next(box):
        link.choose("Class", "class", labels, resets=["finding"])
    with next(box):
        link.choose("Status", "status", STATUSES, any_=None, resets=["finding"])
    with next(box):
        link.write_link("Search", "q", resets=["finding"], placeholder="file name")


def _offered(facet: Mapping[str, int], name: str) -> list[str]:
    """Return the values to offer: those of duplicates, and the one that the link asks for."""
    return sorted({*facet, link.get(name)} - {""})


def _asked() -> FindingFilter:
    """Return the filter that the link holds."""
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


# ---- the list ----


def _list(rows: browse.Rows, total: int, current: OpenedFinding) -> None:
    html.paragraph(counted(total, "group"), "quiet small")
    lines = [
        ListRow(
            row.fingerprint,
            {
                "severity": row.severity.value,
                "code": row.code,
                "about": f"{(row.first or '').rsplit('/', 1)[-1]} and {row.n_samples - 1:,} more",
                "status": "" if row.status == "open" else row.status,
            },
            row.status != "open",
        )
        for row in rows.rows
    ]
    show_listing("groups list", COLUMNS, lines, _open, current.finding.fingerprint)
    page_buttons(rows)


def _open(fingerprint: str) -> None:
    page_changed()
    link.put(finding=fingerprint)
