"""Features mean what their columns say, against plain numpy."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image

from audit.picture.features import (
    FEATURES,
    feature_picture,
    measure_pictures,
    noise_floor,
    transparent_share,
)
from audit.picture.places import PLACES
from tests.conftest import picture


def features(rgb: np.ndarray, alpha: np.ndarray | None = None) -> dict[str, Any]:
    columns = measure_pictures(feature_picture(rgb)[None])
    return {name: values[0] for name, values in columns.items()} | {
        "transparent": transparent_share(alpha), "noise_floor": noise_floor(rgb)
    }  # fmt: skip


def test_every_column_is_filled_and_no_other() -> None:
    of_signatures = {column.name for column in PLACES}  # measured of these alone
    assert set(features(picture(0))) | of_signatures == {column.name for column in FEATURES}


def test_luma_statistics_equal_numpy() -> None:
    rgb = picture(1, 200, 150)
    luma = np.asarray(Image.fromarray(rgb).convert("L")).astype(float)
    got = features(rgb)
    assert got["brightness"] == pytest.approx(luma.mean() / 255)
    assert got["contrast"] == pytest.approx(luma.std() / 255)
    for q in (1, 5, 50, 95, 99):
        expected = np.percentile(luma, q, method="inverted_cdf") / 255
        assert got[f"brightness_p{q}"] == pytest.approx(expected, abs=1 / 255)
    counts = np.bincount(luma.astype(int).ravel(), minlength=256) / luma.size
    shares = counts[counts > 0]
    assert got["entropy"] == pytest.approx(-(shares * np.log2(shares)).sum())


def test_colour_statistics_equal_numpy() -> None:
    rgb = picture(2, 160, 120)
    high, low = rgb.max(2).astype(float), rgb.min(2).astype(float)
    got = features(rgb)
    saturation = np.divide(high - low, high, out=np.zeros_like(high), where=high > 0).mean()
    assert got["saturation"] == pytest.approx(saturation)
    means = [got["red"], got["green"], got["blue"]]
    assert means == pytest.approx(list(rgb.reshape(-1, 3).mean(0) / 255))
    spread = np.percentile(high - low, 99, method="inverted_cdf") / 255
    assert got["channel_spread"] == pytest.approx(spread, abs=1 / 255)
    assert not got["channels_equal"]
    grey = np.repeat(rgb[:, :, :1], 3, 2)
    assert features(grey)["channels_equal"]


@pytest.mark.parametrize("sigma", [2.0, 3.0])
def test_blur_lowers_sharpness(sigma: float) -> None:
    sharp = [features(picture(s, 250, 190))["sharpness"] for s in range(12)]
    soft = [
        features(cv2.GaussianBlur(picture(s, 250, 190), (0, 0), sigma))["sharpness"]
        for s in range(12)
    ]
    assert max(soft) < min(sharp)


def test_noise_estimate_is_within_a_fifth_of_the_truth() -> None:
    rng = np.random.default_rng(5)
    smooth = np.full((240, 240, 3), 128.0)
    for sigma in (4.0, 10.0):
        noisy = np.clip(smooth + rng.normal(0, sigma, (240, 240, 1)), 0, 255).astype(np.uint8)
        assert features(noisy)["noise"] == pytest.approx(sigma / 255, rel=0.2)


def test_noise_of_a_large_picture_is_told_from_texture_at_its_full_size() -> None:
    rng = np.random.default_rng(6)
    noisy = np.clip(rng.normal(128, 20, (400, 500, 1)) + np.zeros(3), 0, 255).astype(np.uint8)
    # the least of 16 medians of 162 differences: a seventh under the mean of medians
    assert features(noisy)["noise_floor"] == pytest.approx(0.86 * 20 / 255, rel=0.1)
    assert features(noisy)["noise"] == pytest.approx(10 / 255, rel=0.1)  # a mean of four pixels
    texture = noisy.copy()
    texture[:100] = 90  # a sky
    assert features(texture)["noise_floor"] == 0
    assert np.isnan(features(noisy[:384, :384])["noise_floor"])


def test_a_flat_picture_has_no_sharpness_and_no_entropy() -> None:
    got = features(np.full((50, 60, 3), 77, np.uint8))
    assert np.isnan(got["sharpness"])
    assert got["entropy"] == 0
    assert got["noise"] == 0


@pytest.mark.parametrize(
    ("height", "width"), [(1, 1), (1, 900), (900, 1), (3, 3), (4, 4), (5000, 2)]
)
def test_tiny_and_thin_pictures_are_measured(height: int, width: int) -> None:
    got = features(np.zeros((height, width, 3), np.uint8))
    assert got["brightness"] == 0


def test_transparent_share() -> None:
    alpha = np.full((40, 40), 255, np.uint8)
    alpha[:10] = 0
    assert features(picture(6, 40, 40), alpha)["transparent"] == pytest.approx(0.25)


def test_the_border_is_the_outermost_two_pixels_all_around() -> None:
    pixels = np.random.default_rng(3).integers(0, 256, (40, 30, 3)).astype(np.uint8)
    pixels[2:-2, 2:-2] = 99
    inside = np.ones((40, 30), bool)
    inside[2:-2, 2:-2] = False
    found = features(pixels)
    luma = np.asarray(Image.fromarray(pixels).convert("L"))
    means = pixels[inside].mean(0) / 255
    assert [found[n] for n in ("border_red", "border_green", "border_blue")] == pytest.approx(means)
    assert found["border_spread"] == pytest.approx(luma[inside].std() / 255)
    pixels[inside] = (10, 200, 30)
    assert features(pixels)["border_spread"] == 0.0
