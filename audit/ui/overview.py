"""Overview: what this dataset is, how it fares, what was looked at, and what to do first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st

from audit.report import PICTURED, Report, collect_report, render
from audit.results.filters import OneOf
from audit.results.findings import (
    FindingTally,
    count_files_left,
    count_progress,
    first_steps,
    open_finding,
)
from audit.results.formatting import bytes_text, counted, failures, number_text
from audit.results.images import cards
from audit.results.images import page as page_of
from audit.results.report_data import Card, CheckSummary, FirstThing
from audit.results.results import Results
from audit.ui import html, link
from audit.ui.detail import dialogue
from audit.ui.duplicates import CODES as COPIES
from audit.ui.gallery import show_gallery
from audit.ui.listing import ListColumn, ListRow, show_listing
from audit.ui.opened import Opened, cached, open_chosen_run

PICTURED_FIRST, EXAMPLES = 3, 4  # of the first things; of a class
FIGURE = 150  # px, so that two stand side by side on a phone
COLUMNS = (
    ListColumn("severity", "Severity", "severity", "5.8rem"),
    ListColumn("code", "Code", "code", "5.6rem"),
    ListColumn("name", "Check"),
    ListColumn("findings", "Open", "number", "5.6rem"),
    ListColumn("files", "Files", "number", "4rem"),
    ListColumn("share", "Share of files", "bar", "8.5rem"),
)


def page() -> None:
    """Show the page."""
    run = open_chosen_run()
    report = run.report()
    by_code, by_severity, steps, files = _left(run.key, run.decisions.revision, run)
    head, more = st.columns([4, 1], vertical_alignment="bottom")
    with head:
        _head(report)
    more.download_button(
        "Report (HTML)",
        data=lambda: "".join(render(collect_report(run.run, worst=PICTURED), "html")).encode(),
        file_name=f"{run.name}-report.html",
        mime="text/html",
        on_click="ignore",
        icon=":material/download:",
    )
    if report.failed:
        html.notice(failures(report), "error")
    _figures(report, by_severity, files)
    parts = by_code.values()
    if total := sum(part.total for part in parts):
        done = f"{sum(part.decided for part in parts):,} of {counted(total, 'finding')}"
        html.paragraph(f"{done} of {counted(len(report.checks), 'check')} decided.", "strong")
    for cost in report.costs:  # what changes a reported number most
        html.paragraph(cost.message)
    _first(run, steps)
    left, right = st.columns([2, 1], gap="large")
    with left:
        _health(report, by_code)
    with right:
        _contents(report)
    _examined(report)
    dialogue()


Tallies = Mapping[str, FindingTally]


@cached
def _left(
    key: str, revision: str, _run: Opened
) -> tuple[Tallies, Tallies, tuple[FirstThing, ...], int]:
    """Return what is left by code and by severity, the first steps, and the files concerned."""
    return (
        count_progress(_run, "code"), count_progress(_run, "severity"), first_steps(_run),
        count_files_left(_run),
    )  # fmt: skip


def _head(report: Report) -> None:
    data = report.dataset
    st.title("Overview")
    scanned = report.created.replace("T", " ").removesuffix("+00:00")
    html.write_html(
        html.tag("p", data.name, "strong"),
        html.tag("p", f"Layout {data.layout.name}: {data.layout.reason}", "quiet small"),
        html.tag("p", f"Scanned {scanned} UTC with {report.tool}", "quiet small"),
    )


def _figures(report: Report, by_severity: Mapping[str, FindingTally], files: int) -> None:
    data = report.dataset
    errors, warnings = (by_severity.get(name, FindingTally()) for name in ("error", "warning"))
    splits = [s for s in data.by_split() if s is not None]
    classes = [c for c in data.by_class() if c is not None]
    shown = (
        ("Files", f"{data.n_samples:,}", bytes_text(data.n_bytes)),
        ("Splits", f"{len(splits):,}", None),
        ("Classes", f"{len(classes):,}", None),
        ("Open errors", f"{errors.open:,}", f"of {errors.total:,}"),
        ("Open warnings", f"{warnings.open:,}", f"of {warnings.total:,}"),
        ("Files with either", f"{files:,}", None),
    )
    with st.container(horizontal=True):
        for label, value, more in shown:
            st.metric(
                label, value, more, delta_color="off", delta_arrow="off", border=True,
                width=FIGURE, height="stretch",
            )  # fmt: skip


def _worst(run: Results, thing: FirstThing) -> Sequence[Card]:
    """Return the pictures of the worst finding; of one about a class, the first of that class."""
    if thing.example:
        return cards(run, thing.example)
    found = open_finding(run, thing.fingerprint)
    name = found.finding.evidence.get("class") if found else None
    return page_of(run, [OneOf("label", (str(name),))], size=EXAMPLES).cards if name else ()


def _first(run: Opened, things: Sequence[FirstThing]) -> None:
    st.header(
        "Fix first",
        help="Sorted by estimated harm times certainty: leaks, wrong labels, damaged files and "
        "faulty objects come before outliers.",
    )
    if not things:
        html.empty("No errors or warnings are open.", "Findings still lists the decided findings.")
    for place, thing in enumerate(things):
        with st.container(border=True):
            said, act = st.columns([5, 1], vertical_alignment="center")
            with said:
                html.write_html(
                    html.chip(thing.severity.value, thing.severity.value),
                    html.tag("span", thing.message, "strong"),
                    html.tag("p", f"{', '.join(thing.codes)}  {thing.example_text}", "quiet small"),
                )
            code = thing.codes[0]
            if act.button("Look and decide", key=f"step {code}", icon=":material/arrow_forward:"):
                # where it can be settled: of copies one stays, which that page decides
                page = "duplicates" if code in COPIES else "findings"
                link.go(page, run=link.get("run"), code=code, finding=thing.fingerprint)
                st.rerun()
            if place < PICTURED_FIRST and (worst := run.ask(_worst, thing)):
                show_gallery(run, f"worst {code}", worst, width=150)


def _health(report: Report, by_code: Mapping[str, FindingTally]) -> None:
    st.header("Health by check")
    found = [c for c in report.checks if c.code in by_code]
    clean = [c.code for c in report.checks if c.code not in by_code]
    if not found:
        html.empty("No check found anything.")
    else:
        show_listing(
            "health",
            COLUMNS,
            [_line(c, by_code[c.code], report.dataset.n_samples) for c in found],
            lambda code: link.go("findings", run=link.get("run"), code=code),
        )
    if clean:
        html.paragraph(
            f"Nothing found by {counted(len(clean), 'check')}: {', '.join(clean)}.", "quiet small"
        )


def _line(check: CheckSummary, progress: FindingTally, n: int) -> ListRow:
    share = check.n_files / max(n, 1)
    return ListRow(
        check.code,
        {
            "severity": str(check.counts.worst.value if check.counts.worst else "info"),
            "code": check.code,
            "name": check.name,
            "findings": f"{progress.open:,} of {progress.total:,}",
            "files": f"{check.n_files:,}" if check.n_files else "–",
            "share": {"share": share, "text": f"{share:.1%}" if check.n_files else "–"},
        },
        settled=not progress.open,
    )


def _contents(report: Report) -> None:
    st.header("Files by split")
    data = report.dataset
    splits = [(split or "(no split)", counted(n, "file")) for split, n in data.by_split().items()]
    if not splits:
        html.empty("This run lists no file.")
    formats = ", ".join(f"{name} {n:,}" for name, n in data.formats.items())
    status = ", ".join(f"{n:,} {name}" for name, n in data.status.items())
    sizes = [
        (
            s.name,
            f"{number_text(int(s.low))} to {number_text(int(s.high))}, median "
            f"{number_text(round(s.median))}",
        )
        for s in data.sizes
    ]
    html.write_html(html.value_table([*splits, ("formats", formats), ("decoded", status), *sizes]))


def _examined(report: Report) -> None:
    st.header("Examined and skipped")
    with st.container(border=True):
        for sentence in report.completeness[:2]:
            html.paragraph(sentence)
        with st.expander("By check"):
            for sentence in report.completeness[2:]:
                html.paragraph(sentence, "small")
        if report.dataset.n_notes:
            with st.expander(f"Notes of the source ({report.dataset.n_notes:,})"):
                for said in report.dataset.notes:
                    html.paragraph(said, "small")
