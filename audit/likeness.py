"""Likeness: whether two pictures look more alike than pictures of their class usually do.

A pair is judged against its own class: the distance between its two pictures has a rank among the
distances from the first to other pictures of the second's cell (class and split). If the second was
put there at random, that rank is uniform whatever the first looks like, and the ranks along a chain
of pictures are independent. So the ranks of a chain combine by Fisher's rule to an exact test, with
no model of what pictures look like. A rank is a permutation p-value: (1 + nearer) / (1 + others).

The distance adds how light, colour and texture differ to how many bits of the 256-bit perceptual
hash differ: the first stays in a turn of the camera, the second in a change of the light. Sizes and
formats are left out, for they show where pictures come from, not what they show.
60,000 pairs against 400 others each cost about 2 s.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]

OTHERS = 400  # pictures of a cell that a pair is compared with, at most: ranks down to 1 / 401
HALF = 128.0  # bits of 256 that differ between unrelated pictures, on average
TIE = 1e-5  # distances closer than rounding are equal
BLOCK = 4096  # pairs at a time: 30 MB of distances

# What a picture's look is measured by: names of columns of the view `images`.
LOOK_COLUMNS = (
    "brightness", "brightness_p5", "brightness_p50", "brightness_p95", "contrast", "saturation",
    "red", "green", "blue", "edge_density", "entropy", "noise",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Looks:
    """What n pictures look like, and where each belongs.

    `tones` (n, k) are standardised columns, `bits` (n, 32) the packed hash, `cell` (n,) the number
    of class and split, `place` (n, 2) sequence and number within it (-1: in none).
    """

    tones: Floats
    bits: Bytes
    cell: Ints
    place: Ints


def standardised(columns: Floats) -> Floats:
    """Return columns (n, k) with mean 0 and deviation 1; NaN counts as the mean."""
    mean = np.nanmean(columns, axis=0) if len(columns) else 0.0
    spread = np.nanstd(columns, axis=0) if len(columns) else 1.0
    return np.nan_to_num((columns - mean) / np.where(spread > 0, spread, 1.0))


def pair_ranks(looks: Looks, first: Ints, second: Ints, reach: int, least: int) -> Floats:
    """Return the rank, in (0, 1], of each pair's distance among pairs with others of its cell.

    Left out of the others: the two themselves, and pictures of the first's own sequence within
    `reach` numbers of it. NaN where fewer than `least` others remain.
    """
    ranks = np.full(len(first), np.nan)
    if not len(first):
        return ranks  # no picture, or none with another of its sequence
    rng = np.random.default_rng(0)  # the same others in every run
    order = np.argsort(looks.cell, kind="stable")
    cells, start = np.unique(looks.cell[order], return_index=True)
    members = dict(zip(cells.tolist(), np.split(order, start[1:]), strict=True))
    wanted = looks.cell[second]
    for cell in np.unique(wanted).tolist():
        others = members[cell]
        if len(others) > OTHERS:
            others = rng.choice(others, OTHERS, replace=False)
        rows = np.flatnonzero(wanted == cell)
        for block in np.split(rows, range(BLOCK, len(rows), BLOCK)):
            ranks[block] = _ranks(looks, first[block], second[block], others, reach, least)
    return ranks


def _ranks(looks: Looks, first: Ints, second: Ints, others: Ints, reach: int, least: int) -> Floats:
    tones, bits = looks.tones, looks.bits
    own = np.linalg.norm(tones[first] - tones[second], axis=1)
    own_bits = np.bitwise_count(bits[first] ^ bits[second]).sum(1)
    squares = (tones[first] ** 2).sum(1)[:, None] + (tones[others] ** 2).sum(1)
    apart = np.sqrt(np.maximum(squares - 2 * tones[first] @ tones[others].T, 0.0))
    # Bits as +1 and -1: a product of matrices counts those that agree.
    signs = np.unpackbits(bits[first], axis=1).astype(np.float32) * 2 - 1
    other_signs = np.unpackbits(bits[others], axis=1).astype(np.float32) * 2 - 1
    apart_bits = (256 - signs @ other_signs.T) / 2
    near = (looks.place[others, 0] == looks.place[first, 0][:, None]) & (
        np.abs(looks.place[others, 1] - looks.place[first, 1][:, None]) <= reach
    )
    left_out = (near & (looks.place[first, 0] >= 0)[:, None]) | (others == first[:, None])
    left_out |= others == second[:, None]
    # One unit is what unrelated pictures of this cell are apart, in each of the two.
    unit = max(float(np.median(apart)), 1e-9)
    closer = apart / unit + apart_bits / HALF <= (own / unit + own_bits / HALF)[:, None] + TIE
    remaining = (~left_out).sum(1)
    rank = (1 + (closer & ~left_out).sum(1)) / (1 + remaining)
    return np.where(remaining >= least, rank, np.nan)


def chain_p_values(ranks: Floats, chains: Ints, n: int) -> Floats:
    """Return, for chains 0..n-1, the p-value that ranks along each are those of chance.

    Fisher (1932): -2 sum(ln rank) is chi-squared with twice as many degrees of freedom as ranks; as
    ranks are rounded up, the p-values are too. NaN ranks are left out; a chain without any has 1.
    """
    from scipy.special import chdtrc

    known = np.isfinite(ranks)
    count = np.bincount(chains[known], minlength=n)
    total = np.bincount(chains[known], -2 * np.log(ranks[known]), minlength=n)
    return np.where(count > 0, chdtrc(2 * np.maximum(count, 1), total), 1.0)
