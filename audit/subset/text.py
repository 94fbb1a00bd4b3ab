"""Plans, draws, scores and curves as plain text for a terminal. No figures are computed here."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from audit.subset.baseline import MetricCheck
from audit.subset.compare import Comparison
from audit.subset.draw import Subset
from audit.subset.goal import TARGET_NAMES, level_text
from audit.subset.metrics import MetricEstimate, MetricScore
from audit.subset.plan import Curve, Plan
from audit.subset.population import Figures
from audit.subset.precision import parse_object_metric
from audit.subset.score import ModelScore, ObjectClass, Score
from audit.subset.slices import slices_lines

SHOWN_EXCLUDED = 20
SHOWN_ROWS = 40
SHOWN_UNREACHABLE = 5
MEANING = {
    "full-set": "this set (the metric on the whole set)",
    "generalisation": "new data (the metric on new data of the same kind)",
}


def table_lines(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table: first column left, the others right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for row in (header, *rows):
        first, *rest = (
            cell.ljust(w) if i == 0 else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        yield "  " + "  ".join([first, *rest]).rstrip()


def points_text(value: float) -> str:
    """Format a share as points, `-` where there is none."""
    return "-" if not math.isfinite(value) else f"{100 * value:.2f}"


def plan_text(plan: Plan) -> str:
    """Return the plan for a reader."""
    return "\n".join(_plan_lines(plan))


def _plan_lines(plan: Plan) -> Iterator[str]:
    unit = "groups" if plan.recipe.group else "units"
    size = (
        f"{plan.n} of {plan.n_units} {unit} ({plan.n_files} eligible files of {plan.n_all}), plan "
        f"{plan.hash}"
    )
    answers = [f"Not reachable: {gap.sentence}" for gap in plan.unreachable] or [f"{size}."]
    first, *others = answers[:SHOWN_UNREACHABLE]
    yield f"{first} {plan.assumed}".rstrip()
    yield from others
    if (more := len(answers) - SHOWN_UNREACHABLE) > 0:
        yield f"and {more} more targets: see --json"
    if plan.unreachable:
        yield f"The plan takes {size}."
    yield ""
    level = level_text(plan.confidence)
    yield f"Margin of error of {plan.metric} with {plan.n} {unit}, in points at {level}:"
    header = (
        "", "margin of error", "detectable difference", "effective sample size", "n for the target",
    )  # fmt: skip
    yield from table_lines(
        header, [_figure_cells(MEANING[e], f) for e, f in plan.estimands.items()]
    )
    yield from _class_lines(plan)
    yield from _stratum_lines(plan)
    yield from _excluded_lines(plan)
    yield "\nWhy:"
    yield from (f"  {reason}" for reason in plan.reasons if reason != plan.assumed)
    if plan.design["mean_unit_size"] > 1 and math.isfinite(plan.design["rho"]):
        yield (
            f"  Effective sample size of the {plan.n_files} files: "
            f"{plan.design['effective_set_size']:.0f} ({plan.design['mean_unit_size']:.2f} files "
            f"in a unit, design effect {plan.design['cluster_design_effect']:.3f} at correlation "
            f"{plan.design['rho']:.3g})."
        )


def _figure_cells(name: str, figures: Figures) -> tuple[str, ...]:
    effective = "all" if math.isinf(figures.effective_n) else f"{figures.effective_n:.0f}"
    needed = "-" if figures.n_for_target is None else str(figures.n_for_target)
    detectable = points_text(figures.detectable_difference)
    return name, points_text(figures.half_width), detectable, effective, needed


def _class_lines(plan: Plan) -> Iterator[str]:
    of_objects = parse_object_metric(plan.metric) is not None
    what = "of objects (images with it" if of_objects else "(recall"
    yield f"\nPer class {what}; margin of error for this set and new data, detectable difference):"
    rows = [
        (
            c.label,
            f"{c.n} of {c.units}",
            points_text(c.step),
            *(points_text(f.half_width) for f in c.estimands.values()),
            points_text(c.estimands["generalisation"].detectable_difference),
        )
        for c in plan.classes[:SHOWN_ROWS]
    ]
    yield from table_lines(
        ("class", "drawn", "one example", "this set", "new data", "detectable"), rows
    )
    yield from _more(len(plan.classes), "classes")


def _more(count: int, what: str) -> Iterator[str]:
    if count > SHOWN_ROWS:
        yield f"  and {count - SHOWN_ROWS} more {what}: see --json"


def _stratum_lines(plan: Plan) -> Iterator[str]:
    if len(plan.strata) == len(plan.classes) and not plan.recipe.strata.by:
        return  # strata are the classes: the table above has them
    yield "\nStrata:"
    rows = [
        (s.name, str(s.n), str(s.units), str(s.files), f"{s.scale:.4g}")
        for s in plan.strata[:SHOWN_ROWS]
    ]
    yield from table_lines(("stratum", "drawn", "units", "files", "spread"), rows)
    yield from _more(len(plan.strata), "strata")


def _excluded_lines(plan: Plan) -> Iterator[str]:
    if not plan.excluded:
        yield "\nNothing was excluded."
        return
    yield f"\nExcluded, {len(plan.excluded)} of {plan.n_all} files:"
    for reason, count in Counter(e["reason"] for e in plan.excluded).most_common():
        yield f"  {count}: {reason}"
    for example in plan.excluded[:SHOWN_EXCLUDED]:
        yield f"    {example['sample_id']}: {example['reason']}"
    if len(plan.excluded) > SHOWN_EXCLUDED:
        yield f"    and {len(plan.excluded) - SHOWN_EXCLUDED} more: see --json"


def draw_text(
    subset: Subset, metric: MetricCheck | None, plan: Plan | None = None, then: str = ""
) -> str:
    """Return a draw for a reader, with its plan if it was made here, and the command to come."""
    lines = [
        f"Drew {subset.n_units} of {subset.population_units} units, {len(subset.rows)} files, in "
        f"{subset.rows['stratum'].n_unique()} strata, with seed {subset.rows['seed'][0]}.",
        *([] if plan is None else [f"\nThe plan: {plan_text(plan)}\n"]),
        *subset.notes,
    ]
    if metric is not None:
        lines.append(metric.sentence)
    if then:
        lines.append(f"Next: `{then}`.")
    return "\n".join(lines)


def score_text(score: Score, by_class: bool = False) -> str:
    """Return the score for a reader: the answer first; `by_class`: the classes too."""
    lines = [
        *_answer_lines(score),
        f"{score.n_files} files in {score.n_units} units drawn from {score.population_units}; "
        f"confidence level {level_text(score.confidence)}.",
    ]
    for model in score.models:
        lines += _model_lines(model, score.suspected, by_class)
    if score.comparison is not None:
        lines += _comparison_lines(score.comparison)
    return "\n".join([*lines, "", *score.notes])


def _answer_lines(score: Score) -> Iterator[str]:
    for model in score.models:
        best = (model.with_baseline or model.metrics)[0]
        on_set, on_new = best.estimands["full-set"], best.estimands["generalisation"]
        known = " with the baseline" if model.with_baseline else ""
        yield f"{model.name}: {best.metric}{known} {_answer(on_set, on_new)}"
    if score.comparison is not None:
        yield score.comparison.estimands["generalisation"].sentence


def _answer(on_set: MetricEstimate, on_new: MetricEstimate) -> str:
    if math.isnan(on_set.value):
        return "inconclusive: no example in this subset"
    known = "known, the whole set was scored" if on_set.known else _percents(on_set)
    rough = "; rough, see below" if on_new.caution else ""
    return f"{100 * on_new.value:.2f}% (new data: {_percents(on_new)}; this set: {known}{rough})"


def _percents(interval: MetricEstimate) -> str:
    return f"{100 * interval.low:.2f} to {100 * interval.high:.2f}"


def _model_lines(model: ModelScore, suspected: int, by_class: bool) -> Iterator[str]:
    yield f"\n{model.name}:"
    for metric in model.metrics:
        yield from _metric_lines(metric, "")
    for metric in model.with_baseline:
        yield from _metric_lines(metric, " with the baseline")
        yield f"    ({metric.method})"
    for metric in model.without_suspected:
        yield from _metric_lines(metric, f" without {suspected} suspected mislabels")
    if by_class:
        for c in model.classes[:SHOWN_ROWS]:
            new = c.recall["generalisation"]
            limits = f"; {100 * new.low:.1f} to {100 * new.high:.1f}% for new data" if c.n else ""
            yield f"  {c.label}: {c.sentence}{limits}"
        yield from _more(len(model.classes), "classes")
        yield from _object_lines(model)
    if model.slices is not None:
        yield from slices_lines(model.slices)
    yield from (f"  {note}" for note in model.notes)


def _object_lines(model: ModelScore) -> Iterator[str]:
    if not model.objects:
        return
    yield f"  {model.metrics[0].metric} by class:"
    rows = [
        (c.label, str(c.objects), str(c.pictures), *_class_cells(c))
        for c in model.objects[:SHOWN_ROWS]
    ]
    header = ("class", "objects", "images", "%", "this set", "new data")
    yield from (f"  {line}" for line in table_lines(header, rows))
    yield from _more(len(model.objects), "classes")


def _class_cells(one: ObjectClass) -> Iterator[str]:
    if one.estimands is None:
        yield from ("inconclusive", "-", "-")
        return
    yield points_text(one.estimands["full-set"].value)
    for found in one.estimands.values():
        yield "known" if found.known else f"{100 * found.low:.1f} to {100 * found.high:.1f}"


def _metric_lines(metric: MetricScore, suffix: str) -> Iterator[str]:
    for name, interval in metric.estimands.items():
        yield f"  {metric.metric}{suffix}, {TARGET_NAMES[name]}: {_limits(interval, metric.metric)}"


def _limits(interval: MetricEstimate, metric: str) -> str:
    if math.isnan(interval.value):
        return "inconclusive: no example in this subset"
    if interval.known:
        return f"{100 * interval.value:.2f}% (known: the whole set was scored)"
    limits = f"{100 * interval.value:.2f}% ({_percents(interval)})"
    if parse_object_metric(metric) is not None:  # no share of examples: a size has no meaning
        return limits
    return f"{limits}, effective sample size {interval.effective_n:.0f}"


def _comparison_lines(comparison: Comparison) -> Iterator[str]:
    yield "\nComparison:"
    if parse_object_metric(comparison.metric) is not None:
        yield (
            f"  better detections: second model on {comparison.second_only} images, first model "
            f"on {comparison.first_only}"
        )
    else:
        yield (
            f"  only the second model is right on {comparison.second_only} examples, only the "
            f"first on {comparison.first_only} (weighted share {100 * comparison.discordant:.2f}%)"
        )
    for name, difference in comparison.estimands.items():
        yield f"  {TARGET_NAMES[name]}: {difference.sentence}"
    if comparison.mcnemar_p is not None:
        yield f"  McNemar's test: p = {comparison.mcnemar_p:.4g}"
    yield from (f"  {note}" for note in comparison.notes)


def curve_text(curve: Curve) -> str:
    """Return the curve as a table."""
    rows = [
        (
            str(p.n),
            *(points_text(v) for v in p.half_width.values()),
            *(points_text(v) for v in p.detectable_difference.values()),
        )
        for p in curve.points
    ]
    header = (
        "n", "margin of error: this set", "new data", "detectable: this set", "new data",
    )  # fmt: skip
    lines = ["In points:", *table_lines(header, rows)]
    for name, n in curve.stops_paying.items():
        adds = "help at every size" if n is None else f"add little from about {n} units on"
        lines.append(f"More examples {adds} for {TARGET_NAMES[name]}.")
    return "\n".join([*lines, *curve.reasons])
