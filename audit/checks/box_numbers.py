"""BOX001, BOX002, BOX007, BOX008, BOX009: boxes whose four numbers give no box in their picture.

They are missing, have no area, reach out of the picture, or mean something else than the format
says: another unit, or another order. Everything is read from the table `boxes`, which holds what a
file's numbers mean where its reader could tell (`audit.annotations`).
"""

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

    @dataclass(frozen=True)
    class Params:
        """slack_px: px by which a box may leave its picture"""

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
            f"A box ({box_text(row)}) reaches {px(row['amount'])} px out of its image of "
            f"{px(row['w0'])} x {px(row['h0'])} px, with {row['outside_share']:.0%} of its area"
        )


class DegenerateBox(BoxCheck):
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

    @dataclass(frozen=True)
    class Params:
        """least_px: a box needs more than this width and height, px"""

        least_px: float = 0.0

    hits = """
        SELECT *, -least(width, height) AS amount FROM boxes WHERE least(width, height) <= $least_px
    """
    message = "A box ({box}) has no area"
    evidence = ("least_px",)
    judged = "width IS NOT NULL"


class InvalidCoordinates(BoxCheck):
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
    """Annotation files whose numbers fit the pictures only under another reading than the format's.

    ## What it does
    Tries nine readings of the four numbers (corners, centre and size, axes exchanged, ...) and both
    units on all boxes of a file. Reports a file of at least 20 boxes of which more than a tenth
    leave their picture as the format says, where under another reading 99 in 100 are inside; and a
    file whose boxes nearly all are in the other unit (px, shares).

    ## Why is this bad
    Every box of the file is in a wrong place, and training runs all the same.

    ## Example
    A COCO file whose `bbox` is left, top, right, bottom: 30% fit as sizes, all fit as corners.

    ## What to do
    Convert the numbers once; do not correct single boxes.

    ## Limits
    A reading under which the boxes stay inside their pictures as well cannot be told from the right
    one: an exchange of axes in square pictures, for one. All other checks of this family use the
    reading that fits.

    ## References
    COCO's format: x, y, width, height; Pascal VOC: corners; YOLO: centre and size in shares.
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
    how = ", all of a file together"

    def said(self, row: Row, params: Any) -> str:
        fits = ""
        if row["form_fit_share"] is not None and row["fits"] is not None:
            fits = (
                f"; {row['form_fit_share']:.0%} of the boxes are inside their image as the "
                f"format says, {row['fits']:.0%} as they are"
            )
        return (
            f"The {row['boxes']:,} boxes of {row['file']} ({row['format']}) are "
            f"{_said(row['reading'])}, not {_said(row['form'])} as the format says{fits}."
        )


def _said(form: str) -> str:
    kind, _, unit = form.rpartition(" ")
    return f"{WORDS.get(kind, kind)} in {WORDS.get(unit, unit)}"


class MixedUnits(BoxCheck):
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

    hits = """
        SELECT b.*, 0 AS amount,
            CASE WHEN ends_with(f.reading, 'share') THEN 'px' ELSE 'shares of 1' END AS unit,
            CASE unit WHEN 'px' THEN 'shares of 1' ELSE 'px' END AS unit_of_file
        FROM boxes b JOIN annotation_files f ON f.file = b.file WHERE b.other_unit
    """
    message = "A box is in {unit}, while its file is in {unit_of_file}; converted it is {box}"
    evidence = ("unit", "unit_of_file")
    judged = "x IS NOT NULL"
