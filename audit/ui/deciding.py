"""Deciding in place: buttons with keys, the message of a decision, and undo.

A callback writes to the store, so a decision is stored by the time it shows. A person undoes
their own decisions only, and a viewer can do neither.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import streamlit as st

from audit.decisions import decisions, keeper_rules
from audit.decisions.decisions import COPIES, is_of_box, sample_entries
from audit.decisions.store import LABEL_RIGHT, DecidedBatch, Decision, DecisionStore, Entry
from audit.errors import UsageError
from audit.records import TAGGING, Action
from audit.results.decision_summary import DecisionSummary
from audit.results.findings import first_samples, open_finding, twins_of
from audit.results.formatting import counted
from audit.results.images import cards
from audit.ui import html, link
from audit.ui.opened import Opened, answering, cached, me, open_chosen_run, say
from dataset_preflight.foundation.terminal import visible

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
OWN = "revision of the decisions by this tab"
PRESSED = "when this tab sent keys last, monotonic"
OPENED = "findings that were open when this tab recorded a batch"
NAMED = 3  # samples named in a sentence
Place = tuple[Any, ...] | None  # what a function that turns pages gets
NOT_HERE = (
    "You have no decision to undo. The page Decisions lists the decisions of other reviewers."
)
LOOKING = "You can only look: a decision needs a reviewer's link. Ask who started the app for one."
BOX_STAYS = (
    "This finding is about one bounding box, so nothing was recorded. R removes the bounding box; "
    "D drops the whole image after a second press."
)
ELSEWHERE = (
    "An earlier key, another tab or another person has decided this already, so nothing was "
    "recorded: look at it as it is now, and decide again."
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


def reviewer() -> str:
    """Return the name of a person who may decide; raises UsageError for one who looks on."""
    person = me()
    if not person.may_decide:
        raise UsageError(LOOKING)
    return person.name


def record_here(run: Path, record: Callable[..., list[Decision]], *args: Any) -> list[Decision]:
    """Let `record(run, *args, by=NAME)` decide for this person; UsageError for a viewer."""
    name, finding = reviewer(), link.get("finding")
    opened: dict[tuple[str, str], str] = st.session_state.setdefault(OPENED, {})
    done = record(run, *args, by=name)
    if done:
        opened[done[0].batch, done[0].at] = finding
    return done


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
    """Decide a finding, or only its selected samples; then go on.

    `once`: also decide hidden findings of the same copies. Raises UsageError for a later decision
    of another person, and for dropping an image because of one bounding box.
    """
    now = refuse_settled(opened, () if samples else [fingerprint])
    if verb is Action.DROP:
        _refuse_of_box(opened, fingerprint)
    _refuse_changed(opened, now, samples)
    remark, warning = note(), _new_name(opened, verb, value)
    # False positive applies to the finding as a whole, whatever is selected of it.
    if samples and verb is not Action.FALSE_POSITIVE:
        done = record_here(opened.run, decisions.decide_samples, samples, verb, value, remark)
    else:
        twins = twins_of(opened, fingerprint) if once else []
        named = [fingerprint, *(twin for twin in twins if twin not in now.settled)]
        done = record_here(opened.run, decisions.decide_findings, named, verb, value, remark)
    finish(done, verb, value, then, warning)


def decide_selected(
    opened: Opened,
    ids: Sequence[str],
    verb: Action,
    value: str | None = None,
    evidence: str | None = None,
) -> None:
    """Decide samples; raises UsageError where somebody else did after the page was drawn."""
    _refuse_changed(opened, refuse_settled(opened, ()), ids)
    warning = _new_name(opened, verb, value)  # before: the decision makes the name a known one
    decide = partial(decisions.decide_samples, evidence=evidence)
    done = record_here(opened.run, decide, ids, verb, value, note())
    finish(done, verb, value, None, warning)


def _new_name(opened: Opened, verb: Action, value: str | None) -> str | None:
    return decisions.find_new_name(opened.run, [Entry("sample", "", None, verb, value)])


def label_picture(opened: Opened, sample: str, name: str | None) -> None:
    """Relabel a picture; keep one that has the class already, or whose label is right (None)."""
    same = name is None or any(card.label == name for card in cards(opened, [sample]))
    if same:
        decide_selected(opened, [sample], Action.KEEP, None, LABEL_RIGHT)
    else:
        decide_selected(opened, [sample], Action.RELABEL, name)


def decide_keeper(
    opened: Opened, fingerprint: str, chosen: Sequence[str], then: Callable[[], None]
) -> None:
    """Keep the chosen copy of a group and drop its others, as one batch.

    Raises UsageError for a sample that is no copy or dropped, and for a later decision of another
    person.
    """
    now = open_chosen_run()
    group = open_finding(now, fingerprint)
    ids = [card.id for card in group.members] if group is not None else []
    if fingerprint in now.decisions.settled - opened.decisions.settled:
        raise UsageError(ELSEWHERE)
    _refuse_changed(opened, now.decisions, ids)
    if len(chosen) != 1 or chosen[0] not in ids or group is None:
        raise UsageError("This copy is not in the group any more: choose one that is shown.")
    if len(ids) != group.finding.n_samples or not group.finding.code.startswith(COPIES):
        raise UsageError("This group is not shown whole: select the files to drop.")
    keeper = chosen[0]
    if now.decisions.by_sample.get(keeper) == Action.DROP.value:
        raise UsageError(f"{keeper} was dropped: undo that first, or keep another copy.")
    why = note() or f"{keeper} stays, chosen by hand"
    others = [i for i in ids if i != keeper and now.decisions.by_sample.get(i) != Action.DROP.value]

    def record(run: Path, by: str) -> list[Decision]:
        stays = sample_entries(run, [keeper], Action.KEEP, None, note(), by)
        goes = sample_entries(run, others, Action.DROP, None, why, by) if others else []
        return DecisionStore(run).record(stays + goes)

    record_here(opened.run, record)
    say(f"{keeper.rsplit('/', 1)[-1]} stays, {counted(len(others), 'copy')} dropped. "
        "U undoes it.")  # fmt: skip
    st.session_state[NOTE] = ""
    then()


def is_own(opened: Opened, revision: str) -> bool:
    """Say whether the decisions are as the latest decision of this tab left it."""
    return bool(st.session_state.get(OWN) == (str(opened.run), revision))


def _refuse_of_box(opened: Opened, fingerprint: str) -> None:
    found = open_finding(opened, fingerprint)
    if found is not None and found.finding.n_samples and is_of_box(found.finding.code):
        raise UsageError(BOX_STAYS)


def refuse_settled(opened: Opened, fingerprints: Sequence[str]) -> DecisionSummary:
    """Return the decisions as they are now; UsageError if another person settled these findings."""
    revision = DecisionStore(
        opened.run
    ).revision()  # to sum the decisions up takes a hundred times as long
    if revision == opened.decisions.revision or is_own(opened, revision):
        return opened.decisions
    now = open_chosen_run().decisions
    if set(fingerprints) & (now.settled - opened.decisions.settled):
        raise UsageError(ELSEWHERE)
    return now


def _refuse_changed(opened: Opened, now: DecisionSummary, ids: Sequence[str]) -> None:
    if any(now.by_sample.get(i) != opened.decisions.by_sample.get(i) for i in ids):
        raise UsageError(ELSEWHERE)


def finish(
    done: Sequence[Decision], verb: Action, value: str | None, then: Callable[[], None] | None,
    warning: str | None = None,
) -> None:  # fmt: skip
    """Say what was decided, forget the note, go on."""
    to = f" {'' if verb in TAGGING else 'to '}{visible(value)}" if value else ""
    more = f" {visible(warning)}" if warning else ""
    say(f"{DONE[verb]}{to}: {about(done)}. U undoes it.{more}")
    # A note left in the field would be recorded with the next decision too.
    st.session_state[NOTE] = ""
    if then is not None:
        then()


@answering
def undo(opened: Opened, batch: DecidedBatch | None = None) -> None:
    """Undo a batch of this person (default: the last), name it, and open its finding."""
    store, name = DecisionStore(opened.run), reviewer()
    done: list[Decision] = []
    mine = [batch] if batch else store.batches(name, 2)
    for one in mine:  # another tab of the same person may have taken back the first
        done = done or store.undo_batch(one.batch, one.at, name)
    if not done:
        decided = store.current().height or store.tags().height
        say(*((NOT_HERE, "") if decided else ("There is no decision to undo.", "good")))
        return
    if "finding" in st.query_params:
        there = st.session_state.get(OPENED, {})
        found = next((d.subject for d in done if d.kind == "finding"), None)
        link.put(finding=there.get((done[0].batch, done[0].at), found))
    if "suspect" in st.query_params:
        link.put(suspect=next((d.subject for d in done if d.kind == "sample"), None))
    verbs = ", ".join(sorted({d.verb.value for d in done}))
    before = [one for one in store.batches(name, 2) if int(one.batch) < int(done[0].batch)]
    more = f" Before it: {describe(opened, before[0])}." if before and not batch else ""
    say(f"Undid: {verbs} of {about(done)}{_named(opened, done)}.{more}")


def describe(opened: Opened, one: DecidedBatch) -> str:
    """Return a batch in words: `drop of 5 samples: a.jpg, b.jpg, c.jpg and 2 more`."""
    parts = [counted(one.findings, "finding")] * bool(one.findings)
    parts += [counted(one.samples, "sample")] * bool(one.samples)
    ids, n = list(one.subjects), one.samples
    if not one.samples:
        ids, n = first_samples(opened, ids, NAMED)
    return f"{', '.join(one.verbs)} of {' and '.join(parts)}{_some(ids, n)}"


def _named(opened: Opened, done: Sequence[Decision]) -> str:
    """Return the pictures that decisions are about, in words: the first three."""
    ids = list(dict.fromkeys(d.subject for d in reversed(done) if d.kind == "sample"))
    n = len(ids)
    if not ids:
        ids, n = first_samples(opened, [d.subject for d in done], NAMED)
    return _some(ids, n)


def _some(ids: Sequence[str], n: int) -> str:
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


def drawn_late() -> None:
    """Raise UsageError for a click on a button that belongs to the queue."""
    raise UsageError("The page was not drawn yet, so nothing was recorded: press it again.")


def page_buttons(turn: Callable[..., None], before: Place, after: Place) -> None:
    """Draw the buttons that turn pages: `turn` gets the place before or after, None for no page."""
    for label, key, place in (
        ("Previous page", "PageUp", before),
        ("Next page", "PageDown", after),
    ):
        shortcut = page_key(key)
        st.button(label, disabled=place is None, shortcut=shortcut, on_click=turn, args=place or ())


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
    found = _propose(run.key, run.decisions.revision, code, rule_of_link(), fingerprints, run)
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
    link.choose(
        "K keeps",
        "rule",
        [*RULES, *(f"split:{s}" for s in splits)],
        at=left,
        any_=None,
        shown=lambda r: RULES.get(r, f"the largest in {r.removeprefix('split:')}"),
        help="Groups with different labels stay open. So do groups in several splits, "
        "unless a split is chosen here.",
    )
    if len(splits) > 1:
        none = "none: leave groups open"
        link.choose("Drop duplicates from", "from", splits, at=right, any_=none)
        with key:
            turn = partial(_turn_split, splits)
            said = "Next split; after the last, none."
            button("Next split", "next split", turn, shortcut="S", help_=said)


def _turn_split(splits: Sequence[str]) -> None:
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
        f'{why}: choose it above, in "Drop duplicates from"'
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
    say(f"Keeper rule applied: {about(done)} dropped. U undoes it.")
    if then is not None:
        then()


def decide_by_rule(
    run: Opened, fingerprint: str, chosen: tuple[str, str], then: Callable[[], None]
) -> None:
    """Let a rule of `rule_of_link` decide a group, then go on; UsageError if it is undecided."""
    found = open_finding(run, fingerprint)
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
