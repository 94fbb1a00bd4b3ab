"""Scores of detectors: mAP, F1, mean IoU on drawn pictures, with intervals for the whole set.

The variance, by strata and units, is that of the weighted influences of pictures
(`audit.subset.precision`). The mean is over the classes that at least `LEAST` pictures are expected
to hold; the limits are for the whole set's number of these classes, and `score` names the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from audit.errors import UsageError
from audit.run.run_version import POINTER
from audit.statistics.intervals import Ints, alpha_for_looks
from audit.subset.baseline import fit_known, known_on, rows_of, whole_set
from audit.subset.compare import Comparison, Pairing, compare_linear
from audit.subset.draw import Recipe, planned_level
from audit.subset.masks import MaskEvaluation, MaskSet, Overlaps
from audit.subset.matching import Matches
from audit.subset.metrics import (
    Design,
    Linearised,
    MetricScore,
    estimate_linear,
    estimate_ratio,
)
from audit.subset.objects import OWN_COLUMNS, ObjectSet, read_coco_set, read_run_objects
from audit.subset.precision import (
    EXCESS,
    Evaluation,
    ObjectMetric,
    Part,
    mean_part,
    parse_object_metric,
)
from audit.subset.score import ModelScore, ObjectClass, Score, notes_of
from audit.subset.source import frame_from_run
from audit.subset.strata import Strata

PLAIN = Recipe(0, Strata(label=False), {})
"""Of a plan without strata and groups."""
LEAST = 5.0
"""Pictures that must be expected to hold a class for its AP to count."""
SEEN = 2
"""Units that must hold it: one alone shows no variance."""


def linear_of(part: Part, design: Design) -> Linearised:
    """Return a metric of objects by the influence of each picture, less what AP has too much."""
    drawn = min(design.n_units / float(design.population.sum()), 1.0)
    used = part.share > 0
    right = np.clip(np.divide(part.found, part.share, where=used, out=np.zeros(used.size)), 0, 1)
    return Linearised(
        part.value - part.excess * (1 - drawn**EXCESS), part.influence, (part.share,),
        ((1 - right) * used, right * used), squares=part.squares,
    )  # fmt: skip


Answers = Matches | Overlaps
Evaluated = Evaluation | MaskEvaluation
Objects = ObjectSet | MaskSet


def read_objects(
    source: Path, split: str | None, extra: Sequence[str] = (), *, by_class: bool = False
) -> tuple[Objects, pl.DataFrame]:
    """Return the objects of a COCO file, of one split of a run, or of a folder of PNG masks, and
    the frame of its pictures; `extra`: columns that it must have."""
    own = [c for c in extra if c not in OWN_COLUMNS]
    if source.is_dir() and (source / POINTER).exists():
        table = frame_from_run(source, split, own, several=True)
        of_run = read_run_objects(source, table["sample_id"].to_list())
        return of_run, of_run.frame(table, by_class=by_class)
    objects: Objects
    if source.is_dir():
        objects = MaskSet.of(source)
        frame = objects.frame(by_class)
    else:
        objects, table = read_coco_set(source)
        frame = objects.frame(table, by_class=by_class)
    if absent := [c for c in own if c not in frame.columns]:
        raise UsageError(
            f"{source}: its images have no key {absent[0]!r}; they have {', '.join(frame.columns)}."
        )
    return objects, frame


@dataclass(frozen=True)
class Drawn:
    """Drawn pictures of a set; `pictures`: the number of each row's picture in it."""

    design: Design
    objects: Objects
    pictures: Ints

    @classmethod
    def of(cls, rows: pl.DataFrame, objects: Objects) -> Drawn:
        """Return the pictures of drawn rows; raises UsageError where the set lacks one."""
        design = Design.of(rows)
        return cls(design, objects, objects.places(design.rows["sample_id"].to_list()))

    def evaluate(self, answers: Answers) -> Evaluated:
        """Return the answers of a model on the drawn pictures, weighted."""
        weight, unit = self.design.weight, self.design.unit
        if isinstance(answers, Overlaps):
            return MaskEvaluation(answers.among(self.pictures), weight, unit)
        return Evaluation(answers.among(self.pictures), weight, unit)


def classes_in_mean(
    metric: ObjectMetric, drawn: Evaluated, design: Design, whole: Answers
) -> list[int]:
    """Return the classes of a metric that the drawn pictures suffice for.

    Of a mean over classes those that a draw of this size is expected to hold, where pictures are
    drawn alike and the whole set was matched; else those that it holds.
    """
    of = range(len(whole.classes)) if metric.label is None else [whole.classes.index(metric.label)]
    units = {c: np.unique(drawn.unit[drawn.holding(metric, c) > 0]).size for c in of}
    seen = [c for c in of if units[c] >= (1 if design.complete else SEEN)]
    if metric.label is not None or design.complete:
        return seen
    if isinstance(whole, Matches) and design.equal_files and design.population.size == 1:
        expected = whole.often(metric.size) * design.n_units / whole.pictures
        return [c for c in seen if expected[c] >= LEAST]
    return [c for c in seen if units[c] >= LEAST]


def score_objects(
    rows: pl.DataFrame,
    objects: Objects,
    results: Sequence[Path],
    *,
    metrics: Sequence[str] = ("map",),
    confidence: float | None = None,
    looks: int | None = None,
    names: Sequence[str] = ("A", "B"),
    baseline: KnownModel | None = None,
) -> Score:
    """Score the detections of one or two models on drawn `rows`, or on a census of the full set.

    `results`: files of COCO's results; `metrics` as in `audit.subset.precision.NAMES`, `:CLASS`
    added for one class; two models are compared on the first. `baseline`: an earlier model known
    on the whole set, which narrows the intervals.
    """
    if not 1 <= len(results) <= 2:
        raise UsageError(f"{len(results)} files of detections were given: score takes one or two.")
    wanted = [object_metric(name, objects) for name in metrics]
    drawn = Drawn.of(rows, objects)
    design = drawn.design
    confidence, looks = planned_level(rows, confidence, looks)
    level = 1 - alpha_for_looks(confidence, looks)
    models, pairs = [], []
    for path, name in zip(results, names, strict=False):
        notes: list[str] = []
        matches = objects.match(path, notes)
        evaluation = drawn.evaluate(matches)
        if silent := drawn.pictures.size - evaluation.matches.seen.size:
            notes.append(
                f"{name}: {silent} of {drawn.pictures.size} images have no detection: "
                "they count as images in which nothing was found."
            )
        scores = [_score(metric, evaluation, drawn, matches, level) for metric in wanted]
        pairs.append(scores[0][1])
        classes = score_classes(wanted[0], evaluation, drawn, matches, level)
        known = [] if baseline is None else [
            baseline.score(metric, evaluation, drawn, matches, level) for metric in wanted
        ]  # fmt: skip
        notes += [note for *_, found in scores for note in found if note not in notes]
        models.append(ModelScore(name, [s for s, _, _ in scores], [], [], notes, known, classes))
    pairing = Pairing(design, names, metrics[0], level)
    comparison = compare_objects(pairing, *pairs) if len(pairs) == 2 else None
    suspected = int(design.rows["suspected_mislabel"].sum())
    notes = notes_of(design, looks)
    return Score(*design.sizes, suspected, confidence, models, comparison, notes)


def object_metric(name: str, objects: Objects) -> ObjectMetric:
    """Return a metric of the objects of a set; raises UsageError for another, or no such class."""
    metric = parse_object_metric(name)
    if metric is None:
        raise UsageError(
            f"{name!r} is no metric of objects (map, map50, map:CLASS, f1@0.5, ...): metrics of "
            "images are scored apart."
        )
    if (metric.kind == "iou") != isinstance(objects, MaskSet):
        needs = "PNG masks" if metric.kind == "iou" else "boxes: a run or a COCO file"
        raise UsageError(f"{name} needs {needs}, and {objects.name} has none: see --from.")
    if metric.label is not None and metric.label not in objects.classes:
        raise UsageError(
            f"There is no class {metric.label!r} of objects: {', '.join(objects.classes[:12])} are "
            "there."
        )
    return metric


def _parts(metric: ObjectMetric, evaluation: Evaluated, classes: Sequence[int]) -> list[Part]:
    return [part for c in classes if (part := evaluation.part(metric, c)) is not None]


def drawn_part(
    metric: ObjectMetric, evaluation: Evaluated, design: Design, whole: Answers
) -> tuple[Part | None, list[str]]:
    """Return the metric on drawn pictures, and what the mean leaves out, in words."""
    classes = classes_in_mean(metric, evaluation, design, whole)
    parts = _parts(metric, evaluation, classes)
    left = [whole.classes[c] for c in whole.present(metric.size) if c not in classes]
    notes = []
    if left and metric.label is None and not design.complete:
        notes.append(
            f"{metric.name} is the mean over {len(parts)} of {len(parts) + len(left)} classes: "
            f"this draw has too few images of the remaining classes ({', '.join(left[:5])}"
            f"{', ...' if len(left) > 5 else ''}). Draw more, or stratify by rarest_class."
        )
    return (mean_part(parts) if parts else None), notes


def _score(
    metric: ObjectMetric, evaluation: Evaluated, drawn: Drawn, whole: Answers, level: float
) -> tuple[MetricScore, Linearised, list[str]]:
    part, notes = drawn_part(metric, evaluation, drawn.design, whole)
    if part is None:
        raise UsageError(
            f"Cannot estimate {metric.name}: fewer than {SEEN} drawn units have such objects, or "
            f"fewer than {LEAST:g} images are expected to have any class. Draw more."
        )
    linear = linear_of(part, drawn.design)
    estimates = estimate_linear(drawn.design, linear, level)
    caution = estimates["generalisation"].caution
    notes += [f"The interval of {metric.name} is {caution}."] if caution else []
    if abs(linear.value - part.value) >= 0.0005:
        notes.append(
            f"{metric.name} of these images alone is {100 * part.value:.2f}%: few objects make "
            f"it too high, by about {100 * (part.value - linear.value):.2f} points: taken off."
        )
    how = "design-based interval, by linearisation; the excess of few objects is taken off"
    return MetricScore(metric.name, estimates, how), linear, notes


def score_classes(
    metric: ObjectMetric, evaluation: Evaluated, drawn: Drawn, whole: Answers, level: float
) -> list[ObjectClass]:
    """Return AP and the like of each class, where the drawn pictures can tell."""
    if metric.label is not None:
        return []
    design, found = drawn.design, []
    classes = classes_in_mean(metric, evaluation, design, whole)
    for c in whole.present(metric.size).tolist():
        objects = evaluation.holding(metric, c)
        n, pictures = int(objects.sum()), int((objects > 0).sum())
        part = evaluation.part(metric, c) if c in classes else None
        estimates = (
            None if part is None else estimate_linear(design, linear_of(part, design), level)
        )
        found.append(ObjectClass(whole.classes[c], n, pictures, estimates))
    return found


def compare_objects(pairing: Pairing, first: Linearised, second: Linearised) -> Comparison:
    """Compare two models on the same objects."""
    change = second.against[1] - first.against[1]
    return compare_linear(pairing, (first, second), np.abs(change), change, [])


@dataclass(frozen=True)
class KnownModel:
    """An earlier model's answers on all pictures, on which those of a new model are regressed."""

    name: str
    whole: Drawn
    answers: Answers

    @classmethod
    def on(
        cls, frame: pl.DataFrame, objects: Objects, name: str, answers: Answers, recipe: Recipe
    ) -> KnownModel:
        """Return the baseline for subsets drawn by `recipe`."""
        return cls(name, Drawn.of(whole_set(frame, recipe).rows, objects), answers)

    def score(
        self,
        metric: ObjectMetric,
        evaluation: Evaluated,
        drawn: Drawn,
        whole: Answers,
        level: float,
    ) -> MetricScore:
        """Return a metric of the new model with what the earlier one is known to have."""
        design, everything = drawn.design, self.whole.design
        classes = classes_in_mean(metric, evaluation, design, whole)
        new, old = (
            linear_of(mean_part(_parts(metric, answers, classes)), d)
            for answers, d in (
                (evaluation, design), (self.whole.evaluate(self.answers), everything)
            )
        )  # fmt: skip
        rows = rows_of(everything, design)
        known = known_on(everything, rows, old.influence * everything.weight.sum(),
                         np.ones(everything.unit.size))  # fmt: skip
        top = new.value + new.influence * design.weight.sum()
        fit = fit_known(design, top, np.ones(top.size), known)
        estimates = estimate_ratio(design, fit.ratio, float(fit.ratio.value), level)
        how = (
            f"regression on {self.name}, which has {100 * old.value:.2f}% on all of the set; "
            f"{100 * min(fit.remaining, 1.0):.0f}% of the variance is left"
        )
        return MetricScore(metric.name, estimates, how)
