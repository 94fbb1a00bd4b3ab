"""Affine maps: two forms of one map, and registration that finds it."""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np
import pytest

from audit.neighbors.affine import lay_over, map_in_pixels, refine_map

MAP = np.array([-0.1, 0.03, 0.05, -0.02, -0.08, 0.04])


@pytest.mark.parametrize("side", [32, 128, 480])
def test_units_and_pixels_are_one_map(side: int) -> None:
    # a corner of the picture goes to the same corner in both forms
    corner = map_in_pixels(MAP, side) @ np.array([-0.5, -0.5, 1.0])
    wanted = (1 + MAP[0]) * -1 + MAP[1] * -1 + MAP[2], MAP[3] * -1 + (1 + MAP[4]) * -1 + MAP[5]
    assert (corner + 0.5) / (side / 2) - 1 == pytest.approx(wanted)


def test_a_known_map_is_found_and_undone(scene: Callable[..., np.ndarray]) -> None:
    plane = cv2.cvtColor(scene(1, 128, 128), cv2.COLOR_RGB2GRAY).astype(np.float32)
    plane = cv2.GaussianBlur(plane, (0, 0), 1.5)
    warp = map_in_pixels(MAP, 128).astype(np.float32)
    moved = cv2.warpAffine(plane, warp, (128, 128), borderMode=cv2.BORDER_REPLICATE)
    found = refine_map(plane, moved, np.eye(2, 3, dtype=np.float32), steps=80, precision=1e-6)
    assert found is not None
    laid, covered = lay_over(moved, found, (128, 128))
    assert 0.5 < covered.mean() <= 1.0
    middle = (slice(24, -24), slice(24, -24))
    assert np.abs(laid - plane)[middle].mean() < 2.0
    assert np.abs(moved - plane)[middle].mean() > 10.0


def test_nothing_to_register_gives_no_map() -> None:
    flat = np.full((64, 64), 90, np.float32)
    start = np.eye(2, 3, dtype=np.float32)
    assert refine_map(flat, flat, start, steps=10, precision=1e-4) is None


def test_where_a_shifted_picture_does_not_reach_is_told() -> None:
    warp = np.array([[1, 0, 16], [0, 1, 0]], np.float32)
    _, covered = lay_over(np.ones((64, 64), np.float32), warp, (64, 64))
    assert covered[:, :48].all()
    assert not covered[:, 48:].any()
