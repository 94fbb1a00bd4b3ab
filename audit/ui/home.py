"""Home: the datasets of `audit serve` that this person may see, one line each."""

from __future__ import annotations

import streamlit as st

from audit.service.datasets import DatasetLine
from audit.ui import html
from audit.ui.guard import served
from audit.ui.listing import ListColumn, ListRow, show_listing
from audit.ui.opened import choose_run, me

COLUMNS = (
    ListColumn("name", "Dataset", "text", "12rem"),
    ListColumn("pictures", "Pictures", "number", "6rem"),
    ListColumn("errors", "Open errors", "number", "8rem"),
    ListColumn("warnings", "Open warnings", "number", "8rem"),
    ListColumn("scanned", "Last scan, UTC", "text", "10rem"),
    ListColumn("decided", "Decisions"),
)


def page() -> None:
    """Show the page."""
    st.title("Home")
    service = served()
    shown = list(service.datasets(me()).values()) if service else []
    if service is None or not shown:
        html.empty(
            "No dataset is open to you.",
            "Whoever runs the server lists them in datasets.toml, which "
            "`audit serve FOLDER --init` writes from the runs in a folder.",
        )
        return
    lines = [service.line(one) for one in shown]
    show_listing("datasets", COLUMNS, [_row(line) for line in lines], choose_run)
    if any(line.errors_change or line.warnings_change for line in lines):
        html.paragraph("In brackets: more or fewer found than by the scan before.", "quiet small")
    for line in lines:
        if line.problem:
            html.notice(f"{line.name}: {line.problem}", "error")


def _row(line: DatasetLine) -> ListRow:
    if line.problem:
        cells = dict.fromkeys([column.key for column in COLUMNS], "") | {"decided": "see below"}
        return ListRow(line.name, cells | {"name": line.name}, settled=True)
    cells = {
        "name": line.name,
        "pictures": f"{line.pictures:,}",
        "errors": _changed(line.errors, line.errors_change),
        "warnings": _changed(line.warnings, line.warnings_change),
        "scanned": line.scanned[:16].replace("T", " "),
        "decided": ", ".join(f"{name} {n:,}" for name, n in line.decided.items()) or "none",
    }
    return ListRow(line.name, cells)


def _changed(now: int, change: int | None) -> str:
    return f"{now:,} ({change:+,})" if change else f"{now:,}"
