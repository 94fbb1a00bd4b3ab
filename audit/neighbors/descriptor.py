"""A dense descriptor of the signature whose mirror images and quarter turns come for free.

Gradient energy and its orientation, levels and two opponent colours are seen through the low
frequencies of a cosine transform; nothing is fitted, so descriptors of different datasets compare.
Every component is even or odd under mirroring x and y, so four partial products, sorted by parity,
give the similarity to a picture, its mirror image, flip and half turn. Swapping the axes exchanges
the two mixed parities, and changes the sign of half of the components of the others.
"""

from __future__ import annotations

import math
from functools import cache
from itertools import accumulate, chain, pairwise
from typing import NamedTuple

import cv2
import numpy as np
import numpy.typing as npt

from audit.machine.sharing import by_rows
from audit.neighbors.orientations import SWAP_AXES, parity_sign
from audit.picture.signatures import COLOUR_SIDE, Signatures

Descriptors = npt.NDArray[np.float32]
BATCH = 128
"""Signatures that are described at a time: their planes fit into a core's cache."""


class _Field(NamedTuple):
    """A plane to describe: its own parity under a mirror, its sign when the axes are swapped."""

    name: str
    mirror: int
    swap: int
    frequencies: int
    weight: float
    slope: float


FIELDS = (
    _Field("energy", 1, 1, 5, 1.0, 0.0),
    _Field("cos2", 1, -1, 5, 1.0, 0.0),
    _Field("sin2", -1, 1, 5, 1.0, 0.0),
    _Field("cos4", 1, 1, 5, 0.7, 0.0),
    _Field("sin4", -1, -1, 5, 0.7, 0.0),
    _Field("level", 1, 1, 5, 0.6, 0.25),
    _Field("red_green", 1, 1, 4, 0.8, 0.0),
    _Field("yellow_blue", 1, 1, 4, 0.8, 0.0),
)
"""Weights and slopes were chosen once by recall on synthetic changes (half of the benchmark's
pictures; the other half reports): flat spectra see through crops, little weight on levels sees
through captions."""


FAINT_COLOUR = 16.0
"""Length of a colour plane's spectrum (2 levels a cell) under which it counts less: what JPEG makes
of grey must not push a copy behind strangers that have no colour at all."""


class Components(NamedTuple):
    """How the components lie: classes of parity begin at `edges`; of the first and the last class
    those that change sign when the axes are swapped begin at `odd`. A component is the sum of two
    rows of all spectra, times their weights.
    """

    edges: tuple[int, ...]
    odd: tuple[int, int]
    rows: tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]
    weights: tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]

    @property
    def width(self) -> int:
        """Components of a descriptor."""
        return self.edges[-1]


@cache
def layout() -> Components:
    """Work out the components by parity, and the fixed weights."""
    rows = [
        (f, u, v)
        for f, field in enumerate(FIELDS)
        for v in range(field.frequencies)
        for u in range(field.frequencies)
        # the constant term says how bright the picture is, which a copy may change
        if u or v
    ]
    place = {row: k for k, row in enumerate(rows)}
    # by class of parity, odd under a swap of the axes or not: two rows and their weights
    parts: list[list[tuple[int, int, float, float]]] = [[] for _ in range(8)]
    for k, (f, u, v) in enumerate(rows):
        field, other = FIELDS[f], place[f, v, u]
        weight = field.weight * (u * u + v * v) ** field.slope
        # a basis function of order u has parity (-1)^u; a field odd by itself turns that round
        odd_x, odd_y = field.mirror * (-1) ** u < 0, field.mirror * (-1) ** v < 0
        if odd_x and not odd_y:
            parts[2].append((k, k, weight, 0.0))
            parts[4].append((other, other, field.swap * weight, 0.0))
        elif odd_x == odd_y and k == other:
            parts[6 * odd_x + (field.swap < 0)].append((k, k, weight, 0.0))
        elif odd_x == odd_y and k < other:
            half = weight / math.sqrt(2)
            parts[6 * odd_x].append((k, other, half, field.swap * half))
            parts[6 * odd_x + 1].append((k, other, half, -field.swap * half))
    starts = [0, *accumulate(len(part) for part in parts)]
    one, other_, first, second = zip(*chain(*parts), strict=True)
    return Components(
        tuple(starts[::2]),
        (starts[1], starts[7]),
        (np.array(one), np.array(other_)),
        (np.array(first, np.float32), np.array(second, np.float32)),
    )


@cache
def cosine_basis(side: int, frequencies: int) -> npt.NDArray[np.float32]:
    """The first rows of the orthonormal DCT-II, (frequencies, side)."""
    # orthonormal, so that all frequencies count alike before `weight`
    angle = np.pi * np.outer(np.arange(frequencies), np.arange(side) + 0.5) / side
    return np.asarray(np.cos(angle) * np.sqrt(2.0 / side), np.float32)


def describe(table: Signatures, rows: npt.NDArray[np.intp] | None = None) -> Descriptors:
    """Return unit descriptors (n, D) float32 of the signatures, classes of parity side by side.

    Those of other than `rows` (None: all) stay zero.
    """
    chosen = np.arange(len(table)) if rows is None else rows
    out = np.zeros((len(table), layout().width), np.float32)

    def work(rows: slice) -> None:
        # the last batch reaches back: in a small one, sums are formed in another order
        part = chosen[max(0, min(rows.start, len(chosen) - BATCH)) : rows.stop]
        held = table[part]
        out[part] = _describe(held["grey"], held["colour"])

    list(by_rows(work, len(chosen), BATCH))
    return out


def swap_axes(descriptors: Descriptors) -> Descriptors:
    """Return the descriptors of the transposed pictures."""
    _, one, two, three, end = layout().edges
    first_odd, last_odd = layout().odd
    out = descriptors.copy()
    out[:, first_odd:one] *= -1
    out[:, one:two], out[:, two:three] = descriptors[:, two:three], descriptors[:, one:two]
    out[:, last_odd:end] *= -1
    return out


def compare_orientations(first: Descriptors, second: Descriptors) -> npt.NDArray[np.float32]:
    """Return (m, 8): the similarity of row pairs in the eight `ORIENTATIONS`."""
    edges = layout().edges
    out: npt.NDArray[np.float32] = np.empty((len(first), 8), np.float32)
    for swap, query in enumerate((first, swap_axes(first))):
        part = [np.einsum("ij,ij->i", query[:, a:b], second[:, a:b]) for a, b in pairwise(edges)]
        for k in range(4):
            out[:, SWAP_AXES * swap + k] = sum(parity_sign(k, c) * part[c] for c in range(4))
    return out


def _describe(grey: npt.NDArray[np.uint8], colour: npt.NDArray[np.uint8]) -> Descriptors:
    """Describe one batch."""
    planes = _planes(grey) | _colours(colour)
    parts = []
    for field in FIELDS:
        plane = planes[field.name]
        basis = cosine_basis(plane.shape[-1], field.frequencies)
        spectrum = np.einsum("vy,nyx,ux->nvu", basis, plane, basis, optimize=True)
        # each field to length one before its weight: contrast must not decide between fields
        rows = spectrum.reshape(len(plane), -1)[:, 1:]
        parts.append(_unit(rows, FAINT_COLOUR if plane.shape[-1] == COLOUR_SIDE else 1e-4))
    plan, spectra = layout(), np.concatenate(parts, axis=1)
    one, other = (spectra[:, rows] * w for rows, w in zip(plan.rows, plan.weights, strict=True))
    return _unit(one + other)


def _unit(rows: npt.NDArray[np.float32], least: float = 1e-4) -> npt.NDArray[np.float32]:
    """Scale rows to length one, but those shorter than `least` to their share of it."""
    length = np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
    # a flat plane has no direction; dividing would make one out of rounding
    return np.asarray(rows / np.maximum(length, least), np.float32)


def _planes(grey: npt.NDArray[np.uint8]) -> dict[str, npt.NDArray[np.float32]]:
    """Level and locally normalised gradient planes, each (n, 32, 32)."""
    level = grey.astype(np.float32)
    n = len(level)
    padded = np.pad(level, ((0, 0), (1, 1), (1, 1)), mode="edge")
    across = padded[:, :, :-2] + 2 * padded[:, :, 1:-1] + padded[:, :, 2:]
    down = padded[:, :-2] + 2 * padded[:, 1:-1] + padded[:, 2:]
    # Sobel: smoothed across the difference, so that the angle of an edge comes out right
    gx = down[:, :, 2:] - down[:, :, :-2]
    gy = across[:, 2:] - across[:, :-2]
    power = gx * gx + gy * gy
    # energy relative to its surroundings: a strong edge does not outweigh a field of texture
    local = _box(power, 9)
    # a floor relative to the picture: flat parts keep their noise small instead of blowing it up
    floor = 0.2 * power.reshape(n, -1).mean(1)[:, None, None] + 1.0
    magnitude = np.sqrt(power)
    energy = magnitude / np.sqrt(local + floor)
    # cos and sin of twice the angle: an edge from dark to bright equals one from bright to dark
    safe = np.maximum(power, 1e-6)
    cos2 = (gx * gx - gy * gy) / safe
    sin2 = 2 * gx * gy / safe
    return {
        "level": level - level.reshape(n, -1).mean(1)[:, None, None],
        "energy": energy,
        "cos2": energy * cos2,
        "sin2": energy * sin2,
        "cos4": energy * (cos2 * cos2 - sin2 * sin2),
        "sin4": energy * 2 * cos2 * sin2,
    }


def _box(planes: npt.NDArray[np.float32], side: int) -> npt.NDArray[np.float32]:
    """Average over side x side, plane by plane."""
    out = np.empty_like(planes)
    for k in range(len(planes)):
        cv2.blur(planes[k], (side, side), out[k], borderType=cv2.BORDER_REFLECT_101)
    return out


def _colours(colour: npt.NDArray[np.uint8]) -> dict[str, npt.NDArray[np.float32]]:
    """Two opponent-colour planes (n, 8, 8)."""
    rgb = colour.astype(np.float32)
    red, green, blue = rgb[..., 0], rgb[..., 1], rgb[..., 2]
    return {"red_green": red - green, "yellow_blue": (red + green) / 2 - blue}
