"""Kinds of damage planted in real annotations: is each found, and is nothing invented?

The originals are the raccoon set as published (200 pictures, Pascal VOC), the same boxes written as
YOLO and as COCO (with an outline, keypoints and an area for each box), the small sets of `formats/`
and the project's own sample data. First the originals are checked as they are: every finding about
one is listed. Then one kind of damage at a time goes into a copy, and the findings are compared:
found means that the expected check names the damaged picture (or the file, where the damage is the
file's); invented is any finding that speaks of another picture.

    python benchmarks/annotations.py [--data FOLDER] [--base coco]      about two minutes

Pictures are opened for their size only.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from bench import Document, hall, measures, real_data, told
from PIL import Image

from audit.annotations import read_annotations, settle_boxes
from audit.checking.check import all_checks, make_params
from audit.picture.features import FEATURE_ROW
from audit.records import Finding
from audit.run.store import Store
from audit.scanning.measuring import sample_frame
from audit.sources import open_source
from audit.sources.readings import SampleRows

Boxes = dict[str, tuple[int, int, list[tuple[float, float, float, float]]]]
NAMES = ["nose", "left_eye", "right_eye"]
COCO, LABEL = "annotations/instances.json", "labels/train/raccoon-42.txt"
app = hall(__doc__)


# ---- one run of the checks ----


def run_checks(folder: Path) -> list[Finding]:
    """Read the annotations below `folder` and return what the checks of boxes find."""
    with Store.memory() as store:
        store.create_measurements(FEATURE_ROW)
        source = open_source([str(folder)])
        samples = [sample for batch in source.batches() for sample in batch]
        store.append("samples", sample_frame(SampleRows.of(samples)))
        store.append("features", [measured(sample.id, sample.uri) for sample in samples])
        read_annotations(store, source)
        settle_boxes(store)
        checks = (check for code, check in all_checks().items() if code.startswith("BOX"))
        return [one for check in checks for one in check.find(store, make_params(check, {}))]


SIZES: dict[str, tuple[int, int, int, str]] = {}


def measured(sample: str, path: str) -> dict[str, Any]:
    """Return the features that the checks of boxes read."""
    real = os.path.realpath(path)
    if real not in SIZES:
        digest = hashlib.blake2b(Path(real).read_bytes(), digest_size=16).hexdigest()
        with Image.open(real) as image:
            turned = int(image.getexif().get(274, 1))
            SIZES[real] = (*image.size, turned, digest)
    width, height, turned, digest = SIZES[real]
    if turned >= 5:
        width, height = height, width
    return {
        "sample_id": sample, "status": "ok", "width": width, "height": height,
        "orientation": turned, "content_hash": digest * 2, "pixel_hash": digest,
    }  # fmt: skip


# ---- originals ----


def raccoon_boxes(data: Path) -> Boxes:
    """Return {stem: (width, height, corners)} of the published CSV, sizes as decoded."""
    boxes: Boxes = {}
    lines = (data / "raccoon" / "data" / "raccoon_labels.csv").read_text().splitlines()[1:]
    for line in lines:
        name, w, h, _, *corners = line.split(",")
        x1, y1, x2, y2 = map(float, corners)
        boxes.setdefault(name.removesuffix(".jpg"), (int(w), int(h), []))[2].append(
            (x1, y1, x2, y2)
        )
    return boxes


def link_pictures(data: Path, folder: Path, inside: str = "images") -> None:
    (folder / inside).mkdir(parents=True)
    for path in sorted((data / "raccoon" / "images").iterdir()):
        (folder / inside / path.name).symlink_to(path)


def make_voc(data: Path, folder: Path) -> None:
    link_pictures(data, folder)
    shutil.copytree(data / "raccoon" / "annotations", folder / "annotations")


def make_yolo(data: Path, folder: Path) -> None:
    link_pictures(data, folder, "images/train")
    (folder / "labels" / "train").mkdir(parents=True)
    (folder / "data.yaml").write_text("train: images/train\nnc: 2\nnames: ['raccoon', 'cat']\n")
    for stem, (w, h, boxes) in raccoon_boxes(data).items():
        lines = [
            f"0 {(a + c) / 2 / w:.6f} {(b + d) / 2 / h:.6f} {(c - a) / w:.6f} {(d - b) / h:.6f}"
            for a, b, c, d in boxes
        ]
        (folder / "labels" / "train" / f"{stem}.txt").write_text("\n".join(lines) + "\n")


def coco_document(data: Path) -> Document:
    """Return the boxes as COCO, with an outline, keypoints and an area each."""
    document: Document = {
        "info": {}, "images": [], "annotations": [],
        "categories": [
            {"id": 1, "name": "raccoon", "keypoints": NAMES, "skeleton": [[1, 2], [1, 3]]},
            {"id": 2, "name": "kit", "keypoints": NAMES, "skeleton": [[1, 2], [1, 3]]},
        ],
    }  # fmt: skip
    for number, (stem, (w, h, boxes)) in enumerate(raccoon_boxes(data).items(), 1):
        document["images"].append(
            {"id": number, "file_name": f"{stem}.jpg", "width": w, "height": h}
        )
        for a, b, c, d in boxes:
            thing = object_of(len(document["annotations"]) + 1, number, (a, b, c - a, d - b))
            thing["category_id"] = 1 + (w + h) % 2
            document["annotations"].append(thing)
    return document


def object_of(number: int, picture: int, box: tuple[float, float, float, float]) -> Document:
    """Return an annotation whose outline is an ellipse inside the box."""
    x, y, w, h = box
    angles = np.linspace(0, 2 * np.pi, 24, endpoint=False)
    ring = np.stack([x + w / 2 + w / 2 * np.cos(angles), y + h / 2 + h / 2 * np.sin(angles)], 1)
    across, down = [ring[:, 0], ring[:, 1]]
    area = abs(float(np.dot(across, np.roll(down, -1)) - np.dot(down, np.roll(across, -1)))) / 2
    points = [x + w / 2, y + h / 2, 2, x + 0.6 * w, y + h / 3, 2, x + 0.4 * w, y + h / 3, 2]
    return {
        "id": number, "image_id": picture, "category_id": 1, "bbox": [x, y, w, h],
        "area": round(area, 2), "iscrowd": 0, "segmentation": [ring.round(2).ravel().tolist()],
        "keypoints": [round(v, 1) for v in points], "num_keypoints": 3,
    }  # fmt: skip


def make_coco(data: Path, folder: Path) -> None:
    link_pictures(data, folder, "images")
    (folder / "annotations").mkdir()
    write_coco(folder, coco_document(data))


def write_coco(folder: Path, document: Document) -> None:
    (folder / COCO).write_text(json.dumps(document))


# ---- damage ----

Damage = Callable[[Path], str]
# {original: [(kind of damage, expected code, what does it and names the picture)]}
PLANTS: dict[str, list[tuple[str, str, Damage]]] = {
    "voc": [], "yolo": [], "coco": [], "masks": [], "pose": []
}  # fmt: skip
FILE = ""  # the damage is the file's, no single picture's


def plant(base: str, name: str, code: str) -> Callable[[Damage], None]:
    return lambda function: PLANTS[base].append((name, code, function))


def change_coco(folder: Path, change: Callable[..., object], whole: bool) -> str:
    """Change one annotation and its picture's entry, or a whole document; name the picture."""
    document: Document = json.loads((folder / COCO).read_text())
    thing = document["annotations"][40]
    entry = entry_of(document, thing)
    sample = f"images/{entry['file_name']}"
    change(document) if whole else change(document, thing, entry)
    write_coco(folder, document)
    return FILE if whole else sample


def entry_of(document: Document, thing: Document) -> Document:
    return next(i for i in document["images"] if i["id"] == thing["image_id"])


def moved(thing: Document, dx: float, dy: float) -> None:
    thing["bbox"][0] += dx
    thing["bbox"][1] += dy
    ring = np.array(thing["segmentation"][0]).reshape(-1, 2) + np.array([dx, dy])
    thing["segmentation"] = [ring.ravel().tolist()]
    points = np.array(thing["keypoints"], float).reshape(-1, 3) + np.array([dx, dy, 0])
    thing["keypoints"] = points.ravel().tolist()


def set_box(thing: Document, at: int, value: Any) -> None:
    thing["bbox"][at] = value


def bare(thing: Document, box: list[float], area: float) -> None:
    """Set a box, without outline and keypoints."""
    thing.update(bbox=box, area=area, segmentation=[], keypoints=[], num_keypoints=0)


def as_mask(thing: Document, counts: list[int], *size: int) -> None:
    """Make the outline a mask of runs."""
    thing["segmentation"] = {"counts": counts} | ({"size": size} if size else {})


def sized(entry: Document, width: int, height: int) -> None:
    entry.update(width=width, height=height)


def keyed(thing: Document, points: list[float], n: int = 3) -> None:
    thing.update(keypoints=points, num_keypoints=n)


def in_shares(thing: Document, entry: Document) -> list[float]:
    """Return the box in shares of its picture."""
    w, h = entry["width"], entry["height"]
    return [v / of for v, of in zip(thing["bbox"], (w, h, w, h), strict=True)]


def over_edge(thing: Document, entry: Document, axis: int, by: float) -> None:
    """Move a box so far over the right (axis 0) or lower edge."""
    far = entry[("width", "height")[axis]] - thing["bbox"][axis] - thing["bbox"][axis + 2] + by
    moved(thing, *((far, 0) if axis == 0 else (0, far)))


def crossed(thing: Document) -> None:
    """Exchange points of the outline, so that it crosses itself."""
    ring = thing["segmentation"][0]
    thing["segmentation"] = [ring[:8] + ring[20:24] + ring[12:20] + ring[8:12] + ring[24:]]


def at_corner(thing: Document) -> None:
    """Put the keypoints where another object is, or say that there are nine."""
    at_zero = min(thing["bbox"][:2]) <= 4
    keyed(thing, *((thing["keypoints"], 9) if at_zero else ([1, 1, 2, 3, 1, 2, 2, 2, 2],)))


def again(document: Document, thing: Document, **other: Any) -> None:
    """Append an annotation once more, under another id and otherwise changed."""
    document["annotations"].append({**thing, "id": 9001, **other})


def drawn_again(document: Document, thing: Document) -> None:
    """Append an annotation whose box is a little narrower."""
    x, y, w, h = thing["bbox"]
    again(document, thing, bbox=[x, y, 0.98 * w, h])


def part_boxed(document: Document, thing: Document) -> None:
    """Append an object of the same class within another's box."""
    x, y, w, h = thing["bbox"]
    part = object_of(9001, thing["image_id"], (x + w / 4, y + h / 4, w / 3, h / 3))
    document["annotations"].append(part | {"category_id": thing["category_id"]})


def without_entry(document: Document, entry: Document) -> None:
    document["images"].remove(entry)
    kept = [a for a in document["annotations"] if a["image_id"] != entry["id"]]
    document["annotations"] = kept


# Damage to an annotation, given the document, it and its picture's entry.
ONE: dict[str, dict[str, Callable[..., object]]] = {
    "BOX001": {
        "box over the right edge": lambda d, t, e: over_edge(t, e, 0, 25),
        "box above the top edge": lambda d, t, e: moved(t, 0, -t["bbox"][1] - 12),
        "box 3 px below the bottom edge": lambda d, t, e: over_edge(t, e, 1, 3),
        "box wholly outside": lambda d, t, e: moved(t, 3000, 0),
    },
    "BOX002": {
        "width 0": lambda d, t, e: set_box(t, 2, 0),
        "height 0": lambda d, t, e: set_box(t, 3, 0.0),
        "negative width": lambda d, t, e: set_box(t, 2, -40),
    },
    "BOX003": {
        "unknown class": lambda d, t, e: t.update(category_id=99),
        "class 0 in a list from 1": lambda d, t, e: t.update(category_id=0),
        "no class": lambda d, t, e: t.pop("category_id"),
    },
    "BOX005": {
        "size entry exchanged": lambda d, t, e: sized(e, e["height"], e["width"]),
        "size entry halved": lambda d, t, e: sized(e, e["width"] // 2, e["height"] // 2),
    },
    "BOX007": {
        "NaN in a box": lambda d, t, e: set_box(t, 0, float("nan")),
        "Infinity in a box": lambda d, t, e: set_box(t, 2, float("inf")),
        "null in a box": lambda d, t, e: set_box(t, 1, None),
        "text in a box": lambda d, t, e: set_box(t, 1, "left"),
        "three numbers": lambda d, t, e: t["bbox"].pop(),
    },
    "BOX009": {
        "one box in shares": lambda d, t, e: t.update(
            bbox=in_shares(t, e), segmentation=[], area=1
        ),
    },
    "BOX016": {"outline crosses itself": lambda d, t, e: crossed(t)},
    "BOX017": {
        "outline moved off its box": lambda d, t, e: t.update(
            segmentation=[[v - 60 for v in t["segmentation"][0]]]
        ),
        "box moved off its outline": lambda d, t, e: set_box(
            t, 0, t["bbox"][0] + 0.3 * t["bbox"][2]
        ),
    },
    "BOX018": {
        "ring of two points": lambda d, t, e: t["segmentation"].append(t["segmentation"][0][:4]),
        "empty mask": lambda d, t, e: as_mask(
            t, [e["width"] * e["height"]], e["height"], e["width"]
        ),
        "mask with exchanged size": lambda d, t, e: as_mask(
            t, [10, 500, e["width"] * e["height"] - 510], e["width"], e["height"]
        ),
        "mask whose runs end early": lambda d, t, e: as_mask(t, [10, 500], e["height"], e["width"]),
    },
    "BOX013": {"mask without size": lambda d, t, e: as_mask(t, [10, 500])},
    "BOX019": {
        "keypoint outside": lambda d, t, e: t["keypoints"].__setitem__(0, e["width"] + 30),
        "keypoint missing": lambda d, t, e: keyed(t, t["keypoints"][:6], 2),
        "num_keypoints wrong": lambda d, t, e: keyed(t, t["keypoints"], 1),
        "visibility 3": lambda d, t, e: t["keypoints"].__setitem__(2, 3),
        "keypoints of another object": lambda d, t, e: at_corner(t),
    },
    "BOX020": {
        "left and right exchanged": lambda d, t, e: keyed(
            t, t["keypoints"][:3] + t["keypoints"][6:] + t["keypoints"][3:6]
        ),
    },
    "BOX021": {"crowd mark on one object": lambda d, t, e: t.update(iscrowd=1)},
    "BOX025": {
        "area four times the box": lambda d, t, e: t.update(area=4 * t["bbox"][2] * t["bbox"][3]),
        "area zero": lambda d, t, e: t.update(area=0),
    },
    "BOX024": {"a click of 1 px": lambda d, t, e: bare(t, [*t["bbox"][:2], 1, 1], 1)},
    "BOX023": {
        "a sliver": lambda d, t, e: bare(t, [2, t["bbox"][1], e["width"] - 4, 1], e["width"] - 4),
    },
    "BOX004": {
        "entered twice": lambda d, t, e: again(d, t),
        "drawn twice": lambda d, t, e: drawn_again(d, t),
    },
    "BOX006": {
        "one object, two classes": lambda d, t, e: again(d, t, category_id=3 - t["category_id"]),
    },
    "BOX010": {"a part boxed as a whole": lambda d, t, e: part_boxed(d, t)},
    "BOX014": {"pictures without entry": lambda d, t, e: without_entry(d, e)},
}


def each_thing(document: Document, change: Callable[[Document], object]) -> None:
    for thing in document["annotations"]:
        change(thing)


def rewritten(document: Document, change: Callable[..., list[float]]) -> None:
    each_thing(document, lambda t: t.update(bbox=change(*t["bbox"])))


def moved_class(document: Document) -> None:
    each_thing(document, lambda t: moved(t, 30, 0) if t["category_id"] == 2 else None)


def text_box(thing: Document) -> None:
    thing["bbox"] = [str(v) for v in thing["bbox"]]


def listed(document: Document, **other: Any) -> None:
    """List a picture once more, under another id and otherwise changed."""
    entry = entry_of(document, document["annotations"][40])
    document["images"].append({**entry, "id": 9001, **other})


# Damage to the document, which speaks of no single picture.
WHOLE: dict[str, dict[str, Callable[[Document], object]]] = {
    "BOX008": {
        "corners for sizes": lambda d: rewritten(d, lambda x, y, w, h: [x, y, x + w, y + h]),
        "centre for corner": lambda d: rewritten(
            d, lambda x, y, w, h: [x + w / 2, y + h / 2, w, h]
        ),
        "axes exchanged": lambda d: rewritten(d, lambda x, y, w, h: [y, x, h, w]),
        "width and height exchanged": lambda d: rewritten(d, lambda x, y, w, h: [x, y, h, w]),
        "shares for px": lambda d: each_thing(
            d, lambda t: t.update(bbox=in_shares(t, entry_of(d, t)))
        ),
    },
    "BOX011": {
        "annotation of no picture": lambda d: again(d, d["annotations"][40], image_id=7777),
        "entry whose picture is gone": lambda d: listed(d, file_name="gone.jpg"),
    },
    "BOX012": {
        "annotation id twice": lambda d: d["annotations"][80].update(id=d["annotations"][40]["id"]),
        "picture listed twice": listed,
        "class listed twice": lambda d: d["categories"].append({"id": 1, "name": "other"}),
        "class name twice": lambda d: d["categories"].append({"id": 7, "name": "raccoon"}),
    },
    "BOX013": {
        "numbers as texts": lambda d: text_box(d["annotations"][40]),
        "ids as texts in annotations": lambda d: each_thing(
            d, lambda t: t.update(image_id=str(t["image_id"]))
        ),
        "an annotation is a list": lambda d: d["annotations"].insert(9, [1, 2, 3]),
    },
    "BOX021": {
        "every object a crowd": lambda d: each_thing(d, lambda t: t.update(iscrowd=1)),
    },
    "BOX015": {"one class moved": moved_class},
}
for _table in (ONE, WHOLE):
    for _code, _changes in _table.items():
        for _name, _change in _changes.items():
            plant("coco", _name, _code)(partial(change_coco, change=_change, whole=_table is WHOLE))


def rewrite(folder: Path, file: str, change: Callable[[str], str], sample: str = FILE) -> str:
    """Change the text of a file; name the picture."""
    path = folder / file
    path.write_text(change(path.read_text()))
    return sample


@plant("coco", "JSON cut short", "BOX013")
def _(folder: Path) -> str:
    return rewrite(folder, COCO, lambda text: text[:-4000])


@plant("coco", "a key twice", "BOX013")
def _(folder: Path) -> str:
    key = '"iscrowd": 0'
    return rewrite(folder, COCO, lambda text: text.replace(key, f"{key}, {key}", 1))


@plant("coco", "a second file that differs", "BOX022")
def _(folder: Path) -> str:
    document = json.loads((folder / COCO).read_text())
    thing = document["annotations"][40]
    _, _, w, h = thing["bbox"]
    bare(thing, [0, 0, w / 3, h / 3], thing["area"] / 9)
    (folder / COCO).with_name("again.json").write_text(json.dumps(document))
    return f"images/{entry_of(document, thing)['file_name']}"


# ---- YOLO ----


def label(base: str, name: str, code: str, change: Callable[[str], str]) -> None:
    sample = "images/train/raccoon-42.jpg"
    plant(base, name, code)(partial(rewrite, file=LABEL, change=change, sample=sample))


yolo, pose = partial(label, "yolo"), partial(label, "pose")


def number(text: str, *values: int | str) -> str:
    """Set columns of the first line: (column, value, column, value ...)."""
    first, *rest = text.splitlines()
    columns = first.split()
    for at, value in zip(values[::2], values[1::2], strict=True):
        columns[int(at)] = str(value)
    return "\n".join([" ".join(columns), *rest]) + "\n"


yolo("centre beyond the picture", "BOX001", lambda t: number(t, 1, "1.2"))
yolo("width 0 (YOLO)", "BOX002", lambda t: number(t, 3, "0"))
yolo("class not in names", "BOX003", lambda t: number(t, 0, "7"))
yolo("line twice", "BOX004", lambda t: t + t.splitlines()[0] + "\n")
yolo("px among shares", "BOX009", lambda t: number(t, 1, "120", 2, "90", 3, "80", 4, "60"))
yolo("nan in a line", "BOX007", lambda t: number(t, 2, "nan"))
yolo("four columns", "BOX013", lambda t: t + "0 0.5 0.5 0.2\n")
yolo("class name for number", "BOX013", lambda t: number(t, 0, "raccoon"))
yolo("commas", "BOX013", lambda t: t.replace(" ", ","))
yolo("byte-order mark", "BOX013", lambda t: "\ufeff" + t)
yolo("a word for a number", "BOX013", lambda t: number(t, 2, "half"))


@plant("yolo", "label file lost", "BOX014")
def _(folder: Path) -> str:
    (folder / LABEL).unlink()
    return "images/train/raccoon-42.jpg"


@plant("yolo", "label file without picture", "BOX011")
def _(folder: Path) -> str:
    (folder / "labels" / "train" / "other.txt").write_text("0 0.5 0.5 0.1 0.1\n")
    return FILE


def all_labels(folder: Path, change: Callable[..., tuple[float, ...]]) -> str:
    """Change the four numbers of every line, given the size of the picture and them."""
    for path in (folder / "labels" / "train").iterdir():
        with Image.open(folder / "images" / "train" / f"{path.stem}.jpg") as image:
            size = image.size
        rows = [[float(v) for v in line.split()[1:]] for line in path.read_text().splitlines()]
        changed = (" ".join(f"{v:.6f}" for v in change(*size, *row)) for row in rows)
        path.write_text("".join(f"0 {line}\n" for line in changed))
    return FILE


@plant("yolo", "all labels in px", "BOX008")
def _(folder: Path) -> str:
    return all_labels(folder, lambda w, h, x, y, a, b: (x * w, y * h, a * w, b * h))


@plant("yolo", "all labels as corners", "BOX008")
def _(folder: Path) -> str:
    corners = lambda w, h, x, y, a, b: (x - a / 2, y - b / 2, x + a / 2, y + b / 2)  # noqa: E731
    return all_labels(folder, corners)


# ---- VOC ----


VOC, RACCOON = "annotations/raccoon-1.xml", "images/raccoon-1.jpg"
BOX = "<xmin>81</xmin>\n\t\t\t<ymin>88</ymin>\n\t\t\t<xmax>522</xmax>\n\t\t\t<ymax>408</ymax>"


def voc(name: str, code: str, old: str, new: str, whole: bool = False) -> None:
    """Enter a replacement in one XML file: `old` is a tag whose text becomes `new`, or a text."""

    def change(text: str) -> str:
        assert old in text, old
        return text.replace(old, new, 1)

    sample = FILE if whole else RACCOON
    plant("voc", name, code)(partial(rewrite, file=VOC, change=change, sample=sample))


voc("xmax outside (VOC)", "BOX001", "<xmax>522<", "<xmax>722<")
voc("corners exchanged", "BOX002", "<xmin>81<", "<xmin>581<")
voc("width wrong (VOC)", "BOX005", "<width>650<", "<width>1300<")
voc("a text for a corner", "BOX007", "<ymin>88<", "<ymin>top<")
voc("a corner missing", "BOX007", "<ymax>408</ymax>", "")
voc("name misspelt", "BOX026", "<name>raccoon<", "<name>racoon<", whole=True)
voc("name with a capital", "BOX026", "<name>raccoon<", "<name>Raccoon<", whole=True)
voc("object without name", "BOX013", "<name>raccoon</name>", "")
voc("object without box", "BOX013", f"<bndbox>\n\t\t\t{BOX}\n\t\t</bndbox>", "")
voc("XML cut short", "BOX013", "</annotation>", "", whole=True)
voc("file names another picture", "BOX013", "raccoon-1.jpg", "raccoon-2.jpg")
ENTITY = '<!DOCTYPE a [<!ENTITY b "c">]>'
SHARES = "<xmin>0.12</xmin><ymin>0.2</ymin><xmax>0.8</xmax><ymax>0.9</ymax>"
voc("entities declared", "BOX013", "<annotation", f"{ENTITY}<annotation", whole=True)
voc("one box in shares (VOC)", "BOX009", BOX, SHARES)


@plant("voc", "object pasted twice", "BOX004")
def _(folder: Path) -> str:
    def paste(text: str) -> str:
        head, thing = text.removesuffix("\n").removesuffix("</annotation>").split("<object>", 1)
        return f"{head}<object>{thing}<object>{thing}</annotation>"

    return rewrite(folder, VOC, paste, RACCOON)


@plant("voc", "annotation file lost", "BOX014")
def _(folder: Path) -> str:
    (folder / VOC).unlink()
    return RACCOON


@plant("voc", "picture in two places, boxes differ", "BOX022")
def _(folder: Path) -> str:
    source = (folder / "images" / "raccoon-1.jpg").resolve()
    (folder / "images" / "copy.jpg").symlink_to(source)
    changed = (folder / VOC).read_text()
    changed = changed.replace("raccoon-1.jpg", "copy.jpg").replace("<xmax>522<", "<xmax>150<")
    (folder / "annotations" / "copy.xml").write_text(changed)
    return RACCOON


@plant("voc", "all sizes wrong way round", "BOX008")
def _(folder: Path) -> str:
    for path in (folder / "annotations").iterdir():
        text = path.read_text()
        for a, b in (("xmin", "ymin"), ("xmax", "ymax")):
            text = text.replace(a, "zzz").replace(b, a).replace("zzz", b)
        path.write_text(text)
    return FILE


# ---- masks as PNG ----


def make_masks(data: Path, folder: Path) -> None:
    """Write the boxes as masks in the layout of VOC: class 1 inside, void at the rim."""
    link_pictures(data, folder, "JPEGImages")
    (folder / "labelmap.txt").write_text("background:::\nraccoon:::\n")
    for stem, (w, h, boxes) in raccoon_boxes(data).items():
        classes, objects = np.zeros((h, w), np.uint8), np.zeros((h, w), np.uint8)
        for at, corners in enumerate(boxes, 1):
            a, b, c, d = (int(v) for v in corners)
            for pixels, value in ((classes, 1), (objects, at)):
                pixels[max(b - 1, 0) : d + 1, max(a - 1, 0) : c + 1] = 255
                pixels[b:d, a:c] = value
        write_mask(folder / "SegmentationClass" / f"{stem}.png", classes)
        write_mask(folder / "SegmentationObject" / f"{stem}.png", objects)


def write_mask(path: Path, pixels: Any) -> None:
    """Write numbers as a PNG with a palette, as VOC does."""
    path.parent.mkdir(exist_ok=True)
    image = Image.fromarray(pixels)
    image.putpalette([v for n in range(256) for v in (n, 255 - n, n // 2)])
    image.save(path)


def mask(name: str, code: str, change: Callable[[Any], Any], objects: bool = False) -> None:
    """Add a damage of the mask of one picture; without `objects`, that of objects goes."""

    @plant("masks", name, code)
    def _(folder: Path) -> str:
        place = folder / f"Segmentation{'Object' if objects else 'Class'}" / "raccoon-7.png"
        with Image.open(place) as image:
            changed = change(np.array(image))
        if not objects:
            (folder / "SegmentationObject" / place.name).unlink()
        if changed.dtype == np.uint8 and changed.ndim == 2:
            write_mask(place, changed)
        else:
            Image.fromarray(changed).save(place)
        return "JPEGImages/raccoon-7.jpg"


mask("another size", "BOX018", lambda pixels: pixels[::2, ::2].copy())
mask("turned on its side", "BOX018", lambda pixels: pixels.T.copy())
mask("one row short", "BOX018", lambda pixels: pixels[1:].copy())
mask("no pixel", "BOX018", np.zeros_like)
mask("nothing but void", "BOX018", lambda pixels: np.full_like(pixels, 255))
mask("a class beyond the list", "BOX003", lambda pixels: np.where(pixels == 1, 9, pixels))
mask("sixteen bits", "BOX013", lambda pixels: pixels.astype(np.uint16) * 300)
mask("smoothed colours", "BOX013", lambda pixels: np.stack([pixels // 2] * 3, axis=-1) + 3)
mask("objects of another size", "BOX013", lambda pixels: pixels[1:].copy(), objects=True)
mask(
    "an object where no class is",
    "BOX013",
    lambda pixels: np.where(np.arange(pixels.size).reshape(pixels.shape) < 9, 200, pixels),
    objects=True,
)


@plant("masks", "cut short", "BOX013")
def _(folder: Path) -> str:
    path = folder / "SegmentationClass" / "raccoon-7.png"
    path.write_bytes(path.read_bytes()[:-60])
    return FILE


@plant("masks", "mask lost", "BOX014")
def _(folder: Path) -> str:
    (folder / "SegmentationClass" / "raccoon-7.png").unlink()
    return "JPEGImages/raccoon-7.jpg"


@plant("masks", "mask without picture", "BOX011")
def _(folder: Path) -> str:
    (folder / "JPEGImages" / "raccoon-7.jpg").unlink()
    return FILE


# ---- poses of YOLO ----


def make_pose(data: Path, folder: Path) -> None:
    """Write the boxes as YOLO poses: nose, left and right eye of each raccoon."""
    make_yolo(data, folder)
    yaml = "nc: 2\nnames: ['raccoon', 'cat']\nkpt_shape: [3, 3]\nflip_idx: [0, 2, 1]\n"
    (folder / "data.yaml").write_text(yaml)
    for path in (folder / "labels" / "train").iterdir():
        path.write_text("".join(posed(line) for line in path.read_text().splitlines()))


def posed(line: str) -> str:
    """Return a line with keypoints inside its box."""
    x, y, w, h = map(float, line.split()[1:])
    points = [(x, y), (x + w / 5, y - h / 5), (x - w / 5, y - h / 5)]
    return line + "".join(f" {a:.6f} {b:.6f} 2" for a, b in points) + "\n"


def pose_yaml(name: str, code: str, old: str, new: str) -> None:
    kinds = {"file": "data.yaml", "change": lambda text: text.replace(old, new)}
    plant("pose", name, code)(partial(rewrite, **kinds))


def exchanged(text: str) -> str:
    first, *rest = text.splitlines()
    columns = first.split()
    columns[8:14] = columns[11:14] + columns[8:11]
    return "\n".join([" ".join(columns), *rest]) + "\n"


OFF = [part for at in (5, 6, 8, 9, 11, 12) for part in (at, "0.001")]
pose("keypoint outside (pose)", "BOX019", lambda t: number(t, 5, "1.3"))
pose("keypoint below zero", "BOX019", lambda t: number(t, 6, "-0.2"))
pose("keypoint in px", "BOX019", lambda t: number(t, 8, "212"))
pose("visibility 3 (pose)", "BOX019", lambda t: number(t, 7, "3"))
pose("keypoints off their box (pose)", "BOX019", lambda t: number(t, *OFF))
pose("left and right exchanged (pose)", "BOX020", exchanged)
pose("a keypoint lost", "BOX013", lambda t: " ".join(t.split()[:11]) + "\n")
pose("a number too many", "BOX013", lambda t: t.strip() + " 0.5\n")
pose("box without keypoints", "BOX013", lambda t: t + "0 0.1 0.1 0.1 0.1\n")
pose("outline among poses", "BOX013", lambda t: t + "0 0.1 0.1 0.2 0.1 0.2 0.2 0.1 0.2\n")
pose("a word for a keypoint", "BOX013", lambda t: number(t, 9, "ear"))
pose("nan for a keypoint", "BOX019", lambda t: number(t, 9, "nan"))
pose_yaml("flip_idx of another set", "BOX013", "[0, 2, 1]", "[0, 2, 1, 4, 3]")
pose_yaml("flip_idx that does not go back", "BOX013", "[0, 2, 1]", "[1, 2, 0]")
pose_yaml("kpt_shape of another set", "BOX013", "[3, 3]", "[17, 3]")
pose_yaml("kpt_shape without visibility", "BOX013", "[3, 3]", "[3, 2]")


# ---- the measurement ----

MAKERS = {
    "voc": make_voc, "yolo": make_yolo, "coco": make_coco, "masks": make_masks, "pose": make_pose,
}  # fmt: skip


def originals(data: Path, work: Path) -> dict[str, list[Finding]]:
    found = {}
    for name, make in MAKERS.items():
        make(data, work / name)
        found[f"raccoon as {name}"] = run_checks(work / name)
    for form in ("coco", "yolo", "voc", "labelme", "open_images"):
        path = data / "formats" / f"{form}_dataset"
        alone = (path / "Images").is_dir()
        for folder in [path] if alone else sorted(p for p in path.iterdir() if p.is_dir()):
            if any(p.suffix in (".jpg", ".png") for p in folder.rglob("*")):
                found[f"{path.name}/{folder.name}"] = run_checks(folder)
    return found


def measure_damage(work: Path, clean: set[str], only: str | None) -> list[dict[str, Any]]:
    """Plant one kind at a time in a copy; say whether it was found and what was invented."""
    rows = []
    for base, plants in PLANTS.items():
        for name, code, damage in plants if only in (None, base) else ():
            copy = work / "copy"
            shutil.copytree(work / base, copy, symlinks=True)
            sample = damage(copy)
            findings = run_checks(copy)
            hits = [
                f for f in findings if f.code == code and (sample == FILE or sample in f.sample_ids)
            ]
            others = [f for f in findings if f not in hits and f.fingerprint not in clean]
            stray = (
                [f for f in others if f.sample_ids and sample not in f.sample_ids] if sample else []
            )
            rows.append(
                {"base": base, "damage": name, "code": code, "found": bool(hits),
                 "also": sorted({f.code for f in others} - {code}), "invented": len(stray),
                 "stray": [f"{f.code} {f.message}" for f in stray]}
            )  # fmt: skip
            shutil.rmtree(copy)
    return rows


@measures(app)
def damage(data: Path | None = None, base: str | None = None) -> tuple[Document, bool]:
    """Is each kind of damage found, and nothing invented? --base: of one original alone."""
    with tempfile.TemporaryDirectory() as folder:
        clean = originals(real_data(data, "raccoon").resolve(), Path(folder))
        for name, findings in clean.items():
            print(f"{name}: {len(findings)} findings")
            for finding in findings:
                print(f"    {finding.code} {finding.message}")
        known = {f.fingerprint for findings in clean.values() for f in findings}
        rows = measure_damage(Path(folder), known, base)
    for row in rows:
        print("found " if row["found"] else "MISSED", told(row))
    found = sum(row["found"] for row in rows)
    summary = {
        "kinds": len(rows), "found": found, "invented": sum(row["invented"] for row in rows),
        "originals": {name: len(findings) for name, findings in clean.items()},
        "missed": [row["damage"] for row in rows if not row["found"]],
    }  # fmt: skip
    return summary, found == len(rows)


if __name__ == "__main__":
    app()
