"""Start: scan a folder or check a run again in the background; open another run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import streamlit as st

from audit.results.formatting import counted
from audit.service.work import Job, start_job
from audit.ui import html
from audit.ui.deciding import reviewer
from audit.ui.opened import add_run, answering, choose_run, known_runs, run_name, safely, say
from dataset_preflight.foundation.terminal import visible

SOURCE, OUT = "folder to scan", "run to write"
OTHER, HERE = "run to open", "folder here"
OFFERED = 12


def page() -> None:
    """Show the page."""
    st.title("Start")
    if not known_runs():
        html.paragraph(html.ABOUT)
        html.paragraph(
            "There is no run here yet: name a folder of images below, and scan it.", "strong"
        )
    show_work()
    busy = is_busy()
    left, right = st.columns(2, gap="large")
    with left, st.container(border=True):
        _scan(busy)
    with right:
        with st.container(border=True):
            _recheck(busy)
        with st.container(border=True):
            _open()


def _scan(busy: bool) -> None:
    st.header("Scan a folder")
    html.paragraph(
        "Reads every image once and writes a run directory; your files are only read. Scan "
        "again after any change: only what changed is read.",
        "quiet small",
    )
    here = [p.name for p in sorted(Path.cwd().iterdir()) if p.is_dir() and p.name[0] != "."]
    # A text, not a choice: what is typed into a choice is gone when the hand goes on with Tab.
    source = st.text_input("Folder or manifest", key=SOURCE, placeholder="path").strip()
    if here:
        st.pills(
            "Folders here",
            here[:OFFERED],
            key=HERE,
            format_func=html.label,
            on_change=_take_folder,
        )
    name = Path(source).expanduser().name if source else "NAME"
    st.text_input("Run directory", key=OUT, placeholder=visible(f"runs/{name}"))
    st.button(
        "Scan",
        type="primary",
        disabled=busy,
        on_click=answering(_start_scan),
        icon=":material/play_arrow:",
    )
    if busy:
        html.paragraph("One job at a time: wait for the one above, or cancel it.", "quiet small")


def _take_folder() -> None:
    if chosen := st.session_state[HERE]:
        st.session_state[SOURCE] = str(Path.cwd() / chosen)


def _start_scan() -> None:
    reviewer()
    source = Path(st.session_state[SOURCE]).expanduser()
    out = Path(st.session_state[OUT].strip() or str(Path("runs") / source.name)).expanduser()
    if not st.session_state[SOURCE].strip():
        say("Name a folder or a manifest first.", "error")
        return
    # Said here at once: the worker would say so after its start, some seconds later.
    if not source.exists():
        say(f"There is nothing at {source}: choose a folder or a manifest that exists.", "error")
        return
    begin(start_job(f"Scan of {source.name}", "scan", out, [str(source)]))


def _recheck(busy: bool) -> None:
    st.header("Check a run again")
    html.paragraph(
        "Runs the checks over what was measured, with the thresholds of ./audit.toml; opens "
        "no image.",
        "quiet small",
    )
    name = run_name()
    run = known_runs().get(name) if name else None
    st.button(
        f"Re-check {html.label(name)}" if name else "Re-check the open run",
        disabled=busy or run is None,
        on_click=answering(partial(_start_recheck, run)),
    )


def _start_recheck(run: Path | None) -> None:
    reviewer()
    if run is not None:
        begin(start_job(f"Re-check of {run.name}", "recheck", run))


def _open() -> None:
    st.header("Open another run")
    st.text_input("Run directory", key=OTHER, placeholder="as made by audit scan")
    st.button("Open", on_click=answering(_open_other), disabled=not st.session_state[OTHER].strip())


def _open_other() -> None:
    reviewer()
    path = Path(st.session_state[OTHER].strip()).expanduser()
    if not (path / "CURRENT").is_file():
        say(f"There is no run at {path}: make one with a scan.", "error")
        return
    look_at_run(path)


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
        _follow(_whole) if job.state == "running" else _ended(job)


def going_on() -> None:
    """Show running work in the sidebar."""
    if is_busy():
        _follow(_small)


@st.fragment(run_every="1s")
def _follow(draw: Callable[[Job], None]) -> None:
    safely(_draw_running, draw)


def _draw_running(draw: Callable[[Job], None]) -> None:
    job = latest()
    if job is None or job.state != "running":
        st.rerun()
    draw(job)


def _small(job: Job) -> None:
    st.progress(job.stage.share, text=html.label(f"{job.what}: {job.stage.phase.lower()}"))


def _whole(job: Job) -> None:
    with st.container(border=True):
        html.paragraph(f"{job.what} → {job.target}", "strong")
        st.progress(job.stage.share)
        html.paragraph(_progress_text(job))
        st.button("Cancel", on_click=answering(partial(_cancel, job)), icon=":material/stop:")


def _cancel(job: Job) -> None:
    reviewer()
    job.cancel()


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
