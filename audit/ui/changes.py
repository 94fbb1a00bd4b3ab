"""Changes: the scans of a run over time, and two runs side by side, as `audit diff`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import altair as alt
import polars as pl
import streamlit as st

from audit.compare import diff
from audit.compare.diff import FIXED, NEW, PERSISTING, UNCHECKED, RunDiff, compare_runs
from audit.decisions.store import DecisionStore
from audit.errors import AuditError
from audit.results.formatting import counted
from audit.results.history import Moment, last_change
from audit.results.images import cards
from audit.results.run_findings import samples_of
from audit.run import run_version
from audit.ui import html, link
from audit.ui.detail import dialogue
from audit.ui.gallery import show_gallery
from audit.ui.listing import ListColumn, ListRow, show_listing
from audit.ui.opened import Opened, cached, known_runs, open_chosen_run

COLUMNS = (
    ListColumn("severity", "", "dot", "1.4rem"),
    ListColumn("code", "Code", "code", "5.6rem"),
    ListColumn("about", "About"),
    ListColumn("why", "Why", "text", "11rem"),
)
LISTED, PICTURED = 200, 12  # findings of a side, files of a kind of change
WORDS = {NEW: "new", FIXED: "fixed", PERSISTING: "persisting", UNCHECKED: "not comparable"}


def page() -> None:
    """Show the page."""
    run = open_chosen_run()
    st.title("Changes")
    _history(run.history())
    kept = reversed(run_version.list_published(run.run))
    places = {one.name: one.findings for one in kept if one != run.version}
    shares = dict.fromkeys(places, 1.0)
    for name, path in known_runs().items():
        if name != run.name:
            places[name], shares[name] = path, _shared(path, run)
    same = [name for name in places if shares[name] >= diff.SAME_DATASET]
    others = [name for name in places if name not in same]
    if not same:
        html.empty(
            "No other scan of this dataset to compare with.",
            "Scan the dataset again, or open an earlier run on the page Start; or start the app "
            "with both: audit app EARLIER LATER.",
        )
    if not places:
        return
    earlier = link.choose(
        "Earlier scan", "earlier", [*same, *others], any_=None if same else "Choose a run",
        shown=lambda name: name if name in same else f"another dataset: {name}",
    )  # fmt: skip
    if not earlier:
        return
    before = places[earlier]
    if earlier in others:
        html.paragraph(
            f"{earlier} is a scan of another dataset: {shares[earlier]:.1%} of the samples of the "
            "smaller run are in the other. `audit diff` compares their distributions.",
            "strong",
        )
    found = _compared(_state(before), _state(run.run), before, run.run)
    with st.container(horizontal=True):
        for change, n in found.counts().items():
            st.metric(f"Findings {WORDS[change]}", f"{n:,}", border=True, width=170)
        st.metric("Files changed", f"{len(found.files):,}", border=True, width=170)
    left, right = st.columns(2, gap="large")
    with left:
        st.header("Fixed since")
        _side(found, FIXED, f"of {earlier}")
    with right:
        st.header("New")
        _side(found, NEW, f"of {run.name}")
    _files(run, found)
    if len(found.objects):
        st.header("Objects by class")
        html.table(found.objects)
    dialogue()


def _history(moments: Sequence[Moment]) -> None:
    """Draw what each scan of the run found; one alone is no history."""
    if len(moments) < 2:
        return
    st.header("History of this run")
    rows = pl.DataFrame([moment.row() for moment in moments])
    names = {"error": "errors", "warning": "warnings", "info": "info"}
    found = rows.rename(names).unpivot(list(names.values()), index=["at", "came", "went"])
    chart = alt.Chart(found).mark_line(point=True).encode(
        alt.X("at:T", title=None),
        alt.Y("value:Q", title="findings"),
        alt.Color("variable:N", title=None, sort=list(names.values())),
        tooltip=["at:T", "variable:N", "value:Q", "came:Q", "went:Q"],
    ).properties(height=180)  # fmt: skip
    st.altair_chart(chart, width="stretch", alt="Findings of each scan by severity")
    if said := last_change(moments):
        html.paragraph(said, "quiet small")


def _state(place: Path) -> str:
    run, version = run_version.find_version(place)
    return f"{version.key}{DecisionStore(run).revision()}"


@cached
def _compared(before: str, after: str, _before: Path, _after: Path) -> RunDiff:
    return compare_runs(_before, _after)


def _shared(place: Path, run: Opened) -> float:
    """Return the share of samples that a run has in common with the opened one; 0 without a run."""
    try:
        return _share(_state(place), run.version.key, place, run.run)
    except AuditError:
        return 0.0


@cached
def _share(before: str, after: str, _before: Path, _after: Path) -> float:
    return diff.shared_share(samples_of(_before), samples_of(_after))


def _side(found: RunDiff, change: str, of: str) -> None:
    rows = found.findings.filter(pl.col("change") == change)
    html.paragraph(f"{counted(len(rows), 'finding')} {of}", "quiet small")
    if rows.is_empty():
        html.empty("None.")
        return
    lines = [
        ListRow(
            row["fingerprint"],
            {
                "severity": row["severity"],
                "code": row["code"],
                "about": f"{', '.join(row['ids'][:2])}: {row['message']}".removeprefix(": "),
                "why": row["why"] or "",
            },
            settled=row["status"] not in (None, "open"),
        )
        for row in rows.head(LISTED).iter_rows(named=True)
    ]

    def opened(fingerprint: str) -> None:
        # a fixed one is no finding of the chosen run any more: only what is new can be opened
        if change == NEW:
            link.go("findings", run=link.get("run"), finding=fingerprint, status="all")

    show_listing(f"findings {change}", COLUMNS, lines, opened)
    if len(rows) > LISTED:
        html.paragraph(f"The first {LISTED:,} of {len(rows):,}.", "quiet small")


def _files(run: Opened, found: RunDiff) -> None:
    st.header("Files")
    counts = dict(found.files.group_by("change").len().sort("change").iter_rows())
    if not counts:
        html.paragraph("The same files, with the same contents, classes and splits.")
        return
    kind = link.choose(
        "Change", "change", list(counts), any_=None, shown=lambda c: f"{c} ({counts[c]:,})"
    )
    rows = found.files.filter(pl.col("change") == kind)
    if ids := rows["after"].drop_nulls().head(PICTURED).to_list():
        shown = cards(run, ids)
        show_gallery(run, "changed files", shown, marks=run.decisions.by_sample, width=150)
    html.table(rows, height=280)
