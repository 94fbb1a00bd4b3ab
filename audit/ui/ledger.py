"""Decisions: the log of the ledger, what no longer applies, and the export of the kept set."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import polars as pl
import streamlit as st

from audit.printable import visible, visible_frame
from audit.report.wording import counted
from audit.review.export import ExportResult, export_tables
from audit.ui import html
from audit.ui.deciding import button
from audit.ui.opened import Opened, open_chosen_run, say

OUT = "folder of the export"
FORMAT = "format of the export"


def page() -> None:
    """Show the page."""
    run = open_chosen_run()
    st.title("Decisions")
    html.paragraph(
        "Decisions are kept in the run's ledger, which is only ever added to. Your files "
        "are never moved, changed or deleted: an export lists what to use.",
        "quiet",
    )
    log, out = st.columns([3, 2], gap="large")
    with log:
        _log(run)
        _stale(run)
    with out:
        _export(run)


def _log(run: Opened) -> None:
    st.header("Latest decisions")
    if not run.ledger.recent:
        html.empty(
            "Nothing was decided yet.",
            "Open Findings or Duplicates: K keeps, D drops, F marks a false positive, "
            "U takes back.",
        )
        return
    rows = [
        (
            d.at.replace("T", " ").removesuffix("+00:00"),
            d.by,
            d.verb.value,
            d.value or "",
            d.kind,
            d.subject,
            d.note,
            "taken back" if d.undone else "",
        )
        for d in run.ledger.recent
    ]
    names = ["when (UTC)", "by", "decision", "to", "about a", "subject", "note", "state"]
    frame = pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row")
    st.dataframe(visible_frame(frame), hide_index=True, width="stretch")


def _stale(run: Opened) -> None:
    stale = run.ledger.stale
    if not stale.height:
        return
    st.header("No longer apply")
    html.paragraph(
        "These are about a file or finding that has changed since. They are kept, and not applied.",
        "quiet small",
    )
    st.dataframe(
        visible_frame(stale.select("kind", "subject", "reason", "verb", "value", "by", "at")),
        hide_index=True,
        width="stretch",
    )


def _export(run: Opened) -> None:
    st.header("Export")
    html.paragraph(
        f"{counted(run.ledger.n_effective, 'sample')} decided. The export writes the manifest of "
        "the kept set (relabels and moves applied), the quarantine list with reasons, "
        "lists of file names, duplicate pairs and per-sample scores.",
        "small",
    )
    st.text_input("Folder to write", key=OUT, placeholder=visible(f"exports/{run.name}"))
    st.segmented_control("Format", ["csv", "parquet"], default="csv", key=FORMAT)
    button("Export", "export", partial(_write, run), primary=True)
    written: ExportResult | None = st.session_state.get("written")
    if written is not None:
        html.paragraph(
            f"{written.kept:,} kept, {written.dropped:,} dropped, {written.changed:,} changed.",
            "strong",
        )
        html.write_html(
            html.value_table([(p.name, f"{n:,} rows") for p, n in written.files.items()])
        )
        html.paragraph(str(next(iter(written.files)).parent.resolve()), "mono quiet")


def _write(run: Opened) -> None:
    out = Path(st.session_state[OUT].strip() or str(Path("exports") / run.name)).expanduser()
    st.session_state["written"] = export_tables(run.run, out, st.session_state[FORMAT] or "csv")
    say(f"Exported to {out}.")
