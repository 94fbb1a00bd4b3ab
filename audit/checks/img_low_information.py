"""IMG004: pictures of nearly one colour, or fully transparent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from audit.checking.cases import Case
from audit.checking.check import Check
from audit.records import Action, Finding, Severity
from audit.run.store import Store


class LowInformation(Check):
    """Images with almost no content: one colour, a faint gradient, or full transparency.

    ## What it does
    Reports an image if its contrast (standard deviation of luma) is below `max_contrast`, the
    entropy of its luma histogram is below `max_entropy` and at most `max_edge_density` of its
    pixels are on an edge; or if at least `min_transparent` of it is transparent. Entropy alone is
    not enough: a handwritten digit on black has a low entropy but much information.

    ## Why is this bad
    There is nothing to learn, but the label is trained on. Usually it is a placeholder, a failed
    download ("image not available"), a missing tile, or a frame from before the camera started.

    ## Example
    A white square that a web shop shows for missing photographs: contrast 0, entropy 0 bits.

    ## What to do
    Drop it, unless empty pictures are a class of their own (background, no defect).

    ## Limits
    Colour patterns of constant luma count as flat. Very dark pictures can be both flat and dark
    (IMG001).

    ## References
    Shannon (1948), A Mathematical Theory of Communication: entropy of the histogram, in bits.
    """

    code = "IMG004"
    name = "low-information"
    severity = Severity.WARNING
    features = ("contrast", "entropy", "edge_density", "transparent", "brightness")

    @dataclass(frozen=True)
    class Params:
        """Thresholds.

        max_contrast: flat below this standard deviation of luma, 0..0.5
        max_entropy: and below this entropy of the luma histogram, bits
        max_edge_density: and at most this share of pixels on an edge, 0..1
        min_transparent: or at least this share of the picture is transparent, 0..1
        """

        max_contrast: float = 0.02
        max_entropy: float = 2.0
        max_edge_density: float = 0.01
        min_transparent: float = 0.999

    CLEAN = (
        Case("a handwritten digit", [{"entropy": 1.2, "contrast": 0.3, "edge_density": 0.1}]),
        Case("a foggy scene", [{"entropy": 5.0, "contrast": 0.03, "edge_density": 0.001}]),
        Case("a dark frame with shapes in it", [{"entropy": 3.0, "contrast": 0.015}]),
        Case("a logo on a transparent background", [{"transparent": 0.9, "has_alpha": True}]),
        Case("damaged: FILE002", [{"status": "damaged", "entropy": 0.0, "contrast": 0.0}]),
    )
    DIRTY = (
        Case(
            "white, black and grey",
            [{"id": f"{b}.png", "brightness": b, "contrast": 0.0, "entropy": 0.0, "sharpness": None,
              "edge_density": 0.0} for b in (0.0, 0.5, 1.0)],
            ["0.0.png", "0.5.png", "1.0.png"],
        ),
        Case(
            "one colour, saved as JPEG",
            [{"id": "a.jpg", "contrast": 0.003, "entropy": 1.4, "edge_density": 0.0}],
            ["a.jpg"],
        ),
        Case("fully transparent", [{"id": "a.png", "transparent": 1.0}], ["a.png"]),
    )  # fmt: skip

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        """Yield one finding per image."""
        sql = """
            SELECT id, subject, contrast, entropy,
                edge_density, transparent, brightness
            FROM images
            WHERE status = 'ok' AND (transparent >= ?
                OR (contrast < ? AND entropy < ? AND edge_density <= ?))
            ORDER BY id
        """
        limits = [
            params.min_transparent,
            params.max_contrast,
            params.max_entropy,
            params.max_edge_density,
        ]
        for row in store.query(sql, limits).iter_rows(named=True):
            yield Finding(
                self.code,
                self.severity,
                (row["id"],),
                _message(row, params),
                {
                    "contrast": row["contrast"],
                    "entropy": row["entropy"],
                    "brightness": row["brightness"],
                    "transparent": row["transparent"],
                    "max_contrast": params.max_contrast,
                    "max_entropy": params.max_entropy,
                },
                Action.DROP,
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


def _message(row: Mapping[str, Any], params: LowInformation.Params) -> str:
    if row["transparent"] >= params.min_transparent:
        return f"{row['transparent']:.1%} of this picture is transparent: it shows nothing."
    what = "is of one colour" if row["entropy"] == 0 else "is nearly of one colour"
    return (
        f"This picture {what}: contrast {row['contrast']:.3f} of 0.5, entropy {row['entropy']:.1f} "
        f"of 8 bits, mean brightness {row['brightness']:.0%}."
    )
