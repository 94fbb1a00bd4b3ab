"""BOX002: boxes without area."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from audit.annotations.findings import box_finding, box_text, examined, worst_by_picture
from audit.checking.cases import Case, boxed
from audit.checking.check import Check
from audit.records import Action, Finding, Severity
from audit.run.store import Store


class DegenerateBox(Check):
    """Boxes whose width or height is zero or negative.

    ## What it does
    Flags a box whose width or height is not above `least_px`. A negative size is one whose corners
    were exchanged.

    ## Why is this bad
    The box contains no pixel: its overlap with every prediction is zero, its logarithmic size is
    not a number, and that one value turns a whole training run into NaN.

    ## Example
    A click without a drag left a box of 30 x 0 px.

    ## What to do
    Drop the box, or draw it again.

    ## Limits
    A box that VOC writes with equal corners covers one px when both ends are counted in; it is
    flagged as well, for readers that subtract get nothing.

    ## References
    torchvision's detection models raise for such boxes: "all bounding boxes should have positive
    height and width".
    """

    code = "BOX002"
    name = "degenerate-box"
    severity = Severity.ERROR
    tables = ("annotation_files",)

    @dataclass(frozen=True)
    class Params:
        """Thresholds.

        least_px: a box needs more than this width and height, px
        """

        least_px: float = 0.0

    CLEAN = (
        Case("a box of an area", [{}], tables=boxed({})),
        Case("one px is an area", [{}], tables=boxed({"width": 1.0, "height": 1.0})),
    )
    DIRTY = (
        Case("no height", [{}], ["0000.jpg"], tables=boxed({"height": 0.0})),
        Case("corners exchanged", [{}], ["0000.jpg"], tables=boxed({"width": -20.0}, {})),
        Case(
            "a higher limit",
            [{}],
            ["0000.jpg"],
            params={"least_px": 2.0},
            tables=boxed({"width": 1.5}),
        ),
    )

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        """Yield one finding a picture."""
        hits = (
            "SELECT *, -least(width, height) AS amount FROM boxes WHERE least(width, height) <= ?"
        )
        for row in worst_by_picture(store, hits, [params.least_px]):
            yield box_finding(
                self.code,
                self.severity,
                row,
                f"A box ({box_text(row)}) has no area",
                {"least_px": params.least_px},
                Action.DROP,
            )

    def completeness(self, store: Store, params: Params) -> str:
        """Say how many boxes were judged."""
        return examined(store, "width IS NOT NULL")
