"""The step that one wrong difference of means leaves in a JPEG: all blocks after it are shifted.

The picture has an edge that begins in the middle of a row of blocks, runs along the grid to the
right border, goes on one row lower at the left border and ends below its beginning. Its log odds
compare the windows of one row's length of the jumps across the grid (Student's t, 3 degrees of
freedom, scaled by their own median) with no jump at all, and with the jump of one whole row: that
is how frames and horizons look.

The step is looked for in progressive files too. It needs 8 blocks in a row and 4 rows. Where
restart markers end a shift before it has gone once around there is no step to see.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from audit.neighbors.kernels.compiled import compiled_on_first_call
from audit.picture.pixels import Pixels

FEWEST_BLOCKS, FEWEST_ROWS = 8, 4
# A step: so much of the window is nearer to it than to none, at most so much beside the window.
INSIDE, HALF, BESIDE = 0.85, 0.6, 0.35
# In a smooth picture the means of neighbours differ by one quantisation step along a contour.
CONTOUR = 1.5


def shift_evidence(stored: Pixels, sampling: tuple[int, int], means: Sequence[int]) -> float | None:
    """Return the log odds that all blocks after one are shifted; None where it cannot be told.

    `means` are the quantisation steps of the mean by component: 8 of them are one level.
    """
    across, down = 8 * sampling[0], 8 * sampling[1]
    height, width = stored.shape[:2]
    rows = np.arange(down, height - 4, down)
    if -(-width // across) < FEWEST_BLOCKS or len(rows) < FEWEST_ROWS or not means:
        return None
    pixels = stored.reshape(height, width, -1)
    jumps = _jumps(pixels, rows, across, wide=down == 16)
    return max(
        float(_step(*_scaled(jump.ravel(), CONTOUR * mean / 8), jump.shape[1]))
        for jump, mean in zip(jumps, means, strict=False)
    )


@compiled_on_first_call
def _jumps(stored: Any, rows: Any, across: int, *, wide: bool) -> Any:
    """Return float64 (channels, rows, blocks): what lies beyond the slope on both sides of a row.

    In levels, of Y, or of Y, Cb and Cr. Halved chroma is smeared over four lines, so its jump is
    taken `wide` of the edge.
    """
    width, channels = stored.shape[1], stored.shape[2]
    n_blocks = -(-width // across)
    jumps = np.zeros((channels, len(rows), n_blocks))
    sums = np.zeros((8, 3), np.int64)
    for number, row in enumerate(rows):
        for block in range(n_blocks):
            first, last = block * across, min((block + 1) * across, width)
            for line in range(8):
                if line in (1, 6) or (line in (0, 7) and not wide):
                    continue
                pixels = stored[row - 4 + line]
                red, green, blue = np.int64(0), np.int64(0), np.int64(0)
                if channels == 1:
                    for x in range(first, last):
                        red += pixels[x, 0]
                else:
                    for x in range(first, last):
                        red += pixels[x, 0]
                        green += pixels[x, 1]
                        blue += pixels[x, 2]
                sums[line, 0], sums[line, 1], sums[line, 2] = red, green, blue
            narrow = (1.5 * (sums[4] - sums[3]) - 0.5 * (sums[5] - sums[2])) / (last - first)
            if channels == 1:
                jumps[0, number, block] = narrow[0]
                continue
            chroma = narrow
            if wide:
                slope = 0.75 * (sums[7] - sums[5] + sums[2] - sums[0])
                chroma = (sums[5] - sums[2] - slope) / (last - first)
            # ITU-T T.871
            light = 0.299 * chroma[0] + 0.587 * chroma[1] + 0.114 * chroma[2]
            jumps[0, number, block] = 0.299 * narrow[0] + 0.587 * narrow[1] + 0.114 * narrow[2]
            jumps[1, number, block] = (chroma[2] - light) / 1.772
            jumps[2, number, block] = (chroma[0] - light) / 1.402
    return jumps


def _scaled(jumps: np.ndarray[Any, Any], least: float) -> tuple[np.ndarray[Any, Any], float]:
    """Return the jumps over their scale, and `least` likewise."""
    # 1.4826: a normal's deviation over its median of |x|; 0.15: what rounding to levels leaves
    sizes = np.abs(jumps)
    sizes.partition(len(sizes) // 2)
    scale = 1.4826 * sizes[len(sizes) // 2] + 0.15
    return jumps / scale, least / scale


@compiled_on_first_call
def _step(jumps: Any, least: float, width: int) -> float:
    """Return the best evidence of a step that begins within a row and is at least `least`."""
    n, best = len(jumps), 0.0
    signs = np.zeros(n + 1, np.int64)
    for i in range(n):
        signs[i + 1] = signs[i] + (jumps[i] > 0) - (jumps[i] < 0)
    for begin in range(n - width):
        place = begin % width
        # most of a window is nearer to the step than to none, so most of it has its sign
        if place == 0 or abs(signs[begin + width] - signs[begin]) < (2 * INSIDE - 1) * width:
            continue
        window = jumps[begin : begin + width]
        step = np.median(window)
        if abs(step) < least:
            continue
        row = begin - place
        gain = _gain(window, step)
        for line in (row, row + width):
            whole = jumps[line : line + width]
            gain = min(gain, _gain(window, step) - _gain(whole, np.median(whole)))
        if gain <= best:
            continue
        here = _nearer(jumps, begin, row + width, step)
        below = _nearer(jumps, row + width, begin + width, step)
        beside = _nearer(jumps, row, begin, step) + _nearer(
            jumps, begin + width, row + 2 * width, step
        )
        sides = here >= HALF * (width - place) and below >= HALF * place
        if sides and here + below >= INSIDE * width and beside <= BESIDE * width:
            best = gain
    return best


@compiled_on_first_call
def _gain(window: Any, step: float) -> float:
    """Return the log odds of a step over none: Student's t with 3 degrees of freedom."""
    total = 0.0
    for value in window:
        total += np.log1p(value * value / 3) - np.log1p((value - step) ** 2 / 3)
    return 2 * total


@compiled_on_first_call
def _nearer(jumps: Any, first: int, last: int, step: float) -> int:
    """Return how many of these jumps are nearer to the step than to none."""
    count = 0
    for i in range(first, last):
        count += abs(jumps[i] - step) < abs(jumps[i])
    return count
