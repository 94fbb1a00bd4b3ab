"""Kernels of images and embeddings give what their plain forms give."""

import numpy as np
import pytest

from audit.embeddings.patches import cut_patches, pool_codes
from audit.kernels.library import PATH_VARIABLE, find_kernel, load_kernels
from audit.picture.hashing import lanczos
from audit.picture.statistics import measure_stack


def use_plain_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PATH_VARIABLE, "off")
    load_kernels.cache_clear()
    assert not load_kernels()


SHAPES = [(1, 1), (1, 9), (9, 1), (2, 3), (3, 9), (4, 4), (5, 4), (4, 5), (33, 47), (250, 187)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_statistics(kernels: None, monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(sum(shape))
    noise = rng.integers(0, 256, (3, *shape, 3), np.uint8)
    soft = np.sort(noise, axis=1)
    flat = np.full((2, *shape, 3), [[[[0]]], [[[255]]]], np.uint8)
    stack = np.concatenate([noise, soft, flat])
    in_c = measure_stack(stack)
    use_plain_forms(monkeypatch)
    for ours, plain in zip(in_c, measure_stack(stack), strict=True):
        np.testing.assert_array_equal(ours, plain)


def test_no_pictures(kernels: None) -> None:
    assert [len(part) for part in measure_stack(np.zeros((0, 5, 5, 3), np.uint8))] == [0] * 4


# ---- lanczos reductions in C equal Pillow's, bit for bit ----


LUMA_SHAPES = [(1, 1), (1, 9), (9, 1), (3, 3), (33, 47), (384, 7), (7, 384), (250, 187)]


@pytest.mark.parametrize("shape", LUMA_SHAPES, ids=str)
def test_lanczos(kernels: None, monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int]) -> None:
    luma = np.random.default_rng(sum(shape)).integers(0, 256, (3, *shape), np.uint8)
    luma[0] = 255 * (luma[0] > 127)
    sizes = [(9, 8), (32, 32), (64, 64)]
    in_c = [lanczos(luma, *size) for size in sizes]
    use_plain_forms(monkeypatch)
    for size, ours in zip(sizes, in_c, strict=True):
        np.testing.assert_array_equal(ours, lanczos(luma, *size))


def test_bounds_outside_of_the_picture_are_passed_over(kernels: None) -> None:
    kernel = find_kernel("reduce_rows")
    assert kernel
    reduced = np.full((4, 5), 7, np.uint8)
    bounds = np.array([[-1, 1], [2, 2], [0, -1], [0, 9]])
    kernel(np.zeros((3, 5), np.uint8), bounds, np.ones((4, 2), np.int32), reduced)
    assert (reduced == 7).all()


# ---- kernels of embeddings give nearly what their plain forms give ----


@pytest.mark.parametrize(("n", "side", "stride"), [(0, 8, 2), (1, 6, 2), (3, 7, 3), (5, 32, 2)])
def test_patches(
    kernels: None, monkeypatch: pytest.MonkeyPatch, n: int, side: int, stride: int
) -> None:
    pictures = np.random.default_rng(n).uniform(0, 255, (n, side, side, 3)).astype(np.float32)
    pictures[:1] = 128  # a flat picture
    ours = cut_patches(pictures, stride)
    use_plain_forms(monkeypatch)
    np.testing.assert_allclose(ours, cut_patches(pictures, stride), atol=1e-3)


@pytest.mark.parametrize(("n", "places", "k"), [(0, 2, 3), (1, 1, 4), (2, 3, 5), (3, 14, 40)])
def test_codes(kernels: None, monkeypatch: pytest.MonkeyPatch, n: int, places: int, k: int) -> None:
    rng = np.random.default_rng(n)
    white = rng.normal(size=(n * places**2, 24)).astype(np.float32)
    words = rng.normal(size=(k, 24)).astype(np.float32)
    norms = (words**2).sum(1)
    ours = pool_codes(white @ words.T, white, norms, places)
    use_plain_forms(monkeypatch)
    np.testing.assert_allclose(ours, pool_codes(white @ words.T, white, norms, places), atol=1e-3)


def test_patches_that_do_not_fit_are_not_cut(kernels: None) -> None:
    kernel = find_kernel("cut_patches")
    assert kernel
    pictures, patches = np.ones((1, 9, 9, 3), np.float32), np.zeros((1, 2, 2, 6, 6, 3), np.float32)
    for stride in (0, 4):
        kernel(pictures, stride, 1.0, patches)
        assert not patches.any()
