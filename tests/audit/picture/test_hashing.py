"""Perceptual hashes equal imagehash bit for bit, on any shape and on flat pictures."""

from __future__ import annotations

import imagehash
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from audit.picture.features import feature_picture, measure_pictures
from audit.picture.hashing import hashes, lanczos
from tests.conftest import picture


def assert_equal_to_imagehash(luma: np.ndarray) -> None:
    image = Image.fromarray(luma)
    ours = {name: values[0] for name, values in hashes(luma[None]).items()}
    assert ours["phash"] == int(str(imagehash.phash(image)), 16)
    assert ours["dhash"] == int(str(imagehash.dhash(image)), 16)
    assert ours["phash256"] == str(imagehash.phash(image, hash_size=16))


@pytest.mark.slow
@settings(max_examples=150)
@given(
    width=st.integers(1, 400), height=st.integers(1, 400), seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(["noise", "flat", "ramp", "halves"]),
)  # fmt: skip
def test_hashes_equal_imagehash(width: int, height: int, seed: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    luma = {
        "noise": rng.integers(0, 256, (height, width)),
        "flat": np.full((height, width), seed % 256),
        "ramp": (x + 2 * y + seed) % 256,
        "halves": np.where(x < width // 2, 40, 200),
    }[kind].astype(np.uint8)
    assert_equal_to_imagehash(luma)


@pytest.mark.parametrize("size", [(32, 32), (64, 64), (9, 8), (30, 8)])
@pytest.mark.parametrize("shape", [(1, 300), (300, 1), (100, 32), (400, 110), (64, 64), (187, 250)])
def test_lanczos_equals_pillow_in_either_order_of_passes(
    shape: tuple[int, int], size: tuple[int, int]
) -> None:
    luma = np.random.default_rng(1).integers(0, 256, shape).astype(np.uint8)
    expected = np.asarray(Image.fromarray(luma).resize(size, Image.Resampling.LANCZOS))
    np.testing.assert_array_equal(lanczos(luma[None], *size)[0], expected)


def test_hashes_of_a_colour_picture_are_those_of_its_feature_picture() -> None:
    rgb = picture(3, 900, 700)
    small = feature_picture(rgb)
    features = measure_pictures(small[None])
    assert small.shape == (175, 225, 3)
    image = Image.fromarray(small)
    assert features["phash"][0] == int(str(imagehash.phash(image)), 16)
    assert features["dhash"][0] == int(str(imagehash.dhash(image)), 16)
