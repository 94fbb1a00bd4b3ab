"""Decisions by key: queued in the browser, recorded once each, confirmed by the ledger.

A person types faster than a page is drawn, and Streamlit makes one of several presses of a button.
So the keys K, D, F (and U after them) belong to a strip that holds the next findings: a press shows
as `saving` at once and the strip goes on to the next finding. What is sent is the whole queue, each
entry with an id; an id that was answered is not recorded again, whatever a reload or another run of
the script sends. A refused entry opens its finding again, with the reason at the top of the page.
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
from audit.browse.images import cards
from audit.printable import visible
from audit.records import Action
from audit.review.decisions import COPIES
from audit.ui import link
from audit.ui.deciding import decide_finding, undo
from audit.ui.gallery import component
from audit.ui.opened import Opened, answering

KEY, ANSWERED = "decisions by key", "answered decisions by key"
AHEAD = 8  # findings whose pictures the browser holds
KEPT = 4096  # ids remembered for a run
VERBS = {verb.value: verb for verb in (Action.KEEP, Action.DROP, Action.FALSE_POSITIVE)}
Then = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class QueuedDecision:
    """One press of a key: `id` names the press, `samples` what was selected of the finding."""

    id: str
    verb: str
    finding: str
    samples: tuple[str, ...] = ()


class Answered:
    """The ids that were answered, of one run: shared by all tabs of this process."""

    def __init__(self) -> None:
        """Begin with none."""
        self.lock = RLock()
        self._ids: dict[str, None] = {}

    def first(self, name: str) -> bool:
        """Say whether this id is new, and remember it."""
        if name in self._ids:
            return False
        self._ids[name] = None
        while len(self._ids) > KEPT:
            del self._ids[next(iter(self._ids))]
        return True


@st.cache_resource(max_entries=64, show_spinner=False)
def answered_of(run: Path) -> Answered:
    """Return the ids that were answered of a run."""
    return Answered()


def show_queue(
    run: Opened, filters: FindingFilter, current: OpenedFinding, picked: Sequence[str], then: Then
) -> None:
    """Draw the strip; `then` gets the fingerprint of each finding that was decided."""

    def changed() -> None:
        entries = queued_in(st.session_state[KEY].get("queue"))
        record_queue(run, entries, then)
        st.session_state[ANSWERED] = [entry.id for entry in entries]

    component("queue")(
        key=KEY,
        data={
            "run": run.name,
            "lines": _lines(run, filters, current, picked),
            "open": current.finding.fingerprint,
            "picked": list(picked),
            "answered": st.session_state.get(ANSWERED, []),
            "held": bool(link.get("image")),
        },
        on_queue_change=changed,
    )


def _lines(
    run: Opened, filters: FindingFilter, current: OpenedFinding, picked: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the open finding and those that follow it, each with its first picture."""
    with run.store() as store:
        rows = browse.page(store, filters, start=current.place + 1, size=AHEAD).rows
        found = {c.id: c for c in cards(store, [row.first for row in rows if row.first])}
    pictured = [*current.members[:1], *(found[r.first] for r in rows if r.first in found)]
    thumbs = run.thumbnails().many(pictured)
    images = {c.id: t.data_uri for c, t in zip(pictured, thumbs, strict=True)}
    first = current.members[0].id if current.members else None
    finding = current.finding
    lines = [(finding.fingerprint, finding.code, finding.message, finding.n_samples, first)]
    lines += [(r.fingerprint, r.code, r.message, r.n_samples, r.first) for r in rows]
    return [
        {
            "id": fingerprint,
            "title": visible(f"{code} {first or ''}: {message}"),
            "drops": may_drop(code, n) or (fingerprint == finding.fingerprint and bool(picked)),
            "image": images.get(first or "", ""),
        }
        for fingerprint, code, message, n, first in lines
    ]


def may_drop(code: str, n_samples: int) -> bool:
    """Say whether a finding's samples may be dropped whole: of copies one has to stay."""
    return n_samples > 0 and not code.startswith(COPIES)


def queued_in(value: object) -> list[QueuedDecision]:
    """Return what the browser sent, without what is no decision: it is not trusted."""
    entries = value.get("entries") if isinstance(value, Mapping) else None
    found = []
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, Mapping) and entry.get("verb") in (*VERBS, "undo"):
            samples = entry.get("samples") or ()
            picked = tuple(s for s in samples if isinstance(s, str))
            name, finding = str(entry.get("id", "")), str(entry.get("finding", ""))
            found.append(QueuedDecision(name, entry["verb"], finding, picked))
    return found


def record_queue(run: Opened, entries: Sequence[QueuedDecision], then: Then) -> None:
    """Record what was not answered yet, in order; a refusal is said and opens its finding."""
    known = answered_of(run.run)
    with known.lock:
        for entry in entries:
            if known.first(entry.id):
                answering(lambda entry=entry: _record(run, entry, then))()


def _record(run: Opened, entry: QueuedDecision, then: Then) -> None:
    if entry.verb == "undo":
        undo(run.run)
        return
    link.put(finding=entry.finding)  # which is the open one where the decision is refused
    decide_finding(
        run,
        entry.finding,
        VERBS[entry.verb],
        samples=entry.samples,
        then=lambda: then(entry.finding),
    )
