"""LABEL004: classes of one sample."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from audit.checking.cases import Case
from audit.checking.check import Check
from audit.records import Action, Finding, Severity
from audit.run.store import Store


class SingleSampleClass(Check):
    """Classes with a single sample in the whole dataset.

    ## What it does
    Counts the samples of each class over all splits and reports classes with one. If these are more
    than `max_share` of the classes, they are reported once, with all of them listed.

    ## Why is this bad
    Such a class can be trained or tested, but not both. Stratified splitting fails, and its recall
    is either 0 % or 100 %, decided by one picture. Often it is not a class at all but a typing
    error or a misplaced folder.

    ## Example
    `bridge` has 40 pictures, `bridgee` has one.

    ## What to do
    Merge it into the intended class (LABEL002 names candidates), collect more images, or drop it.

    ## Limits
    Copies count: a class with two copies of one picture has two samples here, and DUP001 reports
    the copies.

    ## References
    scikit-learn, StratifiedShuffleSplit: each class needs at least 2 members.
    """

    code = "LABEL004"
    name = "single-sample-class"
    severity = Severity.WARNING

    @dataclass(frozen=True)
    class Params:
        """Thresholds.

        max_share: reported once for the dataset above this share of the classes, 0..1
        min_common: and only from this many single-sample classes
        """

        max_share: float = 0.5
        min_common: int = 20

    CLEAN = (
        Case("two samples", [{}, {"split": "test"}]),
        Case("no labels", [{"label": None}]),
    )
    DIRTY = (
        Case("one stray sample", [{"label": "bridge"}] * 3 + [{"label": "bridgee"}],
             ["class:bridgee"]),
        Case("one-shot identities are reported once",
             [{"label": f"person {i}"} for i in range(25)] + [{"label": "person 3"}], ["dataset"]),
    )  # fmt: skip

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        """Yield one finding per class, or one for the dataset if most classes have one sample."""
        sql = """
            SELECT label, count(*) AS n, min(id) AS id, min(coalesce(split, '')) AS split,
                count(*) OVER () AS classes
            FROM images WHERE trim(coalesce(label, '')) <> '' GROUP BY label ORDER BY label
        """
        counts = store.query(sql)
        single = counts.filter(pl.col("n") == 1)
        if len(single) >= params.min_common and len(single) > params.max_share * len(counts):
            yield self._common(single, len(counts))
            return
        for row in single.iter_rows(named=True):
            where = f" (in {row['split']})" if row["split"] else ""
            yield Finding(
                self.code,
                self.severity,
                (row["id"],),
                f"Class {row['label']} has 1 sample in the whole dataset{where}.",
                {"class": row["label"], "samples": 1, "split": row["split"]},
                Action.REVIEW,
                f"class:{row['label']}",
            )

    def _common(self, single: pl.DataFrame, classes: int) -> Finding:
        return Finding(
            self.code,
            self.severity,
            tuple(single["id"].sort()),
            f"{len(single):,} of {classes:,} classes have 1 sample each.",
            {"single_sample_classes": len(single), "classes": classes},
            Action.REVIEW,
            "dataset",
        )
