"""Kinds of damage planted in real annotations: is each found, and is nothing invented?

The originals are the raccoon set as published (200 pictures, Pascal VOC), the same boxes written as
YOLO and as COCO (with an outline, keypoints and an area for each box), the small sets of `formats/`
and the project's own sample data. First the originals are checked as they are: every finding about
one is listed. Then one kind of damage at a time goes into a copy, and the findings are compared:
found means that the expected check names the damaged picture (or the file, where the damage is the
file's); invented is any finding that speaks of another picture.

    python benchmarks/annotations.py --data ../shared/data      about two minutes

Pictures are opened for their size only. The last line is one JSON document.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from audit.annotations import read_annotations, settle_boxes
from audit.checking.check import all_checks, make_params
from audit.measuring import sample_frame
from audit.picture.features import FEATURE_ROW
from audit.records import Finding
from audit.run.store import Store
from audit.sources import open_source
from audit.sources.sample_rows import SampleRows

Document = dict[str, Any]
Boxes = dict[str, tuple[int, int, list[tuple[float, float, float, float]]]]
NAMES = ["nose", "left_eye", "right_eye"]


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
        return list(all_findings(store))


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


def all_findings(store: Store) -> Iterator[Finding]:
    """Yield the findings of every check of boxes."""
    for code, check in all_checks().items():
        if code.startswith("BOX"):
            yield from check.find(store, make_params(check, {}))


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
    """Make the pictures of the raccoon set appear below `folder`."""
    (folder / inside).mkdir(parents=True)
    for path in sorted((data / "raccoon" / "images").iterdir()):
        (folder / inside / path.name).symlink_to(path)


def make_voc(data: Path, folder: Path) -> None:
    """Copy the published VOC files."""
    link_pictures(data, folder)
    shutil.copytree(data / "raccoon" / "annotations", folder / "annotations")


def make_yolo(data: Path, folder: Path) -> None:
    """Write the boxes as YOLO."""
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
    """Write the boxes as COCO."""
    link_pictures(data, folder, "images")
    (folder / "annotations").mkdir()
    write_coco(folder, coco_document(data))


def write_coco(folder: Path, document: Document) -> None:
    """Write the document."""
    (folder / "annotations" / "instances.json").write_text(json.dumps(document))


# ---- damage ----

Plant = tuple[str, str, Callable[[Path], str]]  # name, expected code, do it and name the picture
PLANTS: dict[str, list[Plant]] = {"voc": [], "yolo": [], "coco": [], "masks": [], "pose": []}
FILE = ""  # the damage is the file's, no single picture's


def plant(base: str, name: str, code: str) -> Callable[[Callable[[Path], str]], None]:
    """Enter a kind of damage."""

    def enter(function: Callable[[Path], str]) -> None:
        PLANTS[base].append((name, code, function))

    return enter


def coco(
    name: str, code: str
) -> Callable[[Callable[[Document, Document, Document], object]], None]:
    """Enter damage done by a function of the document, an annotation and the entry of its picture.

    It returns True where the damage is the file's.
    """

    def enter(function: Callable[[Document, Document, Document], object]) -> None:
        def damage(folder: Path) -> str:
            path = folder / "annotations" / "instances.json"
            document = json.loads(path.read_text())
            thing = document["annotations"][40]
            entry = next(i for i in document["images"] if i["id"] == thing["image_id"])
            sample = f"images/{entry['file_name']}"
            whole = function(document, thing, entry)
            write_coco(folder, document)
            return FILE if whole is True else sample

        PLANTS["coco"].append((name, code, damage))

    return enter


def simple(name: str, code: str, change: Callable[[Document, Document], object]) -> None:
    """Enter damage to one annotation, given its picture's entry."""
    coco(name, code)(lambda _, thing, entry: (change(thing, entry), None)[1])


def moved(thing: Document, dx: float, dy: float) -> None:
    """Move a box with its outline and keypoints."""
    thing["bbox"][0] += dx
    thing["bbox"][1] += dy
    ring = np.array(thing["segmentation"][0]).reshape(-1, 2) + np.array([dx, dy])
    thing["segmentation"] = [ring.ravel().tolist()]
    points = np.array(thing["keypoints"], float).reshape(-1, 3) + np.array([dx, dy, 0])
    thing["keypoints"] = points.ravel().tolist()


def set_box(thing: Document, at: int, value: Any) -> None:
    """Set one of the four numbers."""
    thing["bbox"][at] = value


simple(
    "box over the right edge",
    "BOX001",
    lambda t, e: moved(t, e["width"] - t["bbox"][0] - t["bbox"][2] + 25, 0),
)
simple("box above the top edge", "BOX001", lambda t, e: moved(t, 0, -t["bbox"][1] - 12))
simple(
    "box 3 px below the bottom edge",
    "BOX001",
    lambda t, e: moved(t, 0, e["height"] - t["bbox"][1] - t["bbox"][3] + 3),
)
simple("box wholly outside", "BOX001", lambda t, e: moved(t, 3000, 0))
simple("width 0", "BOX002", lambda t, e: set_box(t, 2, 0))
simple("height 0", "BOX002", lambda t, e: set_box(t, 3, 0.0))
simple("negative width", "BOX002", lambda t, e: set_box(t, 2, -40))
simple("unknown class", "BOX003", lambda t, e: t.update(category_id=99))
simple("class 0 in a list from 1", "BOX003", lambda t, e: t.update(category_id=0))
simple("no class", "BOX003", lambda t, e: t.pop("category_id"))
simple(
    "size entry exchanged", "BOX005", lambda t, e: e.update(width=e["height"], height=e["width"])
)
simple(
    "size entry halved",
    "BOX005",
    lambda t, e: e.update(width=e["width"] // 2, height=e["height"] // 2),
)
simple("NaN in a box", "BOX007", lambda t, e: set_box(t, 0, float("nan")))
simple("Infinity in a box", "BOX007", lambda t, e: set_box(t, 2, float("inf")))
simple("null in a box", "BOX007", lambda t, e: set_box(t, 1, None))
simple("text in a box", "BOX007", lambda t, e: set_box(t, 1, "left"))
simple("three numbers", "BOX007", lambda t, e: t["bbox"].pop())
simple(
    "one box in shares",
    "BOX009",
    lambda t, e: t.update(
        bbox=[
            t["bbox"][0] / e["width"],
            t["bbox"][1] / e["height"],
            t["bbox"][2] / e["width"],
            t["bbox"][3] / e["height"],
        ],
        segmentation=[],
        area=1,
    ),
)
simple(
    "outline moved off its box",
    "BOX017",
    lambda t, e: t.update(segmentation=[[v - 60 for v in t["segmentation"][0]]]),
)
simple(
    "box moved off its outline",
    "BOX017",
    lambda t, e: set_box(t, 0, t["bbox"][0] + 0.3 * t["bbox"][2]),
)
simple(
    "outline crosses itself",
    "BOX016",
    lambda t, e: t.update(
        segmentation=[
            t["segmentation"][0][:8]
            + t["segmentation"][0][20:24]
            + t["segmentation"][0][12:20]
            + t["segmentation"][0][8:12]
            + t["segmentation"][0][24:]
        ]
    ),
)
simple(
    "ring of two points",
    "BOX018",
    lambda t, e: t.update(segmentation=[t["segmentation"][0], t["segmentation"][0][:4]]),
)
simple(
    "empty mask",
    "BOX018",
    lambda t, e: t.update(
        segmentation={"counts": [e["width"] * e["height"]], "size": [e["height"], e["width"]]}
    ),
)
simple(
    "mask with exchanged size",
    "BOX018",
    lambda t, e: t.update(
        segmentation={
            "counts": [10, 500, e["width"] * e["height"] - 510],
            "size": [e["width"], e["height"]],
        }
    ),
)
simple(
    "mask whose runs end early",
    "BOX018",
    lambda t, e: t.update(segmentation={"counts": [10, 500], "size": [e["height"], e["width"]]}),
)
simple("mask without size", "BOX013", lambda t, e: t.update(segmentation={"counts": [10, 500]}))
simple("keypoint outside", "BOX019", lambda t, e: t["keypoints"].__setitem__(0, e["width"] + 30))
simple(
    "keypoint missing",
    "BOX019",
    lambda t, e: t.update(keypoints=t["keypoints"][:6], num_keypoints=2),
)
simple("num_keypoints wrong", "BOX019", lambda t, e: t.update(num_keypoints=1))
simple("visibility 3", "BOX019", lambda t, e: t["keypoints"].__setitem__(2, 3))
simple(
    "keypoints of another object",
    "BOX019",
    lambda t, e: (
        t.update(keypoints=[1, 1, 2, 3, 1, 2, 2, 2, 2], bbox=t["bbox"][:2] + t["bbox"][2:])
        if min(t["bbox"][:2]) > 4
        else t.update(num_keypoints=9)
    ),
)
simple(
    "left and right exchanged",
    "BOX020",
    lambda t, e: t.update(keypoints=t["keypoints"][:3] + t["keypoints"][6:] + t["keypoints"][3:6]),
)
simple("crowd mark on one object", "BOX021", lambda t, e: t.update(iscrowd=1))
simple(
    "area four times the box", "BOX025", lambda t, e: t.update(area=4 * t["bbox"][2] * t["bbox"][3])
)
simple("area zero", "BOX025", lambda t, e: t.update(area=0))
simple(
    "a click of 1 px",
    "BOX024",
    lambda t, e: t.update(
        bbox=[*t["bbox"][:2], 1, 1], segmentation=[], area=1, keypoints=[], num_keypoints=0
    ),
)
simple(
    "a sliver",
    "BOX023",
    lambda t, e: t.update(
        bbox=[2, t["bbox"][1], e["width"] - 4, 1],
        segmentation=[],
        area=e["width"] - 4,
        keypoints=[],
        num_keypoints=0,
    ),
)


@coco("entered twice", "BOX004")
def _(d: Document, t: Document, e: Document) -> None:
    d["annotations"].append({**t, "id": 9001})


@coco("drawn twice", "BOX004")
def _(d: Document, t: Document, e: Document) -> None:
    again = json.loads(json.dumps(t))
    again["bbox"][2] *= 0.98
    d["annotations"].append({**again, "id": 9001})


@coco("one object, two classes", "BOX006")
def _(d: Document, t: Document, e: Document) -> None:
    d["annotations"].append({**t, "id": 9001, "category_id": 3 - t["category_id"]})


@coco("a part boxed as a whole", "BOX010")
def _(d: Document, t: Document, e: Document) -> None:
    x, y, w, h = t["bbox"]
    d["annotations"].append(object_of(9001, t["image_id"], (x + w / 4, y + h / 4, w / 3, h / 3)))
    d["annotations"][-1]["category_id"] = t["category_id"]


def convert(document: Document, change: Callable[[Document, Document], list[float]]) -> bool:
    """Write all boxes in another way."""
    entries = {entry["id"]: entry for entry in document["images"]}
    for thing in document["annotations"]:
        thing["bbox"] = change(thing, entries[thing["image_id"]])
    return True


def whole_file(name: str, change: Callable[[Document, Document], list[float]]) -> None:
    """Enter a conversion of the whole file."""
    coco(name, "BOX008")(lambda d, t, e: convert(d, change))


whole_file(
    "corners for sizes",
    lambda t, e: [
        t["bbox"][0],
        t["bbox"][1],
        t["bbox"][0] + t["bbox"][2],
        t["bbox"][1] + t["bbox"][3],
    ],
)
whole_file(
    "centre for corner",
    lambda t, e: [
        t["bbox"][0] + t["bbox"][2] / 2,
        t["bbox"][1] + t["bbox"][3] / 2,
        t["bbox"][2],
        t["bbox"][3],
    ],
)
whole_file("axes exchanged", lambda t, e: [t["bbox"][1], t["bbox"][0], t["bbox"][3], t["bbox"][2]])
whole_file(
    "width and height exchanged",
    lambda t, e: [t["bbox"][0], t["bbox"][1], t["bbox"][3], t["bbox"][2]],
)
whole_file(
    "shares for px",
    lambda t, e: [
        t["bbox"][0] / e["width"],
        t["bbox"][1] / e["height"],
        t["bbox"][2] / e["width"],
        t["bbox"][3] / e["height"],
    ],
)


@coco("annotation of no picture", "BOX011")
def _(d: Document, t: Document, e: Document) -> bool:
    d["annotations"].append({**t, "id": 9001, "image_id": 7777})
    return True


@coco("entry whose picture is gone", "BOX011")
def _(d: Document, t: Document, e: Document) -> bool:
    d["images"].append({"id": 9001, "file_name": "gone.jpg", "width": 640, "height": 480})
    return True


@coco("annotation id twice", "BOX012")
def _(d: Document, t: Document, e: Document) -> bool:
    d["annotations"][80]["id"] = t["id"]
    return True


@coco("picture listed twice", "BOX012")
def _(d: Document, t: Document, e: Document) -> bool:
    d["images"].append({**e, "id": 9001})
    return True


@coco("class listed twice", "BOX012")
def _(d: Document, t: Document, e: Document) -> bool:
    d["categories"].append({"id": 1, "name": "other"})
    return True


@coco("class name twice", "BOX012")
def _(d: Document, t: Document, e: Document) -> bool:
    d["categories"].append({"id": 7, "name": "raccoon"})
    return True


@coco("numbers as texts", "BOX013")
def _(d: Document, t: Document, e: Document) -> bool:
    t["bbox"] = [str(v) for v in t["bbox"]]
    return True


@coco("ids as texts in annotations", "BOX013")
def _(d: Document, t: Document, e: Document) -> bool:
    for thing in d["annotations"]:
        thing["image_id"] = str(thing["image_id"])
    return True


@coco("an annotation is a list", "BOX013")
def _(d: Document, t: Document, e: Document) -> bool:
    d["annotations"].insert(9, [1, 2, 3])
    return True


@coco("every object a crowd", "BOX021")
def _(d: Document, t: Document, e: Document) -> bool:
    for thing in d["annotations"]:
        thing["iscrowd"] = 1
    return True


@coco("one class moved", "BOX015")
def _(d: Document, t: Document, e: Document) -> bool:
    for thing in d["annotations"]:
        if thing["category_id"] == 2:
            moved(thing, 30, 0)
    return True


@coco("pictures without entry", "BOX014")
def _(d: Document, t: Document, e: Document) -> None:
    d["images"] = [entry for entry in d["images"] if entry is not e]
    d["annotations"] = [a for a in d["annotations"] if a["image_id"] != e["id"]]


@plant("coco", "JSON cut short", "BOX013")
def _(folder: Path) -> str:
    path = folder / "annotations" / "instances.json"
    path.write_bytes(path.read_bytes()[:-4000])
    return FILE


@plant("coco", "a key twice", "BOX013")
def _(folder: Path) -> str:
    path = folder / "annotations" / "instances.json"
    path.write_text(path.read_text().replace('"iscrowd": 0', '"iscrowd": 0, "iscrowd": 0', 1))
    return FILE


@plant("coco", "a second file that differs", "BOX022")
def _(folder: Path) -> str:
    document = json.loads((folder / "annotations" / "instances.json").read_text())
    thing = document["annotations"][40]
    moved(thing, -thing["bbox"][0], -thing["bbox"][1])
    thing["bbox"][2:] = [v / 3 for v in thing["bbox"][2:]]
    thing.update(segmentation=[], keypoints=[], num_keypoints=0, area=thing["area"] / 9)
    (folder / "annotations" / "again.json").write_text(json.dumps(document))
    entry = next(i for i in document["images"] if i["id"] == thing["image_id"])
    return f"images/{entry['file_name']}"


# ---- YOLO ----


def yolo(name: str, code: str, change: Callable[[str], str], whole: bool = False) -> None:
    """Enter damage to the text of one label file."""

    @plant("yolo", name, code)
    def _(folder: Path) -> str:
        path = folder / "labels" / "train" / "raccoon-42.txt"
        path.write_text(change(path.read_text()))
        return FILE if whole else "images/train/raccoon-42.jpg"


def number(text: str, at: int, value: str) -> str:
    """Set one column of the first line."""
    first, *rest = text.splitlines()
    columns = first.split()
    columns[at] = value
    return "\n".join([" ".join(columns), *rest]) + "\n"


yolo("centre beyond the picture", "BOX001", lambda t: number(t, 1, "1.2"))
yolo("width 0 (YOLO)", "BOX002", lambda t: number(t, 3, "0"))
yolo("class not in names", "BOX003", lambda t: number(t, 0, "7"))
yolo("line twice", "BOX004", lambda t: t + t.splitlines()[0] + "\n")
yolo(
    "px among shares",
    "BOX009",
    lambda t: number(number(number(number(t, 1, "120"), 2, "90"), 3, "80"), 4, "60"),
)
yolo("nan in a line", "BOX007", lambda t: number(t, 2, "nan"))
yolo("four columns", "BOX013", lambda t: t + "0 0.5 0.5 0.2\n")
yolo("class name for number", "BOX013", lambda t: number(t, 0, "raccoon"))
yolo("commas", "BOX013", lambda t: t.replace(" ", ","))
yolo("byte-order mark", "BOX013", lambda t: "\ufeff" + t)
yolo("a word for a number", "BOX013", lambda t: number(t, 2, "half"))


@plant("yolo", "label file lost", "BOX014")
def _(folder: Path) -> str:
    (folder / "labels" / "train" / "raccoon-42.txt").unlink()
    return "images/train/raccoon-42.jpg"


@plant("yolo", "label file without picture", "BOX011")
def _(folder: Path) -> str:
    (folder / "labels" / "train" / "other.txt").write_text("0 0.5 0.5 0.1 0.1\n")
    return FILE


@plant("yolo", "all labels in px", "BOX008")
def _(folder: Path) -> str:
    for path in (folder / "labels" / "train").iterdir():
        with Image.open(folder / "images" / "train" / f"{path.stem}.jpg") as image:
            w, h = image.size
        rows = [line.split() for line in path.read_text().splitlines()]
        path.write_text(
            "".join(
                f"{c} {float(x) * w:.1f} {float(y) * h:.1f} {float(a) * w:.1f} {float(b) * h:.1f}\n"
                for c, x, y, a, b in rows
            )
        )
    return FILE


@plant("yolo", "all labels as corners", "BOX008")
def _(folder: Path) -> str:
    for path in (folder / "labels" / "train").iterdir():
        rows = [[float(v) for v in line.split()] for line in path.read_text().splitlines()]
        path.write_text(
            "".join(
                f"0 {x - a / 2:.6f} {y - b / 2:.6f} {x + a / 2:.6f} {y + b / 2:.6f}\n"
                for _, x, y, a, b in rows
            )
        )
    return FILE


# ---- VOC ----


def voc(name: str, code: str, old: str, new: str, whole: bool = False) -> None:
    """Enter a replacement in one XML file: `old` is a tag whose text becomes `new`, or a text."""

    @plant("voc", name, code)
    def _(folder: Path) -> str:
        path = folder / "annotations" / "raccoon-1.xml"
        text = path.read_text()
        assert old in text, old
        path.write_text(text.replace(old, new, 1))
        return FILE if whole else "images/raccoon-1.jpg"


voc("xmax outside (VOC)", "BOX001", "<xmax>522<", "<xmax>722<")
voc("corners exchanged", "BOX002", "<xmin>81<", "<xmin>581<")
voc("width wrong (VOC)", "BOX005", "<width>650<", "<width>1300<")
voc("a text for a corner", "BOX007", "<ymin>88<", "<ymin>top<")
voc("a corner missing", "BOX007", "<ymax>408</ymax>", "")
voc("name misspelt", "BOX026", "<name>raccoon<", "<name>racoon<", whole=True)
voc("name with a capital", "BOX026", "<name>raccoon<", "<name>Raccoon<", whole=True)
voc("object without name", "BOX013", "<name>raccoon</name>", "")
voc(
    "object without box",
    "BOX013",
    "<bndbox>\n\t\t\t<xmin>81</xmin>\n\t\t\t<ymin>88</ymin>\n\t\t\t<xmax>522</xmax>\n\t\t\t<ymax>408</ymax>\n\t\t</bndbox>",
    "",
)
voc("XML cut short", "BOX013", "</annotation>", "", whole=True)
voc("file names another picture", "BOX013", "raccoon-1.jpg", "raccoon-2.jpg")
voc(
    "entities declared",
    "BOX013",
    "<annotation",
    '<!DOCTYPE a [<!ENTITY b "c">]><annotation',
    whole=True,
)
voc(
    "one box in shares (VOC)",
    "BOX009",
    "<xmin>81</xmin>\n\t\t\t<ymin>88</ymin>\n\t\t\t<xmax>522</xmax>\n\t\t\t<ymax>408</ymax>",
    "<xmin>0.12</xmin><ymin>0.2</ymin><xmax>0.8</xmax><ymax>0.9</ymax>",
)


@plant("voc", "object pasted twice", "BOX004")
def _(folder: Path) -> str:
    path = folder / "annotations" / "raccoon-1.xml"
    head, thing = path.read_text().split("<object>", 1)
    thing = thing.replace("</annotation>", "")
    path.write_text(f"{head}<object>{thing}<object>{thing}</annotation>")
    return "images/raccoon-1.jpg"


@plant("voc", "annotation file lost", "BOX014")
def _(folder: Path) -> str:
    (folder / "annotations" / "raccoon-1.xml").unlink()
    return "images/raccoon-1.jpg"


@plant("voc", "picture in two places, boxes differ", "BOX022")
def _(folder: Path) -> str:
    source = (folder / "images" / "raccoon-1.jpg").resolve()
    (folder / "images" / "copy.jpg").symlink_to(source)
    text = (folder / "annotations" / "raccoon-1.xml").read_text()
    changed = text.replace("raccoon-1.jpg", "copy.jpg").replace("<xmax>522<", "<xmax>150<")
    (folder / "annotations" / "copy.xml").write_text(changed)
    return "images/raccoon-1.jpg"


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


def pose(name: str, code: str, change: Callable[[str], str], whole: bool = False) -> None:
    """Enter damage to the text of one label file of poses."""

    @plant("pose", name, code)
    def _(folder: Path) -> str:
        path = folder / "labels" / "train" / "raccoon-42.txt"
        path.write_text(change(path.read_text()))
        return FILE if whole else "images/train/raccoon-42.jpg"


def pose_yaml(name: str, code: str, old: str, new: str) -> None:
    """Enter a replacement in data.yaml."""

    @plant("pose", name, code)
    def _(folder: Path) -> str:
        path = folder / "data.yaml"
        path.write_text(path.read_text().replace(old, new))
        return FILE


def exchanged(text: str) -> str:
    """Exchange left and right of the first line."""
    first, *rest = text.splitlines()
    columns = first.split()
    columns[8:14] = columns[11:14] + columns[8:11]
    return "\n".join([" ".join(columns), *rest]) + "\n"


def off_box(text: str) -> str:
    """Put the keypoints of the first line where its box is not."""
    for at in (5, 6, 8, 9, 11, 12):
        text = number(text, at, "0.001")
    return text


pose("keypoint outside (pose)", "BOX019", lambda t: number(t, 5, "1.3"))
pose("keypoint below zero", "BOX019", lambda t: number(t, 6, "-0.2"))
pose("keypoint in px", "BOX019", lambda t: number(t, 8, "212"))
pose("visibility 3 (pose)", "BOX019", lambda t: number(t, 7, "3"))
pose("keypoints off their box (pose)", "BOX019", off_box)
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
    """Return the findings about each original as it is."""
    found = {}
    for name, make in MAKERS.items():
        make(data, work / name)
        found[f"raccoon as {name}"] = run_checks(work / name)
    for form in (
        "coco_dataset",
        "yolo_dataset",
        "voc_dataset",
        "labelme_dataset",
        "open_images_dataset",
    ):
        path = data / "formats" / form
        for folder in (
            [path]
            if (path / "Images").is_dir()
            else sorted(p for p in path.iterdir() if p.is_dir())
        ):
            if any(p.suffix in (".jpg", ".png") for p in folder.rglob("*")):
                found[f"{form}/{folder.name}"] = run_checks(folder)
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


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--base", choices=PLANTS, help="only the damage of one original")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        clean = originals(arguments.data.resolve(), Path(folder))
        for name, findings in clean.items():
            print(f"{name}: {len(findings)} findings")
            for finding in findings:
                print(f"    {finding.code} {finding.message}")
        known = {f.fingerprint for findings in clean.values() for f in findings}
        rows = measure_damage(Path(folder), known, arguments.base)
    for row in rows:
        mark = "found " if row["found"] else "MISSED"
        also = f"  also {', '.join(row['also'])}" if row["also"] else ""
        stray = f"  INVENTED {row['invented']}" if row["invented"] else ""
        print(f"{mark} {row['code']} {row['base']:5} {row['damage']}{also}{stray}")
        for text in row["stray"]:
            print(f"    {text}")
    found = sum(row["found"] for row in rows)
    summary = {
        "kinds": len(rows), "found": found, "invented": sum(row["invented"] for row in rows),
        "originals": {name: len(findings) for name, findings in clean.items()},
        "missed": [row["damage"] for row in rows if not row["found"]],
    }  # fmt: skip
    print(json.dumps(summary))
    return 0 if found == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
