"""The app: one navigation over the pages of both packages, and nothing else.

    audit app RUN ...      or      audit serve      or      streamlit run app.py -- RUN ...

Either serves on 127.0.0.1. Pages are functions; what they ask of a run is in `audit.results`. Every
page is guarded here, in one place: one that fails says so in a sentence, and the others work.

Streamlit runs this file as a script, once for each look at a page.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import streamlit as st

from audit.ui import (
    changes,
    decisions,
    duplicates,
    explore,
    findings,
    html,
    labels,
    overview,
    start,
    subset,
)
from audit.ui.frame import draw_frame, draw_sidebar
from audit.ui.guard import served
from audit.ui.home import page as home_page
from audit.ui.html import icon, write_style
from audit.ui.link import follow
from audit.ui.opened import guarded, known_runs, open_chosen_run, sizes_of
from pipeline_profiler.ui import checks, profiles, runs

CHIPS = {"fix first": "error", "go": "good", "inconclusive": "warning", "skipped": "info"}


def all_pages() -> dict[str, tuple[str, Callable[[], None], str, str]]:
    """Return the pages: name in the address to section, function, title and symbol."""
    return {
        "preflight": ("Dataset", preflight_page, "Preflight", "flight_takeoff"),
        "overview": ("Dataset", overview.page, "Overview", "dashboard"),
        "findings": ("Dataset", findings.page, "Findings", "rule"),
        "duplicates": ("Dataset", duplicates.page, "Duplicates", "filter_none"),
        "labels": ("Dataset", labels.page, "Labels", "label"),
        "explore": ("Dataset", explore.page, "Explore", "grid_view"),
        "changes": ("Dataset", changes.page, "Changes", "difference"),
        "decisions": ("Dataset", decisions.page, "Decisions", "history"),
        "subset": ("Evaluation", subset.page, "Subset designer", "tune"),
        "profiles": ("Training", lambda: profiles.page(sizes_of), "Profiles", "speed"),
        "checks": ("Training", checks.page, "Checks", "checklist"),
        "runs": ("Training", runs.page, "Runs", "table_rows"),
        "start": ("Work", start.page, "Start", "play_arrow"),
    }


def preflight_page() -> None:
    """Show the answer of `dataset-preflight` for the chosen run: may this training start?"""
    run = open_chosen_run()
    st.title("Preflight")
    path = run.run / "preflight.json"
    if not path.is_file():
        html.empty("This run has no answer yet.", "Run dataset-preflight DATA -- python train.py.")
        return
    page = json.loads(path.read_text())
    st.header(page["answer"].capitalize())
    html.paragraph(f"{page['subject']} · {page['created']}", "quiet")
    for row in page["rows"]:
        with st.container(border=True):
            html.write_html(
                html.chip(row["state"], CHIPS[row["state"]]), html.tag("b", row["name"])
            )
            for sentence in row["sentences"]:
                html.paragraph(sentence)
            html.write_html(*(html.tag("p", command, "mono") for command in row["commands"]))


def has_answer() -> bool:
    """Return whether a run of the app has a page of `dataset-preflight`."""
    return any((run / "preflight.json").is_file() for run in known_runs().values())


def pages_of_service() -> dict[str, tuple[str, Callable[[], None], str, str]]:
    """Return the pages of `audit serve`: those that open nothing but the datasets it lists."""
    own = {n: p for n, p in all_pages().items() if p[0] in ("Dataset", "Evaluation")}
    return {"home": ("Datasets", home_page, "Home", "home"), **own}


def draw_app() -> None:
    """Draw the page that the address names, inside the navigation."""
    st.set_page_config(page_title="dataset-preflight", page_icon=icon(), layout="wide")
    write_style()
    listed = pages_of_service() if served() else all_pages()
    # without a run: what this is, and a scan
    first = "home" if served() else "overview" if known_runs() else "start"
    if not served() and known_runs() and has_answer():
        first = "preflight"
    pages = {
        name: st.Page(
            guarded(page),
            title=title,
            icon=f":material/{symbol}:",
            url_path=name,
            default=name == first,
        )
        for name, (_, page, title, symbol) in listed.items()
    }
    sections: dict[str, list[st.Page]] = {}
    for name, (section, *_) in listed.items():
        sections.setdefault(section, []).append(pages[name])
    chosen = st.navigation(sections, expanded=True)
    follow(pages)
    name = chosen.url_path or first
    section, _, title, _ = listed[name]
    draw_frame(name, title, ours=section != "Training")
    draw_sidebar()
    chosen.run()


if __name__ == "__main__":
    draw_app()
