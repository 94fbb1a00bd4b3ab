"""Masks as PNG in the layout of Pascal VOC: classes, objects, void, and what is wrong with them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from audit.annotations.mask_png import column_runs, voc_colours
from tests.audit.annotations.datasets import annotated, boxes_of, codes, judge, picture

pytestmark = pytest.mark.slow

W, H = 64, 48


def mask(*areas: tuple[int, int, int, int, int]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Numbers of a mask: areas are (number, x, y, width, height), each with a rim of void."""
    pixels = np.zeros((H, W), np.uint8)
    for number, x, y, w, h in areas:
        pixels[y - 1 : y + h + 1, x - 1 : x + w + 1] = 255
        pixels[y : y + h, x : x + w] = number
    return pixels


def save(path: Path, pixels: np.ndarray[Any, np.dtype[np.uint8]], mode: str = "P") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(pixels)
    if mode == "P":
        image = image.convert("P")
        image.putpalette([v for colour in voc_colours() for v in colour] + [224, 224, 192])
        image.putdata(pixels.ravel().tolist())
    image.save(path)


def tree(root: Path, n: int = 3) -> Path:
    """n pictures with two objects of class 1, and one of class 2."""
    for i in range(n):
        picture(root / "JPEGImages" / f"{i}.jpg")
        classes = mask((1, 5, 6, 10, 8), (1, 30, 6, 10, 8), (2, 20, 30, 12, 9))
        save(root / "SegmentationClass" / f"{i}.png", classes)
        objects = mask((1, 5, 6, 10, 8), (2, 30, 6, 10, 8), (3, 20, 30, 12, 9))
        save(root / "SegmentationObject" / f"{i}.png", objects)
    return root


def boxes(root: Path) -> list[tuple[Any, ...]]:
    with annotated(root) as store:
        return boxes_of(store)


def test_each_object_has_its_mask_and_nothing_is_wrong(tmp_path: Path) -> None:
    root = tree(tmp_path)
    assert boxes(root)[:3] == [
        ("JPEGImages/0.jpg", "class 1", 5, 6, 10, 8), ("JPEGImages/0.jpg", "class 1", 30, 6, 10, 8),
        ("JPEGImages/0.jpg", "class 2", 20, 30, 12, 9),
    ]  # fmt: skip
    with annotated(root) as store:
        assert judge(store) == []
        assert store.scalar("SELECT sum(area) FROM annotation_shapes") == 3 * (80 + 80 + 108)
    (root / "labelmap.txt").write_text("background:0,0,0::\ncat:128,0,0::\ndog:0,128,0::\n")
    for path in (root / "SegmentationObject").iterdir():
        path.unlink()
    assert boxes(root)[:2] == [
        ("JPEGImages/0.jpg", "cat", 5, 6, 35, 8), ("JPEGImages/0.jpg", "dog", 20, 30, 12, 9),
    ]  # fmt: skip


def test_masks_stored_as_colours_are_read(tmp_path: Path) -> None:
    root = tree(tmp_path, 1)
    before = boxes(root)
    for path in (*root.glob("Segmentation*/*.png"),):
        with Image.open(path) as image:
            coloured = image.convert("RGB")
        coloured.save(path)
    assert boxes(root) == before
    pixels = np.full((H, W, 3), 7, np.uint8)
    save(root / "SegmentationClass" / "0.png", pixels, "RGB")
    assert codes(root) == {"BOX013"}


DAMAGE: dict[str, tuple[str, str]] = {
    "another size": ("BOX018", "is 48 x 64 px, but its image is 64 x 48"),
    "no pixel": ("BOX018", "has no area"),
    "a class beyond the list": ("BOX003", "the class 9"),
    "truncated": ("BOX013", "cannot be read"),
    "sixteen bits": ("BOX013", "mode I;16"),
    "objects of another size": ("BOX013", "the class mask is"),
    "an object without class": ("BOX013", "object 3 lies where"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_what_is_wrong_with_a_mask_is_found(name: str, tmp_path: Path) -> None:
    root = tree(tmp_path, 12)
    (root / "labelmap.txt").write_text("background:::\ncat:::\ndog:::\n")
    target, code = root / "SegmentationClass" / "4.png", DAMAGE[name][0]
    both = mask((1, 5, 6, 10, 8), (2, 20, 30, 12, 9))
    if name == "another size":
        save(target, both.T.copy())
        (root / "SegmentationObject" / "4.png").unlink()
    elif name == "no pixel":
        save(target, mask())
        (root / "SegmentationObject" / "4.png").unlink()
    elif name == "a class beyond the list":
        save(target, mask((9, 5, 6, 10, 8), (1, 30, 6, 10, 8), (2, 20, 30, 12, 9)))
    elif name == "truncated":
        target.write_bytes(target.read_bytes()[:90])
    elif name == "sixteen bits":
        Image.fromarray(both.astype(np.uint16) * 300).save(target)
    elif name == "objects of another size":
        save(root / "SegmentationObject" / "4.png", both.T.copy())
    else:
        save(target, mask((1, 5, 6, 10, 8), (1, 30, 6, 10, 8)))
    with annotated(root) as store:
        findings = judge(store)
    assert {f.code for f in findings} == {code}
    assert DAMAGE[name][1] in findings[0].message


def test_pictures_of_background_on_purpose_are_nothing(tmp_path: Path) -> None:
    root = tree(tmp_path, 6)
    for i in range(3):
        save(root / "SegmentationClass" / f"{i}.png", mask())
        (root / "SegmentationObject" / f"{i}.png").unlink()
    assert codes(root) == set()


def test_the_published_mask(real_data: Path) -> None:
    root = real_data / "formats" / "voc_dataset" / "voc_dataset1"
    with annotated(root) as store:
        rows = store.query(
            "SELECT sample_id, mask_width, mask_height, s.area FROM annotation_shapes s "
            "JOIN annotated_images USING (file, image_key)"
        ).rows()
    assert rows == [("JPEGImages/2007_000001.jpg", 20, 10, 200)]


def test_runs_go_down_the_columns() -> None:
    pixels = np.array([[1, 0], [1, 1]], bool)
    assert column_runs(pixels).tolist() == [0, 2, 1, 1]
    assert column_runs(~pixels).tolist() == [2, 1, 1]
