"""IMG007: pictures without colour in a class or dataset of colour pictures."""

from __future__ import annotations

from dataclasses import dataclass

from audit.checking.check import QueryCheck
from audit.checking.properties import FEW_TONES, MISSING_TONES
from audit.records import Severity


class GreyAmongColour(QueryCheck):
    """Grey images, in grey files or stored as RGB, among colour images.

    ## What it does
    An image is grey if red, green and blue are equal everywhere, or differ by at most `max_spread`
    of its brightness in 99% of its pixels (the error of a grey image saved as a colour JPEG). It is
    reported if at most `max_grey_share` of its class is grey (of the dataset, for classes of fewer
    than `min_class` images).

    ## Why is this bad
    Colour statistics, colour augmentation and models that use colour do not expect images without
    colour. A few grey ones are often older, scanned or from another source, so they can become a
    shortcut to their label.

    ## Example
    4 of 500 photographs of foxes are black-and-white, stored as RGB JPEGs.

    ## What to do
    Keep them if deployment has grey images too; otherwise drop them, or add greyscale augmentation.

    ## Limits
    Toned (sepia) images have colour. Flat and mostly transparent images are not checked. Images of
    few tones (as in IMG003) are not checked if more than `max_grey_share` have few tones: black ink
    is the subject of a chart, a page or an icon. Classes that are wholly grey are not reported.
    Files that FILE007 reports are not reported again.
    """

    code = "IMG007"
    name = "grey-among-colour"
    severity = Severity.INFO
    features = (
        "channels_equal", "channel_spread", "brightness_p99", "contrast", "entropy", "saturation",
        "transparent",
    )  # fmt: skip
    left_to = ("FILE007",)

    @dataclass(frozen=True)
    class Params:
        """max_spread: grey if 99% of pixels have channels this equal, share of brightness, 0..1
        max_grey_share: reported if at most this share of the class or dataset is grey, 0..1
        min_class: classes smaller than this are compared with the dataset
        max_missing_tones: entropy below that of a normal histogram of equal contrast, bits
        """

        max_spread: float = 0.025
        max_grey_share: float = 0.1
        min_class: int = 20
        max_missing_tones: float = FEW_TONES

    sql = f"""
        WITH measured AS (
            SELECT id, subject, coalesce(label, '') AS label, channel_spread, saturation, mode,
                -- Relative to brightness, because a dark colour picture has small differences.
                (channels_equal OR channel_spread <= $max_spread * greatest(brightness_p99, 0.1))
                    :: INT AS is_grey, ({MISSING_TONES} > $max_missing_tones) :: INT AS is_drawn
            FROM images WHERE status = 'ok' AND contrast >= 0.02 AND transparent < 0.5
        ), classes AS (
            SELECT label, count(*) AS n, sum(is_grey) :: BIGINT AS k, sum(is_drawn) AS drawn
            FROM measured WHERE label <> '' GROUP BY label HAVING count(*) >= $min_class
        ), dataset AS (
            SELECT count(*) AS n, sum(is_grey) :: BIGINT AS k, sum(is_drawn) AS drawn FROM measured
        )
        SELECT j.*, coalesce(c.n, d.n) AS compared, coalesce(c.k, d.k) AS grey,
            grey / compared AS share,
            CASE WHEN c.n IS NULL THEN 'the dataset' ELSE concat('class ', j.label) END
                AS compared_with
        FROM measured j CROSS JOIN dataset d LEFT JOIN classes c USING (label)
        WHERE is_grey = 1 AND grey <= $max_grey_share * compared AND compared >= $min_class
            -- black ink among blue is the subject
            AND (is_drawn = 0 OR coalesce(c.drawn, d.drawn) <= $max_grey_share * compared)
        ORDER BY j.id
    """
    message = (
        "This image ({mode}) is grey; {grey:,} of {compared:,} images of {compared_with} are "
        "({share:.1%})."
    )
    evidence = ("channel_spread", "saturation", "mode", "grey", "compared", "compared_with")
    counts = """
        SELECT count(*) FILTER (WHERE status = 'ok' AND contrast >= 0.02 AND transparent < 0.5)
            AS n, count(*) - n AS rest FROM images
    """
    examined = "{n:,} images were checked; {rest:,} without contrast were left out."
