"""IMG001: images too dark to show anything."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from audit.checking.cases import Case
from audit.checking.check import Check
from audit.records import Action, Finding, Severity
from audit.run.store import Store


class Dark(Check):
    """Images whose brightest parts are still dark.

    ## What it does
    Reports an image if the 99th percentile of its luma is below `max_p99`. A night scene with a
    lamp or thin lines on black are not reported; a picture without any bright part is.

    ## Why is this bad
    A model learns nothing from a covered lens, a failed exposure or a wrong conversion, and in a
    test set the score of such an image is random.

    ## Example
    A frame that was recorded before the shutter opened: p99 = 6 %.

    ## What to do
    Look at a brightened copy. Drop the image if nothing is visible; keep it if the task is about
    dark scenes (then lower `max_p99`).

    ## Limits
    Astronomy, X-ray and night datasets are dark by nature: adapt the threshold. IMG004 reports
    pictures of one colour, including black; mostly transparent pictures and damaged files are left
    out.

    ## References
    Luma: Recommendation ITU-R BT.601-7 (2011), section 2.5.1.
    """

    code = "IMG001"
    name = "dark-image"
    severity = Severity.WARNING
    features = ("brightness_p99", "brightness", "contrast", "transparent")

    @dataclass(frozen=True)
    class Params:
        """Thresholds.

        max_p99: reported below this 99th percentile of luma, 0..1
        """

        max_p99: float = 0.16

    CLEAN = (
        Case("a night scene with one lamp", [{"brightness": 0.05, "brightness_p99": 0.4}]),
        Case("transparent, dark underneath", [{"brightness_p99": 0.0, "transparent": 0.9}]),
        Case("thin white lines on black", [{"brightness_p99": 0.0, "contrast": 0.07}]),
        Case("one black: IMG004", [{"brightness_p99": 0.0, "contrast": 0.0}]),
        Case("a damaged file: FILE002", [{"brightness_p99": 0.06, "status": "damaged"}]),
    )
    DIRTY = (
        Case("a lens cap", [{"id": "a.jpg", "brightness_p99": 0.06, "contrast": 0.01}], ["a.jpg"]),
        Case(
            "dark in most of the dataset is still dark",
            [{"id": i, "brightness_p99": 0.1, "contrast": 0.02} for i in "abc"] + [{}],
            ["a", "b", "c"],
        ),
    )

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        """Yield one finding per image."""
        sql = """
            SELECT id, subject, brightness_p99 AS p99,
                brightness AS mean
            FROM images
            WHERE status = 'ok' AND brightness_p99 < ? AND transparent < 0.5
                -- More contrast than that: thin bright lines, in less than 1 % of the pixels.
                -- Less than 0.004 (one grey level): a flat picture, which IMG004 reports.
                AND contrast BETWEEN 0.004 AND brightness_p99 + 0.01
            ORDER BY id
        """
        for row in store.query(sql, [params.max_p99]).iter_rows(named=True):
            yield Finding(
                self.code,
                self.severity,
                (row["id"],),
                f"99 % of this image's pixels are darker than {row['p99']:.0%} of full scale (a "
                f"picture counts as dark below {params.max_p99:.0%}).",
                {
                    "brightness_p99": row["p99"],
                    "brightness": row["mean"],
                    "max_p99": params.max_p99,
                },
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
