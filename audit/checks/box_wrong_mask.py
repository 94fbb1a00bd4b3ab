"""BOX018: outlines without area, and masks of another size than their picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from audit.annotations.findings import entry_place
from audit.checking.cases import Case, boxed
from audit.checking.check import Check, NoParams
from audit.records import Action, Finding, Severity
from audit.run.store import Store

MASK = {"file": "boxes.json", "image_key": "0000.jpg", "entry": 0, "kind": "mask", "part": 0,
        "n_points": 307_200, "area": 900.0, "mask_width": 640, "mask_height": 480}  # fmt: skip
RING = {"file": "boxes.json", "image_key": "0000.jpg", "entry": 0, "kind": "polygon", "part": 0,
        "n_points": 5, "area": 900.0}  # fmt: skip
_SQL = """
    WITH shapes AS (
        SELECT s.*, b.sample_id, b.label, b.category_key, b.line, b.byte,
            CASE WHEN s.kind = 'polygon' AND s.n_points < 3 THEN 'points'
                WHEN s.kind = 'polygon' THEN 'area'
                WHEN s.n_points <> mask_width * mask_height THEN 'runs'
                WHEN s.area = 0 THEN 'empty' ELSE 'size' END AS wrong,
            coalesce(b.picture_width, b.declared_width) AS w0,
            coalesce(b.picture_height, b.declared_height) AS h0
        FROM annotation_shapes s JOIN boxes b
            ON b.file = s.file AND b.image_key = s.image_key AND b.entry = s.entry
        WHERE b.sample_id IS NOT NULL AND CASE s.kind
            WHEN 'polygon' THEN s.n_points < 3 OR NOT s.area > 0
            WHEN 'mask' THEN s.area = 0 OR s.n_points <> mask_width * mask_height OR NOT (
                coalesce(mask_width = b.picture_width AND mask_height = b.picture_height, false)
                OR coalesce(
                    mask_width = b.declared_width AND mask_height = b.declared_height, false)
                OR coalesce(mask_width = b.picture_height AND mask_height = b.picture_width
                    AND b.stored_width <> b.width, false)
                OR coalesce(b.picture_width, b.declared_width) IS NULL)
            ELSE false END
    ), ranked AS (
        SELECT *, count(*) OVER (PARTITION BY sample_id) AS n,
            row_number() OVER (PARTITION BY sample_id ORDER BY file, entry, part) AS place
        FROM shapes
    )
    SELECT r.*, i.subject FROM ranked r JOIN images i ON i.id = r.sample_id
    WHERE place = 1 ORDER BY sample_id
"""


class WrongMask(Check):
    """Masks that are empty or not of their picture's size, and polygons without area.

    ## What it does
    Flags a polygon ring of fewer than three points or without area, a mask without a pixel, a mask
    whose run lengths do not add up to its size, and one whose size is that of no known size of the
    picture.

    ## Why is this bad
    An empty mask gives a loss of zero divided by zero; a mask of another size is laid over the
    wrong place, or stops the loader.

    ## Example
    A mask of 480 x 640 for a picture of 640 x 480: height and width were exchanged.

    ## What to do
    Make the mask again at the size of the picture; drop empty ones.

    ## Limits
    Where the annotation file declares a wrong size (BOX005), a mask may have that size.

    ## References
    COCO's run-length form: `size` is [height, width], runs go down the columns.
    """

    code = "BOX018"
    name = "wrong-mask"
    severity = Severity.ERROR
    tables = ("annotation_files",)

    CLEAN = (
        Case("of the picture's size", [{}], tables=boxed({}, annotation_shapes=[MASK])),
        Case("a ring with an area", [{}], tables=boxed({}, annotation_shapes=[RING])),
    )
    DIRTY = (
        Case(
            "another size",
            [{}],
            ["0000.jpg"],
            tables=boxed(
                {}, annotation_shapes=[{**MASK, "mask_width": 480, "mask_height": 640}]
            ),
        ),
        Case(
            "no pixel",
            [{}],
            ["0000.jpg"],
            tables=boxed({}, annotation_shapes=[{**MASK, "area": 0.0}]),
        ),
        Case(
            "runs that do not add up",
            [{}],
            ["0000.jpg"],
            tables=boxed({}, annotation_shapes=[{**MASK, "n_points": 307_000}]),
        ),
        Case(
            "two points",
            [{}],
            ["0000.jpg"],
            tables=boxed({}, annotation_shapes=[{**RING, "n_points": 2, "area": 0.0}]),
        ),
    )  # fmt: skip

    def find(self, store: Store, params: NoParams) -> Iterator[Finding]:
        """Yield one finding a picture."""
        for row in store.query(_SQL).iter_rows(named=True):
            label = row["label"] or f"class {row['category_key']}"
            yield Finding(
                self.code,
                self.severity,
                (row["sample_id"],),
                f"The {row['kind']} of {label} ({entry_place(row)}) {_said(row)}; {row['n']:,} "
                f"{'outline' if row['n'] == 1 else 'outlines'} of this picture are wrong so.",
                {"kind": row["kind"], "wrong": row["wrong"], "points": row["n_points"],
                 "outlines": row["n"], "file": row["file"], "entry": row["entry"]},
                Action.REVIEW,
                row["subject"],
            )  # fmt: skip

    def completeness(self, store: Store, params: NoParams) -> str:
        """Say how many outlines were examined."""
        n = store.scalar("SELECT count(*) FROM annotation_shapes WHERE kind <> 'keypoints'")
        return f"{n:,} polygons and masks examined."


def _said(row: Mapping[str, Any]) -> str:
    if row["wrong"] == "runs":
        want = row["mask_width"] * row["mask_height"]
        return f"has runs of {row['n_points']:,} px in all where its size needs {want:,}"
    if row["wrong"] == "size":
        return (
            f"is of {row['mask_width']} x {row['mask_height']} px, its picture of "
            f"{row['w0']:.0f} x {row['h0']:.0f}"
        )
    if row["wrong"] == "points":
        return f"has {row['n_points']:,} points, and a ring needs 3"
    return "has no area"
