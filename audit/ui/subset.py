"""Subset designer: from the required precision to the samples to evaluate, ready to download."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl
import streamlit as st

from audit.errors import AuditError, UsageError
from audit.results import similar
from audit.results.distributions import extent
from audit.results.filters import Between, Condition, OneOf
from audit.results.formatting import counted
from audit.results.images import cards
from audit.results.report_data import Card
from audit.statistics.slices import NONE, find_slices, slice_rows
from audit.subset import Curve, Goal, Plan, Subset, census, draw_subset, make_curve, make_plan
from audit.subset.predictions import read_predictions
from audit.subset.source import frame_from_run
from audit.ui import html, link, subset_tables
from audit.ui.charts import explore_where
from audit.ui.detail import dialogue
from audit.ui.gallery import show_gallery
from audit.ui.guard import served
from audit.ui.opened import Opened, answering, cached, open_chosen_run
from audit.ui.subset_tables import Disagreements, find_disagreements

TARGETS = ("Margin of error", "Difference", "Budget")
METRICS = ("accuracy", "macro-recall", "recall", "specificity")
ALL = "all files"
DRAWN = "drawn subset"
FIGURE = 170  # px


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
    html.paragraph("How many images to evaluate for the margin of error you need.", "quiet")
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
    goal = _goal(run, metric, target, split, frame)
    properties = [c for c in frame.columns if frame[c].dtype.is_numeric()]
    by = link.choose("Also stratify by", "by", properties, any_="none")
    groups = ["group"] if frame["group"].null_count() < frame.height else []
    group = link.choose("Group by (patient, video)", "group", groups, any_="no grouping") or None
    deduplicated = link.toggle("Count every image once", "once")
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


@cached
def _within_reach(
    key: str, metric: str, split: str, points: float, detects: bool, _run: Opened
) -> float:
    """Return a margin of error or a difference (points) that all files of the split reach."""
    frame = _frame(_run.key, split, _run)
    for _ in range(3):
        share = points / 100
        wish = Goal(metric, detect=share) if detects else Goal(metric, half_width=share)
        plan = make_plan(frame, wish, merge_strata=True)
        reached = [100 * u.reached for u in plan.unreachable if math.isfinite(u.reached)]
        if not reached:
            break
        points = max(math.ceil(2 * max(reached)) / 2, points + 0.5)
    return points


def _goal(run: Opened, metric: str, target: str, split: str, frame: pl.DataFrame) -> Goal:
    half_width = detect = n = None
    if target == TARGETS[0]:
        first = _within_reach(run.key, metric, split, 5.0, False, run)
        most = max(20.0, first)
        half_width = link.slide("Margin of error, points", "half", 0.5, most, first, 0.5)
    elif target == TARGETS[1]:
        first = _within_reach(run.key, metric, split, 10.0, True, run)
        most = max(30.0, first)
        detect = link.slide("Smallest difference to detect, points", "diff", 0.5, most, first, 0.5)
    else:
        n = link.slide(
            "Images to evaluate", "n", 2, max(frame.height, 3), max(frame.height // 2, 2), 1
        )
    looks = link.slide(
        "Number of comparisons (Bonferroni)",
        "looks",
        1,
        20,
        1,
        1,
        help="More comparisons need more images for the same error rate.",
    )
    confidence = link.choose(
        "Confidence", "confidence", ("95", "90", "99"), any_=None, shown=lambda c: f"{c}%"
    )
    power = link.choose("Power", "power", ("80", "90"), any_=None, shown=lambda c: f"{c}%")
    return Goal(
        metric=metric,
        half_width=None if half_width is None else half_width / 100,
        detect=None if detect is None else detect / 100,
        n=None if n is None else int(n),
        looks=int(looks),
        confidence=float(confidence) / 100,
        power=float(power) / 100,
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
        "Margin of error by class",
        help="Margins of error and the detectable difference of the class's recall, in percentage "
        "points; one answer: how far one image moves the recall.",
    )
    table = subset_tables.class_table(plan)
    in_points = [name for name in table.columns if table[name].dtype == pl.Float64]
    one_digit = {name: st.column_config.NumberColumn(format="%.1f") for name in in_points}
    html.table(table, column_config=one_digit)
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
    plan = replace(plan, split="all" if wish.split == ALL else wish.split)
    return plan, make_curve(frame, wish.goal, **more)  # type: ignore[arg-type]


def _headline(plan: Plan) -> None:
    unit = "groups" if plan.recipe.group else "images"
    html.write_html(html.tag("p", f"{plan.n:,} of {plan.n_units:,} {unit}", "strong"))
    shown: list[tuple[str, str]] = []
    for name, figures in plan.estimands.items():
        about = subset_tables.MEANING[name]
        shown.append((f"Margin of error, {about}", f"± {_points(figures.half_width)}"))
        shown.append((f"Detects, {about}", _points(figures.detectable_difference)))
    with st.container(horizontal=True):
        for label, value in shown:
            st.metric(html.label(label), value, border=True, width=FIGURE)
    html.paragraph(subset_tables.EXPLAINED, "quiet small")


def _points(share: float) -> str:
    value = subset_tables.in_points(share)
    return "–" if value is None else f"{value:.1f}"


def _curve(plan: Plan, curve: Curve) -> None:
    table = subset_tables.curve_table(curve).drop_nulls("half_width")
    shown = link.switch("Curve", "curve", ("Margin of error", "Detectable difference"))
    field = "half_width" if shown == "Margin of error" else "detectable"
    lines = (
        alt.Chart(table)
        .mark_line(point=True)
        .encode(
            x=alt.X(
                "n:Q",
                scale=alt.Scale(type="log", nice=False),
                title="images evaluated",
                axis=alt.Axis(format=",d", tickCount=8),
            ),
            y=alt.Y(f"{field}:Q", title=f"{shown.lower()}, points"),
            color=alt.Color("about:N", title=None, legend=alt.Legend(orient="top")),
            tooltip=[
                "about",
                alt.Tooltip("n:Q", format=","),
                alt.Tooltip("half_width:Q", title="margin of error", format=".2f"),
                alt.Tooltip("detectable:Q", format=".2f"),
            ],
        )
    )
    here = alt.Chart(pl.DataFrame({"n": [plan.n]})).mark_rule(strokeDash=[5, 4]).encode(x="n:Q")
    chart = alt.layer(lines, here).properties(height=280)
    st.altair_chart(chart, width="stretch", alt=f"{shown} by images evaluated")
    html.paragraph(f"The dashed line is this plan: {plan.n:,}.", "quiet small")


def _reasons(plan: Plan) -> None:
    with st.expander("How the plan was computed, and excluded files"):
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
            help="The same seed draws the same images; a larger draw holds the smaller one.",
        )
        st.button(
            "Draw",
            type="primary",
            on_click=answering(partial(_store_draw, run, wish, plan, int(seed))),
        )
        st.download_button(
            "Download the plan",
            data=partial(subset_tables.plan_json, plan),
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
            ("Download Parquet", partial(subset_tables.subset_parquet, subset), "parquet"),
        ):
            st.download_button(
                label,
                data=data,
                file_name=f"{run.name}-subset.{ending}",
                on_click="ignore",
                icon=":material/download:",
            )
    html.table(subset.rows.head(200), height=280)


FILE = "predictions file"  # of the session: a link of somebody else never names a file to read
SHOWN = 24
SLICES, SLICE_SHOWN, COMPARED = 10, 6, 6


def draw_disagreements(run: Opened, rows: pl.DataFrame, about: str) -> None:
    """Ask for a file of predictions, and show where it differs from the labels of `rows`."""
    if served():  # a path that a person types is opened on the person's own machine only
        return
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
        _slices(run, path.name, found)
        st.header("Wrong answers, most confident first")
        _pictures(run, found.table.head(SHOWN))
        _beside_training(run, found.table.head(COMPARED))
        html.table(found.table, height=280)


def _summary(found: Disagreements, about: str) -> None:
    of_all = found.accuracy
    limits = f" (CI {100 * of_all.low:.1f} to {100 * of_all.high:.1f})"
    html.paragraph(
        f"{found.right:,} of {counted(found.n, 'image')} of {about} right: accuracy "
        f"{of_all.value:.1%}{'' if of_all.known else limits} on the whole set.",
        "strong",
    )
    for note in found.notes:
        html.paragraph(note, "small")


def _slices(run: Opened, name: str, found: Disagreements) -> None:
    """Show the slices in which the model is wrong significantly more often."""
    st.header(
        "Where it is wrong more often",
        help="Tests every value of every property and cluster, and both ends of every number. "
        "Benjamini-Hochberg keeps the share of false slices below 1%.",
    )
    answered = found.answered
    columns = similar.columns_of_images(run, answered["sample_id"].to_list())
    weights = answered["weight"].to_numpy() if answered["weight"].n_unique() > 1 else None
    slices = find_slices(answered["wrong"].to_numpy(), columns, weights)
    if slices.is_empty():
        html.paragraph(
            f"None of {columns.width:,} properties has more wrong answers than expected by chance.",
        )
        return
    wrong = set(found.table["sample_id"])
    for place, one in enumerate(slices.head(SLICES).iter_rows(named=True)):
        inside = answered.filter(pl.Series(slice_rows(columns, one)))["sample_id"]
        with st.container(border=True):
            said, act = st.columns([5, 1], vertical_alignment="center")
            with said:
                html.paragraph(
                    f"{one['column']}: {one['value']}. {one['wrong']:,} of "
                    f"{counted(one['n'], 'answer')} wrong, {one['share']:.0%} "
                    f"({one['low']:.0%} to {one['high']:.0%}); elsewhere {one['elsewhere']:.0%}.",
                    "strong",
                )
                html.paragraph(f"q = {one['q']:.2g}", "quiet small")
            if one["column"] != similar.CLUSTER and act.button(
                "Explore", key=f"slice {place}", icon=":material/arrow_forward:"
            ):
                explore_where(_condition(run, one))
                st.rerun()
            shown = cards(run, [i for i in inside if i in wrong][:SLICE_SHOWN])
            show_gallery(run, f"slice images {place}", shown, width=120)


def _condition(run: Opened, one: dict[str, Any]) -> Condition:
    if one["at_least"] is not None or one["at_most"] is not None:
        whole = run.ask(extent, one["column"])
        ends = (one["at_least"], whole.low), (one["at_most"], whole.high)
        low, high = (float(first if first is not None else rest or 0) for first, rest in ends)
        return Between(one["column"], low, high)
    return OneOf(one["column"], (None if one["value"] == NONE else one["value"],))


def _beside_training(run: Opened, worst: pl.DataFrame) -> None:
    """Show the first wrong answers, each beside the training pictures that look like it."""
    near = similar.nearest_training(run, worst["sample_id"].to_list())
    shown = cards(run, [*worst["sample_id"], *near["id"]])
    if near.is_empty():
        return
    st.header("Most similar training images")
    by_id = {card.id: card for card in shown}
    for place, row in enumerate(worst.iter_rows(named=True)):
        beside = near.filter(pl.col("sample_id") == row["sample_id"])
        if beside.is_empty():
            continue
        lines = {row["sample_id"]: _lines(row)} | {
            r["id"]: [f"trained as {r['label'] or 'no label'}", f"similarity {r['similarity']:.2f}"]
            for r in beside.iter_rows(named=True)
        }
        of = [by_id[name] for name in lines if name in by_id]
        show_gallery(run, f"beside {place}", of, lines=partial(_line_of, lines), width=150)


def _line_of(lines: Mapping[str, Sequence[str]], card: Card) -> Sequence[str]:
    return lines[card.id]


def _pictures(run: Opened, worst: pl.DataFrame) -> None:
    lines = {row["sample_id"]: _lines(row) for row in worst.iter_rows(named=True)}
    shown = cards(run, list(lines))
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
