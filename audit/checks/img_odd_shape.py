"""IMG005, IMG006: images much larger, smaller, longer or narrower than all usual ones.

The rule counts neighbours on a log scale, because a dataset with two sizes has no centre. Portrait
and landscape of one shape are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from audit.checking.check import QueryCheck
from audit.records import Severity
from audit.run.store import Store


def _far(measure: str, ratio: str, value: str, usual: str) -> str:
    """Return SQL for images further than `ratio` from each usual value, and what they lie beside.

    `value` and `usual` (the median): columns without logarithm; `gap`: factor to the nearest usual.
    """
    return f"""
        WITH measured AS (
            SELECT id, subject, width, height, {measure} AS y
            FROM images WHERE status <> 'unreadable' AND width > 0 AND height > 0
        ), centre AS (SELECT count(*) AS images, median(y) AS m FROM measured
        ), counts AS (SELECT y, count(*) AS n FROM measured GROUP BY y
        ), near AS (
            SELECT y, sum(n) OVER (ORDER BY y RANGE BETWEEN ln($factor :: DOUBLE) PRECEDING
                AND ln($factor :: DOUBLE) FOLLOWING) :: BIGINT - 1 AS neighbours FROM counts
        ), marked AS (
            SELECT y, neighbours, images, m,
                -- One neighbour is allowed: two copies of an odd image do not make it usual.
                CASE WHEN neighbours > greatest(1, $max_share * images) THEN y END AS usual_y
            FROM near, centre
        ), located AS (
            SELECT *, max(usual_y) OVER (ORDER BY y) AS below,
                min(usual_y) OVER (ORDER BY y DESC) AS above
            FROM marked
        )
        SELECT id, subject, width, height, neighbours, images, images - 1 AS others,
            exp(y) AS {value}, exp(m) AS {usual}, exp(least(y - below, above - y)) AS gap,
            greatest({value} / {usual}, {usual} / {value}) AS ratio,
            CASE WHEN {value} > {usual} THEN 'larger' ELSE 'smaller' END AS which
        FROM measured JOIN located USING (y)
        WHERE usual_y IS NULL AND images >= $min_images
            AND least(y - below, above - y) > ln({ratio} :: DOUBLE)
        ORDER BY id
    """


class _FarFromUsual(QueryCheck):
    severity = Severity.WARNING
    compared: ClassVar[str]

    def completeness(self, store: Store, params: Any) -> str:
        n = int(
            store.scalar("SELECT count(*) FROM images WHERE status <> 'unreadable' AND width > 0")
        )
        if n < params.min_images:
            return (
                f"{self.compared.capitalize()} were not checked: {n:,} images, but "
                f"{params.min_images} are needed."
            )
        return f"The {self.compared} of all {n:,} images were compared."


class OddSize(_FarFromUsual):
    """Images of a size that almost no other image of the dataset has.

    ## What it does
    Size is the geometric mean of width and height, in px, on a log scale. An image is reported if
    at most `max_share` of the images (1 is always allowed) have a size within a factor `factor` of
    its own, and the nearest size with more neighbours than that is further away than the same
    factor. Any number of usual sizes is allowed: each has its own neighbourhood.

    ## Why is this bad
    A thumbnail enlarged to the input size is blurry; a huge scan reduced to it shows everything at
    the wrong scale. Unusual sizes are typical of placeholders, icons and images from another
    source.

    ## Example
    A 32 x 32 icon among photographs of 300 to 2,000 px.

    ## What to do
    Small: download the full-size image or drop it. Large: check that it shows one subject at the
    same scale as the others.

    ## Limits
    Needs at least `min_images` images. In a small dataset two images of the same unusual size are
    reported; with a third one the size counts as usual.
    """

    code = "IMG005"
    name = "odd-size"
    compared = "sizes"
    sql = _far("ln(width * height :: DOUBLE) / 2", "$factor", "side", "median_side")
    message = (
        "This image of {width} x {height} px is {ratio:.1f} times {which} (per side) than the "
        "median; {neighbours:,} of the other {others:,} images are within a factor of "
        "{params.factor:g}."
    )
    evidence = ("width", "height", "median_side", "gap", "neighbours", "images", "factor")

    @dataclass(frozen=True)
    class Params:
        """factor: sizes within this factor of each other are neighbours
        max_share: odd with at most this share of the images as neighbours, 0..1
        min_images: datasets smaller than this are not checked
        """

        factor: float = 2.0
        max_share: float = 0.01
        min_images: int = 20


class OddAspect(_FarFromUsual):
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
    """

    code = "IMG006"
    name = "odd-aspect"
    compared = "shapes"
    # twice as long and half as long are equally far away
    sql = _far("abs(ln(width / height))", "$min_ratio", "shape", "median_shape")
    message = (
        "This image of {width} x {height} px has an aspect ratio of {shape:.2f} to 1, the median "
        "is {median_shape:.2f} to 1; {neighbours:,} of the other {others:,} images are within a "
        "factor of {params.factor:g}."
    )
    evidence = ("width", "height", "shape", "median_shape", "gap", "neighbours", "images")

    @dataclass(frozen=True)
    class Params:
        """factor: shapes within this factor of each other are neighbours
        min_ratio: odd only if this many times longer or shorter than the nearest usual shape
        max_share: odd with at most this share of the images as neighbours, 0..1
        min_images: datasets smaller than this are not checked
        """

        factor: float = 1.3
        min_ratio: float = 1.75
        max_share: float = 0.01
        min_images: int = 20
