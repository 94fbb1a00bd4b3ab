"""BOX005: pictures whose size in the annotation file is not their size."""

from __future__ import annotations

from typing import Any

from audit.checking.boxes import BoxCheck, Row, px
from audit.records import Severity

_SQL = """
    WITH fits AS (
        SELECT file, image_key, count(*) AS n,
            count(*) FILTER (WHERE least(x, y) >= -1 AND x + width <= picture_width + 1
                AND y + height <= picture_height + 1) AS real,
            count(*) FILTER (WHERE least(x, y) >= -1 AND x + width <= declared_width + 1
                AND y + height <= declared_height + 1) AS declared
        FROM boxes WHERE width IS NOT NULL GROUP BY file, image_key
    )
    SELECT e.file, i.id, i.subject, i.width, i.height, i.orientation, e.width AS declared_width,
        e.height AS declared_height, coalesce(f.n, 0) AS boxes,
        coalesce(f.real, 0) AS boxes_fit_picture, coalesce(f.declared, 0) AS boxes_fit_declared
    FROM annotated_images e JOIN images i ON i.id = e.sample_id
    LEFT JOIN fits f ON f.file = e.file AND f.image_key = e.image_key
    LEFT JOIN annotation_files s ON s.file = e.file
    WHERE i.width IS NOT NULL AND e.width IS NOT NULL AND e.height IS NOT NULL
        AND (e.width <> i.width OR e.height <> i.height)
        AND NOT (s.format = 'VOC' AND e.width = 0 AND e.height = 0)
    QUALIFY row_number() OVER (PARTITION BY e.sample_id ORDER BY e.file, e.entry) = 1 ORDER BY i.id
"""


class WrongSize(BoxCheck):
    """Images whose annotation file declares another size than the decoded image has.

    ## What it does
    Compares the declared size with the decoded image, after and before EXIF rotation. Reports which
    of the sizes the boxes of the image fit.

    ## Why is this bad
    Boxes are scaled by the declared size, so a wrong size stretches or moves them. If it is the
    size before EXIF rotation, readers that rotate the image misplace the boxes.

    ## Example
    An entry says 176 x 132, the image is 132 x 176: width and height were exchanged.

    ## What to do
    Correct the size if the boxes fit the image; otherwise scale or rotate the boxes as well.

    ## Limits
    Not applicable if the file declares no size (YOLO) or the image could not be decoded.
    """

    code = "BOX005"
    name = "annotated-size-wrong"
    severity = Severity.ERROR
    features = ("orientation",)

    sql = _SQL
    evidence = (
        "declared_width", "declared_height", "width", "height", "orientation", "boxes",
        "boxes_fit_picture", "boxes_fit_declared", "file",
    )  # fmt: skip
    counts = """
        SELECT count(*) FILTER (WHERE e.width IS NOT NULL AND i.width IS NOT NULL) AS n,
            count(*) AS total
        FROM annotated_images e LEFT JOIN images i ON i.id = e.sample_id
    """
    examined = "{n:,} of {total:,} image entries declare a size that could be compared."

    def said(self, row: Row, params: Any) -> str:
        wide, high = row["declared_width"], row["declared_height"]
        why = ""
        if wide == row["height"] and high == row["width"]:
            why = ": width and height are exchanged"
            if (row["orientation"] or 1) >= 5:
                turned = f"EXIF orientation {row['orientation']}"
                why = f" after rotation ({turned}); the declared size is from before"
        fit = "the image has no boxes"
        if row["boxes"]:
            fit = (
                f"of its {row['boxes']:,} boxes {row['boxes_fit_picture']:,} fit the image and "
                f"{row['boxes_fit_declared']:,} the declared size"
            )
        return (
            f"The annotation file ({row['file']}) declares {px(wide)} x {px(high)} px, the image "
            f"has {row['width']} x {row['height']} px{why}; {fit}."
        )
