"""BOX004: objects that have two boxes of one class."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from audit.annotations.findings import box_finding, box_text, examined, worst_by_picture
from audit.annotations.overlap_sql import PAIRS
from audit.checking.cases import Case, boxed
from audit.checking.check import Check
from audit.records import Action, Finding, Severity
from audit.run.store import Store


class DuplicateBox(Check):
    """Pairs of boxes of one class that cover the same object.

    ## What it does
    Compares the boxes of each picture that are of one class and one file, and flags a pair whose
    overlap (intersection over union) is at least `min_iou`.

    ## Why is this bad
    The object counts twice in training; in evaluation one of the two boxes is always missed,
    because a detector's suppression leaves one.

    ## Example
    A box was pasted twice: same class, same four numbers.

    ## What to do
    Drop one of the two, the one that fits its object less well.

    ## Limits
    Two objects of one class that overlap so far are rare even in crowds: suppression removes them
    from a detector's output at overlaps above 0.5 to 0.7. Crowd regions are left out. Boxes of
    different classes are BOX006.

    ## References
    Intersection over union as in the Pascal VOC protocol (IJCV 2010).
    """

    code = "BOX004"
    name = "duplicate-box"
    severity = Severity.ERROR
    tables = ("annotation_files",)

    @dataclass(frozen=True)
    class Params:
        """Thresholds.

        min_iou: overlap from which two boxes of one class are one object, 0..1
        """

        min_iou: float = 0.9

    CLEAN = (
        Case("two objects", [{}], tables=boxed({}, {"x": 320.0})),
        Case("two classes: BOX006", [{}], tables=boxed({}, {"label": "dog", "category_key": "2"})),
        Case("a crowd region over it", [{}], tables=boxed({}, {"crowd": True})),
    )
    DIRTY = (
        Case("entered twice", [{}], ["0000.jpg"], tables=boxed({}, {})),
        Case("drawn twice", [{}], ["0000.jpg"], tables=boxed({}, {"x": 102.0, "y": 101.0})),
    )

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        """Yield one finding a picture."""
        hits = f"""
            SELECT *, iou AS amount FROM ({PAIRS})
            WHERE category_key IS NOT DISTINCT FROM other_key AND iou >= ?
        """
        for row in worst_by_picture(store, hits, [params.min_iou]):
            same = "the same as" if row["iou"] > 0.9999 else f"{row['iou']:.0%} one with"
            yield box_finding(
                self.code,
                self.severity,
                row,
                f"A box ({box_text(row)}) is {same} entry {row['other_entry']:,} of the same class",
                {"iou": row["iou"], "other_entry": row["other_entry"]},
                Action.DROP,
            )

    def completeness(self, store: Store, params: Params) -> str:
        """Say how many boxes were judged."""
        return examined(store, "width > 0 AND height > 0 AND NOT crowd", " against each other")
