"""DIST003: classes that one split contains and another does not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from audit.checking.cases import Case
from audit.checking.check import Check
from audit.records import Action, Finding, Severity
from audit.run.store import Store


class ClassMissingFromSplit(Check):
    """Classes that are absent from a split that could have contained them.

    ## What it does
    With two or more labelled splits, reports each class that is missing from a split. A class that
    is in an evaluation split but in no training split is an error. A class that is missing from an
    evaluation split is a warning, if it has at least as many images as there are splits. A split
    without more than `max_share` of the classes is reported once.

    ## Why is this bad
    A model cannot recognise a class that it was not trained on: each such test image is a certain
    error. A class that is not tested has no score, and the macro average covers fewer classes than
    it seems to.

    ## Example
    `test/okapi` has 12 images, `train/okapi` none.

    ## What to do
    Split again by class (stratified), or state in the report which classes are left out, and why.

    ## Limits
    Open-set and zero-shot tasks separate classes on purpose: they get one finding per split.
    Near-miss names (LABEL002) look like missing classes: fix those first.

    ## References
    Kohavi (1995), A Study of Cross-Validation and Bootstrap for Accuracy Estimation, IJCAI:
    stratified splits."""

    code = "DIST003"
    name = "class-missing-from-split"
    severity = Severity.WARNING

    @dataclass(frozen=True)
    class Params:
        """Thresholds.

        max_share: a split without more than this share of the classes is reported once, 0..1
        min_common: and only if at least this many classes are missing
        train_splits: names of the training splits
        """

        max_share: float = 0.5
        min_common: int = 5
        train_splits: tuple[str, ...] = ("train", "training")

    CLEAN = (
        Case("both splits have both",
             [{"label": x, "split": s} for x in "ab" for s in ("train", "test")]),
        Case("one split", [{"label": "a"}, {"label": "b"}]),
        Case("a split without labels: LABEL001", [{}, {}, {"split": "test", "label": None}]),
        Case("one image cannot be in two splits",
             [{"label": "a"}, {"label": "a", "split": "test"}, {"label": "b"}]),
    )  # fmt: skip
    DIRTY = (
        Case("tested but never trained",
             [{"label": "a"}, {"label": "a", "split": "test"}, {"label": "b", "split": "test"}],
             ["split:train/class:b"]),
        Case("trained but never tested",
             [{"label": "a"}, {"label": "a", "split": "test"}] + [{"label": "b"}] * 3,
             ["split:test/class:b"]),
        Case("an open-set split",
             [{"label": f"t{i}"} for i in range(8)]
             + [{"label": f"q{i}", "split": "query"} for i in range(8)] * 2,
             ["split:train", "split:query"], params={"max_share": 0.4}),
    )  # fmt: skip

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        """Yield one finding per split and class, or one per split without many of the classes."""
        missing: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in _missing(store, params):
            missing[row["split"]].append(row)
        for split, rows in missing.items():
            classes = rows[0]["classes"]
            if len(rows) > params.max_share * classes and len(rows) >= params.min_common:
                yield self._many(split, rows, classes)
            else:
                yield from (self._one(split, row) for row in rows if row["matters"])

    def _one(self, split: str, row: Mapping[str, Any]) -> Finding:
        where = f"{row['n']:,} images in {row['others']}"
        if row["untrained"]:
            text = (
                f"Class {row['label']} has {where} but 0 in {split}: it is tested but not trained "
                "on."
            )
        else:
            text = (
                f"Class {row['label']} has {where} but 0 in {split}: its recall there is unknown."
            )
        return Finding(
            self.code,
            Severity.ERROR if row["untrained"] else self.severity,
            (),
            text,
            {"class": row["label"], "split": split, "images": row["n"], "others": row["others"]},
            Action.REVIEW,
            f"split:{split}/class:{row['label']}",
        )

    def _many(self, split: str, rows: Sequence[Mapping[str, Any]], classes: int) -> Finding:
        return Finding(
            self.code,
            self.severity,
            (),
            f"Split {split} does not contain {len(rows):,} of the {classes:,} classes of the "
            "dataset: "
            "this is intended only in open-set and zero-shot tasks.",
            {
                "split": split,
                "missing": len(rows),
                "classes": classes,
                "untrained": sum(bool(row["untrained"]) for row in rows),
                "names": ", ".join(row["label"] for row in rows),
            },
            Action.REVIEW,
            f"split:{split}",
        )


def _missing(store: Store, params: ClassMissingFromSplit.Params) -> list[dict[str, Any]]:
    """Return a row for each pair of labelled split and class without an image."""
    sql = """
        WITH sizes AS (
            SELECT split, label, count(*) AS n FROM images
            WHERE split IS NOT NULL AND trim(coalesce(label, '')) <> '' GROUP BY split, label
        ), splits AS (
            SELECT DISTINCT split, split IN (SELECT unnest(?)) AS trains FROM sizes
        ), classes AS (
            SELECT label, sum(n) :: BIGINT AS n, string_agg(split, ', ' ORDER BY split) AS others,
                count(*) OVER () AS classes
            FROM sizes GROUP BY label
        ), trained AS (
            SELECT DISTINCT label FROM sizes SEMI JOIN (FROM splits WHERE trains) t USING (split)
        ), absent AS (
            SELECT s.split, s.trains, c.label, c.n, c.others, c.classes
            FROM splits s CROSS JOIN classes c
            WHERE NOT EXISTS (SELECT 1 FROM sizes z WHERE z.split = s.split AND z.label = c.label)
        ), counted AS (
            SELECT count(*) AS splits, min(split) FILTER (WHERE trains) AS first FROM splits
        )
        SELECT a.*,
            -- Untrained if no training split has it; reported once, for the first of them.
            a.trains AND t.label IS NULL AND a.split = k.first AS untrained,
            -- A class of fewer images than splits cannot be in all of them.
            (a.trains AND t.label IS NULL AND a.split = k.first)
                OR (NOT a.trains AND a.n >= k.splits) AS matters
        FROM absent a CROSS JOIN counted k LEFT JOIN trained t USING (label)
        ORDER BY a.split, a.label
    """
    return store.rows(sql, [list(params.train_splits)])
