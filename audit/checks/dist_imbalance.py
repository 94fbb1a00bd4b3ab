"""DIST001: how unequal the class sizes of each split are."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from audit.checking.cases import Case
from audit.checking.check import Check
from audit.records import Action, Finding, Severity
from audit.run.store import Store


class ClassImbalance(Check):
    """Splits whose largest class is many times their smallest.

    ## What it does
    For each split, computes the ratio of the largest to the smallest class and two effective
    numbers of classes: exp(entropy), and the inverse Simpson index 1 / sum(p^2). Both equal the
    number of classes when all are equally large. A split is reported if its ratio is at least
    `max_ratio`: as a warning if exp(entropy) is at most `max_effective_share` of the number of
    classes, otherwise as information, because then one or two small classes cause the ratio
    (DIST002 names them).

    ## Why is this bad
    Accuracy rewards a model for ignoring the small classes, and they hardly affect the loss.

    ## Example
    train has 9,000 cats and 300 foxes: ratio 30, and 1.2 effective classes of 2.

    ## What to do
    Report macro averages; weight or resample the classes in training; collect more images of the
    small classes. Keep the test split as it is unless deployment is balanced.

    ## Limits
    Sizes are counted in images, including duplicates. DIST003 reports classes that have no image in
    a split. The ratio depends on the smallest class alone: read it together with the effective
    numbers.

    ## References
    Hill (1973), Diversity and Evenness, Ecology 54(2): numbers of order 1 and 2. Buda, Maki and
    Mazurowski (2018), A systematic study of the class imbalance problem, Neural Networks 106: harm
    from ratios of about 10."""

    code = "DIST001"
    name = "class-imbalance"
    severity = Severity.WARNING

    @dataclass(frozen=True)
    class Params:
        """Thresholds.

        max_ratio: reported if the largest class is at least this many times the smallest
        max_effective_share: a warning if exp(entropy) is at most this share of the classes, 0..1
        """

        max_ratio: float = 10.0
        max_effective_share: float = 0.8

    CLEAN = (
        Case("equal classes", [{"label": "cat"}, {"label": "dog"}] * 10),
        Case("nine to one", [{"label": "cat"}] * 9 + [{"label": "dog"}]),
        Case("one class has no imbalance", [{"label": "cat"}] * 50),
        Case("samples without a label are no class", [{}] * 50 + [{"label": None}]),
    )
    DIRTY = (
        Case(
            "20 to 1 in train only",
            [{"label": "cat"}] * 20 + [{"label": "dog"}]
            + [{"label": x, "split": "test"} for x in ("cat", "dog")],
            ["split:train"],
        ),
        Case("no splits", [{"label": x, "split": None} for x in ["cat"] * 20 + ["dog"]],
             ["dataset"]),
    )  # fmt: skip

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        """Yield one finding per split."""
        sql = """
            WITH sizes AS (
                SELECT split, label, count(*) AS n FROM images
                WHERE trim(coalesce(label, '')) <> '' GROUP BY split, label
            ), shares AS (
                SELECT *, n / sum(n) OVER (PARTITION BY split) AS p FROM sizes
            )
            SELECT split, count(*) AS classes, sum(n) :: BIGINT AS images, max(n) AS largest,
                min(n) AS smallest, arg_max(label, (n, label)) AS most,
                arg_min(label, (n, label)) AS least,
                -sum(p * ln(p) ORDER BY label) AS entropy,
                1 / sum(p * p ORDER BY label) AS simpson
            FROM shares GROUP BY split HAVING max(n) >= ? * min(n) ORDER BY split NULLS FIRST
        """
        for row in store.query(sql, [params.max_ratio]).iter_rows(named=True):
            # Sums are taken in the order of the labels, so that the last digit is always the same.
            # Entropy looks at every class, the ratio only at two: a long tail of classes lowers the
            # first, one stray small class only raises the second.
            effective = math.exp(row["entropy"])
            broad = effective <= params.max_effective_share * row["classes"]
            yield Finding(
                self.code,
                self.severity if broad else Severity.INFO,
                (),
                _message(row, effective),
                {
                    "ratio": row["largest"] / row["smallest"],
                    "largest": row["most"],
                    "smallest": row["least"],
                    "effective_classes_entropy": effective,
                    "effective_classes_simpson": row["simpson"],
                    "classes": row["classes"],
                    "images": row["images"],
                },
                Action.REVIEW,
                f"split:{row['split']}" if row["split"] else "dataset",
            )

    def completeness(self, store: Store, params: Params) -> str:
        """Say how many labelled samples were counted."""
        n = store.scalar("SELECT count(*) FROM images WHERE trim(coalesce(label, '')) <> ''")
        return f"All {int(n):,} labelled samples were counted, split by split."


def _message(row: Mapping[str, Any], effective: float) -> str:
    where = f"In split {row['split']}" if row["split"] else "In the dataset"
    return (
        f"{where}, the largest class ({row['most']}, {row['largest']:,}) is "
        f"{row['largest'] / row['smallest']:.1f} times the smallest ({row['least']}, "
        f"{row['smallest']:,}); the effective number of classes is {effective:.1f} (entropy) and "
        f"{row['simpson']:.1f} (Simpson) of {row['classes']:,}."
    )
