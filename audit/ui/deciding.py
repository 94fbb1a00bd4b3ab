"""Deciding in place: buttons with keys, what a decision says back, and undo.

Keys work wherever no text is being typed. Each writes to the ledger in a callback, before the page
is drawn again, so a decision is stored by the time it shows. Each tab remembers the batches that it
recorded: the ledger knows a login name only, which all who use one app share, and nobody's key may
take back what another decided.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import streamlit as st

from audit.browse.decided import LedgerSummary
from audit.browse.findings import first_samples, open_finding, twins_of
from audit.browse.images import cards
from audit.decisions import decisions, keeper_rules
from audit.decisions.decisions import COPIES, is_of_box, sample_entries
from audit.decisions.ledger import Decision, Ledger
from audit.errors import UsageError
from audit.records import TAGGING, Action
from audit.report.wording import counted
from audit.ui import html, link
from audit.ui.opened import Opened, answering, cached, open_chosen_run, say
from preflight.terminal import visible

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
MADE = "batches recorded by this tab"
NAMED = 3  # samples named in a sentence
Place = tuple[Any, ...] | None  # what a function that turns pages gets
NOT_HERE = (
    "Nothing that was decided in this tab is left to take back. What others decided, or you in "
    "another tab or before a reload, stays: the page Decisions lists it, and `audit undo` takes it "
    "back."
)
BOX_STAYS = (
    "This finding is about one box, so D records nothing here: to drop the picture with all of its "
    "boxes, open it and drop it there."
)
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


def record_here(run: Path, record: Callable[..., list[Decision]], *args: Any) -> list[Decision]:
    """Let `record(run, *args)` decide, as one of this tab's decisions: `undo` takes it back, and
    opens its finding again.
    """
    # Fetched first: Streamlit may begin the script anew at any call of its own, and between the
    # ledger and this list there is none.
    mine, finding = _made_here(run), link.get("finding")
    done = record(run, *args)
    if done:
        mine.append((done[0].batch, done[0].at, finding))
    return done


def _made_here(run: Path) -> list[tuple[str, str, str]]:
    """Return what this tab recorded about a run: batch, time and open finding, oldest first."""
    made: list[tuple[str, str, str]] = st.session_state.setdefault(MADE, {}).setdefault(
        str(run), []
    )
    return made


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

    Raises UsageError where somebody else decided about it after the page was drawn, and for a drop
    of a picture for one of its boxes.
    """
    if verb is Action.DROP:
        _refuse_of_box(opened, fingerprint)
    now = open_chosen_run().ledger
    if not samples and fingerprint in now.settled - opened.ledger.settled:
        raise UsageError(ELSEWHERE)
    _refuse_changed(opened, now, samples)
    remark = note()
    # False positive applies to the finding as a whole, whatever is selected of it.
    if samples and verb is not Action.FALSE_POSITIVE:
        done = record_here(opened.run, decisions.decide_samples, samples, verb, value, remark)
    else:
        with opened.store() as store:
            twins = twins_of(store, fingerprint) if once else []
        named = [fingerprint, *(twin for twin in twins if twin not in now.settled)]
        done = record_here(opened.run, decisions.decide_findings, named, verb, value, remark)
    finish(done, verb, value, then)


def decide_selected(
    opened: Opened, ids: Sequence[str], verb: Action, value: str | None = None
) -> None:
    """Decide samples; raises UsageError where somebody else did after the page was drawn."""
    _refuse_changed(opened, open_chosen_run().ledger, ids)
    done = record_here(opened.run, decisions.decide_samples, ids, verb, value, note())
    finish(done, verb, value, None)


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
    record_here(opened.run, lambda run: Ledger(run).record(stays + goes))
    say(f"{keeper.rsplit('/', 1)[-1]} stays, {counted(len(goes), 'copy')} dropped. "
        "U takes it back.")  # fmt: skip
    st.session_state[NOTE] = ""
    then()


def _refuse_of_box(opened: Opened, fingerprint: str) -> None:
    with opened.store() as store:
        found = open_finding(store, fingerprint)
    if found is not None and found.finding.n_samples and is_of_box(found.finding.code):
        raise UsageError(BOX_STAYS)


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
    if then is not None:
        then()


@answering
def undo(opened: Opened) -> None:
    """Take back the latest batch of this tab that still holds, and open its finding again."""
    ledger, mine = Ledger(opened.run), _made_here(opened.run)
    done: list[Decision] = []
    while mine and not done:
        batch, at, finding = mine[-1]
        done = ledger.undo_batch(batch, at)
        mine.pop()
    if not done:
        decided = not all(d.undone for d in ledger.log())
        say(*((NOT_HERE, "") if decided else ("There is no decision to take back.", "good")))
        return
    if "finding" in st.query_params:
        link.put(finding=finding)
    verbs = ", ".join(sorted({d.verb.value for d in done}))
    say(f"Taken back: {verbs} of {about(done)}{_named(opened, done)}.")


def _named(opened: Opened, done: Sequence[Decision]) -> str:
    """Return the pictures that decisions are about, in words: the first three."""
    ids = list(dict.fromkeys(d.subject for d in reversed(done) if d.kind == "sample"))
    n = len(ids)
    if not ids:
        with opened.store() as store:
            ids, n = first_samples(store, [d.subject for d in done], NAMED)
    more = f" and {n - NAMED:,} more" if n > NAMED else ""
    return f": {', '.join(ids[:NAMED])}{more}" if ids else ""


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


def page_buttons(turn: Callable[..., None], before: Place, after: Place) -> None:
    """Draw the buttons that turn pages: `turn` gets the place before or after, None for no page."""
    for label, key, place in (
        ("Previous page", "PageUp", before),
        ("Next page", "PageDown", after),
    ):
        shortcut = page_key(key)
        st.button(label, disabled=place is None, shortcut=shortcut, on_click=turn, args=place or ())


# ---- the keeper rule of the page Duplicates: which copy stays, the preview, and applying it ----


RULES = {
    "largest": "the largest: most pixels, then most bytes",
    "sharpest": "the sharpest",
    "least-compressed": "the least compressed",
}


def rule_of_link() -> tuple[str, str]:
    """Return the keeper rule of the link, and the split to drop copies from ("": none)."""
    return link.get("rule", "largest"), link.get("from")


def proposed(run: Opened, code: str, fingerprints: tuple[str, ...] | None) -> pl.DataFrame | None:
    """Return what the chosen rule would do to these groups (None: to all); None for nothing."""
    # A link may name any code; only these have groups of copies.
    if code not in keeper_rules.CODES:
        return None
    found = _propose(run.key, run.ledger.revision, code, rule_of_link(), fingerprints, run)
    return None if found.is_empty() else found


@cached
def _propose(
    key: str,
    revision: str,
    code: str,
    rule: tuple[str, str],
    fingerprints: Sequence[str] | None,
    _run: Opened,
) -> pl.DataFrame:
    chosen, split = rule
    return keeper_rules.propose(_run.run, code, chosen, fingerprints, [split] if split else [])


def choose_rule(run: Opened) -> None:
    """Ask, once for all groups, which copy K keeps and which split gives way."""
    splits = [s for s in run.report().dataset.by_split() if s]
    left, right, key = st.columns([6, 5, 2], vertical_alignment="bottom")
    with left:
        link.choose(
            "K keeps",
            "rule",
            [*RULES, *(f"split:{s}" for s in splits)],
            any_=None,
            shown=lambda r: RULES.get(r, f"the largest in {r.removeprefix('split:')}"),
            help="A group whose labels differ, or that lies in several splits while no split "
            "gives way, is left open.",
        )
    if len(splits) > 1:
        with right:
            link.choose("Which split gives way?", "from", splits, any_="none: leave groups open")
        with key:
            turn = partial(_turn_split, splits)
            said = "The next split gives way; after the last, none."
            button("Next split", "next split", turn, shortcut="S", help_=said)


def _turn_split(splits: Sequence[str]) -> None:
    """Let the next split of the list give way, after the last none."""
    turns = ["", *splits]
    at = turns.index(link.chosen_option("from", turns))
    link.put(**{"from": turns[(at + 1) % len(turns)]})


def rule_for_all(run: Opened, code: str) -> None:
    """Draw what the rule would do to all open groups of a code, and the button that does it."""
    with st.container(border=True):
        proposal = proposed(run, code, None)
        if proposal is None:
            html.paragraph(f"No open group of {code} for a rule.", "quiet small")
            return
        _summary(code, proposal)
        button(
            f"Apply to all of {code}",
            "apply all",
            partial(record_rule, run, proposal),
            disabled=not would_drop(proposal),
        )


def _summary(code: str, proposal: pl.DataFrame) -> None:
    summary = keeper_rules.summarise(proposal)
    drops = ", ".join(f"{n:,} from {split}" for split, n in summary.drops.items()) or "nothing"
    rows = [
        ("groups", f"{summary.groups:,} of {code}"),
        ("stay", f"{summary.stay:,}"),
        ("drops", drops),
    ]
    rows += [("left open", f"{n:,}: {explained(why)}") for why, n in summary.open.items()]
    html.write_html(html.value_table(rows))


def explained(why: str) -> str:
    """Return a rule's reason, and where on this page a missing split is chosen."""
    return (
        f"{why}: choose one above, at Which split gives way"
        if why == keeper_rules.SPLIT_NEEDED
        else why
    )


def marks(proposal: pl.DataFrame | None) -> dict[str, str]:
    """Return what the rule would do, as marks of cards; nothing where it leaves a group open."""
    if proposal is None:
        return {}
    known = {True: "keep (rule)", False: "drop (rule)"}
    rows = proposal.select("sample_id", "keep").iter_rows()
    return {name: known[keep] for name, keep in rows if keep is not None}


def would_drop(proposal: pl.DataFrame | None) -> bool:
    """Return whether there is anything to apply."""
    return proposal is not None and bool(proposal["keep"].not_().any())


def record_rule(
    run: Opened, proposal: pl.DataFrame | None, then: Callable[[], None] | None = None
) -> None:
    """Drop what the rule drops, say so, and go on."""
    if proposal is None:
        return
    done = record_here(run.run, keeper_rules.apply_rule, proposal)
    say(f"Keeper rule applied: {about(done)} dropped. U takes it back.")
    if then is not None:
        then()


def decide_by_rule(
    run: Opened, fingerprint: str, chosen: tuple[str, str], then: Callable[[], None]
) -> None:
    """Let a rule, as `rule_of_link` returns it, decide a group; then go on.

    Raises UsageError where the rule leaves the group open.
    """
    with run.store() as store:
        found = open_finding(store, fingerprint)
    if found is None or found.finding.code not in keeper_rules.CODES:
        raise UsageError("This is no group of copies that a rule can decide.")
    name, split = chosen
    splits = [split] if split else []
    proposal = keeper_rules.propose(run.run, found.finding.code, name, [fingerprint], splits)
    if not would_drop(proposal):
        why = proposal["why"].drop_nulls()
        said = explained(why[0]) if why.len() else "nothing is left to drop"
        raise UsageError(f"The rule leaves this group open: {said}.")
    record_rule(run, proposal, then)
