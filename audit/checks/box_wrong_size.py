"""BOX005: pictures whose size in the annotation file is not their size."""

from __future__ import annotations

from collections.abc import Iterator

from audit.annotations.findings import px
from audit.checking.cases import Case, boxed
from audit.checking.check import Check, NoParams
from audit.records import Action, Finding, Severity
from audit.run.store import Store

ENTRY = {
    "file": "boxes.json", "image_key": "0000.jpg", "sample_id": "0000.jpg", "entry": 0,
    "width": 640.0, "height": 480.0,
}  # fmt: skip
_SQL = """
    WITH fits AS (
        SELECT file, image_key, count(*) AS n,
            count(*) FILTER (WHERE least(x, y) >= -1 AND x + width <= picture_width + 1
                AND y + height <= picture_height + 1) AS real,
            count(*) FILTER (WHERE least(x, y) >= -1 AND x + width <= declared_width + 1
                AND y + height <= declared_height + 1) AS declared
        FROM boxes WHERE width IS NOT NULL GROUP BY file, image_key
    ), entries AS (
        SELECT e.*, i.width AS pw, i.height AS ph, i.orientation, i.subject,
            coalesce(f.n, 0) AS n, coalesce(f.real, 0) AS fit_real,
            coalesce(f.declared, 0) AS fit_declared, s.frame,
            row_number() OVER (PARTITION BY e.sample_id ORDER BY e.file, e.entry) AS place
        FROM annotated_images e JOIN images i ON i.id = e.sample_id
        LEFT JOIN fits f ON f.file = e.file AND f.image_key = e.image_key
        LEFT JOIN annotation_files s ON s.file = e.file
        WHERE i.width IS NOT NULL AND e.width IS NOT NULL AND e.height IS NOT NULL
            AND (e.width <> i.width OR e.height <> i.height)
            AND NOT (s.format = 'VOC' AND e.width = 0 AND e.height = 0)
    )
    SELECT * FROM entries WHERE place = 1 ORDER BY sample_id
"""


class WrongSize(Check):
    """Pictures whose annotation file gives another size than the decoded picture has.

    ## What it does
    Compares the size that the annotation file declares with the decoded picture as it is shown,
    and with the picture as it is stored, before EXIF turns it; tells which of the sizes the boxes
    of the picture fit.

    ## Why is this bad
    Boxes are scaled by the declared size: each is stretched or moved when the size is wrong. A size
    from before EXIF turned the picture means that boxes lie across it for readers that turn it.

    ## Example
    An entry says 176 x 132, the picture is 132 x 176: width and height were exchanged.

    ## What to do
    Correct the size if the boxes fit the picture; else scale or turn the boxes as well.

    ## Limits
    Says nothing where the file gives no size (YOLO) or the picture could not be decoded.

    ## References
    EXIF 2.32, tag Orientation; Pillow's `ImageOps.exif_transpose`.
    """

    code = "BOX005"
    name = "annotated-size-wrong"
    severity = Severity.ERROR
    tables = ("annotation_files",)
    features = ("orientation",)

    CLEAN = (
        Case("the size of the picture", [{}], tables=boxed({}, annotated_images=[ENTRY])),
        Case(
            "no size given",
            [{}],
            tables=boxed({}, annotated_images=[{**ENTRY, "width": None, "height": None}]),
        ),
    )
    DIRTY = (
        Case(
            "width and height exchanged",
            [{}],
            ["0000.jpg"],
            tables=boxed({}, annotated_images=[{**ENTRY, "width": 480.0, "height": 640.0}]),
        ),
        Case(
            "the size before EXIF turned the picture",
            [{"orientation": 6}],
            ["0000.jpg"],
            tables=boxed({}, annotated_images=[{**ENTRY, "width": 480.0, "height": 640.0}]),
        ),
    )

    def find(self, store: Store, params: NoParams) -> Iterator[Finding]:
        """Yield one finding a picture."""
        for row in store.query(_SQL).iter_rows(named=True):
            exchanged = row["width"] == row["ph"] and row["height"] == row["pw"]
            yield Finding(
                self.code,
                self.severity,
                (row["sample_id"],),
                f"The annotation file ({row['file']}) gives {px(row['width'])} x "
                f"{px(row['height'])} px, the picture has {row['pw']} x {row['ph']} px"
                f"{_explained(row, exchanged)}; {_fit(row)}.",
                {
                    "declared_width": row["width"], "declared_height": row["height"],
                    "width": row["pw"], "height": row["ph"], "orientation": row["orientation"],
                    "boxes": row["n"], "boxes_fit_picture": row["fit_real"],
                    "boxes_fit_declared": row["fit_declared"], "file": row["file"],
                },
                Action.REVIEW,
                row["subject"],
            )  # fmt: skip

    def completeness(self, store: Store, params: NoParams) -> str:
        """Say how many entries have a size."""
        n, total = store.query(
            "SELECT count(*) FILTER (WHERE e.width IS NOT NULL AND i.width IS NOT NULL), count(*) "
            "FROM annotated_images e LEFT JOIN images i ON i.id = e.sample_id"
        ).row(0)
        return f"{n:,} of {total:,} entries of pictures give a size that could be compared."


def _explained(row: dict[str, object], exchanged: bool) -> str:
    if exchanged and int(str(row["orientation"] or 1)) >= 5:
        return f" as shown: EXIF orientation {row['orientation']} turns it, the size is of before"
    return ": width and height are exchanged" if exchanged else ""


def _fit(row: dict[str, object]) -> str:
    n = int(str(row["n"]))
    if n == 0:
        return "it has 0 boxes"
    return (
        f"of its {n:,} boxes {row['fit_real']:,} fit the picture and {row['fit_declared']:,} "
        "the declared size"
    )
