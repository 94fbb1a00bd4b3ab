"""BOX014: pictures without annotations in a folder where nearly all have some."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from audit.checking.cases import Case, boxed
from audit.checking.check import Check
from audit.records import Action, Finding, Severity
from audit.run.store import Store


def _listed(n: int) -> list[dict[str, object]]:
    return [
        {"file": "boxes.json", "entry": i, "image_key": f"{i}", "sample_id": f"{i:04d}.jpg"}
        for i in range(n)
    ]


class MissingAnnotation(Check):
    """Pictures that no annotation file lists, in folders where nearly all pictures are listed.

    ## What it does
    Looks at folders of at least `min_pictures` readable pictures of which at least `min_share` are
    listed in an annotation file, or have a label file of their own, and names the others.

    ## Why is this bad
    A picture without an entry is trained as one without objects, or left out without a word:
    either way its objects are missed.

    ## Example
    1,000 pictures, 998 label files: two were lost in a copy.

    ## What to do
    Annotate these pictures; give those that show nothing an empty entry or an empty label file.

    ## Limits
    A picture that is listed and has no box is taken for one that shows nothing. Folders that are
    annotated in part only are left alone.

    ## References
    Ultralytics YOLO treats a picture without a label file as background.
    """

    code = "BOX014"
    name = "missing-annotation"
    severity = Severity.WARNING
    tables = ("annotation_files",)

    @dataclass(frozen=True)
    class Params:
        """Thresholds.

        min_share: share of listed pictures from which a folder counts as annotated
        min_pictures: smallest number of pictures of such a folder
        """

        min_share: float = 0.9
        min_pictures: int = 20

    CLEAN = (
        Case("all are listed", [{}] * 30, tables=boxed(annotated_images=_listed(30))),
        Case("annotated in part", [{}] * 30, tables=boxed(annotated_images=_listed(20))),
        Case("not annotated at all", [{}] * 30),
    )
    DIRTY = (
        Case(
            "one is missing", [{}] * 30, ["dataset:."], tables=boxed(annotated_images=_listed(29))
        ),
        Case("two of forty", [{}] * 40, ["dataset:."], tables=boxed(annotated_images=_listed(38))),
    )

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        """Yield one finding a folder."""
        sql = """
            WITH listed AS (SELECT DISTINCT sample_id FROM annotated_images), files AS (
                SELECT id, l.sample_id IS NOT NULL AS listed,
                    coalesce(nullif(regexp_extract(id, '^(.*)/[^/]*$', 1), ''), '.') AS folder
                FROM images LEFT JOIN listed l ON l.sample_id = id WHERE status <> 'unreadable'
            )
            SELECT folder, count(*) AS n, list(id ORDER BY id) FILTER (WHERE NOT listed) AS missing
            FROM files GROUP BY folder
            HAVING count(*) >= ? AND count(*) FILTER (WHERE listed) >= ? * count(*)
                AND count(*) FILTER (WHERE listed) < count(*) ORDER BY folder
        """
        for row in store.query(sql, [params.min_pictures, params.min_share]).iter_rows(named=True):
            missing = row["missing"]
            yield Finding(
                self.code,
                self.severity,
                tuple(missing),
                f"{len(missing):,} of the {row['n']:,} pictures of {row['folder']} are in no "
                f"annotation file: the first is {missing[0]}.",
                {"folder": row["folder"], "missing": len(missing), "pictures": row["n"]},
                Action.REVIEW,
                f"dataset:{row['folder']}",
            )

    def completeness(self, store: Store, params: Params) -> str:
        """Say how many pictures are listed."""
        n = store.scalar("SELECT count(DISTINCT sample_id) FROM annotated_images")
        total = store.scalar("SELECT count(*) FROM samples")
        return f"{n:,} of {total:,} samples are listed in an annotation file."
