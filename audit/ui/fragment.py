"""A fragment of a page: drawn again alone where a click changed nothing outside it.

Streamlit draws the whole page after each click. A fragment is drawn alone where the click only
turned one of its own pages and called `page_changed`; after any other click, and where the run has
changed meanwhile, it asks for the whole page, so that nothing beside it is out of date. What fails
in a fragment is one sentence in its place; the rest of the page stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

from audit.ui.opened import Opened, open_chosen_run, safely

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
    if not whole and not (only_page_changed and _is_current(run)):
        st.rerun()
    draw(run, *args)


def _is_current(run: Opened) -> bool:
    now = open_chosen_run()
    return now.key == run.key and now.ledger.revision == run.ledger.revision
