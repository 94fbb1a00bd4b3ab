"""Duplicates: groups side by side with what differs, keeper rules with a preview, and the overlap
of the splits.

Keys: N next group, P previous, K apply the rule to this group, F false positive, U take back.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import altair as alt
import polars as pl
import streamlit as st

from audit import keepers
from audit.browse import findings as browse
from audit.browse.duplicates import overlap_matrix
from audit.browse.findings import Asked
from audit.browse.findings import Opened as OpenedFinding
from audit.browse.images import Card
from audit.browse.pictures import Difference, difference
from audit.decisions import Verb
from audit.report.wording import counted, number_text, visible
from audit.show_pair import SAID, PairCard, show_pair
from audit.ui import link, words
from audit.ui.deciding import about, button, decide_finding, leave_trail
from audit.ui.detail import dialogue, open_image
from audit.ui.findings import COLUMNS, PICKED, step
from audit.ui.gallery import gallery, place
from audit.ui.listing import Line, listing
from audit.ui.opened import Opened, cached, guarded, opened, say

VIEWS = ("Groups", "Overlap of splits")
CODES = ("DUP003", "DUP002", "DUP001", "SPLIT001")
FAMILY = ("DUP", "SPLIT001")
RULES = {
    "largest": "the largest: most pixels, then most bytes",
    "sharpest": "the sharpest",
    "least-compressed": "the least compressed",
}
SIZE = 24


@guarded
def page() -> None:
    """Show the page."""
    run = opened()
    st.title("Duplicates")
    if link.switch("View", "view", VIEWS) == VIEWS[1]:
        _overlap(run)
        return
    asked = _filters(run)
    with run.store() as store:
        rows = browse.page(
            store, asked, start=_start(store), back=bool(link.get("before")), size=SIZE
        )
        total = browse.count(store, asked)
        chosen = link.get("finding") or (rows.rows[0].fingerprint if rows.rows else "")
        current = browse.opened(store, chosen) if chosen else None
    if current is None:
        _nothing(run, asked)
        return
    left, right = st.columns([4, 9], gap="medium")
    with left:
        _list(rows, total, current)
        _rule_for_all(run, asked, current)
    with right:
        _group(run, asked, current)
    dialogue(run)


def _filters(run: Opened) -> Asked:
    with run.store() as store:
        counts = browse.facet(store, Asked(codes=FAMILY, status="open"), "code")
        splits = sorted(browse.facet(store, Asked(codes=FAMILY), "splits"))
        labels = sorted(browse.facet(store, Asked(codes=FAMILY), "labels"))
    names = {check.code: check.name for check in run.report().checks}
    box = st.columns([3, 2, 3, 2, 3], vertical_alignment="bottom")
    with box[0]:
        codes = [c for c in CODES if c in names]
        link.choose(
            "Kind",
            "code",
            codes,
            resets=["finding"],
            shown=lambda c: f"{c} {names[c]} ({counts.get(c, 0):,} open)",
        )
    with box[1]:
        link.choose("Split", "split", splits, resets=["finding"])
    with box[2]:
        link.choose("Class", "class", labels, resets=["finding"])
    with box[3]:
        link.choose(
            "Status", "status", ("open", "decided", "waived", "all"), any_=None, resets=["finding"]
        )
    with box[4]:
        link.write("Search", "q", resets=["finding"], placeholder="file name")
    status = link.get("status", "open")
    return Asked(
        codes=(link.get("code"),) if link.get("code") in CODES else FAMILY,
        split=link.get("split") or None,
        label=link.get("class") or None,
        status=None if status == "all" else status,
        text=link.get("q"),
    )


def _start(store: object) -> int:
    from audit.store import Store

    assert isinstance(store, Store)
    anchor = link.get("before") or link.get("start")
    return (browse.place_of(store, anchor) if anchor else None) or 0


def _nothing(run: Opened, asked: Asked) -> None:
    if asked.status == "open" and not (asked.split or asked.label or asked.text):
        words.empty(
            "No open group of duplicates.", "Choose the status all to see those that were decided."
        )
    else:
        words.empty("No group fits these filters.", "Widen them, or look at another status.")


# ---- the list ----


def _list(rows: browse.Rows, total: int, current: OpenedFinding) -> None:
    words.text(counted(total, "group"), "quiet small")
    lines = [
        Line(
            row.fingerprint,
            {
                "severity": row.severity.value,
                "code": row.code,
                "about": f"{(row.first or '').rsplit('/', 1)[-1]} and {row.n_samples - 1:,} more",
                "status": "" if row.status == "open" else row.status,
            },
            row.status != "open",
        )
        for row in rows.rows
    ]
    listing(
        "groups list", COLUMNS, lines, lambda f: link.put(finding=f), current.finding.fingerprint
    )
    with st.container(horizontal=True):
        for label, way, there, at in (
            ("Previous page", "before", rows.before, 0),
            ("Next page", "start", rows.after, -1),
        ):
            row = rows.rows[at].fingerprint if rows.rows else ""
            st.button(
                label,
                disabled=not there,
                on_click=_turn,
                args=(way, row),
                shortcut="PageUp" if way == "before" else "PageDown",
            )


def _turn(way: str, fingerprint: str) -> None:
    link.first_page("finding")
    link.put(**{way: fingerprint})


# ---- one group ----


def _group(run: Opened, asked: Asked, current: OpenedFinding) -> None:
    found = current.finding
    words.write(
        words.chip(found.severity.value, found.severity.value),
        words.tag("span", f"{found.code} {found.name}", "strong"),
        words.chip(current.status, "good") if current.status != "open" else "",
        words.tag("p", found.message),
    )
    proposal = _proposed(run, found.code, (found.fingerprint,))
    _group_bar(run, asked, current, proposal)
    marks = _marks(proposal) | dict(run.told.by_sample)
    picked = [i for i in st.session_state.get(PICKED, []) if i in {c.id for c in current.members}]
    gallery(
        "group members",
        current.members,
        run.thumbnails().many(current.members),
        marks=marks,
        on_open=open_image,
        on_pick=_pick,
        picked=picked,
        lines=_lines,
        width=230 if len(current.members) <= 4 else 170,
    )
    if proposal is not None and proposal["keep"].null_count():
        words.notice(f"The rule leaves this group open: {_told(proposal['why'].drop_nulls()[0])}.")
    _compare(run, current)
    with st.expander("Evidence"):
        words.write(words.pairs({k: number_text(v) for k, v in found.evidence.items()}))


def _pick(ids: list[str]) -> None:
    st.session_state[PICKED] = ids


def _lines(card: Card) -> list[str]:
    quality = f" · quality {card.jpeg_quality}" if card.jpeg_quality else ""
    sharp = f"sharpness {number_text(card.sharpness)}" if card.sharpness is not None else ""
    return [place(card), words.size_text(card), f"{card.format or 'no format'}{quality}", sharp]


def _marks(proposal: pl.DataFrame | None) -> dict[str, str]:
    """Return what the rule would do, as marks of cards; nothing where it leaves a group open."""
    if proposal is None:
        return {}
    known = {True: "keep (rule)", False: "drop (rule)"}
    rows = proposal.select("sample_id", "keep").iter_rows()
    return {name: known[keep] for name, keep in rows if keep is not None}


def _group_bar(
    run: Opened, asked: Asked, current: OpenedFinding, proposal: pl.DataFrame | None
) -> None:
    fingerprint = current.finding.fingerprint
    then = partial(step, run, asked, current.place)
    picked = [i for i in st.session_state.get(PICKED, []) if i in {c.id for c in current.members}]
    ready = _drops(proposal)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        button(
            "Apply the rule",
            "apply rule",
            partial(_apply, run, proposal, then),
            shortcut="K",
            disabled=not ready,
            help_="Drops the copies marked drop (rule).",
        )
        label = f"Drop {counted(len(picked), 'selected')}" if picked else "Drop selected"
        button(
            label,
            "drop selected",
            lambda: decide_finding(run, fingerprint, Verb.drop, samples=picked, then=then),
            shortcut="D",
            disabled=not picked,
        )
        button(
            "False positive",
            "waive group",
            lambda: decide_finding(run, fingerprint, Verb.false_positive, then=then),
            shortcut="F",
        )
        button(
            "Previous",
            "previous group",
            lambda: step(run, asked, current.place, back=True),
            shortcut="P",
        )
        button("Next", "next group", then, shortcut="N", primary=True)


def _drops(proposal: pl.DataFrame | None) -> bool:
    return proposal is not None and bool(proposal["keep"].not_().any())


def _apply(run: Opened, proposal: pl.DataFrame | None, then: object = None) -> None:
    if proposal is None:
        return
    done = keepers.apply(run.run, proposal)
    say(f"Keeper rule applied: {about(done)} dropped. U takes it back.")
    leave_trail()
    if callable(then):
        then()


# ---- keeper rules ----


def rule() -> tuple[str, tuple[str, ...]]:
    """Return the keeper rule of the link, and the splits that give way."""
    chosen = link.get("rule", "largest")
    split = link.get("from")
    return chosen, (split,) if split else ()


def _proposed(run: Opened, code: str, fingerprints: tuple[str, ...] | None) -> pl.DataFrame | None:
    if code not in keepers.CODES:
        return None
    chosen, give_way = rule()
    proposed: pl.DataFrame = _propose(
        run.key, run.told.revision, code, chosen, fingerprints, give_way, run
    )
    return None if proposed.is_empty() else proposed


@cached
def _propose(
    key: str,
    revision: str,
    code: str,
    chosen: str,
    fingerprints: tuple[str, ...] | None,
    give_way: tuple[str, ...],
    _run: Opened,
) -> pl.DataFrame:
    return keepers.propose(_run.run, code, chosen, fingerprints, give_way)


def _rule_for_all(run: Opened, asked: Asked, current: OpenedFinding) -> None:
    with st.container(border=True):
        st.markdown(
            "**Keeper rule**",
            help="Ranks the copies of a group. A group whose labels "
            "differ, or that lies in several splits while no split gives way, is left "
            "open.",
        )
        splits = [s for s in run.report().dataset.by_split() if s]
        options = [*RULES, *(f"split:{s}" for s in splits)]
        link.choose(
            "Keep",
            "rule",
            options,
            any_=None,
            shown=lambda r: RULES.get(r, f"the largest in {r.removeprefix('split:')}"),
        )
        link.choose("Across splits, take from", "from", splits, any_="nowhere: leave open")
        code = current.finding.code
        proposal = _proposed(run, code, None)
        if proposal is None:
            words.text(f"No open group of {code} for a rule.", "quiet small")
            return
        _summary(code, proposal)
        button(
            f"Apply to all of {code}",
            "apply all",
            partial(_apply, run, proposal),
            disabled=not _drops(proposal),
        )


def _summary(code: str, proposal: pl.DataFrame) -> None:
    told = keepers.summarise(proposal)
    drops = ", ".join(f"{n:,} from {split}" for split, n in told.drops.items()) or "nothing"
    rows = [("groups", f"{told.groups:,} of {code}"), ("stay", f"{told.stay:,}"), ("drops", drops)]
    rows += [("left open", f"{n:,}: {_told(why)}") for why, n in told.open.items()]
    words.write(words.pairs(rows))


def _told(why: str) -> str:
    """Return a rule's reason with the control of this page in place of the command's option."""
    return why.replace("say which gives way with --take-from", "choose which split gives way")


# ---- two of a group ----


def _compare(run: Opened, current: OpenedFinding) -> None:
    members = {card.id: card for card in current.members}
    if len(members) < 2:
        return
    st.subheader("Compare two")
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
        words.empty("No difference image", shown.error)
        return
    for side, data, title in zip(
        st.columns(3),
        (shown.first, shown.second, shown.difference),
        ("First", "Second", "Difference, 4 times as strong"),
        strict=True,
    ):
        with side:
            st.image(data, width="stretch")
            words.text(title, "quiet small")
    words.write(words.pairs(_evidence(shown, _pair(run.key, first, second, run))))


@cached
def _difference(key: str, first: str, second: str, _a: Card, _b: Card) -> Difference:
    return difference(_a, _b)


@cached
def _pair(key: str, first: str, second: str, _run: Opened) -> PairCard:
    return show_pair(_run.run, first, second)


def _evidence(shown: Difference, pair: PairCard) -> Sequence[tuple[str, str]]:
    rows = [("verdict", SAID[pair.kind])]
    if pair.transformation and pair.kind == "near":
        rows.append(("what changed", f"{pair.transformation} (first to second)"))
    rows.append(
        (
            "difference",
            f"{shown.mean:.1f} grey levels of 255 on average, where both reach "
            f"({shown.covered:.0%} of the first); second laid over: {shown.said}",
        )
    )
    if pair.distance is not None:
        rows.append(("hashes", f"{pair.distance} of 64 bits differ (phash)"))
    if pair.score is not None:
        bound = "" if pair.threshold is None else f" (same from {pair.threshold:+.2f})"
        rows.append(("log odds", f"{pair.score:+.2f}{bound}"))
    if pair.similarity is not None:
        rows.append(("similarity", f"{pair.similarity:.3f} (correlation of gradients, -1..1)"))
    return rows


# ---- overlap ----


def _overlap(run: Opened) -> None:
    matrix = _matrix(run.key, run)
    if matrix.is_empty():
        words.empty(
            "This dataset has fewer than two splits with pictures.",
            "There is nothing that could leak from one into another.",
        )
        return
    words.text(
        "Of the files of a row's split, how many show a picture that the column's split "
        "shows too: by bytes, by pixels, or as a verified near-duplicate."
    )
    left, right = st.columns([3, 2], gap="large")
    with left:
        st.altair_chart(_heat(matrix), width="stretch")
    with right:
        st.dataframe(
            matrix,
            hide_index=True,
            width="stretch",
            column_config={"share": st.column_config.NumberColumn(format="percent")},
        )
    said = [c.completeness for c in run.report().checks if c.code == "SPLIT001"]
    for sentence in filter(None, said):
        words.text(sentence, "quiet small")
    st.button("See the leaking groups", on_click=partial(link.put, view=None, code="SPLIT001"))


@cached
def _matrix(key: str, _run: Opened) -> pl.DataFrame:
    with _run.store() as store:
        return overlap_matrix(store)


def _heat(matrix: pl.DataFrame) -> alt.LayerChart:
    shown = matrix.rename({"of": "row", "in": "column"})
    base = alt.Chart(shown).encode(
        x=alt.X("column:N", title="… also shown in", axis=alt.Axis(orient="top", labelAngle=0)),
        y=alt.Y("row:N", title="files of"),
    )
    colour = alt.Color(
        "share:Q",
        title="leaked share",
        scale=alt.Scale(scheme="blues", domainMin=0),
        legend=alt.Legend(format="%"),
    )
    told = [
        "row",
        "column",
        alt.Tooltip("shared", format=","),
        alt.Tooltip("files", format=","),
        alt.Tooltip("share", format=".1%"),
    ]
    cells = base.mark_rect(cornerRadius=4).encode(color=colour, tooltip=told)
    text = base.mark_text(fontSize=14, fontWeight=600).encode(
        text=alt.Text("share:Q", format=".1%"),
        color=alt.condition("datum.share > 0.09", alt.value("white"), alt.value("#1c1e21")),
    )
    return alt.layer(cells, text).properties(height=90 * matrix["of"].n_unique() + 40)
