"""The gallery: cards in one component, because a widget per card makes a page slow.

It reports the opened card (click, Enter) and the selected ones (checkbox, Space, Shift).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from audit.report.thumbnails import Thumbnail
from audit.results.formatting import place_text, size_text
from audit.results.report_data import Card
from audit.ui import link
from audit.ui.opened import Opened
from dataset_preflight.foundation.terminal import visible

HERE = Path(__file__).parent
MOUNTED: dict[str, Any] = {}
BESIDE = "cards beside the opened one"


def component(name: str) -> Any:
    """Return the component whose files are NAME.js and NAME.css, registered once a process."""
    if name not in MOUNTED:
        MOUNTED[name] = st.components.v2.component(
            f"dataset-preflight-{name}",
            html=f'<div class="{name}"></div>',
            css=(HERE / f"{name}.css").read_text("utf-8"),
            js="".join((HERE / f"{part}.js").read_text("utf-8") for part in ("parts", name)),
        )
    return MOUNTED[name]


def show_gallery(
    run: Opened,
    key: str,
    cards: Sequence[Card],
    *,
    thumbnails: Sequence[Thumbnail] | None = None,
    marks: Mapping[str, str] | None = None,
    lines: Callable[[Card], Sequence[str]] | None = None,
    opens: bool = True,
    on_pick: Callable[[list[str]], None] | None = None,
    picked: Sequence[str] = (),
    width: int = 180,
) -> None:
    """Show cards; a click opens the image if `opens`; `on_pick` gets the selected ids."""
    lines_of, marks = lines or default_lines, marks or {}
    if thumbnails is None:
        thumbnails = run.thumbnails().many(cards)
    shown = [
        _card(card, thumb, lines_of(card), marks.get(card.id, ""))
        for card, thumb in zip(cards, thumbnails, strict=True)
    ]

    # What the browser sends is not trusted to be text, nor to be there at all.
    def card_opened() -> None:
        value = st.session_state[key].get("opened")
        if opens and isinstance(value, str):
            st.session_state[BESIDE] = [card.id for card in cards]
            link.put(image=value)

    def chosen() -> None:
        value = st.session_state[key].get("picked")
        if on_pick is not None:
            on_pick([v for v in value or () if isinstance(v, str)])

    component("gallery")(
        key=key,
        data={
            "cards": shown,
            "selectable": on_pick is not None,
            "picked": list(picked),
            "width": width,
        },
        on_opened_change=card_opened,
        on_picked_change=chosen,
    )


def _card(card: Card, thumb: Thumbnail, lines: Sequence[str], mark: str) -> dict[str, Any]:
    return {
        "id": card.id,
        "title": visible(card.id.rsplit("/", 1)[-1]),
        "full": visible(card.id),
        "lines": [visible(line) for line in lines],
        "image": thumb.data_uri,
        "why": visible(thumb.error),
        "note": visible(thumb.note),
        "mark": visible(mark),
        "markKind": mark.split(" ")[0],
    }


def default_lines(card: Card) -> list[str]:
    """Return the two lines below a name: where it belongs, and how large it is."""
    return [place(card), size_text(card.width, card.height, card.n_bytes)]


def place(card: Card) -> str:
    """Return `train · cat`, with words for what is missing."""
    return place_text(card.split, card.label or "no label")
