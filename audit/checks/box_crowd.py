"""BOX021: crowd marks that take objects out of training by mistake."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from audit.annotations.findings import box_finding, box_text, file_finding, worst_by_picture
from audit.checking.cases import Case, boxed
from audit.checking.check import Check
from audit.records import Finding, Severity
from audit.run.store import Store

CROWD = {"crowd": True, "annotation_id": None}
RING = {"file": "boxes.json", "image_key": "0000.jpg", "entry": 0, "kind": "polygon", "part": 0}


class CrowdBox(Check):
    """Crowd marks on files as a whole, and on single objects with an outline of their own.

    ## What it does
    Reports a file of which at least `max_share` of the boxes are marked as a crowd, and boxes
    marked so whose outline is a polygon: a crowd is a region of run lengths, a polygon was drawn
    around one object.

    ## Why is this bad
    Trainers skip crowd regions and evaluations ignore what is found in them: a mark that was set by
    mistake removes the object, and a file of nothing else scores everything as right.

    ## Example
    A converter wrote `iscrowd: 1` for every object.

    ## What to do
    Set `iscrowd` to 0 where there is one object.

    ## Limits
    Formats without the mark are not judged; `IsGroupOf` of Open Images counts as one.

    ## References
    T.-Y. Lin et al., "Microsoft COCO", ECCV 2014, section 4.3: crowds are segmented as a region.
    """

    code = "BOX021"
    name = "crowd-box"
    severity = Severity.WARNING
    tables = ("annotation_files",)

    @dataclass(frozen=True)
    class Params:
        """Thresholds.

        max_share: share of a file's boxes from which the mark cannot be meant
        min_boxes: smallest number of boxes of such a file
        """

        max_share: float = 0.5
        min_boxes: int = 10

    CLEAN = (
        Case("a crowd among objects", [{}], tables=boxed({}, {}, CROWD)),
        Case("too few to tell", [{}], tables=boxed(CROWD, CROWD)),
        Case("a polygon of one object", [{}], tables=boxed({}, annotation_shapes=[RING])),
    )
    DIRTY = (
        Case(
            "every object is a crowd",
            [{}],
            ["dataset:boxes.json"],
            tables=boxed(*[{**CROWD, "x": 7.0 * n} for n in range(12)]),
        ),
        Case(
            "a crowd with a polygon",
            [{}],
            ["0000.jpg"],
            tables=boxed(CROWD, {}, {}, annotation_shapes=[RING]),
        ),
    )

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        """Yield one finding a file, then one a picture of the other files."""
        sql = """
            SELECT file, count(*) AS n, count(*) FILTER (WHERE crowd) AS crowds FROM boxes
            GROUP BY file HAVING count(*) >= ? AND count(*) FILTER (WHERE crowd) >= ? * count(*)
            ORDER BY file
        """
        files = store.query(sql, [params.min_boxes, params.max_share])
        for row in files.iter_rows(named=True):
            yield file_finding(
                self.code,
                self.severity,
                row["file"],
                "",
                f"{row['crowds']:,} of the {row['n']:,} boxes of {row['file']} are marked as "
                "crowds, which training skips and evaluation ignores.",
                {"crowds": row["crowds"], "boxes": row["n"]},
            )
        hits = """
            SELECT b.*, 0 AS amount FROM boxes b SEMI JOIN annotation_shapes s ON s.file = b.file
                AND s.image_key = b.image_key AND s.entry = b.entry AND s.kind = 'polygon'
            WHERE b.crowd AND NOT list_contains(?, b.file)
        """
        for worst in worst_by_picture(store, hits, [files["file"].to_list()]):
            yield box_finding(
                self.code,
                self.severity,
                worst,
                f"A box ({box_text(worst)}) is marked as a crowd and has a polygon, as 1 object "
                "has",
                {"crowd": 1},
            )

    def completeness(self, store: Store, params: Params) -> str:
        """Say how many crowds there are."""
        n, crowds = store.query("SELECT count(*), count(*) FILTER (WHERE crowd) FROM boxes").row(0)
        return f"{crowds:,} of {n:,} boxes are marked as crowds."
