"""BOX021: crowd marks that take objects out of training by mistake."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from audit.checking.boxes import BoxCheck
from audit.checking.check import asked
from audit.records import Finding, Severity
from audit.run.store import Store


class CrowdBox(BoxCheck):
    """Crowd flags on whole files, and on single objects with a polygon.

    ## What it does
    Reports a file if at least `max_share` of its boxes have the crowd flag. Also reports boxes with
    the flag and a polygon: crowds are stored as run lengths, polygons outline one object.

    ## Why is this bad
    Training skips crowd regions, and evaluation ignores detections in them. A wrong flag removes
    the object. If all boxes have the flag, no detection counts as an error.

    ## Example
    A converter wrote `iscrowd: 1` for every object.

    ## What to do
    Set `iscrowd` to 0 for single objects.

    ## Limits
    Not applicable to formats without a crowd flag. `IsGroupOf` of Open Images counts as a flag.
    """

    code = "BOX021"
    name = "crowd-box"
    severity = Severity.WARNING

    @dataclass(frozen=True)
    class Params:
        """max_share: share of a file's boxes from which the flag counts as a mistake
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
    message = "A box ({box}) has the crowd flag and a polygon, which outlines a single object"
    evidence = ("crowd",)
    counts = "SELECT count(*) AS n, count(*) FILTER (WHERE crowd) AS crowds FROM boxes"
    examined = "{crowds:,} of {n:,} boxes have the crowd flag."

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
                f"{crowds:,} of the {boxes:,} boxes of {file} have the crowd flag: training skips "
                "them and evaluation ignores them.",
                {"crowds": crowds, "boxes": boxes},
            )
        yield from self.worst(store, params, told=files["file"].to_list())
