"""IMG001: images too dark to show anything."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from audit.cases import Case
from audit.check import Check
from audit.records import Action, Finding, Severity
from audit.store import Store


class Dark(Check):
    """Images whose brightest parts are still dark.

    ## What it does
    Flags an image when the 99th percentile of its luma lies below `max_p99`: not a night scene with a
    lamp in it, but a picture in which nothing at all is bright. Mostly transparent pictures are left
    out, since their hidden colours are never shown.

    ## Why is this bad
    A lens cap, a failed exposure or a broken conversion teaches a model nothing, and in a test set it
    is scored by luck.

    ## Example
    A frame grabbed before the camera's shutter opened: p99 = 0.06.

    ## What to do
    Look at it brightened. Drop it if nothing can be seen; keep it if darkness is what the task is about
    (then raise no flag by lowering `max_p99`).

    ## Limits
    Astronomy, X-ray and night datasets are dark by nature: set the threshold for them.

    ## References
    Luma: Recommendation ITU-R BT.601-7 (2011), section 2.5.1.
    """

    code = "IMG001"
    name = "dark-image"
    severity = Severity.WARNING
    features = ("brightness_p99", "transparent")

    @dataclass(frozen=True)
    class Params:
        """Thresholds.

        max_p99: flagged below this 99th percentile of luma, 0..1
        """

        max_p99: float = 0.16

    CLEAN = (
        Case("a night scene with one lamp", [{"brightness": 0.05, "brightness_p99": 0.4}]),
        Case("transparent, dark underneath", [{"brightness_p99": 0.0, "transparent": 0.9}]),
    )
    DIRTY = (Case("a lens cap", [{"id": "a.jpg", "brightness_p99": 0.06}], ["a.jpg"]),)

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        """Yield one finding an image."""
        sql = """
            SELECT id, brightness_p99 AS p99, brightness AS mean FROM images
            WHERE brightness_p99 < ? AND transparent < 0.5 ORDER BY id
        """
        for row in store.query(sql, [params.max_p99]).iter_rows(named=True):
            yield Finding(
                self.code,
                self.severity,
                (row["id"],),
                f"Nothing in this image is brighter than {row['p99']:.0%} of full scale "
                f"(99th percentile of luma; the threshold is {params.max_p99:.0%}).",
                {
                    "brightness_p99": row["p99"],
                    "brightness": row["mean"],
                    "max_p99": params.max_p99,
                },
                Action.REVIEW,
                row["id"],
            )
