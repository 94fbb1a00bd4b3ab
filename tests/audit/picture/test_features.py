"""Features, signatures and hashes mean what their columns say, alone and together."""

import io
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import imagehash
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from audit.checking.config import Config, load_config
from audit.errors import UsageError
from audit.picture.decode import Limits
from audit.picture.features import (
    FEATURES,
    feature_picture,
    measure_pictures,
    noise_floor,
    transparent_share,
)
from audit.picture.hashing import (
    COMPARABLE_HASHES,
    LIBRARY_HASHES,
    compute_library_hashes,
    hash_bits,
    lanczos,
    reduce_luma,
)
from audit.picture.measure import FileJob, Measured, Measurer
from audit.picture.pixels import Pixels
from audit.picture.places import PLACES, measure_places
from audit.picture.signatures import (
    SIGNATURE_DTYPE,
    Flag,
    cut_and_shrink,
    find_border,
    is_comparable,
    make_signature,
    make_signatures,
    shrink,
    stack_signatures,
)
from audit.run.run_version import open_run
from audit.scanning import scanning
from audit.scanning.measuring import Progress
from audit.sources import open_source
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


def framed(picture: np.ndarray, level: int, x: int, y: int) -> np.ndarray:
    return np.pad(picture, ((y, y), (x, x), (0, 0)), constant_values=level)


@pytest.mark.parametrize("level", [0, 128, 255])
def test_a_border_is_cut_and_recorded(scene: Callable[..., np.ndarray], level: int) -> None:
    picture = scene(1)
    left, top, right, bottom = find_border(framed(picture, level, 16, 12))
    # one pixel more than the frame is allowed: the blurred line between frame and picture
    assert 16 <= left <= 17
    assert 16 <= right <= 17
    assert 12 <= top <= 13
    assert 12 <= bottom <= 13


def test_a_frame_hardly_changes_the_thumbnail(scene: Callable[..., np.ndarray]) -> None:
    plain, cut = make_signature(scene(2)), make_signature(framed(scene(2), 255, 20, 20))
    apart = np.abs(plain["grey"].astype(int) - cut["grey"].astype(int))
    assert np.median(apart) <= 6
    assert Flag.TRIMMED in Flag(int(cut["flags"]))
    assert Flag.TRIMMED not in Flag(int(plain["flags"]))


def test_a_noisy_border_is_still_a_border(scene: Callable[..., np.ndarray]) -> None:
    rng = np.random.default_rng(0)
    noisy = framed(scene(3, 190, 256), 128, 20, 20) + rng.normal(0, 6, (230, 296, 3))
    left, top, _, _ = find_border(np.clip(noisy, 0, 255).astype(np.uint8))
    assert min(left, top) >= 19


def test_a_scene_and_a_picture_that_is_mostly_background_have_no_border(
    scenes: list[np.ndarray],
) -> None:
    board = np.full((100, 100, 3), 255, np.uint8)
    board[50:54, 50:54] = 0
    assert {find_border(picture) for picture in (board, *scenes)} == {(0, 0, 0, 0)}


def test_flat_and_transparent_pictures_are_not_comparable(scene: Callable[..., np.ndarray]) -> None:
    flat = np.full((64, 64, 3), 77, np.uint8)
    noisy = np.clip(flat + np.random.default_rng(0).normal(0, 2, flat.shape), 0, 255)
    records = [make_signature(one) for one in (flat, noisy.astype(np.uint8), scene(1))]
    records.append(make_signature(scene(1), opaque_share=0.0))
    assert is_comparable(stack_signatures(records)).tolist() == [False, False, True, False]
    grey = make_signature(scene(1)[..., 0])  # of two axes
    assert Flag.GREYSCALE in Flag(int(grey["flags"]))


@pytest.mark.parametrize("shape", [(1, 1, 3), (1, 50, 3), (50, 2, 3), (9, 9, 3)])
def test_tiny_pictures_have_signatures(shape: tuple[int, ...]) -> None:
    picture = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    record = make_signature(picture)
    assert record.dtype == SIGNATURE_DTYPE
    assert SIGNATURE_DTYPE.itemsize < 1300
    assert tuple(record["size"]) == (shape[1], shape[0])
    with pytest.raises(ValueError, match="no pixels"):
        make_signature(picture[:0])


def scene(seed: int = 0) -> Pixels:
    """Smooth grey noise, 96x128."""
    rng = np.random.default_rng(seed)
    coarse = rng.uniform(60, 220, (12, 16))
    return np.repeat(np.kron(coarse, np.ones((8, 8)))[..., None], 3, axis=2).astype(np.uint8)


def places(picture: Pixels) -> dict[str, float]:
    edge = np.concatenate([picture[0], picture[-1], picture[:, 0], picture[:, -1]])
    table = stack_signatures([make_signature(picture)])
    found = measure_places(table, np.array([edge.mean() / 255]))
    return {name: float(values[0]) for name, values in found.items()}


def in_frame(picture: Pixels, level: int) -> Pixels:
    out = picture.copy()
    out[:8], out[-8:], out[:, :8], out[:, -8:] = level, level, level, level
    return out


@pytest.mark.parametrize("level", [0, 255])
def test_a_frame_takes_its_share_of_the_picture(level: int) -> None:
    share = 1 - (96 - 18) * (128 - 18) / (96 * 128)  # a signature cuts one pixel more
    assert places(in_frame(scene(), level))["frame"] == pytest.approx(share)


def test_a_plain_ground_is_no_frame() -> None:
    ground = np.full((96, 128, 3), 0, np.uint8)
    ground[20:70, 40:60] = 230  # a stroke on black touches the cut at a few pixels of each side
    ground[40:44, 30:100] = 230
    assert places(ground)["frame"] == places(scene())["frame"] == 0.0
    for above, below in ((4, 4), (4, 60), (60, 4)):  # a box somewhere on it
        box = np.pad(in_frame(scene(), 255), ((above, below), (0, 0), (0, 0)), constant_values=255)
        assert (places(box)["frame"] > 0) == (above == below)


def test_a_tint_is_over_all_of_the_picture() -> None:
    found = places((scene() * (1.0, 1.0, 0.7)).astype(np.uint8))
    assert found["cast_blue"] == pytest.approx(np.log(0.7), abs=0.03)
    assert found["cast_red"] == pytest.approx(0.0, abs=0.02)
    picture = scene()
    picture[30:60, 40:90] = (230, 200, 20)  # an object of one colour
    assert abs(places(picture)["cast_blue"]) < 0.02


def assert_equal_to_imagehash(luma: np.ndarray) -> None:
    image = Image.fromarray(luma)
    ours = {name: values[0] for name, values in hash_bits(*reduce_luma(luma[None])).items()}
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
    small = feature_picture(picture(3, 900, 700))
    features = measure_pictures(small[None])
    assert small.shape == (175, 225, 3)
    image = Image.fromarray(small)
    for name in ("phash", "dhash"):
        assert features[name][0] == int(str(getattr(imagehash, name)(image)), 16)


ALL = tuple(column.name for column in LIBRARY_HASHES)


def scan(tree: Path, run: Path, *hashes: str, **settings: Any) -> scanning.ScanResult:
    source, config = open_source([str(tree)]), Config(hashes=hashes, **settings)
    return scanning.scan(source, run, jobs=1, config=config, checks=["DUP"])


@pytest.mark.slow
@pytest.mark.parametrize("size", [(500, 320), (33, 47), (1, 1)])
def test_values_are_those_of_the_library(size: tuple[int, int]) -> None:
    small = feature_picture(picture(3, *size))
    image = Image.fromarray(small)
    values = compute_library_hashes(small, ALL)
    assert tuple(values) == ALL
    for name in COMPARABLE_HASHES:
        bits = getattr(imagehash, name)(image).hash.ravel()
        assert values[name] == int.from_bytes(np.packbits(bits).tobytes(), "big")
    assert values["colorhash"] == str(imagehash.colorhash(image))
    assert values["crop_resistant"] == str(imagehash.crop_resistant_hash(image))


@pytest.mark.slow
def test_they_become_columns_that_sql_reads_and_nothing_without_asking(
    tree: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    scan(tree, run)
    with open_run(run) as store:
        assert not set(ALL) & store.columns("features").keys()
    more = scan(tree, run, "colorhash", "whash")
    assert more.measured == 24  # other columns: every file is read again
    with open_run(run) as store:
        columns = store.columns("images")
        assert (columns["whash"], columns["colorhash"]) == ("UBIGINT", "VARCHAR")
        rows = store.query("SELECT uri, whash, colorhash FROM images ORDER BY id")
    for uri, whash, colorhash in rows.head(3).iter_rows():
        image = Image.fromarray(feature_picture(np.array(Image.open(uri))))
        assert f"{whash:016x}" == str(imagehash.whash(image))
        assert colorhash == str(imagehash.colorhash(image))
    assert rows["whash"].null_count() == 0
    assert scan(tree, run, "whash", "colorhash").unchanged


@pytest.mark.slow
def test_a_scan_that_was_stopped_goes_on_with_other_hashes(tree: Path, tmp_path: Path) -> None:
    def stop(step: Progress) -> None:
        if step.phase == "relate":
            raise KeyboardInterrupt

    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        scanning.scan(open_source([str(tree)]), run, jobs=1, progress=stop)
    assert scan(tree, run, "average_hash").resumed == 0
    with open_run(run) as store:
        assert store.scalar("SELECT count(average_hash) FROM images") == 24


@pytest.mark.slow
def test_a_file_without_a_picture_has_null_hashes(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "broken.jpg").write_bytes(b"no picture")
    Image.fromarray(picture(1, 40, 30)).save(folder / "whole.png")
    scan(folder, tmp_path / "run", *ALL)
    with open_run(tmp_path / "run") as store:
        row = store.query("SELECT * FROM images WHERE id = 'broken.jpg'")
    assert row.select(ALL).null_count().sum_horizontal().item() == len(ALL)


@pytest.mark.slow
def test_close_pairs_of_a_further_hash_are_candidates(tree: Path, tmp_path: Path) -> None:
    counts = []
    for run, names in (("run", ("whash",)), ("plain", ())):
        scan(tree, tmp_path / run, *names, match_hashes=names, match={"radius": 20})
        with open_run(tmp_path / run) as store:
            text = store.scalar("SELECT value FROM relate_facts WHERE key = 'completeness'")
        counts.append(int(re.search(r"bits were found \(([\d,]+)", text)[1].replace(",", "")))  # type: ignore[index]
        assert ("also whash within" in text) == (run == "run")
    assert counts[0] > counts[1]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('[measure]\nhashes = ["phash9"]\n', r"phash9.*whash"),
        (
            '[measure]\nhashes = ["colorhash"]\n[match]\nhashes = ["colorhash"]\n',
            r"\[match\] hashes has 'colorhash'",
        ),
        ('[match]\nhashes = ["whash"]\n', r"that \[measure\] hashes lists"),
        ("[measure]\nhashs = []\n", "hashs"),
    ],
)
def test_settings_that_name_no_hash_are_refused(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "audit.toml").write_text(text)
    with pytest.raises(UsageError, match=sentence):
        load_config(tmp_path / "audit.toml")


def test_settings_name_them(tmp_path: Path) -> None:
    path = tmp_path / "audit.toml"
    path.write_text(
        '[measure]\nhashes = ["crop_resistant", "whash"]\n[match]\nhashes = ["whash"]\n'
    )
    config = load_config(path)
    assert (config.hashes, config.match_hashes) == (("whash", "crop_resistant"), ("whash",))
