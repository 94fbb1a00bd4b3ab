"""DIST006: splits in which the classes have other shares than in training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from audit.checking.check import QueryCheck
from audit.checking.objects import object_table, references
from audit.records import Finding, Severity
from audit.run.store import Store
from audit.statistics.intervals import benjamini_hochberg, cramers_v, total_variation
from audit.statistics.mixes import DRAWS, compare_mixes

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class ClassShareShift(QueryCheck):
    """Evaluation splits whose class shares differ from those of the training splits.

    ## What it does
    Compares the class shares of each evaluation split with those of the training splits (without
    training splits: with the rest), over classes that both have. Copies count once. The total
    variation is the share of images that would have to change class to make the shares equal. The
    value expected by chance (permutation) is subtracted. Reported if the difference is significant
    (false discovery rate `rate` over the splits) and the excess is at least `min_excess`.

    Objects are compared in the same way. Whole images and groups are permuted, because objects of
    one image are not independent.

    ## Why is this bad
    Accuracy and calibration depend on the class shares: the score on this split does not hold for
    data like the training data.

    ## Example
    50% of the training images show cats, but 10% of the test images.

    ## What to do
    Split again, stratified by class. If the shares differ on purpose (a balanced test of a skewed
    training set), report the mean over classes, or weight the classes.

    ## Limits
    DIST003 reports classes that one of the two lacks. DIST001 reports imbalance that both share.

    ## References
    Lipton, Wang and Smola, Detecting and correcting for label shift with black box predictors, ICML
    2018. Bergsma (2013), Journal of the Korean Statistical Society 42:323 (Cramer's V). Benjamini
    and Hochberg (1995), JRSS B 57:289."""

    code = "DIST006"
    name = "class-share-shift"
    severity = Severity.INFO
    message = (
        "The class shares{of} of split {split} differ from {compared_with}: {total_variation:.1%} "
        "of its {pictures:,} {many} would have to change class to match ({by_chance:.1%} by "
        "chance). Largest differences: {moved}."
    )
    evidence = (
        "total_variation", "by_chance", "p", "cramers_v", "pictures", "classes", "compared_with"
    )  # fmt: skip

    @dataclass(frozen=True)
    class Params:
        """rate: false discovery rate over the splits, 0..1
        min_excess: smallest reported total variation in excess of chance, 0..1
        min_units: smallest number of images of a split (copies counted once)
        train_splits: names of the splits that models are trained on
        """

        rate: float = 0.002
        min_excess: float = 0.1
        min_units: int = 30
        train_splits: tuple[str, ...] = ("train", "training")

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        for compare in (_comparisons, _object_comparisons):
            yield from self._shifted(store.share(compare, params), params)

    def _shifted(self, compared: Sequence[ShareComparison], params: Params) -> Iterator[Finding]:
        adjusted = benjamini_hochberg([c.p for c in compared]).tolist()
        for one, p in zip(compared, adjusted, strict=True):
            if p <= params.rate and one.total_variation - one.by_chance >= params.min_excess:
                yield self.of_row({**one._asdict(), "p": p, "classes": len(one.labels)}, params)

    def kept(self, row: Mapping[str, Any], params: Params) -> dict[str, Any]:
        kept = super().kept(row, params)
        return {row["many"] if name == "pictures" else name: kept[name] for name in kept}

    def completeness(self, store: Store, params: Params) -> str:
        compared = [
            *store.share(_comparisons, params), *store.share(_object_comparisons, params)
        ]  # fmt: skip
        if not compared:
            return f"Class shares were not compared: fewer than 2 splits of {params.min_units}."
        each = ", ".join(
            f"{one.split} with {one.compared_with} ({len(one.labels):,} classes{one.of})"
            for one in compared
        )
        return f"Class shares were compared: {each}."


class ShareComparison(NamedTuple):
    """A split against its reference, in classes that both have; `moved` names the most moved.

    `images` are those of the split, or its objects.
    """

    subject: str
    split: str
    compared_with: str
    labels: Sequence[str]
    moved: str
    pictures: int
    total_variation: float
    by_chance: float
    cramers_v: float
    p: float
    many: str = "pictures"
    of: str = ""


def _comparisons(store: Store, params: ClassShareShift.Params) -> list[ShareComparison]:
    counts = store.query(
        "SELECT split, label, effective AS n FROM effective_sizes WHERE split IS NOT NULL "
        "AND trim(coalesce(label, '')) <> '' ORDER BY split, label"
    )
    found = []
    for split, others in references(set(counts["split"]), params.train_splits).items():
        mine = counts.filter(pl.col("split") == split).select("label", "n")
        theirs = counts.filter(pl.col("split").is_in(others)).group_by("label").agg(pl.sum("n"))
        both = theirs.join(mine, on="label", suffix="_here").sort("label")
        table = both.select("n", "n_here").to_numpy().T.astype(np.int64)
        if len(both) > 1 and table.sum(1).min() >= params.min_units:
            found.append(_compared(split, " and ".join(others), both["label"].to_list(), table))
    return found


def _object_comparisons(store: Store, params: ClassShareShift.Params) -> list[ShareComparison]:
    table, found = store.share(object_table), []
    if table is None:
        return []
    for split, others in references(table.splits, params.train_splits).items():
        pair = [table.in_split(splits) for splits in ([split], others)]
        shared = np.minimum(*(table.sizes(splits) for splits in ([split], others))) > 0
        unit, label, n = (table.held[name].to_numpy() for name in ("unit", "label", "n"))
        rows = (pair[0] | pair[1])[unit] & shared[label]
        units, places = np.unique(unit[rows], return_inverse=True)
        here = pair[0][units]
        least = min(here.sum(), (~here).sum())
        if shared.sum() < 2 or least < params.min_units:
            continue
        number = np.cumsum(shared) - 1
        mix = compare_mixes(places, number[label[rows]], n[rows], here, int(shared.sum()))
        labels = [x for x, both in zip(table.labels, shared, strict=True) if both]
        found.append(
            ShareComparison(
                f"object:split:{split}", split, " and ".join(others), labels,
                _most_moved(labels, mix.there, mix.here), int(mix.here.sum()), mix.total_variation,
                mix.by_chance, cramers_v(np.stack([mix.there, mix.here])), mix.p, "objects",
                " of objects",
            )
        )  # fmt: skip
    return found


def _most_moved(labels: Sequence[str], there: Floats, here: Floats) -> str:
    shares = zip(labels, (there / there.sum()).tolist(), (here / here.sum()).tolist(), strict=True)
    most = sorted(shares, key=lambda m: -abs(m[1] - m[2]))[:5]
    return ", ".join(f"{x} ({b:.1%} instead of {a:.1%})" for x, a, b in most)


def _compared(split: str, reference: str, labels: Sequence[str], table: Ints) -> ShareComparison:
    there, here = table
    variation = total_variation(there, here)
    # Pictures of both, dealt out again: every table with these margins by its probability.
    drawn = np.random.default_rng(0).multivariate_hypergeometric(
        there + here, int(here.sum()), size=DRAWS, method="marginals"
    )
    rest = there + here - drawn
    apart = np.abs(drawn / here.sum() - rest / there.sum()).sum(1) / 2
    p = float((1 + (apart >= variation - 1e-12).sum()) / (DRAWS + 1))
    moved = _most_moved(labels, there, here)
    return ShareComparison(
        f"split:{split}", split, reference, labels, moved, int(here.sum()), variation,
        float(apart.mean()), cramers_v(table), p,
    )  # fmt: skip
