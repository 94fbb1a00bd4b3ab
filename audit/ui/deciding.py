"""Deciding in place: buttons with keys, what a decision says back, and undo.

Keys work wherever no text is being typed. Each writes to the ledger in a callback, before the page
is drawn again, so a decision is stored by the time it shows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import streamlit as st

from audit.browse.decided import LedgerSummary
from audit.browse.findings import open_finding, twins_of
from audit.browse.images import cards
from audit.errors import UsageError
from audit.printable import visible
from audit.records import TAGGING, Action
from audit.report.wording import counted
from audit.review import decisions
from audit.review.decisions import COPIES, sample_entries
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
    Action.TAG: "Tagged",
    Action.UNTAG: "Untagged",
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
    once: bool = False,
) -> None:
    """Decide a finding, or only the selected samples of it; then go on.

    With `once`, findings of the same copies that its page leaves out are decided with it.

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
        with opened.store() as store:
            twins = twins_of(store, fingerprint) if once else []
        left = [twin for twin in twins if twin not in now.settled]
        done = decisions.decide_findings(opened.run, [fingerprint, *left], verb, value, note())
    finish(done, verb, value, then)


def decide_selected(
    opened: Opened, ids: Sequence[str], verb: Action, value: str | None = None
) -> None:
    """Decide samples; raises UsageError where somebody else did after the page was drawn."""
    _refuse_changed(opened, open_chosen_run().ledger, ids)
    finish(decisions.decide_samples(opened.run, ids, verb, value, note()), verb, value, None)


def label_picture(opened: Opened, sample: str, name: str) -> None:
    """Relabel a picture; keep one that has the class already."""
    with opened.store() as store:
        same = any(card.label == name for card in cards(store, [sample]))
    verb = Action.KEEP if same else Action.RELABEL
    decide_selected(opened, [sample], verb, None if same else name)


def decide_keeper(
    opened: Opened, fingerprint: str, chosen: Sequence[str], then: Callable[[], None]
) -> None:
    """Keep the chosen copy of a group and drop its others, as one batch.

    Raises UsageError where it is no copy of the group or was dropped, and where somebody else
    decided about the group after the page was drawn.
    """
    now = open_chosen_run()
    with now.store() as store:
        group = open_finding(store, fingerprint)
    ids = [card.id for card in group.members] if group is not None else []
    if fingerprint in now.ledger.settled - opened.ledger.settled:
        raise UsageError(ELSEWHERE)
    _refuse_changed(opened, now.ledger, ids)
    if len(chosen) != 1 or chosen[0] not in ids or group is None:
        raise UsageError("This copy is not in the group any more: choose one that is shown.")
    if len(ids) != group.finding.n_samples or not group.finding.code.startswith(COPIES):
        raise UsageError("This finding is no group that is shown whole: select the files to drop.")
    keeper = chosen[0]
    if now.ledger.by_sample.get(keeper) == Action.DROP.value:
        raise UsageError(f"{keeper} was dropped, so it cannot be the copy that stays.")
    stays = sample_entries(opened.run, [keeper], Action.KEEP, note=note())
    why = note() or f"{keeper} stays, chosen by hand"
    others = [i for i in ids if i != keeper and now.ledger.by_sample.get(i) != Action.DROP.value]
    goes = sample_entries(opened.run, others, Action.DROP, note=why) if others else []
    Ledger(opened.run).record(stays + goes)
    say(f"{keeper.rsplit('/', 1)[-1]} stays, {counted(len(goes), 'copy')} dropped. "
        "U takes it back.")  # fmt: skip
    st.session_state[NOTE] = ""
    leave_trail()
    then()


def _refuse_changed(opened: Opened, now: LedgerSummary, ids: Sequence[str]) -> None:
    if any(now.by_sample.get(i) != opened.ledger.by_sample.get(i) for i in ids):
        raise UsageError(ELSEWHERE)


def finish(
    done: Sequence[Decision], verb: Action, value: str | None, then: Callable[[], None] | None
) -> None:
    """Say what was decided, forget the note, go on."""
    to = f" {'' if verb in TAGGING else 'to '}{visible(value)}" if value else ""
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
    ledger = Ledger(run)
    try:
        done = ledger.undo()
    except UsageError:
        if not all(d.undone for d in ledger.log()):  # somebody else's, which the error says
            raise
        say("There is no decision to take back.")
        return
    _go_back()
    verbs = ", ".join(sorted({d.verb.value for d in done}))
    say(f"Taken back: {verbs} of {about(done)}.")


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
