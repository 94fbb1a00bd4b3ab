"""Annotated pictures of the Labels page: order, filters, pages, and where objects are drawn."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from audit.records import Severity
from audit.report.previews import ThumbnailCache, with_boxes
from audit.report.thumbnails import Thumbnail
from audit.results.boxes import AnnotatedPage, BoxFilter, annotated_page, box_choices, load_boxes
from audit.results.results import Results, open_results
from audit.run.store import Store
from tests.audit.annotations.datasets import annotated_run, coco, coco_tree

pytestmark = pytest.mark.slow

X, Y, WIDTH, HEIGHT = 40, 20, 80, 100  # of the white patch in the shown picture, px
ORIENTATIONS = range(1, 9)
TURN_BACK = {
    2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM, 5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90, 7: Image.Transpose.TRANSVERSE, 8: Image.Transpose.ROTATE_270,
}  # fmt: skip


def turned_picture(path: Path, orientation: int) -> tuple[int, int, int, int]:
    """Write a picture that shows a white patch when EXIF turns it; returns the patch as stored."""
    pixels = np.full((200, 260), 60, np.uint8)
    pixels[Y : Y + HEIGHT, X : X + WIDTH] = 255
    shown = Image.fromarray(pixels).convert("RGB")
    stored = shown.transpose(TURN_BACK[orientation]) if orientation > 1 else shown
    exif = Image.Exif()
    exif[274] = orientation
    path.parent.mkdir(parents=True, exist_ok=True)
    stored.save(path, exif=exif, quality=95)
    assert np.abs(np.asarray(ImageOps.exif_transpose(Image.open(path))).astype(int)
                  - np.asarray(shown)).mean() < 2  # fmt: skip
    down, across = np.nonzero(np.asarray(stored)[:, :, 0] > 200)
    return (int(across.min()), int(down.min()), int(np.ptp(across)) + 1, int(np.ptp(down)) + 1)


def turned_tree(root: Path, *, stored: bool) -> Path:
    """A COCO set of a picture for each orientation, whose box, outline and keypoint are the patch.

    Sizes tell the frame of those on their side, and so of the file: the others keep theirs.
    """
    images, objects = list[dict[str, object]](), list[dict[str, object]]()
    for orientation in ORIENTATIONS:
        name = f"{orientation}/0.jpg"
        patch = turned_picture(root / "images" / name, orientation)
        x, y, w, h = patch if stored else (X, Y, WIDTH, HEIGHT)
        sides = (200, 260) if stored and orientation >= 5 else (260, 200)
        ring = [x, y, x + w, y, x + w, y + h, x, y + h]
        one = coco(1, [(1, x, y, w, h)], segmentation=[ring], keypoints=[x, y, 2], num_keypoints=1)
        images.append({"id": orientation, "file_name": name, "width": sides[0], "height": sides[1]})
        objects.append({**one["annotations"][0], "id": orientation, "image_id": orientation})
    document = one | {"images": images, "annotations": objects}
    (root / "annotations.json").write_text(json.dumps(document))
    return root


@pytest.mark.parametrize("stored", [True, False], ids=["as stored", "as displayed"])
def test_objects_lie_on_what_is_shown(tmp_path: Path, stored: bool) -> None:
    run = annotated_run(turned_tree(tmp_path / "d", stored=stored), tmp_path / "run")
    pictures = annotated_page(open_results(run), BoxFilter()).pictures
    assert len(pictures) == len(ORIENTATIONS)
    thumbnails = ThumbnailCache(tmp_path / "thumbnails").many([one.card for one in pictures])
    for one, plain in zip(pictures, thumbnails, strict=True):
        (box,) = one.boxes
        assert (box.x, box.y, box.width, box.height) == (X, Y, WIDTH, HEIGHT), one.card.id
        assert set(zip(box.rings[0][0::2], box.rings[0][1::2], strict=True)) == {
            (X, Y), (X + WIDTH, Y), (X + WIDTH, Y + HEIGHT), (X, Y + HEIGHT)
        }  # fmt: skip
        assert box.keypoints[0] in (X, X + WIDTH)
        assert box.keypoints[1] in (Y, Y + HEIGHT)
        _lies_on_the_patch(plain, with_boxes(plain, one.card, one.boxes))


def _lies_on_the_patch(plain: Thumbnail, drawn: Thumbnail) -> None:
    before, after = (np.asarray(Image.open(io.BytesIO(t.data))).astype(int) for t in (plain, drawn))
    changed = np.abs(before - after).max(2) > 60
    scale = after.shape[1] / 260
    down, across = np.nonzero(changed)
    edges = [across.min() / scale, down.min() / scale, across.max() / scale, down.max() / scale]
    assert np.abs(np.subtract(edges, [X, Y, X + WIDTH, Y + HEIGHT])).max() < 5
    inside = changed[round((Y + 20) * scale) : round((Y + 80) * scale)]
    assert not inside[:, round((X + 20) * scale) : round((X + 60) * scale)].any()


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Six pictures: two have a box outside, one of two classes; the last has a large cat only."""
    folder = tmp_path_factory.mktemp("six")
    boxes = [(i, 2, 2, 20, 20) for i in range(1, 6)] + [(6, 1, 1, 62, 46)]
    document = coco(6, [*boxes, (3, 60, 40, 30, 30), (5, 60, 40, 30, 30)])
    document["categories"].append({"id": 2, "name": "dog"})
    document["annotations"][1]["category_id"] = 2
    document["annotations"][2]["category_id"] = 9
    run = annotated_run(coco_tree(folder / "d", document, 6), folder / "run")
    return open_results(run)


def names(page: AnnotatedPage) -> list[str]:
    return [picture.card.id.rsplit("/", 1)[-1] for picture in page.pictures]


def test_those_with_findings_come_first(results: Results) -> None:
    page = annotated_page(results, BoxFilter())
    assert names(page)[:2] == ["2.jpg", "4.jpg"]
    assert page.pictures[0].severity is Severity.ERROR
    assert set(page.pictures[0].codes) >= {"BOX001", "BOX003"}
    assert not page.before
    assert not page.after


def test_filters(results: Results) -> None:
    choices = box_choices(results)
    assert choices.labels == ("cat", "dog", "(not in the list)")
    assert {"BOX001", "BOX003"} <= set(choices.codes)
    assert names(annotated_page(results, BoxFilter(label="dog"))) == ["1.jpg"]
    assert names(annotated_page(results, BoxFilter(label="(not in the list)"))) == ["2.jpg"]
    assert names(annotated_page(results, BoxFilter(size="medium"))) == ["5.jpg"]
    assert names(annotated_page(results, BoxFilter(code="BOX001"))) == ["2.jpg", "4.jpg"]
    assert annotated_page(results, BoxFilter(label="dog", size="medium")).total == 0
    assert annotated_page(results, BoxFilter(split="test")).total == 0


def test_pages_turn_and_turn_back(results: Results) -> None:
    first = annotated_page(results, BoxFilter(), size=4)
    assert (len(first.pictures), first.before, first.after) == (4, False, True)
    second = annotated_page(results, BoxFilter(), start=first.pictures[-1].place + 1, size=4)
    assert (len(second.pictures), second.before, second.after) == (2, True, False)
    back = annotated_page(results, BoxFilter(), start=second.pictures[0].place, back=True, size=4)
    assert names(back) == names(first)
    assert not back.before
    assert [page.total for page in (first, second, back)] == [6, 6, 6]
    assert annotated_page(results, BoxFilter(), start=99, size=4) == first  # no such place


def test_a_run_without_boxes_has_none() -> None:
    boxes = "a Python variable of this name is no table"
    with Store.memory() as empty:
        assert load_boxes(empty, ["a"]) == {}, boxes
