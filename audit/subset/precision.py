"""Average precision (AP) of pictures that stand for more pictures, and what each has to do with it.

With detections taken from the best score down, the weight of right ones (T) and of wrong ones (F)
so far gives precision T / (T + F) and recall T / G, G being the weight of the objects. Precision is
raised to the best at any larger recall, and averaged over 101 recalls; with weights of 1 this is
pycocotools' number.

A picture has an *influence* on AP, Deville's (1999) linearised variable with the raised curve held
in its place: with A_k = sum over objects found below k of w / (T + F), and B_k the same sum times
their precision P, a detection k adds (right_k (P_k + A_k) - B_k) / G, and a picture loses AP times
its objects / G. Influences of a class that few units hold are divided by 1 less the leverage, as
the jackknife does.

Few objects make AP too high: the excess of the raised curve, a Grenander-type estimator, falls as
n^(-2/3) (P. Groeneboom, "Estimating a monotone density", 1985). The mean AP of two halves of the
sample has 2^(2/3) times the excess and so shows it; a set of N pictures keeps (n/N)^(2/3) of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from audit.statistics.intervals import Floats, Ints
from audit.subset.draw import counted_uniforms
from audit.subset.matching import MOST, SIZES, THRESHOLDS, Bits, Flags, Matches

RECALLS: Floats = np.linspace(0.0, 1.0, 101)


@dataclass(frozen=True)
class Part:
    """A metric of one class on some pictures, one entry a picture.

    `influence` has the weighted sum 0; `share`, what its objects weigh, the weighted sum 1; `found`
    the part of `share` that counts for the metric; `squares`: what single objects weigh, squared
    and summed. `excess`: what AP has too much here, beyond a set of any size.
    """

    value: float
    influence: Floats
    share: Floats
    found: Floats
    squares: Floats
    excess: float = 0.0


SPLITS = 4
"""Pairs of halves that show the excess of an AP: their own noise is of second order."""
EXCESS = 2 / 3
"""Power of the size with which the excess falls."""


@dataclass(frozen=True)
class ObjectMetric:
    """A metric of detections: `kind` ap, ar, f1 or iou; the class it is of, None for all of them.

    `bits`: thresholds of IoU; `size`: range of areas; `most`: detections of a class in a picture;
    `score`: detections from this score on count.
    """

    name: str
    kind: str
    label: str | None = None
    bits: tuple[int, ...] = tuple(range(THRESHOLDS.size))
    size: int = 0
    most: int = MOST
    score: float = 0.0


NAMES = ("map", "map50", "map75", "map-small", "map-medium", "map-large", "ar1", "ar10", "ar100",
         "f1@SCORE", "miou")  # fmt: skip


def parse_object_metric(metric: str) -> ObjectMetric | None:
    """Return the metric that a name such as `map50`, `map:cat` or `f1@0.5` means, None if none."""
    name, _, label = metric.partition(":")
    of = label or None
    if name.startswith("f1@"):
        try:
            score = float(name[3:])
        except ValueError:
            return None
        return ObjectMetric(metric, "f1", of, (0,), score=score) if 0 <= score <= 1 else None
    if name not in NAMES:
        return None
    if name == "miou":
        return ObjectMetric(metric, "iou", of)
    if name.startswith("ar"):
        return ObjectMetric(metric, "ar", of, most=int(name[2:]))
    if name[3:].isdigit():
        return ObjectMetric(metric, "ap", of, (0 if name == "map50" else 5,))
    return ObjectMetric(metric, "ap", of, size=SIZES.index(name[4:]) if name[3:] else 0)


class Evaluation:
    """The matches of some pictures with their weights, by class; `unit`: the unit of each picture.

    Sums are of weights over the largest one: with alike weights they stay whole.
    """

    def __init__(self, matches: Matches, weight: Floats, unit: Ints) -> None:
        self.matches, self.unit = matches, unit
        self.scale = float(weight.max()) if weight.size else 1.0
        self.weight = weight / self.scale
        edges = np.arange(len(matches.classes) + 1)
        self._order = np.argsort(matches.owned, kind="stable")
        self._found = np.searchsorted(matches.kind, edges)
        self._owned = np.searchsorted(matches.owned[self._order], edges)

    def holding(self, metric: ObjectMetric, c: int) -> Ints:
        """Return the objects of a class that count in each picture."""
        m = self.matches
        own = self._order[self._owned[c] : self._owned[c + 1]]
        own = own[m.counts[metric.size, own]]
        return np.bincount(m.owner[own], minlength=m.pictures)

    def part(self, metric: ObjectMetric, c: int) -> Part | None:
        """Return the metric of one class."""
        m, area = self.matches, metric.size
        objects = self.holding(metric, c)
        total = float((self.weight * objects).sum())
        if total == 0:
            return None
        d = np.arange(self._found[c], self._found[c + 1])
        if metric.most < MOST or metric.score > 0:
            d = d[(m.rank[d] < metric.most) & (m.score[d] >= metric.score)]
        at, hit, skip = m.picture[d], m.hit[area, d], m.skip[area, d]
        if metric.kind != "ap":
            right = np.bincount(at, _share_of_bits(hit & ~skip, metric.bits), m.pictures)
            share = objects.astype(float)
            if metric.kind == "f1":  # twice the right ones among objects and detections
                share += np.bincount(at, _share_of_bits(~skip, metric.bits), m.pictures)
                right *= 2
            whole = float((self.weight * share).sum())
            value = float((self.weight * right).sum()) / whole
            influence = (right - value * share) / whole
            return self._made(value, influence, share / whole, right / whole, 1 / whole)
        bits = np.array(metric.bits)
        value, gain, at_right = _curve(self.weight[at], hit, skip, bits, total, True)
        share, found = objects / total, np.bincount(at, at_right, m.pictures) / total
        influence = np.bincount(at, gain, m.pictures) - float((self.weight * found).sum()) * share

        def on(weight: Floats) -> float:
            whole = float((weight * objects).sum())
            return _curve(weight[at], hit, skip, bits, whole, False)[0]

        excess = (self._on_halves(on, objects > 0, at, c) - value) / (2**EXCESS - 1)
        return self._made(value, influence, share, found, 1 / total, excess)

    def _made(
        self, value: float, influence: Floats, share: Floats, found: Floats, single: float,
        excess: float = 0.0,
    ) -> Part:  # fmt: skip
        scale = self.scale
        leverage = leverage_of(self.weight * share, self.unit)
        return Part(
            value, influence / (1 - leverage) / scale, share / scale, found / scale,
            share * single / scale**2, excess,
        )  # fmt: skip

    def _on_halves(self, on: Callable[[Floats], float], holds: Flags, at: Ints, c: int) -> float:
        """Return the mean AP of halves of the units, of those with objects and of the others."""
        holding = np.unique(self.unit[holds])
        if holding.size < 2:
            return on(self.weight)
        others = np.setdiff1d(self.unit[at], holding)
        half = np.zeros(int(self.unit.max()) + 1, np.int64)
        values = []
        for split in range(SPLITS):
            for place, units in enumerate((holding, others)):
                chance = counted_uniforms(units.size, (c * SPLITS + split) * 2 + place)
                half[units[np.argsort(chance)]] = np.arange(units.size) % 2
            side = half[self.unit]
            values += [on(self.weight * (side == k)) for k in (0, 1)]
        return float(np.mean(values))


def _curve(
    weight: Floats, hit: Bits, skip: Bits, bits: Ints, total: float, parts: bool
) -> tuple[float, Floats, Floats]:
    """Return AP at the thresholds `bits`, and of each detection its gain and the precision where it
    is right, if `parts`.

    `weight`, `hit`, `skip`: of the detections of a class, best first; `total`: weight of objects.
    """
    gain, found = np.zeros((2, weight.size if parts else 0))
    values = []
    for bit in bits:
        place = np.flatnonzero((weight != 0) & ((skip >> bit) & 1 == 0))
        w, is_right = weight[place], (hit[place] >> bit) & 1 == 1
        right = np.cumsum(np.where(is_right, w, 0))
        below = right + np.cumsum(np.where(is_right, 0, w))
        precision = right / (below + np.finfo(float).eps)
        raised = np.maximum.accumulate(precision[::-1])[::-1]  # the best at any larger recall
        reached = np.searchsorted(right / total, RECALLS)
        values.append(raised[reached[reached < place.size]].sum() / RECALLS.size)
        if not parts or not place.size:
            continue
        # where the precision that holds for each detection is reached
        is_peak = precision == raised
        peak = np.flatnonzero(is_peak)[np.cumsum(is_peak) - is_peak]
        weighed = np.where(is_right, w / below[peak], 0)
        a, b = (
            np.cumsum(np.bincount(peak, each, place.size)[::-1])[::-1]
            for each in (weighed, weighed * raised)
        )
        found[place] += np.where(is_right, raised, 0) / bits.size
        gain[place] += (np.where(is_right, raised + a, 0) - b) / total / bits.size
    return float(np.mean(values)), gain, found


def _share_of_bits(answers: Bits, bits: Sequence[int]) -> Floats:
    """Return the share of the thresholds at which each answer is set."""
    return np.asarray(sum(((answers >> b) & 1).astype(float) for b in bits)) / len(bits)


def leverage_of(held: Floats, unit: Ints) -> float:
    """Return one over the effective number of units that hold something, at most one half."""
    each = np.bincount(unit, held)
    return min(float((each**2).sum() / each.sum() ** 2), 0.5)


def mean_part(parts: Sequence[Part]) -> Part:
    """Return the mean of a metric over classes."""
    means: dict[str, Any] = {
        f.name: np.mean([getattr(part, f.name) for part in parts], axis=0) for f in fields(Part)
    }
    means["squares"] /= len(parts)
    return Part(**means)
