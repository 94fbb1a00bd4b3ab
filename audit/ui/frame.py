"""What every page has around it: its title, one entry of the history, and the list of its keys."""

from __future__ import annotations

import streamlit as st

from audit.printable import visible
from audit.ui import link
from audit.ui.gallery import component
from audit.ui.opened import run_name

EVERYWHERE = (("U", "take back the latest decision"), ("?", "this list; Esc closes it"))
IMAGE = (
    ("Left, Right", "picture open: the one beside it"),
    ("K, D, Z", "picture open: keep, drop, zoom"),
    ("1 to 9", "picture open, in the labelling mode: that class, and the next picture"),
)
PAGES = {
    "findings": (
        ("K, D, F", "keep, drop, false positive, and go on to the next finding"),
        ("N, P", "next and previous finding"),
        ("PageUp, PageDown", "turn the pages of the list"),
        *IMAGE,
    ),
    "duplicates": (
        ("1 to 9", "that copy stays, the others are dropped"),
        ("K", "the rule above chooses which copy stays"),
        ("S", "the next split gives way where copies cross splits; after the last, none"),
        ("D", "drop the selected copies"),
        ("F", "false positive: these are no copies"),
        ("N, P", "next and previous group"),
        ("PageUp, PageDown", "turn the pages of the list"),
        *IMAGE,
    ),
    "labels": IMAGE,
    "explore": (("PageUp, PageDown", "turn the pages"), ("Space", "select a card"), *IMAGE),
}


def draw_frame(page: str, title: str) -> None:
    """Name the page and run in the title of the tab, and give the page the key `?`."""
    link.turn_to(page)
    name = run_name()
    st.set_page_config(page_title=f"{title} · {visible(name)}" if name else title)
    keys = (*PAGES.get(page, ()), *EVERYWHERE)
    with st.sidebar:
        component("frame")(key="frame", data={"title": title, "keys": [list(k) for k in keys]})
