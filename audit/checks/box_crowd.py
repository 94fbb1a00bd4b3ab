"""BOX021: crowd marks that take objects out of training by mistake."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from audit.checking.boxes import BoxCheck
from audit.checking.check import asked
from audit.records import Finding, Severity
from audit.run.store import Store


class CrowdBox(BoxCheck):
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

    @dataclass(frozen=True)
    class Params:
        """max_share: share of a file's boxes from which the mark cannot be meant
        min_boxes: smallest number of boxes of such a file
        """

        max_share: float = 0.5
        min_boxes: int = 10

    hits = """
        SELECT b.* REPLACE (1 AS crowd), 0 AS amount FROM boxes b SEMI JOIN annotation_shapes s
            ON s.file = b.file AND s.image_key = b.image_key AND s.entry = b.entry
            AND s.kind = 'polygon'
        WHERE b.crowd AND NOT list_contains($told, b.file)
    """
    message = "A box ({box}) is marked as a crowd and has a polygon, as 1 object has"
    evidence = ("crowd",)
    counts = "SELECT count(*) AS n, count(*) FILTER (WHERE crowd) AS crowds FROM boxes"
    examined = "{crowds:,} of {n:,} boxes are marked as crowds."

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        sql = """
            SELECT file, count(*) AS boxes, count(*) FILTER (WHERE crowd) AS crowds FROM boxes
            GROUP BY file HAVING boxes >= $min_boxes AND crowds >= $max_share * boxes ORDER BY file
        """
        files = asked(store, sql, params)
        for file, boxes, crowds in files.iter_rows():
            yield self.about_file(
                file,
                "",
                f"{crowds:,} of the {boxes:,} boxes of {file} are marked as crowds, which training "
                "skips and evaluation ignores.",
                {"crowds": crowds, "boxes": boxes},
            )
        yield from self.worst(store, params, told=files["file"].to_list())
