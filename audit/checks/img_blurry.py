"""IMG003: images that are out of focus, compared with the rest of their dataset.

No fixed limit on sharpness fits every dataset: upscaled thumbnails are below any limit that is
right for photographs. So an image must be soft by itself *and* far below its class, or so soft that
no detail at pixel scale is left. Costs one query.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

from audit.checking.cases import Case
from audit.checking.check import Check
from audit.records import Action, Finding, Severity
from audit.run.store import Store

MEASURABLE = "status = 'ok' AND sharpness IS NOT NULL AND contrast >= $1 AND transparent < 0.5"
SPREAD: Sequence[Mapping[str, Any]] = [{"sharpness": 0.40 + 0.01 * (i % 20)} for i in range(40)]


class Blurry(Check):
    """Images without the fine detail of the other images in their class.

    ## What it does
    Sharpness is the share of the differences between neighbouring pixels that a 3x3 mean removes:
    about 0.5-0.6 in photographs, 0.2 after a Gaussian blur of 2 px, below 0.12 after one of 5 px.
    Reports an image below `max_sharpness` that is also `min_deviations` robust standard deviations
    below the median of its class (of the dataset if the class has fewer than `min_class` images),
    on a log scale; and any image below `certain_sharpness`. If more than `max_share` of the images
    are that soft, they are reported once, as a property of the dataset.

    ## Why is this bad
    The details that distinguish the classes may be lost. Blur is also often typical of one class or
    camera, and the model learns it instead of the object.

    ## Example
    A video frame from a moving camera: sharpness 0.14, while the median of its class is 0.57.

    ## What to do
    Look at it at full size. Drop it if the labelled object cannot be recognised; keep some blurry
    images if deployment has them.

    ## Limits
    Sharpness is measured on a copy of at most 384 px: blur that is visible only at full size is not
    found. A sharp subject in front of an unfocused background is not blurry. A class that is soft
    as a whole is not reported. Flat pictures (contrast below `min_contrast`) are not checked.

    ## References
    Crete et al. (2007), The blur effect: perception and estimation with a new no-reference
    perceptual blur metric, Proc. SPIE 6492. Robust deviation: lower quartile against the median /
    0.6745."""

    code = "IMG003"
    name = "blurry-image"
    severity = Severity.WARNING
    features = ("sharpness", "contrast", "transparent")

    @dataclass(frozen=True)
    class Params:
        """Thresholds.

        max_sharpness: only images below this sharpness can be blurry, 0..1
        min_deviations: and only this many robust standard deviations below their class
        certain_sharpness: blurry regardless of the rest of the class, 0..1
        max_share: reported once if more than this share is below certain_sharpness, 0..1
        min_class: classes smaller than this are compared with the dataset
        min_contrast: flatter pictures are not checked, standard deviation of luma, 0..0.5
        """

        max_sharpness: float = 0.27
        min_deviations: float = 3.5
        certain_sharpness: float = 0.12
        max_share: float = 0.5
        min_class: int = 30
        min_contrast: float = 0.03

    CLEAN = (
        Case("a sharp set", SPREAD),
        Case("a soft set, evenly so", [{"sharpness": 0.20 + 0.002 * (i % 20)} for i in range(40)]),
        Case("a clear sky", [*SPREAD, {"sharpness": 0.05, "contrast": 0.01}]),
        Case("a flat picture has no sharpness", [*SPREAD, {"sharpness": None, "contrast": 0.0}]),
        Case("the softest of a wide set", [{"sharpness": 0.15 * 1.05**i} for i in range(30)]),
        Case("two images tell no position", [{"sharpness": 0.2}, {"sharpness": 0.6}]),
    )
    DIRTY: ClassVar[Sequence[Case]] = (
        Case("out of focus", [*SPREAD, {"id": "b.jpg", "sharpness": 0.14}], ["b.jpg"]),
        Case("no detail at all, alone in its set", [{"id": "b.jpg", "sharpness": 0.08}, {}, {}],
             ["b.jpg"]),
        Case("a soft image in a sharp class of a set that is soft elsewhere",
             [*SPREAD, {"id": "b.jpg", "sharpness": 0.2}]
             + [{"label": "fog", "sharpness": 0.2 + 0.001 * (i % 20)} for i in range(40)],
             ["b.jpg"]),
        Case("an upscaled dataset is reported once",
             [{"sharpness": 0.08 + 0.001 * (i % 20)} for i in range(40)], ["dataset"]),
    )  # fmt: skip

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        """Yield one finding per image, and one for the dataset if most of it is soft."""
        frame = _measurements(store, params)
        certain = frame.filter(pl.col("sharpness") < params.certain_sharpness)
        # One finding per image would bury the rest of the report.
        common = len(certain) > params.max_share * len(frame) and len(frame) >= params.min_class
        if common:
            yield self._common(certain, len(frame), params)
        blurry = (pl.col("sharpness") < params.max_sharpness) & (
            pl.col("deviations") >= params.min_deviations
        )
        if not common:
            blurry |= pl.col("sharpness") < params.certain_sharpness
        for row in frame.filter(blurry).iter_rows(named=True):
            yield self._single(row, params)

    def _single(self, row: Mapping[str, Any], params: Params) -> Finding:
        comparison = (
            f"{row['deviations']:.1f} robust standard deviations below the median of its "
            f"{row['reference']} ({row['median']:.2f})"
            if row["deviations"] is not None
            else f"so low that no detail at pixel scale is left (below {params.certain_sharpness})"
        )
        return Finding(
            self.code,
            self.severity,
            (row["id"],),
            f"This image has a sharpness of {row['sharpness']:.2f}, {comparison}.",
            {
                "sharpness": row["sharpness"],
                "median": row["median"],
                "compared_with": row["reference"],
                "images_compared": row["n"],
                "max_sharpness": params.max_sharpness,
            },
            Action.REVIEW,
            row["subject"],
        )

    def _common(self, soft: pl.DataFrame, n: int, params: Params) -> Finding:
        median = float(soft["sharpness"].median())  # type: ignore[arg-type]
        return Finding(
            self.code,
            self.severity,
            tuple(soft["id"]),
            f"{len(soft):,} of {n:,} images have a sharpness below {params.certain_sharpness} "
            f"(median {median:.2f}): the whole dataset was probably blurred or enlarged.",
            {"images": len(soft), "of": n, "median": median},
            Action.REVIEW,
            "dataset",
        )

    def completeness(self, store: Store, params: Params) -> str:
        """Say how many images were checked."""
        sql = f"SELECT count(*) FILTER (WHERE {MEASURABLE}) AS n, count(*) AS total FROM images"
        n, total = store.query(sql, [params.min_contrast]).row(0)
        return (
            f"{n:,} images with enough contrast were checked; {total - n:,} flat, transparent, "
            "damaged or unreadable ones were left out."
        )


def _measurements(store: Store, params: Blurry.Params) -> pl.DataFrame:
    """Return the images that can be blurry, with their distance below class or dataset."""
    sql = f"""
        WITH sharp AS (
            SELECT id, subject, sharpness,
                coalesce(label, '') AS label, ln(greatest(sharpness, 1e-3)) AS y
            FROM images WHERE {MEASURABLE}
        ), classes AS (
            SELECT label, count(*) AS n, median(y) AS m, quantile_cont(y, 0.25) AS q FROM sharp
            WHERE label <> '' GROUP BY label HAVING count(*) >= $2
        ), dataset AS (
            SELECT count(*) AS n, median(y) AS m, quantile_cont(y, 0.25) AS q FROM sharp
        )
        SELECT s.id, s.subject, s.sharpness, coalesce(c.n, d.n) AS n,
            CASE WHEN c.n IS NULL THEN 'dataset' ELSE 'class' END AS reference,
            exp(coalesce(c.m, d.m)) AS median,
            -- The lower quartile alone gives the spread: blurry images are all on this side, and up
            -- to a quarter of them do not move it. 0.6745 makes it a standard deviation.
            -- A spread below 5 % of the sharpness is rounding, not a property of the class.
            CASE WHEN coalesce(c.n, d.n) >= $2 THEN (coalesce(c.m, d.m) - s.y)
                / greatest((coalesce(c.m, d.m) - coalesce(c.q, d.q)) / 0.6745, 0.05)
                END AS deviations
        FROM sharp s CROSS JOIN dataset d LEFT JOIN classes c USING (label) ORDER BY s.id
    """
    return store.query(sql, [params.min_contrast, params.min_class])
