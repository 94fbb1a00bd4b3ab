"""Compiled kernel of `gate`: a few cheap steps of registration at 16 px, and how well they agree.

The steepest-descent images of a template are projected and inverted once, for all its candidates
[Baker and Matthews, IJCV 2004]; a step is then six dot products. Nothing is weighted and nothing
is refined: the question is only whether the full search is worth its price.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from audit.machine.compiled import compiled_kernel
from audit.neighbors.kernels.registration import (
    compose_inverse,
    halve,
    orient_plane,
    sample,
    steepest,
)

Array = npt.NDArray[Any]

_N = 16  # side of the planes; a constant, so that the compiler unrolls loops over them


@compiled_kernel(fastmath=True)
def _invert(matrix: Array) -> bool:
    """Invert a symmetric positive matrix in place, by Gauss and Jordan; False where it is not."""
    size = matrix.shape[0]
    for i in range(size):
        pivot = matrix[i, i]
        if pivot <= 1e-9:
            return False
        matrix[i, i] = 1.0
        for j in range(size):
            matrix[i, j] /= pivot
        for r in range(size):
            if r != i:
                factor = matrix[r, i]
                matrix[r, i] = 0.0
                for j in range(size):
                    matrix[r, j] -= factor * matrix[i, j]
    return True


@compiled_kernel(fastmath=True)
def _project(template: Array, rows: Array, matrix: Array, steps: Array) -> bool:
    """Fill `steps` (6, 256): what an error of each pixel adds to the map; False on a flat one."""
    steepest(template, rows)
    size = template.size
    for i in range(8):
        for j in range(i + 1):
            total = np.float32(0.0)
            for k in range(size):
                total += rows[i, k] * rows[j, k]
            matrix[i, j] = total
            matrix[j, i] = total
    trace = 0.0
    for i in range(6):
        trace += matrix[i, i]
    # the damping of the full search, so that both take nearly the same steps
    for i in range(8):
        matrix[i, i] += 0.01 * trace / 6.0 if i < 6 else 0.001 * matrix[i, i]
    if not _invert(matrix):
        return False
    for i in range(6):
        for k in range(size):
            total = np.float32(0.0)
            for j in range(8):
                total += np.float32(matrix[i, j]) * rows[j, k]
            steps[i, k] = total
    return True


@compiled_kernel(fastmath=True)
def _step(
    template: Array, warped: Array, valid: Array, count: float, steps: Array, step: Array, p: Array
) -> bool:
    """Move the map p one step; False where it runs away."""
    a, b, v = template.ravel(), warped.ravel(), valid.ravel()
    sa = sb = saa = sbb = np.float32(0.0)
    for k in range(a.size):
        sa += v[k] * a[k]
        sb += b[k]
        saa += v[k] * a[k] * a[k]
        sbb += b[k] * b[k]
    mean_a, mean_b = sa / count, sb / count
    spread: Any = max(saa / count - mean_a * mean_a, 1e-6)
    other: Any = max(sbb / count - mean_b * mean_b, 1e-6)
    gain, shift = np.float32(np.sqrt(spread / other)), np.float32(mean_a)
    middle = np.float32(mean_b)
    for i in range(6):
        step[i] = 0.0
    d0 = d1 = d2 = d3 = d4 = d5 = np.float32(0.0)
    for k in range(a.size):
        error = v[k] * ((b[k] - middle) * gain + shift - a[k])
        d0 += steps[0, k] * error
        d1 += steps[1, k] * error
        d2 += steps[2, k] * error
        d3 += steps[3, k] * error
        d4 += steps[4, k] * error
        d5 += steps[5, k] * error
    step[0], step[1], step[2], step[3], step[4], step[5] = d0, d1, d2, d3, d4, d5
    largest = 0.0
    for i in range(6):
        largest = max(largest, abs(step[i]))
    # beyond a third of the half-width the linear model holds nowhere: keep the direction only
    if largest > 0.3:
        for i in range(6):
            step[i] *= 0.3 / largest
    if compose_inverse(p, step) < 0.0:
        return False
    area: float = (1.0 + p[0]) * (1.0 + p[4]) - p[1] * p[3]
    return 0.3 <= area <= 3.0


@compiled_kernel(fastmath=True)
def _ratio(ab: Any, aa: Any, bb: Any) -> Any:
    energy: Any = max(aa * bb, 1e-9)
    return ab / np.sqrt(energy)


@compiled_kernel(fastmath=True)
def _correlate(
    across: Array, down: Array, warped: Array, valid: Array, rows: Array, columns: Array
) -> Any:
    """Correlate gradients over the overlap: the best of all of it and of all but one outer strip.

    `across`, `down`: gradients of the template; `rows` (3, 4) and `columns` (3, 16) are work space
    for sums of products by strip of four rows, and by column.
    """
    for c in range(3):
        for x in range(_N):
            columns[c, x] = 0.0
        for strip in range(4):
            rows[c, strip] = 0.0
    for y in range(1, _N - 1):
        ab = aa = bb = np.float32(0.0)
        for x in range(1, _N - 1):
            seen = valid[y, x - 1] * valid[y, x + 1] * valid[y - 1, x] * valid[y + 1, x]
            bx, by = warped[y, x + 1] - warped[y, x - 1], warped[y + 1, x] - warped[y - 1, x]
            ax, ay = across[y, x], down[y, x]
            both = seen * (ax * bx + ay * by)
            one, other = seen * (ax * ax + ay * ay), seen * (bx * bx + by * by)
            columns[0, x] += both
            columns[1, x] += one
            columns[2, x] += other
            ab, aa, bb = ab + both, aa + one, bb + other
        rows[0, y // 4] += ab
        rows[1, y // 4] += aa
        rows[2, y // 4] += bb
    ab = aa = bb = np.float32(0.0)
    for strip in range(4):
        ab, aa, bb = ab + rows[0, strip], aa + rows[1, strip], bb + rows[2, strip]
    best: Any = _ratio(ab, aa, bb)
    for side in range(4):
        # a caption covers an outer strip, and the rest agrees
        ab_left, aa_left, bb_left = ab, aa, bb
        if side < 2:
            ab_left -= rows[0, 3 * side]
            aa_left -= rows[1, 3 * side]
            bb_left -= rows[2, 3 * side]
        else:
            for x in range(12 * (side - 2), 12 * (side - 2) + 4):
                ab_left -= columns[0, x]
                aa_left -= columns[1, x]
                bb_left -= columns[2, x]
        # a strip that holds most of the energy is the picture, not a caption
        if aa_left > 0.4 * aa and bb_left > 0.4 * bb:
            best = max(best, _ratio(ab_left, aa_left, bb_left))
    return best


@compiled_kernel(fastmath=True)
def _descend(
    template: Array,
    laid: Array,
    steps: Array,
    n_steps: int,
    p: Array,
    warped: Array,
    valid: Array,
    spare: Array,
    step: Array,
) -> bool:
    """Take the steps from the map p, in place; leave the warped picture; False where it is lost."""
    for n in range(n_steps + 1):
        count = sample(laid, p, warped, valid, spare)
        # under a third of overlap anything can be made to agree
        if count < 0.3 * template.size:
            return False
        if n < n_steps and not _step(template, warped, valid, count, steps, step, p):
            return False
    return True


@compiled_kernel(nogil=True, fastmath=True)
def pass_batch(
    grey: Array,
    pairs: Array,
    orientations: Array,
    starts: Array,
    n_steps: int,
    needed: Array,
    passed: Array,
) -> None:
    """Set `passed` where some start leads to the gradient correlation that the pair needs.

    `grey` (n, 32, 32) planes of signatures; the template of a pair is its first. `needed` (m,): -1
    or less passes without a look.
    """
    template = np.empty((_N, _N), np.float32)
    plane = np.empty((_N, _N), np.float32)
    laid = np.empty((_N, _N), np.float32)
    rows = np.empty((8, _N * _N), np.float32)
    steps = np.empty((6, _N * _N), np.float32)
    matrix = np.empty((8, 8))
    across = np.empty((_N, _N), np.float32)
    down = np.empty((_N, _N), np.float32)
    warped = np.empty((_N, _N), np.float32)
    valid = np.empty((_N, _N), np.float32)
    spare = np.empty((3, _N * _N), np.float32)
    strips = np.empty((3, 4), np.float32)
    columns = np.empty((3, _N), np.float32)
    step = np.empty(6)
    p = np.empty(6)
    last, usable = np.int64(-1), False
    for t in range(pairs.shape[0]):
        passed[t] = needed[t] <= -1.0
        if passed[t]:
            continue
        if pairs[t, 0] != last:
            last = pairs[t, 0]
            halve(grey[last], template)
            usable = _project(template, rows, matrix, steps)
            for y in range(1, _N - 1):
                for x in range(1, _N - 1):
                    across[y, x] = template[y, x + 1] - template[y, x - 1]
                    down[y, x] = template[y + 1, x] - template[y - 1, x]
        if not usable:
            continue
        halve(grey[pairs[t, 1]], plane)
        orient_plane(plane, orientations[t], laid)
        for s in range(starts.shape[0]):
            for m in range(6):
                p[m] = starts[s, m]
            if not _descend(template, laid, steps, n_steps, p, warped, valid, spare, step):
                continue
            if _correlate(across, down, warped, valid, strips, columns) >= needed[t]:
                passed[t] = True
                break
