"""Predictions beside truth, on the page of subsets: wrong answers as a table and as pictures."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import streamlit as st

from audit.browse.disagreements import Disagreements, find_disagreements
from audit.browse.images import cards
from audit.errors import AuditError
from audit.printable import visible_frame
from audit.report.wording import counted
from audit.subset.predictions import read_predictions
from audit.ui import html
from audit.ui.detail import open_image
from audit.ui.gallery import show_gallery
from audit.ui.opened import Opened

FILE = "predictions file"  # of the session: a link of somebody else never names a file to read
SHOWN = 24


def draw_disagreements(run: Opened, rows: pl.DataFrame, about: str) -> None:
    """Ask for a file of predictions, and show where it differs from the labels of `rows`."""
    st.header("Predictions beside truth")
    given = st.text_input(
        "File with a model's predictions: CSV, Parquet, JSON lines or .npz",
        key=FILE,
        placeholder="predictions.csv with sample_id, prediction, confidence",
    ).strip()
    if not given:
        html.paragraph("Wrong answers are listed here, those of highest confidence first.", "quiet")
        return
    path = Path(given).expanduser()
    try:
        found = find_disagreements(rows, read_predictions(path), path.name)
    except AuditError as error:
        html.notice(str(error), "error")
        return
    _summary(found, about)
    if not found.table.is_empty():
        _pictures(run, found.table.head(SHOWN))
        st.dataframe(visible_frame(found.table), hide_index=True, width="stretch", height=280)


def _summary(found: Disagreements, about: str) -> None:
    of_all = found.accuracy
    limits = "" if of_all.known else f", {of_all.low:.1%} to {of_all.high:.1%}"
    html.paragraph(
        f"{found.right:,} of {counted(found.n, 'example')} of {about} right: accuracy "
        f"{of_all.value:.1%}{limits} on all of the set.",
        "strong",
    )
    for note in found.notes:
        html.paragraph(note, "small")


def _pictures(run: Opened, worst: pl.DataFrame) -> None:
    lines = {row["sample_id"]: _lines(row) for row in worst.iter_rows(named=True)}
    with run.store() as store:
        shown = cards(store, list(lines))
    show_gallery(
        "wrong answers",
        shown,
        run.thumbnails().many(shown),
        marks={row["sample_id"]: "suspected mislabel" for row in worst.iter_rows(named=True)
               if row["suspected_mislabel"]},
        lines=lambda card: lines[card.id],
        on_open=open_image,
    )  # fmt: skip


def _lines(row: dict[str, object]) -> list[str]:
    confidence = row["confidence"]
    sure = f"confidence {confidence:.2f}" if isinstance(confidence, float) else ""
    return [f"labelled {row['truth']}", f"predicted {row['prediction']}", *([sure] if sure else [])]
