"""Deciding in place: buttons with keys, what a decision says back, and undo.

Keys work wherever no text is being typed. Each writes to the ledger in a callback, before the page
is drawn again, so a decision is stored by the time it shows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import streamlit as st

from audit.browse.decided import LedgerSummary
from audit.errors import UsageError
from audit.printable import visible
from audit.records import Action
from audit.report.wording import counted
from audit.review import decisions
from audit.review.ledger import Decision, Ledger
from audit.ui import link
from audit.ui.opened import Opened, answering, open_chosen_run, say

DONE = {
    Action.KEEP: "Kept",
    Action.DROP: "Dropped",
    Action.RELABEL: "Relabelled",
    Action.MOVE: "Moved",
    Action.FALSE_POSITIVE: "Marked as false positive",
    Action.FIX: "Marked to be fixed",
}
NOTE = "note of the decision"
TRAIL = "findings decided from"
ELSEWHERE = (
    "This was decided meanwhile, by an earlier key, in another tab or by another person, so "
    "nothing was recorded: "
    "look at it as it is now, and decide again."
)


def page_key(key: str | None) -> str | None:
    """Return a key of the page; None while a picture lies in front of it and has the keys."""
    return None if link.get("image") or link.get("act") else key


def note() -> str:
    """Return what the person wrote beside the decision."""
    return str(st.session_state.get(NOTE, "")).strip()


def about(done: Sequence[Decision]) -> str:
    """Return what was decided, in words: `Dropped 2 samples`, `Undone: keep of 1 finding`."""
    samples = len({d.subject for d in done if d.kind == "sample"})
    found = len({d.subject for d in done if d.kind == "finding"})
    parts = [counted(found, "finding")] * bool(found) + [counted(samples, "sample")] * bool(samples)
    return " and ".join(parts) or "nothing"


def decide_finding(
    opened: Opened,
    fingerprint: str,
    verb: Action,
    value: str | None = None,
    *,
    samples: Sequence[str] = (),
    then: Callable[[], None] | None = None,
) -> None:
    """Decide a finding, or only the selected samples of it; then go on.

    Raises UsageError where somebody else decided about it after the page was drawn.
    """
    now = open_chosen_run().ledger
    if not samples and fingerprint in now.settled - opened.ledger.settled:
        raise UsageError(ELSEWHERE)
    _refuse_changed(opened, now, samples)
    # False positive applies to the finding as a whole, whatever is selected of it.
    if samples and verb is not Action.FALSE_POSITIVE:
        done = decisions.decide_samples(opened.run, samples, verb, value, note())
    else:
        done = decisions.decide_findings(opened.run, [fingerprint], verb, value, note())
    finish(done, verb, value, then)


def decide_selected(
    opened: Opened, ids: Sequence[str], verb: Action, value: str | None = None
) -> None:
    """Decide samples; raises UsageError where somebody else did after the page was drawn."""
    _refuse_changed(opened, open_chosen_run().ledger, ids)
    finish(decisions.decide_samples(opened.run, ids, verb, value, note()), verb, value, None)


def _refuse_changed(opened: Opened, now: LedgerSummary, ids: Sequence[str]) -> None:
    if any(now.by_sample.get(i) != opened.ledger.by_sample.get(i) for i in ids):
        raise UsageError(ELSEWHERE)


def finish(
    done: Sequence[Decision], verb: Action, value: str | None, then: Callable[[], None] | None
) -> None:
    """Say what was decided, forget the note, go on."""
    to = f" to {visible(value)}" if value else ""
    say(f"{DONE[verb]}{to}: {about(done)}. U takes it back.")
    # A note left in the field would be recorded with the next decision too.
    st.session_state[NOTE] = ""
    leave_trail()
    if then is not None:
        then()


def leave_trail() -> None:
    """Remember the open finding: taking the decision back opens it again."""
    st.session_state.setdefault(TRAIL, []).append(link.get("finding"))


def _go_back() -> None:
    trail = st.session_state.get(TRAIL, [])
    if trail and "finding" in st.query_params:
        link.put(finding=trail.pop())


@answering
def undo(run: Path) -> None:
    """Take back the latest batch."""
    done = Ledger(run).undo()
    _go_back()
    verbs = ", ".join(sorted({d.verb.value for d in done}))
    say(f"Taken back: {verbs} of {about(done)}." if done else "There is nothing to take back.")


def button(
    label: str,
    key: str,
    act: Callable[[], None],
    *,
    shortcut: str | None = None,
    primary: bool = False,
    disabled: bool = False,
    help_: str | None = None,
) -> None:
    """Draw a button of fixed words that acts in a callback."""
    st.button(
        label,
        key=key,
        on_click=answering(act),
        shortcut=page_key(shortcut),
        disabled=disabled,
        help=help_,
        type="primary" if primary else "secondary",
    )
