"""Planning a subset for a metric of objects: from the detections of an earlier model, or a pilot.

No formula gives the width of a mean average precision, so a plan scores draws from the pictures of
which detections are known; a size for a target is sought in steps. Two models' detections give the
width of their difference, one model's that of two that have nothing in common. Where nothing is
known there is no plan for a target, and the error says what a pilot needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scipy.stats import norm

from audit.errors import UsageError
from audit.subset.compare import Pairing
from audit.subset.detect import (
    LEAST,
    Answers,
    Drawn,
    KnownModel,
    Objects,
    compare_objects,
    drawn_part,
    linear_of,
    object_metric,
    score_classes,
)
from audit.subset.draw import Recipe, draw_subset, reweighted
from audit.subset.goal import ESTIMANDS, Estimand, Goal
from audit.subset.metrics import estimate_linear
from audit.subset.objects import ObjectSet
from audit.subset.plan import ClassPlan, Plan, Unreachable, make_plan
from audit.subset.population import Figures
from audit.subset.precision import ObjectMetric
from audit.subset.source import select_eligible

OF_SHARES = (
    "Planning value",
    "Disagreement",
    "Within-group",
    "Warning: the rows will have unequal",
)
OF_CORRELATION = ("rho", "cluster_design_effect", "effective_set_size")
"""What a plan says of shares of right answers alone."""
DRAWS = 8
STEPS = 8
SMALLEST_PILOT = 100
SHARE_OF_CLASSES = 0.9
"""Classes that a pilot should hold `LEAST` pictures of."""
KNOWN_FROM = 0.5
"""Share of the pictures with detections from which a model is taken to have seen all of them."""


@dataclass(frozen=True)
class Pilot:
    """Detections of one or two models for some pictures of a set of `population` pictures.

    `known`: name and answers of an earlier model on all pictures, which subsets are scored with.
    """

    objects: Objects
    frame: pl.DataFrame
    matches: Sequence[Answers]
    metric: ObjectMetric
    goal: Goal
    population: int
    known: tuple[str, Answers] | None = None

    def widths(self, recipe: Recipe, n: int) -> dict[Estimand, tuple[float, float, float]]:
        """Return for n units the mean printed half-width, that of a difference, and the effective
        size: of draws of so many, or of all there are, widened to n."""
        there = len(self.frame) if recipe.group is None else self.frame[recipe.group].n_unique()
        size = min(n, there if len(self.frame) == self.population else max(there // 2, 2))
        found: dict[Estimand, list[tuple[float, float, float]]] = {e: [] for e in ESTIMANDS}
        baseline = None
        if self.known is not None:
            baseline = KnownModel.on(self.frame, self.objects, *self.known, recipe)
        for seed in range(1 if size == there else DRAWS):
            drawn = self.draw(recipe, size, seed)
            evaluations = [drawn.evaluate(m) for m in self.matches]
            parts = [drawn_part(self.metric, e, drawn.design, m)[0]
                     for e, m in zip(evaluations, self.matches, strict=True)]  # fmt: skip
            known = [linear_of(part, drawn.design) for part in parts if part is not None]
            if len(known) < len(parts):
                continue
            level = self.goal.level
            plain = estimates = estimate_linear(drawn.design, known[0], level)
            if baseline is not None:
                estimates = baseline.score(
                    self.metric, evaluations[0], drawn, self.matches[0], level
                ).estimands
            pairing = Pairing(drawn.design, ("A", "B"), self.metric.name, level)
            pair = compare_objects(pairing, *known).estimands if len(known) == 2 else None
            for e in ESTIMANDS:
                own = (estimates[e].high - estimates[e].low) / 2
                two = (pair or plain)[e]
                gap = (two.high - two.low) / 2 * (1 if pair else math.sqrt(2))
                found[e].append((own, gap, estimates[e].effective_n))
        widen = math.sqrt(size / n)
        return {
            e: (float(w) * widen, float(g) * widen, float(k) / widen**2)
            for e in ESTIMANDS
            for w, g, k in [np.mean(found[e], axis=0) if found[e] else (math.nan,) * 3]
        }

    def draw(self, recipe: Recipe, n: int, seed: int) -> Drawn:
        """Return a draw of n units, as if from the whole set."""
        rows = draw_subset(self.frame, recipe, seed, n=n).rows
        if len(self.frame) < self.population:
            # The pilot stands for the set: as many units, drawn from a population that is larger.
            up = self.population / len(self.frame)
            rows = reweighted(rows, N_h=(pl.col("N_h") * up).round().cast(pl.Int64))
        return Drawn.of(rows, self.objects)


def make_objects_plan(
    objects: Objects,
    frame: pl.DataFrame,
    metric: str,
    goal: Goal,
    results: Sequence[Path],
    baseline: Path | None = None,
    **options: Any,
) -> Plan:
    """Return the plan that meets `goal` for a metric of objects.

    `frame`: the pictures, of `ObjectSet.frame`; `results`: detections of one or two models, for all
    pictures or for a pilot of them; `baseline`: those of an earlier model for all pictures, known
    when subsets are scored; `options` as of `make_plan`.
    """
    wanted = object_metric(metric, objects)
    files = select_eligible(frame, options.get("deduplicated", False)).files
    eligible = frame.filter(pl.col("sample_id").is_in(files["sample_id"].implode()))
    pilot, notes = _pilot(objects, eligible, wanted, goal, results)
    if baseline is not None:
        pilot, notes = _with_baseline(pilot, goal, baseline, notes)

    def make(n: int) -> Plan:
        return make_plan(frame, replace(goal, half_width=None, detect=None, seconds=None,
                                        throughput=None, n=n), **options)  # fmt: skip

    if pilot is None and not goal.is_budget:
        raise UsageError(
            f"Nothing is known of how {metric} varies between these images: give --predictions "
            "with the detections of an earlier model on them, or of a pilot. "
            f"{_pilot_needs(objects)}"
        )
    if goal.is_budget:
        plan = make_plan(frame, goal, **options)
        needed: dict[Estimand, int | None] = dict.fromkeys(ESTIMANDS)
    else:
        assert pilot is not None
        needed = {e: _size(pilot, make, e) for e in ESTIMANDS}
        plan = make(min(needed[goal.estimand] or 2, make(2).n_units))
    figures = _figures(pilot, plan, needed)
    classes = _classes(pilot, objects, frame, plan, wanted)
    unreachable, units = [], needed[goal.estimand]
    if units is not None and units > plan.n_units:
        gap = figures[goal.estimand]
        unreachable = [Unreachable.of(goal, "all", gap, units, plan.n_units, about="about ")]
    inconclusive = sum(math.isnan(c.estimands["full-set"].half_width) for c in classes)
    reasons = [r for r in plan.reasons if not r.startswith(OF_SHARES)] + notes
    if inconclusive and wanted.label is None and pilot is not None:
        reasons.append(
            f"{inconclusive} of {len(classes)} classes are inconclusive at this size: fewer than "
            f"{LEAST:g} images are expected. {metric} is the mean over the remaining classes. Draw "
            "more images, or use --by rarest_class --set plan.allocation=equal."
        )
    return replace(
        plan, metric=metric, target=goal.target(), estimands=figures, classes=classes,
        reasons=reasons, unreachable=unreachable,
        design=plan.design | dict.fromkeys(OF_CORRELATION, math.nan),
    )  # fmt: skip


def _pilot(
    objects: Objects, frame: pl.DataFrame, metric: ObjectMetric, goal: Goal,
    results: Sequence[Path],
) -> tuple[Pilot | None, list[str]]:  # fmt: skip
    if not results:
        return None, [f"No margin of error: no detections are known. {_pilot_needs(objects)}"]
    if len(results) > 2:
        raise UsageError(f"{len(results)} files of detections were given: a plan takes one or two.")
    notes: list[str] = []
    matches = [objects.match(path, notes) for path in results]
    population, seen = len(frame), np.unique(np.concatenate([m.seen for m in matches]))
    source = f"of {population} images" if seen.size >= KNOWN_FROM * population else ""
    if not source:
        known = [objects.ids[i] for i in seen]
        frame = frame.filter(pl.col("sample_id").is_in(known))
        source = (
            f"of a pilot of {len(frame)} images, those with a detection; the pilot must be drawn "
            "at random"
        )
        if len(frame) < SMALLEST_PILOT:
            raise UsageError(
                f"The pilot has {len(frame)} images with detections. {_pilot_needs(objects)}"
            )
    models = "two models" if len(matches) == 2 else "one model"
    notes.append(
        f"Widths are means of {DRAWS} scored draws, from the detections of {models} {source}."
    )
    if len(matches) == 1:
        notes.append(
            "Detectable difference: of two models that have nothing in common but their precision "
            "(related models differ less: give two files of detections)."
        )
    return Pilot(objects, frame, matches, metric, goal, population), notes


def _with_baseline(
    pilot: Pilot | None, goal: Goal, path: Path, notes: list[str]
) -> tuple[Pilot, list[str]]:
    """Return the pilot with an earlier model known on all pictures."""
    if goal.half_width is None:
        raise UsageError("--baseline needs a --half-width, such as 0.01.")
    if pilot is None or len(pilot.frame) < pilot.population:
        raise UsageError(
            "How far the next model will differ from the baseline is not known: give --predictions "
            "of a model that differs as much, with detections on half of the images at least."
        )
    known = pilot.objects.match(path, notes)
    notes.append(
        f"Widths are those of scores with --baseline {path.name}, known on all images; the model "
        "to come is taken to differ from it as the first of --predictions does."
    )
    return replace(pilot, known=(path.stem, known)), notes


def _pilot_needs(objects: Objects) -> str:
    """Return what a pilot must have, in words."""
    n, total = SMALLEST_PILOT, len(objects.ids)
    enough = ""
    if isinstance(objects, ObjectSet):
        truth, keep = objects.truth, ~objects.truth.crowd
        pair = np.unique(truth.kind[keep] * total + truth.picture[keep])
        often = np.sort(np.unique(pair // total, return_counts=True)[1])[::-1]
        reach = often[math.ceil(SHARE_OF_CLASSES * often.size) - 1] if often.size else total
        n = max(n, math.ceil(LEAST * total / reach))
        enough = (
            f", and enough to hold {LEAST:g} images of {SHARE_OF_CLASSES:.0%} of the "
            f"{often.size} classes"
        )
    n = min(n, total)
    return (
        f"A pilot is {n} images drawn at random (`audit subset plan ... --n {n}`) and a model's "
        f"answers on them: {SMALLEST_PILOT} at least{enough}."
    )


def _size(pilot: Pilot, make: Callable[[int], Plan], estimand: Estimand) -> int:
    """Return the units that meet the target, more than there are if need be.

    A width is nearly a power of 1/n, or of 1/n - 1/N in a finite set: the root where nothing else
    is known, else by the two sizes around the target.
    """
    goal, total = pilot.goal, make(2).n_units
    z_a, z_b = norm.isf(goal.alpha / 2), norm.ppf(goal.power)
    target = goal.half_width or float((goal.detect or 0.0) * z_a / (z_a + z_b))
    left, most = (1 / total, total - 1) if estimand == "full-set" else (0.0, total)
    n = min(1000, max(total // 2, 2))
    wide: tuple[int, float] | None = None
    narrow: tuple[int, float] | None = None
    for _ in range(STEPS):
        own, gap, _ = pilot.widths(make(n).recipe, n)[estimand]
        width = own if goal.half_width is not None else gap
        if width <= target:
            narrow = n, width
        else:  # also where so few units tell nothing
            wide = n, width
        power = 0.5
        if wide and narrow and math.isfinite(wide[1]):
            steps = (1 / wide[0] - left) / (1 / narrow[0] - left)
            power = max(math.log(wide[1] / narrow[1]) / math.log(steps), 0.1)
        scale = target / width if math.isfinite(width) else 0.5
        new: int = math.ceil(1 / ((1 / n - left) * scale ** (1 / power) + left))
        if wide and narrow:
            new = min(max(new, wide[0] + 1), narrow[0])
        elif new > most and n == most:
            return total if estimand == "full-set" else new
        if abs(new - n) <= 0.01 * n:
            return new
        n = min(max(new, 2), most)
    return n if narrow is None else narrow[0]


def _figures(
    pilot: Pilot | None, plan: Plan, needed: dict[Estimand, int | None]
) -> dict[Estimand, Figures]:
    if pilot is None:
        return {e: Figures(plan.n, math.nan, math.nan, math.nan, None) for e in ESTIMANDS}
    goal = pilot.goal
    z_a, z_b = norm.isf(goal.alpha / 2), norm.ppf(goal.power)
    widths = pilot.widths(plan.recipe, plan.n)
    return {
        e: Figures(plan.n, effective, own, float(gap * (z_a + z_b) / z_a), needed[e])
        for e, (own, gap, effective) in widths.items()
    }


def _classes(
    pilot: Pilot | None, objects: Objects, frame: pl.DataFrame, plan: Plan, metric: ObjectMetric
) -> list[ClassPlan]:
    """Return what the subset tells of each class: by one draw scored with the pilot."""
    if not isinstance(objects, ObjectSet):
        return []
    here = objects.places(frame.filter(pl.col("label").is_not_null())["sample_id"].to_list())
    own = np.isin(objects.truth.picture, here) & ~objects.truth.crowd
    kind, picture = objects.truth.kind[own], objects.truth.picture[own]
    classes, total = len(objects.classes), len(objects.ids)
    pictures = np.bincount(np.unique(kind * total + picture) // total, minlength=classes)
    number = np.bincount(kind, minlength=classes)
    share = plan.n / plan.n_units
    widths: dict[str, dict[Estimand, Figures]] = {}
    if pilot is not None and metric.label is None:
        drawn = pilot.draw(plan.recipe, min(plan.n, len(pilot.frame)), 0)
        first = pilot.matches[0]
        for scored in score_classes(metric, drawn.evaluate(first), drawn, first, pilot.goal.level):
            if scored.estimands is not None:
                widths[scored.label] = {
                    e: Figures(scored.pictures, v.effective_n, (v.high - v.low) / 2, math.nan)
                    for e, v in scored.estimands.items()
                }
    nothing = Figures(0, math.nan, math.nan, math.nan)
    return [
        ClassPlan(
            label, int(pictures[c]), round(share * float(pictures[c])),
            1 / max(share * float(number[c]), 1.0),
            widths.get(label, dict.fromkeys(ESTIMANDS, nothing)),
        )
        for c, label in enumerate(objects.classes) if pictures[c]
    ]  # fmt: skip
