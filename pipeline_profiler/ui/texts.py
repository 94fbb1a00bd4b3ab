"""Text on a page: always as text, never as Markdown or HTML, whatever a file says.

Names, sentences and notes come from strangers' files. Control and direction characters are shown
as escapes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape
from typing import Any

import polars as pl
import streamlit as st

from dataset_preflight.foundation.terminal import escape_controls
from pipeline_profiler.profiling.record.errors import ProfileError

LOG = logging.getLogger("pipeline-profiler.app")


def write_text(words: str, *, strong: bool = False) -> None:
    """Write lines of text."""
    if words:
        style = "overflow-wrap:anywhere;line-height:1.5;" + ("font-weight:600" if strong else "")
        lines = escape_controls(words).split("\n")
        st.html("".join(f'<div style="{style}">{escape(line)}</div>' for line in lines))


@st.cache_resource
def _drawn() -> Any:
    return st.components.v2.component(
        "pipeline-profiler-drawn",
        html='<div class="drawn"></div>',
        css=".drawn { font-family: var(--st-font); color: var(--st-text-color); overflow-x: auto; }"
        " .drawn svg { fill: currentColor; max-width: 100%; height: auto }"
        " .drawn figure { margin: 0 }",
        js="export default ({data, parentElement}) => "
        '{ parentElement.querySelector(".drawn").innerHTML = data.markup; }',
    )


def draw_markup(markup: str, key: str) -> None:
    """Draw a chart of a report, whose texts are escaped: Streamlit takes drawings out of HTML."""
    _drawn()(key=key, data={"markup": markup})


def write_notice(words: str) -> None:
    """Write a sentence about what went wrong."""
    text = escape(escape_controls(words))
    st.html(f'<div class="ap"><div class="notice error"><span>{text}</span></div></div>')


@contextmanager
def drawing(failed: str) -> Iterator[None]:
    """Turn an error into a sentence; `failed` may use {kind} and {said} of the error."""
    try:
        yield
    except ProfileError as error:
        write_notice(str(error))
    except Exception as error:
        LOG.exception("page failed")
        said = str(error).splitlines()[0] if str(error) else "no text"
        write_notice(failed.format(kind=type(error).__name__, said=said))


def choose_of_link(label: str, name: str, options: Sequence[str], placeholder: str = "") -> str:
    """Draw a choice that the link holds, else the first option; "" with a placeholder."""
    asked = str(st.query_params.get(name, ""))
    st.session_state[name] = asked if asked in options else None if placeholder else options[0]

    def changed() -> None:
        if chosen := st.session_state[name]:
            st.query_params[name] = chosen
        else:
            st.query_params.pop(name, None)

    hint = placeholder or None
    chosen = st.selectbox(label, options, key=name, placeholder=hint, on_change=changed)
    return str(chosen or "")


def write_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write a table whose cells are sentences, which fold."""
    style = "text-align:left;vertical-align:top;padding:4px 16px 4px 0;overflow-wrap:break-word"
    lines = [
        "".join(f'<{tag} style="{style}">{escape(escape_controls(cell))}</{tag}>' for cell in row)
        for tag, row in [("th", head), *(("td", row) for row in rows)]
    ]
    st.html(f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>")


def write_pairs(name: str, rows: Sequence[Sequence[str]]) -> None:
    """Write a table of names and values."""
    shown = [[escape_controls(text) for text in row] for row in rows]
    schema = {name: pl.String, "value": pl.String}
    frame = pl.DataFrame(shown, schema=schema, orient="row")
    st.dataframe(frame, hide_index=True, width="stretch")
