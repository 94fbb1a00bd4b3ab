"""FILE003: pictures that decode well but look as if damage had been saved into them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from audit.checking.cases import Case
from audit.checking.check import Check
from audit.records import Action, Finding, Severity
from audit.run.store import Store


class HiddenDamage(Check):
    """Sound files whose picture ends in decoder grey, or that carry bytes after their end.

    ## What it does
    Flags (warning) a picture that ends in a band of flat mid grey: the fill of a tolerant decoder,
    left there when a broken JPEG was decoded and saved again. The band must reach `min_grey_tail`
    of the height and `min_block_rows` block rows of 8 pixels. Notes (info) bytes after the end of
    the image data, from `min_trailing_bytes` on.

    ## Why is this bad
    No decoder complains about such a file any more, so the grey is trained on. Trailing bytes are
    harmless to most decoders, but they make equal pictures differ in their bytes and may hide a
    second file, a note or a botched copy.

    ## Example
    The lower 48 % of a photograph is one grey: the download broke, and a resize script saved the
    rest.

    ## What to do
    Look at the lower edge; if the grey is damage, replace the picture from its source or drop it.
    Rewrite files with trailing bytes without loss (`jpegtran -copy all`) if you need equal hashes.

    ## Limits
    Letterboxing with exactly this grey (128 +- 3) looks the same. A picture that is grey all over
    is left to IMG004. Cameras append previews and motion clips on purpose.

    ## References
    Thresholds: 0 of 1,000 sound photographs flagged, 97-100 % of photographs that lost 10-50 % of
    their rows. ITU-T T.81, A.3.3: a missing coefficient block decodes to the mid level, 128.
    """

    code = "FILE003"
    name = "suspected-hidden-damage"
    severity = Severity.WARNING

    @dataclass(frozen=True)
    class Params:
        """Thresholds.

        min_grey_tail: flagged from this share of the height on, 0..1
        min_block_rows: and from this many block rows of 8 px on
        min_trailing_bytes: bytes after the end of the image data that are worth a note
        """

        min_grey_tail: float = 0.02
        min_block_rows: int = 2
        min_trailing_bytes: int = 1

    CLEAN = (
        Case("a sound photograph", [{}]),
        Case("one block row of a thumbnail", [{"height": 32, "width": 32, "grey_tail": 0.25}]),
        Case("already reported as cut", [{"status": "damaged", "grey_tail": 0.5}]),
        Case("grey all over: IMG004", [{"grey_tail": 1.0, "contrast": 0.0, "entropy": 0.0}]),
        Case("a few bytes of padding allowed", [{"trailing_bytes": 4}],
             params={"min_trailing_bytes": 64}),
    )  # fmt: skip
    DIRTY = (
        Case("the lower half is grey", [{"id": "a.jpg", "grey_tail": 0.48}], ["a.jpg"]),
        Case("trailing bytes alone", [{"id": "a.jpg", "trailing_bytes": 4096}], ["a.jpg"]),
        Case(
            "both in one file make one finding",
            [{"id": "a.jpg", "grey_tail": 0.1, "trailing_bytes": 12}],
            ["a.jpg"],
        ),
    )

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        """Yield one finding a file."""
        sql = """
            SELECT id, subject, grey_tail, height,
                n_bytes,
                coalesce(trailing_bytes, 0) AS extra_bytes,
                coalesce(grey_tail >= ? AND grey_tail * height >= 8 * ? AND grey_tail < 1, false)
                    AS grey
            FROM images WHERE status = 'ok' AND (grey OR extra_bytes >= ?) ORDER BY id
        """
        limits = [params.min_grey_tail, params.min_block_rows, params.min_trailing_bytes]
        for row in store.query(sql, limits).iter_rows(named=True):
            trailing = row["extra_bytes"] >= params.min_trailing_bytes
            yield Finding(
                self.code,
                self.severity if row["grey"] else Severity.INFO,
                (row["id"],),
                _message(row, trailing),
                {
                    "grey_tail": row["grey_tail"] or 0.0,
                    "height": row["height"],
                    "trailing_bytes": row["extra_bytes"],
                    "min_grey_tail": params.min_grey_tail,
                },
                Action.REVIEW if row["grey"] else Action.KEEP,
                row["subject"],
            )


def _message(row: Mapping[str, Any], trailing: bool) -> str:
    parts = []
    if row["grey"]:
        pixels = round(row["grey_tail"] * row["height"])
        parts.append(
            f"The lowest {row['grey_tail']:.0%} of this picture ({pixels} of {row['height']} px) "
            "is the flat mid grey that decoders leave where data are missing"
        )
    if trailing:
        parts.append(
            f"{row['extra_bytes']:,} of its {row['n_bytes']:,} bytes come after the image's end"
        )
    return "; ".join(parts) + "."
