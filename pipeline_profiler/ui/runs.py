"""Runs: the table of runs, to filter and sort, and one run with its diff."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import polars as pl
import streamlit as st

from dataset_preflight.foundation.terminal import escape_controls
from pipeline_profiler.profiling.record.errors import ProfileError
from pipeline_profiler.runs.entry import default_file
from pipeline_profiler.runs.row import RunRow
from pipeline_profiler.runs.table_file import best_figure, read_row, read_rows
from pipeline_profiler.ui.texts import drawing, write_pairs, write_text

ANY = "all"
DETAILS = ("note", "config", "file", "git_commit")


@drawing("The table of runs could not be drawn ({kind}).")
def page() -> None:
    """Show the page."""
    st.title("Runs")
    tables = tables_of_runs()
    path = st.selectbox("Table", list(tables), format_func=str) if len(tables) > 1 else None
    path = path or next(iter(tables), None)
    rows = tables[path] if path is not None else []
    if not rows:
        write_text("No run is recorded yet.", strong=True)
        write_text(
            "Each measurement and run of checks adds a row, unless PIPELINE_PROFILER_RUNS is off "
            "or `[record] enabled` is false."
        )
        return
    left, middle, right = st.columns(3)
    study = left.selectbox("Study", [ANY, *sorted({row.study for row in rows})], key="study")
    command = middle.selectbox("Command", [ANY, *sorted({r.command for r in rows})], key="command")
    word = right.text_input("Word", key="word", help="looked for in every text, diffs included")
    found = read_rows(path, str(word)) if word and path is not None else rows
    chosen = [
        row
        for row in reversed(found)
        if study in (ANY, row.study) and command in (ANY, row.command)
    ]
    st.dataframe(runs_frame(chosen), hide_index=True, width="stretch")
    if chosen and path is not None:
        number = st.selectbox("Run", [row.id for row in chosen], key="run number")
        _show_run(read_row(path, int(number)))


def tables_of_runs() -> dict[Path, list[RunRow]]:
    """Return the tables of runs with rows: of commands, here, in ./runs and near the inputs."""
    given = [Path(word) for word in sys.argv[1:] if not word.startswith("-")]
    folders = [Path(), Path("runs"), *(folder for one in given for folder in (one, one.parent))]
    usual = default_file(os.environ)
    places = [*([usual] if usual else []), *(folder / "runs.sqlite" for folder in folders)]
    found: dict[Path, list[RunRow]] = {}
    for place in dict.fromkeys(place.absolute() for place in places if place.is_file()):
        try:
            rows = read_rows(place)
        except ProfileError:
            if usual is not None and place == usual.absolute():
                raise
            continue  # a file of that name that is no table of runs
        if rows:
            found[place] = rows
    return found


def runs_frame(rows: list[RunRow]) -> pl.DataFrame:
    """Return the rows as a table, texts with their control characters as escapes."""
    shown = [
        (row.id, row.time[:16].replace("T", " "), row.study, row.command, row.verdict, row.trials,
         best_figure(row), row.value, row.note, row.file)
        for row in rows
    ]  # fmt: skip
    names = ("run", "time", "study", "command", "verdict", "trials", "best", "value", "note",
             "file")  # fmt: skip
    types = {"run": pl.Int64, "trials": pl.Int64, "value": pl.Float64}
    cells = [[escape_controls(v) if isinstance(v, str) else v for v in row] for row in shown]
    return pl.DataFrame(cells, schema={n: types.get(n, pl.String) for n in names}, orient="row")


def _show_run(row: RunRow) -> None:
    data = row.as_dict()
    shown = [(name.replace("_", " "), str(data[name])) for name in DETAILS if data[name]]
    write_pairs("of this run", shown)
    if row.git_diff:
        st.header("Uncommitted changes")
        st.code(escape_controls(row.git_diff), language="diff")
    else:
        write_text("No uncommitted changes are recorded.")
