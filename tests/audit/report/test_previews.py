"""Thumbnails, views and differences: bounded, oriented, and never a picture the index lacks."""

import base64
import io
import os
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from audit.report.previews import SMALL, ThumbnailCache, difference, view
from audit.results import images
from audit.results.boxes import Box
from audit.results.report_data import Card
from audit.results.results import open_results
from tests.conftest import picture


def card(path: Path, **more: object) -> Card:
    import blake3

    content = blake3.blake3(path.read_bytes()).hexdigest() if path.exists() else "0" * 64
    return Card(**{"id": path.name, "uri": str(path), "content_hash": content, **more})


def saved(path: Path, pixels: np.ndarray, **more: object) -> Path:
    Image.fromarray(pixels).save(path, **{"quality": 92, **more})
    return path


def test_a_thumbnail_is_small_upright_and_made_once(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter
    path = saved(tmp_path / "a.jpg", picture(1, 800, 400), exif=exif)
    made = ThumbnailCache(tmp_path / "cache")
    (first,) = made.many([card(path)])
    assert Image.open(io.BytesIO(first.data)).size == (SMALL // 2, SMALL)
    assert (first.width, first.height, first.note) == (SMALL // 2, SMALL, "")
    assert base64.b64decode(first.data_uri.removeprefix("data:image/jpeg;base64,")) == first.data
    files = list((tmp_path / "cache").glob("*/*.jpg"))
    assert len(files) == 1
    stamp = files[0].stat().st_mtime_ns
    path.rename(tmp_path / "moved.jpg")  # the thumbnail needs the file no more
    assert made.many([card(tmp_path / "moved.jpg")])[0].data == first.data
    assert [f.stat().st_ino for f in files] == [
        f.stat().st_ino for f in (tmp_path / "cache").glob("*/*.jpg")
    ]
    assert files[0].stat().st_mtime_ns >= stamp


@pytest.mark.slow
def test_the_cache_keeps_to_its_bound_and_drops_the_oldest(tmp_path: Path) -> None:
    made = ThumbnailCache(tmp_path / "cache", limit=1 << 40)
    cards = [card(saved(tmp_path / f"{i}.jpg", picture(i))) for i in range(6)]
    made.many(cards)
    files = {c.id: made._path(c) for c in cards}
    for age, name in enumerate(reversed(list(files))):
        path = files[name]
        assert path is not None
        os.utime(path, (1_000_000 - age, 1_000_000 - age))
    sizes = {name: path.stat().st_size for name, path in files.items() if path}
    made.limit = sizes["5.jpg"] + sizes["4.jpg"]
    made.prune()
    assert {name for name, path in files.items() if path and path.exists()} == {"4.jpg", "5.jpg"}


def test_what_gives_no_picture_gives_a_reason(tmp_path: Path) -> None:
    made = ThumbnailCache(tmp_path / "cache")
    broken = tmp_path / "b.jpg"
    broken.write_bytes(b"<html>")
    sound = saved(tmp_path / "a.jpg", picture(1))
    asked = (
        card(broken),
        card(tmp_path / "gone.jpg"),
        card(sound, error_kind="bomb", error="it promises too much"),
        Card("x", uri="nostore://example.org/x.jpg"),
        card(sound, content_hash="f" * 64),
        Card("d", uri=str(tmp_path)),
        Card("0", uri="/a\0b"),
    )
    damaged, gone, bomb, remote, changed, folder, nameless = made.many(asked)
    assert damaged.error
    assert "does not exist" in gone.error
    assert (bomb.data_uri, bomb.error) == ("", "bomb: it promises too much")
    assert "are not known" in remote.error
    assert (changed.note, changed.error) == ("changed since the scan", "")
    assert "is a directory" in folder.error.lower()
    assert nameless.error
    assert not list((tmp_path / "cache").glob("ff/*"))
    # where the folder cannot be written there are thumbnails still
    (thumbnail,) = ThumbnailCache(broken / "cache").many([card(sound)])
    assert thumbnail.data


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda p: p, "upright"),
        (lambda p: p[:, ::-1], "mirrored"),
        (lambda p: p[::-1, ::-1], "rotated by 180 degrees"),
        (lambda p: np.rot90(p), "rotated by 90 degrees"),
        (lambda p: np.rot90(p, -1), "rotated by 270 degrees"),
    ],
)
def test_the_second_picture_is_laid_over_the_first(
    tmp_path: Path, change: object, said: str
) -> None:
    assert callable(change)
    pixels = cv2.GaussianBlur(picture(3, 240, 180), (0, 0), 1.5)
    a = card(saved(tmp_path / "a.png", pixels))
    b = card(saved(tmp_path / "b.png", np.ascontiguousarray(change(pixels))))
    other = card(saved(tmp_path / "c.png", picture(9, 240, 180)))
    found = difference(a, b)
    assert found.said.startswith(said)
    assert found.mean < 2.0
    assert found.mean < difference(a, other).mean / 5
    assert Image.open(io.BytesIO(found.difference)).size == (240, 180)
    crop = difference(a, card(saved(tmp_path / "d.png", pixels[9:171, 12:228])))
    assert crop.mean < 4.0
    assert 0.7 < crop.covered < 0.9


def test_boxes_are_drawn_where_they_lie(tmp_path: Path) -> None:
    grey = card(saved(tmp_path / "a.png", np.full((100, 200, 3), 128, np.uint8)))
    drawn = np.asarray(Image.open(io.BytesIO(view(grey, [Box("cat", 40, 20, 100, 60)]).data)))
    plain = np.asarray(Image.open(io.BytesIO(view(grey).data)))
    changed = np.abs(drawn.astype(int) - plain).max(axis=2) > 40
    assert changed[20, 90]
    assert changed[50, 40]
    assert not changed[50, 90]
    assert not changed[5, 5]


def test_only_what_the_index_recorded_is_opened(reviewed_run: Path, tmp_path: Path) -> None:
    secret = saved(tmp_path / "secret.jpg", picture(77))
    outside = f"train/cat/../../../{secret.name}"
    results = open_results(reviewed_run)
    for named in (str(secret), "../secret.jpg", outside, "/etc/hostname"):
        assert images.cards(results, [named]) == []
    assert len(images.cards(results, ["train/cat/0.jpg"])) == 1
