"""Vectors of pictures at several sizes, and what a cheap classifier can tell from each.

A picture is reduced to 8, 16, 32, ... px; at each size its patches of 6x6 px are coded by a
dictionary of that size (`audit.embeddings.patches`), and the vector of a picture of s px holds the
codes of all sizes up to s, and coarse colours. So a larger picture only adds to what a smaller one
says, and what is lost by reducing it is what the larger sizes held. Ridge regression judges every
picture with its near-duplicates left out, in closed form: no folds, and all versions of the
pictures are judged on the same ones, so differences are paired.

Costs about 1 ms of one core a picture and version.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import cv2
import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from audit.embeddings.patches import (
    LUMA,
    Dictionary,
    code_patches,
    draw_patches,
    fold_colours,
    learn_words,
    scale_columns,
)
from audit.embeddings.ridge import decompose, left_out_scores
from audit.machine.compiled import usable_threads

Floats = npt.NDArray[np.float32]
Pixels = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
SMALLEST, LARGEST = 8, 128
HALF = 50
"""Centroids of one size, with their mirror images twice as many."""
BATCH = 64
TRAINING_PICTURES, TRAINING_EACH = 1000, 20
COLOUR_CELLS = 4
"""Parts along a side whose colour is taken."""
TILES = 4
"""Tiles along a side that shuffling puts elsewhere."""


def sizes_up_to(base: int) -> list[int]:
    """Return 8, 16, ... px up to `base`, a power of two."""
    return [s for s in (2**i for i in range(3, 8)) if s <= base]


def describe_sizes(pictures: Pixels, sizes: Sequence[int]) -> list[Floats]:
    """Return for each size the codes (n, d) of pictures (n, base, base, 3) reduced to it.

    The first holds coarse colours as well. Columns have mean 0 and deviation 1.
    """
    found = []
    for size in sizes:
        reduced = reduce_pictures(pictures, size)
        codes = _coded(reduced, _learn(reduced))
        if size == sizes[0]:
            codes = np.hstack([codes, fold_colours(reduced, COLOUR_CELLS)])
        found.append(scale_columns(np.ascontiguousarray(codes)))
    return found


def judge_rightly(parts: Sequence[Floats], labels: Ints, groups: Ints) -> npt.NDArray[np.bool_]:
    """Return which pictures (n,) a classifier names rightly that saw none of their group."""
    vectors = np.hstack(parts)
    scores = left_out_scores(decompose(vectors), labels, groups, int(labels.max()) + 1)
    return np.asarray(scores.argmax(1) == labels)


def reduce_pictures(pictures: Pixels, size: int) -> Floats:
    """Return pictures of `size` px, every pixel the mean of those that it stands for."""
    n, base = pictures.shape[:2]
    out = np.empty((n, size, size, 3), np.float32)
    step = base // size
    for start in range(0, n, BATCH):
        part = pictures[start : start + BATCH]
        cells = part.reshape(len(part), size, step, size, step, 3)
        out[start : start + BATCH] = cells.mean((2, 4), dtype=np.float32)
    return out


# ---- versions of the pictures ----


def without_colour(pictures: Pixels) -> Pixels:
    """Return the pictures in grey."""
    grey = np.rint(pictures @ LUMA)[..., None]
    return np.repeat(np.clip(grey, 0, 255).astype(np.uint8), 3, axis=3)


def with_tiles_shuffled(pictures: Pixels, seed: int) -> Pixels:
    """Return each picture with its 16 tiles put elsewhere, in an order of its own."""
    n, base = pictures.shape[:2]
    side, rng = base // TILES, np.random.default_rng(seed)
    tiles = pictures.reshape(n, TILES, side, TILES, side, 3).transpose(0, 1, 3, 2, 4, 5)
    tiles = tiles.reshape(n, TILES * TILES, side, side, 3)
    order = rng.random((n, TILES * TILES)).argsort(1)
    mixed = tiles[np.arange(n)[:, None], order].reshape(n, TILES, TILES, side, side, 3)
    return np.ascontiguousarray(mixed.transpose(0, 1, 3, 2, 4, 5)).reshape(pictures.shape)


def cropped(pictures: Pixels, share: float, seed: int | None) -> Pixels:
    """Return a square of `share` of each side, enlarged to the size of the whole.

    In the middle; with a `seed`, at a place drawn for each picture.
    """
    n, base = pictures.shape[:2]
    side = max(SMALLEST, round(base * share))
    room = base - side
    places = np.full((n, 2), room // 2)
    if seed is not None:
        places = np.random.default_rng(seed).integers(0, room + 1, (n, 2))
    out = np.empty_like(pictures)
    for picture, (top, left), target in zip(pictures, places.tolist(), out, strict=True):
        part = np.ascontiguousarray(picture[top : top + side, left : left + side])
        target[:] = cv2.resize(part, (base, base), interpolation=cv2.INTER_CUBIC)
    return out


# ---- codes of one size ----


def _stride(size: int) -> int:
    """Return the step between patches: about 14 places along a side, whatever the size."""
    return max(1, size // 16)


def _learn(reduced: Floats) -> Dictionary:
    rng = np.random.default_rng(0)
    chosen = reduced[np.sort(rng.permutation(len(reduced))[:TRAINING_PICTURES])]
    parts = (chosen[start : start + BATCH] for start in range(0, len(chosen), BATCH))
    return learn_words(
        draw_patches(parts, _stride(reduced.shape[1]), TRAINING_EACH, rng), HALF, rng
    )


def _coded(reduced: Floats, words: Dictionary) -> Floats:
    stride, starts = _stride(reduced.shape[1]), range(0, len(reduced), BATCH)

    def code(start: int) -> Floats:
        part = np.ascontiguousarray(reduced[start : start + BATCH])
        return code_patches(part, words, stride)

    with threadpool_limits(1, "blas"), ThreadPoolExecutor(usable_threads()) as pool:
        return np.concatenate(list(pool.map(code, starts)))
