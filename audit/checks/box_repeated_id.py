"""BOX012: ids, pictures and classes that an annotation file lists more than once."""

from __future__ import annotations

from collections.abc import Iterator

from audit.annotations.findings import file_finding
from audit.checking.cases import Case, boxed
from audit.checking.check import Check, NoParams
from audit.records import Finding, Severity
from audit.run.store import Store

ENTRY = {"file": "boxes.json", "entry": 0, "image_key": "1", "sample_id": "0000.jpg"}
ROW = {"file": "boxes.json", "entry": 0, "image_key": "1", "annotation_id": "5", "kind": "box"}
CAT = {"file": "boxes.json", "entry": 0, "category_key": "1", "label": "cat", "declared": True}
# One row a file and kind: how many values occur several times, and the first of them.
_REPEATS = """
    SELECT file, count(*) AS repeated, sum(n) AS entries, min_by(value, first) AS value,
        min(first) AS first, min_by(second, first) AS second, flatten(list(samples)) AS samples
    FROM (
        SELECT file, {value} AS value, count(*) AS n, min(entry) AS first, max(entry) AS second,
            {samples} AS samples
        FROM {table} WHERE {value} IS NOT NULL {extra} GROUP BY file, {value}{within}
        HAVING count(*) > 1
    ) GROUP BY file ORDER BY file
"""
# Ids of objects in a file for each picture are numbers within that file.
_WITHIN = """, CASE WHEN file IN (SELECT file FROM annotation_files
    WHERE format IN ('LabelMe', 'VOC')) THEN image_key END"""
_NO_SAMPLES = "CAST([] AS VARCHAR[])"
KINDS = (
    ("annotation ids", "annotation_id", "annotations", "", _NO_SAMPLES),
    ("picture ids", "image_key", "annotated_images", "", "list(DISTINCT sample_id)"),
    ("pictures", "sample_id", "annotated_images", "", "list(DISTINCT sample_id)"),
    ("class ids", "category_key", "categories", "AND declared", _NO_SAMPLES),
    ("class names", "label", "categories", "AND declared", _NO_SAMPLES),
)


class RepeatedAnnotationId(Check):
    """Annotation ids, picture ids, pictures or classes that one annotation file lists twice.

    ## What it does
    Counts, file by file, ids of annotations, ids of pictures, pictures, class ids and class names
    that occur more than once.

    ## Why is this bad
    Readers index by id and keep the last entry: boxes of the others vanish, or go to another
    picture. A picture listed twice counts twice; a class listed twice has two outputs.

    ## Example
    Two exports were joined, and both count their annotations from 1.

    ## What to do
    Number the entries again, with the references to them; merge entries of one picture.

    ## Limits
    Ids of segments (panoptic) are unique within a picture only, and are not compared; those of
    LabelMe and VOC are compared within the file of a picture.

    ## References
    COCO's API builds dictionaries by id without checking for repeats.
    """

    code = "BOX012"
    name = "repeated-annotation-id"
    severity = Severity.ERROR
    tables = ("annotation_files",)

    CLEAN = (
        Case(
            "all different",
            [{}],
            tables=boxed(annotations=[ROW, {**ROW, "entry": 1, "annotation_id": "6"}]),
        ),
        Case(
            "numbers within the file of a picture",
            [{}],
            tables=boxed(
                annotations=[ROW, {**ROW, "image_key": "2"}],
                annotation_files=[{"format": "LabelMe"}],
            ),
        ),
        Case(
            "formats without ids",
            [{}],
            tables=boxed(annotations=[{**ROW, "annotation_id": None, "entry": n} for n in (0, 1)]),
        ),
    )
    DIRTY = (
        Case(
            "an annotation id twice",
            [{}],
            ["dataset:boxes.json/annotation ids"],
            tables=boxed(annotations=[ROW, {**ROW, "entry": 1}]),
        ),
        Case(
            "a picture under two ids",
            [{}],
            ["dataset:boxes.json/pictures"],
            tables=boxed(annotated_images=[ENTRY, {**ENTRY, "entry": 1, "image_key": "2"}]),
        ),
        Case(
            "a class name twice",
            [{}],
            ["dataset:boxes.json/class names"],
            tables=boxed(categories=[CAT, {**CAT, "entry": 1, "category_key": "2"}]),
        ),
    )

    def find(self, store: Store, params: NoParams) -> Iterator[Finding]:
        """Yield one finding a file and kind; pictures of a repeated id are not named again."""
        said: set[str] = set()
        for what, value, table, extra, samples in KINDS:
            within = _WITHIN if value == "annotation_id" else ""
            sql = _REPEATS.format(
                value=value, table=table, extra=extra, samples=samples, within=within
            )
            for row in store.query(sql).iter_rows(named=True):
                key = f"{row['file']}/{row['first']}"
                if what == "pictures" and key in said:
                    continue
                said.add(key) if what == "picture ids" else None
                yield file_finding(
                    self.code,
                    self.severity,
                    row["file"],
                    what,
                    f"{row['repeated']:,} {what} of {row['file']} are listed more than once "
                    f"({row['entries']:,} entries): {row['value']} as entries {row['first']:,} and "
                    f"{row['second']:,}.",
                    {
                        "repeated": row["repeated"], "entries": int(row["entries"]),
                        "value": row["value"], "entry": row["first"],
                    },
                    [s for s in row["samples"] or [] if s],
                )  # fmt: skip

    def completeness(self, store: Store, params: NoParams) -> str:
        """Say how many entries were compared."""
        tables = ("annotations", "annotated_images", "categories")
        n, p, c = (store.scalar(f"SELECT count(*) FROM {table}") for table in tables)
        return f"The ids of {n:,} annotations, {p:,} pictures and {c:,} classes were compared."
