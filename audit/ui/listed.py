"""The list of findings that a link asks for, the one of them that is open, and what the link asks
for in vain.

A link outlives what it names: its finding may be decided by now, or a newer scan may not find it;
and all findings from its page on may be decided while others before it are open.
"""

from __future__ import annotations

from dataclasses import dataclass

from audit.browse import findings as browse
from audit.browse.findings import FindingFilter, OpenedFinding, Rows
from audit.run.store import Store
from audit.ui import link


@dataclass(frozen=True, slots=True)
class Listed:
    """A page of the list, how many findings fit, the open one, and a sentence ("": nothing)."""

    rows: Rows
    total: int
    current: OpenedFinding | None
    said: str


def list_of_link(store: Store, filters: FindingFilter, size: int, what: str) -> Listed:
    """Return what the link asks for; `what` is what the page calls a finding."""
    before, asked = link.get("before"), link.get("finding")
    anchor = before or link.get("start")
    place = browse.place_of(store, anchor) if anchor else None
    rows = browse.page(store, filters, start=place or 0, back=bool(before), size=size)
    if not rows.rows and anchor:
        rows = browse.page(store, filters, size=size)
    named = browse.open_finding(store, asked) if asked else None
    first = rows.rows[0].fingerprint if rows.rows else ""
    current = named or (browse.open_finding(store, first) if first else None)
    total = browse.count_findings(store, filters)
    return Listed(rows, total, current, _said(filters, asked, named, current, what))


def _said(
    filters: FindingFilter,
    asked: str,
    named: OpenedFinding | None,
    current: OpenedFinding | None,
    what: str,
) -> str:
    if asked and named is None:
        instead = f" The first {what} of the list is open in its place." if current else ""
        return (
            f"The {what} of this link is not in the run: a newer scan no longer finds it.{instead}"
        )
    if named is not None and filters.status not in (None, named.status):
        listed = f"the list has those that are {filters.status}."
        return f"The {what} of this link is {named.status}: {listed}"
    return ""
