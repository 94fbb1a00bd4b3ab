"""Decisions: the log of the ledger, what no longer applies, and the export of the kept set."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import polars as pl
import streamlit as st

from audit.exports.export import TABLE_FORMS, Exported, export_as
from audit.report.wording import counted
from audit.sources.tables import visible_frame
from audit.ui import html
from audit.ui.deciding import button
from audit.ui.opened import Opened, open_chosen_run, say
from audit.ui.start import begin, is_busy, show_work
from audit.ui.work import start_job
from preflight.terminal import visible

OUT = "folder of the export"
FORMAT = "format of the export"
WRITTEN = "written by the export"
MOST = 12  # files in a list
FORMS = {
    "csv": "Tables, CSV",
    "parquet": "Tables, Parquet",
    "copy": "The kept set: a folder of copies",
    "hardlink": "The kept set: a folder of hard links",
    "coco": "Annotations, COCO",
    "yolo": "Annotations, YOLO",
    "voc": "Annotations, Pascal VOC",
    "label-studio": "Tasks to review, Label Studio",
    "cvat": "Tasks to review, CVAT",
}
FOLDERS = ("copy", "hardlink")
FOLDER = (
    "A new folder split/class/file with relabels and moves applied, dropped files left out, and a "
    "manifest; annotations go along into the folder of its plan, beside it."
)
ANNOTATIONS = "The annotations of the kept pictures, with the fixes that were decided."
TASKS = "Every picture with an open finding or a decision; `audit decide --from` reads the answers."
MEANING = {
    "copy": FOLDER,
    "hardlink": FOLDER,
    **dict.fromkeys(("coco", "yolo", "voc"), ANNOTATIONS),
    **dict.fromkeys(("label-studio", "cvat"), TASKS),
    "tables": "The manifest of the kept set (relabels and moves applied), the quarantine list with "
    "reasons, lists of file names, duplicate pairs and per-sample scores.",
}


def page() -> None:
    """Show the page."""
    run = open_chosen_run()
    st.title("Decisions")
    html.paragraph(
        "Decisions are kept in the run's ledger, which is only ever added to. Your files "
        "are never moved, changed or deleted: an export lists what to use.",
        "quiet",
    )
    log, out = st.columns([3, 2], gap="large")
    with log:
        _log(run)
        _stale(run)
    with out:
        _export(run)


def _log(run: Opened) -> None:
    st.header("Latest decisions")
    if not run.ledger.recent:
        html.empty(
            "Nothing was decided yet.",
            "Open Findings or Duplicates: K keeps, D drops, F marks a false positive, "
            "U takes back.",
        )
        return
    rows = [
        (
            d.at.replace("T", " ").removesuffix("+00:00"),
            d.by,
            d.verb.value,
            d.value or "",
            d.kind,
            d.subject,
            d.note,
            "taken back" if d.undone else "",
        )
        for d in run.ledger.recent
    ]
    names = ["when (UTC)", "by", "decision", "to", "about a", "subject", "note", "state"]
    frame = pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row")
    st.dataframe(visible_frame(frame), hide_index=True, width="stretch")


def _stale(run: Opened) -> None:
    stale = run.ledger.stale
    if not stale.height:
        return
    st.header("No longer apply")
    html.paragraph(
        "These are about a file or finding that has changed since. They are kept, and not applied.",
        "quiet small",
    )
    st.dataframe(
        visible_frame(stale.select("kind", "subject", "reason", "verb", "value", "by", "at")),
        hide_index=True,
        width="stretch",
    )


def _export(run: Opened) -> None:
    st.header("Export")
    html.paragraph(
        f"{counted(run.ledger.n_effective, 'sample')} decided. An export writes new files; yours "
        "stay as they are.",
        "small",
    )
    st.selectbox("What to write", list(FORMS), key=FORMAT, format_func=FORMS.__getitem__)
    form = str(st.session_state[FORMAT])
    html.paragraph(MEANING.get(form, MEANING["tables"]), "quiet small")
    st.text_input("Folder to write", key=OUT, placeholder=visible(str(_default(run, form))))
    act = partial(_make, run, form) if form in FOLDERS else partial(_write, run, form)
    button("Export", "export", act, primary=True, disabled=form in FOLDERS and is_busy())
    if form in FOLDERS:
        show_work()
        return
    written: tuple[str, Exported] | None = st.session_state.get(WRITTEN)
    if written is not None and written[0] == form:
        _show_written(written[1])


def _show_written(made: Exported) -> None:
    html.paragraph(" ".join(made.said) or "Written.", "strong")
    rows = [(path.name, f"{n:,}") for path, n in list(made.files.items())[:MOST]]
    more = len(made.files) - len(rows)
    html.write_html(html.value_table([*rows, *([("and more files", f"{more:,}")] if more else [])]))
    if made.files:
        html.paragraph(str(next(iter(made.files)).parent.resolve()), "mono quiet")


def _default(run: Opened, form: str) -> Path:
    return Path("exports") / (run.name if form in TABLE_FORMS else f"{run.name}-{form}")


def _folder(run: Opened, form: str) -> Path:
    return Path(st.session_state[OUT].strip() or str(_default(run, form))).expanduser()


def _write(run: Opened, form: str) -> None:
    out = _folder(run, form)
    st.session_state[WRITTEN] = (form, export_as(run.run, out, form))
    say(f"Exported to {out}.")


def _make(run: Opened, form: str) -> None:
    out = _folder(run, form)
    begin(start_job(f"Folder of {run.name}", "apply", run.run, [str(out), form], makes=out))
