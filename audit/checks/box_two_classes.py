"""BOX006: objects whose one place has boxes of two classes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from audit.annotations.findings import box_finding, box_text, examined, worst_by_picture
from audit.annotations.overlap_sql import PAIRS
from audit.checking.cases import Case, boxed
from audit.checking.check import Check
from audit.records import Action, Finding, Severity
from audit.run.store import Store

DOG = {"label": "dog", "category_key": "2"}
NEAR = {**DOG, "x": 101.0}


class BoxOfTwoClasses(Check):
    """Pairs of boxes of different classes that cover the same object.

    ## What it does
    Flags two boxes of one picture and file whose overlap (intersection over union) is at least
    `min_iou` and whose classes differ, where that is rare: at most once, or in at most `max_share`
    of the boxes of the rarer of the two classes.

    ## Why is this bad
    One of the two labels is wrong: the loss asks for both, and whichever the model answers counts
    as an error.

    ## Example
    Two people annotated one picture; the same dog is `dog` and `wolf`.

    ## What to do
    Decide which class it is, and drop the other box.

    ## Limits
    Classes that coincide often (person and rider, a part and its whole) are a convention of the
    dataset, and are not reported.

    ## References
    Intersection over union as in the Pascal VOC protocol (IJCV 2010).
    """

    code = "BOX006"
    name = "box-of-two-classes"
    severity = Severity.WARNING
    tables = ("annotation_files",)

    @dataclass(frozen=True)
    class Params:
        """Thresholds.

        min_iou: overlap from which two boxes are one object, 0..1
        max_share: share of the boxes of the rarer class up to which it is no convention
        """

        min_iou: float = 0.9
        max_share: float = 0.02

    CLEAN = (
        Case("beside each other", [{}], tables=boxed({}, {**DOG, "x": 320.0})),
        Case("a convention", [{}, {}], tables=boxed(
            {}, DOG, {"sample_id": "0001.jpg"}, {**DOG, "sample_id": "0001.jpg"})),
    )  # fmt: skip
    DIRTY = (
        Case("once in the dataset", [{}], ["0000.jpg"], tables=boxed({}, DOG)),
        Case("nearly the same box", [{}], ["0000.jpg"], tables=boxed({}, NEAR, {"x": 400.0})),
    )

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        """Yield one finding a picture."""
        hits = f"""
            WITH pairs AS MATERIALIZED (
                SELECT *, least(category_key, other_key) || chr(31) ||
                    greatest(category_key, other_key) AS both FROM ({PAIRS})
                WHERE category_key <> other_key AND iou >= ?
            ), sizes AS (
                SELECT file, category_key, count(*) AS n FROM boxes GROUP BY file, category_key
            ), often AS (
                SELECT p.file, p.both, count(*) AS n,
                    min(least(s.n, t.n)) AS rarer FROM pairs p
                JOIN sizes s ON s.file = p.file AND s.category_key = p.category_key
                JOIN sizes t ON t.file = p.file AND t.category_key = p.other_key
                GROUP BY p.file, p.both
            )
            SELECT p.*, p.iou AS amount, o.n AS times, o.rarer FROM pairs p
            JOIN often o ON o.file = p.file AND o.both = p.both
            WHERE o.n <= greatest(1, ? * o.rarer)
        """
        for row in worst_by_picture(store, hits, [params.min_iou, params.max_share]):
            other = row["other_label"] or f"class {row['other_key']}"
            yield box_finding(
                self.code,
                self.severity,
                row,
                f"A box ({box_text(row)}) covers the same place as one of {other} (entry "
                f"{row['other_entry']:,}, overlap {row['iou']:.0%}), which happens "
                f"{row['times']:,} times in this file",
                {"iou": row["iou"], "other_class": other, "times": row["times"]},
                Action.RELABEL,
            )

    def completeness(self, store: Store, params: Params) -> str:
        """Say how many boxes were judged."""
        return examined(store, "width > 0 AND height > 0 AND NOT crowd", " against each other")
