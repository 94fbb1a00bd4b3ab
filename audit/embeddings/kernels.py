"""Compiled loops of the patch codes: cutting patches out, and the sums of their activations."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from audit.neighbors.kernels.compiled import compiled_on_first_call

Array = npt.NDArray[Any]


@compiled_on_first_call
def cut_patches(pictures: Array, side: int, stride: int, floor: np.float32, out: Array) -> None:
    """Write every patch of pictures (n, h, w, c) into `out` (n * places, side * side * c).

    Each has its mean taken off and is divided by sqrt(variance + floor).
    """
    n, height, width, channels = pictures.shape
    row = 0
    for i in range(n):
        for top in range(0, height - side + 1, stride):
            for left in range(0, width - side + 1, stride):
                total, squares, k = np.float32(0), np.float32(0), 0
                for u in range(side):
                    for v in range(side):
                        for c in range(channels):
                            x = pictures[i, top + u, left + v, c]
                            out[row, k] = x
                            total += x
                            squares += x * x
                            k += 1
                mean = total / np.float32(k)
                variance = max(squares / np.float32(k) - mean * mean, np.float32(0))
                scale = np.float32(1) / np.sqrt(variance + floor)
                for t in range(k):
                    out[row, t] = (out[row, t] - mean) * scale
                row += 1


@compiled_on_first_call
def pool_codes(products: Array, white: Array, norms: Array, places: int, out: Array) -> None:
    """Add the activations of patches to the quarter of the picture that they lie in.

    `products` (n * places^2, k): patches times centroids, overwritten with distances; `white`: the
    patches; `norms` (k,): squared lengths of centroids; `out` (n, 2, 2, k).
    """
    k, half = products.shape[1], np.float32(0.5)
    for i in range(out.shape[0]):
        for u in range(places):
            for v in range(places):
                row = (i * places + u) * places + v
                own = np.float32(0)
                for t in range(white.shape[1]):
                    own += white[row, t] * white[row, t]
                total = np.float32(0)
                for j in range(k):
                    square = own + norms[j] - products[row, j] / half
                    distance = np.sqrt(max(square, np.float32(0)))
                    products[row, j] = distance
                    total += distance
                mean = total / np.float32(k)
                cell = out[i, 2 * u // places, 2 * v // places]
                for j in range(k):
                    cell[j] += max(mean - products[row, j], np.float32(0))


@compiled_on_first_call
def offer_neighbours(
    block: Array, groups: Array, owners: Array, start: int, index: Array, similarity: Array
) -> None:
    """Put the entries of `block` (rows, columns) among the best of each row, largest first.

    Columns are numbered from `start`; those of a row's own group are passed over. Equal values go
    to the smaller number.
    """
    k = index.shape[1]
    for i in range(block.shape[0]):
        worst = similarity[i, k - 1]
        for j in range(block.shape[1]):
            x = block[i, j]
            if x > worst and owners[start + j] != groups[i]:
                place = k - 1
                while place > 0 and similarity[i, place - 1] < x:
                    similarity[i, place] = similarity[i, place - 1]
                    index[i, place] = index[i, place - 1]
                    place -= 1
                similarity[i, place] = x
                index[i, place] = start + j
                worst = similarity[i, k - 1]
