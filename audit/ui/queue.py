"""Decisions by key and by button: queued in the browser, recorded once each.

A person types faster than a page is drawn, so a component holds the keys and buttons and goes on at
once. A message carries the whole queue, one at a time, and an answered id is never recorded again.
A refused entry opens its finding again, with the reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock, Thread
from typing import Any

import streamlit as st

from audit.decisions import box_fixes, decisions
from audit.decisions.box_fixes import FIXABLE
from audit.decisions.decisions import COPIES, is_of_box
from audit.decisions.store import Decision, DecisionStore
from audit.errors import UsageError
from audit.records import Action
from audit.report.previews import with_boxes
from audit.report.thumbnails import Thumbnail
from audit.results import findings as browse
from audit.results.boxes import box_of_finding, boxes_after, load_boxes
from audit.results.findings import FindingFilter, OpenedFinding
from audit.results.images import cards
from audit.results.label_review import Suspect
from audit.results.report_data import Card, ReportedFinding
from audit.ui import link
from audit.ui.deciding import (
    LOOKING,
    OWN,
    PRESSED,
    decide_by_rule,
    decide_finding,
    decide_keeper,
    decide_selected,
    finish,
    is_own,
    label_picture,
    note,
    record_here,
    refuse_settled,
    undo,
)
from audit.ui.frame import page_changed
from audit.ui.gallery import BESIDE as CARDS_BESIDE
from audit.ui.gallery import component
from audit.ui.opened import Opened, answering, cached, me
from dataset_preflight.foundation.terminal import visible

ANSWERED = "answered decisions by key"
BESIDE = "page beside the decisions by key is older"
HEARD, STAYS = "count of the message that was heard", "a refusal or an undo says where to go"
AHEAD, BEHIND = 30, 2  # findings whose pictures the browser holds
FIRST = 6  # of them, at first
BESIDE_PICTURE = 8  # pictures after the open one
DIGITS = 9
KEPT = 4096  # ids remembered for a run
VALUED = (Action.RELABEL, Action.MOVE)
ON_PICTURES = {verb.value: verb for verb in (Action.KEEP, Action.DROP, *VALUED)}
VERBS = {**ON_PICTURES, Action.FALSE_POSITIVE.value: Action.FALSE_POSITIVE}
KEEPER, RULE, UNDO, LABEL, RIGHT = "keeper", "rule", "undo", "label", "right"
FIX, REMOVE, PICTURE = "fix", "remove-box", "drop-picture"  # of a finding about a box
FIXED = "as X fixes it"
TURNS = {"n": "after", "p": "before"}
FINDING_KEYS = {
    "k": "keep", "d": "drop", "f": "false-positive", "x": FIX, "r": REMOVE, "u": UNDO, **TURNS,
}  # fmt: skip
GROUP_KEYS = {
    "k": RULE, "a": RULE, "d": "drop", "f": "false-positive", "u": UNDO, "digit": KEEPER, **TURNS,
}  # fmt: skip
# The keys that Streamlit knows the buttons by.
FINDING_BUTTONS = {
    "keep": "keep", "drop": "drop", "waive": "false-positive", "fix": FIX, "remove box": REMOVE,
    "undo": UNDO, "previous": "before", "next": "after",
}  # fmt: skip
GROUP_BUTTONS = {
    "apply rule": RULE, "drop selected": "drop", "waive group": "false-positive", "undo": UNDO,
    "previous group": "before", "next group": "after",
}  # fmt: skip
FINDING_HINT = "K keeps, D drops, F: false positive, U undoes"
BOX_HINT = (
    "K keeps the box, X fixes it as shown, R removes this box, D drops the whole image, "
    "F: false positive, U undoes"
)
GROUP_HINT = (
    "1 to 9: keep that copy, drop the others; K: the rule chooses; D drops the selected; "
    "F: false positive; U undoes"
)
COPIES_STAY = "Nothing here can be dropped whole: of copies one stays, so select those to drop."
Then = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class QueuedDecision:
    """One press of a key or button, named by `id`.

    `samples`: the selection of a finding, or the images without one. `value`: class or split of the
    verb. `rule`: the keeper rule of the page, and the split to drop copies from ("": none).
    """

    id: str
    verb: str
    finding: str
    samples: tuple[str, ...] = ()
    rule: tuple[str, str] = ("", "")
    value: str = ""


@dataclass
class Answered:
    """The answered ids of one run, and whether each was refused; shared by all tabs."""

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
    images: Mapping[str, Thumbnail],
    then: Then | None,
    after: Callable[[Mapping[str, Any]], None],
) -> None:
    """Draw a front of the queue, which `queue.js` knows by its kind.

    `then` gets the fingerprint of each decided finding or None; `after` the recorded entries.
    """
    key = f"decisions {kind}"

    def changed() -> None:
        sent = sent_about(run.name, st.session_state[key].get("queue"))
        entries = queued_in(sent)
        stays = record_queue(run, entries, then)
        st.session_state[ANSWERED] = [entry.id for entry in entries]
        st.session_state[HEARD] = sent.get("count")
        st.session_state[PRESSED] = time.monotonic()
        if not stays:
            after(sent)
        st.session_state[STAYS] = stays

    looks_on, have = not me().may_decide, had(run, kind)
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
            "images": {name: shown.data_uri for name, shown in images.items() if name not in have},
            "answered": st.session_state.get(ANSWERED, []),
            "heard": st.session_state.get(HEARD),
            "stays": bool(st.session_state.pop(STAYS, False)),
            "held": bool(link.get("image") or link.get("act")),
            **data,
            **({"forbids": LOOKING} if looks_on else {}),
        },
        on_queue_change=changed,
        on_idle_change=lambda: st.session_state.pop(BESIDE, None),
    )


def had(run: Opened, kind: str) -> frozenset[str]:
    """Return the names of the pictures that the browser has, as its front said last."""
    sent = sent_about(run.name, (st.session_state.get(f"decisions {kind}") or {}).get("queue"))
    return frozenset(_texts(sent.get("have")))


def show_queue(
    run: Opened,
    filters: FindingFilter,
    current: OpenedFinding,
    picked: Sequence[str],
    then: Then,
    rule: tuple[str, str] | None = None,
) -> None:
    """Draw the strip; `then` gets the fingerprint of each decided finding.

    `rule` (name, split to drop from): the findings are duplicate groups; digits name a copy.
    """

    def after(sent: Mapping[str, Any]) -> None:
        st.session_state[BESIDE] = st.session_state.get(BESIDE) or bool(sent.get("entries"))
        page_changed()
        # The browser has gone on by itself: it says where it stands.
        if sent.get("at") in shown:
            link.put(finding=sent["at"])

    buttons = FINDING_BUTTONS if rule is None else GROUP_BUTTONS
    values = {f"do {verb}": [verb, st.session_state.get(value_key(verb)) or ""] for verb in VALUED}
    lines, images, more, ends = _lines(run, filters, current, picked, groups=rule is not None)
    shown = {line["id"] for line in lines}
    data = {
        "lines": lines,
        "keys": FINDING_KEYS if rule is None else GROUP_KEYS,
        "buttons": {key: [verb, ""] for key, verb in buttons.items()} | values,
        "hint": FINDING_HINT if rule is None else GROUP_HINT,
        "rule": list(rule or ("", "")),
        "open": current.finding.fingerprint,
        "picked": list(picked),
        "more": more,
        "ends": ends,
        "beside": bool(st.session_state.get(BESIDE)),
    }
    mount_queue(run, "findings", data, images, then, after)


def show_settled(run: Opened) -> None:
    """Draw the queue of a page with no finding left: what was sent is answered, U undoes."""
    data = {"keys": {"u": UNDO}, "buttons": {"undo": [UNDO, ""]}, "ends": True}
    mount_queue(run, "findings", data, {}, None, lambda sent: page_changed())


# The dialogue of a picture holds the pictures beside it, so that arrows turn and digits label as
# fast as they are typed: its strip shows the thumbnail of the one that a press is about, wherever
# the server is by then. What is decided names that picture.

PICTURE_KEYS = {
    "k": "keep", "d": "drop", "u": UNDO, "arrowleft": "before", "arrowright": "after",
}  # fmt: skip
PICTURE_BUTTONS = {
    "image Keep": "keep", "image Drop": "drop", "image Undo": UNDO, "image Previous": "before",
    "image Next": "after",
}  # fmt: skip
SELECTED_BUTTONS = {"grid keep": "keep", "grid drop": "drop", "undo": UNDO}


def show_picture_queue(run: Opened, sample: str, classes: Sequence[str]) -> None:
    """Draw the queue of the open picture; `classes` have digits, and label the picture."""
    beside = st.session_state.get(CARDS_BESIDE, [])
    at = beside.index(sample) if sample in beside else 0
    near = beside[max(at - BEHIND, 0) : at + 1 + BESIDE_PICTURE] if sample in beside else [sample]
    found = cards(run, near)
    thumbs = run.thumbnails().many(found)
    labels = {f"class {digit}": [LABEL, name] for digit, name in enumerate(classes, 1)}
    data = {
        "open": sample,
        "lines": [{"id": c.id, "title": visible(c.id), "images": [(c.id, "")]} for c in found],
        "keys": PICTURE_KEYS | ({"digit": LABEL} if classes else {}),
        "buttons": {key: [verb, ""] for key, verb in PICTURE_BUTTONS.items()} | labels,
        "classes": list(classes),
    }
    images = {card.id: thumb for card, thumb in zip(found, thumbs, strict=True)}

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


LABEL_KEYS = {
    "k": RIGHT, "r": LABEL, "u": UNDO, "digit": LABEL, "arrowleft": "before",
    "arrowright": "after", **TURNS,
}  # fmt: skip
LABEL_BUTTONS = {
    "suspect keep": RIGHT, "suspect relabel": LABEL, "suspect previous": "before",
    "suspect next": "after", "undo": UNDO,
}  # fmt: skip
SUSPECTS = 12  # labels whose pictures the browser holds: each has up to seven


def show_label_queue(
    run: Opened, suspects: Sequence[Suspect], current: str, classes: Sequence[str], other: str
) -> None:
    """Draw a label in large, with the nearest images of both classes.

    `suspects`: its neighbours in the list; `classes` have digits; `other`: the class chosen.
    """
    at = next(n for n, one in enumerate(suspects) if one.id == current)
    more = len(suspects) > at + 1 + FIRST and not had(run, "labels")
    shown = suspects[: at + 1 + (FIRST if more else SUSPECTS)]
    wanted = {name for one in shown for name in (one.id, *one.given, *one.suggested_near)}
    found = cards(run, sorted(wanted))
    thumbs = dict(zip((c.id for c in found), run.thumbnails().many(found), strict=True))
    marks = run.decisions.by_sample

    def line(one: Suspect) -> dict[str, Any]:
        near = [(name, one.label) for name in one.given]
        near += [(name, one.suggested or "") for name in one.suggested_near]
        decided = f" Decided: {marks[one.id]}." if one.id in marks else ""
        return {
            "id": one.id,
            "title": visible(f"{one.rank:,}. {one.id}"),
            "text": visible(one.said() + decided),
            "suggestion": one.suggested or "",
            "images": [(one.id, ""), *((n, visible(c)) for n, c in near if n in thumbs)],
            "small": True,
        }

    digits = ", ".join(f"{n} {visible(name)}" for n, name in enumerate(classes, 1))
    data = {
        "open": current,
        "lines": [line(one) for one in shown],
        "keys": LABEL_KEYS,
        "buttons": {key: [verb, ""] for key, verb in LABEL_BUTTONS.items()}
        | {"suspect other": [LABEL, other]},
        "classes": list(classes),
        "more": more,
        "ends": len(shown) == len(suspects),
        "hint": "K: the label is right, R: relabel as suggested, N: next, P: previous, "
        f"U undoes; relabel to {digits}",
    }

    def turned(sent: Mapping[str, Any]) -> None:
        page_changed()
        names = [one.id for one in suspects]
        decided = [entry.samples[0] for entry in queued_in(sent) if entry.samples]
        if sent.get("at") in names:
            link.put(suspect=sent["at"])
        elif decided and decided[-1] in names[:-1]:  # the browser knew none after it
            link.put(suspect=names[names.index(decided[-1]) + 1])

    mount_queue(run, "labels", data, thumbs, None, turned)


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
) -> tuple[list[dict[str, Any]], dict[str, Thumbnail], bool, bool]:
    """Return the findings around the open one, images by name, more to fetch, and the end."""
    n, here = DIGITS if groups else 1, current.finding
    behind = browse.page(run, filters, start=current.place, back=True, size=BEHIND).rows
    ahead = browse.page(run, filters, start=current.place + 1, size=AHEAD).rows
    members = browse.members_of(run, [row.fingerprint for row in (*behind, *ahead)], n)
    more = len(ahead) > FIRST and not had(run, "findings")
    ends = len(ahead) < AHEAD and not more
    if more:  # the rest are made meanwhile
        later = [card for row in ahead[FIRST:] for card in members[row.fingerprint]]
        Thread(target=run.thumbnails().many, args=(later,), daemon=True).start()
        ahead = ahead[:FIRST]
    found: list[ReportedFinding | browse.Row] = [*behind, here, *ahead]
    members = {row.fingerprint: members.get(row.fingerprint, []) for row in found}
    members[here.fingerprint] = list(current.members[:n])
    shown, images = draw_members(run, found, members, groups=groups)
    lines = []
    for row in found:
        left = copies_left(run, members[row.fingerprint]) if groups else []
        first = None if row is here else getattr(row, "first", None)
        lines.append(_line(row, left, shown[row.fingerprint], first, groups=groups))
    if picked:
        lines[len(behind)]["stays"] = ""
    return lines, images, more, ends


def draw_members(
    run: Opened,
    found: Sequence[ReportedFinding | browse.Row],
    members: Mapping[str, Sequence[Card]],
    *,
    groups: bool,
) -> tuple[dict[str, list[tuple[str, str]]], dict[str, Thumbnail]]:
    """Return captions by fingerprint and the images by name; of a box before and after a fix."""
    unique = {card.id: card for some in members.values() for card in some}
    images = dict(zip(unique, run.thumbnails().many(list(unique.values())), strict=True))
    shown = {one: [(card.id, "") for card in some] for one, some in members.items()}
    about = [row.fingerprint for row in found if is_of_box(row.code) and members[row.fingerprint]]
    if groups or not about:
        return shown, images
    evidence = browse.evidence_of(run, about)
    boxes = load_boxes(run, [members[one][0].id for one in about])
    fixes = proposed_fixes(run, [row.fingerprint for row in found if row.code in FIXABLE])
    for one in about:
        card, marked = members[one][0], box_of_finding(evidence[one])
        drawn = boxes.get(card.id, ())
        before, after = f"{one} before", f"{one} after"
        images[before] = with_boxes(images[card.id], card, drawn, (), marked)
        shown[one] = [(before, "as it is")]
        left = boxes_after(drawn, fixes.get(one, ()))
        if one in fixes and left is not None:
            changed = frozenset(left).difference(drawn).__contains__  # these are marked
            images[after] = with_boxes(images[card.id], card, left, (), changed)
            shown[one].append((after, FIXED))
    return shown, images


def proposed_fixes(run: Opened, found: Sequence[str]) -> dict[str, Sequence[box_fixes.Fix]]:
    """Return what a fix would change of each finding, of those with a fix only."""
    return _proposed_fixes(run.key, run.decisions.revision, tuple(found), run) if found else {}


@cached
def _proposed_fixes(
    key: str, revision: str, found: tuple[str, ...], _run: Opened
) -> dict[str, Sequence[box_fixes.Fix]]:
    proposed = box_fixes.propose_fixes(_run.run, found)
    return {one.fingerprint: one.fixes for one in proposed if one.fixes}


def copies_left(run: Opened, cards: Sequence[Card]) -> list[str]:
    """Return the copies that were not dropped, in order: those that the digits choose from."""
    by_sample = run.decisions.by_sample
    return [card.id for card in cards if by_sample.get(card.id) != Action.DROP.value]


def _line(
    found: ReportedFinding | browse.Row,
    left: list[str],
    shown: Sequence[tuple[str, str]],
    first: str | None = None,
    *,
    groups: bool,
) -> dict[str, Any]:
    """Return a finding as the strip shows it; `left` are the copies that the digits choose from."""
    whole = groups and found.n_samples <= browse.MEMBERS
    boxed = found.n_samples > 0 and is_of_box(found.code)
    return {
        "id": found.fingerprint,
        "title": visible(f"{found.code} {found.name} {first or ''}".strip()),
        "text": visible(found.message),
        "stays": COPIES_STAY if groups else why_stays(found.code, found.n_samples),
        "images": [(name, caption) for name, caption in shown if not left or name in left],
        "members": left[:DIGITS],
        "left": len(left),
        "box": boxed,
        "fixes": any(caption == FIXED for _, caption in shown),
        **({"hint": BOX_HINT} if boxed else {}),
        # Never by a digit where members are left out of sight, or one alone is left.
        "digits": min(len(left), DIGITS) if whole and len(left) > 1 else 0,
    }


def why_stays(code: str, n_samples: int) -> str:
    """Return why a finding's samples may not be dropped by it, whole; nothing where they may."""
    return COPIES_STAY if n_samples == 0 or code.startswith(COPIES) else ""


def queued_in(value: object) -> list[QueuedDecision]:
    """Return what the browser sent, without what is no decision: it is not trusted."""
    entries = value.get("entries") if isinstance(value, Mapping) else None
    known = (*VERBS, KEEPER, RULE, UNDO, LABEL, RIGHT, FIX, REMOVE, PICTURE)
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
    """Return what a front sent, nothing if it is about another run."""
    return value if isinstance(value, Mapping) and value.get("run") == run else {}


def _texts(value: object) -> tuple[str, ...]:
    return tuple(v for v in value if isinstance(v, str)) if isinstance(value, list) else ()


def record_queue(run: Opened, entries: Sequence[QueuedDecision], then: Then | None) -> bool:
    """Record unanswered entries in order; a refusal opens its finding.

    Returns whether an entry was refused or undone, so that the page stays there. If Streamlit
    restarts the script in the middle, the rest is sent again.
    """
    known, store, stays, name = answered_of(run.run), DecisionStore(run.run), False, me().name
    with known.lock:
        for entry in entries:
            if entry.id in known.recorded:
                continue
            before = store.revision()
            own = before == run.decisions.revision or is_own(run, before)
            ended = False
            try:
                answering(lambda entry=entry: _record(run, entry, then))()
                ended = True
            finally:
                recorded = _has_recorded(store, before, entry, name)
                if ended or recorded:
                    known.add(entry.id, recorded=recorded)
                # what another process records meanwhile is no decision of this tab
                if own and not store.has_news(before, name):
                    st.session_state[OWN] = (str(run.run), store.revision())
            stays = stays or not recorded or entry.verb == UNDO
        if then is not None:
            _go_on(known, entries, then)
    return stays


def _has_recorded(store: DecisionStore, before: str, entry: QueuedDecision, name: str) -> bool:
    """Say whether an entry is stored, after its revision `before`, whoever else wrote."""
    was, now = ([int(n) for n in at.split("/")] for at in (before, store.revision()))
    if entry.verb == UNDO:
        return now[1] > was[1]
    return any(d.by == name for d in store.log(ids=range(was[0] + 1, now[0] + 1)))


def _go_on(known: Answered, entries: Sequence[QueuedDecision], then: Then) -> None:
    """Go on from a recorded finding if the page still shows it, but stay after an undo."""
    undone = max((at for at, entry in enumerate(entries) if entry.verb == UNDO), default=-1)
    for entry in entries[undone + 1 :]:
        stands = entry.finding and link.get("finding") in ("", entry.finding)
        if stands and known.recorded.get(entry.id):
            then(entry.finding)


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

    if entry.verb in (FIX, REMOVE, PICTURE):
        _decide_box(run, entry, go_on)
    elif entry.verb == KEEPER:
        decide_keeper(run, entry.finding, entry.samples, go_on)
    elif entry.verb == RULE:
        decide_by_rule(run, entry.finding, entry.rule, go_on)
    elif entry.verb in VERBS:
        verb, to = VERBS[entry.verb], entry.value or None
        once = bool(entry.rule[0])
        decide_finding(run, entry.finding, verb, to, samples=entry.samples, then=go_on, once=once)


def _decide_box(run: Opened, entry: QueuedDecision, then: Callable[[], None]) -> None:
    """Fix what a finding is about, remove its box, or drop its picture, which was asked for."""
    refuse_settled(run, [entry.finding])

    def record(path: Path, by: str) -> list[Decision]:
        if entry.verb == PICTURE:
            ids = [c.id for c in browse.members_of(run, [entry.finding])[entry.finding]]
            drops = decisions.named_entries(
                path, [entry.finding], ids, Action.DROP, None, note(), by
            )
            return DecisionStore(path).record(drops)
        if entry.verb == REMOVE:
            proposed = [box_fixes.propose_removal(path, entry.finding)]
        else:
            proposed = box_fixes.propose_fixes(path, [entry.finding])
        if not proposed[0].fixes:
            raise UsageError(f"Nothing was recorded: {proposed[0].reason}.")
        return DecisionStore(path).record(box_fixes.fix_entries(path, proposed, None, note(), by))

    done = record_here(run.run, record)
    finish(done, Action.DROP if entry.verb == PICTURE else Action.FIX, None, then)


def _decide_pictures(run: Opened, entry: QueuedDecision) -> None:
    """Decide the pictures that were shown; raises UsageError where somebody else did meanwhile."""
    if not entry.samples:
        raise UsageError("No image was selected, so nothing was recorded.")
    if entry.verb in (LABEL, RIGHT):
        label_picture(run, entry.samples[0], entry.value if entry.verb == LABEL else None)
    elif entry.verb in ON_PICTURES:
        decide_selected(run, entry.samples, ON_PICTURES[entry.verb], entry.value or None)
    else:
        raise UsageError("This is decided about a finding, not about an image.")
