"""Make the dictionary of the built-in vectors: what patches of drawn pictures have in common.

    python benchmarks/patch_dictionary.py audit/embeddings/dictionary.npz

8,000 pictures are drawn: five of six are scenes of dead leaves (occluding shapes with textures,
light from a side and a blur of their own; Lee, Mumford and Huang 2001), the sixth a sheet with
strokes, letters and boxes. Their signatures teach centroids (`learn_words`) for sets of usual size
and fewer for very large ones. Of the codes of these pictures come the mean and deviation of each
number, and the principal axes of which neighbours are compared. Deterministic; about 2 minutes.
"""

from __future__ import annotations

from multiprocessing import get_context
from pathlib import Path

import cv2
import numpy as np
import typer

from audit.embeddings.patches import (
    AXES,
    AXIS_LENGTH,
    CENTROIDS,
    FEWER_CENTROIDS,
    draw_patches,
    encode,
    learn_words,
    signature_pictures,
)
from audit.picture.signatures import Signatures, is_comparable, make_signature, stack_signatures

DRAWN, CHUNK, SIDE, SHEETS = 8000, 500, 96, 6
PATCHES, ROUNDS, SEED = 200_000, 25, 0
Floats = np.ndarray


def cloud(rng: np.random.Generator, power: float) -> Floats:
    """Return noise (SIDE, SIDE) whose spectrum falls with a power, of deviation 1."""
    f = np.fft.fftfreq(SIDE)
    r = np.hypot(f[:, None], f[None])
    r[0, 0] = 1
    field = np.fft.ifft2(np.fft.fft2(rng.standard_normal((SIDE, SIDE))) / r**power).real
    return (field - field.mean()) / (field.std() + 1e-9)


def tone(rng: np.random.Generator, base: float) -> Floats:
    """Return a colour (3,) near a base level, mostly between orange and blue."""
    warm, green = rng.normal() * np.array([30, 2, -30]), rng.normal() * np.array([8, -14, 6])
    return np.clip(base + rng.normal(0, 60) + (warm + green) * rng.gamma(1.0, 0.8), 0, 255)


def slope(rng: np.random.Generator, sigma: float) -> Floats:
    """Return light that falls off in some direction, (SIDE, SIDE, 1)."""
    y, x = np.mgrid[:SIDE, :SIDE] / SIDE - 0.5
    a = rng.uniform(0, 2 * np.pi)
    return ((np.cos(a) * x + np.sin(a) * y) * rng.normal(0, sigma))[..., None]


def leaf(rng: np.random.Generator, size: float) -> Floats:
    """Return where a shape lies, (SIDE, SIDE, 1) in 0..1: ellipse, box, polygon or bar."""
    mask = np.zeros((2 * SIDE, 2 * SIDE), np.uint8)
    at, angle, flat = rng.uniform(0, 2 * SIDE, 2), rng.uniform(0, 360), rng.uniform(0.2, 1)
    x, y = float(at[0]), float(at[1])
    kind = rng.integers(4)
    if kind == 0:
        axes = max(1, int(2 * size)), max(1, int(2 * size * flat))
        cv2.ellipse(mask, (int(x), int(y)), axes, angle, 0, 360, 255, -1)
    elif kind == 1:
        corners = cv2.boxPoints(((x, y), (3 * size, 3 * size * flat), angle))
        cv2.fillPoly(mask, [corners.astype(np.int32)], 255)
    elif kind == 2:
        n = int(rng.integers(3, 9))
        t, r = np.sort(rng.uniform(0, 2 * np.pi, n)), 2 * size * rng.uniform(0.4, 1, n)
        corners = np.stack([x + r * np.cos(t), y + r * np.sin(t)], 1)
        cv2.fillPoly(mask, [corners.astype(np.int32)], 255)
    else:
        step = np.array([np.cos(angle), np.sin(angle)]) * size * 4
        ends = ([int(v) for v in at - step], [int(v) for v in at + step])
        cv2.line(mask, ends[0], ends[1], 255, max(1, int(rng.uniform(0.02, 0.3) * size * 2)))
    small = cv2.resize(mask, (SIDE, SIDE), interpolation=cv2.INTER_AREA).astype(float) / 255
    if rng.random() < 0.3:
        small = cv2.GaussianBlur(small, (0, 0), rng.uniform(0.5, 4))
    return small[..., None]


def scene(rng: np.random.Generator) -> np.ndarray:
    """Return a picture of occluding shapes."""
    base = rng.uniform(20, 235)
    board = tone(rng, base) + cloud(rng, rng.uniform(1, 2.2))[..., None] * rng.uniform(0, 35)
    board = board + slope(rng, 60)
    count = int(np.exp(rng.uniform(np.log(2), np.log(60))))
    y, x = np.mgrid[:SIDE, :SIDE]
    for size in np.sort(SIDE * 0.5 * rng.uniform(0.05, 1, count) ** 1.6)[::-1]:
        mask, fill = leaf(rng, float(size)), tone(rng, base) + slope(rng, 50)
        texture = rng.random()
        if texture < 0.5:
            fill = fill + cloud(rng, rng.uniform(0.6, 2))[..., None] * rng.uniform(0, 40)
        elif texture < 0.65:
            a, width = rng.uniform(0, np.pi), rng.uniform(2, 14)
            wave = np.sin((np.cos(a) * x + np.sin(a) * y) / width * 2 * np.pi)
            fill = fill + (np.sign(wave) * rng.uniform(5, 50))[..., None]
        board = board * (1 - mask) + fill * mask
    if rng.random() < 0.5:
        board = cv2.GaussianBlur(board, (0, 0), rng.uniform(0.3, 2.2))
    board = (board - 128) * rng.uniform(0.5, 1.3) + 128 + rng.normal(0, 20)
    if rng.random() < 0.1:
        board[:] = board.mean(2, keepdims=True)
    board += rng.standard_normal(board.shape) * rng.uniform(0, 4)
    return np.clip(board, 0, 255).astype(np.uint8)


def sheet(rng: np.random.Generator) -> np.ndarray:
    """Return strokes, letters and boxes on an even ground."""
    ground = np.clip(rng.choice([8, 250, rng.uniform(0, 255)]) + rng.normal(0, 4, 3), 0, 255)
    ink = rng.uniform(0, 255, 3) if rng.random() < 0.4 else np.full(3, 255 - ground.mean())
    board = np.empty((SIDE, SIDE, 3), np.uint8)
    board[:] = ground
    for _ in range(int(rng.integers(1, 9))):
        kind = rng.integers(3)
        if kind == 0:
            path = np.cumsum(rng.normal(0, 14, (int(rng.integers(3, 8)), 2)), 0)
            path += rng.uniform(10, SIDE - 10, 2)
            wide = int(rng.integers(1, 10))
            cv2.polylines(board, [path.astype(np.int32)], False, ink.tolist(), wide, cv2.LINE_AA)
        elif kind == 1:
            text = "".join(chr(int(c)) for c in rng.integers(48, 122, int(rng.integers(1, 9))))
            at = [int(v) for v in rng.uniform(0, SIDE * 0.8, 2)]
            large, thick = float(rng.uniform(0.3, 2.5)), int(rng.integers(1, 6))
            cv2.putText(board, text, at, 0, large, ink.tolist(), thick, cv2.LINE_AA)
        else:
            first = rng.integers(0, SIDE, 2)
            last = first + rng.integers(5, 60, 2)
            filled, colour = rng.random() < 0.6, rng.uniform(0, 255, 3).tolist()
            cv2.rectangle(board, first.tolist(), last.tolist(), colour, -1 if filled else 1)
    return board


def drawn(first: int) -> Signatures:
    """Return the signatures of a chunk of the pictures."""
    found = []
    for number in range(first, first + CHUNK):
        rng = np.random.default_rng([SEED, number])
        found.append(make_signature(sheet(rng) if number % SHEETS == 0 else scene(rng)))
    return stack_signatures(found)


def learnt(table: Signatures, centroids: int) -> dict[str, np.ndarray]:
    """Return a dictionary as the arrays that are stored, names ending in how many centroids."""
    rng = np.random.default_rng(SEED)
    patches = draw_patches(signature_pictures(table), 1, PATCHES // len(table), rng)
    words = learn_words(patches, centroids // 2, rng, rounds=ROUNDS)
    parts = (encode(part, words) for part in signature_pictures(table))
    codes = np.concatenate(list(parts)).astype(np.float64)
    spread = codes.std(0)
    spread += 1e-3 * spread.max()
    scaled = (codes - codes.mean(0)) / spread
    values, axes = np.linalg.eigh(scaled.T @ scaled / len(scaled))
    axes, values = axes[:, ::-1][:, :AXES], values[::-1][:AXES]
    axes *= np.where(axes.sum(0) < 0, -1, 1)
    arrays = {
        "mean": words.mean, "axes": words.axes, "centroids": words.centroids,
        "middle": codes.mean(0).astype(np.float32), "spread": spread.astype(np.float32),
        "values": values.astype(np.float32), "turn": np.rint(axes * AXIS_LENGTH).astype(np.int16),
    }  # fmt: skip
    return {f"{name}{centroids}": array for name, array in arrays.items()}


def main(target: Path) -> None:
    with get_context("spawn").Pool() as pool:
        table = np.concatenate(pool.map(drawn, range(0, DRAWN, CHUNK)))
    table = table[is_comparable(table)]
    both = [learnt(table, centroids) for centroids in (CENTROIDS, FEWER_CENTROIDS)]
    np.savez_compressed(target, **{k: v for arrays in both for k, v in arrays.items()})


if __name__ == "__main__":
    typer.run(main)
