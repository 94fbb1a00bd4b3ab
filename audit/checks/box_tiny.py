"""BOX024: boxes and classes too small to be seen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from audit.checking.boxes import SOUND, BoxCheck, Row, box_text, px
from audit.checking.check import asked
from audit.records import Finding, Severity
from audit.run.store import Store

_SCALED = (
    "greatest(width, height) * $input_px / greatest(coalesce(picture_width, declared_width), "
    "coalesce(picture_height, declared_height))"
)


class TinyBox(BoxCheck):
    """Classes whose objects are smaller than a detector's stride, and single boxes of a few px.

    ## What it does
    Scales each box to an image whose longer side is `input_px`. A class is reported if both sides
    of more than `max_share` of its boxes are then below half of `stride` px. A single box is
    reported if both sides are at most `click_px` px and half of its class is at least ten times as
    large.

    ## Why is this bad
    An object below half a cell has no feature at the finest level of the detector: it adds loss,
    lowers recall and cannot be detected. A single dot is usually a mistaken click.

    ## Example
    Traffic lights of 6 px in images 4,000 px wide: 1 px at an input of 640.

    ## What to do
    Train at a larger input or on tiles, or leave the class out; drop boxes from mistaken clicks.

    ## Limits
    The result holds for one input size and stride: set `input_px` and `stride` to your model's.

    ## References
    Feature pyramids begin at stride 4 or 8: T.-Y. Lin et al., CVPR 2017; YOLO: P3 at stride 8.
    """

    code = "BOX024"
    name = "tiny-box"
    severity = Severity.INFO

    @dataclass(frozen=True)
    class Params:
        """input_px: longer side of the detector's input
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

    hits = """
        SELECT b.*, -greatest(width, height) AS amount, m.median_side_px FROM boxes b JOIN (
            SELECT file, label, median(greatest(width, height)) AS median_side_px,
                count(*) AS boxes
            FROM boxes WHERE width > 0 AND height > 0 GROUP BY file, label
        ) m ON m.file = b.file AND m.label = b.label
        WHERE width > 0 AND height > 0 AND greatest(width, height) <= $click_px AND m.boxes >= 5
            AND m.median_side_px >= 10 * greatest(width, height) AND NOT crowd
    """
    evidence = ("median_side_px",)
    judged = SOUND
    how = " at an input of {params.input_px:,} px and stride {params.stride}"

    def said(self, row: Row, params: Any) -> str:
        return (
            f"A box ({box_text(row)}) is probably a mistaken click: half of its class has a side "
            f"of at least {px(row['median_side_px'])} px"
        )

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        sql = f"""
            SELECT label, count(*) AS boxes,
                count(*) FILTER (WHERE {_SCALED} < $stride :: DOUBLE / 2) AS tiny,
                median(greatest(width, height)) AS side FROM boxes
            WHERE width > 0 AND height > 0 AND NOT crowd AND label IS NOT NULL GROUP BY label
            HAVING boxes >= $min_boxes AND tiny > $max_share * boxes ORDER BY label
        """
        size = {"input_px": params.input_px, "stride": params.stride}
        for label, boxes, tiny, side in asked(store, sql, params).iter_rows():
            yield self.finding(
                f"class:{label}",
                f"{tiny:,} of the {boxes:,} {label} boxes are under {params.stride / 2:g} px (half "
                f"of stride {params.stride}) in images scaled to {params.input_px:,} px. Their "
                f"median longer side is {px(side)} px unscaled.",
                {"class": label, "tiny": tiny, "boxes": boxes, **size},
            )
        yield from self.worst(store, params)
