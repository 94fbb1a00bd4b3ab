"""Kernels of embeddings give nearly what their plain forms give."""

from __future__ import annotations

import numpy as np
import pytest

from audit.embeddings.patches import cut_patches, pool_codes
from audit.kernels.library import PATH_VARIABLE, find_kernel, load_kernels


def plain_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PATH_VARIABLE, "off")
    load_kernels.cache_clear()
    assert not load_kernels()


@pytest.mark.parametrize(("n", "side", "stride"), [(0, 8, 2), (1, 6, 2), (3, 7, 3), (5, 32, 2)])
def test_patches(
    kernels: None, monkeypatch: pytest.MonkeyPatch, n: int, side: int, stride: int
) -> None:
    pictures = np.random.default_rng(n).uniform(0, 255, (n, side, side, 3)).astype(np.float32)
    pictures[:1] = 128  # a flat picture
    ours = cut_patches(pictures, stride)
    plain_forms(monkeypatch)
    np.testing.assert_allclose(ours, cut_patches(pictures, stride), atol=1e-3)


@pytest.mark.parametrize(("n", "places", "k"), [(0, 2, 3), (1, 1, 4), (2, 3, 5), (3, 14, 40)])
def test_codes(kernels: None, monkeypatch: pytest.MonkeyPatch, n: int, places: int, k: int) -> None:
    rng = np.random.default_rng(n)
    white = rng.normal(size=(n * places**2, 24)).astype(np.float32)
    words = rng.normal(size=(k, 24)).astype(np.float32)
    norms = (words**2).sum(1)
    ours = pool_codes(white @ words.T, white, norms, places)
    plain_forms(monkeypatch)
    np.testing.assert_allclose(ours, pool_codes(white @ words.T, white, norms, places), atol=1e-3)


def test_patches_that_do_not_fit_are_not_cut(kernels: None) -> None:
    kernel = find_kernel("cut_patches")
    assert kernel
    pictures, patches = np.ones((1, 9, 9, 3), np.float32), np.zeros((1, 2, 2, 6, 6, 3), np.float32)
    for stride in (0, 4):
        kernel(pictures, stride, 1.0, patches)
        assert not patches.any()
