"""Pictures that are measured together get what each gets alone, whatever files they come from."""

from __future__ import annotations

import io
import random
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from audit.picture.decode import Limits
from audit.picture.features import feature_picture, measure_pictures
from audit.picture.measure import FileJob, Measured, Measurer
from audit.picture.signatures import cut_and_shrink, make_signature, make_signatures, shrink
from tests.conftest import picture

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
