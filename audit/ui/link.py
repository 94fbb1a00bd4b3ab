"""The view in the link: filters, page and selection live in the URL.

A widget takes its value from the link and writes it back. An unknown value counts as none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from dataset_preflight.foundation.terminal import visible

ANY = "Any"
PAGE, VIEWS = "page of the link", "views of the pages"
LEFT, OURS = "link as this tab was left", "page that writes its link by these functions"
# Changing a filter goes back to the first page.
PAGING = ("start", "after", "before", "page")


def get(name: str, default: str = "") -> str:
    """Return a value of the link."""
    _catch_up()
    return str(st.query_params.get(name, default))


def put(**values: str | None) -> None:
    """Set values of the link; an empty one is removed."""
    _catch_up()
    for name, value in values.items():
        if value:
            st.query_params[name] = value
        elif name in st.query_params:
            del st.query_params[name]
    _note_view()


def turn_to(page: str, *, ours: bool = True) -> None:
    """Say which page the link is of; an empty link restores the page's latest view.

    A page that is not `ours` writes its link itself.
    """
    st.session_state[OURS] = ours
    if st.session_state.get(PAGE) == page:
        _catch_up()
    else:
        st.session_state[PAGE] = page
        seen = st.session_state.get(VIEWS, {}).get(page, {})
        if not _view() and seen:
            put(**seen)
    _note_view()


def forget_views() -> None:
    """Forget the views of all pages, and of this one: they were of another run."""
    for name in (VIEWS, LEFT):
        st.session_state.pop(name, None)


def _view() -> dict[str, str]:
    return {name: str(v) for name, v in st.query_params.items() if name not in ("run", "image")}


def page_and_values() -> tuple[str, dict[str, str]]:
    """Return the page that the link is of, and what it says but for the run."""
    return str(st.session_state.get(PAGE, "")), _view()


def _note_view() -> None:
    if page := st.session_state.get(PAGE):
        st.session_state.setdefault(VIEWS, {})[page] = _view()
        ctx = get_script_run_ctx() if st.session_state.get(OURS) else None
        st.session_state[LEFT] = (ctx and ctx.page_script_hash, dict(st.query_params))


def _catch_up() -> None:
    """Restore the link if the browser sent an older one, but follow Back and other pages."""
    ctx, (page, left) = get_script_run_ctx(), st.session_state.get(LEFT, (None, {}))
    now = dict(st.query_params)
    if ctx is None or page != ctx.page_script_hash or ctx.is_history_navigation:
        return
    if now and now != left:  # empty: the page was chosen anew
        st.query_params.from_dict(left)


def chosen_option(name: str, options: Sequence[str]) -> str:
    """Return the option that the link names, the first of them where it names none of these."""
    named = get(name)
    return named if named in options else options[0]


def offered(name: str, values: Iterable[str]) -> list[str]:
    """Return the values to offer, sorted, with the one that the link names."""
    return sorted({*values, get(name)} - {""})


def number_of(name: str, low: float, high: float, default: float) -> float:
    """Return the number in the link, of the type of the default; the default for what is none."""
    try:
        number = type(default)(float(get(name, str(default))))
    except (ValueError, OverflowError):  # no number; an infinite one where an integer is wanted
        return default
    return number if low <= number <= high else default


def put_unless_default(name: str, value: object, default: object) -> None:
    """Write a value that differs from the default: what is not in the link is the default."""
    put(**{name: None if value == default else str(value)})


def first_page(*also: str) -> None:
    """Forget the page of the link, and the names in `also`."""
    put(**dict.fromkeys((*PAGING, *also)))


def go(page: str, **values: str | None) -> None:
    """Open another page at the next run of the script: callbacks cannot."""
    st.session_state["go"] = (page, {k: v for k, v in values.items() if v})


def is_leaving() -> bool:
    """Say whether another page was asked for."""
    return "go" in st.session_state


def follow(pages: Mapping[str, Any]) -> None:
    """Open the page that `go` asked for."""
    wanted = st.session_state.pop("go", None)
    if wanted is not None:
        name, values = wanted
        st.session_state.pop(LEFT, None)
        st.switch_page(pages[name], query_params=values)


def bound(key: str, value: object, changed: Callable[[Any], None]) -> dict[str, Any]:
    """Return what makes a widget show a value, and tell `changed` of another one."""
    st.session_state[key] = value
    return {"key": key, "on_change": lambda: changed(st.session_state[key])}


def _putting(name: str, resets: Sequence[str]) -> Callable[[str], None]:
    """Return what sets a value of the link, and goes to the first page of a list."""

    def changed(value: str) -> None:
        first_page(*resets)
        put(**{name: value})

    return changed


def choose(
    label: str,
    name: str,
    options: Sequence[str],
    *,
    shown: Callable[[str], str] = visible,
    any_: str | None = ANY,
    resets: Sequence[str] = (),
    at: Any = st,
    **more: Any,
) -> str:
    """Draw a choice of the link in a container; returns "" for any. Options are no Markdown."""
    values = ["", *options] if any_ is not None else list(options)
    chosen = at.selectbox(
        label,
        values,
        format_func=lambda value: (
            any_ if value == "" and any_ is not None else visible(shown(value))
        ),
        **bound(f"choice {name}", chosen_option(name, values), _putting(name, resets)),
        **more,
    )
    return str(chosen)


def write_link(
    label: str, name: str, *, resets: Sequence[str] = (), at: Any = st, **more: Any
) -> str:
    """Draw a text of the link in a container."""
    put_first = _putting(name, resets)
    given = bound(f"text {name}", get(name), lambda written: put_first(written.strip()))
    return str(at.text_input(label, **given, **more)).strip()


def switch(
    label: str, name: str, options: Sequence[str], *, resets: Sequence[str] = (), **more: Any
) -> str:
    """Draw a segmented choice of the link; the options are our own words. The first is default."""

    def changed(chosen: str | None) -> None:
        first_page(*resets)
        # A click on the chosen segment deselects it: None, the default.
        put_unless_default(name, chosen or options[0], options[0])

    given = bound(f"switch {name}", chosen_option(name, options), changed)
    chosen = st.segmented_control(label, options, label_visibility="collapsed", **given, **more)
    return str(chosen or options[0])


def slide(
    label: str, name: str, low: float, high: float, default: float, step: float, **more: Any
) -> float:
    """Draw a slider of the link."""
    given = bound(
        f"slide {name}",
        number_of(name, low, high, default),
        lambda value: put_unless_default(name, value, default),
    )
    return float(st.slider(label, low, high, step=step, **given, **more))


def toggle(label: str, name: str) -> bool:
    """Draw a switch of the link."""

    def changed(on: bool) -> None:
        put(**{name: "yes" if on else None})

    given = bound(f"toggle {name}", get(name) == "yes", changed)
    return bool(st.toggle(label, **given))
