"""The sidebar below the navigation: which run, what was decided last, undo, and work going on."""

from __future__ import annotations

from functools import partial

import streamlit as st

from audit.errors import AuditError
from audit.printable import visible
from audit.report.wording import counted
from audit.ui import html, link
from audit.ui.deciding import page_key, undo
from audit.ui.jobs import going_on
from audit.ui.opened import choose_run, known_runs, open_chosen_run, run_name, safely


def draw_sidebar() -> None:
    """Draw the sidebar; what fails in a part of it is a sentence in its place."""
    with st.sidebar:
        for part in (_runs, _ledger, going_on):
            safely(part)


def _runs() -> None:
    names = list(known_runs())
    now = run_name()
    if not names:
        return
    st.session_state["run choice"] = now
    st.selectbox(
        "Run",
        names,
        key="run choice",
        format_func=visible,
        on_change=lambda: choose_run(st.session_state["run choice"]),
    )


def _nothing_to_undo() -> None:
    st.toast("There is no decision to take back.")


def _ledger() -> None:
    try:
        if run_name() is None:
            return
        run = open_chosen_run()
    except (AuditError, OSError):
        return  # the page says what is wrong
    summary = run.ledger
    last = summary.last
    st.button(
        "Undo",
        key="undo",
        shortcut=page_key("U"),
        on_click=partial(undo, run.run) if last else _nothing_to_undo,
        icon=":material/undo:",
        width="stretch",
    )
    if last is None:
        html.paragraph("Nothing decided yet.", "quiet small")
        return
    about = "" if last.kind == "finding" else f" of {last.subject.rsplit('/', 1)[-1]}"
    html.paragraph(
        f"{counted(summary.n_effective, 'sample')} decided, "
        f"{counted(len(summary.settled), 'finding')} settled. Last: {last.verb.value}{about}.",
        "quiet small",
    )
    if summary.stale.height:
        html.paragraph(
            f"{counted(summary.stale.height, 'decision')} no longer apply: see Decisions.",
            "quiet small",
        )
    if st.button("Decisions and export", icon=":material/history:", width="stretch"):
        link.go("decisions", run=link.get("run"))
        st.rerun()
