"""The app: one navigation over the pages of both packages, and nothing else.

    streamlit run app.py -- RUN ...      or      audit app RUN ...

Either serves on 127.0.0.1. Pages are functions; what they ask of a run is in `audit.browse`. Every
page is guarded here, in one place: one that fails says so in a sentence, and the others work.
"""

from __future__ import annotations

import streamlit as st

from audit.ui import duplicates, explore, findings, labels, ledger, overview, start, subset
from audit.ui.html import icon, write_style
from audit.ui.link import follow
from audit.ui.opened import guarded, sizes_of
from audit.ui.sidebar import draw_sidebar
from pipeline_profiler.ui import profiles

PAGES = {
    "overview": ("Dataset", overview.page, "Overview", "dashboard"),
    "findings": ("Dataset", findings.page, "Findings", "rule"),
    "duplicates": ("Dataset", duplicates.page, "Duplicates", "filter_none"),
    "labels": ("Dataset", labels.page, "Labels", "label"),
    "explore": ("Dataset", explore.page, "Explore", "grid_view"),
    "decisions": ("Dataset", ledger.page, "Decisions", "history"),
    "subset": ("Evaluation", subset.page, "Subset designer", "tune"),
    "profiles": ("Training", lambda: profiles.page(sizes_of), "Profiles", "speed"),
    "start": ("Work", start.page, "Start", "play_arrow"),
}

st.set_page_config(page_title="dataset-preflight", page_icon=icon(), layout="wide")
write_style()
pages = {
    name: st.Page(
        guarded(page),
        title=title,
        icon=f":material/{icon}:",
        url_path=name,
        default=name == "overview",
    )
    for name, (_, page, title, icon) in PAGES.items()
}
sections: dict[str, list[object]] = {}
for name, (section, *_) in PAGES.items():
    sections.setdefault(section, []).append(pages[name])
chosen = st.navigation(sections)
follow(pages)
draw_sidebar()
chosen.run()
