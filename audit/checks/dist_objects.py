"""DIST010, DIST011: splits in which classes of objects come together otherwise, or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from audit.checking.cases import Case
from audit.checking.check import Check
from audit.checking.objects import Floats, ObjectTable, object_case, object_table, references
from audit.records import Finding, Severity
from audit.run.store import Store
from audit.statistics.association import level_p_values
from audit.statistics.intervals import benjamini_hochberg
from audit.statistics.mixes import compare_pairs

CAR, BOTH, BUS, NONE = {"car": 1}, {"car": 1, "bus": 1}, {"bus": 1}, dict[str, int]()
VAN = {"van": 1}


class PairShift(Check):
    """Evaluation splits in which classes of objects share pictures otherwise than in training.

    ## What it does
    For each pair of classes, counts the pictures (near-duplicates and groups once) that hold both,
    in each evaluation split, and compares with what they would be if the odds ratio of the pair,
    among pictures with objects, were that of the training splits (without any: of the rest) while
    each class is as frequent as it is here. A pair is reported if that is no chance (a score test,
    false discoveries below `rate` over pairs and splits) and if at least `min_share` of the
    pictures of the rarer class are concerned. One finding a split lists the largest.

    ## Why is this bad
    A detector learns context: cups on tables. Where the company of a class differs, the score says
    how it does without that context, and a rise or fall of it is taken for the model's.

    ## Example
    In train 80 % of the helmets are in pictures with a motorbike, in val 10 %.

    ## What to do
    Split again by the classes of objects (`audit export --splits`), or report the score by company.

    ## Limits
    Pairs of classes that are in fewer than `min_units` pictures of either side are not compared.
    Other shares of classes alone are DIST006's.

    ## References
    Cornfield (1956), Proc. 3rd Berkeley Symposium 4:135. Shetty, Schiele and Fritz, Not using the
    car to see the sidewalk, CVPR 2019: detectors that rely on company."""

    code = "DIST010"
    name = "object-company-shift"
    severity = Severity.INFO
    tables = ("object_labels",)

    @dataclass(frozen=True)
    class Params:
        """rate: false discoveries over pairs of classes and splits, 0..1
        min_share: of the pictures of the rarer class, at least, that have other company, 0..1
        min_units: pictures with each of the classes on either side, at least
        max_listed: pairs that a finding names, at most
        train_splits: names of the splits that models are trained on
        """

        rate: float = 0.01
        min_share: float = 0.15
        min_units: int = 20
        max_listed: int = 5
        train_splits: tuple[str, ...] = ("train", "training")

    @staticmethod
    def cases() -> Iterator[Case]:
        def split(name: str, *held: dict[str, int]) -> list[tuple[str, dict[str, int]]]:
            return [(name, one) for one in held]

        train = split("train", *[CAR] * 60, *[BUS] * 60, *[BOTH] * 60, *[VAN] * 60)
        for what, held, expect in (
            ("the same company", [CAR, BUS, BOTH, VAN] * 25, []),
            ("rarer, but in the same company", [CAR, BUS, BOTH, VAN, VAN, VAN] * 20, []),
            ("never together", [CAR, BUS, CAR, BUS, VAN] * 20, ["object:split:val"]),
            ("always together", [BOTH, VAN] * 40, ["object:split:val"]),
            ("too few to tell", [CAR, BUS] * 5, []),
        ):
            images, tables = object_case(*train, *split("val", *held))
            yield Case(what, images, expect, tables=tables)

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        found = store.share(_pairs, params)
        adjusted = benjamini_hochberg([pair.p for pair in found]).tolist()
        by_split: dict[str, list[Pair]] = {}
        for pair, p in zip(found, adjusted, strict=True):
            if p <= params.rate and abs(pair.both - pair.expected) >= params.min_share * pair.rarer:
                by_split.setdefault(pair.split, []).append(pair)
        for split, pairs in by_split.items():
            pairs.sort(key=lambda pair: -abs(pair.both - pair.expected) / pair.rarer)
            said = "; ".join(pair.sentence() for pair in pairs[: params.max_listed])
            more = len(pairs) - params.max_listed
            evidence: dict[str, Any] = {"pairs": len(pairs), "compared_with": pairs[0].reference}
            for pair in pairs[: params.max_listed]:
                evidence[f"{pair.one} with {pair.other}"] = pair.both
                evidence[f"{pair.one} with {pair.other}, expected"] = pair.expected
            yield self.finding(
                f"object:split:{split}",
                f"In split {split}, {len(pairs):,} pairs of classes of objects share pictures "
                f"otherwise than in {pairs[0].reference}: {said}"
                + (f"; and {more:,} more." if more > 0 else "."),
                evidence,
            )

    def completeness(self, store: Store, params: Params) -> str:
        return f"{len(store.share(_pairs, params)):,} pairs of classes and split were compared."


class Pair(NamedTuple):
    """Two classes in a split: units with both, what they would be, units with the rarer one."""

    split: str
    reference: str
    one: str
    other: str
    both: float
    expected: float
    rarer: float
    p: float

    def sentence(self) -> str:
        """Return it in words."""
        return (
            f"{self.one} and {self.other} in {self.both:,.0f} pictures, where "
            f"{self.expected:,.0f} would be (the rarer of them is in {self.rarer:,.0f})"
        )


def _pairs(store: Store, params: PairShift.Params) -> list[Pair]:
    table = store.share(object_table)
    if table is None:
        return []
    found, filled = list[Pair](), (table.units["filled"] > 0).to_numpy()
    together = cache(lambda *splits: _together(table, splits))  # the reference is often one
    for split, others in references(table.splits, params.train_splits).items():
        here, there = together(split), together(*others)
        frequent = (np.minimum(here.diagonal(), there.diagonal()) >= params.min_units).nonzero()[0]
        first, second = (frequent[i] for i in np.triu_indices(len(frequent), 1))
        sides = [
            (
                m[first, second],
                m[first, first],
                m[second, second],
                float((filled & table.in_split(s)).sum()),
            )
            for m, s in ((here, [split]), (there, others))
        ]
        shift = compare_pairs(*sides)
        rarer = np.minimum(sides[0][1], sides[0][2])
        names = [[table.labels[i] for i in side] for side in (first, second)]
        rows = zip(*names, shift.both, shift.expected, rarer, shift.p, strict=True)
        found += [Pair(split, " and ".join(others), a, b, *map(float, x)) for a, b, *x in rows]
    return found


def _together(table: ObjectTable, splits: Sequence[str]) -> Floats:
    """Return in how many units of some splits each two classes are; the diagonal is one class."""
    from scipy.sparse import csr_array

    unit, label = (table.held[name].to_numpy() for name in ("unit", "label"))
    kept = table.in_split(splits)[unit]
    shape = (table.units.height, len(table.labels))
    held: Any = csr_array((np.ones(int(kept.sum())), (unit[kept], label[kept])), shape=shape)
    return np.asarray((held.T @ held).toarray())


class EmptyShareShift(Check):
    """Evaluation splits with more or fewer pictures without objects than the training splits have.

    ## What it does
    Counts the pictures without any object (near-duplicates and groups once) in each evaluation
    split and in the training splits (without any: in the rest). A split is reported if the share
    differs by at least `min_difference` and by more than chance makes of whole units (exact, false
    discoveries below `rate` over the splits).

    ## Why is this bad
    Precision counts false alarms, and pictures without objects are where they come from: the more
    of them, the lower it is for the same detector. A split without any objects at all mostly lost
    its annotations.

    ## Example
    5 % of the training pictures have no box, 60 % of val: its label files were not copied.

    ## What to do
    Look whether the annotations of that split were read (`audit report RUN`). If they were, deal
    out the empty pictures like the others: `audit export --splits` does.

    ## Limits
    A picture that no annotation file names counts as one without objects, as it does in training.
    Where the training splits hold no object at all, nothing is compared.

    ## References
    Fisher (1935), The Logic of Inductive Inference, JRSS 98: the exact test. Benjamini and Hochberg
    (1995), JRSS B 57:289."""

    code = "DIST011"
    name = "empty-picture-shift"
    severity = Severity.WARNING
    tables = ("object_labels",)

    @dataclass(frozen=True)
    class Params:
        """rate: false discoveries over the splits, 0..1
        min_difference: of the shares of pictures without objects, from which it matters, 0..1
        min_units: pictures (copies and groups counted once) on either side, at least
        train_splits: names of the splits that models are trained on
        """

        rate: float = 0.01
        min_difference: float = 0.15
        min_units: int = 20
        train_splits: tuple[str, ...] = ("train", "training")

    @staticmethod
    def cases() -> Iterator[Case]:
        for what, empty, expect in (
            ("as many as in train", 4, []),
            ("no annotations at all in val", 40, ["object:split:val"]),
            ("none in val, one in ten in train", 0, []),
            ("half of val", 20, ["object:split:val"]),
        ):
            pictures = [("train", CAR)] * 90 + [("train", NONE)] * 10
            pictures += [("val", NONE)] * empty + [("val", CAR)] * (40 - empty)
            images, tables = object_case(*pictures)
            yield Case(what, images, expect, tables=tables)
        images, tables = object_case(*[("train", NONE)] * 50, *[("val", CAR)] * 40)
        yield Case("objects in val alone", images, tables=tables)

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        found = _empty_shares(store, params)
        adjusted = benjamini_hochberg([one.p for one in found]).tolist()
        for one, p in zip(found, adjusted, strict=True):
            here, there = one.empty / one.n, one.empty_there / one.n_there
            if p <= params.rate and abs(here - there) >= params.min_difference:
                yield self.finding(
                    f"object:split:{one.split}",
                    f"{one.empty:,} of the {one.n:,} pictures of split {one.split} have no object "
                    f"({here:.0%}), of {one.reference} {one.empty_there:,} of {one.n_there:,} "
                    f"({there:.0%}); near-duplicates and groups count once.",
                    {
                        "split": one.split, "without": one.empty, "pictures": one.n, "share": here,
                        "share_there": there, "compared_with": one.reference, "p": p,
                    },
                )  # fmt: skip

    def completeness(self, store: Store, params: Params) -> str:
        n = len(_empty_shares(store, params))
        return f"Pictures without objects were compared in {n:,} splits."


class EmptyShare(NamedTuple):
    """Units of a split and of its reference, and those of them without objects."""

    split: str
    reference: str
    empty: int
    n: int
    empty_there: int
    n_there: int
    p: float


def _empty_shares(store: Store, params: EmptyShareShift.Params) -> list[EmptyShare]:
    table = store.share(object_table)
    if table is None:
        return []
    empty, found = (table.units["filled"] == 0).to_numpy(), list[EmptyShare]()
    for split, others in references(table.splits, params.train_splits).items():
        here, there = table.in_split([split]), table.in_split(others)
        k, n, k_there, n_there = (int(x.sum()) for x in (empty & here, here, empty & there, there))
        # a reference that holds none is not annotated: then only these were to be
        if min(n, n_there) >= params.min_units and k_there < n_there:
            counts = (np.array([float(x)]) for x in (k, n, k + k_there, n + n_there))
            p = float(level_p_values(*counts)[0])
            found.append(EmptyShare(split, " and ".join(others), k, n, k_there, n_there, p))
    return found
