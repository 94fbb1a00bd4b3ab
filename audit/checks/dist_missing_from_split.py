"""DIST003: classes that one split contains and another does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from audit.checking.check import QueryCheck
from audit.checking.objects import OBJECTS, Things, asked_of, object_table, things_of
from audit.records import Finding, Severity
from audit.run.store import Store
from audit.statistics.mixes import never_drawn


class ClassMissingFromSplit(QueryCheck):
    """Classes that are absent from a split that could have contained them.

    ## What it does
    With two or more labelled splits, reports each class that is missing from a split. A class that
    is in an evaluation split but in no training split is an error. A class that is missing from an
    evaluation split is a warning, if it has at least as many images as there are splits. A split
    without more than `max_share` of the classes is reported once.

    Object classes are checked in the same way. A class missing from an evaluation split is reported
    if a random split of the images lacks it with a probability of at most `chance`.

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
        chance: largest probability that a random split lacks a reported object class, 0..1
        """

        max_share: float = 0.5
        min_common: int = 5
        train_splits: tuple[str, ...] = ("train", "training")
        chance: float = 0.01

    sql = """
        WITH sizes AS (
            FROM ({sizes}) WHERE split IS NOT NULL
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
            concat('{mark}split:', a.split, '/class:', class) AS subject,
            CASE WHEN untrained THEN 'error' END AS severity,
            CASE WHEN untrained THEN 'it is tested but not trained on'
                ELSE 'its recall there is unknown' END AS why
        FROM absent a CROSS JOIN counted k LEFT JOIN trained t USING (label)
        ORDER BY a.split, a.label
    """
    message = "{one_class} {class} has {images:,} {many} in {others} but 0 in {split}: {why}."
    evidence = ("class", "split", "images", "others")

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        for things in things_of(store):
            frame, said = _absent(store, self.sql, things, params), {"one_class": things.one_class}
            if things is OBJECTS:
                frame = frame.filter(pl.col("untrained") | (pl.col("chance") <= params.chance))
            for (split,), rows in frame.group_by("split", maintain_order=True):
                classes = int(rows["classes"][0])
                if len(rows) > params.max_share * classes and len(rows) >= params.min_common:
                    yield self.finding(
                        f"{things.mark}split:{split}",
                        f"Split {split} does not contain {len(rows):,} of the {classes:,} classes"
                        f"{things.of} of the dataset: this is intended only in open-set and "
                        "zero-shot tasks.",
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
                    yield self.of_row({**row, **said, "many": things.many}, params)

    def kept(self, row: Mapping[str, Any], params: Params) -> dict[str, Any]:
        kept = super().kept(row, params)
        return {row["many"] if name == "images" else name: kept[name] for name in kept}

    def completeness(self, store: Store, params: Params) -> str:
        if OBJECTS not in things_of(store):
            return ""
        absent = _absent(store, self.sql, OBJECTS, params)
        left = absent.filter(~pl.col("untrained") & (pl.col("chance") > params.chance))
        names = ", ".join(f"{r['class']} from {r['split']}" for r in left.head(5).to_dicts())
        more = f", and {len(left) - 5:,} more" if len(left) > 5 else ""
        said = f"{len(left):,} missing object classes are within chance"
        return f"{said}: {names}{more}." if names else f"{said}."


def _absent(
    store: Store, sql: str, things: Things, params: ClassMissingFromSplit.Params
) -> pl.DataFrame:
    """Return the classes that splits lack; of objects with the chance that a random split does."""
    frame = asked_of(store, things, sql, params, mark=things.mark)
    table = store.share(object_table)
    if things is not OBJECTS or table is None:
        return frame
    everywhere, n = dict(zip(table.labels, table.sizes(table.splits), strict=True)), table.units
    sizes = {split: int(table.in_split([split]).sum()) for split in table.splits}
    held = [int(everywhere[label]) for label in frame["class"]]
    drawn = [sizes[split] for split in frame["split"]]
    total = int(n["split"].is_not_null().sum())
    tests = max(1, len(table.labels) * (len(table.splits) - 1))
    chance = never_drawn(np.array(held), np.array(drawn), total) * tests
    return frame.with_columns(pl.Series("chance", chance, pl.Float64))
