"""Perceptual hashes equal imagehash bit for bit; hashes on request are stored and exported."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import imagehash
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from audit.checking.config import Config, load_config
from audit.errors import UsageError
from audit.picture.features import feature_picture, measure_pictures
from audit.picture.hashing import (
    COMPARABLE_HASHES,
    LIBRARY_HASHES,
    compute_library_hashes,
    hashes,
    lanczos,
)
from audit.run.run_version import open_run
from audit.scanning import scanning
from audit.scanning.measuring import Progress
from audit.sources import open_source
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
