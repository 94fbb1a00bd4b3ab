"""A fragment of a page: drawn again alone where a click changed nothing outside it.

Streamlit draws the whole page after each click. A fragment is drawn alone where the click only
turned one of its own pages and called `page_changed`, with the ledger as it is now; after any other
click, and where the run was scanned meanwhile, it asks for the whole page, so that nothing beside
it is out of date. What fails in a fragment is one sentence in its place; the rest stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

from audit.ui.opened import Opened, open_chosen_run, safely, show_said

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
