"""What surrounds a page: title, history, keys, sidebar with saved views; fragments of a page.

A fragment is drawn alone if the click turned its own page and called `page_changed`. After any
other click or a new scan it requests the whole page.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import streamlit as st

from audit.results.saved_views import link_of, load_views, remove_view, save_view
from audit.ui import html, link
from audit.ui.deciding import reviewer
from audit.ui.decisions import show_decided
from audit.ui.gallery import component
from audit.ui.opened import (
    Opened,
    answering,
    choose_run,
    known_runs,
    open_chosen_run,
    run_name,
    safely,
    say,
    show_said,
)
from audit.ui.start import going_on
from dataset_preflight.foundation.terminal import visible

EVERYWHERE = (("U", "undo your latest decision"), ("?", "this list; Esc closes it"))
IMAGE = (
    ("Left, Right", "image open: previous and next image"),
    ("K, D, Z", "image open: keep, drop, zoom"),
    ("1 to 9", "image open, in the labelling mode: that class, and the next image"),
)
PAGES = {
    "findings": (
        ("K, D, F", "keep, drop, false positive, and go on to the next finding"),
        ("N, P", "next and previous finding"),
        ("PageUp, PageDown", "previous and next page of the list"),
        *IMAGE,
    ),
    "duplicates": (
        ("1 to 9", "keep that copy, drop the others"),
        ("K", "the rule above chooses which copy stays"),
        ("S", "drop duplicates from the next split; after the last, from none"),
        ("D", "drop the selected copies"),
        ("F", "false positive: these are no copies"),
        ("N, P", "next and previous group"),
        ("PageUp, PageDown", "previous and next page of the list"),
        *IMAGE,
    ),
    "labels": IMAGE,
    "explore": (("PageUp, PageDown", "previous and next page"), ("Space", "select a card"), *IMAGE),
}


def draw_frame(page: str, title: str, *, ours: bool = True) -> None:
    """Name the page and run in the title of the tab, and give the page the key `?`."""
    link.turn_to(page, ours=ours)
    name = run_name()
    st.set_page_config(page_title=f"{title} · {visible(name)}" if name else title)
    keys = (*PAGES.get(page, ()), *EVERYWHERE)
    with st.sidebar:
        component("frame")(key="frame", data={"title": title, "keys": [list(k) for k in keys]})


def draw_sidebar() -> None:
    """Draw the sidebar; what fails in a part of it is a sentence in its place."""
    with st.sidebar:
        for part in (_runs, show_decided, going_on, _views):
            safely(part)


def _runs() -> None:
    names = list(known_runs())
    now = run_name()
    if not names:
        return
    none: dict[str, Any] = {"index": None, "placeholder": "choose a run"}
    st.session_state["run choice"] = now
    st.selectbox(
        "Run",
        names,
        key="run choice",
        format_func=visible,
        on_change=lambda: choose_run(st.session_state["run choice"]),
        **({} if now else none),
    )


NEW_VIEW, OLD_VIEW = "name of a view", "view to remove"


def _views() -> None:
    """Draw the views that were saved of this run, each a link, and what saves the one shown."""
    name = run_name()
    if name is None or not (run := known_runs()[name]).is_dir():
        return
    saved = load_views(run)
    with st.expander(f"Views ({len(saved):,})" if saved else "Views"):
        html.write_links({view: link_of(values, name) for view, values in saved.items()})
        st.text_input("Name for what is shown", key=NEW_VIEW, placeholder="dark cats of test")
        st.button("Save this view", on_click=answering(_save_view), args=(run,), width="stretch")
        if saved:
            st.selectbox(
                "Remove a view", list(saved), index=None, key=OLD_VIEW, format_func=visible
            )
            st.button("Remove", on_click=answering(_remove_view), args=(run,), width="stretch")


def _save_view(run: Path) -> None:
    reviewer()
    page, values = link.page_and_values()
    save_view(run, st.session_state[NEW_VIEW], page, values)
    say(f"Saved: the view {' '.join(st.session_state[NEW_VIEW].split())} is in the sidebar.")
    st.session_state[NEW_VIEW] = ""


def _remove_view(run: Path) -> None:
    reviewer()
    if chosen := st.session_state.get(OLD_VIEW):
        remove_view(run, chosen)


WITH_ITS_PAGE = "fragment drawn with its page"
CHANGED = "page of the fragment changed"


def page_changed() -> None:
    """Say, in a callback, that nothing outside the fragment has changed."""
    st.session_state[CHANGED] = True


def make_fragment(draw: Callable[..., None]) -> Callable[..., None]:
    """Make a function whose first argument is the run draw a fragment of its page."""

    @st.fragment
    def alone(run: Opened, *args: Any) -> None:
        safely(_draw_or_rerun, draw, run, *args)

    def with_its_page(run: Opened, *args: Any) -> None:
        st.session_state[WITH_ITS_PAGE] = True
        alone(run, *args)

    return with_its_page


def _draw_or_rerun(draw: Callable[..., None], run: Opened, *args: Any) -> None:
    # Both marks are taken whatever follows: one left over would count for a later click.
    whole = st.session_state.pop(WITH_ITS_PAGE, False)
    only_page_changed = st.session_state.pop(CHANGED, False)
    if whole:
        st.container()  # where the sentence stands in a fragment that is drawn alone
        draw(run, *args)
        return
    now = open_chosen_run()
    if not only_page_changed or now.key != run.key:
        st.rerun()
    show_said(once=False)  # its page shows it again, above what is drawn alone
    draw(now, *args)
