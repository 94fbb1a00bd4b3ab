"""Descent: the minimum of a smooth function of a few hundred numbers, with numpy alone.

L-BFGS (Liu and Nocedal 1989, Mathematical Programming 45:503) with a backtracking line search. Why
not scipy.optimize: it takes half a second to import, as long as the rest of a small scan's
judgement of labels.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
REMEMBERED = 10
"""Steps whose curvature is kept."""
LEAST_GAIN = 2e-9
"""A step that lowers the value by less than this share of it is the last."""
FLAT = 1e-6
"""A largest entry of the gradient at which the bottom is reached."""


def minimise(
    loss: Callable[[Floats], tuple[float, Floats]], start: Floats, steps: int = 150
) -> tuple[Floats, float]:
    """Return the point (p,) with the least value of `loss`, and that value.

    `loss` returns the value and its gradient (p,).
    """
    point = start.astype(np.float64)
    value, gradient = loss(point)
    past: list[tuple[Floats, Floats]] = []
    for _ in range(steps):
        if np.abs(gradient).max(initial=0.0) < FLAT:
            break
        found = _line_search(loss, point, value, gradient, _direction(gradient, past))
        if found is None:
            break
        new, new_value, new_gradient = found
        step, turn = new - point, new_gradient - gradient
        if step @ turn > 1e-12 * (turn @ turn):  # else the curvature seen is none of a bottom
            past = [*past[1 - REMEMBERED :], (step, turn)]
        gained = value - new_value
        point, value, gradient = new, new_value, new_gradient
        if gained < LEAST_GAIN * max(abs(value), 1e-3):
            break
    return point, value


def _direction(gradient: Floats, past: list[tuple[Floats, Floats]]) -> Floats:
    """Return the way down: the gradient, corrected by the curvature of past steps."""
    way = -gradient
    shares = []
    for step, turn in reversed(past):
        shares.append(share := (step @ way) / (step @ turn))
        way = way - share * turn
    if past:
        step, turn = past[-1]
        way = way * ((step @ turn) / (turn @ turn))
    else:
        way = way / max(float(np.abs(way).max()), 1.0)
    for (step, turn), share in zip(past, reversed(shares), strict=True):
        way = way + (share - (turn @ way) / (step @ turn)) * step
    return way


def _line_search(
    loss: Callable[[Floats], tuple[float, Floats]],
    point: Floats,
    value: float,
    gradient: Floats,
    way: Floats,
) -> tuple[Floats, float, Floats] | None:
    """Return the first point along the way that is low enough (Armijo), or None."""
    slope = float(gradient @ way)
    if slope >= 0:
        way, slope = -gradient, -float(gradient @ gradient)
    length = 1.0
    for _ in range(30):
        new = point + length * way
        new_value, new_gradient = loss(new)
        if np.isfinite(new_value) and new_value <= value + 1e-4 * length * slope:
            return new, new_value, new_gradient
        length /= 2
    return None
