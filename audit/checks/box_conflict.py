"""BOX022: pictures that are annotated twice, differently."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from audit.checking.boxes import BoxCheck
from audit.checking.check import asked
from audit.records import Finding, Severity
from audit.run.store import Store

# Boxes of one side of a pair of annotations that the other side has as well.
_SQL = """
    WITH usable AS (
        SELECT b.* , i.pixel_hash, i.split FROM boxes b JOIN images i ON i.id = b.sample_id
        WHERE b.width > 0 AND b.height > 0 AND NOT crowd AND b.label IS NOT NULL
        QUALIFY count(*) OVER (PARTITION BY b.sample_id, b.file) <= $max_boxes
    ), sides AS (
        SELECT sample_id, file, any_value(pixel_hash) AS pixel_hash, any_value(split) AS split,
            count(*) AS n FROM usable GROUP BY sample_id, file
    ), pairs AS (
        SELECT a.sample_id AS s1, a.file AS f1, a.n AS n1, a.split AS split1,
            b.sample_id AS s2, b.file AS f2, b.n AS n2, b.split AS split2,
            a.sample_id = b.sample_id AS same
        FROM sides a JOIN sides b ON a.sample_id = b.sample_id AND a.file < b.file
        UNION ALL
        SELECT a.sample_id, a.file, a.n, a.split, b.sample_id, b.file, b.n, b.split, false
        FROM sides a JOIN sides b ON a.pixel_hash = b.pixel_hash AND a.sample_id < b.sample_id
        WHERE a.sample_id IN (SELECT min(sample_id) FROM sides GROUP BY pixel_hash)
    ), met AS (
        SELECT p.s1, p.f1, p.s2, p.f2, count(DISTINCT x.entry) AS met1,
            count(DISTINCT y.entry) AS met2
        FROM pairs p JOIN usable x ON x.sample_id = p.s1 AND x.file = p.f1
        JOIN usable y ON y.sample_id = p.s2 AND y.file = p.f2 AND y.label = x.label
        WHERE least(x.x + x.width, y.x + y.width) > greatest(x.x, y.x)
            AND least(x.y + x.height, y.y + y.height) > greatest(x.y, y.y)
            AND (least(x.x + x.width, y.x + y.width) - greatest(x.x, y.x))
                * (least(x.y + x.height, y.y + y.height) - greatest(x.y, y.y)) * 3
                >= x.width * x.height + y.width * y.height
        GROUP BY ALL
    ), compared AS (
        SELECT p.*, coalesce(met1, 0) AS met1, coalesce(met2, 0) AS met2,
            coalesce(met1, 0) = n1 AND coalesce(met2, 0) = n2 AS agree
        FROM pairs p LEFT JOIN met m ON m.s1 = p.s1 AND m.f1 = p.f1 AND m.s2 = p.s2 AND m.f2 = p.f2
    )
    SELECT * FROM compared
    QUALIFY NOT agree AND (NOT same OR (
        count(*) OVER (PARTITION BY f1, f2, same) >= $min_shared
        AND avg(agree::INT) OVER (PARTITION BY f1, f2, same) >= $min_agreement))
    ORDER BY s1, s2, f1, f2
"""


# Whether any picture has boxes in two files, or an equal copy that has some.
_ANY = """
    WITH listed AS (SELECT DISTINCT file, sample_id FROM boxes WHERE sample_id IS NOT NULL)
    SELECT 1 FROM listed l JOIN images i ON i.id = l.sample_id
    GROUP BY coalesce(i.pixel_hash, i.id) HAVING count(*) > 1 LIMIT 1
"""


class ConflictingAnnotations(BoxCheck):
    """Images whose annotations differ between two files, or between two copies of the image.

    ## What it does
    Matches boxes of one class by an overlap (intersection over union) of 0.5. Compares copies of an
    image with equal pixels, and two annotation files of one image. Two files are compared if they
    agree on at least `min_agreement` of at least `min_shared` images. An image is reported if one
    of its boxes has no counterpart.

    ## Why is this bad
    The model is trained on contradictory annotations. Across splits, it is tested on annotations
    that contradict its training.

    ## Example
    One photograph is in train with three boxes and in val with two.

    ## What to do
    Decide which annotation is right, and use it for both.

    ## Limits
    Files that seldom agree serve different tasks and are not compared. Near-duplicates with
    different pixels are not compared, nor files with more than `max_boxes` boxes of one image.
    """

    code = "BOX022"
    name = "conflicting-annotations"
    severity = Severity.WARNING

    @dataclass(frozen=True)
    class Params:
        """min_agreement: smallest share of common images on which two files agree
        min_shared: smallest number of common images of two files
        max_boxes: largest number of boxes of an image and file that are compared
        """

        min_agreement: float = 0.8
        min_shared: int = 5
        max_boxes: int = 3000

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        if not store.scalar(_ANY):
            return
        subjects = dict(store.query("SELECT id, subject FROM images").iter_rows())
        said = set[str]()
        for row in asked(store, _SQL, params).iter_rows(named=True):
            one, other = row["s1"], row["s2"]
            subject = subjects[one] if one == other else f"group:{one}|{other}"
            if subject in said:
                continue
            said.add(subject)
            where = (
                f"in {row['f1']} and {row['f2']}"
                if one == other
                else f"as {one} ({row['split1'] or 'no split'}) and {other} "
                f"({row['split2'] or 'no split'}) with equal pixels"
            )
            alone1, alone2 = row["n1"] - row["met1"], row["n2"] - row["met2"]
            yield self.finding(
                subject,
                f"An image has contradictory annotations {where}: {alone1:,} of {row['n1']:,} and "
                f"{alone2:,} of {row['n2']:,} boxes have no counterpart.",
                {
                    "boxes": row["n1"],
                    "other_boxes": row["n2"],
                    "unmatched": alone1,
                    "other_unmatched": alone2,
                    "file": row["f1"],
                    "other_file": row["f2"],
                },
                tuple(sorted({one, other})),
            )

    counts = """
        SELECT count(*) FILTER (WHERE files > 1) AS n, count(*) FILTER (WHERE most > $max_boxes)
            AS crowded FROM (SELECT count(*) AS files, max(n) AS most FROM (
                SELECT sample_id, file, count(*) AS n FROM boxes WHERE sample_id IS NOT NULL
                GROUP BY sample_id, file) GROUP BY sample_id)
    """
    examined = (
        "{n:,} images have boxes in several annotation files; {crowded:,} have too many boxes in "
        "one file to compare."
    )
