"""DIST003: classes that one split contains and another does not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from audit.checking.cases import Case
from audit.checking.check import QueryCheck, asked
from audit.records import Finding, Severity
from audit.run.store import Store


class ClassMissingFromSplit(QueryCheck):
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
        """max_share: a split without more than this share of the classes is reported once, 0..1
        min_common: and only if at least this many classes are missing
        train_splits: names of the training splits
        """

        max_share: float = 0.5
        min_common: int = 5
        train_splits: tuple[str, ...] = ("train", "training")

    @staticmethod
    def cases() -> Iterator[Case]:
        yield Case("both splits have both",
             [{"label": x, "split": s} for x in "ab" for s in ("train", "test")])  # fmt: skip
        yield Case("one split", [{"label": "a"}, {"label": "b"}])
        yield Case("a split without labels: LABEL001", [{}, {}, {"split": "test", "label": None}])
        yield Case("one image cannot be in two splits",
             [{"label": "a"}, {"label": "a", "split": "test"}, {"label": "b"}])  # fmt: skip
        yield Case("tested but never trained",
             [{"label": "a"}, {"label": "a", "split": "test"}, {"label": "b", "split": "test"}],
             ["split:train/class:b"])  # fmt: skip
        yield Case("trained but never tested",
             [{"label": "a"}, {"label": "a", "split": "test"}] + [{"label": "b"}] * 3,
             ["split:test/class:b"])  # fmt: skip
        yield Case("an open-set split",
             [{"label": f"t{i}"} for i in range(8)]
             + [{"label": f"q{i}", "split": "query"} for i in range(8)] * 2,
             ["split:train", "split:query"], params={"max_share": 0.4})  # fmt: skip

    sql = """
        WITH sizes AS (
            SELECT split, label, count(*) AS n FROM images
            WHERE split IS NOT NULL AND trim(coalesce(label, '')) <> '' GROUP BY split, label
        ), splits AS (
            SELECT DISTINCT split, split IN (SELECT unnest($train_splits)) AS trains FROM sizes
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
        SELECT a.split, a.label AS class, a.n AS images, a.others, a.classes,
            -- Untrained if no training split has it; reported once, for the first of them.
            a.trains AND t.label IS NULL AND a.split = k.first AS untrained,
            -- A class of fewer images than splits cannot be in all of them.
            untrained OR (NOT a.trains AND a.n >= k.splits) AS matters,
            concat('split:', a.split, '/class:', class) AS subject,
            CASE WHEN untrained THEN 'error' END AS severity,
            CASE WHEN untrained THEN 'it is tested but not trained on'
                ELSE 'its recall there is unknown' END AS why
        FROM absent a CROSS JOIN counted k LEFT JOIN trained t USING (label)
        ORDER BY a.split, a.label
    """
    message = "Class {class} has {images:,} images in {others} but 0 in {split}: {why}."
    evidence = ("class", "split", "images", "others")

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        for (split,), rows in asked(store, self.sql, params).group_by("split", maintain_order=True):
            classes = int(rows["classes"][0])
            if len(rows) > params.max_share * classes and len(rows) >= params.min_common:
                yield self.finding(
                    f"split:{split}",
                    f"Split {split} does not contain {len(rows):,} of the {classes:,} classes of "
                    "the dataset: this is intended only in open-set and zero-shot tasks.",
                    {
                        "split": str(split),
                        "missing": len(rows),
                        "classes": classes,
                        "untrained": int(rows["untrained"].sum()),
                        "names": ", ".join(rows["class"]),
                    },
                )
                continue
            for row in rows.filter("matters").iter_rows(named=True):
                yield self.of_row(row, params)
