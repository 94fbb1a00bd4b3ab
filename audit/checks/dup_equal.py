"""DUP001, DUP002, LABEL005: equal files, equal pictures, and the labels of these."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, ClassVar

import polars as pl

from audit.checking.check import Check, NoParams, one_of_each_first, tally
from audit.records import Action, Evidence, Finding, Severity
from audit.run.store import Store

Row = Mapping[str, Any]


class _Equal(Check):
    features = ("contrast", "transparent")
    key = "pixel_hash"
    among = "TRUE"  # the samples that are compared
    group = "pixel_hash, width, height"
    having: ClassVar[str]  # the groups that are told

    def _groups(self, store: Store) -> pl.DataFrame:
        """Return a row for each group, its members in the order of their ids."""
        return store.query(f"""
            WITH sets AS (
                SELECT sample_id, string_agg(label, '; ' ORDER BY label) AS labels
                FROM several_labels GROUP BY sample_id
            ), labelled AS (
                SELECT i.* REPLACE (coalesce(i.label, s.labels) AS label),
                    s.labels IS NOT NULL AS several
                FROM images i LEFT JOIN sets s ON s.sample_id = i.id
            ), compared AS (FROM labelled WHERE {self.among}), repeated AS (
                SELECT {self.key} FROM compared GROUP BY {self.key} HAVING count(*) > 1
            )
            SELECT {self.key} AS hash, list(id ORDER BY id) AS ids,
                list(coalesce(split, '') ORDER BY id) AS splits,
                list(coalesce(label, '') ORDER BY id) AS labels, max(n_bytes) AS n_bytes,
                count(DISTINCT content_hash) AS files, any_value(width) AS width,
                any_value(height) AS height, bool_or(several) AS several,
                string_agg(DISTINCT coalesce(format, '?'), ', ' ORDER BY coalesce(format, '?'))
                    AS formats,
                bool_or(coalesce(contrast, 1) < 0.004 OR coalesce(transparent, 0) > 0.999) AS blank
            FROM compared SEMI JOIN repeated USING ({self.key})
            GROUP BY {self.group} HAVING {self.having} ORDER BY min(id)
        """)

    def find(self, store: Store, params: NoParams) -> Iterator[Finding]:
        groups = self._groups(store)
        for row in groups.filter(~pl.col("blank")).iter_rows(named=True):
            yield self._group(row)
        blank = groups.filter(pl.col("blank"))
        if len(blank):
            ids = sorted(chain.from_iterable(blank["ids"].to_list()))
            labels = sorted(set(chain.from_iterable(blank["labels"].to_list())))
            told, evidence = self._blank(labels)
            yield self.finding(
                "dataset:blank",
                f"{len(ids):,} blank images (one colour, or fully transparent) form "
                f"{len(blank):,} groups of equal pixels{told}.",
                {"members": len(ids), "groups": len(blank), **evidence},
                ids,
                severity=Severity.INFO,
            )

    def _group(self, row: Row) -> Finding:
        raise TypeError(f"{type(self).__name__} reports no group")

    def _blank(self, labels: Sequence[str]) -> tuple[str, Evidence]:
        """Return why blank pictures are no such groups, and what to keep of them."""
        raise TypeError(f"{type(self).__name__} reports no blank images")


def _differing(sets: Sequence[str]) -> str:
    counts = Counter(label for one in sets for label in one.split("; "))
    return ", ".join(label for label, n in counts.most_common() if n < len(sets))


def _members(row: Row) -> tuple[str, ...]:
    kinds = [f"{split}/{label}" for split, label in zip(row["splits"], row["labels"], strict=True)]
    return one_of_each_first(row["ids"], kinds)


def _spans(row: Row) -> list[str]:
    return [what for what in ("splits", "labels") if len({v for v in row[what] if v}) > 1]


def _different(row: Row, spans: Sequence[str]) -> str:
    return " and ".join(f"different {what} ({tally(row[what])})" for what in spans)


class ByteIdentical(_Equal):
    """Groups of files with the same bytes.

    ## What it does
    Groups images by the BLAKE3-256 hash of their file, one finding per group. A group whose members
    are in different splits or have different labels is an error, any other group a warning.

    ## Why is this bad
    Across splits, the model is tested on images that it was trained on. With different labels, at
    least one label is wrong. Within one class and split, the image counts twice.

    ## Example
    `train/cat/0001.jpg` and `test/cat/0101.jpg` are one file, copied.

    ## What to do
    Keep one file per group. If the copies span splits, keep none in the test split. If the labels
    differ, decide on the label first.

    ## Limits
    FILE001 reports files that cannot be decoded. Images of a single colour and fully transparent
    images are never an error, because all blank images look the same. DUP002 reports equal pixels
    in different bytes.

    ## References
    BLAKE3 specification (2020): a collision by chance has probability below 1e-60 for 1e9 files.
    """

    code = "DUP001"
    name = "byte-identical"
    severity = Severity.WARNING
    key = group = "content_hash"
    among = "status <> 'unreadable'"
    having = "TRUE"

    def find(self, store: Store, params: NoParams) -> Iterator[Finding]:
        for row in self._groups(store).iter_rows(named=True):
            spans = [] if row["blank"] else _spans(row)
            yield self.finding(
                f"group:{row['hash'][:16]}",
                _said(row, spans),
                {
                    "members": len(row["ids"]),
                    "splits": tally(row["splits"]),
                    "labels": tally(row["labels"]),
                    "n_bytes": row["n_bytes"],
                    "blank": int(row["blank"]),
                },
                _members(row),
                action=Action.REVIEW if "labels" in spans else Action.DROP,
                severity=Severity.ERROR if spans else None,
            )

    counts = """
        SELECT count(*) FILTER (WHERE content_hash IS NOT NULL AND status <> 'unreadable') AS n,
            count(*) - n AS rest FROM images
    """
    examined = "All {n:,} decodable files were compared; {rest:,} others were left out."


def _said(row: Row, spans: Sequence[str]) -> str:
    content = f"{row['n_bytes']:,} bytes" if row["n_bytes"] >= 0 else "content"
    head = f"{len(row['ids'])} files have the same {content}"
    if row["blank"]:
        return f"{head}: a blank image (one colour, or fully transparent)."
    if not spans:
        return f"{head}, all in one class and split."
    return f"{head} and have {_different(row, spans)}."


class PixelIdentical(_Equal):
    """Groups of images that are equal pixel for pixel although their files differ.

    ## What it does
    Groups images by size and by the hash of their pixels (EXIF orientation applied, grey as RGB,
    alpha only if used). Reports each group with at least two different files. A group across splits
    or labels is an error, any other group a warning. Images of one colour and fully transparent
    images are reported together in a single finding.

    ## Why is this bad
    The same as for DUP001: leaked test images, wrong labels, images that count twice. Comparing
    files misses these copies, because a tool rewrote the metadata or changed the file format.

    ## Example
    `a.png` and `b.bmp` hold the same screenshot; `c.jpg` is `d.jpg` with its EXIF block removed.

    ## What to do
    Keep one file per group, preferably the one with the original metadata; decide on the label
    first.

    ## Limits
    Lossy re-encoding changes pixels: such copies are near-duplicates (DUP003). A rotated image
    equals its upright copy only if the rotation is stored in EXIF.

    ## References
    XXH3-128: not cryptographic, which is enough for content that nobody forges; the probability of
    a collision by chance is below 1e-20 for 1e9 images."""

    code = "DUP002"
    name = "pixel-identical"
    severity = Severity.WARNING
    having = "count(*) > 1 AND count(DISTINCT content_hash) > 1"

    def _group(self, row: Row) -> Finding:
        spans = _spans(row)
        return self.finding(
            f"group:{row['hash'][:16]}",
            f"{len(row['ids'])} images in {row['files']} different files show the same "
            f"{row['width']} x {row['height']} pixels"
            + (
                f" and have {_different(row, spans)}." if spans else ", all in one class and split."
            ),
            {
                "members": len(row["ids"]),
                "different_files": row["files"],
                "splits": tally(row["splits"]),
                "labels": tally(row["labels"]),
                "formats": row["formats"],
            },
            _members(row),
            action=Action.REVIEW if "labels" in spans else Action.DROP,
            severity=Severity.ERROR if spans else None,
        )

    def _blank(self, labels: Sequence[str]) -> tuple[str, Evidence]:
        return "; they are not duplicates, because all blank images look the same", {}

    counts = "SELECT count(pixel_hash) AS n, count(*) - n AS rest FROM images"
    examined = "All {n:,} decodable images were compared; {rest:,} others were left out."


class ConflictingLabel(_Equal):
    """Groups of equal images whose labels disagree.

    ## What it does
    Compares the labels of all samples that show exactly the same pixels, whether or not their bytes
    are equal, and reports each group with two or more labels. Blank images (one colour, or fully
    transparent) are reported once, together.

    ## Why is this bad
    At least one of the labels is wrong, or the classes overlap. This is the simplest and most
    certain evidence of label errors, and in a test set it limits the score that any model can
    reach.

    ## Example
    The same photograph is in `bridge/` and in `viaduct/`.

    ## What to do
    Look at the image and relabel it; the most frequent label is listed first but need not be right.
    If both labels are right, the task is multi-label: keep one sample and list both.

    ## Limits
    Only equal pixels are compared: a resized copy with another label is not found here. For images
    with several labels, the sets are compared and the differing labels are listed. A missing label
    is not a conflict. Two spellings of one class (LABEL002) count as different labels.

    ## References
    Northcutt, Athalye and Mueller (2021), Pervasive Label Errors in Test Sets Destabilize Machine
    Learning Benchmarks, NeurIPS Datasets and Benchmarks.
    """

    code = "LABEL005"
    name = "conflicting-label"
    severity = Severity.ERROR
    among = "label IS NOT NULL"
    having = "count(DISTINCT label) > 1"

    def _group(self, row: Row) -> Finding:
        ranked: list[tuple[str, int]] = sorted(
            Counter(row["labels"]).items(), key=lambda item: (-item[1], item[0])
        )
        labels = ", ".join(f"{label} ({count})" for label, count in ranked)
        differ = ""
        if row["several"]:
            differ = f"; they differ in {_differing([label for label, _ in ranked])}"
        return self.finding(
            f"group:{row['hash'][:16]}",
            f"{len(row['ids'])} samples show the same pixels with {len(ranked)} "
            f"{'sets of ' if row['several'] else ''}labels: {labels}{differ}.",
            {
                "labels": labels,
                "members": ", ".join(
                    f"{i} = {label}" for i, label in zip(row["ids"], row["labels"], strict=True)
                ),
                "splits": ", ".join(sorted({split for split in row["splits"] if split})),
            },
            one_of_each_first(row["ids"], row["labels"]),
            action=Action.RELABEL,
        )

    def _blank(self, labels: Sequence[str]) -> tuple[str, Evidence]:
        told = f" with {len(labels):,} labels: they have no content to label"
        return told, {"labels": ", ".join(labels)}

    counts = """
        SELECT count(DISTINCT id) AS n FROM images JOIN picture_labels l USING (id)
        WHERE pixel_hash IS NOT NULL AND l.label IS NOT NULL
    """
    examined = "The labels of all {n:,} labelled images were compared."
