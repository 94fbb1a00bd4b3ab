"""BOX001: boxes that reach out of their picture."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from audit.annotations.findings import box_finding, box_text, examined, px, worst_by_picture
from audit.checking.cases import Case, boxed
from audit.checking.check import Check
from audit.records import Finding, Severity
from audit.run.store import Store


class BoxOutside(Check):
    """Boxes that reach beyond the edge of their picture.

    ## What it does
    Compares each box with the size of the decoded picture as it is shown (EXIF-turned), and
    reports by how many px and by which share of its area it lies outside. Where the annotation
    file declares another size (BOX005), a box must be outside by both sizes.

    ## Why is this bad
    Trainers clip such a box, drop it, or compute a loss from what does not exist; some stop. It
    often means that a picture was cropped or resized after it was annotated.

    ## Example
    A box 55 px wide begins 20 px from the right edge: 35 px of it show nothing.

    ## What to do
    Draw the box again; clip it if its object does end at the edge.

    ## Limits
    Up to `slack_px` is taken for rounding, or for counting px from 1. A whole file whose numbers
    mean something else than its format says is BOX008, and is judged by what they mean.

    ## References
    Everingham et al., "The Pascal Visual Object Classes Challenge", IJCV 2010: px count from 1.
    """

    code = "BOX001"
    name = "box-outside-picture"
    severity = Severity.ERROR
    tables = ("annotation_files",)

    @dataclass(frozen=True)
    class Params:
        """Thresholds.

        slack_px: px by which a box may leave its picture
        """

        slack_px: float = 1.0

    CLEAN = (
        Case("inside", [{}], tables=boxed({})),
        Case("counted from 1", [{}], tables=boxed({"x": 441.0})),
        Case(
            "inside the declared size, which is wrong: BOX005",
            [{}],
            tables=boxed({"x": 700.0, "declared_width": 1280.0, "declared_height": 960.0}),
        ),
    )
    DIRTY = (
        Case("over the right edge", [{}], ["0000.jpg"], tables=boxed({"x": 475.0})),
        Case("wholly outside, above", [{}], ["0000.jpg"], tables=boxed({"y": -300.0})),
        Case(
            "a picture that cannot be decoded, by its declared size",
            [{"status": "unreadable", "width": None, "height": None}],
            ["0000.jpg"],
            tables=boxed({"x": 475.0, "picture_width": None, "picture_height": None}),
        ),
    )

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        """Yield one finding a picture."""
        out = "CASE WHEN {0} > 0 THEN greatest(-x, -y, x + width - {0}, y + height - {1}) END"
        real = out.format("picture_width", "picture_height")
        declared = out.format("declared_width", "declared_height")
        hits = f"""
            SELECT *, least(coalesce({real}, {declared}), coalesce({declared}, {real})) AS amount,
                coalesce(picture_width, declared_width) AS w0,
                coalesce(picture_height, declared_height) AS h0
            FROM boxes WHERE width > 0 AND height > 0 AND NOT crowd
                AND coalesce({real}, {declared}) > ? AND coalesce({declared}, {real}) > ?
        """
        slack = params.slack_px
        for row in worst_by_picture(store, hits, [slack, slack]):
            wide = min(row["x"] + row["width"], row["w0"]) - max(row["x"], 0)
            high = min(row["y"] + row["height"], row["h0"]) - max(row["y"], 0)
            share = 1 - max(wide, 0) * max(high, 0) / (row["width"] * row["height"])
            yield box_finding(
                self.code,
                self.severity,
                row,
                f"A box ({box_text(row)}) reaches {px(row['amount'])} px out of its picture of "
                f"{px(row['w0'])} x {px(row['h0'])} px, with {share:.0%} of its area",
                {"outside_px": row["amount"], "outside_share": share},
            )

    def completeness(self, store: Store, params: Params) -> str:
        """Say how many boxes were judged."""
        return examined(store, "width > 0 AND height > 0 AND NOT crowd")
