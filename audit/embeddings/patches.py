"""Compute the built-in embeddings: patches of the stored signature, coded by a shipped dictionary.

Patches of 6x6 pixels are whitened, compared with k-means centroids (the "triangle" of Coates, Lee
and Ng 2011, AISTATS) and summed over the four quarters of the image. The dictionary
(`audit/embeddings/dictionary.npz`) contains the mirror image of every centroid, so the mean of a
code and its mirrored code is a permutation. Codes are integers, so sums are exact in any order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import blake3
import cv2
import numpy as np
import numpy.typing as npt

from audit.kernels.library import find_kernel
from audit.machine.sharing import by_rows
from audit.picture.signatures import COLOUR_SIDE, GREY_SIDE, Signatures
from audit.statistics.association import class_sums

Floats = npt.NDArray[np.float32]
SIDE = 6
STRIDE = 2
KEPT_AXES = 24
"""Principal axes of a patch that are kept, of 108: the rest is noise of the 8x8 colour."""
ROUNDS = 6
"""Of k-means, where a dictionary is learnt."""
CENTROIDS = 400
"""With their mirror images; fewer where there are more pictures than time is for."""
FEWER_CENTROIDS, MANY_PICTURES = 100, 250_000
MOST_NUMBERS, LEAST_AXES, AXES_FROM = 100_000_000, 128, 20_000
"""Of pictures whose vectors would hold more numbers in all, fewer principal axes are kept, those of
a sample, but not fewer than the least: memory is for no more."""
ENCODED = 20_000
"""Views that may be coded in all, so that few pictures are looked at closely and many once."""
VIEWS = (
    (0, 0, 32), (0, 0, 26), (0, 6, 26), (6, 0, 26), (6, 6, 26), (3, 3, 26), (2, 2, 28),
)  # fmt: skip
"""Top, left and side of the whole and of its crops, px."""
FLOOR = 10.0
"""Added to the variance of a patch (grey levels squared), so that flat ones stay flat."""
WHITENING_FLOOR = 0.1
STEPS, MOST_STEPS = 24, 127
"""A code counts steps of a 24th of the deviation among drawn pictures, up to 5.3 of these."""
AXES, AXIS_LENGTH, SQUARE = 128, 4400, 2.0**23
"""Of neighbours: axes, their length, and the squared length of directions. A sum of whole numbers
is exact in float32 up to 2^24, which no product of a code (at most 3,800 long) and an axis exceeds,
nor one of two directions."""
BATCH = 64
SEED = 0
DICTIONARY = Path(__file__).with_name("dictionary.npz")
LUMA = np.array([0.299, 0.587, 0.114], np.float32)


Codes = npt.NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class Dictionary:
    """What patches are compared with: `mean` (108,), `axes` (108, d) that whiten, `centroids`
    (k, d), and `mirror` (k,), the number of each centroid's mirror image.
    """

    mean: Floats
    axes: Floats
    centroids: Floats
    mirror: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Coder:
    """The dictionary, and of the codes that it gives to drawn pictures: `middle` and `spread` (w,),
    and the principal axes `turn` (w, 128) with the variances `values` (128,). `name` tells one from
    another, 16 hex digits.
    """

    name: str
    words: Dictionary
    middle: Floats
    spread: Floats
    turn: Floats
    values: Floats


@cache
def load_coder(many: bool = False) -> Coder:
    """Read the dictionary that is shipped, or the smaller one for sets of very many pictures."""
    content, size = DICTIONARY.read_bytes(), FEWER_CENTROIDS if many else CENTROIDS
    with np.load(DICTIONARY) as held:
        mean, axes, centroids, middle, spread, turn, values = (
            held[f"{name}{size}"]
            for name in ("mean", "axes", "centroids", "middle", "spread", "turn", "values")
        )
    mirror = np.roll(np.arange(size), size // 2)
    name = blake3.blake3(content + str(size).encode()).hexdigest()[:16]
    words = Dictionary(mean, axes, centroids, mirror)
    return Coder(name, words, middle, spread, turn.astype(np.float32), values)


def choose_views(pictures: int, *, crops: bool) -> tuple[tuple[int, int, int], ...]:
    """Return the views of so many pictures: the whole, and `crops` where there is time."""
    return VIEWS[: max(1, min(len(VIEWS), ENCODED // max(pictures, 1))) if crops else 1]


def code_view(table: Signatures, coder: Coder, region: tuple[int, int, int]) -> Codes:
    """Return the codes (n, w) of a view of each signature, each the same in any table."""
    out = np.empty((len(table), len(coder.middle)), np.int8)

    def fill(rows: slice) -> None:
        codes = encode(_crop(colour_pictures(table[rows]), *region), coder.words)
        steps = np.rint((codes - coder.middle) * (STEPS / coder.spread))
        out[rows] = np.clip(steps, -MOST_STEPS, MOST_STEPS)

    list(by_rows(fill, len(table), BATCH))
    return out


@dataclass(frozen=True, slots=True)
class PatchVectors:
    """Of n pictures: `views` (v, n, d) of mean 0; and, the mean of the views, `points` (n, 128),
    their places on axes that are the same for every set, and `directions` (n, 128), by axes that
    are scaled by the fourth root of their variance: whole numbers, products are cosines x `SQUARE`.
    """

    views: Floats
    points: Floats
    directions: Floats


def describe_patches(table: Signatures, *, crops: bool = True) -> PatchVectors:
    """Return vectors of the signatures (n,): of the whole pictures, and of `crops` of few."""
    coder = load_coder(len(table) > MANY_PICTURES)
    regions = choose_views(len(table), crops=crops)
    return vectors_of([code_view(table, coder, region) for region in regions], coder)


def vectors_of(codes: list[Codes], coder: Coder) -> PatchVectors:
    """Return the vectors of pictures from the codes (n, w) of each of their views.

    Of many pictures they are turned to their main axes, which keep their lengths.
    """
    n, width = codes[0].shape
    axes = max(LEAST_AXES, MOST_NUMBERS // max(1, n * len(codes)))
    turn = _main_axes(codes[0])[:, :axes] if axes < width else None
    views = np.empty((len(codes), n, min(axes, width)), np.float32)
    points = np.zeros((n, AXES), np.float32)
    for view, of_view in zip(views, codes, strict=True):
        for start in range(0, n, 16 * BATCH):
            rows = slice(start, start + 16 * BATCH)
            part = of_view[rows].astype(np.float32)
            points[rows] += part @ coder.turn
            view[rows] = part if turn is None else part @ turn
        view *= np.float32(1 / STEPS)
    points = np.rint(points * np.float32(1 / AXIS_LENGTH / len(codes)))
    if n:
        views -= views.mean((0, 1), dtype=np.float64).astype(np.float32)
    return PatchVectors(views, points, _directions(points, coder))


def _directions(points: Floats, coder: Coder) -> Floats:
    scaled = points * coder.values**-0.25
    length = np.sqrt((scaled.astype(np.float64) ** 2).sum(1))
    return np.asarray(np.rint(scaled * (SQUARE**0.5 / (length + 1e-9))[:, None]), np.float32)


def _main_axes(codes: Codes) -> Floats:
    """Return the principal axes (w, w) of a sample of codes, the largest first."""
    rows = np.sort(np.random.default_rng(SEED).permutation(len(codes))[:AXES_FROM])
    some = codes[rows].astype(np.float32)
    some -= some.mean(0)
    _, axes = np.linalg.eigh((some.T @ some).astype(np.float64))
    return np.asarray(axes[:, ::-1], np.float32)


def _crop(pictures: Floats, top: int, left: int, side: int) -> Floats:
    """Return a square of each picture at the size of the whole."""
    if side == GREY_SIDE:
        return pictures
    out = np.empty_like(pictures)
    for picture, target in zip(pictures, out, strict=True):
        part = np.ascontiguousarray(picture[top : top + side, left : left + side])
        cv2.resize(part, (GREY_SIDE, GREY_SIDE), target, interpolation=cv2.INTER_LINEAR)
    return out


def scale_columns(columns: Floats) -> Floats:
    """Give the columns mean 0 and deviation 1, in place; those that hardly vary stay small."""
    columns -= columns.mean(0, dtype=np.float64).astype(np.float32)
    spread = np.sqrt(np.einsum("ij,ij->j", columns, columns) / len(columns))
    columns /= spread + np.float32(1e-3) * spread.max() + np.float32(1e-12)  # flat ones stay small
    return columns


def colour_pictures(table: Signatures) -> Floats:
    """Return (n, 32, 32, 3) pictures, grey levels: the grey plane, coloured by the 8x8 one."""
    out = np.empty((len(table), GREY_SIDE, GREY_SIDE, 3), np.float32)
    for row, (grey, colour) in enumerate(zip(table["grey"], table["colour"], strict=True)):
        smooth = cv2.resize(
            colour.astype(np.float32), (GREY_SIDE, GREY_SIDE), interpolation=cv2.INTER_LINEAR
        )
        out[row] = smooth + (grey - smooth @ LUMA)[..., None]
    return out


def fold_colours(pictures: Floats, cells: int = COLOUR_SIDE) -> Floats:
    """Return brightness and two colour differences of `cells` x `cells` parts of square pictures.

    The mean with those of the mirror image.
    """
    n, cell = len(pictures), pictures.shape[1] // cells
    rgb = pictures.reshape(n, cells, cell, cells, cell, 3).mean((2, 4))
    grey = rgb @ LUMA
    planes = np.stack([grey, rgb[..., 2] - grey, rgb[..., 0] - grey], axis=-1)
    folded = (planes + planes[:, :, ::-1])[:, :, : cells // 2]
    return np.ascontiguousarray(folded.reshape(n, -1))


def learn_words(patches: Floats, half: int, rng: np.random.Generator) -> Dictionary:
    """Learn 2 x `half` centroids, with their mirrors, from normalised patches (m, 108)."""
    grid = patches.reshape(-1, SIDE, SIDE, 3)
    swapped = np.ascontiguousarray(grid[:, :, ::-1]).reshape(len(patches), -1)
    mean = (patches.mean(0) + swapped.mean(0)) / 2
    axes, signs = _whitening(patches - mean, swapped - mean)
    centred = (patches - mean) @ axes
    centroids = _cluster(centred, signs, half, rng)
    number = np.arange(half)
    return Dictionary(
        mean,
        axes,
        np.concatenate([centroids, centroids * signs]),
        np.concatenate([number + half, number]),
    )


def draw_patches(
    parts: Iterable[Floats], stride: int, each: int, rng: np.random.Generator
) -> Floats:
    """Return `each` normalised patches of each square picture, at places drawn at random."""
    out = []
    for part in parts:
        places = ((part.shape[1] - SIDE) // stride + 1) ** 2
        cut = cut_patches(part, stride)
        picks = rng.random((len(part), places)).argsort(1)[:, :each]
        out.append(cut[(np.arange(len(part))[:, None] * places + picks).ravel()])
    return np.concatenate(out)


def _whitening(patches: Floats, swapped: Floats) -> tuple[Floats, Floats]:
    """Return the axes (108, d) that whiten patches, and (d,) the sign that mirroring gives each."""
    values, vectors, signs = [], [], []
    for part, sign in (((patches + swapped) / 2, 1.0), ((patches - swapped) / 2, -1.0)):
        found, directions = np.linalg.eigh((part.T @ part).astype(np.float64) / len(part))
        values.append(found)
        vectors.append(directions)
        signs.append(np.full(len(found), sign))
    spread = np.concatenate(values)
    kept = np.argsort(-spread, kind="stable")[:KEPT_AXES]
    axes = np.hstack(vectors)[:, kept] / np.sqrt(spread[kept] + WHITENING_FLOOR)
    return axes.astype(np.float32), np.concatenate(signs)[kept].astype(np.float32)


def _cluster(patches: Floats, signs: Floats, half: int, rng: np.random.Generator) -> Floats:
    """Return `half` centroids by k-means in which every centroid stands for its mirror too."""
    centroids = patches[rng.choice(len(patches), half, replace=len(patches) < half)].copy()
    for _ in range(ROUNDS):
        both = np.concatenate([centroids, centroids * signs])
        nearest = (patches @ both.T - (both * both).sum(1) / 2).argmax(1)
        turned = np.where((nearest >= half)[:, None], patches * signs, patches)
        owner = nearest % half
        sums = class_sums(turned, owner, half)
        counts = np.bincount(owner, minlength=half)[:, None]
        centroids = np.where(counts > 0, sums / np.maximum(counts, 1), centroids).astype(np.float32)
    return centroids


def encode(pictures: Floats, words: Dictionary) -> Floats:
    """Return the codes (n, 2 k) of pictures, square roots, and their colours (n, 96).

    Both are the same for a mirror image.
    """
    return np.hstack([code_patches(pictures, words, STRIDE), fold_colours(pictures)])


def code_patches(pictures: Floats, words: Dictionary, stride: int) -> Floats:
    """Return the codes (n, 2 k) of square pictures (n, side, side, 3) of any side from 6 px on."""
    k, n, places = len(words.centroids), len(pictures), (pictures.shape[1] - SIDE) // stride + 1
    patches = cut_patches(pictures, stride)
    # a product a picture: of all at once, sums would hang on where in the table a picture stands
    white = patches.reshape(n, places * places, -1) @ words.axes
    white -= words.mean @ words.axes
    products = np.asarray(white @ words.centroids.T, np.float32).reshape(-1, k)
    white = white.reshape(len(patches), -1)
    norms = (words.centroids**2).sum(1)
    pooled = pool_codes(products, white, norms, places)
    # the mirror image has its left on the right, and in place of each centroid its mirror
    folded = pooled[:, :, 0] + pooled[:, :, 1][:, :, words.mirror]
    return np.asarray(np.sqrt(folded.reshape(n, 2 * k)))


def cut_patches(pictures: Floats, stride: int) -> Floats:
    """Return every patch of pictures (n, h, w, c) as (n * places, SIDE * SIDE * c).

    Each has its mean taken off and is divided by sqrt(variance + FLOOR).
    """
    windows = np.lib.stride_tricks.sliding_window_view(pictures, (SIDE, SIDE), (1, 2))
    cut = np.moveaxis(windows[:, ::stride, ::stride], 3, 5)
    patches = np.empty((math.prod(cut.shape[:3]), math.prod(cut.shape[3:])), np.float32)
    if kernel := find_kernel("cut_patches"):
        kernel(np.ascontiguousarray(pictures), stride, FLOOR, patches.reshape(cut.shape))
        return patches
    patches[:] = cut.reshape(patches.shape)
    patches -= patches.mean(1, keepdims=True)
    patches /= np.sqrt((patches * patches).mean(1, keepdims=True) + np.float32(FLOOR))
    return patches


def pool_codes(products: Floats, white: Floats, norms: Floats, places: int) -> Floats:
    """Return (n, 2, 2, k): the activations of patches, by the quarter that they lie in.

    `products` (n * places^2, k): patches times centroids, overwritten; `white`: the patches;
    `norms` (k,): squared lengths of centroids.
    """
    n, k = len(products) // places**2, products.shape[1]
    pooled = np.zeros((n, 2, 2, k), np.float32)
    if kernel := find_kernel("pool_codes"):
        grid = (n, places, places)
        kernel(pooled, products.reshape(*grid, k), white.reshape(*grid, white.shape[1]), norms)
        return pooled
    squares = np.einsum("ij,ij->i", white, white)[:, None] + norms - 2 * products
    distances = np.sqrt(np.maximum(squares, 0))
    active = np.maximum(distances.mean(1, keepdims=True) - distances, 0)
    parts = np.arange(places) * 2 // places
    grid = active.reshape(n, places, places, k)
    for u, v in np.ndindex(2, 2):
        pooled[:, u, v] = grid[:, parts == u][:, :, parts == v].sum((1, 2))
    return pooled
