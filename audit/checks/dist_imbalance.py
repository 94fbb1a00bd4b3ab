"""DIST001: how unequal the class sizes of each split are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from audit.checking.check import QueryCheck
from audit.checking.objects import asked_of, object_table, things_of
from audit.records import Finding, Severity
from audit.run.store import Store


class ClassImbalance(QueryCheck):
    """Splits whose largest class is many times their smallest.

    ## What it does
    For each split, computes the ratio of the largest to the smallest class, of images and of
    objects (boxes, masks, keypoints), and two effective numbers of classes: exp(entropy), and the
    inverse Simpson index 1 / sum(p^2). Both equal the number of classes when all are equally large.
    A split is reported if its ratio is at least `max_ratio`: as a warning if exp(entropy) is at
    most `max_effective_share` of the number of classes, otherwise as information, because then one
    or two small classes cause the ratio (DIST002 names them).

    ## Why is this bad
    Accuracy rewards a model for ignoring the small classes, and they hardly affect the loss.

    ## Example
    train has 9,000 cats and 300 foxes: ratio 30, and 1.2 effective classes of 2.

    ## What to do
    Report macro averages; weight or resample the classes in training; collect more images of the
    small classes. Keep the test split as it is unless deployment is balanced.

    ## Limits
    Sizes are counted in images, or in objects, including duplicates. DIST003 reports classes that
    have no image in a split. The ratio depends on the smallest class alone: read it together with
    the effective numbers.

    ## References
    Hill (1973), Diversity and Evenness, Ecology 54(2): numbers of order 1 and 2. Buda, Maki and
    Mazurowski (2018), A systematic study of the class imbalance problem, Neural Networks 106: harm
    from ratios of about 10."""

    code = "DIST001"
    name = "class-imbalance"
    severity = Severity.WARNING

    @dataclass(frozen=True)
    class Params:
        """max_ratio: reported if the largest class is at least this many times the smallest
        max_effective_share: a warning if exp(entropy) is at most this share of the classes, 0..1
        """

        max_ratio: float = 10.0
        max_effective_share: float = 0.8

    # In the order of the labels, so that sums have the same last digit each time.
    sql = """
        WITH sizes AS (
            {sizes}
        ), shares AS (SELECT *, n / sum(n) OVER (PARTITION BY split) AS p FROM sizes)
        SELECT coalesce('split:' || nullif(split, ''), 'dataset') AS subject,
            coalesce('In split ' || nullif(split, ''), 'In the dataset') AS place,
            count(*) AS classes, sum(n) :: BIGINT AS images, max(n) AS most, min(n) AS least,
            arg_max(label, (n, label)) AS largest, arg_min(label, (n, label)) AS smallest,
            most / least AS ratio,
            exp(-sum(p * ln(p) ORDER BY label)) AS effective_classes_entropy,
            1 / sum(p * p ORDER BY label) AS effective_classes_simpson,
            CASE WHEN effective_classes_entropy > $max_effective_share * classes THEN 'info' END
                AS severity
        FROM shares GROUP BY split HAVING most >= $max_ratio * least ORDER BY split NULLS FIRST
    """
    message = (
        "{place}, the largest class{of} ({largest}, {most:,}) is {ratio:.1f} times the smallest "
        "({smallest}, {least:,}); the effective number of classes is "
        "{effective_classes_entropy:.1f} (entropy) and {effective_classes_simpson:.1f} (Simpson) "
        "of {classes:,}."
    )
    evidence = (
        "ratio", "largest", "smallest", "effective_classes_entropy", "effective_classes_simpson",
        "classes", "images",
    )  # fmt: skip

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        for things in things_of(store):
            for row in asked_of(store, things, self.sql, params).iter_rows(named=True):
                said = {"of": things.of, "many": things.many}
                yield self.of_row({**row, **said, "subject": things.mark + row["subject"]}, params)

    def kept(self, row: Mapping[str, Any], params: Params) -> dict[str, Any]:
        kept = super().kept(row, params)
        return {row["many"] if name == "images" else name: kept[name] for name in kept}

    def completeness(self, store: Store, params: Params) -> str:
        sql = "SELECT count(DISTINCT id) FROM picture_labels WHERE trim(coalesce(label, '')) <> ''"
        said = f"All {store.scalar(sql):,} labelled samples were counted, split by split."
        table = store.share(object_table)
        if table is not None:
            n, k = table.held["n"].sum(), len(table.labels)
            said += f" {n:,} objects of {k:,} classes were counted too."
        return said
