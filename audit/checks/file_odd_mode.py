"""FILE007: the few files with another colour mode or bit depth than the rest of the dataset."""

from __future__ import annotations

from dataclasses import dataclass

from audit.checking.check import QueryCheck
from audit.records import Severity


class OddMode(QueryCheck):
    """Files with a rare colour mode or bit depth in an otherwise uniform dataset.

    ## What it does
    Counts the combinations of mode and bits per channel (RGB at 8 bits, L at 8, I;16 at 16, ...)
    over all images. If one combination covers more than `min_dominant` of them, every image of a
    combination that covers less than `max_rare` is reported.

    ## Why is this bad
    Array shapes and value ranges differ from the rest: stacking the batch fails, or a silent
    conversion makes these images look different from all others. They often come from another
    source.

    ## Example
    3 grey 16-bit PNGs among 5,997 RGB JPEGs.

    ## What to do
    Convert them explicitly, in one place, and look at the result; or make the conversion explicit
    in the loader (`.convert("RGB")` clips 16-bit values at 255).

    ## Limits
    Without a dominant mode, nothing is reported. With 20 images or fewer, no mode can be below 5%.
    """

    code = "FILE007"
    name = "odd-mode"
    severity = Severity.INFO

    @dataclass(frozen=True)
    class Params:
        """max_rare: reported below this share of the images, 0..1
        min_dominant: only if one mode and depth covers more than this share, 0..1
        """

        max_rare: float = 0.05
        min_dominant: float = 0.8

    sql = """
        WITH pictures AS (
            SELECT id, subject, coalesce(mode, 'unknown') AS mode,
                coalesce(bit_depth, 8) AS bit_depth
            FROM images WHERE status <> 'unreadable'
        ), kinds AS (
            SELECT mode, bit_depth, count(*) AS n, n / sum(n) OVER () AS share,
                sum(n) OVER () :: BIGINT AS total
            FROM pictures GROUP BY ALL
        ), main AS (SELECT * FROM kinds ORDER BY n DESC, mode, bit_depth LIMIT 1)
        SELECT p.id, p.subject, k.*, m.mode AS dominant_mode,
            m.bit_depth AS dominant_bit_depth, m.share AS dominant_share
        FROM main m JOIN kinds k ON m.share > $min_dominant AND k.share < $max_rare
        JOIN pictures p ON p.mode = k.mode AND p.bit_depth = k.bit_depth ORDER BY p.id
    """
    message = (
        "This image is {mode} with {bit_depth} bits per channel, like {n:,} of {total:,} "
        "({share:.2%}); {dominant_share:.1%} are {dominant_mode} with {dominant_bit_depth}."
    )
    evidence = (
        "mode", "bit_depth", "share", "dominant_mode", "dominant_bit_depth", "dominant_share"
    )  # fmt: skip
