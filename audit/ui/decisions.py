"""Decisions: the log, undo, obsolete decisions, the export; and the sidebar part of every page.

The sidebar reads the log each second, and redraws the page for decisions of others.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import polars as pl
import streamlit as st

from audit.decisions.box_fixes import describe_open_faults, fix_open_faults, open_faults
from audit.decisions.store import DecisionStore
from audit.errors import AuditError
from audit.exports.annotation_export import FORMS as ANNOTATED
from audit.exports.application import HOWS
from audit.exports.export import TABLE_FORMS, Exported, export_as
from audit.exports.review_tasks import TOOLS
from audit.results import findings as browse
from audit.results.decision_summary import PairAgreement, disagreements, measure_agreement
from audit.results.findings import FindingFilter
from audit.results.formatting import counted
from audit.service.work import start_job
from audit.ui import html, link
from audit.ui.deciding import PRESSED, button, describe, page_key, record_here, reviewer, undo
from audit.ui.guard import NAMING, served, serving
from audit.ui.opened import Opened, me, open_chosen_run, run_name, safely, say
from audit.ui.start import begin, is_busy, show_work
from dataset_preflight.foundation.terminal import visible

OUT = "folder of the export"
FORMAT = "format of the export"
WRITTEN = "written by the export"
MOST = 12  # files in a list
OWN = 20  # batches of one's own that are offered to be taken back
RESTS_S = 1.0  # after the last message of keys
FOLLOW_S = 5.0  # between drawings of the whole page for what others decide: 20 do so all the time
FOLLOWED = "when the whole page was drawn for what others decided, monotonic"
SEEN = "revision of the decisions when the whole page was drawn"
TABLES = (
    "The manifest of the kept set (relabels and moves applied), the quarantine list with reasons, "
    "lists of file names, duplicate pairs and per-sample scores."
)
FOLDER = (
    "A new folder split/class/file with relabels and moves applied, dropped files left out, and a "
    "manifest; annotations go along into the folder of its plan, beside it."
)
ANNOTATIONS = "The annotations of the kept images, with the fixes that were decided."
TASKS = (
    "The images of the findings chosen; where none is, every image with an open finding or a "
    "decision. `audit decide --from` reads the answers."
)
CHOSEN = "findings whose images are exported"
FORMS = {
    "csv": ("Tables, CSV", TABLES),
    "parquet": ("Tables, Parquet", TABLES),
    "copy": ("The kept set: a folder of copies", FOLDER),
    "hardlink": ("The kept set: a folder of hard links", FOLDER),
    "coco": ("Annotations, COCO", ANNOTATIONS),
    "yolo": ("Annotations, YOLO", ANNOTATIONS),
    "voc": ("Annotations, Pascal VOC", ANNOTATIONS),
    "label-studio": ("Tasks to review, Label Studio", TASKS),
    "cvat": ("Tasks to review, CVAT", TASKS),
}


def page() -> None:
    """Show the page."""
    run = open_chosen_run()
    st.title("Decisions")
    html.paragraph(
        "The append-only decision log of the run. Your files are never moved, changed or "
        "deleted: an export lists the files to use.",
        "quiet",
    )
    log, out = st.columns([3, 2], gap="large")
    with log:
        _own(run)
        _disagreements(run)
        _log(run)
        _stale(run)
    with out:
        _export(run)


def _own(run: Opened) -> None:
    person = me()
    mine = DecisionStore(run.run).batches(person.name, OWN) if person.may_decide else []
    if not mine:
        return
    st.header("Undo your decisions")
    for one in mine:
        left, right = st.columns([5, 1], vertical_alignment="center")
        with left:
            html.paragraph(f"{one.at[:16].replace('T', ' ')}: {describe(run, one)}", "small")
        with right:
            button("Undo", f"undo {one.batch}", partial(undo, run, one))


def _log(run: Opened) -> None:
    st.header("Latest decisions")
    if not run.decisions.recent:
        html.empty(
            "Nothing was decided yet.",
            "Open Findings or Duplicates: K keeps, D drops, F marks a false positive, U undoes.",
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
            "undone" if d.undone else "",
        )
        for d in run.decisions.recent
    ]
    names = ["when (UTC)", "by", "decision", "to", "about a", "subject", "note", "state"]
    frame = pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row")
    html.table(frame)


def _disagreements(run: Opened) -> None:
    """Show what people see differently; nothing where they agree."""
    answers = DecisionStore(run.run).answers()
    otherwise = disagreements(answers)
    if otherwise.is_empty():
        return
    st.header("Where people disagree")
    html.paragraph("The latest decision counts. Decide again to settle it.", "quiet small")
    html.table(otherwise)
    rows = [
        (f"{visible(pair.first)} and {visible(pair.second)}", _agreed(pair))
        for pair in measure_agreement(answers)
    ]
    html.write_html(html.value_table(rows))


def _agreed(pair: PairAgreement) -> str:
    known = pair.kappa is not None
    kappa = f"; kappa {pair.kappa:.2f} ({pair.low:.2f} to {pair.high:.2f})" if known else ""
    return f"alike in {pair.alike:,} of {pair.n:,}{kappa}"


def _stale(run: Opened) -> None:
    stale = run.decisions.applied.stale
    if not stale.height:
        return
    st.header("No longer apply")
    html.paragraph(
        "Their file or finding has changed since. The log keeps these decisions but does not "
        "apply them.",
        "quiet small",
    )
    html.table(stale.select("kind", "subject", "reason", "verb", "value", "by", "at"))


def _export(run: Opened) -> None:
    st.header("Export")
    if served():  # a path that a person types is opened on the person's own machine only
        html.paragraph("On the server, with audit export and audit apply.", "small")
        return
    html.paragraph(
        f"{counted(run.decisions.applied.effective.height, 'sample')} decided. An export writes "
        "new files; yours stay as they are.",
        "small",
    )
    st.selectbox("What to write", list(FORMS), key=FORMAT, format_func=lambda f: FORMS[f][0])
    form = str(st.session_state[FORMAT])
    html.paragraph(FORMS[form][1], "quiet small")
    if form in TOOLS:
        counts = browse.facet(run, FindingFilter(status=browse.IS_OPEN), "code")
        names = {check.code: check.name for check in run.report().checks}
        st.multiselect(
            "Findings",
            list(counts),
            key=CHOSEN,
            format_func=lambda c: f"{c} {visible(names.get(c, ''))} ({counts[c]:,} open)",
        )
    if form in ANNOTATED and (faults := describe_open_faults(run.run)):
        html.notice(faults)
        button("Fix them first", "fix faults", partial(_fix_faults, run))
    st.text_input("Folder to write", key=OUT, placeholder=visible(str(_default(run, form))))
    is_folder = form in HOWS
    act = partial(_make, run, form) if is_folder else partial(_write, run, form)
    button("Export", "export", act, primary=True, disabled=is_folder and is_busy())
    if is_folder:
        show_work()
        return
    written: tuple[str, Exported] | None = st.session_state.get(WRITTEN)
    if written is not None and written[0] == form:
        _show_written(written[1])


def _fix_faults(run: Opened) -> None:
    done = record_here(run.run, lambda path, by: fix_open_faults(path, by=by))
    left = open_faults(run.run)
    rest = f" {sum(left.values()):,} are left to judge: see Findings." if left else ""
    say(f"Marked to be fixed: {counted(len(done), 'finding')}. U undoes it.{rest}")


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
    reviewer()
    out = _folder(run, form)
    codes = st.session_state.get(CHOSEN, []) if form in TOOLS else []
    st.session_state[WRITTEN] = (form, export_as(run.run, out, form, codes=codes))
    say(f"Exported to {out}.")


def _make(run: Opened, form: str) -> None:
    reviewer()
    out = _folder(run, form)
    begin(start_job(f"Folder of {run.name}", "apply", run.run, [str(out), form], makes=out))


def show_decided() -> None:
    """Draw who this is, Undo, and what was decided, which follows the log."""
    person = me()
    if serving() is not None:
        rename = f'<a class="small" href="{NAMING}" target="_self">Change the name</a>'
        html.write_html(
            html.tag("span", person.name, "strong"),
            html.tag("span", f" {'decides' if person.may_decide else 'looks on'} ", "quiet small"),
            "" if served() else rename,
        )
    try:
        if run_name() is None:
            return
        run = open_chosen_run()
    except (AuditError, OSError):
        return  # the page says what is wrong
    if person.may_decide:
        st.button(
            "Undo",
            key="undo",
            shortcut=page_key("U"),
            on_click=partial(undo, run),
            help="Undoes your decisions, the latest first.",
            icon=":material/undo:",
            width="stretch",
        )
    st.session_state[SEEN] = run.decisions.revision
    _follow(run)
    if st.button("Decisions and export", icon=":material/history:", width="stretch"):
        link.go("decisions", run=link.get("run"))
        st.rerun()


@st.fragment(run_every="1s")
def _follow(run: Opened) -> None:
    safely(_summary, run)


def _summary(run: Opened) -> None:
    now, seen = open_chosen_run(), st.session_state.get(SEEN, run.decisions.revision)
    # Not in the middle of one's own keys: the whole page takes longer to draw than a key does.
    at = time.monotonic()
    rests = at - st.session_state.get(PRESSED, -RESTS_S) >= RESTS_S
    rests = rests and at - st.session_state.get(FOLLOWED, -FOLLOW_S) >= FOLLOW_S
    if now.run == run.run and now.decisions.revision != seen and rests:
        news = DecisionStore(now.run).has_news(seen, me().name)
        st.session_state[SEEN] = now.decisions.revision
        if news:
            st.session_state[FOLLOWED] = at
            st.rerun()
    summary = now.decisions
    last = summary.last
    if last is None:
        html.paragraph("Nothing decided yet.", "quiet small")
        return
    what = "" if last.kind == "finding" else f" of {last.subject.rsplit('/', 1)[-1]}"
    html.paragraph(
        f"{counted(summary.applied.effective.height, 'sample')} decided, "
        f"{counted(len(summary.settled), 'finding')} settled. "
        f"Last: {last.verb.value}{what}, by {last.by}.",
        "quiet small",
    )
    if summary.applied.stale.height:
        html.paragraph(
            f"{counted(summary.applied.stale.height, 'decision')} no longer apply: see Decisions.",
            "quiet small",
        )
