"""Duplicates: groups side by side with what differs, keeper rules with a preview, and the overlap
of the splits.

Keys: 1 to 9 the copy that stays, K the rule chooses, D drop the selected, F false positive, U take
back, N next group, P previous.
"""

from __future__ import annotations

import streamlit as st

from audit.browse import findings as browse
from audit.browse.findings import FindingFilter, OpenedFinding
from audit.report.wording import counted
from audit.run.store import Store
from audit.ui import html, link
from audit.ui.detail import dialogue
from audit.ui.duplicate_group import group
from audit.ui.findings import COLUMNS, page_buttons
from audit.ui.fragment import make_fragment, page_changed
from audit.ui.keeper_rule import choose_rule, rule_for_all
from audit.ui.listing import ListRow, show_listing
from audit.ui.opened import Opened, open_chosen_run
from audit.ui.split_overlap import show_overlap

VIEWS = ("Groups", "Overlap of splits")
CODES = ("DUP003", "DUP002", "DUP001", "SPLIT001")
FAMILY = ("DUP", "SPLIT001")
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
        rows = browse.page(
            store, filters, start=_start(store), back=bool(link.get("before")), size=SIZE
        )
        total = browse.count_findings(store, filters)
        chosen = link.get("finding") or (rows.rows[0].fingerprint if rows.rows else "")
        current = browse.open_finding(store, chosen) if chosen else None
        # A link may name a group that a newer scan no longer has: the first of the list is shown.
        if current is None and rows.rows:
            current = browse.open_finding(store, rows.rows[0].fingerprint)
    if current is None:
        _nothing(filters)
        return
    left, right = st.columns([4, 9], gap="medium")
    with left:
        _list(rows, total, current)
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
        splits = sorted(browse.facet(store, FindingFilter(codes=FAMILY), "splits"))
        labels = sorted(browse.facet(store, FindingFilter(codes=FAMILY), "labels"))
    names = {check.code: check.name for check in run.report().checks}
    box = st.columns([3, 2, 3, 2, 3], vertical_alignment="bottom")
    with box[0]:
        codes = [c for c in CODES if c in names]
        link.choose(
            "Kind",
            "code",
            codes,
            resets=["finding"],
            shown=lambda c: f"{c} {names[c]} ({counts.get(c, 0):,} open)",
        )
    with box[1]:
        link.choose("Split", "split", splits, resets=["finding"])
    with box[2]:
        link.choose("Class", "class", labels, resets=["finding"])
    with box[3]:
        link.choose(
            "Status", "status", ("open", "decided", "waived", "all"), any_=None, resets=["finding"]
        )
    with box[4]:
        link.write_link("Search", "q", resets=["finding"], placeholder="file name")


def _asked() -> FindingFilter:
    """Return the filter that the link holds."""
    status = link.get("status", "open")
    return FindingFilter(
        codes=(link.get("code"),) if link.get("code") in CODES else FAMILY,
        split=link.get("split") or None,
        label=link.get("class") or None,
        status=None if status == "all" else status,
        text=link.get("q"),
        once=link.get("code") not in CODES,
    )


def _start(store: Store) -> int:
    anchor = link.get("before") or link.get("start")
    return (browse.place_of(store, anchor) if anchor else None) or 0


def _nothing(filters: FindingFilter) -> None:
    if filters.status == "open" and not (filters.split or filters.label or filters.text):
        html.empty(
            "No open group of duplicates.", "Choose the status all to see those that were decided."
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
