"""Pascal VOC's masks: a PNG for each picture whose pixels are numbers of classes, 255 for void.

`SegmentationObject` beside gives a mask of each object, else there is one of each class. Colours
are read by `labelmap.txt` or VOC's palette. Few empty masks of a folder are mistakes (BOX018).
"""

from __future__ import annotations

import io
import os
import warnings
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from audit.annotations.discovery import OBJECT_MASKS, AnnotationGroup, read_label_map
from audit.annotations.geometry import mask_shape
from audit.annotations.sink import Reading
from audit.records import sample_id
from dataset_preflight.foundation.files import regular

Indices = NDArray[np.uint8]
Colours: TypeAlias = dict[tuple[int, int, int], int]
VOID = 255
MOST_PIXELS = 200_000_000
FEW_EMPTY = 0.1  # share of empty masks up to which each of them is taken for a mistake


def read_masks(reading: Reading) -> None:
    """Read the PNG files of one folder into the tables."""
    group, reading.form = reading.group, "xywh px"
    names, colours = _label_map(group)
    used, empty = set[int](), list[tuple[str, int, int]]()
    for position, name in enumerate(group.names):
        key = sample_id(name)
        stem = key.rpartition(".")[0]
        reading.add("annotated_images", image_key=key, entry=position, file_name=f"{stem}.jpg")
        classes = _indices(reading, group.path(name), colours, key)
        if classes is None:
            reading.complete = False
            continue
        masks = _masks(reading, name, key, classes)
        for entry, (number, mask) in enumerate(masks):
            used.add(number)
            reading.objects += 1
            _add(reading, key, entry, str(number), mask)
        if not masks:
            empty.append((key, classes.shape[1], classes.shape[0]))
    _add_empty(reading, empty, named=bool(names))
    known = names or {number: f"class {number}" for number in sorted(used)}
    for entry, (number, label) in enumerate(known.items()):
        reading.add_class(entry, str(number), label, declared=bool(names))


def _masks(
    reading: Reading, name: str, key: str, classes: Indices
) -> list[tuple[int, NDArray[np.bool_]]]:
    """Return (class, mask) of each object, or of each class where objects are not told apart."""
    path = os.path.join(reading.group.tree.root, reading.group.above, OBJECT_MASKS, name)
    objects = _indices(reading, path, {}, key) if os.path.isfile(path) else None
    if objects is not None and objects.shape != classes.shape:
        h, w = objects.shape
        size = f"{classes.shape[1]} x {classes.shape[0]}"
        what = f"the object mask is {w} x {h} px, the class mask is {size}"
        reading.note("malformed-mask", what, key, key)
        objects = None
    if objects is None:
        numbers = [n for n in np.unique(classes).tolist() if n not in (0, VOID)]
        return [(n, classes == n) for n in numbers]
    found = []
    for object_number in [n for n in np.unique(objects).tolist() if n not in (0, VOID)]:
        mask = objects == object_number
        inside = np.bincount(classes[mask], minlength=256)
        inside[VOID] = 0
        if number := int(inside.argmax()):
            found.append((number, mask))
        else:
            what = f"object {object_number} lies where the class mask is empty"
            reading.note("malformed-mask", what, key, key)
    return found


def _add(reading: Reading, key: str, entry: int, category: str, mask: NDArray[np.bool_]) -> None:
    shape = mask_shape(column_runs(mask), mask.shape[1], mask.shape[0])
    box = {f"v{i}": shape[side] for i, side in enumerate(("x", "y", "width", "height"), 1)}
    reading.add(
        "annotations", image_key=key, entry=entry, category_key=category, kind="outline",
        crowd=False, area=shape["area"], **box,
    )  # fmt: skip
    reading.add("annotation_shapes", image_key=key, entry=entry, **shape)


def column_runs(mask: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the run lengths of a mask down its columns, background first."""
    flat = mask.ravel(order="F")
    changes = np.flatnonzero(flat[1:] != flat[:-1]) + 1
    runs = np.diff(np.concatenate([[0], changes, [flat.size]]))
    return np.concatenate([[0], runs]) if flat.size and flat[0] else runs


def _add_empty(reading: Reading, empty: list[tuple[str, int, int]], *, named: bool) -> None:
    """Keep masks without a pixel as such, where they are few."""
    if len(empty) > FEW_EMPTY * len(reading.group.names):
        return
    for key, width, height in empty:
        _add(reading, key, 0, "0", np.zeros((height, width), bool))
    if empty and not named:  # a list of classes has the background itself
        reading.add_class(-1, "0", "background", declared=False)


def _indices(reading: Reading, path: str, colours: Colours, key: str) -> Indices | None:
    """Return the numbers of a mask (height, width), None with a problem noted."""
    from PIL import Image

    try:
        with open(path, "rb", opener=regular) as file:
            raw = file.read(1 << 30)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(raw), formats=("PNG",)) as image:
                if image.width * image.height > MOST_PIXELS:
                    reading.note("malformed-mask", "the mask has over 200 megapixels", key, key)
                    return None
                image.load()
                if image.mode in ("P", "L", "1"):
                    return np.asarray(image.convert("L") if image.mode == "1" else image, np.uint8)
                if image.mode in ("RGB", "RGBA"):
                    return _by_colour(reading, np.asarray(image.convert("RGB")), colours, key)
                said = f"the mask has pixels of mode {image.mode}, not class numbers"
    except OSError as error:
        said = f"a mask cannot be read: {error.strerror or 'it is not a complete PNG'}"
    except Exception as error:  # noqa: BLE001 - a decoder raises what it likes on damage
        said = f"a mask cannot be read: {type(error).__name__}"
    reading.note("unreadable" if "cannot" in said else "malformed-mask", said, key, key)
    return None


def _by_colour(
    reading: Reading, pixels: NDArray[np.uint8], colours: Colours, key: str
) -> Indices | None:
    """Return numbers for colours; a colour that stands for none makes the mask unreadable."""
    packed = pixels.astype(np.int32) @ np.array([65536, 256, 1], np.int32)
    known = {(r << 16) + (g << 8) + b: n for (r, g, b), n in (colours or voc_colours()).items()}
    known.setdefault(0xE0E0C0, VOID)
    values, inverse = np.unique(packed, return_inverse=True)
    strange = [v for v in values.tolist() if v not in known]
    if strange:
        said = f"{len(strange):,} colours of the mask have no class, such as {strange[0]:06x}"
        reading.note("malformed-mask", said, key, key)
        return None
    numbers = np.array([known[v] for v in values.tolist()], np.uint8)
    return numbers[inverse].reshape(packed.shape)


def voc_colours() -> Colours:
    """Return {colour: number} of VOC's palette: the bits of the number, spread over the channels.

    Everingham et al., the development kit of the Pascal VOC challenge, `VOClabelcolormap`.
    """
    colours = {}
    for number in range(VOID):
        rgb, rest = [0, 0, 0], number
        for shift in range(7, -1, -1):
            for channel in range(3):
                rgb[channel] |= (rest >> channel & 1) << shift
            rest >>= 3
        colours[rgb[0], rgb[1], rgb[2]] = number
    return colours


def _label_map(group: AnnotationGroup) -> tuple[dict[int, str], Colours]:
    """Return names and colours of `labelmap.txt` beside the folder: `name:r,g,b:parts:actions`."""
    names, colours = dict[int, str](), Colours()
    for number, (name, values, *_) in enumerate(read_label_map(group)):
        names[number], rgb = name.strip(), [v.strip() for v in values.split(",")]
        if len(rgb) == 3 and all(v.isdigit() and int(v) < 256 for v in rgb):
            colours[int(rgb[0]), int(rgb[1]), int(rgb[2])] = number
    return names, colours if len(colours) == len(names) else {}
