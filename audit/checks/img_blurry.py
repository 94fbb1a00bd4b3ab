"""IMG003: images that are out of focus, compared with the rest of their dataset.

No fixed limit on sharpness fits every dataset. An image must be soft by itself and far below its
class, or without any detail at pixel scale.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from audit.checking.check import QueryCheck, asked
from audit.checking.properties import FEW_TONES, MISSING_TONES
from audit.records import Finding, Severity
from audit.run.store import Store

ENOUGH_CONTRAST = (
    "status = 'ok' AND sharpness IS NOT NULL AND contrast >= $min_contrast AND transparent < 0.5"
)
TEXTURED = f"{ENOUGH_CONTRAST} AND {MISSING_TONES} <= $max_missing_tones"


class Blurry(QueryCheck):
    """Images without the fine detail of the other images in their class.

    ## What it does
    Sharpness is the share of the differences between neighbouring pixels that a 3x3 mean removes:
    about 0.5-0.6 in photographs, 0.2 after a Gaussian blur of 2 px, below 0.12 after one of 5 px.
    Reports an image below `max_sharpness` that is also `min_deviations` robust standard deviations
    below the median of its class (of the dataset if the class has fewer than `min_class` images),
    on a log scale; and any image below `certain_sharpness` that is at most half as sharp as that
    median. If more than `max_share` of the images are below `certain_sharpness`, they are reported
    once.

    ## Why is this bad
    The details that distinguish the classes may be lost. Blur is also often typical of one class or
    camera, and the model learns it instead of the object.

    ## Example
    A video frame from a moving camera: sharpness 0.14, while the median of its class is 0.57.

    ## What to do
    View it at full size. Drop it if the labelled object cannot be recognised; keep some blurry
    images if deployment has them.

    ## Limits
    Sharpness is measured on a copy of at most 384 px: blur that is visible only at full size is not
    found. A sharp subject in front of an unfocused background is not blurry. A class that is soft
    as a whole is not reported. Flat images (contrast below `min_contrast`) are not checked. Images
    without texture are inconclusive: strokes, line art, screens and subjects on a single colour
    have too few tones for their contrast.

    ## References
    Crete et al. (2007), The blur effect: perception and estimation with a new no-reference
    perceptual blur metric, Proc. SPIE 6492. Robust deviation: lower quartile against the median /
    0.6745."""

    code = "IMG003"
    name = "blurry-image"
    severity = Severity.WARNING
    features = ("sharpness", "contrast", "transparent", "entropy")

    # The images that can be blurry, with their distance below class or dataset.
    sql = f"""
        WITH sharp AS (
            SELECT id, subject, sharpness,
                coalesce(label, '') AS label, ln(greatest(sharpness, 1e-3)) AS y
            FROM images WHERE {TEXTURED}
        ), classes AS (
            SELECT label, count(*) AS n, median(y) AS m, quantile_cont(y, 0.25) AS q FROM sharp
            WHERE label <> '' GROUP BY label HAVING count(*) >= $min_class
        ), dataset AS (
            SELECT count(*) AS n, median(y) AS m, quantile_cont(y, 0.25) AS q FROM sharp
        )
        SELECT s.id, s.subject, s.sharpness, coalesce(c.n, d.n) AS images_compared,
            CASE WHEN c.n IS NULL THEN 'dataset' ELSE 'class' END AS compared_with,
            exp(coalesce(c.m, d.m)) AS median,
            -- The lower quartile alone gives the spread: blurry images are all on this side, and up
            -- to a quarter of them do not move it. 0.6745 makes it a standard deviation.
            -- A spread below 5 % of the sharpness is rounding, not a property of the class.
            CASE WHEN images_compared >= $min_class THEN (coalesce(c.m, d.m) - s.y)
                / greatest((coalesce(c.m, d.m) - coalesce(c.q, d.q)) / 0.6745, 0.05)
                END AS deviations
        FROM sharp s CROSS JOIN dataset d LEFT JOIN classes c USING (label) ORDER BY s.id
    """
    message = "This image has a sharpness of {sharpness:.2f}, {comparison}."
    evidence = ("sharpness", "median", "compared_with", "images_compared", "max_sharpness")
    counts = f"""
        SELECT count(*) FILTER (WHERE {TEXTURED}) AS n,
            count(*) FILTER (WHERE {ENOUGH_CONTRAST}) - n AS drawn, count(*) - n - drawn AS rest
        FROM images
    """
    examined = (
        "{n:,} images with enough contrast were checked; {drawn:,} with few tones (strokes, "
        "screens, line art, single colours) are inconclusive; {rest:,} flat, transparent, damaged "
        "or unreadable images were left out."
    )

    @dataclass(frozen=True)
    class Params:
        """max_sharpness: only images below this sharpness can be blurry, 0..1
        min_deviations: and only this many robust standard deviations below their class
        certain_sharpness: blurry regardless of the rest of the class, 0..1
        max_share: reported once if more than this share is below certain_sharpness, 0..1
        min_class: classes smaller than this are compared with the dataset
        min_contrast: flatter images are not checked, standard deviation of luma, 0..0.5
        max_missing_tones: entropy below that of a normal histogram of equal contrast, bits
        """

        max_sharpness: float = 0.27
        min_deviations: float = 3.5
        certain_sharpness: float = 0.12
        max_share: float = 0.5
        min_class: int = 30
        min_contrast: float = 0.03
        max_missing_tones: float = FEW_TONES

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        frame = asked(store, self.sql, params)
        certain = frame.filter(pl.col("sharpness") < params.certain_sharpness)
        # One finding per image would bury the rest of the report.
        common = len(certain) > params.max_share * len(frame) and len(frame) >= params.min_class
        if common:
            median = float(certain["sharpness"].median())  # type: ignore[arg-type]
            yield self.finding(
                "dataset",
                f"{len(certain):,} of {len(frame):,} images have a sharpness below "
                f"{params.certain_sharpness} (median {median:.2f}): the whole dataset was probably "
                "blurred or enlarged.",
                {"images": len(certain), "of": len(frame), "median": median},
                tuple(certain["id"]),
            )
        blurry = (pl.col("sharpness") < params.max_sharpness) & (
            pl.col("deviations") >= params.min_deviations
        )
        if not common:
            # half as sharp as its class, which holds where blur widens the spread
            unusual = pl.col("deviations").is_null() | (pl.col("sharpness") < pl.col("median") / 2)
            blurry |= (pl.col("sharpness") < params.certain_sharpness) & unusual
        for row in frame.filter(blurry).iter_rows(named=True):
            comparison = (
                f"{row['deviations']:.1f} robust standard deviations below the median of its "
                f"{row['compared_with']} ({row['median']:.2f})"
                if row["deviations"] is not None
                else "so low that no detail at pixel scale is left (below "
                f"{params.certain_sharpness})"
            )
            yield self.of_row({**row, "comparison": comparison}, params)
