"""DIST007: splits whose pictures differ from the training pictures, property by property or in all.

Each property: the Kolmogorov-Smirnov distance, weighted to the class mix of the split (which is
DIST006). All together: a classifier of the split, judged within classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import polars as pl

from audit.checking.check import Check
from audit.checking.objects import ObjectTable, object_table, references
from audit.checking.properties import MEASURED_COLUMNS, Floats, Ints, PropertyTable, property_table
from audit.records import Finding, Severity
from audit.run.store import Store
from audit.statistics.association import (
    auc_limits,
    binned,
    class_effects,
    fold_scores,
    shift_p_values,
    split_shifts,
    two_sided,
    unit_folds,
    weighted_shifts,
)
from audit.statistics.intervals import benjamini_hochberg


class SplitDrift(Check):
    """Evaluation splits whose images differ from those of the training splits.

    ## What it does
    Compares each evaluation split with the training splits (without training splits: with the
    rest), over classes that both have. The training images are weighted to the split's class
    shares. Each property (light, colours, texture, size, format, compression, camera, manifest
    columns) has a Kolmogorov-Smirnov distance; for a category, it is the difference of its share. A
    property is reported from `min_distance`, at a false discovery rate of half of `rate`. A linear
    classifier on all properties (ridge, 5 folds, copies and groups kept together) predicts the
    split of each image. It is reported if the lower limit of its AUC is at least `min_auc`, at the
    other half of `rate`. Nothing is reported if the 95% CI of that AUC contains 50%. The finding
    lists the images that the classifier recognises best.

    Objects are compared per class by size, shape, position and number per image, averaged over each
    image, at a false discovery rate of `rate`.

    ## Why is this bad
    The score on this split does not hold for data like the training data. It measures robustness to
    the change, which may be intended or an accident of the split.

    ## Example
    Test images were taken with another camera: sharpness differs by 0.31, AUC 0.88.

    ## What to do
    Review the listed images. If the change is not intended, split again at random, by group. If it
    is intended, report the score together with the change.

    ## Limits
    Differences in properties that are not measured are not detected. Without labels, different
    class shares look like drift. Splits with fewer than `min_units` images are not compared.

    ## References
    Rabanser, Guennemann and Lipton, Failing loudly, NeurIPS 2019. Stephens (1970), JRSS B 32:115.
    Hanley and McNeil (1982), Radiology 143:29. Benjamini and Hochberg (1995), JRSS B 57:289."""

    code = "DIST007"
    name = "split-drift"
    severity = Severity.WARNING
    features = MEASURED_COLUMNS

    @dataclass(frozen=True)
    class Params:
        """rate: largest share of datasets without drift in which a split is reported, 0..1
        min_distance: smallest reported Kolmogorov-Smirnov distance of a property, 0..1
        min_auc: smallest reported lower limit of the classifier's AUC, 0.5..1
        min_units: smallest number of images of either set (copies and groups counted once)
        max_listed: largest number of images that a finding lists
        train_splits: names of the splits that models are trained on
        """

        rate: float = 0.01
        min_distance: float = 0.15
        min_auc: float = 0.6
        min_units: int = 30
        max_listed: int = 20
        train_splits: tuple[str, ...] = ("train", "training")

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        table = store.share(property_table).of_kind("nuisance", "mark", "light", "look")
        drifts = [_drift(table, *sides) for sides in _sides(table, params)]
        p_values = np.concatenate([d.p_values for d in drifts]) if drifts else np.empty(0)
        alone = np.split(benjamini_hochberg(p_values), np.cumsum([len(d.p_values) for d in drifts]))
        together = benjamini_hochberg([d.p for d in drifts]).tolist()
        for drift, adjusted, p in zip(drifts, alone, together, strict=False):
            moved = (adjusted <= params.rate / 2) & (drift.distances >= params.min_distance)
            told = p <= params.rate / 2 and drift.low >= params.min_auc
            # what no classifier tells apart for certain is no drift, whatever one property does
            if drift.low > 0.5 and (moved.any() or told):
                yield self._finding(table, drift, np.flatnonzero(moved), params)
        yield from self._objects(store, params)

    def _objects(self, store: Store, params: Params) -> Iterator[Finding]:
        """Yield the splits whose objects have other sizes, shapes, places or numbers."""
        objects = store.share(object_table)
        found = [] if objects is None else list(_object_shifts(objects, params))
        adjusted = benjamini_hochberg([shift.p for shift in found]).tolist()
        moved: dict[str, list[ObjectShift]] = {}
        for shift, p in zip(found, adjusted, strict=True):
            if p <= params.rate and shift.distance >= params.min_distance:
                moved.setdefault(shift.split, []).append(shift._replace(p=p))
        for split, shifts in moved.items():
            worst = sorted(shifts, key=lambda s: -s.distance)
            said = "; ".join(s.sentence() for s in worst[:5])
            more = f"; and {len(worst) - 5:,} more" if len(worst) > 5 else ""
            yield self.finding(
                f"object:split:{split}",
                f"The objects of split {split} differ from those of {worst[0].reference}: "
                f"{said}{more}.",
                {
                    "compared_with": worst[0].reference, "differences": len(worst),
                    "largest_distance": worst[0].distance, "p": worst[0].p,
                    "classes": ", ".join(dict.fromkeys(s.label for s in worst[:20])),
                },
            )  # fmt: skip

    def _finding(self, table: PropertyTable, drift: Drift, moved: Ints, params: Params) -> Finding:
        best: dict[str, str] = {}
        for i in moved[np.argsort(-drift.distances[moved])].tolist():
            prop = table.properties[i]
            best.setdefault(prop.source, f"{prop.name} (distance {drift.distances[i]:.2f})")
        named = ", ".join(list(best.values())[:5])
        listed = tuple(sorted(drift.easiest[: params.max_listed]))
        evidence: dict[str, float | int | str] = {
            "compared_with": drift.reference, "pictures": drift.n, "auc": drift.auc,
            "auc_low": drift.low, "auc_high": drift.high, "properties": ", ".join(best),
            "largest_distance": float(drift.distances.max(initial=0.0)),
        }  # fmt: skip
        return self.finding(
            f"split:{drift.split}",
            f"The {drift.n:,} images of split {drift.split} differ from those of {drift.reference} "
            f"at equal class shares: a classifier separates them (AUC {drift.auc:.2f}, 95% CI "
            f"{drift.low:.2f} to {drift.high:.2f})"
            + (f"; the properties: {named}" if named else "")
            + f". The {len(listed)} images listed are the easiest to recognise.",
            evidence,
            listed,
        )

    def completeness(self, store: Store, params: Params) -> str:
        table = store.share(property_table).of_kind("nuisance", "mark", "light", "look")
        each = [f"{split} with {reference}" for split, reference, _, _ in _sides(table, params)]
        if not each:
            return f"Splits were not compared: fewer than 2 of {params.min_units} images."
        return (
            f"{len(table.properties):,} properties were compared between splits: {', '.join(each)}."
        )


class ObjectShift(NamedTuple):
    """One property of the objects of a class in a split beside its reference, a value a unit."""

    split: str
    reference: str
    label: str
    measure: str
    distance: float
    p: float
    here: Floats
    there: Floats

    def sentence(self) -> str:
        """Return it in words."""
        name, shown = MEASURES[self.measure]
        here, there = (shown(float(np.median(side))) for side in (self.here, self.there))
        return (
            f"{self.label}: {name} {here:,.3g} instead of {there:,.3g} "
            f"(medians; distance {self.distance:.2f})"
        )


# What is compared of the objects of a class, and how its number is said.
MEASURES: Mapping[str, tuple[str, Callable[[float], float]]] = {
    "side": ("side in px", lambda v: float(2**v)),
    "aspect": ("width : height", lambda v: float(2**v)),
    "x": ("place from the left", float),
    "y": ("place from the top", float),
    "each": ("objects an image", float),
}


def _object_shifts(table: ObjectTable, params: SplitDrift.Params) -> Iterator[ObjectShift]:
    """Yield every comparison of a class and a property in units of both sides."""
    held = table.held.sort("label", maintain_order=True)
    label, unit = held["label"].to_numpy(), held["unit"].to_numpy()
    values = held.with_columns(each=pl.col("n") / pl.col("pictures")).select(*MEASURES).to_numpy()
    compared = references(table.splits, params.train_splits)
    sides = [
        [table.in_split(splits)[unit] for splits in ([split], others)]
        for split, others in compared.items()
    ]
    starts = np.searchsorted(label, np.arange(len(table.labels) + 1)).tolist()
    for name, (first, last) in zip(table.labels, pairwise(starts), strict=True):
        rows = slice(first, last)
        sizes = np.array([[side[rows].sum() for side in pair] for pair in sides]).reshape(-1, 2)
        enough = np.flatnonzero(sizes.min(1) >= params.min_units)
        if not len(enough):
            continue
        steps = np.array([sides[i][0][rows] * sizes[i, 1] - sides[i][1][rows] * sizes[i, 0]
                          for i in enough], float)  # fmt: skip
        distances = split_shifts(values[rows], steps) / sizes[enough].prod(1)[:, None]
        for i, found in zip(enough.tolist(), distances, strict=True):
            p = shift_p_values(found, *sizes[i].astype(float))
            split, others = list(compared.items())[i]
            for k, measure in enumerate(MEASURES):
                far = found[k] >= params.min_distance  # what is nearer is not said
                pair = [values[rows, k][side[rows]] if far else values[:0, k] for side in sides[i]]
                yield ObjectShift(split, " and ".join(others), name, measure, float(found[k]),
                                  float(p[k]), *pair)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Drift:
    """How far a split is from its reference, by each property and by all together."""

    split: str
    reference: str
    n: int
    distances: Floats
    p_values: Floats
    auc: float
    low: float
    high: float
    p: float
    easiest: Sequence[str]


def _sides(
    table: PropertyTable, params: SplitDrift.Params
) -> Iterator[tuple[str, str, PropertyTable, PropertyTable]]:
    """Yield each split, the name of its reference, and the units of both in classes of both."""
    trained = [s for s in table.splits if s in params.train_splits]
    table = table.by_unit()
    for number, split in enumerate(table.splits):
        others = trained or [s for s in table.splits if s != split]
        if split in trained or not others:
            continue
        here = table.rows(table.split == number)
        there = table.rows(np.isin(table.split, [table.splits.index(s) for s in others]))
        if (here.label < 0).all() or (there.label < 0).all():
            here, there = (replace(s, label=np.full_like(s.label, -1)) for s in (here, there))
        shared = np.intersect1d(here.label, there.label)
        here, there = (side.rows(np.isin(side.label, shared)) for side in (here, there))
        if min(len(here.ids), len(there.ids)) >= params.min_units and table.properties:
            yield split, " and ".join(others), there, here


def _drift(
    table: PropertyTable, split: str, reference: str, there: PropertyTable, here: PropertyTable
) -> Drift:
    # Classes by number, no label as the last of them.
    k = len(table.labels) + 1
    mine, theirs = (np.bincount(side.label % k, minlength=k) for side in (here, there))
    weights = np.divide(mine, theirs, out=np.zeros(k), where=theirs > 0)[there.label % k]
    shifts, p_values = weighted_shifts(there.values, here.values, weights)
    values = np.concatenate([there.values, here.values])
    units = np.concatenate([there.unit, here.unit])
    strata = np.concatenate([there.label, here.label])
    side = np.repeat([0, 1], [len(there.ids), len(here.ids)])
    columns = binned(values, np.array([p.level for p in table.properties], bool))
    scores = np.zeros(len(values))
    for rows, scored in fold_scores(columns, side, unit_folds(units), 2):
        scores[rows] = scored[:, 1]
    effects = class_effects(scores[:, None], side, strata, 2)
    auc, n, rest = effects.auc[1, 0], effects.n[1], effects.rest[1]
    low, high = auc_limits(auc, n, rest)
    own = scores[side == 1]
    return Drift(
        split, reference, len(here.ids), shifts, p_values, float(auc), float(low),
        float(high), float(two_sided(effects.z[1, 0])) if auc > 0.5 else 1.0,
        here.ids[np.argsort(-own, kind="stable")].tolist(),
    )  # fmt: skip
