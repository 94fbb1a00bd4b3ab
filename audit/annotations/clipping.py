"""Boxes and rings cut at the edge of their picture, and what is left of their area."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

Point = tuple[float, float]
Corners = tuple[float, float, float, float]


def clip_box(box: Corners, width: float, height: float) -> Corners | None:
    """Return the part of a box (x, y, width, height) inside the picture, None without any."""
    x, y, w, h = box
    left, top = max(x, 0.0), max(y, 0.0)
    right, bottom = min(x + w, width), min(y + h, height)
    if right <= left or bottom <= top:
        return None
    return left, top, right - left, bottom - top


def clip_ring(ring: Sequence[float], width: float, height: float) -> list[float]:
    """Return the part of a polygon x, y, ... inside the picture; [] without any.

    Sutherland and Hodgman, "Reentrant polygon clipping", CACM 1974: edge by edge.
    """
    points: list[Point] = list(zip(ring[0::2], ring[1::2], strict=False))
    for axis, limit, sign in ((0, 0.0, 1), (0, width, -1), (1, 0.0, 1), (1, height, -1)):
        points = _cut(points, _depth(axis, limit, sign))
    return [value for point in points for value in point]


def _depth(axis: int, limit: float, sign: int) -> Callable[[Point], float]:
    return lambda point: sign * (point[axis] - limit)


def _cut(points: Sequence[Point], depth: Callable[[Point], float]) -> list[Point]:
    """Keep the side of a line on which `depth` is not negative."""
    kept: list[Point] = []
    for i, point in enumerate(points):
        before = points[i - 1]
        a, b = depth(before), depth(point)
        if (a < 0) != (b < 0):
            t = a / (a - b)
            kept.append(
                (before[0] + t * (point[0] - before[0]), before[1] + t * (point[1] - before[1]))
            )
        if b >= 0:
            kept.append(point)
    return kept


def ring_area(ring: Sequence[float]) -> float:
    """Return the area of one ring x, y, x, y, ..."""
    x, y = np.asarray(ring[0::2], float), np.asarray(ring[1::2], float)
    n = min(len(x), len(y))
    x, y = x[:n], y[:n]
    return float(abs(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1))) / 2)
