"""BOX015: boxes of a file or a class that are moved, mirrored, or of another image."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from audit.checking.boxes import BoxCheck
from audit.checking.check import asked
from audit.records import Finding, Severity
from audit.run.store import Store
from audit.statistics.box_fit import OPPOSITE as OPPOSITE_WAY
from audit.statistics.box_fit import SIZES

SIDES = ("left", "top", "right", "bottom")
OPPOSITE = {"left": "right", "right": "left", "top": "bottom", "bottom": "top"}
TOUCH = 1.0  # px: rounding, and formats that count from 1
OVERFLOW = (
    "{0:,} extend beyond the {2} edge of their image (median {1:.0f} px), and hardly any beyond "
    "the {3} edge"
)
OFFSET = (
    "{0:,} end {1:.1f} px from the {2} edge and none is nearer, but boxes of other classes reach it"
)


class ShiftedClass(BoxCheck):
    """Boxes that are all offset from their objects: shifted, mirrored, or from another image.

    ## What it does
    Computes the fit of a file: how far brightness, detail and colours differ between a box and the
    ring around it. The boxes are also tried mirrored, upside down, rotated by 180 degrees, with x
    and y exchanged, on the previous or next image, at half and double size, and shifted by 6 to 19%
    of the image or by half a box. Reported if a change fits better by `min_z` standard errors over
    at least 30 images, and in more than half of them (for another size: in `min_share_of_size`).
    Two tests per class use the distances of the boxes from the four sides. Overflow: many boxes lie
    outside one side and none outside the opposite one (binomial test). Offset: boxes of objects
    that the edge cuts end exactly at it. The class was shifted or scaled if many of its boxes end
    at the same distance from a side, none is nearer, and other classes reach that side (Poisson
    test against the density of larger distances).

    ## Why is this bad
    Every box is slightly wrong, so no single box looks wrong, and the detector learns the offset.
    From images that were mirrored without their boxes it learns background.

    ## Example
    One class was converted with the padded size. 41 of its boxes end 12 px from the left edge, none
    nearer; 300 boxes of other classes touch the edge.

    ## What to do
    Find the conversion step that differs for this class or these images, and correct the boxes.

    ## Limits
    Overflow and offset need `min_boxes` boxes, and objects that the edge cuts. Their false-alarm
    rate is at most `alpha` per file. The fit is computed at 32 x 32 px: boxes below 1/8 of the
    image, shifts of a few pixels, and errors in a part of the file are not detected. The size is
    not tested for boxes without room for a ring. Boxes of faces or groups may fit better at another
    size. Boxes of random other images fit nowhere and are not reported.

    ## References
    Exact binomial test; Poisson test; Bonferroni's correction over classes and sides.
    """

    code = "BOX015"
    name = "shifted-class"
    severity = Severity.WARNING

    @dataclass(frozen=True)
    class Params:
        """min_boxes: smallest number of boxes of a class
        min_at_side: smallest number of boxes that lie outside, or end at the same distance
        alpha: chance of a false alarm, per file
        min_z: standard errors of a better fit: 3.75 is 1 in 300 over 40 positions
        min_share_of_size: share of images whose boxes must fit better at another size
        """

        min_boxes: int = 30
        min_at_side: int = 8
        alpha: float = 0.001
        min_z: float = 3.75
        min_share_of_size: float = 0.75

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        yield from self._elsewhere(store, params)
        sql = """
            SELECT b.file, b.label, x AS left, y AS top, picture_width - x - width AS right,
                picture_height - y - height AS bottom
            FROM boxes b JOIN (
                SELECT file, label FROM boxes GROUP BY file, label HAVING count(*) >= $min_boxes
            ) c ON c.file = b.file AND c.label = b.label
            WHERE picture_width > 0 AND NOT crowd AND kind = 'box' AND width > 0 AND height > 0
        """
        gaps = asked(store, sql, params)
        for (file,), of_file in sorted(gaps.group_by("file"), key=lambda part: str(part[0])):
            yield from self._judge_file(str(file), of_file, params)

    def _elsewhere(self, store: Store, params: Params) -> Iterator[Finding]:
        sql = f"""
            SELECT * FROM box_fits WHERE gain_z >= $min_z
                AND share > if(elsewhere IN {tuple(SIZES)}, $min_share_of_size, 0.5)
            QUALIFY row_number() OVER (PARTITION BY file ORDER BY gain_z DESC) = 1 ORDER BY file
        """
        for row in asked(store, sql, params).iter_rows(named=True):
            where = row["elsewhere"].replace("%", "% of the image")
            if _as_well_opposite(store, row):
                where = "with an offset in an unknown direction"
            size = row["elsewhere"] in SIZES
            yield self.finding(
                f"dataset:{row['file']}/fit",
                f"The {row['boxes']:,} boxes in {row['file']} fit better {where} than as "
                f"annotated, in {row['share']:.0%} of {row['units']:,} images ({row['gain_z']:.1f} "
                "standard "
                f"errors){', unless they mark a part or more than an object on purpose' * size}.",
                {k: v for k, v in row.items() if v is not None},
                severity=Severity.INFO if size else None,
            )

    def _judge_file(self, file: str, gaps: pl.DataFrame, params: Params) -> Iterator[Finding]:
        classes = gaps["label"].n_unique()
        alpha = params.alpha / (8 * classes)
        touching = {side: int((gaps[side] <= TOUCH).sum()) for side in SIDES}
        for (label,), own in sorted(gaps.group_by("label"), key=lambda part: str(part[0])):
            if own.height < params.min_boxes:
                continue
            for side in SIDES:
                near, far = own[side].to_numpy(), own[OPPOSITE[side]].to_numpy()
                others = touching[side] - int((near <= TOUCH).sum())
                found = _overflow(near, far, alpha, params) or (
                    _offset(near, alpha, params) if others >= params.min_at_side else None
                )
                if found is not None:
                    what, count, distance, chance = found
                    told = what.format(count, distance, side, OPPOSITE[side])
                    yield self.finding(
                        f"class:{label}/{side}",
                        f"Of the {own.height:,} boxes of {label} in {file}, {told}: the class was "
                        f"probably shifted or scaled (p = {chance:.0e}).",
                        {"class": str(label), "file": file, "side": side, "boxes": own.height,
                         "at_side": count, "distance_px": distance, "chance": chance},
                    )  # fmt: skip

    judged = "label IS NOT NULL AND width > 0"
    how = ", by class"


def _as_well_opposite(store: Store, row: Mapping[str, Any]) -> bool:
    """Return whether boxes fit nearly as well on the opposite side: a large box may do so."""
    step, further, way = row["elsewhere"].partition(" further ")
    if not further:
        return False
    sql = """
        SELECT max(gain_z) FROM box_fits
        WHERE file = ? AND elsewhere = ?
    """
    opposite = store.scalar(sql, [row["file"], f"{step}{further}{OPPOSITE_WAY[way]}"])
    return bool(opposite is not None and opposite > row["gain_z"] / 2)


def _overflow(
    near: np.ndarray, far: np.ndarray, alpha: float, params: ShiftedClass.Params
) -> tuple[str, int, float, float] | None:
    out, opposite = near < -TOUCH, int((far < -TOUCH).sum())
    n = int(out.sum())
    if n < params.min_at_side or n < 0.05 * len(near):
        return None
    chance = _binomial_tail(n, n + opposite)
    return (OVERFLOW, n, float(-np.median(near[out])), chance) if chance < alpha else None


def _binomial_tail(n: int, of: int) -> float:
    logs = [
        math.lgamma(of + 1) - math.lgamma(k + 1) - math.lgamma(of - k + 1) - of * math.log(2)
        for k in range(n, of + 1)
    ]
    return float(min(1.0, sum(math.exp(v) for v in logs)))


def _offset(
    near: np.ndarray, alpha: float, params: ShiftedClass.Params
) -> tuple[str, int, float, float] | None:
    least = float(near.min())
    if least < 2.0:
        return None
    n = int((near <= least + 0.5).sum())
    behind = int(((near > least + 0.5) & (near <= least + 20.5)).sum())
    expected = max(behind / 20, 0.25)
    if n < params.min_at_side:
        return None
    # Chernoff's bound of the Poisson tail: never too small a chance.
    chance = math.exp(min(0.0, n - expected - n * math.log(n / expected)))
    return (OFFSET, n, least, chance) if chance < alpha else None
