"""BOX011: annotations of pictures that are not there."""

from __future__ import annotations

from collections.abc import Iterator

from audit.annotations.findings import file_finding
from audit.checking.cases import Case, boxed
from audit.checking.check import Check, NoParams
from audit.records import Finding, Severity
from audit.run.store import Store

ENTRY = {"file": "boxes.json", "entry": 0, "image_key": "0000.jpg", "file_name": "0000.jpg"}
FOUND = {**ENTRY, "sample_id": "0000.jpg", "matched_by": "path"}
ORPHAN = {"file": "boxes.json", "entry": 1, "image_key": "77", "kind": "box", "line": 9}
# Annotations name a picture that the file does not list.
_ORPHANS = """
    SELECT a.file, count(*) AS n, count(DISTINCT a.image_key) AS keys,
        min_by(coalesce(a.image_key, 'none'), a.entry) AS key, min(a.entry) AS entry,
        min(a.line) AS line
    FROM annotations a ANTI JOIN annotated_images i ON i.file = a.file AND i.image_key = a.image_key
    GROUP BY a.file ORDER BY a.file
"""
# Pictures that the file lists are no samples.
_MISSING = """
    SELECT i.file, matched_by, count(*) AS n, min_by(file_name, entry) AS name,
        any_value(f.pictures) AS pictures, any_value(f.format) AS format
    FROM annotated_images i JOIN annotation_files f ON f.file = i.file
    WHERE matched_by IN ('missing', 'ambiguous') GROUP BY i.file, matched_by ORDER BY 1, 2
"""


class OrphanAnnotation(Check):
    """Annotations whose picture is not listed, and listed pictures that are not among the samples.

    ## What it does
    Reports, file by file, annotations whose picture id the file does not list, entries and label
    files whose picture is not there, and names that several pictures have.

    ## Why is this bad
    These annotations train nothing: loaders skip them, or stop. Often pictures were moved, or the
    annotations belong to another version of the dataset.

    ## Example
    `image_id` 77 in a file whose pictures are 1 to 60.

    ## What to do
    Find the pictures, or drop the annotations.

    ## Limits
    Paths are compared as written, below the usual folders, by the end of the path, and by the name
    where one picture has it.

    ## References
    pycocotools indexes annotations by `image_id` and raises a KeyError for such a one.
    """

    code = "BOX011"
    name = "orphan-annotation"
    severity = Severity.ERROR
    tables = ("annotation_files",)

    CLEAN = (
        Case("all pictures are there", [{}], tables=boxed({}, annotated_images=[FOUND])),
        Case(
            "an annotation of a listed picture",
            [{}],
            tables=boxed(
                annotated_images=[FOUND], annotations=[{**ORPHAN, "image_key": "0000.jpg"}]
            ),
        ),
    )
    DIRTY = (
        Case(
            "an unknown picture id",
            [{}],
            ["dataset:boxes.json/ids"],
            tables=boxed(annotated_images=[FOUND], annotations=[ORPHAN]),
        ),
        Case(
            "a picture that is gone",
            [{}],
            ["dataset:boxes.json/missing"],
            tables=boxed(
                annotation_files=[{"pictures": 1}],
                annotated_images=[{**ENTRY, "matched_by": "missing"}],
            ),
        ),
    )  # fmt: skip

    def find(self, store: Store, params: NoParams) -> Iterator[Finding]:
        """Yield one finding a file and kind."""
        for row in store.query(_ORPHANS).iter_rows(named=True):
            line = "" if row["line"] is None else f", line {row['line']:,}"
            yield file_finding(
                self.code,
                self.severity,
                row["file"],
                "ids",
                f"{row['n']:,} annotations of {row['file']} name {row['keys']:,} pictures that the "
                f"file does not list: the first is {row['key']} (entry {row['entry']:,}{line}).",
                {"annotations": row["n"], "pictures": row["keys"], "first": row["key"]},
            )
        for row in store.query(_MISSING).iter_rows(named=True):
            why = "are not there" if row["matched_by"] == "missing" else "could be several files"
            yield file_finding(
                self.code,
                self.severity if row["n"] < row["pictures"] else Severity.WARNING,
                row["file"],
                row["matched_by"],
                f"{row['n']:,} of {row['pictures']:,} pictures of {row['file']} {why}: the first "
                f"is {row['name'] or '(no name)'}.",
                {"missing": row["n"], "pictures": row["pictures"], "first": row["name"] or ""},
            )

    def completeness(self, store: Store, params: NoParams) -> str:
        """Say how many pictures were looked up."""
        n, found = store.query("SELECT count(*), count(sample_id) FROM annotated_images").row(0)
        return f"{found:,} of {n:,} pictures of annotation files are samples."
