"""BOX001, BOX002, BOX007, BOX008, BOX009: boxes whose four numbers give no box in their picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from audit.checking.boxes import SOUND, BoxCheck, Row, box_text, px
from audit.records import Severity

# By how many px a box reaches out of its picture, by its own size and by the declared one.
_OUT = "CASE WHEN {0} > 0 THEN greatest(-x, -y, x + width - {0}, y + height - {1}) END"
_REAL = _OUT.format("picture_width", "picture_height")
_DECLARED = _OUT.format("declared_width", "declared_height")


class BoxOutside(BoxCheck):
    """Boxes that extend beyond the edge of their image.

    ## What it does
    Compares each box with the size of the decoded image after EXIF rotation. Reports the distance
    in px and the share of the area outside. If the annotation file declares another size (BOX005),
    the box must be outside both sizes.

    ## Why is this bad
    Training code clips the box, drops it, stops, or computes a loss on pixels that do not exist.
    Often the image was cropped or resized after annotation.

    ## Example
    A box 55 px wide begins 20 px from the right edge: 35 px of it show nothing.

    ## What to do
    Draw the box again; clip it if its object ends at the edge.

    ## Limits
    Up to `slack_px` counts as rounding, or as counting px from 1. If BOX008 reports that a file has
    another box format, the boxes are converted first.
    """

    code = "BOX001"
    name = "box-outside-image"
    severity = Severity.ERROR

    @dataclass(frozen=True)
    class Params:
        """slack_px: px by which a box may extend beyond its image"""

        slack_px: float = 1.0

    hits = f"""
        SELECT *, least(coalesce({_REAL}, {_DECLARED}), coalesce({_DECLARED}, {_REAL})) AS amount,
            amount AS outside_px, coalesce(picture_width, declared_width) AS w0,
            coalesce(picture_height, declared_height) AS h0,
            1 - greatest(least(x + width, w0) - greatest(x, 0), 0)
                * greatest(least(y + height, h0) - greatest(y, 0), 0) / (width * height)
                AS outside_share
        FROM boxes WHERE width > 0 AND height > 0 AND NOT crowd
            AND coalesce({_REAL}, {_DECLARED}) > $slack_px
            AND coalesce({_DECLARED}, {_REAL}) > $slack_px
    """
    evidence = ("outside_px", "outside_share")
    judged = SOUND

    def said(self, row: Row, params: Any) -> str:
        return (
            f"A box ({box_text(row)}) reaches {px(row['amount'])} px beyond its image of "
            f"{px(row['w0'])} x {px(row['h0'])} px, with {row['outside_share']:.0%} of its area "
            "outside"
        )


class DegenerateBox(BoxCheck):
    """Boxes whose width or height is zero or negative.

    ## What it does
    Reports a box whose width or height is at most `least_px`. A negative size means exchanged
    corners.

    ## Why is this bad
    The box contains no pixel: its overlap with every prediction is zero, its logarithmic size is
    not a number, and that one value turns a whole training run into NaN.

    ## Example
    A click without a drag left a box of 30 x 0 px.

    ## What to do
    Drop the box, or draw it again.

    ## Limits
    A VOC box with equal corners covers 1 px if both ends are included. It is reported too, because
    readers that subtract the corners get 0.
    """

    code = "BOX002"
    name = "degenerate-box"
    severity = Severity.ERROR

    @dataclass(frozen=True)
    class Params:
        """least_px: largest width or height, px, of a box without area"""

        least_px: float = 0.0

    hits = """
        SELECT *, -least(width, height) AS amount FROM boxes WHERE least(width, height) <= $least_px
    """
    message = "A box ({box}) has no area"
    evidence = ("least_px",)
    judged = "width IS NOT NULL"


class InvalidCoordinates(BoxCheck):
    """Boxes without four finite numbers.

    ## What it does
    Reports a box if a coordinate is missing, NaN, infinite, a text or an object.

    ## Why is this bad
    One NaN in a batch turns every weight of the model into NaN; a missing number stops the loader
    in the middle of an epoch.

    ## Example
    `"bbox": [NaN, 12, 30, 40]`, written by Python's json after a division by zero.

    ## What to do
    Draw the box again, or drop it.

    ## Limits
    Numbers in quotes ("12") are used; BOX013 reports their type.
    """

    code = "BOX007"
    name = "invalid-coordinates"
    severity = Severity.ERROR

    hits = """
        SELECT b.*, 0 AS amount,
            coalesce(nullif(b.label, ''), 'class ' || coalesce(b.category_key, 'None')) AS class
        FROM boxes b LEFT JOIN annotation_shapes s ON s.file = b.file
            AND s.image_key = b.image_key AND s.entry = b.entry AND s.kind = 'mask'
            AND s.area = 0 AND b.kind = 'outline'
        WHERE b.x IS NULL AND s.file IS NULL
    """  # the extent of an empty mask is BOX018
    message = "A box of {class} has fewer than 4 finite numbers"
    evidence = ("class",)


WORDS = {
    "xywh": "left, top, width, height", "corners": "left, top, right, bottom",
    "centre": "centre x, centre y, width, height", "yxhw": "top, left, height, width",
    "xyhw": "left, top, height, width", "y-x corners": "top, left, bottom, right",
    "x-x-y-y": "left, right, top, bottom", "y-x centre": "centre y, centre x, height, width",
    "y-y-x-x": "top, bottom, left, right", "px": "px", "share": "shares of the image",
}  # fmt: skip


class OtherReading(BoxCheck):
    """Annotation files whose numbers fit the images only in another box format.

    ## What it does
    Reads the four numbers in nine ways (corners, centre and size, exchanged axes, ...) and two
    units. A file of at least 20 boxes is reported if over 10% extend beyond their image in the
    declared format, and 99% are inside in another format. A file is also reported if nearly all its
    boxes are in the other unit (px, normalised).

    ## Why is this bad
    Every box of the file is misplaced, and training runs without an error.

    ## Example
    A COCO file whose `bbox` is left, top, right, bottom: 30% fit as sizes, all fit as corners.

    ## What to do
    Convert all boxes of the file; do not correct single boxes.

    ## Limits
    A wrong format that also keeps the boxes inside is not detected, such as exchanged axes in
    square images. All other box checks use the format that fits.
    """

    code = "BOX008"
    name = "coordinates-misread"
    severity = Severity.ERROR

    sql = """
        SELECT concat('dataset:', f.file) AS subject, f.* REPLACE (
            coalesce(fit_share, -1) AS fit_share), f.fit_share AS fits, b.boxes
        FROM annotation_files f JOIN (
            SELECT file, count(*) AS boxes FROM boxes GROUP BY file) b ON b.file = f.file
        WHERE reading <> form ORDER BY f.file
    """
    evidence = ("file", "form", "reading", "boxes", "fit_share")
    judged = "x IS NOT NULL"
    how = ", per file"

    def said(self, row: Row, params: Any) -> str:
        fits = ""
        if row["form_fit_share"] is not None and row["fits"] is not None:
            fits = (
                f"; read as declared, {row['form_fit_share']:.0%} of the boxes fit their image; "
                f"read in this format, {row['fits']:.0%} fit"
            )
        return (
            f"The {row['boxes']:,} boxes of {row['file']} ({row['format']}) are "
            f"{_said(row['reading'])}, not {_said(row['form'])} as the format says{fits}."
        )


def _said(form: str) -> str:
    kind, _, unit = form.rpartition(" ")
    return f"{WORDS.get(kind, kind)} in {WORDS.get(unit, unit)}"


class MixedUnits(BoxCheck):
    """Boxes in another unit than the rest of their file.

    ## What it does
    In a file in px, reports boxes whose four numbers are in 0..1 and that would be smaller than 1
    px. In a normalised file, reports boxes with a number above 2.

    ## Why is this bad
    A normalised box among px boxes is a dot in the corner. A px box among normalised boxes is
    hundreds of images wide.

    ## Example
    Two exports were joined, one in px and one normalised.

    ## What to do
    Convert these boxes: multiply by the size of the image, or divide by it.

    ## Limits
    Images below 16 px are not checked. BOX008 reports files that are wholly in the other unit.
    """

    code = "BOX009"
    name = "mixed-units"
    severity = Severity.ERROR

    hits = """
        SELECT b.*, 0 AS amount,
            CASE WHEN ends_with(f.reading, 'share') THEN 'px' ELSE 'shares of 1' END AS unit,
            CASE unit WHEN 'px' THEN 'shares of 1' ELSE 'px' END AS unit_of_file
        FROM boxes b JOIN annotation_files f ON f.file = b.file WHERE b.other_unit
    """
    message = "A box is in {unit}, but its file is in {unit_of_file}; converted, the box is {box}"
    evidence = ("unit", "unit_of_file")
    judged = "x IS NOT NULL"
