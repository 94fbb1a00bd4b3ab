"""BOX017: boxes that are not around their own outline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from audit.annotations.findings import box_finding, box_text, px, worst_by_picture
from audit.checking.cases import Case, boxed
from audit.checking.check import Check
from audit.records import Finding, Severity
from audit.run.store import Store

RING = {"file": "boxes.json", "image_key": "0000.jpg", "entry": 0, "kind": "polygon", "part": 0,
        "x": 100.0, "y": 100.0, "width": 200.0, "height": 150.0, "area": 900.0}  # fmt: skip
ROW = {"file": "boxes.json", "image_key": "0000.jpg", "entry": 0, "kind": "box",
       "v1": 100.0, "v2": 100.0, "v3": 200.0, "v4": 150.0}  # fmt: skip
_COMPARED = """
    outlines AS (
        SELECT file, image_key, entry, min(x) AS ox, min(y) AS oy, max(x + width) - min(x) AS ow,
            max(y + height) - min(y) AS oh
        FROM annotation_shapes WHERE kind IN ('polygon', 'mask')
            AND isfinite(x) AND isfinite(y) AND isfinite(width) AND isfinite(height)
        GROUP BY file, image_key, entry
    ), sized AS (
        SELECT a.file, image_key, entry, v1, v2,
            CASE WHEN starts_with(form, 'corners') THEN v3 - v1 ELSE v3 END AS v3,
            CASE WHEN starts_with(form, 'corners') THEN v4 - v2 ELSE v4 END AS v4
        FROM annotations a JOIN annotation_files f ON f.file = a.file AND f.reading = f.form
        WHERE a.kind = 'box' AND a.angle IS NULL
    ), pairs AS (
        SELECT o.*, a.v1, a.v2, a.v3, a.v4,
            greatest(a.v1 - ox, a.v2 - oy, ox + ow - a.v1 - a.v3, oy + oh - a.v2 - a.v4) AS leaves,
            greatest(0, least(a.v1 + a.v3, ox + ow) - greatest(a.v1, ox))
                * greatest(0, least(a.v2 + a.v4, oy + oh) - greatest(a.v2, oy)) AS common
        FROM outlines o JOIN sized a
            ON a.file = o.file AND a.image_key = o.image_key AND a.entry = o.entry
        WHERE a.v3 > 0 AND a.v4 > 0
            AND isfinite(a.v1) AND isfinite(a.v2) AND isfinite(a.v3) AND isfinite(a.v4)
    )
"""


class BoxOffOutline(Check):
    """Boxes that their own polygon or mask leaves, or that are far larger than it.

    ## What it does
    Compares each box with the extent of its own outline: flagged where the outline reaches out of
    the box by more than `slack_px` and `slack_share` of its side, or where the two overlap
    (intersection over union) by less than `min_iou`.

    ## Why is this bad
    Box and mask are trained together, and here they show different objects: one was edited, moved
    or scaled without the other.

    ## Example
    The polygon ends 38 px left of its box, because the boxes alone were shifted.

    ## What to do
    Compute the box from the outline again, if the outline is right.

    ## Limits
    A box may be looser than its outline where parts are hidden; tools differ by up to 2 px in how
    they count the last pixel. Turned boxes are left out.

    ## References
    COCO computes `bbox` from `segmentation` (pycocotools, `toBbox`).
    """

    code = "BOX017"
    name = "box-off-outline"
    severity = Severity.WARNING
    tables = ("annotation_files",)

    @dataclass(frozen=True)
    class Params:
        """Thresholds.

        slack_px: px by which an outline may leave its box
        slack_share: share of the box's longer side by which it may
        min_iou: overlap of the box with the extent of its outline, 0..1
        """

        slack_px: float = 2.0
        slack_share: float = 0.02
        min_iou: float = 0.3

    CLEAN = (
        Case("around it", [{}], tables=boxed({}, annotations=[ROW], annotation_shapes=[RING])),
        Case(
            "a px more",
            [{}],
            tables=boxed({}, annotations=[ROW], annotation_shapes=[{**RING, "width": 201.0}]),
        ),
        Case("no outline", [{}], tables=boxed({}, annotations=[ROW])),
    )
    DIRTY = (
        Case(
            "the box was moved",
            [{}],
            ["0000.jpg"],
            tables=boxed({}, annotations=[{**ROW, "v1": 140.0}], annotation_shapes=[RING]),
        ),
        Case(
            "far larger than its outline",
            [{}],
            ["0000.jpg"],
            tables=boxed(
                {}, annotations=[ROW], annotation_shapes=[{**RING, "width": 40.0, "height": 50.0}]
            ),
        ),
    )

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        """Yield one finding a picture."""
        hits = f"""
            WITH {_COMPARED}
            SELECT b.*, p.leaves, p.ow, p.oh, p.ox, p.oy, greatest(p.leaves, 0) AS amount,
                p.common / (p.v3 * p.v4 + ow * oh - p.common) AS iou
            FROM pairs p JOIN boxes b
                ON b.file = p.file AND b.image_key = p.image_key AND b.entry = p.entry
            JOIN annotation_files f ON f.file = p.file
            WHERE (ends_with(f.form, 'px') AND leaves > greatest(?, ? * greatest(v3, v4)))
                OR (v3 * v4 > 0 AND ow * oh > 0
                    AND p.common / (v3 * v4 + ow * oh - p.common) < ?)
        """
        values = [params.slack_px, params.slack_share, params.min_iou]
        for row in worst_by_picture(store, hits, values):
            yield box_finding(
                self.code,
                self.severity,
                row,
                f"A box ({box_text(row)}) and its own outline, {px(row['ow'])} x {px(row['oh'])} "
                f"px at ({px(row['ox'])}, {px(row['oy'])}), overlap by {row['iou']:.0%}",
                {"iou": row["iou"], "leaves_px": row["leaves"]},
            )

    def completeness(self, store: Store, params: Params) -> str:
        """Say how many boxes have an outline."""
        n = store.scalar(f"WITH {_COMPARED} SELECT count(*) FROM pairs")
        return f"{n:,} boxes have an outline to be compared with."
