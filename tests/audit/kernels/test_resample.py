"""Lanczos reductions in C equal Pillow's, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from audit.kernels.library import PATH_VARIABLE, find_kernel, load_kernels
from audit.picture.hashing import lanczos

SHAPES = [(1, 1), (1, 9), (9, 1), (3, 3), (33, 47), (384, 7), (7, 384), (250, 187)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_lanczos(kernels: None, monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int]) -> None:
    luma = np.random.default_rng(sum(shape)).integers(0, 256, (3, *shape), np.uint8)
    luma[0] = 255 * (luma[0] > 127)
    sizes = [(9, 8), (32, 32), (64, 64)]
    in_c = [lanczos(luma, *size) for size in sizes]
    monkeypatch.setenv(PATH_VARIABLE, "off")
    load_kernels.cache_clear()
    for size, ours in zip(sizes, in_c, strict=True):
        np.testing.assert_array_equal(ours, lanczos(luma, *size))


def test_bounds_outside_of_the_picture_are_passed_over(kernels: None) -> None:
    kernel = find_kernel("reduce_rows")
    assert kernel
    reduced = np.full((4, 5), 7, np.uint8)
    bounds = np.array([[-1, 1], [2, 2], [0, -1], [0, 9]])
    kernel(np.zeros((3, 5), np.uint8), bounds, np.ones((4, 2), np.int32), reduced)
    assert (reduced == 7).all()
