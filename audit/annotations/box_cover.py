"""How much of a picture its boxes cover together, and how far each overlaps another.

The union of boxes is swept from left to right: between two neighbouring edges the boxes that are
open are merged along y, so that nothing is counted twice. Exact; quadratic in the boxes of one
picture. Few boxes are computed with numpy, because compiled code takes longer to load.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from audit.neighbors.kernels.compiled import compiled_on_first_call

Numbers = NDArray[np.float64]
Integers = NDArray[np.int64]
FEW = 20_000  # boxes up to which numpy is quicker than loading the compiled code


@compiled_on_first_call
def _sort(values: Numbers) -> None:
    """Sort a few numbers in place: an insertion, because a library's sort costs more to begin."""
    for i in range(1, len(values)):
        value, k = values[i], i
        while k > 0 and values[k - 1] > value:
            values[k] = values[k - 1]
            k -= 1
        values[k] = value


@compiled_on_first_call
def _fill_overlap(boxes: Numbers, overlap: Numbers, touching: NDArray[np.bool_]) -> None:
    """Fill each box's greatest IoU with another one, and whether it touches one."""
    for i in range(len(boxes)):
        x0, y0, x1, y1 = boxes[i, 0], boxes[i, 1], boxes[i, 2], boxes[i, 3]
        for j in range(i):
            wide = min(x1, boxes[j, 2]) - max(x0, boxes[j, 0])
            if wide <= 0:
                continue
            tall = min(y1, boxes[j, 3]) - max(y0, boxes[j, 1])
            if tall <= 0:
                continue
            other = (boxes[j, 2] - boxes[j, 0]) * (boxes[j, 3] - boxes[j, 1])
            iou = wide * tall / ((x1 - x0) * (y1 - y0) + other - wide * tall)
            overlap[i], overlap[j] = max(overlap[i], iou), max(overlap[j], iou)
            touching[i] = touching[j] = True


@compiled_on_first_call
def _union(boxes: Numbers, edges: Numbers) -> float:
    """Return the area of the union; `boxes` are sorted by their upper edge."""
    n, total = len(boxes), 0.0
    edges[:n], edges[n : 2 * n] = boxes[:, 0], boxes[:, 2]
    _sort(edges[: 2 * n])
    for e in range(2 * n - 1):
        low, high, reach, length = edges[e], edges[e + 1], -np.inf, 0.0
        if high <= low:
            continue
        for k in range(n):
            if boxes[k, 0] <= low and boxes[k, 2] >= high and boxes[k, 3] > reach:
                length += boxes[k, 3] - max(boxes[k, 1], reach)
                reach = boxes[k, 3]
        total += length * (high - low)
    return total


@compiled_on_first_call
def _fill(corners: Numbers, offsets: Integers, cover: Numbers, overlap: Numbers) -> None:
    """Fill the union of each picture (squared units), and of each box its greatest IoU.

    The boxes of a picture are sorted by their upper edge.
    """
    most = 0
    for p in range(len(offsets) - 1):
        most = max(most, offsets[p + 1] - offsets[p])
    edges, some = np.empty(2 * most), np.empty((most, 4))
    touching = np.zeros(len(corners), np.bool_)
    for p in range(len(offsets) - 1):
        first, last = offsets[p], offsets[p + 1]
        boxes = corners[first:last]
        _fill_overlap(boxes, overlap[first:last], touching[first:last])
        n, alone = 0, 0.0
        for i in range(len(boxes)):
            if touching[first + i]:
                some[n] = boxes[i]
                n += 1
            else:
                alone += (boxes[i, 2] - boxes[i, 0]) * (boxes[i, 3] - boxes[i, 1])
        cover[p] = alone + _union(some[:n], edges)


def cover_and_overlap(
    corners: Numbers, offsets: Integers, few: int = FEW
) -> tuple[Numbers, Numbers]:
    """Return the area that the boxes of each picture cover, and each box's greatest IoU.

    `corners` (boxes, 4) are left, top, right, bottom, cut to the picture; picture p has the boxes
    offsets[p] to offsets[p + 1], sorted by their upper edge. Up to `few` boxes are
    computed without compiled code.
    """
    cover, overlap = np.zeros(len(offsets) - 1), np.zeros(len(corners))
    if len(corners) > few:
        _fill(np.ascontiguousarray(corners), np.ascontiguousarray(offsets), cover, overlap)
        return cover, overlap
    for p in range(len(offsets) - 1):
        part = slice(int(offsets[p]), int(offsets[p + 1]))
        cover[p], overlap[part] = _one_picture(corners[part])
    return cover, overlap


def _one_picture(boxes: Numbers) -> tuple[float, Numbers]:
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    if len(boxes) < 2:
        return float(area.sum()), np.zeros(len(boxes))
    wide = np.minimum.outer(boxes[:, 2], boxes[:, 2]) - np.maximum.outer(boxes[:, 0], boxes[:, 0])
    tall = np.minimum.outer(boxes[:, 3], boxes[:, 3]) - np.maximum.outer(boxes[:, 1], boxes[:, 1])
    both = wide.clip(0) * tall.clip(0)
    np.fill_diagonal(both, 0.0)
    union = np.add.outer(area, area) - both
    iou = np.divide(both, union, out=np.zeros_like(both), where=union > 0).max(1)
    if not both.any():
        return float(area.sum()), iou
    across, down = np.unique(boxes[:, [0, 2]]), np.unique(boxes[:, [1, 3]])
    filled = np.zeros((len(down) - 1, len(across) - 1), bool)
    columns, rows = (
        np.searchsorted(across, boxes[:, [0, 2]]),
        np.searchsorted(down, boxes[:, [1, 3]]),
    )
    for (left, right), (top, bottom) in zip(columns.tolist(), rows.tolist(), strict=True):
        filled[top:bottom, left:right] = True
    return float(np.diff(down) @ filled @ np.diff(across)), iou
