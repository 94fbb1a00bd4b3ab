"""FILE005: files that would fill the memory when decoded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from audit.checking.cases import Case
from audit.checking.check import Check, NoParams
from audit.records import Action, Finding, Severity
from audit.run.store import Store

BOMB = {"status": "unreadable", "error_kind": "bomb", "pixel_hash": None}


class PixelBomb(Check):
    """Files that declare more pixels, or have more bytes, than a scan decodes.

    ## What it does
    Reports each file that the scan did not decode because of the pixels that its header declares,
    its size in bytes, or the memory that decoding would need. No part of it was decoded.

    ## Why is this bad
    A file of a few kilobytes can declare a picture of gigabytes. One such file crashes every loader
    worker that decodes it, in every epoch.

    ## Example
    A PNG of 42 kB with 50,000 x 50,000 pixels: 7.5 GB once decoded to RGB.

    ## What to do
    Drop it, unless it is a map, a microscope slide or a satellite scene: then scan with a higher
    `max_pixels` or `max_memory` under `[scan]` in `audit.toml`, or cut it into tiles first. A file
    that only lacked memory is tried again at the next scan.

    ## Limits
    The header is trusted: the check does not test whether the data really exist.

    ## References
    CWE-409: Improper Handling of Highly Compressed Data (Data Amplification).
    """

    code = "FILE005"
    name = "pixel-bomb"
    severity = Severity.ERROR

    CLEAN = (
        Case("a large but decoded scan", [{"width": 12_000, "height": 9_000}]),
        Case("unreadable for another reason", [{**BOMB, "error_kind": "corrupt"}]),
    )
    DIRTY = (
        Case("50,000 x 50,000", [{**BOMB, "id": "a.png", "width": 50_000, "height": 50_000}],
             ["a.png"]),
        Case("too many bytes, no header read",
             [{**BOMB, "id": "b.tif", "width": None, "height": None, "n_bytes": 2_000_000_000,
               "content_hash": None}],
             ["b.tif"]),
        Case("more memory than the scan may use",
             [{**BOMB, "id": "c.webp", "error_kind": "memory", "width": 12_000, "height": 11_000,
               "error": "decoding it takes about 3.0 GB; max_memory is 1.0 GB"}],
             ["c.webp"]),
    )  # fmt: skip

    def find(self, store: Store, params: NoParams) -> Iterator[Finding]:
        """Yield one finding per file."""
        sql = """
            SELECT id, subject, n_bytes, width, height, pixels, error_kind, error
            FROM images WHERE status = 'unreadable' AND error_kind IN ('bomb', 'memory')
            ORDER BY id
        """
        for row in store.query(sql).iter_rows(named=True):
            yield Finding(
                self.code,
                self.severity,
                (row["id"],),
                _message(row),
                {
                    "n_bytes": row["n_bytes"],
                    "pixels": row["pixels"] or 0,
                    "error": row["error"] or "",
                },
                Action.REVIEW,
                row["subject"],
            )


def _message(row: Mapping[str, Any]) -> str:
    if not row["pixels"] or row["error_kind"] == "memory":
        why = (row["error"] or "it is over the limits of the scan").strip().rstrip(".")
        return f"This file of {row['n_bytes']:,} bytes was not decoded: {why}."
    # 3 bytes per pixel: what every loader that converts to RGB allocates at least.
    gigabytes = row["pixels"] * 3 / 1e9
    return (
        f"This file of {row['n_bytes']:,} bytes declares {row['width']:,} x {row['height']:,} px, "
        f"{gigabytes:.1f} GB as RGB: it was not decoded."
    )
