"""FILE002: images that are cut off or corrupt, with where they break."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from audit.checking.cases import Case
from audit.checking.check import Check, NoParams
from audit.records import Action, Finding, Severity
from audit.run.store import Store

CUT = {"status": "damaged", "error_kind": "truncated", "error_at": 0.5, "missing_end": True}


class Damaged(Check):
    """Images of which only a part came out, or about whose data the decoder complained.

    ## What it does
    Reports files that a strict decode calls truncated or corrupt, with the share of the rows that
    came out before it broke, and files without their end marker (JPEG EOI, PNG IEND). The strict
    decode keeps libjpeg's warnings, so that damage in the middle of a JPEG counts, which most
    loaders hide.

    ## Why is this bad
    A tolerant decoder fills the rest with grey or garbage and trains on it under the right label; a
    strict one stops the run. Which of the two happens changes with the library and its version.

    ## Example
    A copy that was interrupted: 63 % of the rows came out, the rest is missing.

    ## What to do
    Copy or download the file again. If that is impossible, drop the sample. A file that lacks only
    its end marker lost its last bytes: compare its size with the original's.

    ## Limits
    A changed byte that keeps a JPEG's code valid goes unseen (about two thirds of single changed
    bytes); damage that was decoded and saved again is FILE003.

    ## References
    ITU-T T.81 (JPEG), Annex B: markers; PNG specification (third edition), chunk IEND.
    """

    code = "FILE002"
    name = "damaged-file"
    severity = Severity.ERROR

    CLEAN = (
        Case("a sound photograph", [{}]),
        Case(
            "not an image at all: FILE001",
            [{"status": "unreadable", "error_kind": "not-an-image", "missing_end": None}],
        ),
        Case("a harmless warning about EXIF", [{"decoder_warnings": "Corrupt EXIF data."}]),
        Case("a format whose end is not known", [{"format": "BMP", "missing_end": None}]),
    )
    DIRTY = (
        Case("cut at half its rows", [{"id": "a.jpg", **CUT}], ["a.jpg"]),
        Case(
            "corrupt in the middle, though every row came out",
            [{"id": "a.jpg", "status": "damaged", "error_kind": "corrupt", "error_at": None,
              "error": "Corrupt JPEG data: bad Huffman code"}],
            ["a.jpg"],
        ),
        Case(
            "nothing came out of it",
            [{"id": "a.png", "status": "unreadable", "error_kind": "truncated", "error_at": 0.0,
              "format": "PNG"}],
            ["a.png"],
        ),
        Case(
            "only the end marker is missing: one finding, not two",
            [{"id": "a.jpg", "missing_end": True}, {"id": "b.jpg", **CUT, "error_at": 0.999}],
            ["a.jpg", "b.jpg"],
        ),
    )  # fmt: skip

    def find(self, store: Store, params: NoParams) -> Iterator[Finding]:
        """Yield one finding a file: an error, or a warning where only the end marker is missing."""
        sql = """
            SELECT id, subject, status, error_kind,
                error, error_at, coalesce(missing_end, false) AS missing_end, n_bytes,
                coalesce(format, detected, 'image') AS format, decoder_warnings
            FROM images
            WHERE status = 'damaged' OR (status = 'ok' AND missing_end)
                OR (status = 'unreadable' AND error_kind IN ('truncated', 'corrupt'))
            ORDER BY id
        """
        for row in store.query(sql).iter_rows(named=True):
            whole = row["status"] == "ok"
            yield Finding(
                self.code,
                Severity.WARNING if whole else self.severity,
                (row["id"],),
                _message(row),
                _evidence(row),
                Action.REVIEW if whole else Action.DROP,
                row["subject"],
            )

    def completeness(self, store: Store, params: NoParams) -> str:
        """Say how many files were decoded to their end."""
        n = store.scalar("SELECT count(*) FROM images WHERE status IN ('ok', 'damaged')")
        return f"All {n:,} images with a picture were decoded to the end in full colour."


def _message(row: Mapping[str, Any]) -> str:
    size = f"{row['format']} of {row['n_bytes']:,} bytes"
    if row["status"] == "ok":
        return (
            f"This {size} lacks its end marker, though every row came out: its last bytes are lost."
        )
    what = "is cut off" if row["error_kind"] == "truncated" else "is corrupt"
    where = "where it breaks is not known"
    if row["error_at"] is not None:
        where = f"{_share(row['error_at'])} of its rows came out before it broke"
    if row["status"] == "unreadable":
        where = "no picture came out"
    said = f" ({row['error'].strip().rstrip('.')})" if row["error"] else ""
    return f"This {size} {what}: {where}{said}."


def _share(value: float) -> str:
    # 99.96 % must not be printed as all of it.
    return "100 %" if value >= 1 else f"{min(int(value * 1000) / 10, 99.9):g} %"


def _evidence(row: Mapping[str, Any]) -> dict[str, float | int | str]:
    evidence: dict[str, float | int | str] = {
        "error_kind": row["error_kind"] or "end marker missing",
        "n_bytes": row["n_bytes"],
        "missing_end": int(row["missing_end"]),
        "error": row["error"] or row["decoder_warnings"] or "",
    }
    if row["error_at"] is not None:
        evidence["error_at"] = row["error_at"]
    return evidence
