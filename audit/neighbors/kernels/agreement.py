"""Compiled kernels: how well two pictures agree, one laid on the other: gradients, levels, colours.

`fastmath` is on: sums are reordered, but the same way each time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from audit.machine.compiled import compiled_kernel
from audit.neighbors.orientations import source_place

Array = npt.NDArray[Any]

# one definition of the eight orientations for all that lays pictures down, compiled in here
source_place_of: Any = compiled_kernel()(source_place)


@compiled_kernel(fastmath=True)
def correlate_gradients(a: Array, b: Array, valid: Array, blocks: int, out: Array) -> None:
    """Correlate the gradients of a and b over the overlap, whole and in blocks.

    Writes into `out`: whole, median over textured blocks, share of textured blocks above 0.5,
    number of textured blocks, concentration (participation of the blocks in the energy, 0 to 1),
    and the best whole without one outer row or column of blocks.
    """
    n = a.shape[0]
    side = n // blocks
    ab = np.zeros(blocks * blocks)
    aa = np.zeros(blocks * blocks)
    bb = np.zeros(blocks * blocks)
    cells = np.zeros(blocks * blocks)
    columns = np.empty((4, n), np.float32)
    both, one, other, pixels = columns[0], columns[1], columns[2], columns[3]
    for row in range(blocks):
        columns[:] = 0.0
        # sums by column without a branch, which the compiler vectorises
        for y in range(max(row * side, 1), min((row + 1) * side, n - 1)):
            for x in range(1, n - 1):
                # gradients, not levels: brightness, contrast and slow shading cancel
                ax, ay = a[y, x + 1] - a[y, x - 1], a[y + 1, x] - a[y - 1, x]
                bx, by = b[y, x + 1] - b[y, x - 1], b[y + 1, x] - b[y - 1, x]
                seen = valid[y, x - 1] * valid[y, x + 1] * valid[y - 1, x] * valid[y + 1, x]
                both[x] += seen * (ax * bx + ay * by)
                one[x] += seen * (ax * ax + ay * ay)
                other[x] += seen * (bx * bx + by * by)
                pixels[x] += seen
        for x in range(1, n - 1):
            k = row * blocks + x // side
            ab[k], aa[k], bb[k] = ab[k] + both[x], aa[k] + one[x], bb[k] + other[x]
            cells[k] += pixels[x]
    sab = saa = sbb = area = 0.0
    for k in range(blocks * blocks):
        sab, saa, sbb, area = sab + ab[k], saa + aa[k], sbb + bb[k], area + cells[k]
    out[0] = sab / np.sqrt(max(saa * sbb, 1e-9))
    area = max(area, 1.0)
    scores = np.empty(blocks * blocks)
    count, good = 0, 0
    first, second = 0.0, 0.0
    for k in range(blocks * blocks):
        energy = 0.5 * (aa[k] / max(saa, 1e-9) + bb[k] / max(sbb, 1e-9))
        first += energy
        second += energy * energy
        # textured: at least a third of the average energy per pixel, and half the block seen
        if cells[k] >= 0.4 * side * side and energy * area >= 0.33 * cells[k]:
            score = ab[k] / np.sqrt(max(aa[k] * bb[k], 1e-9))
            good += score > 0.5
            # kept sorted as they come: at most sixteen, so insertion is the quickest way
            place = count
            while place > 0 and scores[place - 1] > score:
                scores[place] = scores[place - 1]
                place -= 1
            scores[place] = score
            count += 1
    out[1] = out[0]
    if count > 0:
        out[1] = 0.5 * (scores[count // 2] + scores[(count - 1) // 2])
    out[2] = good / count if count else 0.0
    out[3] = count
    # participation ratio: 1 where all blocks share the energy, 1/blocks^2 where one has it all.
    # Two pictures with one bright spot each correlate highly and show nothing
    out[4] = first * first / max(second * blocks * blocks, 1e-9)
    out[5] = out[0]
    for k in range(4):
        # without the first or last row or column of blocks: where captions are
        lab, laa, lbb = sab, saa, sbb
        for m in range(blocks):
            edge = (blocks - 1) * (k & 1)
            cell = edge * blocks + m if k < 2 else m * blocks + edge
            lab, laa, lbb = lab - ab[cell], laa - aa[cell], lbb - bb[cell]
        # a strip that holds most of the energy is the picture, not a caption
        if min(laa / max(saa, 1e-9), lbb / max(sbb, 1e-9)) > 0.4:
            out[5] = max(out[5], lab / np.sqrt(max(laa * lbb, 1e-9)))


@compiled_kernel(fastmath=True)
def correlate_levels(a: Array, b: Array, valid: Array) -> Any:
    """Plain correlation of levels over the overlap."""
    # starts at 1e-9 instead of 0, so that no overlap divides by nothing
    s = sa = sb = saa = sbb = sab = 1e-9
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            if valid[y, x] > 0.0:
                s += 1.0
                sa += a[y, x]
                sb += b[y, x]
                saa += a[y, x] * a[y, x]
                sbb += b[y, x] * b[y, x]
                sab += a[y, x] * b[y, x]
    va, vb = saa / s - (sa / s) ** 2, sbb / s - (sb / s) ** 2
    return (sab / s - sa * sb / s / s) / np.sqrt(max(va * vb, 1e-6))


@compiled_kernel(fastmath=True)
def correlate_colours(colour_a: Array, colour_b: Array, k: int, p: Array, out: Array) -> None:
    """Correlate two opponent-colour planes of the 8x8 planes through the map found."""
    n = colour_a.shape[0]
    first = np.empty((n, n, 2), np.float32)
    second = np.empty((n, n, 2), np.float32)
    for y in range(n):
        for x in range(n):
            v, u = source_place_of(y, x, n, k)
            r, g, b = (
                np.float32(colour_a[y, x, 0]),
                np.float32(colour_a[y, x, 1]),
                np.float32(colour_a[y, x, 2]),
            )
            first[y, x, 0], first[y, x, 1] = r - g, 0.5 * (r + g) - b
            r, g, b = (
                np.float32(colour_b[v, u, 0]),
                np.float32(colour_b[v, u, 1]),
                np.float32(colour_b[v, u, 2]),
            )
            second[y, x, 0], second[y, x, 1] = r - g, 0.5 * (r + g) - b
    # two rounds over the same pixels: means first, then products about them
    ab = aa = bb = 0.0
    ma = np.zeros(2)
    mb = np.zeros(2)
    half = 0.5 * n
    total = 0
    for turn in range(2):
        for y in range(n):
            ty = (y + 0.5) / half - 1.0
            for x in range(n):
                tx = (x + 0.5) / half - 1.0
                u = ((1.0 + p[0]) * tx + p[1] * ty + p[2] + 1.0) * half - 0.5
                v = (p[3] * tx + (1.0 + p[4]) * ty + p[5] + 1.0) * half - 0.5
                if u < -0.5 or v < -0.5 or u > n - 0.5 or v > n - 0.5:
                    continue
                u = min(max(u, 0.0), n - 1.001)
                v = min(max(v, 0.0), n - 1.001)
                i, j = int(v), int(u)
                fv, fu = v - i, u - j
                total += turn == 0
                for c in range(2):
                    top = second[i, j, c] + fu * (second[i, j + 1, c] - second[i, j, c])
                    low = second[i + 1, j, c] + fu * (second[i + 1, j + 1, c] - second[i + 1, j, c])
                    value = top + fv * (low - top)
                    if turn == 0:
                        ma[c] += first[y, x, c]
                        mb[c] += value
                    else:
                        da, db = first[y, x, c] - ma[c], value - mb[c]
                        ab += da * db
                        aa += da * da
                        bb += db * db
        if turn == 0:
            for c in range(2):
                ma[c] /= max(total, 1)
                mb[c] /= max(total, 1)
    # the energy says how much the correlation is worth: two grey pictures agree about nothing
    out[0] = ab / np.sqrt(max(aa * bb, 1e-6))
    out[1] = np.sqrt(np.sqrt(aa * bb) / max(total, 1))
