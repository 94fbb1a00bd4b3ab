"""BOX016, BOX017, BOX018, BOX025: outlines, masks and areas that cannot be right."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from audit.checking.boxes import BoxCheck, Row, box_text, class_text, entry_place, px
from audit.checking.check import asked
from audit.records import Finding, Severity
from audit.run.store import Store


class CrossedOutline(BoxCheck):
    """Polygons that cross themselves.

    ## What it does
    Compares all pairs of edges of each polygon ring, and reports rings in which two non-adjacent
    edges cross.

    ## Why is this bad
    The filled area depends on the reader: some use the even-odd rule, some the winding number, some
    repair the ring and drop a part. The mask differs from the drawn outline.

    ## Example
    The last two corners were clicked in the wrong order: the outline looks like a bow tie.

    ## What to do
    Draw the outline again, or exchange the corners.

    ## Limits
    Rings that only touch themselves are not reported. Rings above 3,000 points are not checked.
    """

    code = "BOX016"
    name = "crossed-outline"
    severity = Severity.WARNING

    sql = """
        SELECT i.id, i.subject, b.label, b.category_key, file, entry, b.line, b.byte, image_key,
            s.crossings, s.n_points AS points, count(*) OVER (PARTITION BY i.id) AS outlines
        FROM annotation_shapes s JOIN boxes b USING (file, image_key, entry)
        JOIN images i ON i.id = b.sample_id WHERE s.crossings > 0
        QUALIFY row_number() OVER (
            PARTITION BY i.id ORDER BY s.crossings DESC, file, entry, s.part) = 1 ORDER BY i.id
    """
    evidence = ("crossings", "points", "outlines", "file", "entry")
    counts = """
        SELECT count(*) AS n, count(crossings) AS counted FROM annotation_shapes
        WHERE kind = 'polygon'
    """
    examined = "{counted:,} of {n:,} polygon rings were checked."

    def said(self, row: Row, params: Any) -> str:
        return (
            f"The outline of {class_text(row)} ({entry_place(row)}) crosses itself "
            f"{row['crossings']:,} times over {row['points']:,} points; {row['outlines']:,} "
            "outlines of this image cross themselves."
        )


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
        FROM outlines o JOIN sized a USING (file, image_key, entry)
        WHERE a.v3 > 0 AND a.v4 > 0
            AND isfinite(a.v1) AND isfinite(a.v2) AND isfinite(a.v3) AND isfinite(a.v4)
    )
"""


class BoxOffOutline(BoxCheck):
    """Boxes that do not fit their own polygon or mask.

    ## What it does
    Compares each box with the extent of its outline. Reported if the outline extends beyond the box
    by more than `slack_px` and `slack_share` of its side, or if their overlap (intersection over
    union) is below `min_iou`.

    ## Why is this bad
    Box and mask are trained together but describe different regions: one was edited, moved or
    scaled without the other.

    ## Example
    The polygon ends 38 px left of its box, because the boxes alone were shifted.

    ## What to do
    Recompute the box from the outline if the outline is right.

    ## Limits
    A box may be larger than its outline if parts are hidden. Tools differ by up to 2 px in counting
    the last pixel. Rotated boxes are not checked.
    """

    code = "BOX017"
    name = "box-off-outline"
    severity = Severity.WARNING

    @dataclass(frozen=True)
    class Params:
        """slack_px: px by which an outline may extend beyond its box
        slack_share: share of the box's longer side by which it may extend
        min_iou: overlap of the box with the extent of its outline, 0..1
        """

        slack_px: float = 2.0
        slack_share: float = 0.02
        min_iou: float = 0.3

    hits = f"""
        WITH {_COMPARED}
        SELECT b.*, p.leaves AS leaves_px, p.ow, p.oh, p.ox, p.oy, greatest(p.leaves, 0) AS amount,
            p.common / (p.v3 * p.v4 + ow * oh - p.common) AS iou
        FROM pairs p JOIN boxes b USING (file, image_key, entry)
        JOIN annotation_files f ON f.file = p.file
        WHERE (ends_with(f.form, 'px')
                AND leaves > greatest($slack_px, $slack_share * greatest(v3, v4)))
            OR (v3 * v4 > 0 AND ow * oh > 0
                AND p.common / (v3 * v4 + ow * oh - p.common) < $min_iou)
    """
    evidence = ("iou", "leaves_px")
    counts = f"WITH {_COMPARED} SELECT count(*) AS n FROM pairs"
    examined = "{n:,} boxes were compared with their outline."

    def said(self, row: Row, params: Any) -> str:
        return (
            f"A box ({box_text(row)}) and its own outline, {px(row['ow'])} x {px(row['oh'])} "
            f"px at ({px(row['ox'])}, {px(row['oy'])}), overlap by {row['iou']:.0%}"
        )


_WRONG_MASKS = """
    WITH shapes AS (
        SELECT s.* EXCLUDE (points), b.sample_id, b.label, b.category_key, b.line, b.byte,
            CASE WHEN s.kind = 'polygon' AND s.n_points < 3 THEN 'points'
                WHEN s.kind = 'polygon' THEN 'area'
                WHEN s.n_points <> mask_width * mask_height THEN 'runs'
                WHEN s.area = 0 THEN 'empty' ELSE 'size' END AS wrong,
            coalesce(b.picture_width, b.declared_width) AS w0,
            coalesce(b.picture_height, b.declared_height) AS h0
        FROM annotation_shapes s JOIN boxes b USING (file, image_key, entry)
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
    )
    SELECT s.*, n_points AS points, count(*) OVER (PARTITION BY i.id) AS outlines, i.id, i.subject
    FROM shapes s JOIN images i ON i.id = s.sample_id
    QUALIFY row_number() OVER (PARTITION BY i.id ORDER BY file, entry, part) = 1 ORDER BY i.id
"""


class WrongMask(BoxCheck):
    """Masks that are empty or have another size than their image, and polygons without area.

    ## What it does
    Reports polygon rings with fewer than three points or without area, and masks without a pixel.
    Also reports masks whose run lengths do not add up to their size, or whose size differs from the
    image's.

    ## Why is this bad
    An empty mask makes the loss NaN (0/0). A mask of another size is misaligned, or stops the
    loader.

    ## Example
    A mask of 480 x 640 for an image of 640 x 480: height and width were exchanged.

    ## What to do
    Create the mask again at the size of the image. Drop empty masks.

    ## Limits
    A mask may have the wrong size that its annotation file declares (BOX005).
    """

    code = "BOX018"
    name = "wrong-mask"
    severity = Severity.ERROR

    sql = _WRONG_MASKS
    evidence = ("kind", "wrong", "points", "outlines", "file", "entry")
    counts = "SELECT count(*) AS n FROM annotation_shapes WHERE kind <> 'keypoints'"
    examined = "{n:,} polygons and masks were checked."

    def said(self, row: Row, params: Any) -> str:
        return (
            f"The {row['kind']} of {class_text(row)} ({entry_place(row)}) {_said(row)}; "
            f"{row['outlines']:,} {'outline' if row['outlines'] == 1 else 'outlines'} of this "
            "image have this error."
        )


def _said(row: Row) -> str:
    if row["wrong"] == "runs":
        want = row["mask_width"] * row["mask_height"]
        return f"has run lengths of {row['points']:,} px in total, but its size needs {want:,}"
    if row["wrong"] == "size":
        return (
            f"is {row['mask_width']} x {row['mask_height']} px, but its image is {row['w0']:.0f} x "
            f"{row['h0']:.0f}"
        )
    if row["wrong"] == "points":
        return f"has {row['points']:,} points, but a ring needs 3"
    return "has no area"


_WRONG_AREAS = """
    WITH outlines AS (
        SELECT file, image_key, entry, sum(area) AS outline, count(*) AS parts
        FROM annotation_shapes WHERE kind IN ('polygon', 'mask') AND isfinite(area)
        GROUP BY file, image_key, entry
    ), given AS (
        SELECT b.*, o.outline, o.parts
        FROM boxes b LEFT JOIN outlines o USING (file, image_key, entry)
        WHERE b.area IS NOT NULL AND b.width > 0 AND b.height > 0 AND b.angle IS NULL
            AND NOT b.other_unit
    ), wrong AS (
        SELECT * FROM given
        WHERE NOT isfinite(area) OR area <= 0 OR area > (width + 2) * (height + 2) * 1.02
            OR (parts = 1 AND outline > 0 AND abs(area - outline)
                > greatest($slack_px, $slack_share * outline)
                AND abs(area - width * height) > 0.02 * width * height)
            OR (parts IS NULL AND area < $least_share * width * height)
    )
"""


class WrongArea(BoxCheck):
    """Annotations whose `area` is not the area of their outline or box.

    ## What it does
    Compares `area` with the box: it must be above 0 and not larger. It must equal the area of a
    single-part outline; without an outline, it must be at least `least_share` of the box. A file
    with over 20% wrong areas is reported once.

    ## Why is this bad
    COCO's evaluation sorts objects into small, medium and large by this number, so wrong areas
    change every score by size. Some loaders drop objects without area.

    ## Example
    Images and boxes were scaled by one half, but `area` was not: it is four times the box.

    ## What to do
    Recompute the areas from the outlines or boxes.

    ## Limits
    Any area between those of the outline and the box is accepted: both conventions are common.
    """

    code = "BOX025"
    name = "wrong-area"
    severity = Severity.WARNING

    @dataclass(frozen=True)
    class Params:
        """slack_px: square px by which an area may differ from that of its outline
        slack_share: share of the outline's area by which it may differ
        least_share: smallest share of its box for an area without an outline
        """

        slack_px: float = 20.0
        slack_share: float = 0.25
        least_share: float = 0.02

    hits = f"""
        {_WRONG_AREAS} SELECT *, 0 AS amount, width * height AS box_area,
            printf('; its box has %.0f', box_area)
                || coalesce(printf(' and its outline %.0f', outline), '') AS rest
        FROM wrong WHERE NOT list_contains($told, file)
    """
    message = "The area of an object ({box}) is declared as {area:.0f} square px{rest}"
    evidence = ("area", "box_area")
    counts = "SELECT count(area) AS n, count(*) AS total FROM boxes"
    examined = "{n:,} of {total:,} boxes declare an area."

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        sql = f"""
            {_WRONG_AREAS}, sizes AS (SELECT file, count(area) AS boxes FROM boxes GROUP BY file)
            SELECT w.file, count(*) AS n, any_value(s.boxes) AS boxes,
                min_by(area, entry) AS area, min_by(width * height, entry) AS box,
                count(*) > 3 AND count(*) > 0.2 * any_value(s.boxes) AS most
            FROM wrong w JOIN sizes s ON s.file = w.file GROUP BY w.file ORDER BY 1
        """
        files = asked(store, sql, params)
        if not files.height:
            return
        files = files.filter("most")
        for file, n, boxes, area, box, _ in files.iter_rows():
            yield self.about_file(
                file,
                "",
                f"{n:,} of the {boxes:,} areas of {file} do not match their objects: the first is "
                f"{area:.0f} with a box of {box:.0f} square px.",
                {"wrong": n, "boxes": boxes},
            )
        yield from self.worst(store, params, told=files["file"].to_list())
