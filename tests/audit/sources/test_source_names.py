"""What folder names mean."""

import pytest

from audit.sources import names


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
