"""IMG006: images much longer or narrower than every usual shape of the dataset.

The method of IMG005, applied to shapes: neighbours are counted on a log scale, so any number of
usual shapes is allowed, and portrait and landscape of one shape are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from audit.checking.cases import Case
from audit.checking.check import Check
from audit.records import Action, Finding, Severity
from audit.run.store import Store

# Lines of text: 4:1 to 14:1 without a gap.
LINES = [{"width": 400 + 25 * i, "height": 100} for i in range(40)]


class OddAspect(Check):
    """Images of a shape that almost no other image of the dataset has.

    ## What it does
    Shape is the longer side divided by the shorter, on a log scale: 1 for a square, 1.33 for 4:3 in
    either orientation. An image is reported if at most `max_share` of the images (1 is always
    allowed) have a shape within a factor `factor` of its own, and the nearest shape with more
    neighbours than that is `min_ratio` times longer or shorter.

    ## Why is this bad
    Resizing to the square input of a model distorts it beyond recognition, a centre crop removes
    most of it, and padding leaves a thin strip. Long strips are often banners, filmstrips or joined
    screenshots.

    ## Example
    A 3,000 x 200 panorama among 4:3 photographs.

    ## What to do
    Crop it to its subject, pad it instead of distorting it, or drop it.

    ## Limits
    Needs at least `min_images` images. A strip shorter than `min_ratio` times the usual shape is
    not reported.

    ## References
    Knorr and Ng (1998), Algorithms for Mining Distance-Based Outliers in Large Datasets, VLDB: an
    outlier is a value with few neighbours within a distance.
    """

    code = "IMG006"
    name = "odd-aspect"
    severity = Severity.WARNING

    @dataclass(frozen=True)
    class Params:
        """Thresholds.

        factor: shapes within this factor of each other are neighbours
        min_ratio: odd only if this many times longer or shorter than the nearest usual shape
        max_share: odd with at most this share of the images as neighbours, 0..1
        min_images: datasets smaller than this are not checked
        """

        factor: float = 1.3
        min_ratio: float = 1.75
        max_share: float = 0.01
        min_images: int = 20

    CLEAN = (
        Case("landscape and one portrait", [{}] * 40 + [{"width": 480, "height": 640}]),
        Case("squares and one 4:3", [{"width": 480}] * 40 + [{}]),
        Case("two shapes, nine to one", [{"width": 2000}] * 4 + [{}] * 36),
        Case("lines of text of every length", LINES),
        Case("too few to say", [{"width": 4000}] + [{}] * 5),
    )
    DIRTY = (
        Case("a panorama", [{}] * 40 + [{"id": "p.jpg", "width": 3000, "height": 200}], ["p.jpg"]),
        Case("a strip upright", [{}] * 40 + [{"id": "p.jpg", "width": 100, "height": 900}],
             ["p.jpg"]),
        Case("a square among long lines",
             [*LINES, {"id": "q.png", "width": 100, "height": 100}], ["q.png"]),
    )  # fmt: skip

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        """Yield one finding per image."""
        sql = """
            WITH measured AS (
                -- The logarithm makes twice as long and half as long equally far away.
                SELECT id, subject, width, height, abs(ln(width / height)) AS y
                FROM images WHERE status <> 'unreadable' AND width > 0 AND height > 0
            ), centre AS (SELECT count(*) AS total, median(y) AS m FROM measured
            ), counts AS (SELECT y, count(*) AS n FROM measured GROUP BY y
            ), near AS (
                SELECT y, sum(n) OVER (ORDER BY y RANGE BETWEEN ln($1 :: DOUBLE) PRECEDING
                    AND ln($1 :: DOUBLE) FOLLOWING) :: BIGINT - 1 AS neighbours FROM counts
            ), marked AS (
                SELECT y, neighbours, total, m,
                    CASE WHEN neighbours > greatest(1, $3 * total) THEN y END AS usual_y
                FROM near, centre
            ), located AS (
                SELECT *, max(usual_y) OVER (ORDER BY y) AS below,
                    min(usual_y) OVER (ORDER BY y DESC) AS above
                FROM marked
            )
            SELECT id, subject, width, height,
                neighbours, total, exp(y) AS shape, exp(m) AS usual,
                exp(least(y - below, above - y)) AS gap
            FROM measured JOIN located USING (y)
            WHERE usual_y IS NULL AND total >= $2 AND least(y - below, above - y) > ln($4 :: DOUBLE)
            ORDER BY id
        """
        limits = [params.factor, params.min_images, params.max_share, params.min_ratio]
        for row in store.query(sql, limits).iter_rows(named=True):
            yield Finding(
                self.code,
                self.severity,
                (row["id"],),
                f"This image of {row['width']} x {row['height']} px has an aspect ratio of "
                f"{row['shape']:.2f} to 1, the median is {row['usual']:.2f} to 1; "
                f"{row['neighbours']:,} of the other {row['total'] - 1:,} images are "
                f"within a factor of {params.factor:g}.",
                {
                    "width": row["width"],
                    "height": row["height"],
                    "shape": row["shape"],
                    "median_shape": row["usual"],
                    "gap": row["gap"],
                    "neighbours": row["neighbours"],
                    "images": row["total"],
                },
                Action.REVIEW,
                row["subject"],
            )

    def completeness(self, store: Store, params: Params) -> str:
        """Say how many shapes were compared."""
        n = int(
            store.scalar("SELECT count(*) FROM images WHERE status <> 'unreadable' AND width > 0")
        )
        if n < params.min_images:
            return f"Shapes were not checked: {n:,} images, but {params.min_images} are needed."
        return f"The shapes of all {n:,} pictures were compared."
