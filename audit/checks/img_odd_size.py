"""IMG005: images much larger or smaller than every usual size of the dataset.

The rule counts neighbours on a log scale instead of measuring the distance from a centre: a dataset
with two sizes has no centre, and neither of its sizes is odd. Distinct sizes are counted first, so
the cost is one pass and a window over the sizes that occur.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from audit.checking.cases import Case
from audit.checking.check import Check
from audit.records import Action, Finding, Severity
from audit.run.store import Store

# Web photographs: side lengths spread over two octaves without a gap.
WEB = [{"width": 400 + 40 * i, "height": 300 + 30 * i} for i in range(40)]


class OddSize(Check):
    """Images of a size that almost no other image of the dataset has.

    ## What it does
    Size is the geometric mean of width and height, in px, on a log scale. An image is reported if
    at most `max_share` of the images (1 is always allowed) have a size within a factor `factor` of
    its own, and the nearest size with more neighbours than that is further away than the same
    factor. Any number of usual sizes is allowed: each has its own neighbourhood.

    ## Why is this bad
    A thumbnail enlarged to the input size is blurry; a huge scan reduced to it shows everything at
    the wrong scale. Unusual sizes are typical of placeholders, icons and pictures from another
    source.

    ## Example
    A 32 x 32 icon among photographs of 300 to 2,000 px.

    ## What to do
    Small: download the full-size picture or drop it. Large: check that it shows one subject at the
    same scale as the others.

    ## Limits
    Needs at least `min_images` images. In a small dataset two images of the same unusual size are
    reported; with a third one the size counts as usual.

    ## References
    Knorr and Ng (1998), Algorithms for Mining Distance-Based Outliers in Large Datasets, VLDB: an
    outlier is a value with few neighbours within a distance.
    """

    code = "IMG005"
    name = "odd-size"
    severity = Severity.WARNING

    @dataclass(frozen=True)
    class Params:
        """Thresholds.

        factor: sizes within this factor of each other are neighbours
        max_share: odd with at most this share of the images as neighbours, 0..1
        min_images: datasets smaller than this are not checked
        """

        factor: float = 2.0
        max_share: float = 0.01
        min_images: int = 20

    CLEAN = (
        Case("sizes without a gap", WEB),
        Case("two sizes, half and half", [{"width": 32, "height": 32}] * 20 + [{}] * 20),
        Case("two sizes, nine to one", [{"width": 32, "height": 32}] * 4 + [{}] * 36),
        Case("turned by 90 degrees", [{}] * 30 + [{"width": 480, "height": 640}]),
        Case("too few to say", [{"width": 32, "height": 32}] + [{}] * 5),
        Case("unreadable has no size", [{}] * 30 + [{"width": 9, "status": "unreadable"}]),
    )
    DIRTY = (
        Case("an icon", [*WEB, {"id": "i.png", "width": 32, "height": 32}], ["i.png"]),
        Case("a huge scan in a set of one size",
             [{}] * 30 + [{"id": "s.tif", "width": 12_000, "height": 9_000}], ["s.tif"]),
        Case("odd in a set of two sizes",
             [{"width": 32, "height": 32}] * 20 + [{}] * 20
             + [{"id": "x.png", "width": 4, "height": 4}], ["x.png"]),
    )  # fmt: skip

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        """Yield one finding per image."""
        sql = """
            WITH measured AS (
                SELECT id, subject, width, height, ln(width * height :: DOUBLE) / 2 AS y
                FROM images WHERE status <> 'unreadable' AND width > 0 AND height > 0
            ), centre AS (SELECT count(*) AS total, median(y) AS m FROM measured
            ), counts AS (SELECT y, count(*) AS n FROM measured GROUP BY y
            ), near AS (
                SELECT y, sum(n) OVER (ORDER BY y RANGE BETWEEN ln($1 :: DOUBLE) PRECEDING
                    AND ln($1 :: DOUBLE) FOLLOWING) :: BIGINT - 1 AS neighbours FROM counts
            ), marked AS (
                SELECT y, neighbours, total, m,
                    -- One neighbour is allowed: two copies of an odd image do not make it usual.
                    CASE WHEN neighbours > greatest(1, $3 * total) THEN y END AS usual_y
                FROM near, centre
            ), located AS (
                SELECT *, max(usual_y) OVER (ORDER BY y) AS below,
                    min(usual_y) OVER (ORDER BY y DESC) AS above
                FROM marked
            )
            SELECT id, subject, width, height,
                neighbours, total, exp(y) AS size, exp(m) AS usual,
                exp(least(y - below, above - y)) AS gap
            FROM measured JOIN located USING (y)
            WHERE usual_y IS NULL AND total >= $2 AND least(y - below, above - y) > ln($1 :: DOUBLE)
            ORDER BY id
        """
        limits = [params.factor, params.min_images, params.max_share]
        for row in store.query(sql, limits).iter_rows(named=True):
            ratio = max(row["size"] / row["usual"], row["usual"] / row["size"])
            which = "larger" if row["size"] > row["usual"] else "smaller"
            yield Finding(
                self.code,
                self.severity,
                (row["id"],),
                f"This image of {row['width']} x {row['height']} px is {ratio:.1f} times {which} "
                f"(per side) than the median; {row['neighbours']:,} of the other "
                f"{row['total'] - 1:,} images are within a factor of {params.factor:g}.",
                {
                    "width": row["width"],
                    "height": row["height"],
                    "median_side": row["usual"],
                    "gap": row["gap"],
                    "neighbours": row["neighbours"],
                    "images": row["total"],
                    "factor": params.factor,
                },
                Action.REVIEW,
                row["subject"],
            )

    def completeness(self, store: Store, params: Params) -> str:
        """Say how many sizes were compared."""
        n = int(
            store.scalar("SELECT count(*) FROM images WHERE status <> 'unreadable' AND width > 0")
        )
        if n < params.min_images:
            return f"Sizes were not checked: {n:,} images, but {params.min_images} are needed."
        return f"The sizes of all {n:,} pictures were compared."
