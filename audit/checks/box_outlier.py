"""BOX023: boxes of a size, shape or place that no other box of their class has."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from audit.checking.boxes import BoxCheck, Row, box_text
from audit.checking.check import asked
from audit.records import Finding, Severity
from audit.run.store import Store
from audit.statistics.outlying import MOST, TAIL_MOST, tail_cut

# How each feature is told, with its value and the number of boxes of the class.
FEATURES = {
    "size": "has a size (geometric mean) of {}, far from all other {:,} boxes of its class",
    "aspect": "has an aspect ratio of {}, far from all other {:,} boxes of its class",
    "horizontal": "has its centre at {} from the left, far from all other {:,} boxes of its class",
    "vertical": "has its centre at {} from the top, far from all other {:,} boxes of its class",
    "count": "is one of {} of its class in its image, far more than in any other image; the "
    "class has {:,} boxes",
    "all": "is one of {} in its image, far more than in any other image; the file has {:,} boxes",
}
COUNTS = ("count", "all")
# Resolution of a feature on its scale: a gap must be wide compared with it.
GRAIN = {
    "size": 0.05,
    "aspect": 0.05,
    "horizontal": 0.2,
    "vertical": 0.2,
    "count": 0.35,
    "all": 0.35,
}


class BoxOutlier(BoxCheck):
    """Boxes far from all others of their class in size, aspect, position, or number per image.

    ## What it does
    Compares the boxes of each class of at least `min_boxes` by the logarithms of size (as a share
    of the image), aspect ratio and number per image, and by the logits of the centre. In files of
    at least `min_boxes` boxes, the number of all boxes per image is compared too. Boxes beyond a
    gap are reported if the gap is far wider than the spacing of the tail allows.

    ## Why is this bad
    An outlier is often a mistake: a box around the whole image, a sliver from two clicks, a wrong
    class. Some outliers are valid rare cases.

    ## Example
    One of 900 raccoon boxes is 640 px wide and 3 px high.

    ## What to do
    Review the image; correct or keep the box.

    ## Limits
    At most five boxes are reported at each end. Classes below `min_boxes` are not checked. Without
    outliers, the chance of any finding is at most `alpha` over all classes.

    ## References
    A. Renyi, "On the theory of order statistics", 1953: spacings of an exponential tail are
    independent and exponential.
    """

    code = "BOX023"
    name = "box-outlier"
    severity = Severity.INFO

    @dataclass(frozen=True)
    class Params:
        """min_boxes: smallest number of boxes of a class
        alpha: chance of any finding in a dataset without outliers
        """

        min_boxes: int = 100
        alpha: float = 0.01

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        sql = """
            WITH classes AS (
                SELECT file, label, row_number() OVER (ORDER BY file, label) AS class
                FROM boxes WHERE label IS NOT NULL GROUP BY file, label
                HAVING count(*) >= $min_boxes
            ), sized AS (
                SELECT b.rowid AS row, c.class, sample_id, width, height, x, y,
                    coalesce(picture_width, declared_width) AS w0,
                    coalesce(picture_height, declared_height) AS h0
                FROM boxes b JOIN classes c ON c.file = b.file AND c.label = b.label
                WHERE NOT crowd AND width > 0 AND height > 0 AND sample_id IS NOT NULL
            ), several AS (
                SELECT class, sample_id, count(*) AS n, min(row) AS row FROM sized
                GROUP BY class, sample_id
            ), held AS (
                SELECT file, sample_id, count(*) AS n, min(rowid) AS row FROM boxes
                WHERE NOT crowd AND width > 0 AND height > 0 AND sample_id IS NOT NULL
                GROUP BY file, sample_id
            )
            SELECT s.row, s.class, ln(sqrt(width * height / (w0 * h0))) AS size,
                ln(width / height) AS aspect, (x + width / 2) / w0 AS horizontal,
                (y + height / 2) / h0 AS vertical, ln(m.n) AS count, NULL AS all,
                count(*) OVER (PARTITION BY s.class) AS boxes
            FROM sized s LEFT JOIN several m ON m.row = s.row WHERE w0 > 0 AND h0 > 0
            UNION ALL BY NAME
            SELECT row, -dense_rank() OVER (ORDER BY file) AS class, ln(n) AS all,
                sum(n) OVER (PARTITION BY file) AS boxes
            FROM held QUALIFY boxes >= $min_boxes
            ORDER BY row, class
        """
        frame = asked(store, sql, params)
        classes = frame["class"].n_unique()
        alpha = params.alpha / (max(classes, 1) * 2 * len(FEATURES) * MOST)
        found = [
            outlier
            for _, own in sorted(frame.group_by("class"), key=_classes_first)
            for outlier in _outliers(own, alpha)
        ]
        if not found:
            return
        table = pl.DataFrame(found, schema=["row", "feature", "chance", "of_class"], orient="row")
        best = table.sort("chance", "row").unique("row", keep="first", maintain_order=True)
        sql = """
            SELECT b.*, b.rowid AS row, i.subject, 1 AS n, (SELECT count(*) FROM boxes o WHERE
                o.sample_id = b.sample_id AND o.file = b.file) AS of_all,
                (SELECT count(*) FROM boxes o WHERE o.sample_id = b.sample_id AND o.file = b.file
                    AND o.category_key = b.category_key) AS of_picture
            FROM boxes b JOIN images i ON i.id = b.sample_id
            WHERE b.rowid IN (SELECT unnest($rows))
        """
        boxes = asked(store, sql, params, rows=best["row"].to_list()).join(best, on="row")
        boxes = boxes.sort("sample_id", "chance", "row").unique("sample_id", keep="first")
        for row in boxes.sort("sample_id").iter_rows(named=True):
            feature = row["feature"]
            yield self.about_box(
                row,
                f"A box ({box_text(row)}) "
                + FEATURES[feature].format(_value(row, feature), row["of_class"]),
                {"feature": feature, "chance": row["chance"]},
            )

    judged = """
        (file, label) IN (SELECT (file, label) FROM boxes GROUP BY file, label
            HAVING count(*) >= $min_boxes)
    """
    how = ", in classes of at least {params.min_boxes:,} boxes"


def _classes_first(part: tuple[tuple[object, ...], pl.DataFrame]) -> tuple[bool, int]:
    number = int(str(part[0][0]))
    return number < 0, number  # files have numbers below 0


def _value(row: Row, feature: str) -> str:
    x, y, w, h = (row[name] for name in ("x", "y", "width", "height"))
    if feature == "size":
        return f"{math.sqrt(w * h):.1f} px"
    if feature == "aspect":
        return f"{w / h:.3g}"
    if feature == "horizontal":
        return f"{x + w / 2:.0f} px"
    if feature == "vertical":
        return f"{y + h / 2:.0f} px"
    return f"{row['of_all' if feature == 'all' else 'of_picture']:,}"


def _outliers(own: pl.DataFrame, alpha: float) -> Iterator[tuple[int, str, float, int]]:
    for feature in FEATURES:
        # what is counted is told once a picture, of all classes in a row of its own
        own_rows = own.drop_nulls(feature)
        rows, values = own_rows["row"].to_numpy(), own_rows[feature].to_numpy().astype(float)
        if feature in ("horizontal", "vertical"):
            share = np.clip(values, 1e-4, 1 - 1e-4)
            values = np.log(share / (1 - share))
        for sign in (1, -1) if feature not in COUNTS else (1,):
            ends = sign * values
            most = min(len(ends), TAIL_MOST + MOST + 2)
            order = np.argpartition(-ends, most - 1)[:most] if most else np.arange(0)
            order = order[np.argsort(-ends[order], kind="stable")]
            falling = ends[order]
            if feature in COUNTS and len(falling):
                falling = _apart(falling)
            n, chance = tail_cut(falling, len(ends), GRAIN[feature], alpha)
            for k in order[:n].tolist():
                yield int(rows[k]), feature, chance, int(own["boxes"][0])


def _apart(falling: np.ndarray) -> np.ndarray:
    """Return logarithms of whole numbers with every gap a step narrower: what ties may hide."""
    number = np.exp(falling)
    gaps = np.log((number[:-1] - 0.5).clip(0.5) / (number[1:] + 0.5)).clip(0)
    return np.concatenate([[0.0], -np.cumsum(gaps)])
