"""Text and small elements of a page; the only module where text becomes HTML, always escaped.

File names, labels, notes and messages come from strangers, and Streamlit reads Markdown in labels
and notices.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import streamlit as st
from PIL import Image

from audit.results.boxes import COLOURS
from audit.sources.tables import visible_frame
from dataset_preflight.foundation.terminal import visible

HERE = Path(__file__).parent
ABOUT = (
    "dataset-preflight finds what is wrong with an image dataset (damaged files, copies, leaks "
    "between splits, wrong labels, faulty boxes), lets you decide about it by key, and writes a "
    "cleaned dataset. Your files are only read."
)
# Every ASCII punctuation mark may be escaped in Markdown: colours, formulas and icons go with them.
MARKDOWN = re.compile(r"[!-/:-@\[-`{-~]")


def write_style() -> None:
    """Write the page's few own styles; those of a theme follow it without being drawn again."""
    dots = "".join(
        f"  .ap .chip.box{place}::before {{ background: rgb{colour}; }}\n"
        for place, colour in enumerate(COLOURS)
    )
    st.html(f"\n<style>\n{(HERE / 'page.css').read_text('utf-8')}{dots}</style>\n")


def icon() -> Image.Image:
    """Return the page's icon, 32 x 32 px, drawn here: a named icon comes from a server."""
    drawn = np.full((32, 32, 3), (11, 92, 138), np.uint8)
    for row, colour in ((7, (255, 255, 255)), (14, (255, 255, 255)), (21, (255, 192, 105))):
        drawn[row : row + 4, 6:26] = colour
    return Image.fromarray(drawn)


def tag(name: str, text: str, kind: str = "") -> str:
    """Return an element that holds `text` as text."""
    return f'<{name} class="{escape(kind)}">{escape(visible(text))}</{name}>'


# Every element below is closed inside one call: Streamlit sanitises each st.html by itself.
def write_html(*parts: str) -> None:
    """Write elements made by `tag`, `chip` and `value_table`."""
    st.html(f'<div class="ap">{"".join(parts)}</div>')


def label(text: str) -> str:
    """Return text for the label, the help or the heading of a widget, which reads Markdown."""
    return MARKDOWN.sub(r"\\\g<0>", visible(text))


def paragraph(content: str, kind: str = "") -> None:
    """Write a paragraph of text."""
    write_html(tag("p", content, kind))


def chip(content: str, kind: str = "") -> str:
    """Return a small label; `kind` is error, warning, info or good."""
    return tag("span", content, f"chip {kind}")


def value_table(rows: Mapping[str, str] | Sequence[tuple[str, str]]) -> str:
    """Return a table of names and values."""
    items = rows.items() if isinstance(rows, Mapping) else rows
    body = "".join(f"<tr>{tag('td', k)}{tag('td', v)}</tr>" for k, v in items)
    return f"<table>{body}</table>"


def write_links(links: Mapping[str, str]) -> None:
    """Write links to pages of this app, by what they are called."""
    if links:
        shown = (
            f'<p><a href="{escape(where)}" target="_self">{escape(visible(name))}</a></p>'
            for name, where in links.items()
        )
        write_html(*shown)


def table(frame: pl.DataFrame, **more: Any) -> None:
    """Write a frame whose names and cells are drawn as text."""
    st.dataframe(visible_frame(frame), hide_index=True, width="stretch", **more)


def empty(sentence: str, fix: str = "") -> None:
    """Say that there is nothing here, and what to do about it."""
    quiet = tag("p", fix, "quiet small") if fix else ""
    write_html(f'<div class="state">{tag("p", sentence, "strong")}{quiet}</div>')


def notice(sentence: str, kind: str = "") -> None:
    """Say something that the reader should know; `kind` is error, good or nothing."""
    write_html(f'<div class="notice {escape(kind)}">{tag("span", sentence)}</div>')
