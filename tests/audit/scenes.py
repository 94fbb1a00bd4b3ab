"""Drawn scenes: pictures with structure at all sizes, different for every seed, no files needed."""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt

Picture = npt.NDArray[np.uint8]


def draw_scene(seed: int, height: int = 150, width: int = 200) -> Picture:
    """Draw a smooth background, forty polygons of all sizes and some texture."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(40, 216, (3, 4, 3)).astype(np.uint8)
    board = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)
    for k in range(40):
        centre = rng.random(2) * (width, height)
        reach = (0.3 if k < 10 else 0.1) * height * (0.5 + rng.random())
        turn = np.sort(rng.random(int(rng.integers(3, 7)))) * 2 * np.pi
        corners = centre + reach * np.stack([np.cos(turn), np.sin(turn)], axis=1)
        colour = tuple(int(c) for c in rng.integers(0, 256, 3))
        cv2.fillPoly(board, [corners.astype(np.int32)], colour, cv2.LINE_AA)
    grain = cv2.GaussianBlur(rng.normal(0, 25, board.shape), (0, 0), 1.5)
    return np.clip(board + grain, 0, 255).astype(np.uint8)
