"""Home: the datasets of `audit serve` that this person may see, one line each; profiles below."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Any

import streamlit as st

from audit.results.history import read_lines
from audit.service.datasets import PROFILES, DatasetLine, Service
from audit.service.jobs import (
    FAILED,
    RECHECK,
    RUNNING,
    SCAN,
    WAITING,
    JobQueue,
    ServedDataset,
    ServedJob,
)
from audit.service.people import ADMIN
from audit.ui import html, link
from audit.ui.deciding import button
from audit.ui.guard import served
from audit.ui.listing import ListColumn, ListRow, show_listing
from audit.ui.opened import choose_run, me, safely, say
from dataset_preflight.foundation.terminal import visible

COLUMNS = (
    ListColumn("name", "Dataset", "text", "9rem"),
    ListColumn("pictures", "Pictures", "number", "5rem"),
    ListColumn("errors", "Open errors", "number", "6rem"),
    ListColumn("warnings", "Open warnings", "number", "8rem"),
    ListColumn("trend", "By scan", "line", "6rem"),
    ListColumn("scanned", "Last scan, UTC", "text", "9rem"),
    ListColumn("decided", "Decisions", "text", "8rem"),
    ListColumn("work", "Now and next"),
)
PROFILED = (
    ListColumn("name", "Profile", "text", "9rem"),
    ListColumn("verdict", "Verdict", "text", "9rem"),
    ListColumn("value", "Last", "text", "9rem"),
    ListColumn("trend", "Over time", "line", "6rem"),
    ListColumn("commit", "Commit", "code", "7rem"),
    ListColumn("received", "Sent, UTC"),
)
MOST_PROFILES, POINTS = 1_000, 30
DAY, COMMIT = "day", "commit"
CHOSEN = "dataset to scan"


def page() -> None:
    """Show the page."""
    st.title("Home")
    service = served()
    shown = list(service.datasets(me()).values()) if service else []
    if service is None or not shown:
        html.empty(
            "No dataset is open to you.",
            "The server's owner lists datasets in datasets.toml. `audit serve FOLDER --init` "
            "writes it from the runs in a folder.",
        )
        return
    lines = [service.line(one) for one in shown]
    _lines(service)
    if any(line.errors_change or line.warnings_change for line in lines):
        html.paragraph("In brackets: change since the previous scan.", "quiet small")
    for line in lines:
        if line.problem:
            html.notice(f"{line.name}: {line.problem}", "error")
        if line.notice:
            html.notice(f"{line.name}: {line.notice}", "error")
    _profiles(read_lines(service.folder / PROFILES)[-MOST_PROFILES:])
    if me().role == ADMIN and service.jobs is not None:
        _work(service.jobs, [one.name for one in shown if one.source])


@st.fragment(run_every="2s")
def _lines(service: Service) -> None:
    """Draw the lines, and again while somebody looks: a scan that ends shows by itself."""
    if link.is_leaving():  # a line was clicked: another page is the whole page's to open
        st.rerun()
    safely(_show_lines, service)


def _show_lines(service: Service) -> None:
    shown = service.datasets(me()).values()
    latest = service.jobs.jobs() if service.jobs is not None else []
    work = {one.name: _now_and_next(service.jobs, latest, one) for one in shown}
    rows = [_row(service.line(one), work[one.name]) for one in shown]
    show_listing("datasets", COLUMNS, rows, choose_run)
    if service.jobs is not None and service.jobs.problem:
        html.notice(service.jobs.problem, "error")


def _now_and_next(jobs: JobQueue | None, latest: list[ServedJob], one: ServedDataset) -> str:
    """Return what is done with a dataset, how its last job ended badly, or when it is due."""
    if jobs is None:
        return ""
    last = next((job for job in latest if job.dataset == one.name), None)
    if last is not None and last.state == RUNNING:
        return f"{last.action}: {last.stage.phase.lower()}, {last.stage.share:.0%}"
    if last is not None and last.state in (WAITING, FAILED):
        return f"{last.action} {last.state}" + (f": {last.said}" if last.said else "")
    due = jobs.next_scan(one)
    return "" if due is None else f"scan at {datetime.fromtimestamp(due, UTC):%Y-%m-%d %H:%M}"


def _profiles(sent: list[dict[str, Any]]) -> None:
    by_name: dict[str, list[dict[str, Any]]] = {}
    for one in sent:
        by_name.setdefault(str(one.get("name")), []).append(one)
    if not by_name:
        return
    st.header("Profiles")
    by = link.choose("Figure over time, by", "by", [DAY, COMMIT], any_="run", width=240)
    rows = []
    for name, ones in by_name.items():
        last, values = ones[-1], figures(ones, by)
        shown = f"{last.get('metric') or ''} {figures(ones)[-1]:.3g}" if values else ""
        said = {key: str(last.get(key) or "") for key in ("verdict", "received", "git_commit")}
        cells: dict[str, Any] = {"name": name, "verdict": said["verdict"], "value": shown}
        cells |= {"trend": values[-POINTS:], "received": said["received"][:16]}
        rows.append(ListRow(name, cells | {"commit": said["git_commit"][:8]}))
    show_listing("profiles", PROFILED, rows, lambda name: None)


def figures(ones: list[dict[str, Any]], by: str = "") -> list[float]:
    """Return the figure of each run, or the mean by day or commit, for the latest metric."""
    found: dict[str, list[float]] = {}
    for number, one in enumerate(ones):
        if one.get("metric") == ones[-1].get("metric") and _is_number(value := one.get("value")):
            day, commit = str(one.get("received"))[:10], str(one.get("git_commit") or "")
            key = {DAY: day, COMMIT: commit}.get(by, str(number))
            found.setdefault(key, []).append(float(value or 0.0))
    return [sum(values) / len(values) for values in found.values()]


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 1e300  # and no NaN


def _work(jobs: JobQueue, names: list[str]) -> None:
    if not names:
        return
    st.header("Scan again")
    st.selectbox("Dataset", names, key=CHOSEN, format_func=visible)
    offered = (("Scan", SCAN), ("Re-check", RECHECK))
    for column, (title, action) in zip(st.columns([1, 1, 4]), offered, strict=False):
        with column:
            button(title, f"ask {action}", partial(_ask, jobs, action))


def _ask(jobs: JobQueue, action: str) -> None:
    name = str(st.session_state[CHOSEN])
    jobs.ask(name, action, me().name)
    say(f"{action.capitalize()} of {visible(name)} is in the queue.")


def _row(line: DatasetLine, work: str) -> ListRow:
    if line.problem:
        empty: dict[str, Any] = dict.fromkeys([column.key for column in COLUMNS], "")
        shown = {"decided": "see below", "name": line.name, "work": work, "trend": ()}
        return ListRow(line.name, empty | shown, settled=True)
    cells = {
        "name": line.name,
        "pictures": f"{line.pictures:,}",
        "errors": _changed(line.errors, line.errors_change),
        "warnings": _changed(line.warnings, line.warnings_change),
        "trend": line.trend[-30:],
        "scanned": line.scanned[:16].replace("T", " "),
        "decided": ", ".join(f"{name} {n:,}" for name, n in line.decided.items()) or "none",
        "work": work,
    }
    return ListRow(line.name, cells)


def _changed(now: int, change: int | None) -> str:
    return f"{now:,} ({change:+,})" if change else f"{now:,}"
