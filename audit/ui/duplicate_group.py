"""One group of duplicates: its members, what the rule would do, and any two compared."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import polars as pl
import streamlit as st

from audit.browse.findings import FindingFilter, OpenedFinding
from audit.browse.images import Card
from audit.browse.pictures import PictureDifference, difference
from audit.printable import visible
from audit.records import Action
from audit.report.pair_card import PairCard, evidence_lines, show_pair
from audit.report.wording import counted, number_text, size_text
from audit.ui import html, link
from audit.ui.deciding import button, decide_finding
from audit.ui.detail import open_image
from audit.ui.findings import go_on, pick, selected, step, step_from
from audit.ui.gallery import place, show_gallery
from audit.ui.keeper_rule import explained, marks, proposed, record_rule, rule, would_drop
from audit.ui.opened import Opened, cached
from audit.ui.queue import DIGITS, copies_left, show_queue


def group(run: Opened, filters: FindingFilter, current: OpenedFinding) -> None:
    """Draw the open group; `filters` is the list that Next goes on in."""
    found = current.finding
    html.write_html(
        html.chip(found.severity.value, found.severity.value),
        html.tag("span", f"{found.code} {found.name}", "strong"),
        html.chip(current.status, "good") if current.status != "open" else "",
        html.tag("p", found.message),
    )
    proposal = proposed(run, found.code, (found.fingerprint,))
    picked = selected(current)
    _group_bar(run, filters, current, proposal, picked)
    shown = marks(proposal) | dict(run.ledger.by_sample)
    show_gallery(
        "group members",
        current.members,
        run.thumbnails().many(current.members),
        marks=shown,
        on_open=open_image,
        on_pick=pick,
        picked=picked,
        lines=partial(_lines, copies_left(run, current.members)[:DIGITS]),
        width=230 if len(current.members) <= 4 else 170,
    )
    if proposal is not None and proposal["keep"].null_count():
        why = explained(proposal["why"].drop_nulls()[0])
        html.notice(f"The rule leaves this group open: {why}.")
    _compare(run, current)
    with st.expander("Evidence"):
        html.write_html(html.value_table({k: number_text(v) for k, v in found.evidence.items()}))


def _rule_of_link() -> tuple[str, str]:
    chosen, splits = rule()
    return chosen, "".join(splits)


def _lines(keyed: Sequence[str], card: Card) -> list[str]:
    key = f"{keyed.index(card.id) + 1} · " if card.id in keyed else ""
    quality = f" · quality {card.jpeg_quality}" if card.jpeg_quality else ""
    sharp = f"sharpness {number_text(card.sharpness)}" if card.sharpness is not None else ""
    return [
        f"{key}{place(card)}",
        size_text(card.width, card.height, card.n_bytes),
        f"{card.format or 'no format'}{quality}",
        sharp,
    ]


def _group_bar(
    run: Opened,
    filters: FindingFilter,
    current: OpenedFinding,
    proposal: pl.DataFrame | None,
    picked: list[str],
) -> None:
    fingerprint = current.finding.fingerprint
    then = partial(step, run, filters, current.place)
    go = partial(go_on, run, filters, current.place)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        # Their keys and clicks are the queue's: Streamlit makes one of several presses.
        button(
            "Keep by the rule `K`",
            "apply rule",
            partial(record_rule, run, proposal, then),
            disabled=not would_drop(proposal),
            help_="Drops the copies marked drop (rule).",
        )
        label = f"Drop {counted(len(picked), 'selected')} `D`" if picked else "Drop selected `D`"
        button(
            label,
            "drop selected",
            lambda: decide_finding(run, fingerprint, Action.DROP, samples=picked, then=then),
            disabled=not picked,
        )
        button(
            "False positive `F`",
            "waive group",
            lambda: decide_finding(run, fingerprint, Action.FALSE_POSITIVE, then=then, once=True),
        )
        button("Previous", "previous group", partial(go, back=True), shortcut="P")
        button("Next", "next group", go, shortcut="N", primary=True)
    show_queue(run, filters, current, picked, partial(step_from, run, filters), _rule_of_link())


# ---- two of a group ----


def _compare(run: Opened, current: OpenedFinding) -> None:
    members = {card.id: card for card in current.members}
    if len(members) < 2:
        return
    st.header("Compare two")
    names = list(members)
    left, right = st.columns(2)
    with left:
        first = link.choose("First", "a", names, any_=None, shown=visible)
    with right:
        second = link.choose(
            "Second", "b", [n for n in names if n != first], any_=None, shown=visible
        )
    shown = _difference(run.key, first, second, members[first], members[second])
    if shown.error:
        html.empty("No difference image", shown.error)
        return
    for side, data, title in zip(
        st.columns(3),
        (shown.first, shown.second, shown.difference),
        ("First", "Second", "Difference, 4 times as strong"),
        strict=True,
    ):
        with side:
            st.image(data, width="stretch", alt=title)
            html.paragraph(title, "quiet small")
    html.write_html(html.value_table(_evidence(shown, _pair(run.key, first, second, run))))


@cached
def _difference(key: str, first: str, second: str, _a: Card, _b: Card) -> PictureDifference:
    return difference(_a, _b)


@cached
def _pair(key: str, first: str, second: str, _run: Opened) -> PairCard:
    return show_pair(_run.run, first, second)


def _evidence(shown: PictureDifference, pair: PairCard) -> Sequence[tuple[str, str]]:
    stored = dict(evidence_lines(pair))
    rows = [("verdict", stored["verdict"])]
    if pair.transformation and pair.kind == "near":
        rows.append(("what changed", f"{pair.transformation} (first to second)"))
    rows.append(
        (
            "difference",
            f"{shown.mean:.1f} grey levels of 255 on average, where both reach "
            f"({shown.covered:.0%} of the first); second laid over: {shown.said}",
        )
    )
    names = ("hashes", "log odds", "similarity")
    return rows + [(name, stored[name]) for name in names if name in stored]
