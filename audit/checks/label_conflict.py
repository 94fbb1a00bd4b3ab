"""LABEL005: the same picture with different labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import polars as pl

from audit.checking.cases import Case
from audit.checking.check import Check, NoParams
from audit.records import Action, Finding, Severity
from audit.run.store import Store

P = {"pixel_hash": "d" * 32}


class ConflictingLabel(Check):
    """Groups of equal pictures whose labels disagree.

    ## What it does
    Compares the labels of all samples that show exactly the same pixels, whether or not their bytes
    are equal, and reports each group with two or more labels. Blank pictures (one colour, or fully
    transparent) are reported once, together.

    ## Why is this bad
    At least one of the labels is wrong, or the classes overlap. This is the simplest and most
    certain evidence of label errors, and in a test set it limits the score that any model can
    reach.

    ## Example
    The same photograph is in `bridge/` and in `viaduct/`.

    ## What to do
    Look at the picture and relabel it; the most frequent label is listed first but need not be
    right. If both labels are right, the task is multi-label: keep one sample and list both.

    ## Limits
    Only equal pixels are compared: a resized copy with another label is not found here. A missing
    label is not a conflict. Two spellings of one class (LABEL002) count as different labels.

    ## References
    Northcutt, Athalye and Mueller (2021), Pervasive Label Errors in Test Sets Destabilize Machine
    Learning Benchmarks, NeurIPS Datasets and Benchmarks.
    """

    code = "LABEL005"
    name = "conflicting-label"
    severity = Severity.ERROR
    features = ("contrast", "transparent")

    CLEAN = (
        Case("copies that agree", [P, P]),
        Case("different pictures, different labels", [{"label": "cat"}, {"label": "dog"}]),
        Case("a missing label is no conflict", [P, {**P, "label": None}]),
        Case("no picture to compare", [{"pixel_hash": None, "label": x} for x in "ab"]),
    )
    DIRTY = (
        Case(
            "one picture as cat and as dog",
            [{**P, "label": "cat"}, {**P, "label": "cat"}, {**P, "label": "dog"}],
            ["group:dddddddddddddddd"],
        ),
        Case(
            "byte-identical copies count",
            [{**P, "content_hash": "e" * 64, "label": x} for x in ("cat", "dog")],
            ["group:dddddddddddddddd"],
        ),
        Case(
            "black frames in every class are reported once",
            [{**P, "contrast": 0.0, "label": f"class {i}"} for i in range(20)],
            ["dataset:blank"],
        ),
    )

    def find(self, store: Store, params: NoParams) -> Iterator[Finding]:
        """Yield one finding per group, members sorted by id, and one for all blank groups."""
        sql = """
            WITH repeated AS (
                SELECT pixel_hash FROM images WHERE label IS NOT NULL
                GROUP BY pixel_hash HAVING count(*) > 1
            )
            SELECT pixel_hash AS hash, list(id ORDER BY id) AS ids,
                list(label ORDER BY id) AS labels,
                list(coalesce(split, '') ORDER BY id) AS splits,
                bool_or(coalesce(contrast, 1) < 0.004 OR coalesce(transparent, 0) > 0.999) AS blank
            FROM images SEMI JOIN repeated USING (pixel_hash) WHERE label IS NOT NULL
            GROUP BY pixel_hash, width, height HAVING count(DISTINCT label) > 1 ORDER BY min(id)
        """
        groups = store.query(sql)
        for row in groups.filter(~pl.col("blank")).iter_rows(named=True):
            yield self._group(row)
        blank = groups.filter(pl.col("blank"))
        if len(blank):
            yield self._blank(blank)

    def _group(self, row: Mapping[str, Any]) -> Finding:
        ranked = sorted(Counter(row["labels"]).items(), key=lambda item: (-item[1], item[0]))
        labels = ", ".join(f"{label} ({count})" for label, count in ranked)
        return Finding(
            self.code,
            self.severity,
            tuple(row["ids"]),
            f"{len(row['ids'])} samples show the same pixels with {len(ranked)} labels: {labels}.",
            {
                "labels": labels,
                "members": ", ".join(
                    f"{i} = {label}" for i, label in zip(row["ids"], row["labels"], strict=True)
                ),
                "splits": ", ".join(sorted({split for split in row["splits"] if split})),
            },
            Action.RELABEL,
            f"group:{row['hash'][:16]}",
        )

    def _blank(self, groups: pl.DataFrame) -> Finding:
        ids = sorted(chain.from_iterable(groups["ids"].to_list()))
        labels = set(chain.from_iterable(groups["labels"].to_list()))
        return Finding(
            self.code,
            Severity.INFO,
            tuple(ids),
            f"{len(ids):,} blank pictures (one colour, or fully transparent) form "
            f"{len(groups):,} groups of equal pixels with {len(labels):,} labels: they show "
            "nothing to "
            "label.",
            {"members": len(ids), "groups": len(groups), "labels": ", ".join(sorted(labels))},
            Action.REVIEW,
            "dataset:blank",
        )

    def completeness(self, store: Store, params: NoParams) -> str:
        """Say how many labelled pictures were compared."""
        sql = "SELECT count(*) FROM images WHERE pixel_hash IS NOT NULL AND label IS NOT NULL"
        return f"The labels of all {int(store.scalar(sql)):,} labelled pictures were compared."
