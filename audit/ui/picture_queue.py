"""Decisions about pictures, queued as those about findings are: the open picture, selected cards.

The dialogue of a picture holds the pictures beside it, so that arrows turn and digits label as fast
as they are typed: its strip shows the thumbnail of the one that a press is about, wherever the
server is by then. What is decided names that picture.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from audit.browse.images import cards
from audit.printable import visible
from audit.ui import link
from audit.ui.gallery import BESIDE
from audit.ui.opened import Opened
from audit.ui.queue import AHEAD, LABEL, UNDO, mount_queue

BEHIND = 2  # pictures before the open one
PICTURE_KEYS = {
    "k": "keep",
    "d": "drop",
    "u": UNDO,
    "arrowleft": "before",
    "arrowright": "after",
}
PICTURE_BUTTONS = {
    "image Keep": "keep",
    "image Drop": "drop",
    "image Undo": UNDO,
    "image Previous": "before",
    "image Next": "after",
}
SELECTED_BUTTONS = {"grid keep": "keep", "grid drop": "drop", "undo": UNDO}


def show_picture_queue(run: Opened, sample: str, classes: Sequence[str]) -> None:
    """Draw the queue of the open picture; `classes` have digits, and label the picture."""
    beside = st.session_state.get(BESIDE, [])
    at = beside.index(sample) if sample in beside else 0
    near = beside[max(at - BEHIND, 0) : at + 1 + AHEAD] if sample in beside else [sample]
    with run.store() as store:
        found = cards(store, near)
    thumbs = run.thumbnails().many(found)
    labels = {f"class {digit}": [LABEL, name] for digit, name in enumerate(classes, 1)}
    data = {
        "open": sample,
        "lines": [{"id": c.id, "title": visible(c.id), "images": [c.id]} for c in found],
        "keys": PICTURE_KEYS | ({"digit": LABEL} if classes else {}),
        "buttons": {key: [verb, ""] for key, verb in PICTURE_BUTTONS.items()} | labels,
        "classes": list(classes),
    }
    images = {card.id: thumb.data_uri for card, thumb in zip(found, thumbs, strict=True)}

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
