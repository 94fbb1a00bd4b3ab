"""BOX013: annotation files, entries and lines that could not be read as their format says."""

from __future__ import annotations

from collections.abc import Iterator

from audit.annotations.findings import file_finding
from audit.checking.cases import Case, boxed
from audit.checking.check import Check, NoParams
from audit.records import Finding, Severity
from audit.run.store import Store

MILD = ("duplicate-key", "encoding", "name-differs", "wrong-type")
PROBLEM = {
    "kind": "truncated", "file": "boxes.json", "place": "line 9, byte 120",
    "detail": "the file ends inside its JSON", "more": 0,
}  # fmt: skip
_SQL = """
    SELECT p.file, p.kind, sum(1 + p.more) AS n, arg_min(p.detail, p.rowid) AS detail,
        list(p.place ORDER BY p.rowid)[1:3] AS places,
        list(DISTINCT i.sample_id) FILTER (WHERE i.sample_id IS NOT NULL) AS samples
    FROM annotation_problems p
    LEFT JOIN annotated_images i ON i.file = p.file AND i.image_key = p.image_key
    GROUP BY p.file, p.kind ORDER BY p.file, p.kind
"""


class MalformedAnnotation(Check):
    """Annotation files that end too early, and entries or lines that are not of their format.

    ## What it does
    Reports what readers met, file by file and kind by kind: a file cut short or with bad syntax
    (with the byte), a line with the wrong number of columns, a text for a number, keys given twice,
    ids that are texts here and numbers there, unusual encodings, an XML file that names another
    picture than its own name does.

    ## Why is this bad
    Readers differ: one stops, one skips the line, one takes the last of two values. What was
    annotated is not what is trained on.

    ## Example
    `labels/0042.txt`, line 3: `0 0.5 0.5 0.2` has one number too few.

    ## What to do
    Correct the entry at the place given, or write the file again from its source.

    ## Limits
    Of each kind at most 200 a file are listed in the table `annotation_problems`; all are counted.
    What can be read of such a file is read, and goes through the other checks.

    ## References
    RFC 8259 (JSON); Extensible Markup Language 1.0; the label form of Ultralytics YOLO.
    """

    code = "BOX013"
    name = "malformed-annotation"
    severity = Severity.ERROR
    tables = ("annotation_files",)

    CLEAN = (
        Case("nothing to report", [{}], tables=boxed({})),
        Case("a file without boxes", [{}], tables=boxed(annotation_files=[{}])),
    )
    DIRTY = (
        Case(
            "cut short",
            [{}],
            ["dataset:boxes.json/truncated"],
            tables=boxed(annotation_problems=[PROBLEM]),
        ),
        Case(
            "two of one kind",
            [{}],
            ["dataset:boxes.json/malformed"],
            tables=boxed(
                annotation_problems=[{**PROBLEM, "kind": "malformed"}] * 2,
            ),
        ),
    )  # fmt: skip

    def find(self, store: Store, params: NoParams) -> Iterator[Finding]:
        """Yield one finding a file and kind."""
        for row in store.query(_SQL).iter_rows(named=True):
            places = "; ".join(place for place in row["places"] if place)
            where = f" ({places})" if places else ""
            times = f"{int(row['n']):,} times" if row["n"] > 1 else "1 time"
            text = f"In {row['file']}, {times}: {row['detail']}{where}."
            yield file_finding(
                self.code,
                Severity.WARNING if row["kind"] in MILD else self.severity,
                row["file"],
                row["kind"],
                text.replace("\n", " "),
                {"kind": row["kind"], "times": int(row["n"]), "places": places},
                row["samples"] or [],
            )

    def completeness(self, store: Store, params: NoParams) -> str:
        """Say how many files were read to their end."""
        n, whole = store.query(
            "SELECT coalesce(sum(n_files), 0), coalesce(sum(n_files) FILTER (WHERE complete), 0) "
            "FROM annotation_files"
        ).row(0)
        return f"{int(whole):,} of {int(n):,} annotation files could be read whole."
