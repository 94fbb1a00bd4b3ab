"""DIST002: classes too small for a reliable recall."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from audit.checking.check import Check
from audit.checking.objects import OBJECTS, PICTURES, Things, asked_of, object_table, things_of
from audit.records import Finding, Severity
from audit.run.store import Store
from audit.statistics.intervals import rarity, wilson_share


class RareClass(Check):
    """Classes that are small compared with the median class and whose recall has a wide interval.

    ## What it does
    Computes the 95% Wilson interval of a recall of `recall` for each class and evaluation split
    (every split not in `train_splits`; the whole dataset if there is none). A class is reported if
    the interval is wider than +-`max_half_width` and the class is rare in that split or in the
    whole dataset. Rare means at most `max_share_of_median` of the median class's images, and fewer
    than chance explains (Poisson test at `rate`).

    Object classes are counted by the images that contain the class, because objects of one image
    are not independent.

    ## Why is this bad
    With 4 test images, a recall of 80% has a 95% CI of 33% to 97%. Two models cannot be compared on
    this class, and macro averages inherit the noise.

    ## Example
    `okapi` has 4 of 1,000 test images: the 95% CI of a recall of 80% is 33% to 97%.

    ## What to do
    Move or collect images until the interval is as narrow as you need, report the class with its
    interval, or merge it with a similar class before training.

    ## Limits
    LABEL004 reports classes of one sample, DIST003 classes that are absent from a split. If all
    classes are equally small, none is rare: the completeness line gives the interval of the median
    class. Duplicates make the true interval wider.

    ## References
    Wilson (1927), Probable Inference, the Law of Succession, and Statistical Inference, JASA
    22:209."""

    code = "DIST002"
    name = "rare-class"
    severity = Severity.WARNING

    @dataclass(frozen=True)
    class Params:
        """max_share_of_median: rare if at most this share of the median class's images, 0..1
        max_half_width: and only if the 95% CI of the recall is wider than +- this, 0..1
        recall: the measured recall whose interval is computed, 0..1
        rate: largest share of datasets in which chance makes a class this small, 0..1
        train_splits: splits that are not used for evaluation
        """

        max_share_of_median: float = 0.2
        max_half_width: float = 0.1
        recall: float = 0.8
        rate: float = 0.01
        train_splits: tuple[str, ...] = ("train", "training")

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        for things in things_of(store):
            yield from self._rare(store, params, things)

    def _rare(self, store: Store, params: Params, things: Things) -> Iterator[Finding]:
        many = "images" if things is PICTURES else "images with it"
        for label, group in groupby(_sizes(store, params, things), key=lambda row: row["label"]):
            rows = list(group)
            if not any(row["small"] and row["half"] > params.max_half_width for row in rows):
                continue
            sizes = [
                f"{row['n']:,} {many} in {row['split']} (median class {row['median']:,.0f}); CI of "
                f"a recall of {params.recall:.0%}: {row['low']:.0%} to {row['high']:.0%}"
                for row in rows
            ]
            evidence: dict[str, Any] = {"class": label, "images": rows[0]["total"]}
            for row in rows:
                evidence[f"{row['split']}_images"] = row["n"]
                evidence[f"{row['split']}_recall_low"] = row["low"]
                evidence[f"{row['split']}_recall_high"] = row["high"]
            yield self.finding(
                f"{things.mark}class:{label}",
                f"{things.one_class} {label} is rare: {'; '.join(sizes)} (95% CI).",
                evidence,
            )

    def completeness(self, store: Store, params: Params) -> str:
        median = {row["split"]: row["median"] for row in _sizes(store, params, PICTURES)}
        intervals = []
        for split, n in median.items():
            low, high = wilson_share(params.recall, n)
            intervals.append(f"{n:,.0f} images in {split} ({float(low):.0%} to {float(high):.0%})")
        if not intervals:
            table = store.share(object_table)
            many = f"{len(table.labels):,} classes of objects were counted" if table else ""
            return f"{many}, by the images that contain them." if many else ""
        return (
            f"The median class has {', '.join(intervals)}: 95% CI at a recall of "
            f"{params.recall:.0%}."
        )


# In how many pictures each class is: objects of one picture are right or wrong together.
LABELLED = {
    PICTURES: "SELECT label, coalesce(split, '') AS split, count(*) AS k FROM picture_labels "
    "WHERE trim(coalesce(label, '')) <> '' GROUP BY ALL",
    OBJECTS: "SELECT label, coalesce(split, '') AS split, units AS k FROM object_sizes",
}
LEAST = {PICTURES: 1, OBJECTS: 0}  # a class of one picture is LABEL004's
# {labelled} and {least} are those of the things that are counted.
SIZES = """
    WITH labelled AS ({labelled}), marked AS (
        SELECT label, k, CASE WHEN split IN (SELECT unnest($train_splits)) THEN NULL
            WHEN split = '' THEN 'the dataset' ELSE split END AS split FROM labelled
    ), evaluated AS (
        SELECT label, split, k FROM marked WHERE split IS NOT NULL
        UNION ALL
        -- With training data alone, all images count as evaluated.
        SELECT label, 'the dataset', k FROM marked
        WHERE NOT EXISTS (SELECT 1 FROM marked WHERE split IS NOT NULL)
    ), totals AS (
        SELECT label, sum(k)::BIGINT AS total, median(sum(k)::BIGINT) OVER () AS median_total
        FROM labelled GROUP BY label
    ), sizes AS (
        SELECT split, label, sum(k)::BIGINT AS n,
            median(sum(k)::BIGINT) OVER (PARTITION BY split) AS median
        FROM evaluated GROUP BY split, label
    ), everywhere AS (
        -- For a class that no evaluation split contains, the total decides.
        SELECT * FROM sizes UNION ALL
        SELECT 'the dataset', label, total, median_total FROM totals
        WHERE label NOT IN (SELECT label FROM evaluated)
    )
    SELECT e.*, t.total, t.median_total,
        e.n <= $max_share_of_median * e.median AS few_here,
        t.total <= $max_share_of_median * t.median_total AS few
    FROM everywhere e JOIN totals t USING (label) WHERE t.total > {least} ORDER BY label, split
"""


def _sizes(store: Store, params: RareClass.Params, things: Things) -> list[dict[str, Any]]:
    parts = {"labelled": LABELLED[things], "least": str(LEAST[things])}
    frame = asked_of(store, things, SIZES, params, **parts)
    if frame.is_empty():
        return []
    # Wilson, not normal: at a handful of images the normal interval leaves 0..1.
    low, high = wilson_share(params.recall, frame["n"].to_numpy())
    # Where a split has few pictures of every class, chance leaves some with hardly any.
    here = rarity(frame["n"], frame["median"]) <= params.rate
    total = rarity(frame["total"], frame["median_total"]) <= params.rate
    small = (frame["few_here"].to_numpy() & here) | (frame["few"].to_numpy() & total)
    return [
        {**row, "low": float(a), "high": float(b), "half": float(b - a) / 2, "small": bool(few)}
        for row, a, b, few in zip(frame.iter_rows(named=True), low, high, small, strict=True)
    ]
