"""BOX010: boxes inside another box of their class."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from audit.annotations.findings import box_finding, box_text, examined, px, worst_by_picture
from audit.annotations.overlap_sql import NESTED
from audit.checking.cases import Case, boxed
from audit.checking.check import Check
from audit.records import Finding, Severity
from audit.run.store import Store

INNER = {"x": 120.0, "y": 120.0, "width": 50.0, "height": 40.0}


class NestedBox(Check):
    """Boxes that lie inside a larger box of the same class, where that is rare.

    ## What it does
    Flags a box of which at least `min_inside` lies in a larger box of its class and file, where the
    class has one such box, or at most `max_times` and at most `max_share` of its boxes.

    ## Why is this bad
    Often the smaller box is a part of the object (a head of a person) or the larger one a group:
    the class then means two things.

    ## Example
    A box around a raccoon and another around its face, both called raccoon.

    ## What to do
    Look at the two; drop the one that is no whole object.

    ## Limits
    Objects stand in front of each other. In crowded datasets this is usual, so nothing is said of a
    class where it happens more often.

    ## References
    Pascal VOC's annotation guidelines: one box around all visible parts of one object.
    """

    code = "BOX010"
    name = "nested-box"
    severity = Severity.INFO
    tables = ("annotation_files",)

    @dataclass(frozen=True)
    class Params:
        """Thresholds.

        min_inside: share of a box's area that lies in the other, 0..1
        max_share: share of the boxes of a class up to which it is unusual
        max_times: and at most this often in the class; more happen by chance in large classes
        """

        min_inside: float = 0.98
        max_share: float = 0.02
        max_times: int = 3

    CLEAN = (
        Case("beside each other", [{}], tables=boxed({}, {"x": 320.0})),
        Case(
            "usual in this class",
            [{}, {}],
            tables=boxed({}, INNER, {"sample_id": "0001.jpg"}, {**INNER, "sample_id": "0001.jpg"}),
        ),
        Case("the same box: BOX004", [{}], tables=boxed({}, {"width": 199.0})),
    )
    DIRTY = (
        Case("a part of it", [{}], ["0000.jpg"], tables=boxed({}, INNER)),
        Case("half its size", [{}], ["0000.jpg"], tables=boxed({}, {"width": 100.0})),
    )

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        """Yield one finding a picture."""
        hits = f"""
            WITH nested AS MATERIALIZED (
                SELECT * FROM ({NESTED}) WHERE inside >= ? AND iou < 0.9
                QUALIFY row_number() OVER (
                    PARTITION BY file, sample_id, entry ORDER BY other_entry) = 1
            ), sizes AS (
                SELECT file, category_key, count(*) AS boxes FROM boxes GROUP BY file, category_key
            ), often AS (
                SELECT file, category_key, count(*) AS times FROM nested GROUP BY file, category_key
            )
            SELECT n.*, n.inside AS amount, o.times, s.boxes AS of_class FROM nested n
            JOIN sizes s ON s.file = n.file AND s.category_key = n.category_key
            JOIN often o ON o.file = n.file AND o.category_key = n.category_key
            WHERE o.times <= greatest(1, ? * s.boxes) AND o.times <= ?
        """
        for row in worst_by_picture(
            store, hits, [params.min_inside, params.max_share, params.max_times]
        ):
            yield box_finding(
                self.code,
                self.severity,
                row,
                f"A box ({box_text(row)}) lies inside a larger one of its class "
                f"({px(row['other_width'])} x {px(row['other_height'])} px, entry "
                f"{row['other_entry']:,}), as {row['times']:,} of {row['of_class']:,} boxes do",
                {"inside": row["inside"], "other_entry": row["other_entry"]},
            )

    def completeness(self, store: Store, params: Params) -> str:
        """Say how many boxes were judged."""
        return examined(store, "width > 0 AND height > 0 AND NOT crowd", " against each other")
