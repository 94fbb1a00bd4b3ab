"""A table whose rows open something when clicked, and the list of findings that a link names.

A link can outlive its finding, and all findings after its page can be decided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import streamlit as st

from audit.results import findings as browse
from audit.results.findings import FindingFilter, OpenedFinding, Rows
from audit.ui import html, link
from audit.ui.gallery import component
from audit.ui.opened import Opened
from dataset_preflight.foundation.terminal import visible


@dataclass(frozen=True, slots=True)
class ListColumn:
    """A column: `kind` is text, code, number, severity, dot, chip, bar or line; `width` in CSS."""

    key: str
    label: str
    kind: str = "text"
    width: str = ""


@dataclass(frozen=True, slots=True)
class ListRow:
    """A row: what its click tells, its cells by column, and whether nothing is left to do."""

    id: str
    cells: Mapping[str, Any]
    settled: bool = False


def finding_row(found: browse.Row, about: str) -> ListRow:
    """Return the row of a finding; `about` is what it says in its widest column."""
    settled = found.status != "open"
    cells = {
        "severity": found.severity.value,
        "code": found.code,
        "about": about,
        "status": found.status if settled else "",
    }
    return ListRow(found.fingerprint, cells, settled)


def show_listing(
    key: str,
    columns: Sequence[ListColumn],
    lines: Sequence[ListRow],
    on_open: Callable[[str], None],
    current: str | None = None,
) -> None:
    """Show the rows; `on_open` gets the id of the row that was clicked."""

    def row_opened() -> None:
        value = st.session_state[key].get("opened")
        if isinstance(value, str):
            on_open(value)

    columns = [c for c in columns if c.kind != "chip" or any(r.cells[c.key] for r in lines)]
    component("listing")(
        key=key,
        data={
            "columns": [asdict(column) for column in columns],
            "rows": [
                asdict(line)
                | {
                    "cells": {
                        k: visible(v) if isinstance(v, str) else v for k, v in line.cells.items()
                    }
                }
                for line in lines
            ],
            "current": current,
        },
        on_opened_change=row_opened,
    )


PAGE_SIZE = 24


@dataclass(frozen=True, slots=True)
class Listed:
    """A page of the list, how many findings fit, and the open one."""

    rows: Rows
    total: int
    current: OpenedFinding | None


def list_of_link(run: Opened, filters: FindingFilter, what: str) -> Listed:
    """Return the page of the link, and report changes; `what` is the page's noun for a finding."""
    before, asked = link.get("before"), link.get("finding")
    anchor = before or link.get("start")
    place = browse.place_of(run, anchor, filters.order) if anchor else None
    rows = browse.page(run, filters, start=place or 0, back=bool(before), size=PAGE_SIZE)
    if not rows.rows and anchor:
        rows = browse.page(run, filters, size=PAGE_SIZE)
    named = browse.open_finding(run, asked, filters.order) if asked else None
    first = rows.rows[0].fingerprint if rows.rows else ""
    current = named or (browse.open_finding(run, first, filters.order) if first else None)
    total = browse.count_findings(run, filters)
    with st.container():  # what is below keeps its place
        if said := _said(filters, asked, named, current, what):
            html.notice(said)
    return Listed(rows, total, current)


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
