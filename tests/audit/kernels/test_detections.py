"""Kernels of detections equal their plain forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from audit.subset import matching, precision

THRESHOLDS = np.linspace(0.3, 0.95, 10)


def boxes(rng: np.random.Generator, n: int) -> Any:
    return np.hstack([rng.integers(0, 9, (n, 2)), rng.integers(0, 6, (n, 2))]).astype(float)


@pytest.mark.parametrize("pictures", [0, 1, 30])
def test_assignments(kernels: None, pictures: int) -> None:
    rng = np.random.default_rng(pictures)
    each, objects = rng.integers(0, 9, pictures), rng.integers(0, 7, pictures)
    begin, ends = np.cumsum([0, *each]), np.cumsum(objects, dtype=np.int64)
    n, m = int(each.sum()), int(objects.sum())
    found, truth, crowd = boxes(rng, n), boxes(rng, m), rng.random(m) < 0.2
    counts, far = (rng.random((4, k)) < 0.6 for k in (m, n))
    marks = [np.zeros((4, n), np.uint16) for _ in range(4)]
    given = (begin, ends - objects, ends, found, truth, crowd, counts, far, THRESHOLDS)
    matching.assign(*given, *marks[:2])
    matching._assign(*given, *marks[2:])
    np.testing.assert_array_equal(marks[0], marks[2])
    np.testing.assert_array_equal(marks[1], marks[3])


@pytest.mark.parametrize("parts", [False, True])
@pytest.mark.parametrize("n", [0, 1, 200])
def test_rankings(kernels: None, n: int, parts: bool) -> None:
    rng = np.random.default_rng(n)
    hit, skip = (rng.integers(0, 1024, n).astype(np.uint16) for _ in range(2))
    weight, bits = rng.integers(0, 3, n).astype(float), np.arange(10)
    value = np.zeros(10)
    gain, found = (np.zeros(n if parts else 0) for _ in range(2))
    total = max(weight.sum(), 1.0)
    precision.walk(weight, hit, skip, bits, total, precision.RECALLS, value, gain, found)
    ours = precision._curve(weight, hit, skip, bits, total, parts)
    for mine, plain in zip(ours, (value.mean(), gain, found), strict=True):
        np.testing.assert_allclose(mine, plain, rtol=1e-12, atol=1e-12)
