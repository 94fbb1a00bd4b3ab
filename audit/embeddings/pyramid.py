"""Vectors of pictures at several sizes, and what a cheap classifier can tell from each.

At 8, 16, 32, ... px, patches of 6x6 px are coded by a dictionary of that size
(`audit.embeddings.patches`); the vector of s px holds the codes of all sizes up to s, so a larger
picture only adds. Ridge regression judges every picture with its near-duplicates left out, in
closed form, so differences between versions are paired.
"""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
import numpy.typing as npt

from audit.embeddings.patches import (
    LUMA,
    Dictionary,
    code_patches,
    draw_patches,
    fold_colours,
    learn_words,
    scale_columns,
)
from audit.embeddings.ridge import Floats, Ints, decompose, left_out_scores
from audit.machine.sharing import by_rows

Pixels = npt.NDArray[np.uint8]
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


def with_light_equal(pictures: Pixels) -> Pixels:
    """Return each picture with the mean and deviation of light that the median picture has."""
    light = pictures @ LUMA
    means, spreads = light.mean((1, 2)), light.std((1, 2))
    gain = np.median(spreads) / np.maximum(spreads, 1.0)
    flat = pictures.reshape(len(pictures), -1)
    made = (flat - means[:, None]) * gain[:, None] + np.median(means)
    whole: Pixels = np.clip(np.rint(made), 0, 255).astype(np.uint8)
    return whole.reshape(pictures.shape)


def turned_alike(pictures: Pixels) -> Pixels:
    """Return each picture turned by quarters until its brightest side is on top."""
    light, half = pictures @ LUMA, pictures.shape[1] // 2
    sides = [light[:, :half], light[:, :, half:], light[:, half:], light[:, :, :half]]
    turns = np.stack([side.mean((1, 2)) for side in sides]).argmax(0)
    made = pictures.copy()
    for turn in (1, 2, 3):
        made[turns == turn] = np.rot90(pictures[turns == turn], turn, (1, 2))
    return made


def without_surroundings(pictures: Pixels) -> Pixels:
    """Return the pictures with what lies outside of a centred ellipse of half the area in grey."""
    base = pictures.shape[1]
    away = (np.arange(base) + 0.5) / base - 0.5
    inside = away[:, None] ** 2 + away**2 <= 0.5 / np.pi
    return np.where(inside[..., None], pictures, np.uint8(128))


RIM = 8
"""The rim of a picture, taken for its background, is this part of a side wide."""
UNLIKE_RIM = 30.0
"""Distance in colour (0..255) from the rim's from which a pixel is taken for the subject."""


def measure_variation(pictures: Pixels) -> dict[str, npt.NDArray[np.float64]]:
    """Return what pictures (n, base, base, 3) differ in: by name, (n, columns).

    `size`: share that is unlike the rim; `place`: its middle, x and y, shares of the side; `light`:
    mean luma; `background`: the rim's median colour. All of it without knowing any subject.
    """
    n, base = pictures.shape[:2]
    rim = np.ones((base, base), np.bool_)
    width = max(1, base // RIM)
    rim[width:-width, width:-width] = False
    colour = np.median(pictures[:, rim], axis=1)
    light, size, place = np.empty((n, 1)), np.empty((n, 1)), np.empty((n, 2))
    axis = (np.arange(base) + 0.5) / base
    for start in range(0, n, BATCH):
        part, rows = pictures[start : start + BATCH], slice(start, start + BATCH)
        light[rows, 0] = (part @ LUMA).mean((1, 2))
        apart = np.linalg.norm(part - colour[rows, None, None].astype(np.float32), axis=3)
        subject = (apart > UNLIKE_RIM).astype(np.float64)
        size[rows, 0] = subject.mean((1, 2))
        weight = subject.sum((1, 2)) + 1e-9
        place[rows, 0] = subject.sum(1) @ axis / weight
        place[rows, 1] = subject.sum(2) @ axis / weight
    place[size[:, 0] == 0] = 0.5
    return {"size": size, "place": place, "light": light, "background": colour}


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
    stride = _stride(reduced.shape[1])

    def code(rows: slice) -> Floats:
        return code_patches(np.ascontiguousarray(reduced[rows]), words, stride)

    return np.concatenate(list(by_rows(code, len(reduced), BATCH)))
