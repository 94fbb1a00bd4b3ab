"""DUP002: files with different bytes that show the same pixels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import polars as pl

from audit.checking.cases import Case
from audit.checking.check import Check, NoParams, tally
from audit.records import Action, Finding, Severity
from audit.run.store import Store

P = {"pixel_hash": "b" * 32}
BLANK = {"contrast": 0.0, "entropy": 0.0, "sharpness": None}


class PixelIdentical(Check):
    """Groups of pictures that are equal pixel for pixel although their files differ.

    ## What it does
    Groups pictures by the hash of what they show (EXIF orientation applied, grey as RGB, alpha only
    where it is used) and by their size, and reports each group with at least two different files. A
    group across splits or labels is an error, any other group a warning. Pictures of one colour and
    fully transparent pictures are reported together in a single finding.

    ## Why is this bad
    The same as for DUP001: leaked test pictures, wrong labels, pictures that count twice. Comparing
    files misses these copies, because a tool rewrote the metadata or changed the file format.

    ## Example
    `a.png` and `b.bmp` hold the same screenshot; `c.jpg` is `d.jpg` with its EXIF block removed.

    ## What to do
    Keep one file per group, preferably the one with the original metadata; decide on the label
    first.

    ## Limits
    Lossy re-encoding changes pixels: such copies are near-duplicates (DUP003). A rotated picture
    equals its upright copy only if the rotation is stored in EXIF.

    ## References
    XXH3-128: not cryptographic, which is enough for content that nobody forges; the probability of
    a collision by chance is below 1e-20 for 1e9 pictures."""

    code = "DUP002"
    name = "pixel-identical"
    severity = Severity.WARNING
    features = ("contrast", "transparent")

    CLEAN = (
        Case("different pictures", [{}, {}]),
        Case("the same file twice: DUP001", [{**P, "content_hash": "c" * 64}] * 2),
        Case("same hash of other sizes", [{**P, "width": 4, "height": 9}, {**P, "width": 9}]),
        Case("no picture, no duplicate", [{"pixel_hash": None, "status": "unreadable"}] * 2),
    )
    DIRTY = (
        Case("a PNG and a BMP of one picture", [P, P, {}], ["group:bbbbbbbbbbbbbbbb"]),
        Case(
            "two equal files and a third that shows the same",
            [{**P, "content_hash": "c" * 64}] * 2 + [{**P, "split": "test"}],
            ["group:bbbbbbbbbbbbbbbb"],
        ),
        Case(
            "three shades of blank make one finding",
            [{**BLANK, "pixel_hash": f"{i % 3}" * 32} for i in range(30)],
            ["dataset:blank"],
        ),
        Case(
            "transparent pictures are blank too",
            [{**P, "transparent": 1.0, "contrast": 0.2}] * 2,
            ["dataset:blank"],
        ),
    )

    def find(self, store: Store, params: NoParams) -> Iterator[Finding]:
        """Yield one finding per group, members sorted by id, and one for all blank groups."""
        sql = """
            WITH repeated AS (
                SELECT pixel_hash FROM images GROUP BY pixel_hash HAVING count(*) > 1
            )
            SELECT pixel_hash AS hash, list(id ORDER BY id) AS ids,
                list(coalesce(split, '') ORDER BY id) AS splits,
                list(coalesce(label, '') ORDER BY id) AS labels,
                count(DISTINCT content_hash) AS files, width, height,
                string_agg(DISTINCT coalesce(format, '?'), ', ' ORDER BY coalesce(format, '?'))
                    AS formats,
                bool_or(coalesce(contrast, 1) < 0.004 OR coalesce(transparent, 0) > 0.999) AS blank
            FROM images SEMI JOIN repeated USING (pixel_hash)
            GROUP BY pixel_hash, width, height
            HAVING count(*) > 1 AND count(DISTINCT content_hash) > 1 ORDER BY min(id)
        """
        groups = store.query(sql)
        for row in groups.filter(~pl.col("blank")).iter_rows(named=True):
            yield self._group(row)
        blank = groups.filter(pl.col("blank"))
        if len(blank):
            yield self._blank(blank)

    def _group(self, row: Mapping[str, Any]) -> Finding:
        spans = [what for what in ("splits", "labels") if len({v for v in row[what] if v}) > 1]
        different = " and ".join(f"different {what} ({tally(row[what])})" for what in spans)
        return Finding(
            self.code,
            Severity.ERROR if spans else self.severity,
            tuple(row["ids"]),
            f"{len(row['ids'])} pictures in {row['files']} different files show the same "
            f"{row['width']} x {row['height']} pixels"
            + (f" and have {different}." if spans else ", all in one class and split."),
            {
                "members": len(row["ids"]),
                "different_files": row["files"],
                "splits": tally(row["splits"]),
                "labels": tally(row["labels"]),
                "formats": row["formats"],
            },
            Action.REVIEW if "labels" in spans else Action.DROP,
            f"group:{row['hash'][:16]}",
        )

    def _blank(self, groups: pl.DataFrame) -> Finding:
        ids = sorted(chain.from_iterable(groups["ids"].to_list()))
        return Finding(
            self.code,
            Severity.INFO,
            tuple(ids),
            f"{len(ids):,} blank pictures (one colour, or fully transparent) form "
            f"{len(groups):,} groups of equal pixels: not counted as duplicates, because all blank "
            "pictures look the same.",
            {"members": len(ids), "groups": len(groups)},
            Action.REVIEW,
            "dataset:blank",
        )

    def completeness(self, store: Store, params: NoParams) -> str:
        """Say how many pictures were compared."""
        sql = "SELECT count(pixel_hash) AS n, count(*) - count(pixel_hash) AS left_out FROM images"
        (row,) = store.rows(sql)
        return (
            f"All {row['n']:,} decodable pictures were compared; {row['left_out']:,} others were "
            "left out."
        )
