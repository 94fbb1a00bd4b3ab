"""Subset designer: from the precision you need to the examples to evaluate, ready to download.

A model's predictions are shown beside the truth: its wrong answers as a table and as pictures."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import altair as alt
import polars as pl
import streamlit as st

from audit.browse import subsets
from audit.browse.images import cards
from audit.browse.subsets import Disagreements, find_disagreements
from audit.errors import AuditError, UsageError
from audit.report.wording import counted
from audit.sources.tables import visible_frame
from audit.subset import Curve, Goal, Plan, Subset, census, draw_subset, make_curve, make_plan
from audit.subset.predictions import read_predictions
from audit.subset.source import frame_from_run
from audit.ui import html, link
from audit.ui.detail import dialogue
from audit.ui.gallery import show_gallery
from audit.ui.opened import Opened, answering, cached, open_chosen_run

TARGETS = ("Half-width", "Difference", "Budget")
METRICS = ("accuracy", "macro-recall", "recall", "specificity")
ALL = "all files"
DRAWN = "drawn subset"


@dataclass(frozen=True)
class Wish:
    """What the controls ask for; hashable, so that a plan is made once for it."""

    goal: Goal
    split: str
    by: tuple[str, ...]
    group: str | None
    deduplicated: bool


def page() -> None:
    """Show the page."""
    run = open_chosen_run()
    st.title("Subset designer")
    html.paragraph(
        "How many examples to evaluate for the precision you need, and what they buy.", "quiet"
    )
    controls, result = st.columns([3, 8], gap="large")
    with controls:
        wish = _controls(run)
    with result:
        if wish is not None:
            _result(run, wish)
    dialogue()


def _controls(run: Opened) -> Wish | None:
    splits = sorted((s for s in run.report().dataset.by_split() if s), key=lambda s: s != "test")
    split = link.choose("Draw from", "split", [*splits, ALL], any_=None)
    frame = _frame(run.key, split, run)
    metric = _metric(frame)
    target = link.switch("Target", "target", TARGETS)
    goal = _goal(metric, target, frame)
    properties = [c for c in frame.columns if frame[c].dtype.is_numeric()]
    by = link.choose("Strata besides the class", "by", properties, any_="none")
    groups = ["group"] if frame["group"].null_count() < frame.height else []
    group = link.choose("Units taken whole", "group", groups, any_="single files") or None
    deduplicated = link.toggle("Count every picture once", "once")
    return Wish(goal, split, (by,) if by else (), group, deduplicated)


def _metric(frame: pl.DataFrame) -> str:
    metric = link.choose("Metric", "metric", METRICS, any_=None)
    if metric in ("recall", "specificity"):
        labels = frame["label"].drop_nulls().unique().sort().to_list()
        if not labels:
            raise UsageError(f"These files have no class to measure the {metric} of: choose "
                             "accuracy, or scan with labels.")  # fmt: skip
        return f"{metric}:{link.choose('Of class', 'class', labels, any_=None)}"
    return metric


def _goal(metric: str, target: str, frame: pl.DataFrame) -> Goal:
    half_width = detect = n = None
    if target == TARGETS[0]:
        half_width = link.slide("Half-width of the interval, points", "half", 0.5, 20.0, 5.0, 0.5)
    elif target == TARGETS[1]:
        detect = link.slide("Smallest difference to detect, points", "diff", 0.5, 30.0, 10.0, 0.5)
    else:
        n = link.slide(
            "Examples to evaluate", "n", 2, max(frame.height, 3), max(frame.height // 2, 2), 1
        )
    looks = link.slide(
        "Looks: comparisons fixed in advance",
        "looks",
        1,
        20,
        1,
        1,
        help="The error rate is shared among them, so each needs more examples.",
    )
    confidence = link.choose(
        "Confidence", "confidence", ("95", "90", "99"), any_=None, shown=lambda c: f"{c} %"
    )
    power = link.choose("Power", "power", ("80", "90"), any_=None, shown=lambda c: f"{c} %")
    return Goal(
        metric=metric,
        half_width=link.share(half_width),
        detect=link.share(detect),
        n=None if n is None else int(n),
        looks=int(looks),
        confidence=link.share(float(confidence)) or 0.95,
        power=link.share(float(power)) or 0.8,
    )


@st.cache_resource(max_entries=4, show_spinner="Reading the run …")
def _frame(key: str, split: str, _run: Opened) -> pl.DataFrame:
    return frame_from_run(_run.run, None if split == ALL else split)


def _result(run: Opened, wish: Wish) -> None:
    plan, curve = _planned(run.key, wish, run)
    _headline(plan)
    _curve(plan, curve)
    for target in plan.unreachable[:6]:
        html.notice(target.sentence[:1].upper() + target.sentence[1:])
    st.header(
        "What each class gets",
        help="Half-widths and the detectable difference of the class's recall, in percentage "
        "points; one answer: what a single example moves it by.",
    )
    table = subsets.class_table(plan)
    in_points = [name for name in table.columns if table[name].dtype == pl.Float64]
    one_digit = {name: st.column_config.NumberColumn(format="%.1f") for name in in_points}
    st.dataframe(visible_frame(table), hide_index=True, width="stretch", column_config=one_digit)
    drawn = _draw(run, wish, plan)
    if drawn is None:
        draw_disagreements(run, _whole(run.key, wish, run), "the whole set")
    else:
        draw_disagreements(run, drawn.rows, "the drawn subset")
    _reasons(plan)


@cached
def _whole(key: str, wish: Wish, _run: Opened) -> pl.DataFrame:
    frame = _frame(_run.key, wish.split, _run)
    return census(frame, group=wish.group, deduplicated=wish.deduplicated).rows


@cached
def _planned(key: str, wish: Wish, _run: Opened) -> tuple[Plan, Curve]:
    frame = _frame(_run.key, wish.split, _run)
    more = {"by": wish.by, "group": wish.group, "deduplicated": wish.deduplicated}
    plan = make_plan(frame, wish.goal, merge_strata=True, **more)  # type: ignore[arg-type]
    return plan, make_curve(frame, wish.goal, **more)  # type: ignore[arg-type]


def _headline(plan: Plan) -> None:
    unit = "groups" if plan.recipe.group else "examples"
    html.write_html(html.tag("p", f"{plan.n:,} of {plan.n_units:,} {unit}", "strong"))
    columns = st.columns(4)
    shown: list[tuple[str, str]] = []
    for name, figures in plan.estimands.items():
        about = subsets.MEANING[name]
        shown.append((f"Half-width, {about}", f"± {_points(figures.half_width)}"))
        shown.append((f"Detects, {about}", _points(figures.detectable_difference)))
    for column, (label, value) in zip(columns, shown, strict=False):
        column.metric(html.label(label), value, border=True)
    html.paragraph(subsets.EXPLAINED, "quiet small")


def _points(share: float) -> str:
    value = subsets.in_points(share)
    return "n/a" if value is None else f"{value:.1f}"


def _curve(plan: Plan, curve: Curve) -> None:
    table = subsets.curve_table(curve).drop_nulls("half_width")
    shown = link.switch("Curve", "curve", ("Half-width", "Detectable difference"))
    field = "half_width" if shown == "Half-width" else "detectable"
    lines = (
        alt.Chart(table)
        .mark_line(point=True)
        .encode(
            x=alt.X(
                "n:Q",
                scale=alt.Scale(type="log", nice=False),
                title="examples evaluated",
                axis=alt.Axis(format=",d", tickCount=8),
            ),
            y=alt.Y(f"{field}:Q", title=f"{shown.lower()}, points"),
            color=alt.Color("about:N", title=None, legend=alt.Legend(orient="top")),
            tooltip=[
                "about",
                alt.Tooltip("n:Q", format=","),
                alt.Tooltip("half_width:Q", format=".2f"),
                alt.Tooltip("detectable:Q", format=".2f"),
            ],
        )
    )
    here = alt.Chart(pl.DataFrame({"n": [plan.n]})).mark_rule(strokeDash=[5, 4]).encode(x="n:Q")
    st.altair_chart(alt.layer(lines, here).properties(height=280), width="stretch")
    html.paragraph(f"The dashed line is this plan: {plan.n:,}.", "quiet small")


def _reasons(plan: Plan) -> None:
    with st.expander("Why these figures, and what was left out"):
        for reason in plan.reasons:
            html.paragraph(reason, "small")
        left_out = Counter(e["reason"] for e in plan.excluded).most_common()
        rows = [(reason, counted(n, "file")) for reason, n in left_out]
        html.write_html(html.value_table(rows)) if rows else html.paragraph(
            "Nothing was left out.", "small"
        )


def _draw(run: Opened, wish: Wish, plan: Plan) -> Subset | None:
    """Draw on demand and offer the rows; returns what is drawn for this plan, if anything."""
    st.header("Draw and download")
    with st.container(horizontal=True, vertical_alignment="bottom"):
        seed = st.number_input(
            "Seed",
            value=0,
            step=1,
            width=140,
            help="The same seed draws the same examples; a larger draw holds the smaller one.",
        )
        st.button(
            "Draw",
            type="primary",
            on_click=answering(partial(_store_draw, run, wish, plan, int(seed))),
        )
        st.download_button(
            "Download the plan",
            data=partial(subsets.plan_json, plan),
            file_name=f"{run.name}-plan.json",
            mime="application/json",
            on_click="ignore",
        )
    stored = st.session_state.get(DRAWN)
    if stored is None or stored[0] != (run.key, wish, int(seed)):
        html.paragraph("Nothing is drawn for this plan yet.", "quiet small")
        return None
    subset: Subset = stored[1]
    _downloads(run, subset)
    return subset


def _store_draw(run: Opened, wish: Wish, plan: Plan, seed: int) -> None:
    frame = _frame(run.key, wish.split, run)
    subset = draw_subset(frame, plan.recipe, seed)
    st.session_state[DRAWN] = ((run.key, wish, seed), subset)


def _downloads(run: Opened, subset: Subset) -> None:
    html.paragraph(
        f"Drew {subset.n_units:,} of {subset.population_units:,}: "
        f"{counted(len(subset.rows), 'file')}.",
        "strong",
    )
    for note in subset.notes:
        html.paragraph(note, "small")
    with st.container(horizontal=True):
        for label, data, ending in (
            ("Download CSV", lambda: subset.rows.write_csv().encode(), "csv"),
            ("Download Parquet", partial(subsets.subset_parquet, subset), "parquet"),
        ):
            st.download_button(
                label,
                data=data,
                file_name=f"{run.name}-subset.{ending}",
                on_click="ignore",
                icon=":material/download:",
            )
    first = visible_frame(subset.rows.head(200))
    st.dataframe(first, hide_index=True, width="stretch", height=280)


# ---- predictions beside truth ----


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
        run,
        "wrong answers",
        shown,
        marks={row["sample_id"]: "suspected mislabel" for row in worst.iter_rows(named=True)
               if row["suspected_mislabel"]},
        lines=lambda card: lines[card.id],
    )  # fmt: skip


def _lines(row: dict[str, object]) -> list[str]:
    confidence = row["confidence"]
    sure = f"confidence {confidence:.2f}" if isinstance(confidence, float) else ""
    return [f"labelled {row['truth']}", f"predicted {row['prediction']}", *([sure] if sure else [])]
