"""Views saved by name: a page and the values of its link, in a small file of the run.

The file lies beside the decisions, so everybody who opens the run has the views; it is replaced in
one step. A view is the text of a link and opens what a typed link would open. The sidebar lists the
views and saves the page that is shown."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from urllib.parse import urlencode

import streamlit as st

from audit.errors import RunError, UsageError
from audit.run.digests import write_synced
from audit.ui import html, link
from audit.ui.deciding import reviewer
from audit.ui.opened import answering, known_runs, run_name, say
from preflight.terminal import visible

FILE = "app-views.json"
NEW_VIEW, OLD_VIEW = "name of a view", "view to remove"
MOST, LETTERS = 100, 60
View = dict[str, str]  # of a link; "page" among them


def load_views(run: Path) -> dict[str, View]:
    """Return the views by name, the latest last; none where the file is absent or damaged."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        found = json.loads((run / FILE).read_text("utf-8"))
        return {
            str(name): {str(k): str(v) for k, v in view.items()} for name, view in found.items()
        }
    return {}


def save_view(run: Path, name: str, page: str, values: View) -> None:
    """Save a view, or replace that of the same name; raises UsageError, RunError."""
    name = " ".join(name.split())[:LETTERS]
    if not name:
        raise UsageError("Give the view a name.")
    views = {n: v for n, v in load_views(run).items() if n != name}
    if len(views) >= MOST:
        raise UsageError(f"This run has {MOST} views: remove one first.")
    _write(run, views | {name: values | {"page": page}})


def remove_view(run: Path, name: str) -> None:
    """Remove a view; nothing where there is none of that name."""
    _write(run, {n: v for n, v in load_views(run).items() if n != name})


def link_of(view: View, run: str) -> str:
    """Return the link of a view, relative to the app."""
    values = {k: v for k, v in view.items() if k not in ("page", "run")}
    return f"{view.get('page', '')}?{urlencode({'run': run, **values})}"


def _write(run: Path, views: dict[str, View]) -> None:
    try:
        write_synced(run / FILE, (json.dumps(views, ensure_ascii=False, indent=1) + "\n").encode())
    except OSError as error:
        raise RunError(f"The view cannot be saved in {run}: {error.strerror or error}.") from None


# ---- the sidebar ----


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
