"""What the names of folders and files mean, and what the first bytes of a file show."""

import io
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from audit.sources import formats, names, paths
from audit.sources.names import SYSTEM


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("train", "train"), ("Training", "train"), ("TRAIN", "train"), ("tr", "train"),
        ("train2017", "train"), ("train_images", "train"), ("training_set", "train"),
        ("seg_train", "train"), ("obj_train_data", "train"), ("trainA", "train"),
        ("val", "val"), ("valid", "val"), ("validation", "val"), ("dev", "val"),
        ("val2014", "val"),
        ("test", "test"), ("Testing", "test"), ("test-images", "test"), ("te", "test"),
        ("eval", "eval"), ("hold-out", "holdout"), ("trainval", "trainval"),
        ("cat", None), ("steam_train", None), ("train_station", None), ("test_tube", None),
        ("contest", None), ("devil", None), ("training_shoe", None), ("", None),
        ("train_val", "trainval"),
        ("trainset", "train"), ("TestData", "test"), ("Trainingsdaten", "train"),
        ("validación", "val"), ("entraînement", "train"), ("训练集", "train"), ("testament", None),
    ],
)  # fmt: skip
def test_one_name_alone(name: str, split: str | None) -> None:
    assert names.split_word(name) == split


@pytest.mark.parametrize(
    ("folders", "expected"),
    [
        (["train", "val", "test"], {"train": "train", "val": "val", "test": "test"}),
        (["Training", "Testing"], {"Training": "train", "Testing": "test"}),
        (["train2017", "val2017"], {"train2017": "train", "val2017": "val"}),
        # Two folders that mean one split keep their own spelling: merging them would lose which.
        (["train_1", "train_2"], {"train_1": "train_1", "train_2": "train_2"}),
        (["train", "val", "dev"], {"train": "train", "val": "val", "dev": "dev"}),
        (["train", "Eval"], {"train": "train", "Eval": "Eval"}),
        (["cars_train", "cars_test"], {"cars_train": "train", "cars_test": "test"}),
        (["steam_train", "bullet_train", "car"], {}),
        (["train", "bus", "car"], {"train": "train"}),
    ],
)
def test_names_beside_each_other(folders: list[str], expected: dict[str, str]) -> None:
    assert names.split_values(folders) == expected


CONTAINERS = ("images", "Images", "JPEGImages", "imgs", "img", "data", "all_images", "leftImg8bit")
OTHERS = ("cat", "database", "img1", "image_of_cat", "data_center", "raw", "")


@pytest.mark.parametrize("name", [*CONTAINERS, *OTHERS])
def test_containers(name: str) -> None:
    assert names.is_container(name) == (name in CONTAINERS)


@pytest.mark.parametrize(
    "name",
    ["labels", "annotations", "masks", "Annotations", "SegmentationClass", "train_masks",
     "test-labels", "ground_truth", "gtFine", "ImageSets"],
)  # fmt: skip
def test_annotation_folders_anywhere(name: str) -> None:
    assert names.is_annotation(name, beside_images=False)


def test_a_single_mask_folder_is_annotation_only_beside_pictures() -> None:
    assert names.is_annotation("mask", beside_images=True)
    assert not names.is_annotation("mask", beside_images=False)


@pytest.mark.parametrize("name", ["label_0", "mask_rcnn", "face_mask", "cat", "mislabels", ""])
def test_not_annotation(name: str) -> None:
    assert not names.is_annotation(name, beside_images=True)


# ---- uris are storable and reversible; repeated ids are numbered ----


file_names = st.binary(min_size=1, max_size=40).filter(
    lambda raw: b"\0" not in raw and b"/" not in raw
)


@given(st.lists(file_names, min_size=1, max_size=4))
def test_any_posix_path_survives(parts: list[bytes]) -> None:
    path = "/" + os.fsdecode(b"/".join(parts))
    uri = paths.uri_of(path)
    uri.encode("utf-8")
    assert paths.path_of(uri) == path


def test_a_readable_path_is_its_own_uri() -> None:
    assert paths.uri_of("/data/Ünïcode 猫/a b%20.jpg") == "/data/Ünïcode 猫/a b%20.jpg"
    assert paths.uri_of(os.fsdecode(b"/data/\xff.jpg")) == "file:///data/%FF.jpg"


def test_standard_file_uris_are_read() -> None:
    assert paths.path_of("file:///a%20b/c.jpg") == "/a b/c.jpg"
    assert paths.path_of("file://localhost/a.jpg") == "/a.jpg"


@pytest.mark.parametrize("url", ["http://x.org/a.jpg", "s3://bucket/a.jpg", "gs://b/c"])
def test_remote(url: str) -> None:
    assert paths.is_remote(url)
    assert paths.path_of(url) is None


def test_remap_takes_the_longest_whole_prefix() -> None:
    roots = {"/old": "/new", "/old/deep": "/deep"}
    assert paths.remap("/old/a.jpg", roots) == "/new/a.jpg"
    assert paths.remap("/old/deep/a.jpg", roots) == "/deep/a.jpg"
    assert paths.remap("/older/a.jpg", roots) == "/older/a.jpg"


@given(st.lists(st.sampled_from(["a", "a#2", "a#3", "b", "b#2", "é"]), max_size=60))
def test_ids_are_unique_and_the_first_keeps_its_name(listed: list[str]) -> None:
    seen = paths.IdRegister()
    given_out = [seen.take(name) for name in listed]
    assert len(set(given_out)) == len(given_out)
    assert all(
        out == name or out.startswith(name + "#")
        for out, name in zip(given_out, listed, strict=True)
    )
    for name in ("a", "b", "é"):
        if name in listed:
            assert given_out[listed.index(name)] == name


def test_many_ids_stay_apart() -> None:
    seen = paths.IdRegister()
    assert [seen.take(str(i)) for i in range(20_000)] == [str(i) for i in range(20_000)]
    assert [seen.take(str(i)) for i in range(5)] == [f"{i}#2" for i in range(5)]


@pytest.mark.parametrize(
    ("encoder", "mode"),
    [
        ("JPEG", "RGB"), ("PNG", "RGB"), ("GIF", "P"), ("BMP", "RGB"), ("TIFF", "RGB"),
        ("WEBP", "RGB"), ("JPEG2000", "RGB"), ("PPM", "RGB"), ("PPM", "L"), ("PPM", "1"),
        ("ICO", "RGBA"), ("ICNS", "RGBA"), ("PCX", "RGB"), ("SGI", "RGB"), ("DDS", "RGB"),
        ("AVIF", "RGB"), ("QOI", "RGB"), ("XBM", "1"), ("MPO", "RGB"), ("MSP", "1"),
    ],
)  # fmt: skip
def test_the_head_of_a_real_file_is_recognised(encoder: str, mode: str) -> None:
    file = io.BytesIO()
    try:
        Image.new(mode, (64, 64)).save(file, encoder)
    except (KeyError, OSError) as error:
        pytest.skip(f"this Pillow writes no {encoder}: {error}")
    assert formats.looks_like_image(file.getvalue()[: formats.HEAD_BYTES])


@pytest.mark.parametrize(
    "head",
    [
        b"", b"\0" * 32, b"<!DOCTYPE html><html><body>404</bod", b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n",
        b"PK\x03\x04\x14\0\0\0\x08\0", b"\x1f\x8b\x08\0", b"\x7fELF\x02\x01\x01",
        b"RIFF\x24\0\0\0WAVEfmt ", b"\0\0\0\x20ftypisom\0\0\x02\0isomiso2avc1",
        b"BMW is a car maker",
        b"path,label\na.jpg,cat\n", b'{"images": []}', b"Please read me first", b"Pf", b"GIF",
        b"#define WIDTH 3\n#include <stdio.h>", b"SQLite format 3\0", b"\x80\x04\x95pickle",
    ],
)  # fmt: skip
def test_other_files_are_not(head: bytes) -> None:
    assert not formats.looks_like_image(head)


@given(st.text(st.characters(min_codepoint=97, max_codepoint=122), max_size=32))
def test_words_are_no_pictures(text: str) -> None:
    assert not formats.looks_like_image(text.encode() + b" qoi") or text.startswith("qoif")


@pytest.mark.parametrize(
    ("name", "extension"),
    [
        ("a.jpg", "jpg"), ("a.JPG", "jpg"), ("a.tar.gz", "gz"), ("a", ""), (".bashrc", ""),
        ("img.0001", ""), ("a.", ""), ("v1.something_else", ""), ("a.j pg", ""), ("a.é", ""),
    ],
)  # fmt: skip
def test_extension(name: str, extension: str) -> None:
    assert formats.extension_of_name(name) == extension


def test_the_name_decides_without_opening(tmp_path: Path) -> None:
    absent = str(tmp_path / "absent")
    assert formats.kind_of("a.JPEG", absent) == "image"
    assert formats.kind_of("a.txt", absent) == "not an image"
    assert formats.kind_of("a.dng", absent) == "image format not read"
    assert formats.kind_of("a.unknown", absent) == "unreadable, extension unknown"


def test_every_raster_extension_that_pillow_opens_is_known() -> None:
    Image.init()
    documents = {"pdf", "eps", "ps", "wmf", "emf", "mpg", "mpeg", "h5", "hdf", "grib", "bufr"}
    odd = {"iim", "palm"}  # IPTC records and a format that Pillow only writes
    raster = {extension[1:] for extension in Image.EXTENSION} - documents - odd
    assert {e for e in raster if formats.KINDS.get(e) != "image"} == set()


NAMES = st.builds(
    "{}{}".format,
    st.text("ab.jp", max_size=4),
    st.sampled_from(
        ["", ".jpg", ".JPG", ".jpeg", ".Png", ".bw", ".heic", ".txt", "jpg", ".", ".jp2"]
    ),
).filter(bool)


@given(st.lists(NAMES))
def test_names_that_are_taken_for_pictures_at_once_are_names_of_pictures(names: list[str]) -> None:
    found = formats.named_as_images(names)
    usual = (".jpg", ".JPG", ".jpeg", ".bw", ".heic")
    assert [n for n in names if n in set(found)] == found
    for name in names:
        visible = name[0] != "."
        named = formats.KINDS.get(formats.extension_of_name(name)) == "image"
        assert name not in found or (visible and named)
        assert name in found or not (visible and named and name.endswith(usual))


def test_no_file_of_a_system_ends_as_pictures_do() -> None:
    assert formats.named_as_images(sorted(SYSTEM)) == []
