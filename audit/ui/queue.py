"""Decisions by key and by button: queued in the browser, recorded once each.

A person types faster than a page is drawn, and Streamlit makes one of several presses of a button.
So the keys and buttons of a page belong to a component in front of it: of Findings and Duplicates a
strip that holds the next findings, of an open picture and of selected cards queues of their own. A
press is about what is shown there, and shows as `saving` at once; the strip goes on to the next
finding. The list and the open finding alone are drawn again, and what stands beside
them once no key was pressed for a while. What is sent is the whole queue, each entry with an id; an
id that was answered is not recorded again, whatever a reload or another run of the script sends. A
refused entry opens its finding again, with the reason at the top of the page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock
from typing import Any

import streamlit as st

from audit.browse import findings as browse
from audit.browse.findings import FindingFilter, OpenedFinding
from audit.browse.images import Card, cards
from audit.decisions.decisions import COPIES, is_of_box
from audit.decisions.ledger import Ledger
from audit.errors import UsageError
from audit.records import Action
from audit.report.contents import ReportedFinding
from audit.ui import link
from audit.ui.deciding import (
    BOX_STAYS,
    decide_by_rule,
    decide_finding,
    decide_keeper,
    decide_selected,
    label_picture,
    undo,
)
from audit.ui.frame import page_changed
from audit.ui.gallery import BESIDE as CARDS_BESIDE
from audit.ui.gallery import component
from audit.ui.opened import Opened, answering, open_chosen_run
from preflight.terminal import visible

ANSWERED, OWN = "answered decisions by key", "revision of the ledger by this tab"
BESIDE = "page beside the decisions by key is older"
AHEAD = 8  # findings whose pictures the browser holds
DIGITS = 9
KEPT = 4096  # ids remembered for a run
VALUED = (Action.RELABEL, Action.MOVE)
ON_PICTURES = {verb.value: verb for verb in (Action.KEEP, Action.DROP, *VALUED)}
VERBS = {**ON_PICTURES, Action.FALSE_POSITIVE.value: Action.FALSE_POSITIVE}
KEEPER, RULE, UNDO, LABEL = "keeper", "rule", "undo", "label"
FINDING_KEYS = {"k": "keep", "d": "drop", "f": "false-positive", "u": UNDO}
GROUP_KEYS = {"k": RULE, "a": RULE, "d": "drop", "f": "false-positive", "u": UNDO, "digit": KEEPER}
# The keys that Streamlit knows the buttons by.
FINDING_BUTTONS = {"keep": "keep", "drop": "drop", "waive": "false-positive", "undo": UNDO}
GROUP_BUTTONS = {
    "apply rule": RULE,
    "drop selected": "drop",
    "waive group": "false-positive",
    "undo": UNDO,
}
FINDING_HINT = "K keeps, D drops, F: false positive, U takes back"
GROUP_HINT = (
    "1 to 9: that copy stays and the others go; K: the rule chooses; D drops the selected; "
    "F: false positive; U takes back"
)
COPIES_STAY = "Nothing here can be dropped whole: of copies one stays, so select those to drop."
Then = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class QueuedDecision:
    """One press of a key or button: `id` names the press.

    `samples`: what was selected of the finding; the pictures, where there is no finding. `value`:
    the class or split of a verb that has one. `rule`: the keeper rule of the page, and the split
    to drop copies from ("": none).
    """

    id: str
    verb: str
    finding: str
    samples: tuple[str, ...] = ()
    rule: tuple[str, str] = ("", "")
    value: str = ""


@dataclass
class Answered:
    """The ids that were answered, of one run, and whether each was recorded or refused: shared by
    all tabs of this process.
    """

    lock: Any = field(default_factory=RLock)
    recorded: dict[str, bool] = field(default_factory=dict)

    def add(self, name: str, *, recorded: bool) -> None:
        """Remember an id."""
        self.recorded[name] = recorded
        while len(self.recorded) > KEPT:
            del self.recorded[next(iter(self.recorded))]


@st.cache_resource(max_entries=64, show_spinner=False)
def answered_of(run: Path) -> Answered:
    """Return the ids that were answered of a run."""
    return Answered()


def mount_queue(
    run: Opened,
    kind: str,
    data: Mapping[str, Any],
    images: Mapping[str, str],
    then: Then | None,
    after: Callable[[Mapping[str, Any]], None],
) -> None:
    """Draw a front of the queue, which `queue.js` knows by its kind.

    `then` gets the fingerprint of each finding that was decided, None where the page shows none;
    `after` gets what was sent, once it is recorded.
    """
    key = f"decisions {kind}"

    def changed() -> None:
        sent = sent_about(run.name, st.session_state[key].get("queue"))
        entries = queued_in(sent)
        record_queue(run, entries, then)
        st.session_state[ANSWERED] = [entry.id for entry in entries]
        after(sent)

    sent = sent_about(run.name, (st.session_state.get(key) or {}).get("queue"))
    have = _texts(sent.get("have"))
    component("queue")(
        key=key,
        data={
            "run": run.name,
            "kind": kind,
            "lines": [],
            "picked": [],
            "open": "",
            "hint": "",
            "rule": ["", ""],
            "images": {name: shown for name, shown in images.items() if name not in have},
            "answered": st.session_state.get(ANSWERED, []),
            "held": bool(link.get("image") or link.get("act")),
            **data,
        },
        on_queue_change=changed,
        on_idle_change=lambda: st.session_state.pop(BESIDE, None),
    )


def show_queue(
    run: Opened,
    filters: FindingFilter,
    current: OpenedFinding,
    picked: Sequence[str],
    then: Then,
    rule: tuple[str, str] | None = None,
) -> None:
    """Draw the strip; `then` gets the fingerprint of each finding that was decided.

    With a `rule` (its name, the split to drop from) the findings are groups of copies: a digit
    names the copy that stays, K lets the rule choose.
    """

    def after(_: Mapping[str, Any]) -> None:
        st.session_state[BESIDE] = True
        page_changed()

    buttons = FINDING_BUTTONS if rule is None else GROUP_BUTTONS
    values = {f"do {verb}": [verb, st.session_state.get(value_key(verb)) or ""] for verb in VALUED}
    lines, images = _lines(run, filters, current, picked, groups=rule is not None)
    data = {
        "lines": lines,
        "keys": FINDING_KEYS if rule is None else GROUP_KEYS,
        "buttons": {key: [verb, ""] for key, verb in buttons.items()} | values,
        "hint": FINDING_HINT if rule is None else GROUP_HINT,
        "rule": list(rule or ("", "")),
        "open": current.finding.fingerprint,
        "picked": list(picked),
        "beside": bool(st.session_state.get(BESIDE)),
    }
    mount_queue(run, "findings", data, images, then, after)


# ---- the open picture, and selected cards ----

# The dialogue of a picture holds the pictures beside it, so that arrows turn and digits label as
# fast as they are typed: its strip shows the thumbnail of the one that a press is about, wherever
# the server is by then. What is decided names that picture.

BEHIND = 2  # pictures before the open one
PICTURE_KEYS = {
    "k": "keep",
    "d": "drop",
    "u": UNDO,
    "arrowleft": "before",
    "arrowright": "after",
}
PICTURE_BUTTONS = {
    "image Keep": "keep",
    "image Drop": "drop",
    "image Undo": UNDO,
    "image Previous": "before",
    "image Next": "after",
}
SELECTED_BUTTONS = {"grid keep": "keep", "grid drop": "drop", "undo": UNDO}


def show_picture_queue(run: Opened, sample: str, classes: Sequence[str]) -> None:
    """Draw the queue of the open picture; `classes` have digits, and label the picture."""
    beside = st.session_state.get(CARDS_BESIDE, [])
    at = beside.index(sample) if sample in beside else 0
    near = beside[max(at - BEHIND, 0) : at + 1 + AHEAD] if sample in beside else [sample]
    with run.store() as store:
        found = cards(store, near)
    thumbs = run.thumbnails().many(found)
    labels = {f"class {digit}": [LABEL, name] for digit, name in enumerate(classes, 1)}
    data = {
        "open": sample,
        "lines": [{"id": c.id, "title": visible(c.id), "images": [c.id]} for c in found],
        "keys": PICTURE_KEYS | ({"digit": LABEL} if classes else {}),
        "buttons": {key: [verb, ""] for key, verb in PICTURE_BUTTONS.items()} | labels,
        "classes": list(classes),
    }
    images = {card.id: thumb.data_uri for card, thumb in zip(found, thumbs, strict=True)}

    def turned(sent: Mapping[str, Any]) -> None:
        # A dialogue that was closed meanwhile stays closed.
        if sent.get("at") in near and link.get("image"):
            link.put(image=sent["at"])

    mount_queue(run, "picture", data, images, None, turned)


def show_selected_queue(run: Opened, picked: Sequence[str]) -> None:
    """Draw the queue of the selected cards, which shows itself while something is saved."""
    data = {
        "picked": list(picked),
        "keys": {"u": UNDO},
        "buttons": {key: [verb, ""] for key, verb in SELECTED_BUTTONS.items()},
    }
    mount_queue(run, "selected", data, {}, None, lambda _: None)


# ---- what is sent ----


def value_key(verb: Action) -> str:
    """Return the key of the field for the class or split of a verb."""
    return f"value of {verb}"


def _lines(
    run: Opened,
    filters: FindingFilter,
    current: OpenedFinding,
    picked: Sequence[str],
    *,
    groups: bool,
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return the open finding and those that follow it, and the pictures of those that follow."""
    most = DIGITS if groups else 1
    with run.store() as store:
        rows = browse.page(store, filters, start=current.place + 1, size=AHEAD).rows
        members = browse.members_of(store, [row.fingerprint for row in rows], most)
    pictured = list({card.id: card for cards in members.values() for card in cards}.values())
    thumbs = run.thumbnails().many(pictured)
    images = {c.id: t.data_uri for c, t in zip(pictured, thumbs, strict=True)}
    here = current.finding
    lines = [_line(here, copies_left(run, current.members) if groups else [], groups=groups)]
    if picked:
        lines[0]["stays"] = ""
    for row in rows:
        shown = members[row.fingerprint]
        left = copies_left(run, shown) if groups else [card.id for card in shown]
        lines.append(_line(row, left, row.first, groups=groups))
    return lines, images


def copies_left(run: Opened, cards: Sequence[Card]) -> list[str]:
    """Return the copies that were not dropped, in order: those that the digits choose from."""
    by_sample = run.ledger.by_sample
    return [card.id for card in cards if by_sample.get(card.id) != Action.DROP.value]


def _line(
    found: ReportedFinding | browse.Row,
    members: list[str],
    first: str | None = None,
    *,
    groups: bool,
) -> dict[str, Any]:
    whole = groups and found.n_samples <= browse.MEMBERS
    return {
        "id": found.fingerprint,
        "title": visible(f"{found.code} {first or ''}: {found.message}"),
        "stays": COPIES_STAY if groups else why_stays(found.code, found.n_samples),
        "images": members[: DIGITS if groups else 1],
        "members": members[:DIGITS] if groups else [],
        "left": len(members),
        # Never by a digit where members are left out of sight, or one alone is left.
        "digits": min(len(members), DIGITS) if whole and len(members) > 1 else 0,
    }


def why_stays(code: str, n_samples: int) -> str:
    """Return why a finding's samples may not be dropped by it, whole; nothing where they may."""
    if n_samples > 0 and is_of_box(code):
        return BOX_STAYS
    return COPIES_STAY if n_samples == 0 or code.startswith(COPIES) else ""


def queued_in(value: object) -> list[QueuedDecision]:
    """Return what the browser sent, without what is no decision: it is not trusted."""
    entries = value.get("entries") if isinstance(value, Mapping) else None
    known = (*VERBS, KEEPER, RULE, UNDO, LABEL)
    found = []
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, Mapping) and entry.get("verb") in known:
            rule, split, *_ = (*_texts(entry.get("rule")), "", "")
            name, finding = str(entry.get("id", "")), str(entry.get("finding", ""))
            picked, to = _texts(entry.get("samples")), str(entry.get("value") or "")
            verb = str(entry["verb"])
            found.append(QueuedDecision(name, verb, finding, picked, (rule, split), to))
    return found


def sent_about(run: str, value: object) -> Mapping[str, Any]:
    """Return what a front sent, nothing where it is about another run.

    A tab that turned to another run may still be sending what it typed about the one before.
    """
    return value if isinstance(value, Mapping) and value.get("run") == run else {}


def _texts(value: object) -> tuple[str, ...]:
    return tuple(v for v in value if isinstance(v, str)) if isinstance(value, list) else ()


def record_queue(run: Opened, entries: Sequence[QueuedDecision], then: Then | None) -> None:
    """Record what was not answered yet, in order; a refusal is said and opens its finding.

    Streamlit may begin the script anew at any call of its own, in the middle of an entry: what was
    not recorded by then is not answered, so it is sent again; after what was, the page goes on
    then.
    """
    known, ledger = answered_of(run.run), Ledger(run.run)
    with known.lock:
        for entry in entries:
            if entry.id in known.recorded:
                continue
            before = ledger.revision()
            own = before == run.ledger.revision or _own(run, before)
            try:
                answering(lambda entry=entry: _record(run, entry, then))()
            except BaseException:
                if ledger.revision() != before:
                    known.add(entry.id, recorded=True)
                raise
            finally:
                if own:
                    st.session_state[OWN] = (str(run.run), ledger.revision())
            known.add(entry.id, recorded=ledger.revision() != before)
        if then is not None:
            _go_on(known, entries, then)


def _go_on(known: Answered, entries: Sequence[QueuedDecision], then: Then) -> None:
    """Go on from a finding that is recorded where the page still stands at it.

    It was interrupted before it went on, or the browser sent the queue again with the link of
    before. An undo goes back on purpose: what was decided before it stays open.
    """
    undone = max((at for at, entry in enumerate(entries) if entry.verb == UNDO), default=-1)
    for entry in entries[undone + 1 :]:
        stands = entry.finding and link.get("finding") in ("", entry.finding)
        if stands and known.recorded.get(entry.id):
            then(entry.finding)


def _own(run: Opened, revision: str) -> bool:
    """Say whether the ledger is as the latest decision of this tab left it."""
    return bool(st.session_state.get(OWN) == (str(run.run), revision))


def _record(run: Opened, entry: QueuedDecision, then: Then | None) -> None:
    if entry.verb == UNDO:
        undo(run)
        return
    if not entry.finding:
        _decide_pictures(run, entry)
        return
    if then is not None:
        link.put(finding=entry.finding)  # which is the open one where the decision is refused

    def go_on() -> None:
        if then is not None:
            then(entry.finding)

    if entry.verb == KEEPER:
        decide_keeper(run, entry.finding, entry.samples, go_on)
    elif entry.verb == RULE:
        decide_by_rule(run, entry.finding, entry.rule, go_on)
    elif entry.verb in VERBS:
        verb, to = VERBS[entry.verb], entry.value or None
        once = bool(entry.rule[0])
        decide_finding(run, entry.finding, verb, to, samples=entry.samples, then=go_on, once=once)


def _decide_pictures(run: Opened, entry: QueuedDecision) -> None:
    """Decide the pictures that were shown; raises UsageError where somebody else did meanwhile."""
    if not entry.samples:
        raise UsageError("No picture was selected, so nothing was recorded.")
    # What this tab decided itself is no news to the person who typed it.
    known = open_chosen_run() if _own(run, Ledger(run.run).revision()) else run
    if entry.verb == LABEL:
        label_picture(known, entry.samples[0], entry.value)
    elif entry.verb in ON_PICTURES:
        decide_selected(known, entry.samples, ON_PICTURES[entry.verb], entry.value or None)
    else:
        raise UsageError("This is decided about a finding, not about a picture.")
