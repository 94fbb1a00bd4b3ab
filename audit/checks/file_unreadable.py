"""FILE001: files from which no picture comes out because they are absent, locked, or not images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from audit.checking.cases import Case
from audit.checking.check import Check, NoParams
from audit.records import Action, Finding, Severity
from audit.run.store import Store

NO_PICTURE: Mapping[str, Any] = {"status": "unreadable", "format": None, "pixel_hash": None}

# One sentence a kind of failure; what the scan measured fills it in.
SENTENCES: Mapping[str, str] = {
    "missing": "Nothing exists at this path, so 0 bytes could be read.",
    "permission": "This file may not be read by the user who scanned: 0 of its {size} were seen.",
    "empty": "This file is empty: it has 0 bytes.",
    "not-an-image": "This is not an image: its {size} are {content}.",
    "unsupported": "This file of {size} ({content}) is of a kind that no installed decoder reads.",
    "io": "The system failed while reading this file of {size}.",
    "crashed": "Decoding this file of {size} crashed the decoder: 1 worker was lost to it.",
    "timeout": "Decoding this file of {size} did not end in the time allowed to 1 file.",
}
UNKNOWN = "No picture came out of this file of {size} ({content})."
ACTIONS = {"empty": Action.DROP, "missing": Action.DROP, "not-an-image": Action.DROP}


class Unreadable(Check):
    """Files that give no picture at all: missing, locked, empty, or something else than an image.

    ## What it does
    Reports each sample whose file could not be opened, has zero bytes, or holds something else: an
    HTML error page saved as .jpg, a PDF, a ZIP archive, a Git LFS pointer, plain text, nothing but
    zero bytes. The message says what the content is by its first bytes.

    ## Why is this bad
    A loader stops the training run at such a file, hours in, or skips it without a word, so that
    the dataset is smaller than believed.

    ## Example
    `cat/0017.jpg` holds 1,245 bytes of HTML: the server answered "404" and the download kept it.

    ## What to do
    Fetch the file again, or drop the sample. For a missing file, check the path in the manifest and
    where the scan ran; for a locked one, its permissions.

    ## Limits
    Files that begin as an image and break later are FILE002; headers that promise too many pixels
    are FILE005. Content is named by its first bytes: unknown kinds are said to be unknown.

    ## References
    File signatures: the `magic` database of file(1).
    """

    code = "FILE001"
    name = "unreadable-file"
    severity = Severity.ERROR

    CLEAN = (
        Case("a sound photograph", [{}]),
        Case("a truncated file is left to FILE002", [{**NO_PICTURE, "error_kind": "truncated"}]),
        Case("a pixel bomb is left to FILE005", [{**NO_PICTURE, "error_kind": "bomb"}]),
        Case("damaged, but a picture came out", [{"status": "damaged", "error_kind": "corrupt"}]),
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
            "locked, crashing, unsupported, and a failure of no known kind",
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
        """Yield one finding a file."""
        sql = """
            SELECT id, subject, n_bytes, error,
                detected,
                coalesce(error_kind, 'unknown') AS kind
            FROM images
            WHERE status = 'unreadable'
                AND coalesce(error_kind, '') NOT IN ('truncated', 'corrupt', 'bomb')
            ORDER BY id
        """
        for row in store.query(sql).iter_rows(named=True):
            sentence = SENTENCES.get(row["kind"], UNKNOWN)
            yield Finding(
                self.code,
                self.severity,
                (row["id"],),
                sentence.format(size=_bytes(row["n_bytes"]), content=_content(row["detected"])),
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
        """Say how many samples gave a picture."""
        sql = """
            SELECT count(*) AS n,
                count(*) FILTER (WHERE status IS DISTINCT FROM 'unreadable') AS read
            FROM images
        """
        (row,) = store.rows(sql)
        return f"{row['read']:,} of {row['n']:,} samples gave a picture."


def _bytes(count: int) -> str:
    return "1 byte" if count == 1 else f"{max(count, 0):,} bytes"


def _content(detected: str | None) -> str:
    if detected is None:
        return "of no kind known by its first bytes"
    if detected == "zeros":
        return "all zero, as a crash or an unfinished copy leaves them"
    return f"{detected} by its first bytes" if detected.isupper() else detected
