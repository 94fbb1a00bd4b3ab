"""Published layouts and real images: each folder is opened the way a person would read it."""

import contextlib
import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from audit.annotations import read_annotations
from audit.errors import AuditError, UsageError
from audit.picture.decode import Limits
from audit.picture.features import FEATURE_ROW
from audit.picture.measure import FileJob, Hasher
from audit.run.store import Store
from audit.scanning.measuring import ignore_progress, list_source
from audit.sources import open_source
from audit.sources.paths import reading_place
from tests.audit.sources.trees import read
from tests.conftest import ROOT

DATA = Path(os.environ.get("PREFLIGHT_REAL_DATA") or ROOT.parent / "shared" / "data")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not DATA.is_dir(),
        reason=f"real data not found at {DATA}: set PREFLIGHT_REAL_DATA to use it",
    ),
]
TRAIN_VAL = {("train", None): 1, ("val", None): 1}
FORMATS = [
    *((f"coco_dataset/{name}", "COCO", "split/file", TRAIN_VAL) for name in (
        "coco", "coco_captions", "coco_image_info", "coco_instances", "coco_labels",
        "coco_panoptic", "coco_person_keypoints", "coco_roboflow", "coco_stuff", "mmdet_coco")),
    ("coco_dataset", "COCO", "split/file", {("train", None): 10, ("val", None): 10}),
    ("image_dir_dataset", None, "flat", {(None, None): 2}),
    ("imagenet_dataset", None, "class/file",
     {(None, "label_0"): 1, (None, "label_1"): 2, (None, None): 1}),
    ("imagenet_txt_dataset/basic", None, "flat", {(None, None): 2}),
    ("labelme_dataset", "LabelMe", "flat", {(None, None): 1}),
    ("open_images_dataset/v5", "Open Images", "split/file",
     {("test", None): 1, ("train", None): 1}),
    ("open_images_dataset/v6", "Open Images", "split/file",
     {("test", None): 1, ("train", None): 2, ("val", None): 1}),
    ("voc_dataset", "VOC", "flat", {("train", None): 2, ("test", None): 1}),
    ("voc_dataset/voc_dataset1", "VOC", "flat", {("train", None): 1, ("test", None): 1}),
    ("voc_dataset/voc_dataset3", "VOC", "flat", {(None, None): 1}),
    ("yolo_dataset/annotations", "YOLO", "flat", {(None, None): 1}),
    ("yolo_dataset/labels", "YOLO", "split/file", TRAIN_VAL),
    ("yolo_dataset/strict", "YOLO", "split/file", {("train", None): 1}),
]  # fmt: skip


@pytest.mark.parametrize(("folder", "form", "layout", "expected"), FORMATS)
def test_published_layouts(
    folder: str, form: str | None, layout: str, expected: dict[tuple[str | None, str | None], int]
) -> None:
    source = open_source([str(DATA / "formats" / folder)])
    assert (source.layout.annotations, source.layout.name) == (form, layout)
    assert Counter((s.split, s.label) for s in read(source)) == expected


@pytest.mark.parametrize(
    ("folder", "message"),
    [
        ("mnist_dataset", "LMDB and IDX files are not read"),
        ("mnist_csv_dataset", r"2 \.csv"),
        ("voc_dataset/voc_dataset2", r"5 \.xml \(annotation\)"),
    ],
)
def test_folders_without_image_files_are_rejected_with_a_reason(folder: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        open_source([str(DATA / "formats" / folder)])


@pytest.mark.parametrize(
    ("folder", "splits", "labels"),
    [
        ("cifar10_dataset", {"train": 1, "test": 4}, 4),
        ("tf_detection_api_dataset", {"train": 1, "val": 1, "test": 1}, 0),
        ("imagenet_txt_dataset/basic/train.txt", {None: 4}, 3),
    ],
)
def test_packs_and_lists_are_read(folder: str, splits: dict[str | None, int], labels: int) -> None:
    found = read(open_source([str(DATA / "formats" / folder)]))
    assert Counter(sample.split for sample in found) == splits
    assert len({sample.label for sample in found} - {None}) == labels


def test_every_format_folder_opens_or_says_why() -> None:
    folders = [path for path in (DATA / "formats").rglob("*") if path.is_dir()]
    assert len(folders) > 50
    rejected = []
    for folder in folders:
        try:
            source = open_source([str(folder)])
        except UsageError as error:
            rejected.append((folder, str(error)))
        else:
            assert read(source)
            assert source.describe()
    assert all("Fix:" in message for _, message in rejected), rejected


def test_photos_raccoon_and_odd_images() -> None:
    photos = read(open_source([str(DATA / "photos")]))
    assert len(photos) == 200
    assert {(s.split, s.label) for s in photos} == {(None, None)}
    raccoon = open_source([str(DATA / "raccoon")])
    assert len(read(raccoon)) == 200
    assert raccoon.layout.annotations == "VOC"
    odd = open_source([str(DATA / "odd-images")])
    samples = read(odd)
    assert len(samples) + sum(row.count for row in odd.log.skipped) == 544
    assert odd.layout.name == "flat"


PUBLISHED = (
    "cifar10_dataset", "coco_dataset", "image_dir_dataset", "imagenet_dataset",
    "imagenet_txt_dataset", "labelme_dataset", "mnist_csv_dataset", "mnist_dataset",
    "open_images_dataset", "tf_detection_api_dataset", "voc_dataset", "yolo_dataset",
)  # fmt: skip
DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "halves": lambda data: data[: len(data) // 2],
    "one-bit": lambda data: data[: len(data) // 3] + b"\xff" + data[len(data) // 3 + 1 :],
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("folder", PUBLISHED)
def test_no_reader_breaks_on_a_damaged_copy(folder: str, damage: str, tmp_path: Path) -> None:
    """Each is listed, its pictures and annotations read, or refused by a sentence."""
    copy = Path(shutil.copytree(DATA / "formats" / folder, tmp_path / "copy"))
    for path in copy.rglob("*"):
        if path.is_file():
            path.write_bytes(DAMAGE[damage](path.read_bytes()))
    for place in (copy, min(copy.iterdir())):
        with contextlib.suppress(AuditError), Store.memory() as store:
            source = open_source([str(place)])
            store.create_measurements(FEATURE_ROW)
            list_source(store, source, ignore_progress)
            assert not source.failed
            read_annotations(store, source)
            jobs = [
                FileJob(row["id"], "", reading_place(row["uri"]))
                for row in store.rows("SELECT id, uri FROM samples")
            ]
            assert len(Hasher(Limits())(jobs)) == len(jobs)
