"""FILE002: images that are truncated or corrupt, and where they break."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from audit.checking.cases import Case
from audit.checking.check import Check, NoParams
from audit.records import Action, Finding, Severity
from audit.run.store import Store

CUT = {"status": "damaged", "error_kind": "truncated", "error_at": 0.5, "missing_end": True}


class Damaged(Check):
    """Images that could be decoded only in part, or whose data made the decoder warn.

    ## What it does
    Reports files that a strict decoder finds truncated or corrupt, with the share of the rows that
    were decoded before the error, and files without their end marker (JPEG EOI, PNG IEND). The
    strict decoder keeps the warnings of libjpeg, so damage in the middle of a JPEG is found, which
    most loaders hide.

    ## Why is this bad
    A tolerant decoder fills the rest with grey or random pixels, and the model trains on them; a
    strict decoder stops the run. Which of the two happens depends on the library and its version.

    ## Example
    A copy that was interrupted: 63 % of the rows can be decoded, the rest is missing.

    ## What to do
    Copy or download the file again. If that is impossible, drop the sample. A file without its end
    marker has lost its last bytes: compare its size with the original.

    ## Limits
    A changed byte that keeps the JPEG code valid is not found (about two thirds of single changed
    bytes). FILE003 reports damage that was decoded and saved again.

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
            "corrupt in the middle, although every row was decoded",
            [{"id": "a.jpg", "status": "damaged", "error_kind": "corrupt", "error_at": None,
              "error": "Corrupt JPEG data: bad Huffman code"}],
            ["a.jpg"],
        ),
        Case(
            "no row was decoded",
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
        """Yield one finding per file: an error, or a warning if only the end marker is missing."""
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
        """Say how many files were decoded completely."""
        n = store.scalar("SELECT count(*) FROM images WHERE status IN ('ok', 'damaged')")
        return f"All {n:,} decodable images were decoded completely, in full colour."


def _message(row: Mapping[str, Any]) -> str:
    size = f"{row['format']} of {row['n_bytes']:,} bytes"
    if row["status"] == "ok":
        return (
            f"This {size} has no end marker, although every row was decoded: its last bytes are "
            "lost."
        )
    what = "is truncated" if row["error_kind"] == "truncated" else "is corrupt"
    where = "the position of the error is not known"
    if row["error_at"] is not None:
        where = f"{_share(row['error_at'])} of its rows were decoded before the error"
    if row["status"] == "unreadable":
        where = "it could not be decoded"
    error = f" ({row['error'].strip().rstrip('.')})" if row["error"] else ""
    return f"This {size} {what}: {where}{error}."


def _share(value: float) -> str:
    # Rounded down, because 99.96 % must not be printed as 100 %.
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
