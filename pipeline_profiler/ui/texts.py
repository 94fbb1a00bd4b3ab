"""Text on a page: always as text, never as Markdown or HTML, whatever a file says.

Names, sentences and notes come from strangers' files. Control and direction characters are shown
as escapes.
"""

from __future__ import annotations

from html import escape

import streamlit as st

from pipeline_profiler.report.controls import escape_controls


def write_text(words: str, *, strong: bool = False) -> None:
    """Write lines of text."""
    if words:
        style = "overflow-wrap:anywhere;line-height:1.5;" + ("font-weight:600" if strong else "")
        lines = escape_controls(words).split("\n")
        st.html("".join(f'<div style="{style}">{escape(line)}</div>' for line in lines))


def write_notice(words: str) -> None:
    """Write a sentence about what went wrong."""
    text = escape(escape_controls(words))
    st.html(f'<div class="ap"><div class="notice error"><span>{text}</span></div></div>')
