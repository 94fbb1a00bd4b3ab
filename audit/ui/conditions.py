"""The filters of Explore: choose columns, then for each a range, a choice or a part of its text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st

from audit.browse import columns as browse_columns
from audit.browse import distributions
from audit.browse.columns import ColumnOf, Kind
from audit.browse.conditions import (
    Between,
    Condition,
    Contains,
    OneOf,
    to_link,
    used,
    without,
    words_of,
)
from audit.browse.distributions import Extent
from audit.printable import visible
from audit.ui import html, link
from audit.ui.opened import Opened, cached

MISSING = "(none)"
USUAL = ("split", "label")
CHIP = 48  # characters of a filter that a chip shows


def conditions_bar(
    run: Opened, known: Mapping[str, ColumnOf], conditions: Sequence[Condition]
) -> None:
    """Draw the filters and write what they say to the link."""
    st.header("Filters")
    named = dict.fromkeys([*(n for n in USUAL if n in known), *used(conditions)])
    extra = st.session_state.setdefault("filter columns", [])
    shown = list(dict.fromkeys([*named, *(n for n in extra if n in known)]))
    by_column = {c.column: c for c in conditions if not hasattr(c, "ids")}
    for name in shown:
        _filter(run, known[name], by_column.get(name), by_column)
    st.selectbox(
        "Add a filter",
        [n for n in known if n not in shown],
        index=None,
        key="add a filter",
        placeholder="any column",
        format_func=visible,
        on_change=_add,
    )
    if conditions:
        st.button("Clear the filters", on_click=_clear)


def draw_chips(conditions: Sequence[Condition], more: Mapping[str, str]) -> None:
    """Draw each filter as a chip that lets go of it; `more` are others: the name in the link of
    each and what it says.
    """
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
        help="Click to let go of this filter.",
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
        rest = {k: v for k, v in all_.items() if k != one.name}
        new = [*rest.values(), *([condition] if condition else [])]
        link.first_page("lasso")
        link.put(where=to_link(new))

    if one.kind is Kind.NUMBER:
        _range(run, one, now, key, put)
        return
    values = _choices(run.key, one.name, one, run) if one.kind is Kind.CHOICE else []
    if values:
        _choice(one, now, key, values, put)
    else:
        st.session_state[key] = now.text if isinstance(now, Contains) else ""
        st.text_input(
            html.label(one.name),
            key=key,
            help=_doc(one),
            placeholder="part of the text",
            on_change=lambda: put(
                Contains(one.name, st.session_state[key]) if st.session_state[key] else None
            ),
        )


def _range(run: Opened, one: ColumnOf, now: Condition | None, key: str, put: object) -> None:
    bounds = _extent(run.key, one.name, run)
    if bounds.low is None or bounds.high is None or bounds.low == bounds.high:
        html.paragraph(f"{one.name}: no range to choose from", "quiet small")
        return
    # A range as wide as the column is no condition: it would leave out rows without a number.
    whole = (bounds.low, bounds.high)
    st.session_state[key] = _within(now, whole)

    def changed() -> None:
        low, high = st.session_state[key]
        assert callable(put)
        put(None if (low, high) == whole else Between(one.name, low, high))

    st.slider(
        html.label(one.name),
        bounds.low,
        bounds.high,
        key=key,
        on_change=changed,
        help=_doc(one),
        step=1.0 if bounds.whole else None,
        format="%.0f" if bounds.whole else "compact",
    )


def _doc(one: ColumnOf) -> str | None:
    return html.label(one.doc) or None


def _within(now: Condition | None, whole: tuple[float, float]) -> tuple[float, float]:
    if not isinstance(now, Between):
        return whole
    low, high = max(now.low, whole[0]), min(now.high, whole[1])
    return (low, high) if low <= high else whole


def _choice(
    one: ColumnOf, now: Condition | None, key: str, values: Sequence[str | None], put: object
) -> None:
    names = [MISSING if v is None else v for v in values]
    chosen = [MISSING if v is None else v for v in now.values] if isinstance(now, OneOf) else []
    st.session_state[key] = [v for v in chosen if v in names]

    def changed() -> None:
        picked = tuple(None if v == MISSING else v for v in st.session_state[key])
        assert callable(put)
        put(OneOf(one.name, picked) if picked else None)

    st.multiselect(
        html.label(one.name),
        names,
        key=key,
        on_change=changed,
        help=_doc(one),
        placeholder="any",
        format_func=visible,
    )


@cached
def _choices(key: str, name: str, _one: ColumnOf, _run: Opened) -> list[str | None]:
    with _run.store() as store:
        return browse_columns.choices(store, _one)


@cached
def _extent(key: str, name: str, _run: Opened) -> Extent:
    with _run.store() as store:
        return distributions.extent(store, name)
