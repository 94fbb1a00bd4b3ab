"""Profiles: what a session says, with its evidence: causes, configurations, stages, a time line.

Sections are those of the report. Texts of a session are shown as text.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import altair as alt
import polars as pl
import streamlit as st

from pipeline_profiler.profiling.diagnose.comparison import compare
from pipeline_profiler.profiling.diagnose.window import Windows
from pipeline_profiler.profiling.monitor.conclusion import judge_session
from pipeline_profiler.profiling.record.arm import Arm
from pipeline_profiler.profiling.record.session import ProfileError, Session
from pipeline_profiler.report.section import Section
from pipeline_profiler.report.sections import failed_rules, report_sections, shown
from pipeline_profiler.ui import frames
from pipeline_profiler.ui.frames import Lookup
from pipeline_profiler.ui.sessions import nearby, title
from pipeline_profiler.ui.texts import (
    choose_of_link,
    draw_markup,
    drawing,
    write_notice,
    write_table,
    write_text,
)

TIMES = {
    "Loading a batch": "Loading time of a batch, by stage, with the line of code and what to do.",
    "Configurations": "The same step with preloaded batches, with the loader beside it (shadow) "
    "and in place (warm). The differences split the data stall.",
}
SLOW = "Slowest samples"
DRAWN = ("Verdict", "Step", "Causes", *TIMES, "Waiting", "Stall events", SLOW, "Conditions")
CAUSES = ["read", "cpu", "oversubscribed", "HOL", "transport", "serial", "start-up", "unknown"]
COLOURS = ["#3b6fb6", "#c2762b", "#b3475e", "#8a5fb0", "#3f8f5f", "#7a7f87", "#a08a1d", "#9aa0a6"]
LONG_CELL = 60  # characters, from which a table must fold its cells
PERCENT = st.column_config.NumberColumn(format="percent")


@drawing(
    "This session could not be drawn ({kind}: {said}): try `pipeline-profiler report` on it; the "
    "terminal of the app has the details."
)
def page(lookup: Lookup | None = None) -> None:
    """Show the page; `lookup` tells what an index knows of samples."""
    st.title("Profiles")
    chosen = _choose()
    if chosen is None:
        write_text("There is no session here yet.", strong=True)
        write_text(
            "Record one with `pipeline-profiler run train.py:make_loader --quick -o "
            "profile.json`, then reload this page, or upload a session."
        )
        return
    name, session = chosen
    about, *sections = report_sections(session)
    found = {section.title: section for section in sections}
    _head(session, about, found)
    extra = [section for title, section in found.items() if title not in DRAWN]
    tables = "Tables", bool(extra), lambda: list(map(_section, extra))
    others = [n for n in (*_uploaded(), *nearby()) if n != name and session.arm(Arm.WARM)]
    timed = shown(Windows(session)) is not None
    views: list[tuple[str, bool, Callable[[], object]]] = [
        ("Causes", "Causes" in found, lambda: _causes(found["Causes"])),
        ("Where the time goes", not found.keys().isdisjoint(TIMES), lambda: _time(found)),
        ("Time line", timed, lambda: _time_line(session, found)),
        ("Slow samples", SLOW in found, lambda: _slow(session, found[SLOW], lookup)),
        ("Compare", bool(others), lambda: _compare(name, session, others)),
        ("Conditions", True, lambda: _section(found["Conditions"], heading=False)),
    ]
    views.insert(0 if session.results.get("verdict") == "precision" else len(views), tables)
    shown_views = {title: draw for title, applies, draw in views if applies}
    # which one is open stands in the link, and only that one is drawn
    tabs = st.tabs([*shown_views], key="profile", bind="query-params")
    for tab, draw in zip(tabs, shown_views.values(), strict=True):
        if tab.open:
            with tab:
                draw()


def _choose() -> tuple[str, Session] | None:
    left, right = st.columns([3, 2], vertical_alignment="bottom")
    with right.expander("Upload a session"):
        st.file_uploader("Session file", type=["json", "gz"], key="session file", on_change=_given)
    names = [*_uploaded(), *nearby()]
    if not names:
        return None
    with left:
        name = choose_of_link("Session", "session", names)
    return name, _open(name)


def _uploaded() -> dict[str, bytes]:
    uploaded: dict[str, bytes] = st.session_state.setdefault("uploaded sessions", {})
    return uploaded


def _given() -> None:
    """Keep an uploaded file under a name of its own, and open it."""
    given = st.session_state["session file"]
    if given is not None:
        name = f"{title(given.name)} (uploaded)"
        _uploaded()[name] = given.getvalue()
        st.query_params["session"] = name


def _open(name: str) -> Session:
    if name in _uploaded():
        session = Session.parse(_uploaded()[name], name)
        judge_session(session)
        return session
    path = nearby()[name]
    return _loaded(path, path.stat().st_mtime_ns)


@st.cache_resource(max_entries=4, show_spinner="Reading the session …")
def _loaded(path: Path, changed: int) -> Session:
    session = Session.load(path)
    judge_session(session)
    return session


def _head(session: Session, about: Section, found: dict[str, Section]) -> None:
    write_text("\n".join([about.title, *about.lines]))
    with st.container(border=True):
        failed = failed_rules(session)
        for sentence in failed:
            write_notice(sentence)
        first, *others = [line for line in found["Verdict"].lines if line not in failed]
        write_text(first, strong=True)
        write_text("\n".join(others))
        if "Step" in found:
            _section(found["Step"], heading=False, rows=False)


def _causes(found: Section) -> None:
    _section(found, heading=False, rows=False)
    for number, code, name, share, cause, fix in found.rows:
        with st.container(border=True):
            write_text(f"{number}. {code} {name}: {share} of the step", strong=True)
            write_text(cause)
            write_text(f"Next: {fix}")


def _time(found: dict[str, Section]) -> None:
    for name in filter(found.__contains__, TIMES):
        st.header(name, help=TIMES[name])
        _section(found[name], heading=False)


def _time_line(session: Session, found: dict[str, Section]) -> None:
    drawn = frames.time_line(session)
    if drawn is not None and (drawn.stalls.height or drawn.depth.height):
        _draw_time_line(drawn)
    for name in filter(found.__contains__, ("Stall events", "Waiting")):
        _section(found[name], heading=False)


def _draw_time_line(drawn: frames.TimeLine) -> None:
    write_text(
        f"The first {drawn.seconds:.2f} s of the {drawn.total:.2f} s timed. Above, stalls: the "
        "trainer asked for a batch and none could be delivered. Below, batches ready: in a "
        "head-of-line (HOL) stall some are, but not the next one in order."
    )
    scale = alt.Scale(domain=[0, drawn.seconds])
    zoom = alt.selection_interval(bind="scales", encodings=["x"])
    charts = [_stall_chart(drawn.stalls, scale).add_params(zoom)] if drawn.stalls.height else []
    if drawn.depth.height:
        charts.append(_depth_chart(drawn.depth, scale))
    drawing = alt.vconcat(*charts).resolve_scale(x="shared")
    st.altair_chart(drawing, width="stretch", alt="Stalls and batches ready over time")
    if not drawn.depth.height:
        write_text("Ready batches: not applicable, this loader runs in the training process.")
    if not drawn.stalls.height:
        write_text("No stall in this window.")


def _stall_chart(stalls: pl.DataFrame, scale: alt.Scale) -> alt.Chart:
    present = [c for c in CAUSES if c in set(stalls["cause"])]
    bars = alt.Chart(stalls, height=max(60, 34 * len(present)), width=1040).mark_bar(
        height=18, stroke=None
    )
    return bars.encode(
        x=alt.X("start:Q", scale=scale, title=None),
        x2="end:Q",
        y=alt.Y("cause:N", title="stalls by cause", sort=present),
        color=alt.Color("cause:N", scale=alt.Scale(domain=CAUSES, range=COLOURS), legend=None),
        tooltip=["cause", alt.Tooltip("ms:Q", format=".2f"), "batch", "worker"],
    )


def _depth_chart(depth: pl.DataFrame, scale: alt.Scale) -> alt.Chart:
    chart, axis = alt.Chart(depth, height=150, width=1040), alt.Axis(tickMinStep=1, format="d")
    return chart.mark_area(interpolate="step-after", opacity=0.35, line={"strokeWidth": 1}).encode(
        x=alt.X("second:Q", scale=scale, title="s since the start of the timed window"),
        y=alt.Y("ready:Q", title="ready batches", axis=axis),
        tooltip=[alt.Tooltip("second:Q", format=".3f"), "ready"],
    )


def _slow(session: Session, found: Section, lookup: Lookup | None) -> None:
    rows = frames.slow_samples_frame(session, lookup)
    _section(found, heading=False, rows=False)
    st.dataframe(rows, hide_index=True, width="stretch", column_config={"share of stall": PERCENT})
    if lookup is not None and rows.width <= 5:
        write_text("None of these names is a sample of the open run, so sizes are not known.")


def _compare(name: str, session: Session, others: list[str]) -> None:
    other = choose_of_link("A, the one before", "before", others, "choose a session")
    if not other:
        write_text(f"B is {name}.")
        return
    before = _open(other)
    try:
        found = compare(before, session)
    except ProfileError as error:
        write_notice(str(error))
        return
    write_text(found["sentence"], strong=True)
    write_text(f"A is {other}, B is {name}.")
    both = [
        frames.periods_frame(s).with_columns(session=pl.lit(n))
        for s, n in ((before, other), (session, name))
    ]
    chart = alt.Chart(pl.concat(both), height=alt.Step(18)).mark_bar(size=13)
    bars = chart.encode(
        y=alt.Y("arm:N", sort=None, title=None, axis=alt.Axis(labelLimit=260)),
        x=alt.X("ms:Q", title="step period, ms"),
        color=alt.Color("session:N", sort=None, title=None),
        yOffset=alt.YOffset("session:N", sort=None),
        tooltip=["arm", "session", alt.Tooltip("ms:Q", format=".3f")],
    )
    st.altair_chart(bars, width="stretch", alt="Period of the step by arm, A and B")


def _section(found: Section, *, heading: bool = True, rows: bool = True) -> None:
    if heading:
        st.header(found.title)
    write_text("\n".join(found.lines))
    if chart := found.chart():
        draw_markup(str(chart), f"chart of {found.title}")
    if rows and max((len(cell) for row in found.rows for cell in row), default=0) > LONG_CELL:
        write_table(found.head, found.rows)
    elif found.rows and rows:
        st.dataframe(frames.table(found.head, found.rows), hide_index=True, width="stretch")
