"""IMG002: images too bright to show anything."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from audit.checking.cases import Case
from audit.checking.check import Check
from audit.records import Action, Finding, Severity
from audit.run.store import Store


class Bright(Check):
    """Images whose darkest parts are still bright.

    ## What it does
    Reports an image if the 1st percentile of its luma is above `min_p1`. A product on a white
    background or a page of text has dark parts and is not reported; a completely washed-out picture
    is.

    ## Why is this bad
    Overexposure destroys details that the label depends on. A wrong conversion (a range of 0..1
    written as 0..255, or the reverse) has the same effect.

    ## Example
    A photograph taken against the sun: even its darkest 1 % is at 86 % of full scale.

    ## What to do
    Look at a darkened copy. Drop the image if nothing is visible; convert it again if the original
    is intact.

    ## Limits
    Snow, fog and pencil drawings can be this bright: raise `min_p1` for them. IMG004 reports
    pictures of one colour, including white; mostly transparent pictures and damaged files are left
    out.

    ## References
    Luma: Recommendation ITU-R BT.601-7 (2011), section 2.5.1.
    """

    code = "IMG002"
    name = "bright-image"
    severity = Severity.WARNING
    features = ("brightness_p1", "brightness", "contrast", "transparent")

    @dataclass(frozen=True)
    class Params:
        """Thresholds.

        min_p1: reported above this 1st percentile of luma, 0..1
        """

        min_p1: float = 0.7

    CLEAN = (
        Case("a product on white", [{"brightness": 0.9, "brightness_p1": 0.2}]),
        Case("a page of text", [{"brightness": 0.95, "brightness_p1": 0.1, "brightness_p5": 0.9}]),
        Case("thin black lines on white", [{"brightness_p1": 1.0, "contrast": 0.07}]),
        Case("one white: IMG004", [{"brightness_p1": 1.0, "contrast": 0.0}]),
        Case("transparent, shown on white", [{"brightness_p1": 0.95, "transparent": 0.97}]),
    )
    DIRTY = (
        Case("washed out", [{"id": "a.jpg", "brightness_p1": 0.86, "contrast": 0.03}], ["a.jpg"]),
        Case(
            "bright in most of the dataset is still bright",
            [{"id": i, "brightness_p1": 0.8, "contrast": 0.02} for i in "abc"] + [{}],
            ["a", "b", "c"],
        ),
    )

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        """Yield one finding per image."""
        sql = """
            SELECT id, subject, brightness_p1 AS p1,
                brightness AS mean
            FROM images
            WHERE status = 'ok' AND brightness_p1 > ? AND transparent < 0.5
                -- More contrast than that: thin dark lines, in less than 1 % of the pixels.
                -- Less than 0.004 (one grey level): a flat picture, which IMG004 reports.
                AND contrast BETWEEN 0.004 AND 1.01 - brightness_p1
            ORDER BY id
        """
        for row in store.query(sql, [params.min_p1]).iter_rows(named=True):
            yield Finding(
                self.code,
                self.severity,
                (row["id"],),
                f"99 % of this image's pixels are brighter than {row['p1']:.0%} of full scale (a "
                f"picture counts as washed out above {params.min_p1:.0%}).",
                {"brightness_p1": row["p1"], "brightness": row["mean"], "min_p1": params.min_p1},
                Action.REVIEW,
                row["subject"],
            )

    def completeness(self, store: Store, params: Params) -> str:
        """Say how many images were checked."""
        sql = "SELECT count(*) AS n, count(*) FILTER (WHERE status = 'ok') AS ok FROM images"
        (row,) = store.rows(sql)
        left = row["n"] - row["ok"]
        return (
            f"All {row['ok']:,} intact images were checked; {left:,} damaged or unreadable ones "
            "were "
            "left out."
        )
