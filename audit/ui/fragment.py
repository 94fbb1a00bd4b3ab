"""A piece of a page that is drawn again alone when its own pages are turned.

Streamlit draws the whole page after each click. A piece is drawn anew by itself where the click
only turned a page or stepped on in it, and called `turned`; after any other click, and where the
run has changed meanwhile, it asks for the whole page, so that nothing beside it is out of date.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

from audit.ui.opened import Opened, opened, safely

WITH_ITS_PAGE = "piece drawn with its page"
TURNED = "piece turned"


def turned() -> None:
    """Say, in a callback, that nothing outside the piece has changed."""
    st.session_state[TURNED] = True


def piece(draw: Callable[..., None]) -> Callable[..., None]:
    """Make a function whose first argument is the run draw a piece of its page."""

    @st.fragment
    def alone(run: Opened, *args: Any) -> None:
        whole = st.session_state.pop(WITH_ITS_PAGE, False)
        only_turned = st.session_state.pop(TURNED, False)
        if not whole and not (only_turned and _as_it_was(run)):
            st.rerun()
        safely(draw, run, *args)

    def shown(run: Opened, *args: Any) -> None:
        st.session_state[WITH_ITS_PAGE] = True
        alone(run, *args)

    return shown


def _as_it_was(run: Opened) -> bool:
    now = opened()
    return now.key == run.key and now.told.revision == run.told.revision
