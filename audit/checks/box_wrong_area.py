"""BOX025: areas that are not those of their boxes and outlines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from audit.annotations.findings import box_finding, box_text, file_finding, worst_by_picture
from audit.checking.cases import Case, boxed
from audit.checking.check import Check
from audit.records import Finding, Severity
from audit.run.store import Store

RING = {"file": "boxes.json", "image_key": "0000.jpg", "entry": 0, "kind": "polygon", "part": 0,
        "area": 9000.0}  # fmt: skip
_WRONG = """
    WITH outlines AS (
        SELECT file, image_key, entry, sum(area) AS outline, count(*) AS parts
        FROM annotation_shapes WHERE kind IN ('polygon', 'mask') AND isfinite(area)
        GROUP BY file, image_key, entry
    ), given AS (
        SELECT b.*, o.outline, o.parts FROM boxes b LEFT JOIN outlines o
            ON o.file = b.file AND o.image_key = b.image_key AND o.entry = b.entry
        WHERE b.area IS NOT NULL AND b.width > 0 AND b.height > 0 AND b.angle IS NULL
            AND NOT b.other_unit
    ), wrong AS (
        SELECT * FROM given
        WHERE NOT isfinite(area) OR area <= 0 OR area > (width + 2) * (height + 2) * 1.02
            OR (parts = 1 AND outline > 0 AND abs(area - outline)
                > greatest(?, ? * outline) AND abs(area - width * height) > 0.02 * width * height)
            OR (parts IS NULL AND area < ? * width * height)
    )
"""


class WrongArea(Check):
    """Annotations whose `area` is not the area of their outline or box.

    ## What it does
    Compares `area` with the box (it cannot be larger, nor zero), with the outline where there is
    one of a single part, and, where there is none, with `least_share` of the box. Reports a file as
    a whole where over a fifth of its areas are wrong.

    ## Why is this bad
    COCO's evaluation sorts objects into small, medium and large by this number, so a wrong one
    changes every score by size; some loaders drop what has no area.

    ## Example
    Pictures were halved and boxes with them, and `area` kept its old values: four times the box.

    ## What to do
    Compute the areas again from the outlines or boxes.

    ## Limits
    An area between those of outline and box is accepted, for both are usual; so is one of the box.

    ## References
    COCO's evaluation: `areaRng` in pycocotools' cocoeval.
    """

    code = "BOX025"
    name = "wrong-area"
    severity = Severity.WARNING
    tables = ("annotation_files",)

    @dataclass(frozen=True)
    class Params:
        """Thresholds.

        slack_px: square px by which an area may differ from that of its outline
        slack_share: share of the outline's area by which it may
        least_share: share of its box that an area without an outline has at least
        """

        slack_px: float = 20.0
        slack_share: float = 0.25
        least_share: float = 0.02

    CLEAN = (
        Case("that of the box", [{}], tables=boxed({"area": 30_000.0})),
        Case(
            "that of the outline",
            [{}],
            tables=boxed({"area": 9100.0}, annotation_shapes=[RING]),
        ),
        Case("none given", [{}], tables=boxed({})),
    )
    DIRTY = (
        Case(
            "larger than the box",
            [{}],
            ["0000.jpg"],
            tables=boxed({"area": 120_000.0}, *[{"area": 30_000.0}] * 9),
        ),
        Case(
            "zero in the whole file",
            [{}],
            ["dataset:boxes.json"],
            tables=boxed(*[{"area": 0.0}] * 9),
        ),
    )

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        """Yield one finding a file, or one a picture where few of its areas are wrong."""
        values = [params.slack_px, params.slack_share, params.least_share]
        files = store.query(
            f"{_WRONG}, sizes AS (SELECT file, count(area) AS boxes FROM boxes GROUP BY file) "
            "SELECT w.file, count(*) AS n, any_value(s.boxes) AS boxes, min_by(area, entry) AS "
            "area, min_by(width * height, entry) AS box, count(*) > 3 AND count(*) > "
            "0.2 * any_value(s.boxes) AS most "
            "FROM wrong w JOIN sizes s ON s.file = w.file GROUP BY w.file ORDER BY 1",
            values,
        )
        if not files.height:
            return
        files = files.filter("most")
        for row in files.iter_rows(named=True):
            yield file_finding(
                self.code,
                self.severity,
                row["file"],
                "",
                f"{row['n']:,} of the {row['boxes']:,} areas of {row['file']} are not those of "
                f"their objects: the first is {row['area']:.0f} with a box of {row['box']:.0f} "
                "square px.",
                {"wrong": row["n"], "boxes": row["boxes"]},
            )
        hits = f"{_WRONG} SELECT *, 0 AS amount FROM wrong WHERE NOT list_contains(?, file)"
        for worst in worst_by_picture(store, hits, [*values, files["file"].to_list()]):
            outline = "" if worst["outline"] is None else f" and its outline {worst['outline']:.0f}"
            yield box_finding(
                self.code,
                self.severity,
                worst,
                f"The area of an object ({box_text(worst)}) is given as {worst['area']:.0f} square "
                f"px; its box has {worst['width'] * worst['height']:.0f}{outline}",
                {"area": worst["area"], "box_area": worst["width"] * worst["height"]},
            )

    def completeness(self, store: Store, params: Params) -> str:
        """Say how many areas there are."""
        n, total = store.query("SELECT count(area), count(*) FROM boxes").row(0)
        return f"{n:,} of {total:,} boxes give an area."
