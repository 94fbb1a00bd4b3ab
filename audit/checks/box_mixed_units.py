"""BOX009: boxes in shares among boxes in px, or in px among boxes in shares."""

from __future__ import annotations

from collections.abc import Iterator

from audit.annotations.findings import box_finding, box_text, examined, worst_by_picture
from audit.checking.cases import Case, boxed
from audit.checking.check import Check, NoParams
from audit.records import Finding, Severity
from audit.run.store import Store


class MixedUnits(Check):
    """Boxes that are in another unit than the other boxes of their file.

    ## What it does
    In a file whose boxes are in px, flags a box whose four numbers all lie in 0..1 and that would
    be smaller than one px; in a file of shares, a box with a number above 2.

    ## Why is this bad
    A normalised box among boxes in px is a dot in the corner; a box in px among shares is a
    thousand pictures wide.

    ## Example
    Two exports were joined, one of them from a tool that normalises.

    ## What to do
    Convert these boxes: multiply by the size of the picture, or divide by it.

    ## Limits
    Pictures below 16 px are left out. A file that is in the other unit altogether is BOX008.

    ## References
    The YOLO form is normalised, COCO and Pascal VOC are in px.
    """

    code = "BOX009"
    name = "mixed-units"
    severity = Severity.ERROR
    tables = ("annotation_files",)

    CLEAN = (
        Case("one unit", [{}], tables=boxed({}, {})),
        Case("a small box is no share", [{}], tables=boxed({"width": 2.0, "height": 2.0})),
    )
    DIRTY = (
        Case("one box of another unit", [{}], ["0000.jpg"], tables=boxed({}, {"other_unit": True})),
        Case(
            "two pictures", [{}, {}], ["0000.jpg", "0001.jpg"],
            tables=boxed({"other_unit": True}, {"other_unit": True, "sample_id": "0001.jpg"}),
        ),
    )  # fmt: skip

    def find(self, store: Store, params: NoParams) -> Iterator[Finding]:
        """Yield one finding a picture."""
        hits = """
            SELECT b.*, 0 AS amount, ends_with(f.reading, 'share') AS shares
            FROM boxes b JOIN annotation_files f ON f.file = b.file WHERE b.other_unit
        """
        for row in worst_by_picture(store, hits):
            this, rest = ("px", "shares of 1") if row["shares"] else ("shares of 1", "px")
            yield box_finding(
                self.code,
                self.severity,
                row,
                f"A box is in {this}, while its file is in {rest}; converted it is {box_text(row)}",
                {"unit": this, "unit_of_file": rest},
            )

    def completeness(self, store: Store, params: NoParams) -> str:
        """Say how many boxes were judged."""
        return examined(store, "x IS NOT NULL")
