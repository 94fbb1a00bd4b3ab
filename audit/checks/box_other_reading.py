"""BOX008: files whose four numbers mean something else than their format says."""

from __future__ import annotations

from collections.abc import Iterator

from audit.annotations.findings import examined, file_finding
from audit.checking.cases import Case, boxed
from audit.checking.check import Check, NoParams
from audit.records import Finding, Severity
from audit.run.store import Store

CORNERS = {"reading": "corners px", "fit_share": 1.0, "form_fit_share": 0.3}
WORDS = {
    "xywh": "left, top, width, height", "corners": "left, top, right, bottom",
    "centre": "centre x, centre y, width, height", "yxhw": "top, left, height, width",
    "xyhw": "left, top, height, width", "y-x corners": "top, left, bottom, right",
    "x-x-y-y": "left, right, top, bottom", "y-x centre": "centre y, centre x, height, width",
    "y-y-x-x": "top, bottom, left, right", "px": "px", "share": "shares of the picture",
}  # fmt: skip


class OtherReading(Check):
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
    tables = ("annotation_files",)

    CLEAN = (
        Case("as the format says", [{}], tables=boxed({})),
        Case("not decided", [{}], tables=boxed({}, annotation_files=[{"reading": None}])),
    )
    DIRTY = (
        Case(
            "corners in a COCO file",
            [{}],
            ["dataset:boxes.json"],
            tables=boxed({}, annotation_files=[CORNERS]),
        ),
        Case(
            "shares in a COCO file",
            [{}],
            ["dataset:boxes.json"],
            tables=boxed({}, annotation_files=[{"reading": "xywh share"}]),
        ),
    )

    def find(self, store: Store, params: NoParams) -> Iterator[Finding]:
        """Yield one finding a file."""
        sql = """
            SELECT f.*, b.n FROM annotation_files f JOIN (
                SELECT file, count(*) AS n FROM boxes GROUP BY file) b ON b.file = f.file
            WHERE reading <> form ORDER BY f.file
        """
        for row in store.query(sql).iter_rows(named=True):
            fits = ""
            if row["form_fit_share"] is not None and row["fit_share"] is not None:
                fits = (
                    f"; {row['form_fit_share']:.0%} of the boxes are inside their picture as the "
                    f"format says, {row['fit_share']:.0%} as they are"
                )
            yield file_finding(
                self.code,
                self.severity,
                row["file"],
                "",
                f"The {row['n']:,} boxes of {row['file']} ({row['format']}) are "
                f"{_said(row['reading'])}, not {_said(row['form'])} as the format says{fits}.",
                {
                    "form": row["form"], "reading": row["reading"], "boxes": row["n"],
                    "fit_share": -1.0 if row["fit_share"] is None else row["fit_share"],
                },
            )  # fmt: skip

    def completeness(self, store: Store, params: NoParams) -> str:
        """Say how many boxes were judged."""
        return examined(store, "x IS NOT NULL", ", all of a file together")


def _said(form: str) -> str:
    kind, _, unit = form.rpartition(" ")
    return f"{WORDS.get(kind, kind)} in {WORDS.get(unit, unit)}"
