"""Lucas-Kanade over a batch of pairs in numpy: what `registration.c` and `prefilter.c` compute,
where the compiled library is missing. Planes are float32 (m, n, n); maps float64 (m, 6).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from audit.neighbors.orientations import orient

Array = npt.NDArray[Any]

BLOCKS = 4
_STRIPS = [np.s_[:, 1:], np.s_[:, :-1], np.s_[:, :, 1:], np.s_[:, :, :-1]]
"""Blocks (m, 4, 4) without an outer row or column."""


def lay_down(planes: Array, orientations: Array) -> Array:
    """Return planes (m, n, n, ...) in their orientations, as float32."""
    out = np.empty(planes.shape, np.float32)
    for k in np.unique(orientations):
        chosen = orientations == k
        turned = orient(np.moveaxis(planes[chosen], 0, -1), int(k))
        out[chosen] = np.moveaxis(turned, -1, 0)
    return out


def halve(full: Array) -> Array:
    """Average 2 x 2 pixels."""
    m, n, _ = full.shape
    return np.asarray(full.reshape(m, n // 2, 2, n // 2, 2).mean((2, 4), dtype=np.float32))


def soften(planes: Array) -> Array:
    """Smooth with the 3 x 3 binomial, edges repeated."""
    p = np.pad(planes, ((0, 0), (1, 1), (1, 1)), mode="edge")
    line = p[:, :-2] + 2 * p[:, 1:-1] + p[:, 2:]
    return np.asarray((line[..., :-2] + 2 * line[..., 1:-1] + line[..., 2:]) * np.float32(0.0625))


def warp(images: Array, maps: Array) -> tuple[Array, Array]:
    """Warp images (m, n, n, ...) onto the grids of their templates; mark pixels inside them."""
    m, n = images.shape[:2]
    axis = (np.arange(n, dtype=np.float32) + np.float32(0.5 - 0.5 * n))[None]
    p = (maps + np.array([1, 0, 1, 0, 1, 1])).astype(np.float32)[:, :, None, None]
    half, shift = np.float32(0.5 * n), np.float32(0.5)
    x, y = axis[:, None, :], axis[:, :, None]
    u = p[:, 0] * x + (p[:, 1] * y + p[:, 2] * half - shift)
    v = p[:, 3] * x + (p[:, 4] * y + p[:, 5] * half - shift)
    valid = (u > -shift) & (v > -shift) & (u < n - shift) & (v < n - shift)
    u, v = (np.clip(np.nan_to_num(w), 0, np.float32(n - 1.001)) for w in (u, v))
    column, row = u.astype(np.intp), v.astype(np.intp)
    tail = (..., *[None] * (images.ndim - 3))
    right, down = (u - column).astype(np.float32)[tail], (v - row).astype(np.float32)[tail]
    which = np.arange(m)[:, None, None]
    a, b = images[which, row, column], images[which, row, column + 1]
    c, d = images[which, row + 1, column], images[which, row + 1, column + 1]
    above, below = a + right * (b - a), c + right * (d - c)
    return valid[tail] * (above + down * (below - above)), valid.astype(np.float32)


def steepest(templates: Array) -> Array:
    """Return the eight steepest-descent images (m, 8, n * n): map, gain, bias."""
    m, n, _ = templates.shape
    down, across = np.gradient(templates * np.float32(0.5 * n), axis=(1, 2))
    axis = (np.arange(n, dtype=np.float32) + np.float32(0.5)) / np.float32(0.5 * n) - 1
    x, y, one = axis[None, :], axis[:, None], np.ones((n, n), np.float32)
    maps = [gradient * w for gradient in (across, down) for w in (x, y, one)]
    rows = np.stack([*maps, templates, np.broadcast_to(one, templates.shape)], axis=1)
    return rows.reshape(m, 8, n * n).astype(np.float32)


def solve(matrix: Array, right: Array) -> tuple[Array, Array]:
    """Solve symmetric systems (m, 8, 8) for (m, 8, k); mark those that are positive."""
    system = np.concatenate([matrix, right], axis=2)
    positive = np.ones(len(matrix), np.bool_)
    for i in range(8):
        positive &= system[:, i, i] > 1e-9
        system[:, i] /= np.where(positive, system[:, i, i], 1.0)[:, None]
        factor = system[:, :, i].copy()
        factor[:, i] = 0.0
        system -= factor[:, :, None] * system[:, None, i]
    return system[:, :, 8:], positive


def move(maps: Array, steps: Array) -> Array:
    """Move maps in place by the inverses of steps (m, 6); return the change, -1 where lost."""
    largest = np.abs(steps).max(axis=1)
    steps = steps * np.where(largest > 0.3, 0.3 / np.maximum(largest, 0.3), 1.0)[:, None]
    matrices = np.zeros((2, len(maps), 3, 3))
    for matrix, numbers in zip(matrices, (maps, steps), strict=True):
        matrix[:, :2] = numbers.reshape(-1, 2, 3)
        matrix += np.eye(3)
    (a, b, c, d), step = steps[:, [0, 1, 3, 4]].T, matrices[1]
    usable = np.abs((1 + a) * (1 + d) - b * c) >= 0.2
    step[~usable] = np.eye(3)
    moved = matrices[0] @ np.linalg.inv(step)
    maps[:] = (moved - np.eye(3))[:, :2].reshape(-1, 6)
    area = moved[:, 0, 0] * moved[:, 1, 1] - moved[:, 0, 1] * moved[:, 1, 0]
    lost = ~usable | (area < 0.3) | (area > 3.0)
    return np.where(lost, -1.0, np.abs(steps).max(axis=1))


def residuals(templates: Array, warped: Array, valid: Array) -> Array:
    """Return the errors (m, n * n) of images brought to the mean and spread of their templates."""
    seen = np.maximum(valid.sum(axis=1), 1)
    mean_t, mean_w = (templates * valid).sum(axis=1) / seen, warped.sum(axis=1) / seen
    spread = (valid * templates**2).sum(axis=1) / seen - mean_t**2
    other = (warped**2).sum(axis=1) / seen - mean_w**2
    gain = np.sqrt(np.maximum(spread, 1e-6) / np.maximum(other, 1e-6)).astype(np.float32)
    level = mean_t - mean_w * gain
    return np.asarray(valid * (warped * gain[:, None] + level[:, None] - templates))


def descend(
    templates: Array, images: Array, rows: Array, maps: Array,
    steps: int, damping: float, margins: Array,
) -> Array:  # fmt: skip
    """Run Lucas-Kanade from the maps (m, 6), in place; mark where nothing failed.

    `margins` (m,): width of a frame that counts for a tenth.
    """
    m, n, _ = templates.shape
    edge = np.minimum(np.arange(n), np.arange(n)[::-1])
    frame = np.minimum(edge[:, None], edge).ravel() < margins[:, None]
    trust = np.where(frame, np.float32(0.1), np.float32(1.0))
    good, active = np.ones(m, np.bool_), np.arange(m)
    for step in range(steps):
        warped, valid = (p.reshape(len(active), n * n) for p in warp(images[active], maps[active]))
        enough = valid.sum(axis=1) >= 0.3 * n * n
        good[active[~enough]] = False
        active, warped, valid = active[enough], warped[enough], valid[enough]
        if not len(active):
            break
        error = residuals(templates[active].reshape(len(active), n * n), warped, valid)
        typical = 1.5 * (error**2).sum(axis=1) / valid.sum(axis=1)
        cut = 1 / np.maximum(typical, 1e-6) if step >= 2 else np.zeros_like(typical)
        weight = valid * trust[active] / (1 + error**2 * cut[:, None])
        weighted = rows[active] * weight[:, None]
        matrix = (weighted @ rows[active].transpose(0, 2, 1)).astype(np.float64)
        damp(matrix, damping)
        found, positive = solve(matrix, (weighted @ error[:, :, None]).astype(np.float64))
        here = maps[active]
        change = np.where(positive, move(here, np.where(positive[:, None], found[:, :6, 0], 0)), -1)
        maps[active] = here
        good[active[change < 0]] = False
        active = active[change >= 0.002]
    return good


def damp(matrix: Array, damping: float) -> None:
    """Add the damping to the diagonals of normal equations (m, 8, 8)."""
    diagonal = np.arange(6)
    trace = matrix[:, diagonal, diagonal].sum(axis=1)
    matrix[:, diagonal, diagonal] += damping * trace[:, None] / 6
    matrix[:, [6, 7], [6, 7]] *= 1.001


def sum_blocks(a: Array, b: Array, valid: Array) -> Array:
    """Return sums (4, m, 4, 4) over blocks: gradient products ab, aa, bb, and pixels."""
    m, n, _ = a.shape
    (ax, ay), (bx, by) = (
        (p[:, 1:-1, 2:] - p[:, 1:-1, :-2], p[:, 2:, 1:-1] - p[:, :-2, 1:-1]) for p in (a, b)
    )
    seen = valid[:, 1:-1, 2:] * valid[:, 1:-1, :-2] * valid[:, 2:, 1:-1] * valid[:, :-2, 1:-1]
    products = np.zeros((4, m, n, n), np.float64)
    products[:, :, 1:-1, 1:-1] = [
        seen * (ax * bx + ay * by), seen * (ax**2 + ay**2), seen * (bx**2 + by**2), seen,
    ]  # fmt: skip
    side = n // BLOCKS
    return np.asarray(products.reshape(4, m, BLOCKS, side, BLOCKS, side).sum(axis=(3, 5)))


def correlation(ab: Array, aa: Array, bb: Array) -> Array:
    """Return correlations from sums of products."""
    return np.asarray(ab / np.sqrt(np.maximum(aa * bb, 1e-9)))


def correlate_inner(sums: Array) -> Array:
    """Return the best correlation of the whole, also without an outer strip of blocks."""
    whole = sums[:3].sum(axis=(2, 3))
    best = correlation(*whole)
    for strip in _STRIPS:
        left = np.stack([s[strip].sum(axis=(1, 2)) for s in sums[:3]])
        # a strip that holds most of the energy is the image, not a caption
        holds = (left[1:] > 0.4 * np.maximum(whole[1:], 1e-9)).all(axis=0)
        best = np.where(holds, np.maximum(best, correlation(*left)), best)
    return best


def correlate_blocks(sums: Array, side: int) -> tuple[Array, Array, Array, Array]:
    """Return of textured blocks: median correlation, share above 0.5, number; and concentration."""
    ab, aa, bb, pixels = sums.reshape(4, -1, BLOCKS**2)
    energy = 0.5 * sum(e / np.maximum(e.sum(axis=1), 1e-9)[:, None] for e in (aa, bb))
    area = np.maximum(pixels.sum(axis=1), 1.0)[:, None]
    textured = (pixels >= 0.4 * (side // BLOCKS) ** 2) & (energy * area >= 0.33 * pixels)
    count, values = textured.sum(axis=1), correlation(ab, aa, bb)
    ordered = np.sort(np.where(textured, values, np.inf), axis=1)
    each, middle = np.arange(len(count)), np.maximum(count, 1)
    median = 0.5 * (ordered[each, middle // 2] + ordered[each, (middle - 1) // 2])
    whole = correlation(ab.sum(axis=1), aa.sum(axis=1), bb.sum(axis=1))
    good = (textured & (values > 0.5)).sum(axis=1) / middle
    squares = np.maximum((energy**2).sum(axis=1) * BLOCKS**2, 1e-9)
    return np.where(count, median, whole), good, count, energy.sum(axis=1) ** 2 / squares


def correlate_over(a: Array, b: Array, valid: Array, least: float) -> tuple[Array, Array]:
    """Return the correlation of values (m, pixels, planes) over the overlap, and their energy."""
    seen = np.maximum(valid.sum(axis=1), 1)[:, None, None]
    inside = valid[..., None].astype(np.float64)
    a, b = (inside * (p - (inside * p).sum(axis=1, keepdims=True) / seen) for p in (a, b))
    ab, aa, bb = ((p * q).sum(axis=(1, 2)) / seen[:, 0, 0] for p, q in ((a, b), (a, a), (b, b)))
    return ab / np.sqrt(np.maximum(aa * bb, least)), np.sqrt(np.sqrt(aa * bb))


def align(
    grey: Array, colour: Array, pairs: Array, orientations: Array, starts: Array, margins: Array,
    abandon: float, maps: Array, scores: Array,
) -> None:  # fmt: skip
    """Align every pair, the coarse search first; see `align_pairs` for arguments and results."""
    one = grey[pairs[:, 0]].astype(np.float32)
    other = lay_down(grey[pairs[:, 1]], orientations)
    small, small_other = halve(one), halve(other)
    rows = steepest(small)
    top, first = np.full(len(pairs), -2.0), np.zeros(len(pairs), np.intp)
    best = np.zeros_like(maps)
    for number, start in enumerate(starts):
        tried = np.tile(start, (len(pairs), 1))
        margin = np.full(len(pairs), margins[number])
        good = descend(small, small_other, rows, tried, 8, 0.01, margin)
        warped, valid = warp(small_other, tried)
        inner = correlate_inner(sum_blocks(small, warped, valid))
        better = good & (valid.sum(axis=(1, 2)) >= 0.3 * small[0].size) & (inner > top)
        top[better], first[better], best[better] = inner[better], number, tried[better]
    scores[:] = -1.0
    scores[:, 3] = top
    fine = np.flatnonzero(top >= abandon)
    if not len(fine):
        return
    one, other, small, small_other = one[fine], other[fine], small[fine], small_other[fine]
    best, softer, laid = best[fine], soften(one), soften(other)
    found = best.copy()
    good = descend(softer, laid, steepest(softer), found, 10, 0.002, 2 * margins[first[fine]])
    found = np.where(good[:, None], found, best)
    warped, valid = warp(laid, found)
    sums, out = sum_blocks(softer, warped, valid), scores[fine]
    out[:, 0] = correlation(*sums[:3].sum(axis=(2, 3)))
    out[:, 1], out[:, 2], out[:, 7], out[:, 11] = correlate_blocks(sums, one.shape[1])
    out[:, 10] = correlate_inner(sums)
    a, b = (p.reshape(len(fine), -1, 1) for p in (softer, warped))
    out[:, 4] = correlate_over(a, b, valid.reshape(len(fine), -1), 1e-6)[0]
    p = found.T
    out[:, 5] = valid.mean(axis=(1, 2))
    out[:, 6] = np.minimum(out[:, 5] * np.abs((1 + p[0]) * (1 + p[4]) - p[1] * p[3]), 1.0)
    sums = sum_blocks(small, *warp(small_other, found))
    out[:, 3] = correlation(*sums[:3].sum(axis=(2, 3)))
    out[:, 13], out[:, 12] = correlate_blocks(sums, small.shape[1])[0], correlate_inner(sums)
    first_colours = opponents(colour[pairs[fine, 0]].astype(np.float32))
    warped, valid = warp(opponents(lay_down(colour[pairs[fine, 1]], orientations[fine])), found)
    seen = np.maximum(valid.sum(axis=(1, 2)), 1)
    out[:, 8], out[:, 9] = correlate_over(
        first_colours.reshape(len(fine), -1, 2), warped.reshape(len(fine), -1, 2),
        valid.reshape(len(fine), -1), 1e-6 / seen**2,
    )  # fmt: skip
    scores[fine], maps[fine] = out, found


def opponents(colour: Array) -> Array:
    """Return the opponent colours (..., 2) of RGB."""
    r, g, b = np.moveaxis(colour, -1, 0)
    return np.stack([r - g, np.float32(0.5) * (r + g) - b], axis=-1)


def pass_pairs(
    grey: Array, pairs: Array, orientations: Array, starts: Array, n_steps: int, needed: Array,
    passed: Array,
) -> None:  # fmt: skip
    """Set `passed` where some start leads to the gradient correlation that the pair needs.

    The template of a pair is its first image; -1 or less in `needed` passes without a search.
    """
    passed[:] = needed <= -1.0
    first, which = np.unique(pairs[:, 0], return_inverse=True)
    templates = halve(grey[first].astype(np.float32))
    rows = steepest(templates)
    matrix = (rows @ rows.transpose(0, 2, 1)).astype(np.float64)
    damp(matrix, 0.01)
    inverse, usable = solve(matrix, np.tile(np.eye(8), (len(first), 1, 1)))
    steps = inverse[:, :6].astype(np.float32) @ rows
    images = lay_down(halve(grey[pairs[:, 1]].astype(np.float32)), orientations)
    for start in starts:
        left = np.flatnonzero(~passed & usable[which])
        maps = np.tile(start, (len(left), 1))
        for step in range(n_steps + 1):
            warped, valid = warp(images[left], maps)
            enough = valid.sum(axis=(1, 2)) >= 0.3 * templates[0].size
            left, maps, warped, valid = left[enough], maps[enough], warped[enough], valid[enough]
            chosen = templates[which[left]]
            if step == n_steps or not len(left):
                break
            flat = (p.reshape(len(left), templates[0].size) for p in (chosen, warped, valid))
            moves = (steps[which[left]] @ residuals(*flat)[:, :, None])[:, :, 0].astype(np.float64)
            stays = move(maps, moves) >= 0
            left, maps = left[stays], maps[stays]
        if len(left):
            passed[left] = correlate_inner(sum_blocks(chosen, warped, valid)) >= needed[left]
