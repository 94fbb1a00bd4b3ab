"""BOX024: boxes and classes too small to be seen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from audit.annotations.findings import box_finding, box_text, examined, px, worst_by_picture
from audit.checking.cases import Case, boxed
from audit.checking.check import Check
from audit.records import Action, Finding, Severity
from audit.run.store import Store

DOT = {"width": 1.0, "height": 2.0}
_SCALED = (
    "greatest(width, height) * ? / greatest(coalesce(picture_width, declared_width), "
    "coalesce(picture_height, declared_height))"
)


class TinyBox(Check):
    """Classes whose objects fall below a detector's stride, and lone boxes of a few px.

    ## What it does
    Scales each box as if the longer side of its picture were `input_px`, and reports a class if
    more than `max_share` of its boxes are then smaller, both ways, than half a cell of `stride` px.
    A single box is reported when both sides are at most `click_px` px while half of its class is at
    least ten times as large.

    ## Why is this bad
    An object below half a cell leaves no feature of its own at the finest level of the detector: it
    costs loss and recall, and cannot be found. A lone dot is mostly a click by mistake.

    ## Example
    Traffic lights of 6 px in pictures 4,000 px wide: 1 px at an input of 640.

    ## What to do
    Train at a larger input or on tiles, or leave the class out; drop boxes from slips.

    ## Limits
    Speaks of one input size and stride: set `input_px` and `stride` to yours.

    ## References
    Feature pyramids begin at stride 4 or 8: T.-Y. Lin et al., CVPR 2017; YOLO: P3 at stride 8.
    """

    code = "BOX024"
    name = "tiny-box"
    severity = Severity.INFO
    tables = ("annotation_files",)

    @dataclass(frozen=True)
    class Params:
        """Thresholds.

        input_px: longer side of the picture as the detector gets it
        stride: px of a cell of the finest level
        max_share: share of the boxes of a class from which the class is reported
        min_boxes: smallest number of boxes of such a class
        click_px: a box with both sides at most this long may be a click
        """

        input_px: int = 640
        stride: int = 8
        max_share: float = 0.5
        min_boxes: int = 20
        click_px: float = 2.0

    CLEAN = (
        Case("large enough", [{}], tables=boxed(*[{"x": 9.0 * n} for n in range(30)])),
        Case("all of the class are small", [{}], tables=boxed(*[DOT] * 3)),
    )
    DIRTY = (
        Case(
            "a class of dots",
            [{}],
            ["class:cat"],
            tables=boxed(*[{**DOT, "x": 9.0 * n} for n in range(30)]),
        ),
        Case("a click", [{}], ["0000.jpg"], tables=boxed({}, {}, {}, {}, {}, DOT)),
    )

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        """Yield one finding a class, then one a picture."""
        sql = f"""
            SELECT label, count(*) AS n, count(*) FILTER (WHERE {_SCALED} < ?) AS tiny,
                median(greatest(width, height)) AS side FROM boxes
            WHERE width > 0 AND height > 0 AND NOT crowd AND label IS NOT NULL GROUP BY label
            HAVING count(*) >= ? AND tiny > ? * count(*) ORDER BY label
        """
        half = params.stride / 2
        values = [params.input_px, half, params.min_boxes, params.max_share]
        for row in store.query(sql, values).iter_rows(named=True):
            yield Finding(
                self.code,
                self.severity,
                (),
                f"{row['tiny']:,} of the {row['n']:,} boxes of {row['label']} are smaller than "
                f"{half:g} px in pictures of {params.input_px:,} px, half a cell of stride "
                f"{params.stride}; the median of the longer side is {px(row['side'])} px as it is.",
                {"class": row["label"], "tiny": row["tiny"], "boxes": row["n"],
                 "input_px": params.input_px, "stride": params.stride},
                Action.REVIEW,
                f"class:{row['label']}",
            )  # fmt: skip
        hits = """
            SELECT b.*, -greatest(width, height) AS amount, m.side FROM boxes b JOIN (
                SELECT file, label, median(greatest(width, height)) AS side, count(*) AS boxes
                FROM boxes WHERE width > 0 AND height > 0 GROUP BY file, label
            ) m ON m.file = b.file AND m.label = b.label
            WHERE width > 0 AND height > 0 AND greatest(width, height) <= ? AND m.boxes >= 5
                AND m.side >= 10 * greatest(width, height) AND NOT crowd
        """
        for worst in worst_by_picture(store, hits, [params.click_px]):
            yield box_finding(
                self.code,
                self.severity,
                worst,
                f"A box ({box_text(worst)}) is no larger than a click; half of its class has a "
                f"side of at least {px(worst['side'])} px",
                {"median_side_px": worst["side"]},
            )

    def completeness(self, store: Store, params: Params) -> str:
        """Say how many boxes were judged, and at which input size."""
        at = f" at an input of {params.input_px:,} px and stride {params.stride}"
        return examined(store, "width > 0 AND height > 0 AND NOT crowd", at)
