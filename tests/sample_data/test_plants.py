"""Every planted defect is what the key says, read back by decoders that know of no plan."""

from __future__ import annotations

import csv
import io
import warnings

import numpy as np
import pytest
import simplejpeg
from PIL import ExifTags, Image

from tests.sample_data.conftest import SAMPLE_DATA

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=[7, 20261])
def seed(request):
    return request.param


@pytest.fixture(scope="module")
def root(seed, dataset):
    """The committed dataset, and one that nobody looked at."""
    return SAMPLE_DATA if seed == 7 else dataset(seed)


@pytest.fixture(scope="module")
def planted(root):
    """(members, sentence) of each key row, by code."""
    found: dict[str, list[tuple[list[str], str]]] = {}
    for row in csv.DictReader((root / "answer_key.csv").read_text().splitlines()):
        found.setdefault(row["code"], []).append((row["members"].split("|"), row["planted"]))
    return found


@pytest.fixture(scope="module")
def clean(root, planted):
    """Pictures that no row about a file or a picture names."""
    spoilt = {
        m
        for code, rows in planted.items()
        if code[:3] in ("FIL", "IMG")
        for r in rows
        for m in r[0]
    }
    pictures = [p for s in ("train", "val", "test") for p in (root / s).rglob("*.*")]
    ids = sorted(p.relative_to(root).as_posix() for p in pictures if p.is_file())
    return [i for i in ids if i not in spoilt and not i.endswith(".gitkeep")]


def opened(root, sample):
    return Image.open(io.BytesIO((root / sample).read_bytes()))


def pixels(root, sample):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a palette's transparency, when read as RGB
        return np.array(opened(root, sample).convert("RGB"))


def luma(root, sample):
    return np.array(Image.fromarray(pixels(root, sample)).convert("L")) / 255.0


def strict_complaint(data):
    try:
        simplejpeg.decode_jpeg(data, strict=True)
    except ValueError as error:
        return str(error)
    return ""


def pillow_complaint(data):
    try:
        Image.open(io.BytesIO(data)).load()
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"
    return ""


def test_clean_pictures_are_clean_beyond_doubt(root, clean):
    sizes = []
    for sample in clean:
        y = luma(root, sample)
        levels = np.bincount((y * 255).round().astype(int).ravel(), minlength=256)
        share = levels[levels > 0] / levels.sum()
        assert np.quantile(y, 0.99) > 0.4, sample
        assert np.quantile(y, 0.05) < 0.6, sample
        assert y.std() > 0.08, sample
        assert -(share * np.log2(share)).sum() > 6.0, sample
        rgb = pixels(root, sample).astype(int)
        assert np.quantile(rgb.max(2) - rgb.min(2), 0.99) > 20, sample
        sizes.append(y.shape)
    side = [(h * w) ** 0.5 for h, w in sizes]
    assert min(side) > 85
    assert max(side) < 175
    assert max(max(h, w) / min(h, w) for h, w in sizes) < 1.7


def test_unreadable_and_bomb(root, planted):
    (empty,), _ = planted["FILE001"][0]
    files = [(root / members[0]).read_bytes() for members, _ in planted["FILE001"]]
    assert sorted(len(data) > 0 for data in files) == [False, True]
    assert any(data.startswith(b"<!DOCTYPE html>") for data in files)
    assert empty.startswith("train/")
    bomb = (root / planted["FILE005"][0][0][0]).read_bytes()
    assert len(bomb) < 100
    with pytest.raises(Image.DecompressionBombError):
        Image.open(io.BytesIO(bomb))


def test_damage_is_seen_by_a_strict_decoder_and_half_of_it_by_no_other(root, planted):
    silent = 0
    for (sample,), said in planted["FILE002"]:
        data = (root / sample).read_bytes()
        if data[:2] == b"\xff\xd8":
            assert strict_complaint(data), (sample, said)
        else:
            assert pillow_complaint(data), (sample, said)
        if "cut" not in said and "removed" not in said:
            assert pillow_complaint(data) == "", (sample, said)
            silent += 1
    assert silent == 3
    assert len(planted["FILE002"]) == 7


def test_hidden_damage_decodes_and_ends_in_grey_or_in_text(root, planted):
    grey = 0
    for (sample,), said in planted["FILE003"]:
        data = (root / sample).read_bytes()
        assert pillow_complaint(data) == strict_complaint(data) == ""
        if "behind" in said:
            assert not data.endswith(b"\xff\xd9")
            continue
        tail = pixels(root, sample)[-16:].astype(int)
        assert (np.abs(tail - 128) <= 3).all(axis=2).mean() > 0.6
        grey += 1
    assert grey == 2


def test_wrong_extensions_and_traps(root, planted):
    for (sample,), _ in planted["FILE004"]:
        usual = {"jpg": "JPEG", "png": "PNG"}[sample.rsplit(".", 1)[1]]
        assert opened(root, sample).format != usual
    images = [opened(root, members[0]) for members, _ in planted["FILE006"]]
    assert sorted((i.format, i.mode) for i in images) == [
        ("GIF", "P"), ("JPEG", "CMYK"), ("JPEG", "RGB"), ("PNG", "P"), ("PNG", "RGB"),
        ("WEBP", "RGB"), ("WEBP", "RGB"),
    ]  # fmt: skip
    by_kind = {(i.format, i.mode): i for i in images}
    assert by_kind["GIF", "P"].n_frames == 3
    assert by_kind["JPEG", "RGB"].getexif()[ExifTags.Base.Orientation] == 6
    assert "transparency" in by_kind["PNG", "P"].info
    deep = next(m[0] for m, said in planted["FILE006"] if "16 bits" in said)
    assert (root / deep).read_bytes()[24] == 16  # IHDR: bit depth
