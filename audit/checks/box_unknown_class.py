"""BOX003: annotations whose class is not in the list of classes."""

from __future__ import annotations

from collections.abc import Iterator

from audit.annotations.findings import box_finding, examined, worst_by_picture
from audit.checking.cases import Case, boxed
from audit.checking.check import Check, NoParams
from audit.records import Action, Finding, Severity
from audit.run.store import Store

CLASSES = ({"file": "boxes.json", "category_key": "1", "label": "cat", "declared": True},)


class UnknownClass(Check):
    """Annotations whose class is not in the list that their file gives.

    ## What it does
    Looks up the class of each annotation in the classes that its file declares (`categories`,
    `names`); a class number is flagged where the list does not have it.

    ## Why is this bad
    A trainer stops with an index out of range, or silently trains an output that has no name; with
    a list counted from 0 and labels counted from 1, every class is another one.

    ## Example
    `category_id` 99 in a file whose classes are 1 to 8.

    ## What to do
    Correct the number, or add the class to the list.

    ## Limits
    Formats that have no list of classes (VOC) cannot have an unknown one. A wrong class that is in
    the list is not seen here.

    ## References
    T.-Y. Lin et al., "Microsoft COCO", ECCV 2014; its class numbers have gaps on purpose.
    """

    code = "BOX003"
    name = "unknown-category"
    severity = Severity.ERROR
    tables = ("annotation_files",)

    CLEAN = (
        Case("a class of the list", [{}], tables=boxed({}, categories=CLASSES)),
        Case("no list of classes", [{}], tables=boxed({"label": None, "category_key": "7"})),
    )
    DIRTY = (
        Case(
            "a number that the list lacks",
            [{}],
            ["0000.jpg"],
            tables=boxed({"label": None, "category_key": "99"}, categories=CLASSES),
        ),
        Case(
            "no class at all",
            [{}],
            ["0000.jpg"],
            tables=boxed({"label": None, "category_key": None}, categories=CLASSES),
        ),
    )

    def find(self, store: Store, params: NoParams) -> Iterator[Finding]:
        """Yield one finding a picture."""
        hits = """
            SELECT b.*, 0 AS amount, c.n AS classes FROM boxes b JOIN (
                SELECT file, count(*) AS n FROM categories WHERE declared GROUP BY file
            ) c ON c.file = b.file WHERE b.label IS NULL
        """
        for row in worst_by_picture(store, hits):
            key = row["category_key"]
            what = "no class" if key is None else f"the class {key}, which is not"
            among = "of" if key is None else "among"
            yield box_finding(
                self.code,
                self.severity,
                row,
                f"A box has {what} {among} the {row['classes']:,} classes of its file",
                {"class": "" if key is None else key, "classes": row["classes"]},
                Action.RELABEL,
            )

    def completeness(self, store: Store, params: NoParams) -> str:
        """Say how many boxes have a list to be compared with."""
        listed = "file IN (SELECT file FROM categories WHERE declared)"
        return examined(store, listed, " by the list of classes of their file")
