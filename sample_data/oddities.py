"""Oddities: pictures, labels, boxes that decode well and are wrong all the same (IMG to BOX)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
from book import BRIGHT_CLASS, NOT_IN_VAL, Book, BoxedImage, KeyRow
from encode import Pixels, jpeg, png
from paint import LUMA, Camera
from PIL import Image, ImageFilter
from scenes import CLASSES

SPLIT_SIZES = {"train": 14, "val": 4, "test": 5}
ABSENT, CAPITAL = NOT_IN_VAL  # one is absent from val, the other has another name there


def plant_all(book: Book) -> None:
    """Plant everything of this file but the boxes, which need the finished val split."""
    fill_classes(book)
    plant_odd_exposure(book)
    plant_odd_shape(book)
    plant_outliers(book)
    plant_wrong_labels(book)
    plant_odd_classes(book)


def fill_classes(book: Book) -> None:
    """Fill the eight classes; leave one out of val and give one another name there."""
    for label in CLASSES:
        for split, count in SPLIT_SIZES.items():
            if (label, split) == (ABSENT, "val"):
                continue
            folder = label.capitalize() if (label, split) == (CAPITAL, "val") else label
            for _ in range(count):
                book.add_clean(split, folder, label)


def plant_odd_exposure(book: Book) -> None:
    """Plant dark, bright, blurred, empty and grey pictures."""
    dark = Camera(0.055, 0.034, 0.30, 0.005, (0.0, 0.0))
    for split in ("train", "test"):
        label = book.label(BRIGHT_CLASS)
        sample = book.add(split, label, jpeg(book.photo(label, dark).pixels, 92))
        book.plant("IMG001", [sample], "A picture was exposed for the lamp: nothing is above 16%.")
    bright = Camera(0.94, 0.022, 0.08, 0.006, (0.0, 0.0))
    for split in ("train", "val"):
        label = book.label(BRIGHT_CLASS, split=split)
        sample = book.add(split, label, jpeg(book.photo(label, bright).pixels, 92))
        book.plant("IMG002", [sample], "A picture was overexposed: 95% of it is above 85%.")
    for split in ("train", "train", "train", "val", "test"):
        label = book.label(split=split)
        sharp = Image.fromarray(book.photo(label).pixels)
        data = jpeg(sharp.filter(ImageFilter.GaussianBlur(2.8)), 92)
        book.plant("IMG003", [book.add(split, label, data)], "A picture was blurred by 2.8 px.")
    _plant_empty_pictures(book)
    for split in ("train", "train", "train", "test"):
        label = book.label(BRIGHT_CLASS)
        grey = np.repeat(_luma(book.photo(label).pixels)[..., None], 3, axis=2)
        sample = book.add(split, label, jpeg(grey, 90))
        book.plant("IMG007", [sample], "A picture lost its colours; it still has three channels.")


def _plant_empty_pictures(book: Book) -> None:
    label = book.label(BRIGHT_CLASS)
    blank = np.broadcast_to(np.array([148, 139, 117], np.uint8), (128, 128, 3))
    sample = book.add("train", label, png(np.ascontiguousarray(blank)), "png")
    book.plant("IMG004", [sample], "A placeholder of one colour stands in for a missing picture.")
    label = book.label(BRIGHT_CLASS)
    noise = book.rng().normal(0.0, 0.8, (120, 160, 1))
    flat = np.clip(np.round(np.array([104.0, 122.0, 134.0]) + noise), 0, 255).astype(np.uint8)
    sample = book.add("train", label, jpeg(flat, 95))
    book.plant("IMG004", [sample], "The lens cap was on: one blue-grey tone with sensor noise.")


def _luma(pixels: Pixels) -> Pixels:
    luma: Pixels = np.round(pixels @ LUMA).astype(np.uint8)
    return luma


def plant_odd_shape(book: Book) -> None:
    """Plant a very small and a very large picture, a panorama and a strip."""
    label = book.label()
    sample = book.add("train", label, jpeg(book.photo(label, size=(24, 20)).pixels, 95))
    book.plant("IMG005", [sample], "A thumbnail of 24 x 20 px was kept in place of the picture.")
    label = book.label()
    calm = replace(book.camera(label), noise=0.009)
    sample = book.add("train", label, jpeg(book.photo(label, calm, (640, 480)).pixels, 70))
    book.plant("IMG005", [sample], "One picture was not scaled down: 640 x 480 px.")
    for label, size in (("bridge", (392, 56)), ("tree", (64, 328))):
        sample = book.add("train", label, jpeg(book.photo(label, size=size).pixels))
        book.plant("IMG006", [sample], f"A strip of {size[0]} x {size[1]} px was cut out.")


def plant_outliers(book: Book) -> None:
    """Plant pictures far from their class in one respect that no other check looks at."""
    lights = (
        ("test", (0.12, 1.0, 0.10), "A night-vision picture: nearly all light is in green."),
        ("train", (1.0, 0.09, 0.11), "A darkroom picture: nearly all light is in red."),
    )
    for split, light, sentence in lights:
        label = book.label(BRIGHT_CLASS)
        tone = (_luma(book.photo(label).pixels) / 255.0) ** 0.7
        tinted = np.round(255.0 * tone[..., None] * np.array(light)).astype(np.uint8)
        book.plant("IMG008", [book.add(split, label, jpeg(tinted, 90))], sentence)


def plant_wrong_labels(book: Book) -> None:
    """Plant clear pictures of one class under another, and one under none."""
    swaps = (("boat", "apple"), ("tree", "house"), ("fish", "leaf"), ("apple", "bridge"))
    for subject, filed in swaps:
        sample = book.add("train", filed, jpeg(book.photo(subject).pixels))
        book.plant("LABEL006", [sample], f"A clear {subject} was filed under {filed}.")
    stray = book.add("train", "", jpeg(book.photo("house").pixels))
    book.plant("LABEL001", [stray], "A picture lies directly in train/, in no class folder.")


def plant_odd_classes(book: Book) -> None:
    """Plant misspelt, rare, single and empty classes; enter what the class counts imply."""
    for _ in range(3):
        book.add_clean("train", "bridgee", "bridge")
    for split, count in (("train", 2), ("val", 1), ("test", 2)):
        for _ in range(count):
            book.add_clean(split, "mushroom")
    book.add_clean("train", "cactus")
    book.files["train/lighthouse/.gitkeep"] = b""
    book.plant("LABEL002", ["Fish", "fish"], "Class fish is called Fish in val.", "class")
    book.plant("LABEL002", ["bridge", "bridgee"], "Some bridges were filed under bridgee.", "class")
    book.plant("LABEL003", ["lighthouse"], "A class folder has no pictures.", "class")
    book.plant("LABEL004", ["cactus"], "A class has one picture.", "class")
    sentence = f"Class {BRIGHT_CLASS} was photographed brighter than every other class."
    book.plant("DIST004", [BRIGHT_CLASS], sentence, "class")


def plant_boxes(book: Book) -> dict[str, Any]:
    """Return the COCO document for val, with one error of each kind, and enter the errors."""
    images = sorted(book.boxes)
    # Pictures whose box is inside either way round; if there is none, the box is cut to fit.
    fits = max((i for i in images if i.size[0] != i.size[1]), key=_fits_swapped)
    rest = [i for i in images if i is not fits]
    outside, flat, unknown, twice = rest[0], rest[len(rest) // 4], rest[len(rest) // 2], rest[-1]
    subjects = sorted({i.subject for i in images})
    document = _coco(images, subjects)
    boxes = {a["image_id"]: a for a in document["annotations"]}
    number = {i.sample_id: n for n, i in enumerate(images, 1)}
    boxes[number[outside.sample_id]]["bbox"][0] = outside.size[0] - 20.0
    boxes[number[outside.sample_id]]["bbox"][2] = 55.0
    _append(document, number[flat.sample_id], 1, [10.0, 12.0, 30.0, 0.0])
    boxes[number[unknown.sample_id]]["category_id"] = 99
    again = boxes[number[twice.sample_id]]
    _append(document, again["image_id"], again["category_id"], list(again["bbox"]))
    entry = document["images"][number[fits.sample_id] - 1]
    short = min(fits.size)
    x, y, w, h = fits.box
    boxes[entry["id"]]["bbox"] = [x, y, min(w, short - x), min(h, short - y)]
    entry["width"], entry["height"] = entry["height"], entry["width"]
    for box in document["annotations"]:  # one error each: the area goes with its box
        box["area"] = box["bbox"][2] * box["bbox"][3]
    for code, image, sentence in (
        ("BOX001", outside, "A box was moved 35 px over the right edge."),
        ("BOX002", flat, "A second box of height 0 was added."),
        ("BOX003", unknown, "A box was given category 99, which is not in the list."),
        ("BOX004", twice, "A box was entered twice."),
        ("BOX005", fits, "Width and height were swapped in the entry of the picture."),
    ):
        book.plant(code, [image.sample_id], sentence)
    return document


def _fits_swapped(image: BoxedImage) -> bool:
    # The box must stay inside both ways round, or the swap would be a second defect.
    x, y, w, h = image.box
    short = min(image.size)
    return image.size[0] != image.size[1] and x + w <= short and y + h <= short


def _coco(images: list[BoxedImage], subjects: list[str]) -> dict[str, Any]:
    document: dict[str, Any] = {
        "info": {"description": "boxes of the val split; file names are relative to the dataset"},
        "images": [
            {"id": n, "file_name": i.sample_id, "width": i.size[0], "height": i.size[1]}
            for n, i in enumerate(images, 1)
        ],
        "categories": [{"id": n, "name": name} for n, name in enumerate(subjects, 1)],
        "annotations": [],
    }
    for n, image in enumerate(images, 1):
        _append(document, n, subjects.index(image.subject) + 1, list(image.box))
    return document


def _append(document: dict[str, Any], image: int, category: int, bbox: list[float]) -> None:
    number = len(document["annotations"]) + 1
    document["annotations"].append(
        {"id": number, "image_id": image, "category_id": category, "bbox": bbox,
         "area": bbox[2] * bbox[3], "iscrowd": 0}
    )  # fmt: skip


def to_json(document: dict[str, Any]) -> bytes:
    """Return the document as JSON, one image or annotation a line."""
    parts = []
    for name, value in document.items():
        rows = ",\n".join(json.dumps(row) for row in value) if isinstance(value, list) else ""
        text = f"[\n{rows}\n]" if isinstance(value, list) else json.dumps(value)
        parts.append(f"{json.dumps(name)}: {text}")
    return ("{" + ",\n".join(parts) + "}\n").encode()


def plant_manifest_groups(book: Book) -> None:
    """Give every clean picture of two classes a walk it was taken on; let two walks span splits."""
    for label in ("boat", "tree"):
        train = [i for i in book.files if i.startswith(f"train/{label}/")][:12]
        test = [i for i in book.files if i.startswith(f"test/{label}/")][:4]
        for n, sample in enumerate(train):
            book.groups[sample] = f"{label}-walk-{n // 4 + 1}"
        for n, sample in enumerate(test):
            book.groups[sample] = f"{label}-walk-{3 if n < 2 else 9}"
        leaked = sorted(s for s, g in book.groups.items() if g == f"{label}-walk-3")
        sentence = f"The manifest's group {label}-walk-3 has pictures in train and in test."
        book.manifest_key.append(KeyRow("SPLIT002", "group", "|".join(leaked), sentence))
