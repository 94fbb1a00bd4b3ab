"""Which files are pictures: by extension, and by their first bytes as real encoders write them."""

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from audit.sources import formats
from audit.sources.names import SYSTEM


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
