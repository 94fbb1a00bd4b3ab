"""BOX023: boxes of a size, shape or place that no other box of their class has."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from audit.annotations.findings import box_finding, box_text, examined
from audit.checking.cases import Case, Rows, boxed
from audit.checking.check import Check
from audit.records import Finding, Severity
from audit.run.store import Store

MOST = 5  # outliers at one end that are looked for
TAIL_MOST = 300  # and no more of them
TAIL = 0.1  # share of the boxes whose spacing says how the tail thins out
FEATURES = {
    "size": "a side (geometric mean) of", "aspect": "a width over height of",
    "horizontal": "a centre, across, at", "vertical": "a centre, down, at",
    "count": "in its picture a number of boxes of its class of",
}  # fmt: skip
# Resolution of a feature on its scale: a gap must be wide compared with it.
GRAIN = {"size": 0.05, "aspect": 0.05, "horizontal": 0.2, "vertical": 0.2, "count": 0.35}


def _many(n: int, **last: float) -> Mapping[str, Rows]:
    """Return tables of n boxes that vary; `last` changes the last one."""
    rng = np.random.default_rng(5)
    rows: list[dict[str, object]] = []
    for i in range(n):
        w, h = np.exp(rng.normal(4.6, 0.3, 2)).round(1)
        x, y = rng.uniform(0, 640 - w), rng.uniform(0, 480 - h)
        rows.append({"sample_id": f"{i:04d}.jpg", "x": x, "y": y, "width": w, "height": h})
    return boxed(*rows[:-1], {**rows[-1], **last})


class BoxOutlier(Check):
    """Boxes isolated from all others of their class in size, aspect, place, or number per picture.

    ## What it does
    For each class of at least `min_boxes`, five features on a scale on which usual tails thin out
    at a steady rate: logarithms of size (as a share of the picture), aspect and number of boxes of
    the class in the picture; logits of the centre. The tail is cut where the gap between two
    neighbours is far wider than the spacing of the tail behind it allows; what lies beyond is
    reported.

    ## Why is this bad
    Such a box is often a slip: a box around the whole picture, a sliver from two clicks, a label of
    another class. Some are rare cases that deserve to be known.

    ## Example
    Of 900 boxes of raccoons one is 640 px wide and 3 px high.

    ## What to do
    Look at the picture; correct the box, or keep it.

    ## Limits
    At most five boxes at each end; classes below `min_boxes` are not judged. The chance that a
    class without outliers is reported at all is at most `alpha` over all classes together.

    ## References
    A. Renyi, "On the theory of order statistics", 1953: spacings of an exponential tail are
    independent and exponential.
    """

    code = "BOX023"
    name = "box-outlier"
    severity = Severity.INFO
    tables = ("annotation_files",)

    @dataclass(frozen=True)
    class Params:
        """Thresholds.

        min_boxes: smallest number of boxes of a class
        alpha: chance that anything is reported where there is no outlier
        """

        min_boxes: int = 100
        alpha: float = 0.01

    CLEAN = (
        Case("boxes that vary", [{}] * 200, tables=_many(200)),
        Case("too few to tell", [{}] * 50, tables=_many(50, width=600.0, height=2.0)),
    )
    DIRTY = (
        Case("a sliver", [{}] * 200, ["0199.jpg"], tables=_many(200, width=600.0, height=2.0)),
        Case("a dot", [{}] * 200, ["0199.jpg"], tables=_many(200, width=1.5, height=1.5)),
    )

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        """Yield one finding a picture, about its most isolated box."""
        rows: dict[str, dict[str, object]] = {}
        sql = f"""
            WITH classes AS (
                SELECT file, label, row_number() OVER (ORDER BY file, label) AS class
                FROM boxes WHERE label IS NOT NULL GROUP BY file, label
                HAVING count(*) >= {int(params.min_boxes)}
            ), sized AS (
                SELECT b.rowid AS row, c.class, sample_id, width, height, x, y,
                    coalesce(picture_width, declared_width) AS w0,
                    coalesce(picture_height, declared_height) AS h0
                FROM boxes b JOIN classes c ON c.file = b.file AND c.label = b.label
                WHERE NOT crowd AND width > 0 AND height > 0 AND sample_id IS NOT NULL
            ), several AS (
                SELECT class, sample_id, count(*) AS n, min(row) AS row FROM sized
                GROUP BY class, sample_id
            )
            SELECT s.row, s.class, ln(sqrt(width * height / (w0 * h0))) AS size,
                ln(width / height) AS aspect, (x + width / 2) / w0 AS horizontal,
                (y + height / 2) / h0 AS vertical, ln(m.n) AS count
            FROM sized s LEFT JOIN several m ON m.row = s.row WHERE w0 > 0 AND h0 > 0
            ORDER BY s.row
        """
        frame = store.query(sql)
        classes = frame["class"].n_unique()
        alpha = params.alpha / (max(classes, 1) * 2 * len(FEATURES) * MOST)
        found = [
            outlier
            for _, own in sorted(frame.group_by("class"), key=lambda part: part[0])
            for outlier in _outliers(own, alpha)
        ]
        if not found:
            return
        table = pl.DataFrame(found, schema=["row", "feature", "chance", "n"], orient="row")
        best = table.sort("chance", "row").unique("row", keep="first", maintain_order=True)
        chosen = {r["row"]: r for r in best.iter_rows(named=True)}
        numbers = ", ".join(str(int(row)) for row in chosen)
        sql = (
            "SELECT b.*, b.rowid AS row, i.subject, (SELECT count(*) FROM boxes o WHERE "
            "o.sample_id = b.sample_id AND o.file = b.file AND o.category_key = b.category_key) AS "
            "of_picture FROM boxes b "
            f"JOIN images i ON i.id = b.sample_id WHERE b.rowid IN ({numbers})"
        )
        for box in store.query(sql).iter_rows(named=True):
            hit = chosen[box["row"]]
            before = rows.get(box["sample_id"])
            if before is None or hit["chance"] < float(str(before["chance"])):
                rows[box["sample_id"]] = {**box, **hit, "of_class": hit["n"], "n": 1}
        for sample in sorted(rows):
            row = rows[sample]
            feature = str(row["feature"])
            yield box_finding(
                self.code,
                self.severity,
                row,
                f"A box ({box_text(row)}) has {FEATURES[feature]} {_value(row, feature)}, far from "
                f"all other {row['of_class']:,} boxes of its class",
                {"feature": feature, "chance": float(str(row["chance"]))},
            )

    def completeness(self, store: Store, params: Params) -> str:
        """Say how many boxes are of classes large enough."""
        large = (
            "(file, label) IN (SELECT (file, label) FROM boxes GROUP BY file, label "
            f"HAVING count(*) >= {int(params.min_boxes)})"
        )
        return examined(store, large, f", those of classes of at least {params.min_boxes:,}")


def _value(row: dict[str, object], feature: str) -> str:
    x, y, w, h = (float(str(row[k])) for k in ("x", "y", "width", "height"))
    if feature == "size":
        return f"{math.sqrt(w * h):.1f} px"
    if feature == "aspect":
        return f"{w / h:.3g}"
    if feature == "horizontal":
        return f"{x + w / 2:.0f} px"
    return f"{y + h / 2:.0f} px" if feature == "vertical" else f"{row['of_picture']:,}"


def _outliers(own: pl.DataFrame, alpha: float) -> Iterator[tuple[int, str, float, int]]:
    for feature in FEATURES:
        rows, values = own["row"].to_numpy(), own[feature].to_numpy()
        if feature == "count":  # once a picture
            known = np.isfinite(values)
            # whole numbers tie: the next one up or down would have done as well
            rows, values = rows[known], values[known]
        if feature in ("horizontal", "vertical"):
            share = np.clip(values, 1e-4, 1 - 1e-4)
            values = np.log(share / (1 - share))
        for sign in (1, -1) if feature != "count" else (1,):
            ends = sign * values
            most = min(len(ends), TAIL_MOST + MOST + 2)
            order = np.argpartition(-ends, most - 1)[:most] if most else np.arange(0)
            order = order[np.argsort(-ends[order], kind="stable")]
            falling = ends[order]
            if feature == "count" and len(falling):
                falling = _apart(falling)
            n, chance = tail_cut(falling, len(ends), GRAIN[feature], alpha)
            for k in order[:n].tolist():
                yield int(rows[k]), feature, chance, own.height


def _apart(falling: np.ndarray) -> np.ndarray:
    """Return logarithms of whole numbers with every gap a step narrower: what ties may hide."""
    number = np.exp(falling)
    gaps = np.log((number[:-1] - 0.5).clip(0.5) / (number[1:] + 0.5)).clip(0)
    return np.concatenate([[0.0], -np.cumsum(gaps)])


def tail_cut(falling: np.ndarray, of: int, grain: float, alpha: float) -> tuple[int, float]:
    """Return how many values at the front lie beyond a gap, and its chance; (0, 1) for none.

    `falling` is sorted from high to low: the first ones of `of` values. Spacings k of an
    exponential tail of scale s are exponential of scale s / k; s is the mean excess of the tail
    behind the candidates, and no smaller than `grain`.
    """
    m = min(max(int(of * TAIL), 20), TAIL_MOST)
    if len(falling) < m + MOST + 1:
        return 0, 1.0
    for k in range(MOST, 0, -1):
        # what several values share is no isolation: pictures of one series, boxes of one picture
        behind = falling[k : k + m]
        scale = max(float((behind - falling[k + m]).mean()), grain)
        gap = float(falling[k - 1] - falling[k])
        chance = math.exp(-k * gap / scale) * (1 + k / m)
        # The scale is itself an estimate from m spacings: its error widens the tail.
        chance = max(chance, (1 + k * gap / (scale * m)) ** (-m))
        if chance < alpha:
            return k, chance
    return 0, 1.0
