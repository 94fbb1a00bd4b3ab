"""Explore: pictures first; every column filtered, sorted and drawn; a lasso; one image; export."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

import streamlit as st

from audit.browse import columns as browse_columns
from audit.browse import distributions, images
from audit.browse.columns import ColumnOf, Kind
from audit.browse.conditions import Among, Condition, from_link, used
from audit.browse.images import Edge, Order, Page
from audit.embeddings.similar import similar_pictures
from audit.records import Action
from audit.report.wording import counted, number_text
from audit.ui import html, link
from audit.ui.bulk import bulk_dialogue, open_bulk
from audit.ui.conditions import conditions_bar, draw_chips
from audit.ui.deciding import button, decide_selected, page_key
from audit.ui.detail import dialogue, open_image
from audit.ui.fragment import make_fragment, page_changed
from audit.ui.gallery import default_lines, show_gallery
from audit.ui.opened import Opened, cached, open_chosen_run
from audit.ui.picture_queue import show_selected_queue
from audit.ui.scatter import show_scatter
from audit.ui.strip import show_extremes, show_strip

SIZES = ("24", "36", "60")
SCATTER, MAP, EXTREMES = "Scatter", "Map", "Extremes"
VIEWS = ("Grid", SCATTER, MAP, EXTREMES)
ALIKE = 60  # pictures at most that are shown as like one
NO_VECTORS = (
    "Likeness and the map come from vectors, which a scan makes of up to 200,000 readable "
    "pictures; `audit scan SOURCE --embeddings FILE` takes your own."
)
PICKED = "picked in explore"
MAP_X, MAP_Y = "map.x", "map.y"
X, Y, COLOUR = "brightness", "sharpness", "split"


def page() -> None:
    """Show the page."""
    run = open_chosen_run()
    st.title("Explore")
    known = _columns(run.key, run)
    conditions = from_link(link.get("where"))
    for name in used(conditions):
        browse_columns.column(known, name)
    side, main = st.columns([3, 10], gap="medium")
    with side:
        conditions_bar(run, known, conditions)
        if run.ledger.tags:
            link.choose("Tag", "tag", list(run.ledger.tags), resets=["lasso"])
    with main:
        _main(run, known, conditions)
    dialogue()


@cached
def _columns(key: str, _run: Opened) -> dict[str, ColumnOf]:
    with _run.store() as store:
        return dict(browse_columns.list_columns(store))


def _main(run: Opened, known: dict[str, ColumnOf], conditions: tuple[Condition, ...]) -> None:
    shown = [name for name, c in known.items() if c.kind is not Kind.TEXT]
    # a row that breaks where the window is narrow, and fits one of 1440 px
    with st.container(horizontal=True, vertical_alignment="bottom"):
        link.choose("Sort by", "sort", list(known), any_=None, width=140)
        orders = ("ascending", "descending")
        descending = link.choose("Order", "order", orders, any_=None, width=125)
        drawn = link.choose("Distribution", "show", _first(shown, X), any_=None, width=140)
        size = link.choose("Cards", "size", SIZES, any_=None, width=80)
        view = link.switch("View", "view", VIEWS, resets=["lasso"])
    drawn_on = view in (SCATTER, MAP)
    ring = _ring(link.get("lasso")) if drawn_on else []
    like = link.get("like")
    tagged = run.ledger.tags.get(link.get("tag"))
    others = {"lasso": "inside the lasso"} if ring else {}
    others |= {"like": f"like {like}"} if like else {}
    draw_chips(conditions, others | ({"tag": f"tagged {link.get('tag')}"} if tagged else {}))
    sort = link.get("sort") if link.get("sort") in known else "id"
    order = Order(sort, descending == "descending")
    show_strip(run, known[drawn], conditions)
    among = [Among(tagged)] if tagged else []
    if view == EXTREMES:
        show_extremes(run, known[drawn], link.get("where"))
        return
    if like:
        near = _alike(run.key, like, link.get("where"), run)
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
    """Show the pictures that fit and lie among some, in the order of likeness where one is asked
    for.
    """
    if near is not None and not near:
        html.empty(f"No picture that fits is known to be like {link.get('like')}.", NO_VECTORS)
        return
    fitting = (*conditions, *among)
    if among:
        with run.store() as store:
            total = images.count_images(store, fitting)
    else:
        total = _count(run.key, link.get("where"), run)
    _grid(run, fitting, order, size, total, near)
    bulk_dialogue((Among(tuple(_picked())),) if link.get("act") == "picked" else fitting)


@cached
def _alike(key: str, like: str, where: str, _run: Opened) -> dict[str, float]:
    """Return how like (cosine) the pictures under a filter are, the most alike first."""
    with _run.store() as store:
        found = similar_pictures(store, like, ALIKE)
        near = dict(found.select("sample_id", "similarity").iter_rows())
        fitting = set(images.list_ids(store, (*from_link(where), Among(tuple(near)))))
    return {name: alike for name, alike in near.items() if name in fitting}


@cached
def _count(key: str, where: str, _run: Opened) -> int:
    with _run.store() as store:
        return images.count_images(store, from_link(where))


# ---- scatter ----


def _scatter(
    run: Opened,
    known: dict[str, ColumnOf],
    conditions: Sequence[Condition],
    ring: list[tuple[float, float]],
    *,
    of_map: bool,
) -> Among | None:
    if of_map and MAP_X not in known:
        html.empty("This run has no map of its pictures.", NO_VECTORS)
        return None
    numbers = [name for name, c in known.items() if c.kind is Kind.NUMBER]
    others = [name for name, c in known.items() if c.kind is Kind.CHOICE]
    box = st.columns(3)
    x, y = MAP_X, MAP_Y
    if not of_map:
        with box[0]:
            x = link.choose("Across", "x", _first(numbers, X), any_=None, resets=["lasso"])
        with box[1]:
            y = link.choose("Up", "y", _first(numbers, Y), any_=None, resets=["lasso"])
    with box[0 if of_map else 2]:
        colour = link.choose("Colour", "colour", _first(others, COLOUR), any_=None)
    found = _points(run.key, x, y, colour, link.get("where"), run)
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
        f"Drawn: {said} files that have both numbers. Drag to select, double click or Esc "
        "to let go.",
        "quiet small",
    )
    show_scatter("scatter", found.rows, x, y, _lassoed, ring)
    if not ring:
        return None
    ids = _inside(run.key, x, y, link.get("where"), tuple(ring), run)
    html.paragraph(
        f"The lasso holds {len(ids):,} of {found.total:,} files, drawn or not; the cards beside it "
        "are these.",
        "strong",
    )
    return Among(ids)


def _first(names: list[str], wanted: str) -> list[str]:
    """Return the names with the wanted one first: the first is what is shown unasked."""
    return sorted(names, key=lambda name: name != wanted)


@cached
def _points(
    key: str, x: str, y: str, colour: str, where: str, _run: Opened
) -> distributions.Points:
    with _run.store() as store:
        return distributions.scatter_points(store, x, y, colour, from_link(where))


@cached
def _inside(
    key: str, x: str, y: str, where: str, ring: tuple[tuple[float, float], ...], _run: Opened
) -> tuple[str, ...]:
    with _run.store() as store:
        return distributions.ids_inside(store, x, y, ring, from_link(where))


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


# ---- grid ----


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
    with run.store() as store:
        if near is None:
            found = images.page(store, conditions, order, after=after, before=before, size=size)
        else:
            cards = images.cards(store, list(near))
            found = Page(tuple(replace(card, value=near[card.id]) for card in cards))
    if not found.cards:
        html.empty("No file fits.", "Widen the filters on the left, or clear them.")
        return
    picked = _picked()
    _bar(run, found, conditions, picked, total)
    named = "likeness" if near is not None else order.column
    lines = default_lines if named in ("id", "split", "label") else _with_value(named)
    show_gallery(
        "grid",
        found.cards,
        run.thumbnails().many(found.cards),
        marks=run.ledger.by_sample,
        on_open=open_image,
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
        st.button(
            "Previous page",
            disabled=not found.before,
            shortcut=page_key("PageUp"),
            on_click=_turn,
            args=("before", found.first, number - 1),
        )
        st.button(
            "Next page",
            disabled=not found.after,
            shortcut=page_key("PageDown"),
            on_click=_turn,
            args=("after", found.last, number + 1),
        )
        if picked:
            for verb in (Action.KEEP, Action.DROP):
                button(
                    f"{verb.value.capitalize()} {len(picked):,} selected",
                    f"grid {verb}",
                    partial(decide_selected, run, picked, verb),
                )
            st.button("Relabel, move or tag", "act on picked", on_click=open_bulk, args=("picked",))
            st.button("Clear selection", on_click=lambda: st.session_state.pop(PICKED, None))
        else:
            st.button(f"Decide on all {total:,} that fit", "act on all", on_click=open_bulk)
        st.download_button(
            f"Export {len(picked):,} selected" if picked else "Export all that fit",
            data=lambda: _export(run, (Among(tuple(picked)),) if picked else conditions),
            file_name=f"{run.name}-selection.csv",
            mime="text/csv",
            on_click="ignore",
        )
    show_selected_queue(run, picked)


def _export(run: Opened, conditions: Sequence[Condition]) -> bytes:
    with run.store() as store:
        return images.export_csv(store, conditions)


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
