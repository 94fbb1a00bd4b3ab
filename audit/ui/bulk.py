"""One decision or tag on all pictures that fit the filter, or are ticked: seen first, one batch.

What `audit decide --where` does. The ids are looked up in the generation that the page shows, and
are recorded as one batch, so one undo takes all of it back.
"""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from audit.browse import images
from audit.browse.conditions import Condition, words_of
from audit.errors import UsageError
from audit.records import Action
from audit.report.wording import counted
from audit.ui import html, link
from audit.ui.deciding import NOTE, decide_selected
from audit.ui.gallery import show_gallery
from audit.ui.opened import Opened, answering, open_chosen_run, safely

PREVIEW = 12
VERBS = {
    "Keep": Action.KEEP,
    "Drop": Action.DROP,
    "Relabel": Action.RELABEL,
    "Move": Action.MOVE,
    "Tag": Action.TAG,
    "Untag": Action.UNTAG,
}
TO = {
    Action.RELABEL: "New class",
    Action.MOVE: "New split",
    Action.TAG: "Tag",
    Action.UNTAG: "Tag to take away",
}
VERB, VALUE = "verb for all that fit", "value for all that fit"


def open_bulk(of: str = "all") -> None:
    """Ask for the dialogue about `all` that fit, or those `picked`: the link says so."""
    link.put(act=of)


def bulk_dialogue(conditions: Sequence[Condition]) -> None:
    """Show the dialogue over the pictures under these conditions, if the link asks for it."""
    # One dialogue at a time: a picture that is open lies in front.
    if link.get("act") in ("all", "picked") and not link.get("image"):
        _dialogue(conditions)


@st.dialog("Decide on several", width="large", on_dismiss=lambda: link.put(act=None))
def _dialogue(conditions: Sequence[Condition]) -> None:
    safely(_draw, conditions)


def _draw(conditions: Sequence[Condition]) -> None:
    run = open_chosen_run()
    with run.store() as store:
        n = images.count_images(store, conditions)
        found = images.page(store, conditions, size=PREVIEW)
    if not n:
        html.empty("No file fits.", "Close this, and widen the filters.")
        return
    said = "; ".join(words_of(c) for c in conditions) or "no filter: all files of the run"
    html.paragraph(f"{counted(n, 'file')}: {said}.", "strong")
    show_gallery("bulk preview", found.cards, run.thumbnails().many(found.cards), width=110)
    if n > PREVIEW:
        html.paragraph(f"The first {PREVIEW} of {n:,}.", "quiet small")
    chosen = st.segmented_control("Decision", list(VERBS), key=VERB)
    if not chosen:
        html.paragraph("Choose what to decide.", "quiet small")
        return
    verb = VERBS[str(chosen)]
    if verb in TO:
        st.text_input(TO[verb], key=VALUE)
    st.text_input("Note, kept with the decision", key=NOTE)
    st.button(
        f"{verb.value.capitalize()} {counted(n, 'file')}",
        key="bulk",
        type="primary",
        on_click=answering(_decide),
        args=(run, conditions, verb, n),
    )
    html.paragraph("One undo takes all of it back. No file is changed.", "quiet small")


def _decide(run: Opened, conditions: Sequence[Condition], verb: Action, n: int) -> None:
    with run.store() as store:
        ids = images.list_ids(store, conditions)
    if len(ids) != n:
        raise UsageError("The files that fit have changed: look at them, and decide again.")
    value = str(st.session_state.get(VALUE, "")).strip() if verb in TO else None
    decide_selected(run, ids, verb, value)
    link.put(act=None)
