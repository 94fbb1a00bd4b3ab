"""Saved views: in the sidebar, each a link, and what saves the page that is shown by a name."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from audit.results.saved_views import link_of, load_views, remove_view, save_view
from audit.ui import html, link
from audit.ui.deciding import reviewer
from audit.ui.opened import answering, known_runs, run_name, say
from dataset_preflight.foundation.terminal import visible

NEW_VIEW, OLD_VIEW = "name of a view", "view to remove"


def show_views() -> None:
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
