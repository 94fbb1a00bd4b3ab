"""Words and small pieces of a page; the one place where text becomes HTML, always escaped.

File names, labels, notes and messages come from strangers. Streamlit reads Markdown in labels,
captions and notices, so whatever holds such text is written by the functions here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

import numpy as np
import streamlit as st
from PIL import Image

from audit.browse.images import Card
from audit.report.wording import bytes_text, visible

STYLE = """
<style>
  .block-container { padding: 2.4rem 2.4rem 4rem; max-width: 1760px; }
  [data-testid="stSidebar"] { width: 236px !important; min-width: 236px !important; }
  h1 { font-size: 2rem !important; padding-top: .4rem !important; }
  h2, h3 { font-size: 1.25rem !important; }
  [data-testid="stSidebarHeader"] { height: 2.2rem; }
  .ap { overflow-wrap: anywhere; line-height: 1.5; }
  .ap p { margin: 0 0 .35rem; }
  .ap .quiet { opacity: .72; }
  .ap .small { font-size: .86rem; }
  .ap .strong { font-weight: 600; }
  .ap .mono { font-family: var(--st-code-font, ui-monospace, monospace); font-size: .86rem; }
  .ap .chip { display: inline-block; padding: 0 .55rem; border-radius: 999px; font-size: .8rem;
    font-weight: 600; margin-right: .4rem; border: 1px solid currentColor; white-space: nowrap; }
  .ap .chip.error { color: var(--ap-error); } .ap .chip.warning { color: var(--ap-warning); }
  .ap .chip.info { color: var(--ap-info); } .ap .chip.good { color: var(--ap-good); }
  .ap table { border-collapse: collapse; width: 100%; font-size: .88rem; }
  .ap td { padding: .22rem .9rem .22rem 0; vertical-align: top; border: 0; border-bottom: 1px solid
    color-mix(in srgb, currentColor 12%, transparent); }
  .ap td:first-child { opacity: .72; white-space: nowrap; width: 1%; }
  .ap .state { border: 1px dashed color-mix(in srgb, currentColor 35%, transparent);
    border-radius: 10px; padding: 1.6rem 1.4rem; text-align: center; }
  .ap .notice { border-left: 4px solid var(--ap-info); border-radius: 6px; padding: .6rem .9rem;
    background: color-mix(in srgb, var(--ap-info) 9%, transparent); }
  .ap .notice.error { border-color: var(--ap-error);
    background: color-mix(in srgb, var(--ap-error) 9%, transparent); }
  .ap .notice.good { border-color: var(--ap-good);
    background: color-mix(in srgb, var(--ap-good) 9%, transparent); }
  :root { --ap-error: #b3261e; --ap-warning: #8a5300; --ap-info: #0b5c8a; --ap-good: #1d6b3a; }
</style>
"""
DARK = """
<style>
  :root { --ap-error: #ff8a80; --ap-warning: #ffc069; --ap-info: #7cc4f0; --ap-good: #7fd6a0; }
</style>
"""


def style() -> None:
    """Write the page's few own styles, after the theme that is in force."""
    st.html(STYLE)
    if st.context.theme.type == "dark":
        st.html(DARK)


def icon() -> Image.Image:
    """Return the page's icon, 32 x 32 px: drawn here, because a named one is fetched from a server
    of the symbol's maker.
    """
    drawn = np.full((32, 32, 3), (11, 92, 138), np.uint8)
    for row, colour in ((7, (255, 255, 255)), (14, (255, 255, 255)), (21, (255, 192, 105))):
        drawn[row : row + 4, 6:26] = colour
    return Image.fromarray(drawn)


def tag(name: str, text: str, kind: str = "") -> str:
    """Return an element that holds `text` as text."""
    return f'<{name} class="{escape(kind)}">{escape(visible(text))}</{name}>'


def write(*parts: str) -> None:
    """Write elements made by `tag`, `chip` and `pairs`."""
    st.html(f'<div class="ap">{"".join(parts)}</div>')


def text(words: str, kind: str = "") -> None:
    """Write a paragraph of text."""
    write(tag("p", words, kind))


def chip(words: str, kind: str = "") -> str:
    """Return a small label; `kind` is error, warning, info or good."""
    return tag("span", words, f"chip {kind}")


def pairs(rows: Mapping[str, str] | Sequence[tuple[str, str]]) -> str:
    """Return a table of names and values."""
    items = rows.items() if isinstance(rows, Mapping) else rows
    body = "".join(f"<tr>{tag('td', k)}{tag('td', v)}</tr>" for k, v in items)
    return f"<table>{body}</table>"


def empty(words: str, cure: str = "") -> None:
    """Say that there is nothing here, and what to do about it."""
    quiet = tag("p", cure, "quiet small") if cure else ""
    write(f'<div class="state">{tag("p", words, "strong")}{quiet}</div>')


def notice(words: str, kind: str = "") -> None:
    """Say something that the reader should know; `kind` is error, good or nothing."""
    write(f'<div class="notice {escape(kind)}">{tag("span", words)}</div>')


def size_text(card: Card) -> str:
    """Return `640 x 427 px · 13.5 kB`."""
    parts = []
    if card.width and card.height:
        parts.append(f"{card.width:,} × {card.height:,} px")
    if card.n_bytes >= 0:
        parts.append(bytes_text(card.n_bytes))
    return " · ".join(parts) or "size unknown"
