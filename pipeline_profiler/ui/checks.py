"""Checks: the results of `pipeline-profiler check`, from its saved documents.

The table comes first, then each failed check with its causes, numbers and next step, and the
images as the model gets them. Every text is shown as text.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import streamlit as st

from dataset_preflight.foundation.terminal import escape_controls
from pipeline_profiler.checks.document import counts_text, overall_state, parse_checks
from pipeline_profiler.profiling.record.session import MOST_BYTES
from pipeline_profiler.ui.sessions import nearby
from pipeline_profiler.ui.texts import choose_of_link, drawing, write_pairs, write_text

SCHEMA = b"checks/"
EMPTY = "Write one with `pipeline-profiler check train.py -o checks.json`, then reload this page."


@drawing("This document could not be drawn ({kind}).")
def page() -> None:
    """Show the page."""
    st.title("Checks")
    known = nearby(SCHEMA)
    if not known:
        write_text("There is no document of checks here yet.", strong=True)
        write_text(EMPTY)
        return
    name = choose_of_link("Document", "checks", list(known))
    made = _loaded(known[name], known[name].stat().st_mtime_ns)
    counts = made["summary"]
    head = f"{overall_state(counts)}: {made['subject']} ({counts_text(counts)})"
    write_text(head, strong=True)
    write_text(made["ended"])
    if made["checks"]:
        st.dataframe(answers_frame(made), hide_index=True, width="stretch")
    for entry in made["checks"]:
        if entry["verdict"] == "failed":
            _failed(entry)
    if made["grid"]:
        st.header("Images as the model gets them")
        st.image(made["grid"])


@st.cache_resource(max_entries=4)
def _loaded(path: Path, changed: int) -> dict[str, Any]:
    with path.open("rb") as file:
        return parse_checks(file.read(MOST_BYTES + 1), path.name)


def answers_frame(made: dict[str, Any]) -> pl.DataFrame:
    """Return `verdict, code, name, sentence, next`, failed ones first."""
    names = ("verdict", "code", "name", "sentence", "next")
    shown = [[escape_controls(entry[name]) for name in names] for entry in made["checks"]]
    return pl.DataFrame(shown, schema=dict.fromkeys(names, pl.String), orient="row")


def _failed(entry: dict[str, Any]) -> None:
    with st.container(border=True):
        write_text(f"failed: {entry['code']} {entry['name']}", strong=True)
        if entry["evidence"]:
            write_pairs("number", entry["evidence"])
        write_text(entry["sentence"])
        if entry["causes"]:
            write_text(f"Likely: {'; '.join(entry['causes'])}.")
        write_text(f"Next: {entry['next']}" if entry["next"] else "")
