"""Folder trees with names and things that nobody expects, annotations among them."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path
from random import Random

from tests.audit.hostile_files import damaged

FOLDERS = (
    b"train", b"test", b"val", b"Train", b"images", b"labels", b"annotations", b"masks", b"cat",
    b"Cat", b"CAT", b"dog", b"...", b"..a", b"-rf", b"~", b"a b", b" ", b"\xff\xfe", b"caf\xe9",
    b"e\xcc\x81", b"\xc3\xa9", b"%FF", b"a\nb", b"\x1b[2J\x1b]0;t", b"\xe2\x80\xae", b"\xc2\x9b",
    b"x" * 255, b"\xf0\x9f\x98\x80", b"CON", b"a:b", b"a=b", b"#2", b".hidden", b"__MACOSX",
    b"gen-0001", b"thumbnails", b"<b>", b"$(id)", b"`x`", b"\xed\xa0\x80", b"0", b"1", b"data",
)  # fmt: skip
STEMS = (*FOLDERS, b"a", b"a.b.c", b"a#2", b"a%23", b"y" * 250, b"README", b"CURRENT", b"photo.jpg")
ENDINGS = (
    b".jpg", b".JPG", b".png", b".jpeg", b".gif", b"", b".", b".txt", b".json", b".xml", b".yaml",
    b".csv", b".tfrecord", b".zip", b".jpg.part", b".jp\xff", b".\xe2\x80\xae", b".npy", b".mp4",
)  # fmt: skip
COCO = {
    "images": [{"id": 1, "file_name": "a.jpg", "width": 96, "height": 72}],
    "annotations": [{"id": 1, "image_id": 1, "category_id": 3, "bbox": [1, 2, 3, 4]}],
    "categories": [{"id": 3, "name": "cat\u202e"}],
}
VOC = (
    "<annotation><folder>x</folder><filename>a.jpg</filename><size><width>9</width></size>"
    "<object><name>cat</name><bndbox><xmin>1</xmin></bndbox></object></annotation>"
)
LABELME = {"version": "5", "shapes": [{"label": "cat", "points": [[0, 1]]}], "imagePath": "a.jpg"}
OPENIMAGES = "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax\na,x,/m/01,1,0,1,0,1\n"
ANNOTATIONS = (
    (b"instances_train.json", json.dumps(COCO)), (b"_annotations.coco.json", json.dumps(COCO)),
    (b"a.xml", VOC), (b"a.json", json.dumps(LABELME)), (b"a.txt", "0 0.5 0.5 0.1 0.1\n"),
    (b"data.yaml", "train: x\nval: y\nnc: 2\nnames: [cat, 'd\u202eg']\n"),
    (b"classes.txt", "cat\ndog\n"), (b"train-annotations-bbox.csv", OPENIMAGES),
    (b"metadata.csv", "file_name,label\na.jpg,x\n"), (b"split.txt", "../../etc/passwd\n"),
)  # fmt: skip


def plant_tree(rng: Random, root: Path, pictures: list[Path]) -> None:
    """Make a tree below `root`: up to a dozen folders, each with pictures and odd things."""
    root.mkdir()
    folders = [os.fsencode(root)]
    for _ in range(rng.randint(0, 8)):
        folder = os.path.join(rng.choice(folders), rng.choice(FOLDERS))
        with suppress(OSError):  # too long, or there
            os.mkdir(folder)
            folders.append(folder)
    if rng.random() < 0.1:
        folders.append(_dig(rng, rng.choice(folders)))
    for folder in folders:
        for _ in range(rng.choice((0, 1, 2, 4))):
            with suppress(OSError):
                _put(rng, folder, rng.choice(folders), pictures)


def _dig(rng: Random, folder: bytes) -> bytes:
    """Make folders within folders up to the longest path that the system takes, or not so far."""
    for _ in range(rng.choice((10, 100, 400))):
        try:
            os.mkdir(os.path.join(folder, b"deeper-0"))
        except OSError:
            return folder
        folder = os.path.join(folder, b"deeper-0")
    return folder


def _put(rng: Random, folder: bytes, other: bytes, pictures: list[Path]) -> None:
    path = os.path.join(folder, rng.choice(STEMS) + rng.choice(ENDINGS))
    kind = rng.randrange(14)
    if kind < 6:
        shutil.copyfile(rng.choice(pictures), path)
    elif kind < 9:
        name, text = rng.choice(ANNOTATIONS)
        blob = text.encode()
        with open(os.path.join(folder, name), "wb") as file:
            file.write(damaged(rng, blob) if rng.random() < 0.6 else blob)
    elif kind == 9:
        with open(path, "wb") as file:
            file.write(damaged(rng, rng.choice(pictures).read_bytes()))
    elif kind == 10:
        targets = (other, b".", b"..", b"absent", path, b"/dev/null", b"x" * 4000)
        os.symlink(rng.choice(targets), path)
    elif kind == 11:
        os.mkfifo(path)
    elif kind == 12:
        os.link(rng.choice(pictures), path)
    else:
        with open(path, "wb") as file:
            file.write(rng.randbytes(rng.choice((0, 1, 100, 70_000))))
