"""Features mean what their columns say, and pictures measured together get what each gets alone."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from audit.picture.decode import Limits
from audit.picture.features import (
    FEATURES,
    feature_picture,
    measure_pictures,
    noise_floor,
    transparent_share,
)
from audit.picture.measure import FileJob, Measured, Measurer
from audit.picture.places import PLACES
from audit.picture.signatures import cut_and_shrink, make_signature, make_signatures, shrink
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
    sharp = [picture(seed, 250, 190) for seed in range(12)]
    soft = [cv2.GaussianBlur(one, (0, 0), sigma) for one in sharp]
    least, most = min(map(sharpness, sharp)), max(map(sharpness, soft))
    assert most < least


def sharpness(rgb: np.ndarray) -> float:
    return float(features(rgb)["sharpness"])


def noisy(seed: int, shape: tuple[int, int], sigma: float) -> np.ndarray:
    """A grey picture of nothing but noise."""
    grey = np.random.default_rng(seed).normal(128, sigma, (*shape, 1))
    return np.clip(grey + np.zeros(3), 0, 255).astype(np.uint8)


def test_noise_estimate_is_within_a_fifth_of_the_truth() -> None:
    for sigma in (4.0, 10.0):
        found = features(noisy(5, (240, 240), sigma))["noise"]
        assert found == pytest.approx(sigma / 255, rel=0.2)
    large = noisy(6, (400, 500), 20)
    # the least of 16 medians of 162 differences: a seventh under the mean of medians
    assert features(large)["noise_floor"] == pytest.approx(0.86 * 20 / 255, rel=0.1)
    assert features(large)["noise"] == pytest.approx(10 / 255, rel=0.1)  # a mean of four pixels
    assert np.isnan(features(large[:384, :384])["noise_floor"])
    large[:100] = 90  # a sky, and texture
    assert features(large)["noise_floor"] == 0


def test_a_flat_picture_has_no_sharpness_and_no_entropy() -> None:
    got = features(np.full((50, 60, 3), 77, np.uint8))
    assert np.isnan(got["sharpness"])
    assert (got["entropy"], got["noise"]) == (0, 0)
    for shape in ((1, 1, 3), (1, 900, 3), (900, 1, 3), (3, 3, 3), (4, 4, 3), (5000, 2, 3)):
        assert features(np.zeros(shape, np.uint8))["brightness"] == 0


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


SIDE = (32, 40)


def kinds(seed: int, height: int, width: int) -> dict[str, Image.Image]:
    rgb = picture(seed, width, height)
    grey = rgb[..., 0]
    alpha = np.full((height, width, 1), 255, np.uint8)
    alpha[: height // 3] = 40
    framed = np.pad(rgb[4:-4, 4:-4], ((4, 4), (4, 4), (0, 0)), constant_values=250)
    return {
        "colour.jpg": Image.fromarray(rgb),
        "grey.jpg": Image.fromarray(grey),
        "deep.png": Image.fromarray(grey.astype(np.uint16) * 257),
        "palette.png": Image.fromarray(rgb).quantize(16),
        "alpha.png": Image.fromarray(np.concatenate([rgb, alpha], axis=2)),
        "cmyk.jpg": Image.fromarray(rgb).convert("CMYK"),
        "flat.png": Image.new("RGB", (width, height), (9, 9, 9)),
        "framed.png": Image.fromarray(framed),
        "halved.png": Image.fromarray(picture(seed, 400 + width, 400 + height)),
    }


def write_tree(folder: Path, seed: int, height: int, width: int) -> list[FileJob]:
    """Write pictures of one size in many modes, and a turned, an animated and a broken one."""
    folder.mkdir(exist_ok=True)
    made = kinds(seed, height, width)
    for name, image in made.items():
        image.save(folder / name)
    turned = Image.Exif()
    turned[0x0112] = 6
    made["colour.jpg"].transpose(Image.Transpose.ROTATE_90).save(folder / "turned.jpg", exif=turned)
    frames = [made["palette.png"], made["flat.png"].quantize(4)]
    frames[0].save(folder / "animated.gif", save_all=True, append_images=frames[1:])
    whole = (folder / "colour.jpg").read_bytes()
    (folder / "truncated.jpg").write_bytes(whole[:-20])
    (folder / "text.jpg").write_bytes(b"no picture")
    (folder / "again.jpg").write_bytes(whole)
    names = sorted(entry.name for entry in folder.iterdir())
    random.Random(seed).shuffle(names)
    return [FileJob(name, "", str(folder / name)) for name in names]


def by_content(measured: Measured) -> dict[str, bytes]:
    return {row["content_hash"]: row["signature"] for row in measured.signatures.to_pylist()}


@settings(max_examples=10, deadline=None)
@given(
    seed=st.integers(0, 2**31), height=st.integers(12, 150), width=st.integers(12, 150),
    hashes=st.sampled_from([(), ("whash",)]),
)  # fmt: skip
def test_files_measured_together_have_the_rows_of_files_measured_alone(
    tmp_path_factory: pytest.TempPathFactory, seed: int, height: int, width: int,
    hashes: tuple[str, ...],
) -> None:  # fmt: skip
    jobs = write_tree(tmp_path_factory.mktemp("kinds"), seed, height, width)
    measure = Measurer(Limits(), hashes)
    together = measure(jobs)
    alone = [measure([job]) for job in jobs]
    assert together.features.to_pylist() == [one.features.to_pylist()[0] for one in alone]
    assert by_content(together) == {k: v for one in alone for k, v in by_content(one).items()}
    assert together.signatures.num_rows == len(by_content(together))
    statuses = {row["sample_id"]: row["status"] for row in together.features.to_pylist()}
    assert statuses.pop("truncated.jpg") == "damaged"
    assert statuses.pop("text.jpg") == "unreadable"
    assert set(statuses.values()) == {"ok"}


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**31), height=st.integers(1, 90), width=st.integers(1, 90),
    n=st.integers(2, 5),
)  # fmt: skip
def test_a_stack_has_the_features_and_signatures_of_its_pictures(
    seed: int, height: int, width: int, n: int
) -> None:
    rng = np.random.default_rng(seed)
    stack = rng.integers(0, 256, (n, height, width, 3)).astype(np.uint8)
    stack[0] = cv2.resize(stack[0, :2, :2], (width, height))
    stack[1] = seed % 256
    stack[1, height // 3 : -height // 3, width // 3 : -width // 3] += 40
    shares = rng.random(n) * 0.05
    together, signatures = measure_pictures(stack), make_signatures(cut_and_shrink(stack), shares)
    for at in range(n):
        for name, values in measure_pictures(stack[at : at + 1]).items():
            np.testing.assert_array_equal(values[0], together[name][at], name)
        assert make_signature(stack[at], opaque_share=shares[at]) == signatures[at]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**31), height=st.integers(1, 400), width=st.integers(1, 400))
def test_a_shrunk_picture_is_opencvs(seed: int, height: int, width: int) -> None:
    rgb = np.random.default_rng(seed).integers(0, 256, (height, width, 3)).astype(np.uint8)
    rgb = cv2.blur(rgb, (3, 3))
    method = cv2.INTER_AREA if min(height, width) >= 32 else cv2.INTER_LINEAR
    np.testing.assert_array_equal(shrink(rgb, 32), cv2.resize(rgb, (32, 32), interpolation=method))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**31), height=st.integers(2, 900), width=st.integers(385, 900))
def test_a_feature_picture_is_halved_as_by_opencv(seed: int, height: int, width: int) -> None:
    rgb = np.random.default_rng(seed).integers(0, 256, (height, width, 3)).astype(np.uint8)
    expected = rgb
    while max(expected.shape[:2]) > 384 and min(expected.shape[:2]) > 1:
        half = expected.shape[1] // 2, expected.shape[0] // 2
        even = expected[: half[1] * 2, : half[0] * 2]
        expected = cv2.resize(even, half, interpolation=cv2.INTER_AREA)
    np.testing.assert_array_equal(feature_picture(rgb), expected)


def test_a_file_is_sound_although_many_share_its_buffer(tmp_path: Path) -> None:
    """The decoder's buffer is used again, so what waits to be measured must be a copy."""
    jobs, expected = [], []
    for seed in range(70):
        data = io.BytesIO()
        Image.fromarray(picture(seed, *SIDE)).save(data, "JPEG")
        (tmp_path / f"{seed}.jpg").write_bytes(data.getvalue())
        jobs.append(FileJob(str(seed), "", str(tmp_path / f"{seed}.jpg")))
        decoded = np.asarray(Image.open(data).convert("RGB"))
        expected.append(int(measure_pictures(decoded[None])["phash"][0]))
    assert Measurer(Limits())(jobs).features["phash"].to_pylist() == expected
    assert len(set(expected)) > 60
