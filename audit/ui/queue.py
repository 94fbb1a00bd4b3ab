"""Decisions by key: queued in the browser, recorded once each, confirmed by the ledger.

A person types faster than a page is drawn, and Streamlit makes one of several presses of a button.
So the keys of Findings and Duplicates belong to a strip that holds the next findings: a press shows
as `saving` at once and the strip goes on to the next finding; the list and the open finding alone
are drawn again, and what stands beside them once no key was pressed for a while. What is sent is
the whole queue, each entry with an id; an id that was answered is not recorded again, whatever a
reload or another run of the script sends. A refused entry opens its finding again, with the reason
at the top of the page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import Any

import streamlit as st

from audit.browse import findings as browse
from audit.browse.findings import FindingFilter, OpenedFinding
from audit.browse.images import Card
from audit.printable import visible
from audit.records import Action
from audit.report.contents import ReportedFinding
from audit.review.decisions import COPIES
from audit.review.ledger import Ledger
from audit.ui import link
from audit.ui.deciding import decide_finding, decide_keeper, undo
from audit.ui.fragment import page_changed
from audit.ui.gallery import component
from audit.ui.keeper_rule import decide_by_rule
from audit.ui.opened import Opened, answering

KEY, ANSWERED = "decisions by key", "answered decisions by key"
BESIDE = "page beside the decisions by key is older"
AHEAD = 8  # findings whose pictures the browser holds
DIGITS = 9
KEPT = 4096  # ids remembered for a run
VERBS = {verb.value: verb for verb in (Action.KEEP, Action.DROP, Action.FALSE_POSITIVE)}
KEEPER, RULE, UNDO = "keeper", "rule", "undo"
FINDING_KEYS = {"k": "keep", "d": "drop", "f": "false-positive", "u": UNDO}
GROUP_KEYS = {"k": RULE, "a": RULE, "d": "drop", "f": "false-positive", "u": UNDO, "digit": KEEPER}
FINDING_HINT = "K keeps, D drops, F: false positive, U takes back"
GROUP_HINT = (
    "1 to 9: that copy stays and the others go; K: the rule chooses; D drops the selected; "
    "F: false positive; U takes back"
)
Then = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class QueuedDecision:
    """One press of a key: `id` names the press, `samples` what was selected of the finding.

    `rule`: the keeper rule of the page, and the split to drop copies from ("": none).
    """

    id: str
    verb: str
    finding: str
    samples: tuple[str, ...] = ()
    rule: tuple[str, str] = ("", "")


class Answered:
    """The ids that were answered, of one run: shared by all tabs of this process."""

    def __init__(self) -> None:
        """Begin with none."""
        self.lock = RLock()
        self.halfway: set[str] = set()  # recorded, and the page did not go on
        self._ids: dict[str, None] = {}

    def __contains__(self, name: str) -> bool:
        """Say whether this id was answered."""
        return name in self._ids

    def add(self, name: str) -> None:
        """Remember an id."""
        self._ids[name] = None
        while len(self._ids) > KEPT:
            del self._ids[next(iter(self._ids))]


@st.cache_resource(max_entries=64, show_spinner=False)
def answered_of(run: Path) -> Answered:
    """Return the ids that were answered of a run."""
    return Answered()


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
    sent = st.session_state.get(KEY) or {}
    have = _texts(_value(sent.get("queue"), "have"))

    def changed() -> None:
        entries = queued_in(st.session_state[KEY].get("queue"))
        record_queue(run, entries, then)
        st.session_state[ANSWERED] = [entry.id for entry in entries]
        st.session_state[BESIDE] = True
        page_changed()

    lines, images = _lines(run, filters, current, picked, groups=rule is not None)
    component("queue")(
        key=KEY,
        data={
            "run": run.name,
            "lines": lines,
            "images": {name: data for name, data in images.items() if name not in have},
            "keys": FINDING_KEYS if rule is None else GROUP_KEYS,
            "hint": FINDING_HINT if rule is None else GROUP_HINT,
            "rule": list(rule or ("", "")),
            "open": current.finding.fingerprint,
            "picked": list(picked),
            "answered": st.session_state.get(ANSWERED, []),
            "beside": bool(st.session_state.get(BESIDE)),
            "held": bool(link.get("image")),
        },
        on_queue_change=changed,
        on_idle_change=lambda: st.session_state.pop(BESIDE, None),
    )


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
    left = copies_left(run, current.members) if groups else []
    lines = [_line(here, here.message, left, "", groups=groups)]
    lines[0]["drops"] = lines[0]["drops"] or bool(picked)
    lines += [
        _line(row, row.message, _shown(run, members[row.fingerprint], groups), row.first,
              groups=groups)
        for row in rows
    ]  # fmt: skip
    return lines, images


def _shown(run: Opened, cards: Sequence[Card], groups: bool) -> list[str]:
    return copies_left(run, cards) if groups else [card.id for card in cards]


def copies_left(run: Opened, cards: Sequence[Card]) -> list[str]:
    """Return the copies that were not dropped, in order: those that the digits choose from."""
    by_sample = run.ledger.by_sample
    return [card.id for card in cards if by_sample.get(card.id) != Action.DROP.value]


def _line(
    found: ReportedFinding | browse.Row,
    message: str,
    members: list[str],
    first: str | None,
    *,
    groups: bool,
) -> dict[str, Any]:
    whole = groups and found.n_samples <= browse.MEMBERS
    return {
        "id": found.fingerprint,
        "title": visible(f"{found.code} {first or ''}: {message}"),
        "drops": not groups and may_drop(found.code, found.n_samples),
        "images": members[: DIGITS if groups else 1],
        "members": members[:DIGITS] if groups else [],
        "left": len(members),
        # Never by a digit where members are left out of sight, or one alone is left.
        "digits": min(len(members), DIGITS) if whole and len(members) > 1 else 0,
    }


def may_drop(code: str, n_samples: int) -> bool:
    """Say whether a finding's samples may be dropped whole: of copies one has to stay."""
    return n_samples > 0 and not code.startswith(COPIES)


def queued_in(value: object) -> list[QueuedDecision]:
    """Return what the browser sent, without what is no decision: it is not trusted."""
    entries = _value(value, "entries")
    found = []
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, Mapping) and entry.get("verb") in (*VERBS, KEEPER, RULE, UNDO):
            rule, split, *_ = (*_texts(entry.get("rule")), "", "")
            name, finding = str(entry.get("id", "")), str(entry.get("finding", ""))
            picked = _texts(entry.get("samples"))
            found.append(QueuedDecision(name, entry["verb"], finding, picked, (rule, split)))
    return found


def _value(sent: object, name: str) -> object:
    return sent.get(name) if isinstance(sent, Mapping) else None


def _texts(value: object) -> tuple[str, ...]:
    return tuple(v for v in value if isinstance(v, str)) if isinstance(value, list) else ()


def record_queue(run: Opened, entries: Sequence[QueuedDecision], then: Then) -> None:
    """Record what was not answered yet, in order; a refusal is said and opens its finding.

    Streamlit may begin the script anew at any call of its own, in the middle of an entry: what was
    not recorded by then is not answered, so it is sent again; after what was, the page goes on
    then.
    """
    known = answered_of(run.run)
    with known.lock:
        for entry in entries:
            if entry.id in known:
                if entry.id in known.halfway:
                    then(entry.finding)
                    known.halfway.discard(entry.id)
                continue
            before = Ledger(run.run).revision()
            try:
                answering(lambda entry=entry: _record(run, entry, then))()
            except BaseException:
                if Ledger(run.run).revision() != before:
                    known.add(entry.id)
                    known.halfway |= {entry.id} if entry.verb != UNDO else set()
                raise
            known.add(entry.id)


def _record(run: Opened, entry: QueuedDecision, then: Then) -> None:
    if entry.verb == UNDO:
        undo(run.run)
        return
    link.put(finding=entry.finding)  # which is the open one where the decision is refused

    def go_on() -> None:
        then(entry.finding)

    if entry.verb == KEEPER:
        decide_keeper(run, entry.finding, entry.samples, go_on)
    elif entry.verb == RULE:
        decide_by_rule(run, entry.finding, entry.rule, go_on)
    else:
        verb = VERBS[entry.verb]
        once = bool(entry.rule[0])
        decide_finding(run, entry.finding, verb, samples=entry.samples, then=go_on, once=once)
