"""DUP001: files that are identical byte for byte."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from audit.checking.cases import Case
from audit.checking.check import Check, NoParams, tally
from audit.records import Action, Finding, Severity
from audit.run.store import Store

A = {"content_hash": "a" * 64, "pixel_hash": "a" * 32}


class ByteIdentical(Check):
    """Groups of files with the same bytes.

    ## What it does
    Groups pictures by the BLAKE3-256 hash of their file, one finding per group. A group whose
    members are in different splits or have different labels is an error, any other group a warning.

    ## Why is this bad
    Across splits, the model is tested on pictures that it was trained on. With different labels, at
    least one label is wrong. Within one class and split, the picture counts twice.

    ## Example
    `train/cat/0001.jpg` and `test/cat/0101.jpg` are one file, copied.

    ## What to do
    Keep one file per group. If the copies span splits, keep none in the test split. If the labels
    differ, decide on the label first.

    ## Limits
    Files that cannot be decoded are left to FILE001: all empty files would be equal. Pictures of a
    single colour and fully transparent pictures are never an error: that two blank pictures are
    equal means nothing. DUP002 reports equal pixels in different bytes.

    ## References
    BLAKE3 specification (2020): a collision by chance has probability below 1e-60 for 1e9 files.
    """

    code = "DUP001"
    name = "byte-identical"
    severity = Severity.WARNING
    features = ("contrast", "transparent")

    CLEAN = (
        Case("different files", [{}, {}]),
        Case(
            "empty files are all equal: FILE001",
            [{**A, "status": "unreadable", "n_bytes": 0}] * 1
            + [{**A, "status": "unreadable", "n_bytes": 0}],
        ),
        Case("no hash is no duplicate", [{"content_hash": None}, {"content_hash": None}]),
        Case("same pixels, other bytes: DUP002", [{"pixel_hash": "a" * 32}] * 2),
    )
    DIRTY = (
        Case("one picture twice", [A, A, {}], ["group:aaaaaaaaaaaaaaaa"]),
        Case(
            "a copy in the test split",
            [{**A, "split": "train"}, {**A, "split": "test"}],
            ["group:aaaaaaaaaaaaaaaa"],
        ),
        Case(
            "blank pictures: one group, however many",
            [{**A, "contrast": 0.0, "entropy": 0.0, "label": f"{i}"} for i in range(40)],
            ["group:aaaaaaaaaaaaaaaa"],
        ),
    )

    def find(self, store: Store, params: NoParams) -> Iterator[Finding]:
        """Yield one finding per group, members sorted by id."""
        sql = """
            WITH repeated AS (
                SELECT content_hash FROM images WHERE status <> 'unreadable'
                GROUP BY content_hash HAVING count(*) > 1
            )
            SELECT content_hash AS hash, list(id ORDER BY id) AS ids,
                list(coalesce(split, '') ORDER BY id) AS splits,
                list(coalesce(label, '') ORDER BY id) AS labels, max(n_bytes) AS n_bytes,
                bool_or(coalesce(contrast, 1) < 0.004 OR coalesce(transparent, 0) > 0.999) AS blank
            FROM images SEMI JOIN repeated USING (content_hash) WHERE status <> 'unreadable'
            GROUP BY content_hash ORDER BY min(id)
        """
        for row in store.query(sql).iter_rows(named=True):
            spans = [] if row["blank"] else _spans(row)
            yield Finding(
                self.code,
                Severity.ERROR if spans else self.severity,
                tuple(row["ids"]),
                _message(row, spans),
                {
                    "members": len(row["ids"]),
                    "splits": tally(row["splits"]),
                    "labels": tally(row["labels"]),
                    "n_bytes": row["n_bytes"],
                    "blank": int(row["blank"]),
                },
                Action.REVIEW if "labels" in spans else Action.DROP,
                f"group:{row['hash'][:16]}",
            )

    def completeness(self, store: Store, params: NoParams) -> str:
        """Say how many files were compared."""
        sql = """
            SELECT count(*) FILTER (WHERE content_hash IS NOT NULL AND status <> 'unreadable') AS n,
                count(*) AS total FROM images
        """
        (row,) = store.rows(sql)
        left = row["total"] - row["n"]
        return f"All {row['n']:,} decodable files were compared; {left:,} others were left out."


def _spans(row: Mapping[str, Any]) -> list[str]:
    return [what for what in ("splits", "labels") if len({v for v in row[what] if v}) > 1]


def _message(row: Mapping[str, Any], spans: Sequence[str]) -> str:
    head = f"{len(row['ids'])} files have the same {row['n_bytes']:,} bytes"
    if row["blank"]:
        return f"{head}: a blank picture (one colour, or fully transparent)."
    if not spans:
        return f"{head}, all in one class and split."
    different = " and ".join(f"different {what} ({tally(row[what])})" for what in spans)
    return f"{head} and have {different}."
