"""Compiled kernels of `align`: warping and inverse-compositional Lucas-Kanade.

One pair stays in the first-level cache: two 32-px planes, eight steepest-descent images and a
few planes, 60 kB in all, allocated once for 64 pairs. Sums run over whole planes so that the
compiler can vectorise them; the 8x8 system is solved by hand because calling LAPACK would cost
more than solving. `fastmath` is on: sums are reordered, but the same way each time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from audit.machine.compiled import compiled_kernel
from audit.neighbors.kernels.agreement import (
    correlate_colours,
    correlate_gradients,
    correlate_levels,
    source_place_of,
)

Array = npt.NDArray[Any]

# Sides of the fine and the coarse plane. Constants, so that the compiler unrolls loops over them.
_N = 32
_M = 16


@compiled_kernel(fastmath=True)
def orient_plane(source: Array, k: int, out: Array) -> None:
    """Copy a plane laid down in orientation k."""
    n = source.shape[0]
    # every orientation reads the plane in steps that are the same all over
    first, second = np.int64(0), np.int64(1)
    v, u = source_place_of(first, first, n, k)
    start = v * n + u
    v, u = source_place_of(first, second, n, k)
    across = v * n + u - start
    v, u = source_place_of(second, first, n, k)
    down = v * n + u - start
    flat = source.ravel()
    for y in range(n):
        for x in range(n):
            out[y, x] = flat[np.uint64(start + y * down + x * across)]


@compiled_kernel(fastmath=True)
def halve(full: Array, half: Array) -> None:
    """Average 2x2 pixels."""
    n = half.shape[0]
    for y in range(n):
        above, below, out = full[2 * y], full[2 * y + 1], half[y]
        for x in range(n):
            upper = np.float32(above[2 * x]) + np.float32(above[2 * x + 1])
            lower = np.float32(below[2 * x]) + np.float32(below[2 * x + 1])
            out[x] = np.float32(0.25) * (upper + lower)


@compiled_kernel(fastmath=True)
def _soften(source: Array, out: Array) -> None:
    """Smooth with the 3x3 binomial, edges repeated."""
    # Lucas-Kanade takes the picture for locally linear, which single pixels are not; the binomial
    # is the least smoothing that removes the frequency a central difference cannot see
    n = source.shape[0]
    line = np.empty(n, np.float32)
    for y in range(n):
        above, at, below = source[max(y - 1, 0)], source[y], source[min(y + 1, n - 1)]
        for x in range(n):
            line[x] = above[x] + 2.0 * at[x] + below[x]
        for x in range(1, n - 1):
            out[y, x] = (line[x - 1] + 2.0 * line[x] + line[x + 1]) * 0.0625
        out[y, 0] = (3.0 * line[0] + line[1]) * 0.0625
        out[y, n - 1] = (line[n - 2] + 3.0 * line[n - 1]) * 0.0625


@compiled_kernel(fastmath=True)
def sample(picture: Array, p: Array, out: Array, valid: Array, spare: Array) -> int:
    """Warp `picture` onto the template's grid; mark what lies inside; return how many do.

    `spare` (3, pixels) is overwritten.
    """
    n = picture.shape[0]
    flat, flat_out, inside = picture.ravel(), out.ravel(), valid.ravel()
    place, right, down = spare[0], spare[1], spare[2]
    half, shift = np.float32(0.5 * n), np.float32(0.5)
    last, edge = np.float32(n - 1.001), np.float32(n - 0.5)
    xx, xy, x0 = np.float32(1.0 + p[0]), np.float32(p[1]), np.float32(p[2] + 1.0)
    yx, yy, y0 = np.float32(p[3]), np.float32(1.0 + p[4]), np.float32(p[5] + 1.0)
    zero, one = np.float32(0.0), np.float32(1.0)
    side, nowhere, farthest = np.int32(n), np.int32(0), np.int32(n * n - n - 2)
    count = zero
    # places first, without a branch and in single precision: the compiler vectorises that, and not
    # what reads the picture
    for y in range(n):
        ty = np.float32(y) + shift - half
        u0, v0 = xy * ty + x0 * half - shift, yy * ty + y0 * half - shift
        for x in range(n):
            tx = np.float32(x) + shift - half
            u, v = u0 + xx * tx, v0 + yx * tx
            seen = one if (u > -shift) & (v > -shift) & (u < edge) & (v < edge) else zero
            u, v = min(max(u, zero), last), min(max(v, zero), last)
            i, j = np.int32(v), np.int32(u)
            k = y * n + x
            right[k], down[k] = u - np.float32(j), v - np.float32(i)
            # of a map that is no number, too, the place lies in the picture
            place[k] = np.float32(min(max(i * side + j, nowhere), farthest))
            inside[k] = seen
            count += seen
    # unsigned: no index counts from the end
    low, next_to = np.uint64(n), np.uint64(1)
    for k in range(n * n):
        at = np.uint64(np.uint32(place[k]))
        a, b, fu = flat[at], flat[at + low], right[k]
        above = a + fu * (flat[at + next_to] - a)
        below = b + fu * (flat[at + low + next_to] - b)
        flat_out[k] = inside[k] * (above + down[k] * (below - above))
    return int(count)


@compiled_kernel(fastmath=True)
def steepest(template: Array, rows: Array) -> None:
    """Fill the eight steepest-descent images: six affine ones, the template itself, a constant."""
    # of the template, hence once a pair and not once a step: that is what makes the search
    # inverse-compositional [Baker and Matthews, IJCV 2004] and cheap
    n = template.shape[0]
    half = np.float32(0.5 * n)
    flat = template.ravel()
    across, down = rows[2], rows[5]
    for k in range(1, n * n - 1):
        across[k] = (flat[k + 1] - flat[k - 1]) * (np.float32(0.5) * half)
    for k in range(n, n * n - n):
        down[k] = (flat[k + n] - flat[k - n]) * (np.float32(0.5) * half)
    for k in range(n):  # at the edges from one side
        left, low = k * n, n * n - n + k
        across[left] = (flat[left + 1] - flat[left]) * half
        across[left + n - 1] = (flat[left + n - 1] - flat[left + n - 2]) * half
        down[k], down[low] = (flat[k + n] - flat[k]) * half, (flat[low] - flat[low - n]) * half
    for i in (2, 5):
        gradient, by_x, by_y = rows[i], rows[i - 2], rows[i - 1]
        for y in range(n):
            ty = (np.float32(y) + np.float32(0.5)) / half - np.float32(1.0)
            for x in range(n):
                k = y * n + x
                by_x[k] = gradient[k] * ((np.float32(x) + np.float32(0.5)) / half - np.float32(1.0))
                by_y[k] = gradient[k] * ty
    # gain and bias are unknowns like the map, so a change of light is not taken for motion
    light, constant = rows[6], rows[7]
    for k in range(n * n):
        light[k] = flat[k]
        constant[k] = 1.0


@compiled_kernel(fastmath=True)
def _weighted_products(weight: Array, one: Array, rows: Array, j: int, out: Array) -> None:
    """Fill out[j : j + 4] with the weighted products of `one` with four rows."""
    # four at a time: the weights and `one` are loaded once for all of them
    a = b = c = d = np.float32(0.0)
    for k in range(weight.size):
        heavy = weight[k] * one[k]
        a += heavy * rows[j, k]
        b += heavy * rows[j + 1, k]
        c += heavy * rows[j + 2, k]
        d += heavy * rows[j + 3, k]
    out[j], out[j + 1], out[j + 2], out[j + 3] = a, b, c, d


@compiled_kernel(fastmath=True)
def _solve(matrix: Array, vector: Array, size: int) -> bool:
    """Solve a symmetric positive system in place by Cholesky; False where it is not positive."""
    for i in range(size):
        for j in range(i + 1):
            total = matrix[i, j]
            for k in range(j):
                total -= matrix[i, k] * matrix[j, k]
            if i == j:
                # a flat template leaves directions undetermined; the caller gives the start up
                if total <= 1e-9:
                    return False
                matrix[i, i] = np.sqrt(total)
            else:
                matrix[i, j] = total / matrix[j, j]
    for i in range(size):
        for k in range(i):
            vector[i] -= matrix[i, k] * vector[k]
        vector[i] /= matrix[i, i]
    for i in range(size - 1, -1, -1):
        for k in range(i + 1, size):
            vector[i] -= matrix[k, i] * vector[k]
        vector[i] /= matrix[i, i]
    return True


@compiled_kernel(fastmath=True)
def compose_inverse(p: Array, d: Array) -> float:
    """Replace the map p by p after the inverse of the small map d; return the largest change."""
    # the step was found on the template's side, so it is undone there: p after d^-1
    a, b, c, e = 1.0 + d[0], d[1], d[3], 1.0 + d[4]
    det = a * e - b * c
    # a step that collapses the plane has no inverse worth following
    if abs(det) < 0.2:
        return -1.0
    ia, ib, ic, ie = e / det, -b / det, -c / det, a / det
    itx, ity = -(ia * d[2] + ib * d[5]), -(ic * d[2] + ie * d[5])
    m00, m01, m10, m11 = 1.0 + p[0], p[1], p[3], 1.0 + p[4]
    p[2] += m00 * itx + m01 * ity
    p[5] += m10 * itx + m11 * ity
    p[0] = m00 * ia + m01 * ic - 1.0
    p[1] = m00 * ib + m01 * ie
    p[3] = m10 * ia + m11 * ic
    p[4] = m10 * ib + m11 * ie - 1.0
    change = 0.0
    for k in range(6):
        change = max(change, abs(d[k]))
    return change


@compiled_kernel(fastmath=True)
def _register(
    template: Array,
    picture: Array,
    rows: Array,
    p: Array,
    steps: int,
    damping: float,
    margin: int,
    warped: Array,
    valid: Array,
    weight: Array,
    error: Array,
    spare: Array,
) -> bool:
    """Run Lucas-Kanade from p, in place; False where the overlap or the system fails."""
    size = template.size
    flat_t, flat_w, flat_v = template.ravel(), warped.ravel(), valid.ravel()
    matrix = np.empty((8, 8))
    vector = np.empty(8)
    for step in range(steps):
        count = sample(picture, p, warped, valid, spare)
        # under a third of overlap anything can be made to agree
        if count < 0.3 * size:
            return False
        # all in single precision: one double constant would make the compiler double every pixel
        st = sw = stt = sww = np.float32(0.0)
        for k in range(size):
            seen_t = flat_v[k] * flat_t[k]
            st += seen_t
            sw += flat_w[k]
            stt += seen_t * flat_t[k]
            sww += flat_w[k] * flat_w[k]
        seen = np.float32(count)
        mt, mw = st / seen, sw / seen
        spread: Any = max(stt / seen - mt * mt, np.float32(1e-6))
        other: Any = max(sww / seen - mw * mw, np.float32(1e-6))
        # the other picture is brought to the template's mean and spread first, or the first steps
        # would spend themselves on brightness
        gain = np.sqrt(spread / other)
        level = mt - mw * gain
        see = np.float32(0.0)
        for k in range(size):
            error[k] = flat_v[k] * (flat_w[k] * gain + level - flat_t[k])
            see += error[k] * error[k]
        if margin > 0:
            # the frame counts for little: captions and turned corners are there
            n = template.shape[0]
            for y in range(n):
                for x in range(n):
                    outer = min(min(x, n - 1 - x), min(y, n - 1 - y)) < margin
                    flat_v[y * n + x] *= 0.1 if outer else 1.0
        if step >= 2:
            # Cauchy weights: an error of a few times the typical one hardly counts, so a caption
            # does not drag the map; not in the first two steps, when everything is still far off
            typical: Any = max(1.5 * see / count, 1e-6)
            cut, one = np.float32(1.0 / typical), np.float32(1.0)
            for k in range(size):
                weight[k] = flat_v[k] / (one + error[k] * error[k] * cut)
        else:
            for k in range(size):
                weight[k] = flat_v[k]
        # the lower triangle is what the solution needs
        for i in range(8):
            _weighted_products(weight, rows[i], rows, 0, matrix[i])
            if i >= 4:
                _weighted_products(weight, rows[i], rows, 4, matrix[i])
        _weighted_products(weight, error, rows, 0, vector)
        _weighted_products(weight, error, rows, 4, vector)
        # Levenberg-Marquardt damping relative to the mean of the diagonal: the same for a faint
        # and for a sharp picture; light needs hardly any
        trace = 0.0
        for i in range(6):
            trace += matrix[i, i]
        for i in range(6):
            matrix[i, i] += damping * trace / 6.0
        matrix[6, 6] *= 1.001
        matrix[7, 7] *= 1.001
        if not _solve(matrix, vector, 8):
            return False
        largest = 0.0
        for k in range(6):
            largest = max(largest, abs(vector[k]))
        # beyond a third of the half-width the linear model holds nowhere: keep the direction only
        if largest > 0.3:
            for k in range(6):
                vector[k] *= 0.3 / largest
        change = compose_inverse(p, vector)
        if change < 0.0:
            return False
        det = (1.0 + p[0]) * (1.0 + p[4]) - p[1] * p[3]
        # beyond a threefold area the search has run away: give it up
        if det < 0.3 or det > 3.0:
            return False
        # 0.002 of the half-width is a thirtieth of a pixel
        if change < 0.002:
            break
    return True


@compiled_kernel(nogil=True, fastmath=True)
def lay_gradients(
    grey: Array,
    rows: Array,
    orientations: Array,
    maps: Array,
    soft: Array,
    out: Array,
    reach: Array,
) -> None:
    """Lay pictures over their templates, softened `soft` times; write gradients and their reach."""
    plane = np.empty((_N, _N), np.float32)
    other = np.empty((_N, _N), np.float32)
    valid = np.empty((_N, _N), np.float32)
    spare = np.empty((3, _N * _N), np.float32)
    for t in range(rows.size):
        orient_plane(grey[rows[t]], orientations[t], plane)
        for _ in range(soft[t]):
            _soften(plane, other)
            for y in range(_N):
                for x in range(_N):
                    plane[y, x] = other[y, x]
        sample(plane, maps[t], other, valid, spare)
        for y in range(1, _N - 1):
            for x in range(1, _N - 1):
                if valid[y, x - 1] * valid[y, x + 1] * valid[y - 1, x] * valid[y + 1, x] > 0.0:
                    out[t, 0, y, x] = other[y, x + 1] - other[y, x - 1]
                    out[t, 1, y, x] = other[y + 1, x] - other[y - 1, x]
                    reach[t, y, x] = True


@compiled_kernel(nogil=True, fastmath=True)
def align_batch(
    grey: Array,
    colour: Array,
    pairs: Array,
    orientations: Array,
    starts: Array,
    margins: Array,
    abandon: float,
    maps: Array,
    scores: Array,
) -> None:
    """Align every pair, the coarse search first; see `align` for what goes in and comes out."""
    # all buffers, made once: allocating within the loop would cost as much as a step
    raw = np.empty((_N, _N), np.float32)
    a = np.empty((_N, _N), np.float32)
    b = np.empty((_N, _N), np.float32)
    a2 = np.empty((_M, _M), np.float32)
    b2 = np.empty((_M, _M), np.float32)
    rows = np.empty((8, _N * _N), np.float32)
    rows2 = np.empty((8, _M * _M), np.float32)
    warped = np.empty((_N, _N), np.float32)
    valid = np.empty((_N, _N), np.float32)
    weight = np.empty(_N * _N, np.float32)
    error = np.empty(_N * _N, np.float32)
    spare = np.empty((3, _N * _N), np.float32)
    warped2 = np.empty((_M, _M), np.float32)
    valid2 = np.empty((_M, _M), np.float32)
    weight2 = np.empty(_M * _M, np.float32)
    error2 = np.empty(_M * _M, np.float32)
    spare2 = np.empty((3, _M * _M), np.float32)
    six = np.empty(6)
    two = np.empty(2)
    p = np.empty(6)
    best = np.empty(6)
    # typed: a literal argument would make numba compile the callee once for each of its values
    upright: Any = np.int64(0)
    coarse_steps: Any = np.int64(8)
    fine_steps: Any = np.int64(10)
    for t in range(pairs.shape[0]):
        i, j, k = pairs[t, 0], pairs[t, 1], orientations[t]
        orient_plane(grey[i], upright, raw)
        _soften(raw, a)
        halve(raw, a2)
        orient_plane(grey[j], k, raw)
        _soften(raw, b)
        halve(raw, b2)
        steepest(a2, rows2)
        # every start is tried coarsely: a quarter of the pixels, and a wider basin
        top = -2.0
        first = 0
        for s in range(starts.shape[0]):
            for m in range(6):
                p[m] = starts[s, m]
            if not _register(
                a2, b2, rows2, p, coarse_steps, 0.01, margins[s], warped2, valid2, weight2, error2,
                spare2,
            ):  # fmt: skip
                continue
            if sample(b2, p, warped2, valid2, spare2) < 0.3 * _M * _M:
                continue
            correlate_gradients(a2, warped2, valid2, 4, six)
            # the whole without its worst strip, or captioned copies would lose at this stage
            if six[5] > top:
                top = six[5]
                first = s
                for m in range(6):
                    best[m] = p[m]
        for m in range(scores.shape[1]):
            scores[t, m] = -1.0
        scores[t, 3] = top
        # most candidates end here, before the fine search: most of the speed
        if top < abandon:
            continue
        steepest(a, rows)
        for m in range(6):
            p[m] = best[m]
        # less damping than before: the start is right to a coarse pixel
        if not _register(
            a, b, rows, p, fine_steps, 0.002, 2 * margins[first], warped, valid, weight, error,
            spare,
        ):  # fmt: skip
            for m in range(6):
                p[m] = best[m]
        count = sample(b, p, warped, valid, spare)
        correlate_gradients(a, warped, valid, 4, six)
        scores[t, 0], scores[t, 1], scores[t, 2] = six[0], six[1], six[2]
        scores[t, 7], scores[t, 10], scores[t, 11] = six[3], six[5], six[4]
        scores[t, 4] = correlate_levels(a, warped, valid)
        # the map's area turns the template's overlap into the other picture's
        share = count / (_N * _N)
        det = abs((1.0 + p[0]) * (1.0 + p[4]) - p[1] * p[3])
        scores[t, 5], scores[t, 6] = share, min(share * det, 1.0)
        # coarse once more through the final map: heavy noise and JPEG blocks vanish at 16 px
        sample(b2, p, warped2, valid2, spare2)
        correlate_gradients(a2, warped2, valid2, 4, six)
        scores[t, 3], scores[t, 12], scores[t, 13] = six[0], six[5], six[1]
        correlate_colours(colour[i], colour[j], k, p, two)
        scores[t, 8], scores[t, 9] = two[0], two[1]
        for m in range(6):
            maps[t, m] = p[m]
