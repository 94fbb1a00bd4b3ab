"""FILE001, FILE002, FILE005: files that give no picture, or only a part of one, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from audit.checking.check import QueryCheck
from audit.records import Action, Severity

# One sentence per kind of failure, with placeholders for what the scan measured.
SENTENCES: Mapping[str, str] = {
    "missing": "No file exists at this path (0 bytes).",
    "permission": "The user who ran the scan has no permission to read this file ({size}).",
    "empty": "This file is empty: it has 0 bytes.",
    "not-an-image": "This is not an image: its {size} contain {content}.",
    "unsupported": "No installed decoder reads this kind of file ({size}, {content}).",
    "io": "The operating system could not read this file of {size}.",
    "crashed": "This file of {size} crashed the decoder, and with it 1 worker process.",
    "timeout": "Decoding this file of {size} took longer than the time limit for 1 file.",
}
FETCHED = "This image could not be downloaded: {error}."
NOT_FETCHED = ("missing", "permission", "io", "unsupported")
UNKNOWN = "This file of {size} ({content}) could not be decoded."
DROPPED = ("empty", "missing", "not-an-image")
CONTENTS: Mapping[str, str] = {
    "unknown": "unknown content",
    "zeros": "only NUL bytes, as after a crash or an unfinished copy",
}


class Unreadable(QueryCheck):
    """Files without an image: missing, not readable, empty, or another kind of file.

    ## What it does
    Reports each sample whose file could not be opened, has no bytes, or is another kind of file: an
    HTML error page saved as .jpg, a PDF, a ZIP archive, a Git LFS pointer, plain text, or only NUL
    bytes. The message names the content, identified by the first bytes.

    ## Why is this bad
    A loader stops the training run at such a file, maybe after hours, or skips it silently, so the
    dataset is smaller than expected.

    ## Example
    `cat/0017.jpg` contains 1,245 bytes of HTML: the server answered "404" and the page was saved.

    ## What to do
    Download the file again, or drop the sample. For a missing file, check the path in the manifest
    and the machine of the scan; for a file that is not readable, check its permissions.

    ## Limits
    FILE002 reports files that start as an image and break later, FILE005 headers that declare too
    many pixels. Content is identified by its first bytes; other kinds are reported as unknown.
    """

    code = "FILE001"
    name = "unreadable-file"
    severity = Severity.ERROR

    sql = f"""
        SELECT id, subject, n_bytes, coalesce(error, '') AS error,
            coalesce(detected, 'unknown') AS content,
            contains(uri, '://') AND NOT regexp_matches(uri, '^(/|file:|pack[+])') AS elsewhere,
            coalesce(images.error_kind, 'unknown') AS error_kind,
            CASE WHEN error_kind IN {DROPPED} THEN 'drop' END AS action
        FROM images
        WHERE status = 'unreadable' AND coalesce(images.error_kind, '')
            NOT IN ('truncated', 'corrupt', 'bomb', 'memory')
        ORDER BY id
    """
    evidence = ("error_kind", "content", "n_bytes", "error")
    counts = """
        SELECT count(*) AS n, count(*) FILTER (WHERE status IS DISTINCT FROM 'unreadable') AS read
        FROM images
    """
    examined = "{read:,} of {n:,} samples could be decoded."

    def said(self, row: Mapping[str, Any], params: Any) -> str:
        fetched = row["elsewhere"] and row["error_kind"] in NOT_FETCHED
        return (FETCHED if fetched else SENTENCES.get(row["error_kind"], UNKNOWN)).format(
            size=_bytes(row["n_bytes"]),
            content=CONTENTS.get(row["content"], row["content"]),
            error=row["error"] or "the storage reported no reason",
        )


def _bytes(count: int) -> str:
    if count < 0:
        return "unknown number of bytes"
    return "1 byte" if count == 1 else f"{count:,} bytes"


class Damaged(QueryCheck):
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
    A copy that was interrupted: 63% of the rows can be decoded, the rest is missing.

    ## What to do
    Copy or download the file again. If that is impossible, drop the sample. A file without its end
    marker has lost its last bytes: compare its size with the original.

    ## Limits
    A changed byte that keeps the JPEG code valid is not found (about two thirds of single changed
    bytes). FILE003 reports damage that was decoded and saved again.
    """

    code = "FILE002"
    name = "damaged-file"
    severity = Severity.ERROR

    # An error, or a warning if only the end marker is missing.
    sql = """
        SELECT id, subject, status, coalesce(images.error_kind, 'end marker missing') AS error_kind,
            coalesce(images.error, '') AS why,
            coalesce(nullif(why, ''), decoder_warnings, '') AS error, error_at,
            coalesce(images.missing_end, false) :: INT AS missing_end, n_bytes,
            coalesce(format, detected, 'image') AS format,
            CASE WHEN status = 'ok' THEN 'warning' END AS severity,
            CASE WHEN status = 'ok' THEN 'review' END AS action
        FROM images
        WHERE status = 'damaged' OR (status = 'ok' AND images.missing_end)
            OR (status = 'unreadable' AND images.error_kind IN ('truncated', 'corrupt'))
        ORDER BY id
    """
    evidence = ("error_kind", "n_bytes", "missing_end", "error", "error_at")
    action = Action.DROP
    counts = "SELECT count(*) AS n FROM images WHERE status IN ('ok', 'damaged')"
    examined = "All {n:,} decodable images were decoded completely, in full colour."

    def kept(self, row: Mapping[str, Any], params: Any) -> dict[str, Any]:
        """Return the evidence; without a place where that of the error is not known."""
        return {n: value for n, value in super().kept(row, params).items() if value is not None}

    def said(self, row: Mapping[str, Any], params: Any) -> str:
        size = f"{row['format']} of {_bytes(row['n_bytes'])}"
        if row["status"] == "ok":
            return (
                f"This {size} has no end marker, although every row was decoded: its last bytes "
                "are lost."
            )
        what = "is truncated" if row["error_kind"] == "truncated" else "is corrupt"
        where = "the position of the error is not known"
        if row["error_at"] is not None and row["error_at"] < 1:
            # Rounded down: 99.96% must not be printed as 100%.
            share = min(int(row["error_at"] * 1000) / 10, 99.9)
            where = f"{share:g}% of its rows were decoded before the error, the rest is missing"
        elif row["error_at"] is not None:
            where = "its last bytes are missing, so its lowest rows may be wrong"
        if row["status"] == "unreadable":
            where = "it could not be decoded"
        error = f" ({row['why'].strip().rstrip('.')})" if row["why"] else ""
        return f"This {size} {what}: {where}{error}."


class PixelBomb(QueryCheck):
    """Files that declare more pixels, or have more bytes, than a scan decodes.

    ## What it does
    Reports each file that the scan did not decode because of the pixels that its header declares,
    its size in bytes, or the memory that decoding would need. No part of it was decoded.

    ## Why is this bad
    A file of a few kilobytes can declare an image of gigabytes. One such file crashes every loader
    worker that decodes it, in every epoch.

    ## Example
    A PNG of 42 kB with 50,000 x 50,000 pixels: 7.5 GB once decoded to RGB.

    ## What to do
    Drop it, unless it is a map, a microscope slide or a satellite scene: then scan with a higher
    `max_pixels` or `max_memory` under `[scan]` in `audit.toml`, or cut it into tiles first. A file
    that only lacked memory is tried again at the next scan.

    ## Limits
    The header is trusted: the check does not test whether the data really exist.
    """

    code = "FILE005"
    name = "pixel-bomb"
    severity = Severity.ERROR

    sql = """
        SELECT id, subject, n_bytes, width, height, coalesce(pixels, 0) AS pixels, error_kind,
            coalesce(error, '') AS error
        FROM images WHERE status = 'unreadable' AND error_kind IN ('bomb', 'memory')
        ORDER BY id
    """
    evidence = ("n_bytes", "pixels", "error")

    def said(self, row: Mapping[str, Any], params: Any) -> str:
        if not row["pixels"] or row["error_kind"] == "memory":
            why = (row["error"] or "it exceeds the limits of the scan").strip().rstrip(".")
            return f"This file of {_bytes(row['n_bytes'])} was not decoded: {why}."
        # 3 bytes per pixel, as converted to RGB
        gigabytes = row["pixels"] * 3 / 1e9
        return (
            f"This file of {_bytes(row['n_bytes'])} declares {row['width']:,} x "
            f"{row['height']:,} px, {gigabytes:.1f} GB as RGB: it was not decoded."
        )
