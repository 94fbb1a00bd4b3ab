"""DIST011: evaluation splits with another share of images without objects than training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from audit.checking.check import Check
from audit.checking.objects import object_table, references
from audit.records import Finding, Severity
from audit.run.store import Store
from audit.statistics.association import level_p_values
from audit.statistics.intervals import benjamini_hochberg


class EmptyShareShift(Check):
    """Evaluation splits whose share of images without objects differs from the training splits.

    ## What it does
    Compares the share of images without objects in each evaluation split with the training splits
    (without training splits: with the rest). Near-duplicates and groups count once. A split is
    reported if the shares differ by at least `min_difference`, and significantly (exact test, false
    discovery rate `rate` over the splits).

    ## Why is this bad
    Images without objects cause false positives: the more of them, the lower the precision of the
    same detector. A split without any objects has usually lost its annotations.

    ## Example
    5% of the training images have no box, 60% of val: its label files were not copied.

    ## What to do
    Check that the annotations of that split were read (`audit report RUN`). If they were,
    distribute the images without objects evenly (`audit export --splits`).

    ## Limits
    An image that no annotation file lists counts as an image without objects, as in training. Not
    applicable if the training splits have no objects.

    ## References
    Fisher (1935), The Logic of Inductive Inference, JRSS 98: the exact test. Benjamini and Hochberg
    (1995), JRSS B 57:289."""

    code = "DIST011"
    name = "empty-image-shift"
    severity = Severity.WARNING
    tables = ("object_labels",)

    @dataclass(frozen=True)
    class Params:
        """rate: false discovery rate over the splits, 0..1
        min_difference: smallest reported difference of the shares, 0..1
        min_units: smallest number of images of either set (copies and groups counted once)
        train_splits: names of the splits that models are trained on
        """

        rate: float = 0.01
        min_difference: float = 0.15
        min_units: int = 20
        train_splits: tuple[str, ...] = ("train", "training")

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        found = _empty_shares(store, params)
        adjusted = benjamini_hochberg([one.p for one in found]).tolist()
        for one, p in zip(found, adjusted, strict=True):
            here, there = one.empty / one.n, one.empty_there / one.n_there
            if p <= params.rate and abs(here - there) >= params.min_difference:
                yield self.finding(
                    f"object:split:{one.split}",
                    f"{one.empty:,} of the {one.n:,} images of split {one.split} have no object "
                    f"({here:.0%}), but in {one.reference} {one.empty_there:,} of {one.n_there:,} "
                    f"({there:.0%}); near-duplicates and groups count once.",
                    {
                        "split": one.split, "without": one.empty, "pictures": one.n, "share": here,
                        "share_there": there, "compared_with": one.reference, "p": p,
                    },
                )  # fmt: skip

    def completeness(self, store: Store, params: Params) -> str:
        n = len(_empty_shares(store, params))
        return f"Images without objects were compared in {n:,} splits."


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
