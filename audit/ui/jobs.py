"""The work in the background as pages show it: one list of jobs for all tabs, the latest last."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import streamlit as st

from audit.report.wording import counted
from audit.ui import html
from audit.ui.background import Job
from audit.ui.opened import add_run, answering, choose_run, safely, say

EVERY = "1s"


@st.cache_resource(show_spinner=False)
def _jobs() -> list[Job]:
    """Return the jobs of this app, the latest last: one list for all tabs."""
    return []


def latest() -> Job | None:
    """Return the latest job."""
    return _jobs()[-1] if _jobs() else None


def begin(job: Job) -> None:
    """Add a job that was started."""
    _jobs().append(job)


def is_busy() -> bool:
    """Whether a job is running."""
    job = latest()
    return job is not None and job.state == "running"


def show_work() -> None:
    """Show the latest job, where there is one: how far it is, or how it ended."""
    job = latest()
    if job is not None:
        st.header("Work in the background")
        _follow() if job.state == "running" else _ended(job)


def going_on() -> None:
    """Show running work in the sidebar."""
    job = latest()
    if job is not None and job.state == "running":
        _small()


@st.fragment(run_every=EVERY)
def _small() -> None:
    safely(_draw_small)


def _draw_small() -> None:
    job = latest()
    if job is None or job.state != "running":
        st.rerun()
    st.progress(job.stage.share, text=html.label(f"{job.what}: {job.stage.phase.lower()}"))


@st.fragment(run_every=EVERY)
def _follow() -> None:
    safely(_draw_job)


def _draw_job() -> None:
    job = latest()
    if job is None or job.state != "running":
        st.rerun()
    with st.container(border=True):
        html.paragraph(f"{job.what} → {job.target}", "strong")
        st.progress(job.stage.share)
        html.paragraph(_progress_text(job))
        st.button("Cancel", on_click=answering(job.cancel), icon=":material/stop:")


def _progress_text(job: Job) -> str:
    stage = job.stage
    parts = [f"{stage.phase}: {stage.done:,}" + (f" of {stage.total:,}" if stage.total else "")]
    parts += [f"{stage.rate:,.0f} a second"] if stage.rate else []
    parts += [f"about {stage.left_s:,.0f} s left in this step"] if stage.left_s else []
    parts += [f"{counted(stage.errors, 'file')} not whole"] if stage.errors else []
    return ", ".join(parts)


def _ended(job: Job) -> None:
    html.notice(
        f"{job.what}: {job.said}",
        "good" if job.state == "done" else "error" if job.state == "failed" else "",
    )
    if job.state == "done" and job.makes_run:
        st.button(
            "Open this run", type="primary", on_click=answering(partial(look_at_run, job.target))
        )


def look_at_run(run: Path) -> None:
    """Open a run on all pages."""
    choose_run(add_run(run))
    say(f"Now looking at {run}.")
