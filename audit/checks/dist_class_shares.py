"""DIST006: splits in which the classes have other shares than in training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import polars as pl

from audit.checking.cases import Case
from audit.checking.check import Check
from audit.records import Action, Finding, Severity
from audit.run.store import Store
from audit.stats import benjamini_hochberg, cramers_v, total_variation

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
DRAWS = 2000  # permutations: p-values down to 1 / 2001


def _split(split: str, **counts: int) -> list[dict[str, Any]]:
    return [{"label": x, "split": split} for x, n in counts.items() for _ in range(n)]


class ClassShareShift(Check):
    """Evaluation splits whose classes are mixed otherwise than those of the training splits.

    ## What it does
    Compares the class shares of each evaluation split with those of the training splits (without
    any: of each split with the rest), over classes that both have. Copies count once. The total
    variation is the share of pictures that would have to change class to make the two alike; what
    chance alone makes of it, found by permutation, is taken off. Reported if the difference is
    surely there (false discoveries below `rate` over the splits) and the excess is at least
    `min_excess`.

    ## Why is this bad
    Accuracy depends on the mix of classes: a model's score on such a split is not its score on data
    like the training data, and its calibration is off.

    ## Example
    Half of the training pictures show cats, a tenth of the test pictures.

    ## What to do
    Split again by class (stratified). If the mix differs on purpose (a balanced test of a skewed
    training set), report the mean over classes, or weight the classes.

    ## Limits
    Classes that one of the two lacks are left to DIST003; imbalance that both share to DIST001.

    ## References
    Lipton, Wang and Smola, Detecting and correcting for label shift with black box predictors, ICML
    2018. Bergsma (2013), Journal of the Korean Statistical Society 42:323 (Cramer's V). Benjamini
    and Hochberg (1995), JRSS B 57:289."""

    code = "DIST006"
    name = "class-share-shift"
    severity = Severity.INFO

    @dataclass(frozen=True)
    class Params:
        """Thresholds.

        rate: false discoveries over the splits, 0..1
        min_excess: total variation beyond that of chance from which a shift matters, 0..1
        min_units: pictures (copies counted once) of a split, at least
        train_splits: names of the splits that models are trained on
        """

        rate: float = 0.01
        min_excess: float = 0.1
        min_units: int = 30
        train_splits: tuple[str, ...] = ("train", "training")

    CLEAN: ClassVar[Sequence[Case]] = (
        Case("the same mix", _split("train", a=80, b=40) + _split("test", a=40, b=20)),
        Case("chance", _split("train", a=60, b=60, c=60) + _split("test", a=14, b=20, c=11)),
        Case("too few", _split("train", a=80, b=40) + _split("test", b=9, a=1)),
        Case("a class that is missing: DIST003", _split("train", a=50, b=50, c=100)
             + _split("test", a=40, b=40)),
        Case("one split", _split("train", a=80, b=5)),
    )  # fmt: skip
    DIRTY: ClassVar[Sequence[Case]] = (
        Case("another mix", _split("train", a=100, b=50) + _split("test", a=30, b=70),
             ["split:test"]),
        Case("splits without training", _split("a", x=100, y=50) + _split("b", x=30, y=70),
             ["split:a", "split:b"]),
    )  # fmt: skip

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        """Yield one finding per split."""
        compared = list(_comparisons(store, params))
        adjusted = benjamini_hochberg([c.p for c in compared]).tolist()
        for one, p in zip(compared, adjusted, strict=True):
            if p <= params.rate and one.variation - one.chance >= params.min_excess:
                yield self._finding(one, p)

    def _finding(self, one: ShareComparison, p: float) -> Finding:
        moved = sorted(zip(one.labels, *one.shares, strict=True), key=lambda m: -abs(m[1] - m[2]))
        named = ", ".join(f"{x} ({a:.1%} there, {b:.1%} here)" for x, a, b in moved[:5])
        return Finding(
            self.code,
            self.severity,
            (),
            f"Split {one.split} has another mix of classes than {one.reference}: "
            f"{one.variation:.1%} of its {one.n:,} pictures would have to change class to make the "
            f"two alike, where chance explains {one.chance:.1%}. The most: {named}.",
            {
                "total_variation": one.variation, "by_chance": one.chance, "p": p,
                "cramers_v": one.cramers_v, "pictures": one.n, "classes": len(one.labels),
                "compared_with": one.reference,
            },
            Action.REVIEW,
            f"split:{one.split}",
        )  # fmt: skip

    def completeness(self, store: Store, params: Params) -> str:
        """Say what was compared with what."""
        compared = list(_comparisons(store, params, draws=0))
        if not compared:
            return f"Class shares were not compared: fewer than 2 splits of {params.min_units}."
        each = ", ".join(
            f"{one.split} with {one.reference} ({len(one.labels):,} classes)" for one in compared
        )
        return f"Class shares were compared: {each}."


@dataclass(frozen=True, slots=True)
class ShareComparison:
    """A split against its reference: shares of classes that both have, and how far apart."""

    split: str
    reference: str
    labels: Sequence[str]
    shares: tuple[Sequence[float], Sequence[float]]
    n: int
    variation: float
    chance: float
    cramers_v: float
    p: float


def _comparisons(
    store: Store, params: ClassShareShift.Params, draws: int = DRAWS
) -> Iterator[ShareComparison]:
    counts = store.query(
        "SELECT split, label, effective AS n FROM effective_sizes WHERE split IS NOT NULL "
        "AND trim(coalesce(label, '')) <> '' ORDER BY split, label"
    )
    splits = counts["split"].unique().sort().to_list()
    trained = [s for s in splits if s in params.train_splits]
    for split in splits:
        others = trained or [s for s in splits if s != split]
        if split in trained or not others:
            continue
        mine = counts.filter(pl.col("split") == split).select("label", "n")
        theirs = counts.filter(pl.col("split").is_in(others)).group_by("label").agg(pl.sum("n"))
        both = theirs.join(mine, on="label", suffix="_here").sort("label")
        table = both.select("n", "n_here").to_numpy().T.astype(np.int64)
        if len(both) > 1 and table.sum(1).min() >= params.min_units:
            yield _compared(split, " and ".join(others), both["label"].to_list(), table, draws)


def _compared(
    split: str, reference: str, labels: Sequence[str], table: Ints, draws: int
) -> ShareComparison:
    there, here = table
    variation = total_variation(there, here)
    p, chance = 1.0, 0.0
    if draws:
        # Pictures of both, dealt out again: every table with these margins by its probability.
        drawn = np.random.default_rng(0).multivariate_hypergeometric(
            there + here, int(here.sum()), size=draws, method="marginals"
        )
        rest = there + here - drawn
        apart = np.abs(drawn / here.sum() - rest / there.sum()).sum(1) / 2
        p = float((1 + (apart >= variation - 1e-12).sum()) / (draws + 1))
        chance = float(apart.mean())
    shares = (there / there.sum()).tolist(), (here / here.sum()).tolist()
    n = int(here.sum())
    return ShareComparison(
        split, reference, labels, shares, n, variation, chance, cramers_v(table), p
    )
