"""BOX007: boxes whose coordinates are no numbers."""

from __future__ import annotations

from collections.abc import Iterator

from audit.annotations.findings import box_finding, examined, worst_by_picture
from audit.checking.cases import Case, boxed
from audit.checking.check import Check, NoParams
from audit.records import Action, Finding, Severity
from audit.run.store import Store

NONE = {"x": None, "y": None, "width": None, "height": None}


class InvalidCoordinates(Check):
    """Boxes that have no four finite numbers.

    ## What it does
    Flags a box of which a coordinate is missing, is NaN or infinite, or is a text or an object
    where a number belongs.

    ## Why is this bad
    One NaN in a batch turns every weight of the model into NaN; a missing number stops the loader
    in the middle of an epoch.

    ## Example
    `"bbox": [NaN, 12, 30, 40]`, as Python's json writes what a division by zero left.

    ## What to do
    Draw the box again, or drop it.

    ## Limits
    Numbers that a reader can take from a text ("12") are used; BOX013 reports their type.

    ## References
    RFC 8259, section 6: JSON knows neither NaN nor Infinity.
    """

    code = "BOX007"
    name = "invalid-coordinates"
    severity = Severity.ERROR
    tables = ("annotation_files",)

    CLEAN = (
        Case("four numbers", [{}], tables=boxed({})),
        Case("large numbers are numbers: BOX001", [{}], tables=boxed({"x": 1e9})),
    )
    DIRTY = (
        Case("no number at all", [{}], ["0000.jpg"], tables=boxed(NONE)),
        Case("one of two boxes", [{}], ["0000.jpg"], tables=boxed({}, NONE)),
    )

    def find(self, store: Store, params: NoParams) -> Iterator[Finding]:
        """Yield one finding a picture."""
        hits = """
            SELECT b.*, 0 AS amount FROM boxes b LEFT JOIN annotation_shapes s ON s.file = b.file
                AND s.image_key = b.image_key AND s.entry = b.entry AND s.kind = 'mask'
                AND s.area = 0 AND b.kind = 'outline'
            WHERE b.x IS NULL AND s.file IS NULL
        """  # the extent of an empty mask is BOX018
        for row in worst_by_picture(store, hits):
            label = row["label"] or f"class {row['category_key']}"
            yield box_finding(
                self.code,
                self.severity,
                row,
                f"A box of {label} has fewer than 4 finite numbers",
                {"class": label},
                Action.DROP,
            )

    def completeness(self, store: Store, params: NoParams) -> str:
        """Say how many boxes were judged."""
        return examined(store)
