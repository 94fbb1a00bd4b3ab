"""IMG001, IMG002, IMG004: images too dark, too bright or too flat to show anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from audit.checking.check import QueryCheck, asked
from audit.records import Action, Finding, Severity
from audit.run.store import Store

LEAST_SET = 30  # images from which most of them may be said to be so


class _ShowsNothing(QueryCheck):
    """What the checks of this file share: sound images that fulfil a condition, told one by one.

    Where most of a dataset fulfil it, that is told once: of each it would bury the report.
    """

    severity = Severity.WARNING
    where: ClassVar[str]
    common: ClassVar[str]
    common_severity: ClassVar[Severity] = Severity.INFO
    counts = "SELECT count(*) FILTER (WHERE status = 'ok') AS n, count(*) - n AS rest FROM images"
    examined = (
        "All {n:,} intact images were checked; {rest:,} damaged or unreadable images were left out."
    )

    def find(self, store: Store, params: Any) -> Iterator[Finding]:
        columns = ", ".join(self.features)
        sql = f"SELECT id, subject, {columns} FROM images WHERE status = 'ok' AND {self.where}"
        rows = asked(store, f"{sql} ORDER BY id", params)
        many = len(rows) > params.max_share * LEAST_SET  # of the smallest set
        n = int(store.scalar("SELECT count(*) FROM images WHERE status = 'ok'")) if many else 0
        if n >= LEAST_SET and len(rows) > params.max_share * n:
            yield self.finding(
                "dataset",
                f"{len(rows):,} of {n:,} images {self.common}",
                {"images": len(rows), "of": n},
                tuple(rows["id"]),
                severity=self.common_severity,
            )
            return
        for row in rows.iter_rows(named=True):
            yield self.of_row(row, params)


class Dark(_ShowsNothing):
    """Images whose brightest parts are still dark.

    ## What it does
    Reports an image if the 99th percentile of its luma is below `max_p99`. A night scene with a
    lamp or thin lines on black are not reported; an image without any bright part is. If more than
    `max_share` of the images meet this condition, they are reported once.

    ## Why is this bad
    A model learns nothing from a covered lens, a failed exposure or a wrong conversion, and in a
    test set the score of such an image is random.

    ## Example
    A frame that was recorded before the shutter opened: p99 = 6%.

    ## What to do
    Look at a brightened copy. Drop the image if nothing is visible; keep it if the task is about
    dark scenes (then lower `max_p99`).

    ## Limits
    Astronomy, X-ray and night datasets are dark by nature: adapt the threshold. Depth maps and
    12-bit values in 16-bit images are dark too in most decoders. IMG004 reports images of one
    colour, including black; mostly transparent images and damaged files are left out.
    """

    code = "IMG001"
    name = "dark-image"
    features = ("brightness_p99", "brightness", "contrast", "transparent")

    @dataclass(frozen=True)
    class Params:
        """max_p99: reported below this 99th percentile of luma, 0..1
        max_share: reported once if more than this share of the images are, 0..1
        """

        max_p99: float = 0.16
        max_share: float = 0.5

    # More contrast: thin bright lines. Below 0.004 (one grey level): IMG004.
    where = """
        brightness_p99 < $max_p99 AND transparent < 0.5
        AND contrast BETWEEN 0.004 AND brightness_p99 + 0.01
    """
    message = (
        "99% of this image's pixels are darker than {brightness_p99:.0%} of full scale (an image "
        "counts as dark below {params.max_p99:.0%})."
    )
    evidence = ("brightness_p99", "brightness", "max_p99")
    common = (
        "are dark: either by content (night, depth, X-rays), or because values with fewer bits or "
        "another range were not rescaled."
    )
    common_severity = Severity.WARNING


class Bright(_ShowsNothing):
    """Images whose darkest parts are still bright.

    ## What it does
    Reports an image if the 1st percentile of its luma is above `min_p1`, the 99th above `min_p99`
    and its saturation below `max_saturation`. A product on a white background or a page of text has
    dark parts and is not reported. Nor are bright colours, or pale subjects before a plain sky or
    on plain white. If more than `max_share` of the images meet this condition, they are reported
    once.

    ## Why is this bad
    Overexposure destroys details that the label depends on. A wrong conversion (a range of 0..1
    written as 0..255, or the reverse) has the same effect.

    ## Example
    A photograph taken against the sun: even its darkest 1% is at 86% of full scale.

    ## What to do
    Look at a darkened copy. Drop the image if nothing is visible; convert it again if the original
    is intact.

    ## Limits
    Snow, fog and pencil drawings can be this bright: raise `min_p1` for them. IMG004 reports images
    of one colour, including white. Damaged files are not checked, nor images of which 1% is
    transparent, because they are measured on white.
    """

    code = "IMG002"
    name = "bright-image"
    features = (
        "brightness_p1", "brightness_p99", "brightness", "contrast", "saturation", "transparent",
        "border_red", "border_green", "border_blue", "border_spread",
    )  # fmt: skip

    @dataclass(frozen=True)
    class Params:
        """min_p1: reported above this 1st percentile of luma, 0..1
        min_p99: and above this 99th percentile: overexposed images contain white, 0..1
        max_saturation: and below this mean saturation: overexposure removes colour, 0..1
        max_share: reported once if more than this share of the images are, 0..1
        """

        min_p1: float = 0.7
        min_p99: float = 0.98
        max_saturation: float = 0.15
        max_share: float = 0.5

    where = """
        brightness_p1 > $min_p1 AND brightness_p99 > $min_p99 AND transparent < 0.01
        AND saturation < $max_saturation AND contrast BETWEEN 0.004 AND 1.01 - brightness_p1
        AND (border_spread > 0.01 OR least(border_red, border_green, border_blue) < 0.97)
    """
    message = (
        "99% of this image's pixels are brighter than {brightness_p1:.0%} of full scale (an image "
        "counts as washed out above {params.min_p1:.0%})."
    )
    evidence = ("brightness_p1", "brightness", "min_p1")
    common = (
        "are pale: either by content (maps, drawings, fog), or because of exposure or conversion."
    )


class LowInformation(_ShowsNothing):
    """Images with almost no content: one colour, a faint gradient, or full transparency.

    ## What it does
    Reports an image if its contrast (standard deviation of luma) is below `max_contrast`, the
    entropy of its luma histogram is below `max_entropy` and at most `max_edge_density` of its
    pixels are on an edge; or if at least `min_transparent` of it is transparent. Entropy alone is
    not enough: a handwritten digit on black has a low entropy but much information. If more than
    `max_share` of the images meet this condition, they are reported once.

    ## Why is this bad
    The image has no content, but its label is used in training. Usually it is a placeholder, a
    failed download ("image not available"), a missing tile, or a frame from before the camera
    started.

    ## Example
    A white square that a web shop shows for missing photographs: contrast 0, entropy 0 bits.

    ## What to do
    Drop it, unless empty images are a class (background, no defect).

    ## Limits
    Colour patterns of constant luma count as flat. Files that IMG001 reports are not reported
    again.
    """

    code = "IMG004"
    name = "low-information"
    features = ("contrast", "entropy", "edge_density", "transparent", "brightness")
    left_to = ("IMG001",)

    @dataclass(frozen=True)
    class Params:
        """max_contrast: flat below this standard deviation of luma, 0..0.5
        max_entropy: and below this entropy of the luma histogram, bits
        max_edge_density: and at most this share of pixels on an edge, 0..1
        min_transparent: or at least this share of the image is transparent, 0..1
        max_share: reported once if more than this share of the images are, 0..1
        """

        max_contrast: float = 0.02
        max_entropy: float = 2.0
        max_edge_density: float = 0.01
        min_transparent: float = 0.999
        max_share: float = 0.5

    where = """
        (transparent >= $min_transparent OR (contrast < $max_contrast AND entropy < $max_entropy
            AND edge_density <= $max_edge_density))
    """
    evidence = (
        "contrast", "entropy", "brightness", "transparent", "max_contrast", "max_entropy"
    )  # fmt: skip
    action = Action.DROP
    common = "have no content: one colour, nearly one colour, or transparent."
    common_severity = Severity.WARNING

    def said(self, row: Mapping[str, Any], params: Any) -> str:
        if row["transparent"] >= params.min_transparent:
            return f"{row['transparent']:.1%} of this image is transparent: it has no content."
        what = "has one colour" if row["entropy"] == 0 else "has nearly one colour"
        return (
            f"This image {what}: contrast {row['contrast']:.3f} of 0.5, entropy "
            f"{row['entropy']:.1f} of 8 bits, mean brightness {row['brightness']:.0%}."
        )
