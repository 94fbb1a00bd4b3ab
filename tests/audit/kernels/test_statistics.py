"""Statistics in C equal those of the plain form, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from audit.kernels.library import PATH_VARIABLE, load_kernels
from audit.picture.statistics import measure_stack

SHAPES = [(1, 1), (1, 9), (9, 1), (2, 3), (3, 9), (4, 4), (5, 4), (4, 5), (33, 47), (250, 187)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_statistics(kernels: None, monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(sum(shape))
    noise = rng.integers(0, 256, (3, *shape, 3), np.uint8)
    soft = np.sort(noise, axis=1)
    flat = np.full((2, *shape, 3), [[[[0]]], [[[255]]]], np.uint8)
    stack = np.concatenate([noise, soft, flat])
    in_c = measure_stack(stack)
    monkeypatch.setenv(PATH_VARIABLE, "off")
    load_kernels.cache_clear()
    for ours, plain in zip(in_c, measure_stack(stack), strict=True):
        np.testing.assert_array_equal(ours, plain)


def test_no_pictures(kernels: None) -> None:
    assert [len(part) for part in measure_stack(np.zeros((0, 5, 5, 3), np.uint8))] == [0] * 4
