"""Explore: images first; every column filtered, sorted and drawn; a lasso; one image; export.

A bulk decision is previewed, read from the version of the page, and recorded as one batch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

import streamlit as st

from audit.errors import UsageError
from audit.records import Action
from audit.results import distributions, images
from audit.results import filters as browse_conditions
from audit.results.filters import (
    Among,
    Between,
    ColumnOf,
    Condition,
    Contains,
    Kind,
    OneOf,
    from_link,
    to_link,
    used,
    without,
    words_of,
)
from audit.results.formatting import counted, number_text
from audit.results.images import Edge, Order, Page
from audit.results.results import Results
from audit.results.similar import similar_pictures
from audit.ui import html, link
from audit.ui.charts import put_conditions, show_extremes, show_scatter, show_strip
from audit.ui.deciding import NOTE, button, decide_selected, page_buttons
from audit.ui.detail import dialogue
from audit.ui.frame import make_fragment, page_changed
from audit.ui.gallery import component, default_lines, show_gallery
from audit.ui.opened import Opened, answering, open_chosen_run, safely
from audit.ui.queue import show_selected_queue
from dataset_preflight.foundation.terminal import visible

SIZES = ("24", "36", "60")
SCATTER, MAP, EXTREMES = "Scatter", "Map", "Extremes"
VIEWS = ("Grid", SCATTER, MAP, EXTREMES)
ALIKE = 60  # pictures at most that are shown as like one
NO_VECTORS = (
    "Similarity and the map need embeddings, which a scan makes of up to 200,000 readable "
    "images; `audit scan SOURCE --embeddings FILE` takes your own."
)
PICKED = "picked in explore"
MAP_X, MAP_Y = "map.x", "map.y"
X, Y, COLOUR = "brightness", "sharpness", "split"


def page() -> None:
    """Show the page."""
    run = open_chosen_run()
    st.title("Explore")
    known = dict(run.ask(browse_conditions.list_columns))
    conditions = from_link(link.get("where"))
    for name in used(conditions):
        browse_conditions.column_named(known, name)
    side, main = st.columns([3, 10], gap="medium")
    with side:
        conditions_bar(run, known, conditions)
        if run.decisions.tags:
            link.choose("Tag", "tag", list(run.decisions.tags), resets=["lasso"])
    with main:
        _main(run, known, conditions)
    dialogue()


def _main(run: Opened, known: dict[str, ColumnOf], conditions: tuple[Condition, ...]) -> None:
    shown = [name for name, c in known.items() if c.kind is not Kind.TEXT]
    # a row that breaks where the window is narrow, and fits one of 1440 px
    with st.container(horizontal=True, vertical_alignment="bottom"):
        link.choose("Sort by", "sort", list(known), any_=None, width=140)
        orders = ("ascending", "descending")
        descending = link.choose("Order", "order", orders, any_=None, width=125)
        drawn = link.choose("Distribution", "show", _first(shown, X), any_=None, width=140)
        size = link.choose("Per page", "size", SIZES, any_=None, width=80)
        view = link.switch("View", "view", VIEWS, resets=["lasso"])
    drawn_on = view in (SCATTER, MAP)
    ring = _ring(link.get("lasso")) if drawn_on else []
    like = link.get("like")
    tagged = run.decisions.tags.get(link.get("tag"))
    others = {"lasso": "inside the lasso"} if ring else {}
    others |= {"like": f"similar to {like}"} if like else {}
    draw_chips(conditions, others | ({"tag": f"tagged {link.get('tag')}"} if tagged else {}))
    sort = link.get("sort") if link.get("sort") in known else "id"
    order = Order(sort, descending == "descending")
    show_strip(run, known[drawn], conditions)
    among = [Among(tagged)] if tagged else []
    if view == EXTREMES:
        show_extremes(run, known[drawn], link.get("where"))
        return
    if like:
        near = run.ask(_alike, like, link.get("where"))
        if tagged:
            near = {name: near[name] for name in near if name in tagged}
        _show(run, conditions, order, int(size), [*among, Among(tuple(near))], near)
    elif drawn_on:
        left, right = st.columns([5, 6], gap="medium")
        with left:
            lasso = _scatter(run, known, conditions, ring, of_map=view == MAP)
        with right:
            _show(run, conditions, order, int(size), [*among, *([lasso] if lasso else [])])
    else:
        _show(run, conditions, order, int(size), among)


def _show(
    run: Opened,
    conditions: tuple[Condition, ...],
    order: Order,
    size: int,
    among: Sequence[Among],
    near: Mapping[str, float] | None = None,
) -> None:
    """Show the filtered images among a selection, in the order of similarity if requested."""
    if near is not None and not near:
        html.empty(f"No image that fits is similar to {link.get('like')}.", NO_VECTORS)
        return
    fitting = (*conditions, *among)
    total = run.ask(images.count_images, fitting)
    _grid(run, fitting, order, size, total, near)
    bulk_dialogue((Among(tuple(_picked())),) if link.get("act") == "picked" else fitting)


def _alike(run: Results, like: str, where: str) -> dict[str, float]:
    """Return how like (cosine) the pictures under a filter are, the most alike first."""
    found = similar_pictures(run, like, ALIKE)
    near = dict(found.select("sample_id", "similarity").iter_rows())
    fitting = set(images.list_ids(run, (*from_link(where), Among(tuple(near)))))
    return {name: alike for name, alike in near.items() if name in fitting}


def _scatter(
    run: Opened,
    known: dict[str, ColumnOf],
    conditions: Sequence[Condition],
    ring: list[tuple[float, float]],
    *,
    of_map: bool,
) -> Among | None:
    if of_map and MAP_X not in known:
        html.empty("This run has no map of its images.", NO_VECTORS)
        return None
    numbers = [name for name, c in known.items() if c.kind is Kind.NUMBER]
    others = [name for name, c in known.items() if c.kind is Kind.CHOICE]
    box = st.columns(3)
    x, y = MAP_X, MAP_Y
    if not of_map:
        axis: dict[str, Any] = {"any_": None, "resets": ["lasso"]}
        x = link.choose("Across", "x", _first(numbers, X), at=box[0], **axis)
        y = link.choose("Up", "y", _first(numbers, Y), at=box[1], **axis)
    last = box[0 if of_map else 2]
    colour = link.choose("Colour", "colour", _first(others, COLOUR), at=last, any_=None)
    where = from_link(link.get("where"))
    found = run.ask(distributions.scatter_points, x, y, colour, where)
    if found.rows.is_empty():
        html.empty("No file here has both numbers.", "Choose other columns or widen the filters.")
        return None
    sampled = found.total > found.rows.height
    said = (
        f"a sample of {found.rows.height:,} of {found.total:,}"
        if sampled
        else f"all {found.total:,}"
    )
    html.paragraph(
        f"Drawn: {said} files that have both numbers. Drag selects, double click or Esc lets go; "
        "the wheel zooms, Shift and drag moves; a point shows its image.",
        "quiet small",
    )
    show_scatter("scatter", found.rows, x, y, _lassoed, ring, _order(run, known[colour]))
    _peek(run, x, y, colour)
    if not ring:
        return None
    ids = run.ask(distributions.ids_inside, x, y, tuple(ring), where)
    html.paragraph(
        f"The lasso holds {len(ids):,} of {found.total:,} files, drawn or not; the cards beside it "
        "are these.",
        "strong",
    )
    return Among(ids)


@make_fragment
def _peek(run: Opened, x: str, y: str, colour: str) -> None:
    """Answer which picture a point is: alone, so that nothing else is drawn or sent again."""
    where = link.get("where")
    found = run.ask(distributions.scatter_points, x, y, colour, from_link(where)).rows

    def asked() -> None:
        page_changed()

    place = st.session_state.get("peek", {}).get("asked")
    shown = None
    if isinstance(place, int) and 0 <= place < found.height:
        (card,) = images.cards(run, [found["id"][place]])
        (small,) = run.thumbnails().many([card])
        lines = [card.id, *default_lines(card)[:1], small.error]
        shown = {
            "place": place,
            "title": visible(card.id),
            "image": small.data_uri,
            "lines": [visible(line) for line in lines if line],
        }
    component("peek")(
        key="peek",
        data={"of": f"{run.key} {x} {y} {colour} {where}", "shown": shown},
        on_asked_change=asked,
    )


def _order(run: Opened, one: ColumnOf) -> Sequence[str]:
    if one.name == "label":
        return run.ask(distributions.class_order)
    return [v for v in run.ask(browse_conditions.choices, one.name) if v is not None]


def _first(names: list[str], wanted: str) -> list[str]:
    """Return the names with the wanted one first: the first is what is shown unasked."""
    return sorted(names, key=lambda name: name != wanted)


def _ring(text: str) -> list[tuple[float, float]]:
    try:
        ring = [(float(a), float(b)) for a, b in json.loads(text)] if text else []
    except (ValueError, TypeError, OverflowError, RecursionError):
        return []
    # JSON may say NaN, which no point lies inside of and no browser can be sent.
    return ring if all(map(math.isfinite, chain.from_iterable(ring))) else []


def _lassoed(ring: list[tuple[float, float]]) -> None:
    link.first_page()
    link.put(lasso=json.dumps(ring, separators=(",", ":")) if ring else None)


@make_fragment
def _grid(
    run: Opened,
    conditions: tuple[Condition, ...],
    order: Order,
    size: int,
    total: int,
    near: Mapping[str, float] | None,
) -> None:
    after, before = Edge.from_link(link.get("after")), Edge.from_link(link.get("before"))
    if near is None:
        found = images.page(run, conditions, order, after=after, before=before, size=size)
    else:
        cards = images.cards(run, list(near))
        found = Page(tuple(replace(card, value=near[card.id]) for card in cards))
    if not found.cards:
        html.empty("No file fits.", "Widen the filters on the left, or clear them.")
        return
    picked = _picked()
    _bar(run, found, conditions, picked, total)
    named = "similarity" if near is not None else order.column
    lines = default_lines if named in ("id", "split", "label") else _with_value(named)
    show_gallery(
        run,
        "grid",
        found.cards,
        marks=run.decisions.by_sample,
        on_pick=lambda ids: _pick(found, ids),
        lines=lines,
        picked=[i for i in picked if i in {c.id for c in found.cards}],
    )


def _with_value(name: str) -> Any:
    return lambda card: [
        default_lines(card)[0],
        f"{name} {number_text(card.value)}" if card.value is not None else f"no {name}",
    ]


def _bar(
    run: Opened,
    found: Page,
    conditions: tuple[Condition, ...],
    picked: list[str],
    total: int,
) -> None:
    number = int(link.number_of("page", 1, 10**9, 1))
    with st.container(horizontal=True, vertical_alignment="center"):
        html.paragraph(f"{counted(total, 'file')}, page {number:,}")
        page_buttons(
            _turn,
            ("before", found.first, number - 1) if found.before else None,
            ("after", found.last, number + 1) if found.after else None,
        )
        if picked:
            for verb in (Action.KEEP, Action.DROP):
                button(
                    f"{verb.value.capitalize()} {len(picked):,} selected",
                    f"grid {verb}",
                    partial(decide_selected, run, picked, verb),
                )
            act = partial(link.put, act="picked")
            st.button("Relabel, move or tag", "act on picked", on_click=act)
            st.button("Clear selection", on_click=lambda: st.session_state.pop(PICKED, None))
        else:
            act = partial(link.put, act="all")
            st.button(f"Bulk actions ({total:,})", "act on all", on_click=act)
        st.download_button(
            f"Export {len(picked):,} selected" if picked else "Export all that fit",
            data=lambda: images.export_csv(run, (Among(tuple(picked)),) if picked else conditions),
            file_name=f"{run.name}-selection.csv",
            mime="text/csv",
            on_click="ignore",
        )
    show_selected_queue(run, picked)


def _turn(way: str, edge: Edge | None, number: int) -> None:
    page_changed()
    link.first_page()
    if edge is not None and number > 1:
        link.put(page=str(number), **{way: edge.to_link()})


def _picked() -> list[str]:
    return [i for i in st.session_state.get(PICKED, []) if isinstance(i, str)]


def _pick(found: Page, ids: list[str]) -> None:
    page_changed()
    here = {card.id for card in found.cards}
    kept = [i for i in st.session_state.get(PICKED, []) if i not in here]
    st.session_state[PICKED] = [*kept, *ids]


MISSING = "(none)"
Put = Callable[[Condition | None], None]
CHIP = 48  # characters of a filter that a chip shows


def conditions_bar(
    run: Opened, known: Mapping[str, ColumnOf], conditions: Sequence[Condition]
) -> None:
    """Draw the filters and write what they say to the link."""
    st.header("Filters")
    named = dict.fromkeys([*(n for n in ("id", "split", "label") if n in known), *used(conditions)])
    extra = st.session_state.setdefault("filter columns", [])
    shown = list(dict.fromkeys([*named, *(n for n in extra if n in known)]))
    by_column = {c.column: c for c in conditions if not hasattr(c, "ids")}
    for name in shown:
        _filter(run, known[name], by_column.get(name), by_column)
    st.selectbox(
        "Add filter",
        [n for n in known if n not in shown],
        index=None,
        key="add a filter",
        placeholder="column",
        format_func=visible,
        on_change=_add,
    )
    if conditions:
        st.button("Clear the filters", on_click=_clear)


def draw_chips(conditions: Sequence[Condition], more: Mapping[str, str]) -> None:
    """Draw each filter as a chip that removes it; `more`: name in the link and text of others."""
    if not conditions and not more:
        return
    with st.container(horizontal=True, gap="small"):
        for condition in conditions:
            rest = without(conditions, condition.column) if hasattr(condition, "column") else []
            _chip(words_of(condition), f"chip {condition}", where=to_link(rest), lasso=None)
        for name, said in more.items():
            _chip(said, f"chip of {name}", **{name: None})


def _chip(said: str, key: str, **then: str | None) -> None:
    def let_go() -> None:
        link.first_page()
        link.put(**then)

    st.button(
        html.label(said if len(said) <= CHIP else f"{said[:CHIP]}…"),
        key=key,
        icon=":material/close:",
        help="Remove this filter.",
        on_click=let_go,
    )


def _add() -> None:
    name = st.session_state["add a filter"]
    if name:
        st.session_state["filter columns"] = [*st.session_state["filter columns"], name]
    st.session_state["add a filter"] = None


def _clear() -> None:
    st.session_state["filter columns"] = []
    link.first_page("where", "lasso")


def _filter(
    run: Opened, one: ColumnOf, now: Condition | None, all_: Mapping[str, Condition]
) -> None:
    key = f"filter {visible(one.name)}"

    def put(condition: Condition | None) -> None:
        rest = [other for name, other in all_.items() if name != one.name]
        put_conditions([*rest, *([condition] if condition else [])])

    if one.kind is Kind.NUMBER:
        _range_filter(run, one, now, key, put)
        return
    values = run.ask(browse_conditions.choices, one.name) if one.kind is Kind.CHOICE else []
    if values:
        _choice(one, now, key, values, put)
    else:
        written = now.text if isinstance(now, Contains) else ""
        st.text_input(
            "File name" if one.name == "id" else html.label(one.name),
            help=_doc(one),
            placeholder="part of the text",
            **link.bound(
                key, written, lambda text: put(Contains(one.name, text) if text else None)
            ),
        )


def _range_filter(run: Opened, one: ColumnOf, now: Condition | None, key: str, put: Put) -> None:
    bounds = run.ask(distributions.extent, one.name)
    if bounds.low is None or bounds.high is None or bounds.low == bounds.high:
        html.paragraph(f"{one.name}: no range to choose from", "quiet small")
        return
    # A range as wide as the column is no condition: it would leave out rows without a number.
    whole = (bounds.low, bounds.high)
    st.slider(
        html.label(one.name),
        *whole,
        help=_doc(one),
        step=1.0 if bounds.whole else None,
        format="%.0f" if bounds.whole else "compact",
        **link.bound(
            key,
            _within(now, whole),
            lambda ends: put(None if tuple(ends) == whole else Between(one.name, *ends)),
        ),
    )


def _doc(one: ColumnOf) -> str | None:
    return html.label(one.doc) or None


def _within(now: Condition | None, whole: tuple[float, float]) -> tuple[float, float]:
    if not isinstance(now, Between):
        return whole
    low, high = max(now.low, whole[0]), min(now.high, whole[1])
    return (low, high) if low <= high else whole


def _choice(
    one: ColumnOf, now: Condition | None, key: str, values: Sequence[str | None], put: Put
) -> None:
    names = [MISSING if v is None else v for v in values]
    chosen = [MISSING if v is None else v for v in now.values] if isinstance(now, OneOf) else []

    def changed(picked: Sequence[str]) -> None:
        values = tuple(None if v == MISSING else v for v in picked)
        put(OneOf(one.name, values) if values else None)

    st.multiselect(
        html.label(one.name),
        names,
        help=_doc(one),
        placeholder="any",
        format_func=visible,
        **link.bound(key, [v for v in chosen if v in names], changed),
    )


PREVIEW = 12
TO = {
    Action.RELABEL: "New class",
    Action.MOVE: "New split",
    Action.TAG: "Tag",
    Action.UNTAG: "Tag to remove",
}
VERBS = {verb.value.capitalize(): verb for verb in (Action.KEEP, Action.DROP, *TO)}
VERB, VALUE = "verb for all that fit", "value for all that fit"


def bulk_dialogue(conditions: Sequence[Condition]) -> None:
    """Show the dialogue over the pictures under these conditions, if the link asks for it."""
    # One dialogue at a time: a picture that is open lies in front.
    if link.get("act") in ("all", "picked") and not link.get("image"):
        _bulk_dialogue(conditions)


@st.dialog("Bulk actions", width="large", on_dismiss=lambda: link.put(act=None))
def _bulk_dialogue(conditions: Sequence[Condition]) -> None:
    safely(_draw_bulk, conditions)


def _draw_bulk(conditions: Sequence[Condition]) -> None:
    run = open_chosen_run()
    n = images.count_images(run, conditions)
    found = images.page(run, conditions, size=PREVIEW)
    if not n:
        html.empty("No file fits.", "Close this, and widen the filters.")
        return
    said = "; ".join(words_of(c) for c in conditions) or "no filter: all files of the run"
    html.paragraph(f"{counted(n, 'file')}: {said}.", "strong")
    show_gallery(run, "bulk preview", found.cards, opens=False, width=110)
    if n > PREVIEW:
        html.paragraph(f"The first {PREVIEW} of {n:,}.", "quiet small")
    chosen = st.segmented_control("Decision", list(VERBS), key=VERB)
    if not chosen:
        html.paragraph("Choose what to decide.", "quiet small")
        return
    verb = VERBS[str(chosen)]
    if verb in TO:
        st.text_input(TO[verb], key=VALUE)
    st.text_input("Note, kept with the decision", key=NOTE)
    st.button(
        f"{verb.value.capitalize()} {counted(n, 'file')}",
        key="bulk",
        type="primary",
        on_click=answering(_decide_bulk),
        args=(run, conditions, verb, n),
    )
    html.paragraph("One undo reverts the whole batch. No file is changed.", "quiet small")


def _decide_bulk(run: Opened, conditions: Sequence[Condition], verb: Action, n: int) -> None:
    ids = images.list_ids(run, conditions)
    if len(ids) != n:
        raise UsageError("The files that fit have changed: look at them, and decide again.")
    value = str(st.session_state.get(VALUE, "")).strip() if verb in TO else None
    decide_selected(run, ids, verb, value)
    link.put(act=None)
