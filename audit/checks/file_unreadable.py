"""FILE001: files that cannot be decoded: missing, not readable, or not images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from audit.checking.cases import Case
from audit.checking.check import Check, NoParams
from audit.records import Action, Finding, Severity
from audit.run.store import Store

NO_PICTURE: Mapping[str, Any] = {"status": "unreadable", "format": None, "pixel_hash": None}

# One sentence per kind of failure, with placeholders for what the scan measured.
SENTENCES: Mapping[str, str] = {
    "missing": "No file exists at this path, so 0 bytes could be read.",
    "permission": "The user who ran the scan may not read this file: 0 of its {size} were read.",
    "empty": "This file is empty: it has 0 bytes.",
    "not-an-image": "This is not an image: its {size} contain {content}.",
    "unsupported": "No installed decoder reads this kind of file ({size}, {content}).",
    "io": "The operating system could not read this file of {size}.",
    "crashed": "This file of {size} crashed the decoder, and with it 1 worker process.",
    "timeout": "Decoding this file of {size} took longer than the time limit for 1 file.",
}
FETCHED = "This picture could not be fetched, so 0 bytes of it were read: {error}."
NOT_FETCHED = ("missing", "permission", "io", "unsupported")
UNKNOWN = "This file of {size} ({content}) could not be decoded."
ACTIONS = {"empty": Action.DROP, "missing": Action.DROP, "not-an-image": Action.DROP}


class Unreadable(Check):
    """Files that give no picture: missing, not readable, empty, or not an image.

    ## What it does
    Reports each sample whose file could not be opened, has no bytes, or is something else: an HTML
    error page saved as .jpg, a PDF, a ZIP archive, a Git LFS pointer, plain text, or only NUL
    bytes. The message names the content, judged by the first bytes.

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

    ## References
    File signatures: the `magic` database of file(1).
    """

    code = "FILE001"
    name = "unreadable-file"
    severity = Severity.ERROR

    CLEAN = (
        Case("an intact photograph", [{}]),
        Case("a truncated file is left to FILE002", [{**NO_PICTURE, "error_kind": "truncated"}]),
        Case("a pixel bomb is left to FILE005", [{**NO_PICTURE, "error_kind": "bomb"}]),
        Case("too much memory is left to FILE005", [{**NO_PICTURE, "error_kind": "memory"}]),
        Case("damaged, but decoded in part", [{"status": "damaged", "error_kind": "corrupt"}]),
    )
    DIRTY = (
        Case(
            "an HTML page saved as .jpg",
            [{**NO_PICTURE, "id": "a.jpg", "error_kind": "not-an-image", "detected": "HTML"}],
            ["a.jpg"],
        ),
        Case(
            "zero bytes, and a block of zeros",
            [
                {**NO_PICTURE, "id": "a.jpg", "error_kind": "empty", "n_bytes": 0},
                {**NO_PICTURE, "id": "b.jpg", "error_kind": "not-an-image", "detected": "zeros"},
            ],
            ["a.jpg", "b.jpg"],
        ),
        Case(
            "listed in a manifest but absent: no bytes, no hash",
            [
                {
                    **NO_PICTURE, "id": "gone.jpg", "error_kind": "missing", "n_bytes": -1,
                    "content_hash": None, "detected": None,
                }
            ],
            ["gone.jpg"],
        ),
        Case(
            "gone from a store, and from the address of a table",
            [
                {
                    **NO_PICTURE, "id": name, "uri": uri, "error_kind": "missing",
                    "error": "h answered 404 Not Found: the picture is gone", "detected": None,
                }
                for name, uri in (("a", "fetch+s3://b/a.jpg"), ("b", "pack+urls://t.parquet#0+0+url"))
            ],
            ["a", "b"],
        ),
        Case(
            "not readable, crashing, unsupported, and an unknown failure",
            [
                {**NO_PICTURE, "id": "a", "error_kind": "permission", "content_hash": None},
                {**NO_PICTURE, "id": "b", "error_kind": "crashed"},
                {**NO_PICTURE, "id": "c", "error_kind": "unsupported", "detected": "JPEG XL"},
                {**NO_PICTURE, "id": "d", "error_kind": None, "detected": None},
            ],
            ["a", "b", "c", "d"],
        ),
    )  # fmt: skip

    def find(self, store: Store, params: NoParams) -> Iterator[Finding]:
        """Yield one finding per file."""
        sql = """
            SELECT id, subject, n_bytes, error,
                detected,
                starts_with(uri, 'fetch+') OR starts_with(uri, 'pack+urls:') AS elsewhere,
                coalesce(error_kind, 'unknown') AS kind
            FROM images
            WHERE status = 'unreadable'
                AND coalesce(error_kind, '') NOT IN ('truncated', 'corrupt', 'bomb', 'memory')
            ORDER BY id
        """
        for row in store.query(sql).iter_rows(named=True):
            sentence = SENTENCES.get(row["kind"], UNKNOWN)
            if row["elsewhere"] and row["kind"] in NOT_FETCHED:
                sentence = FETCHED
            words = {
                "size": _bytes(row["n_bytes"]),
                "content": _content(row["detected"]),
                "error": row["error"] or "the store did not say why",
            }
            yield Finding(
                self.code,
                self.severity,
                (row["id"],),
                sentence.format(**words),
                {
                    "error_kind": row["kind"],
                    "content": row["detected"] or "unknown",
                    "n_bytes": row["n_bytes"],
                    "error": row["error"] or "",
                },
                ACTIONS.get(row["kind"], Action.REVIEW),
                row["subject"],
            )

    def completeness(self, store: Store, params: NoParams) -> str:
        """Say how many samples could be decoded."""
        sql = """
            SELECT count(*) AS n,
                count(*) FILTER (WHERE status IS DISTINCT FROM 'unreadable') AS read
            FROM images
        """
        (row,) = store.rows(sql)
        return f"{row['read']:,} of {row['n']:,} samples could be decoded."


def _bytes(count: int) -> str:
    return "1 byte" if count == 1 else f"{max(count, 0):,} bytes"


def _content(detected: str | None) -> str:
    if detected is None:
        return "unknown content"
    if detected == "zeros":
        return "only NUL bytes, as after a crash or an unfinished copy"
    return detected
