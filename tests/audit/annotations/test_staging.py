"""Annotations in archives and stores: the same tables as those of a folder, read once."""

import io
import json
import os
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from PIL import Image

import audit
from audit.annotations import reading as staging_module
from audit.machine.executors import Serial
from audit.run.annotation_tables import ANNOTATION_TABLES
from audit.run.store import Store
from audit.scanning.scanning import scan
from audit.sources import Source, object_store, open_source
from tests.audit.annotations.datasets import coco, coco_tree, fill, picture, voc_xml
from tests.audit.sources.packed_sets import Files, write_tar, write_zip

pytestmark = pytest.mark.slow


def write_coco(root: Path) -> None:
    coco_tree(root, coco(3, [(1, 5, 6, 20, 10), (2, 0, 0, 90, 90), (3, 1, 1, 5, 5)]), 3)


def write_yolo(root: Path) -> None:
    for i in range(6):
        split = "val" if i % 3 == 2 else "train"
        picture(root / "images" / split / f"{i}.jpg")
        path = root / "labels" / split / f"{i}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{i % 2} 0.5 0.5 0.2 0.3\n" + ("1 2 2 2\n" if i == 4 else ""))
    (root / "data.yaml").write_text("train: images/train\nval: images/val\nnames: [cat, dog]\n")


def write_voc(root: Path) -> None:
    (root / "Annotations").mkdir(parents=True)
    for i in range(3):
        picture(root / "JPEGImages" / f"{i}.jpg")
        (root / "Annotations" / f"{i}.xml").write_text(
            voc_xml(f"{i}.jpg", ("cat", 4, 5, 20 + 40 * i, 30))
        )
    (root / "labelmap.txt").write_text("cat:1,2,3::\ndog:4,5,6::\n")


def write_table(root: Path) -> None:
    for i in range(3):
        picture(root / "images" / f"{i}.jpg")
    rows = "".join(f"{i}.jpg,1,2,{10 + i},20,cat\n" for i in range(3))
    (root / "boxes.csv").write_text(f"filename,xmin,ymin,xmax,ymax,class\n{rows}")


def write_masks(root: Path) -> None:
    for i in range(2):
        picture(root / "JPEGImages" / f"{i}.jpg")
        for folder, other in (("SegmentationClass", 1), ("SegmentationObject", 2)):
            mask = Image.new("P", (64, 48))
            mask.putpalette([0, 0, 0, 128, 0, 0, 0, 128, 0])
            mask.paste(1, (5, 5, 20, 20))
            mask.paste(other, (30, 5, 40, 20))  # another object of the same class
            (root / folder).mkdir(exist_ok=True)
            mask.save(root / folder / f"{i}.png")


MADE: dict[str, Callable[[Path], None]] = {
    "coco": write_coco, "yolo": write_yolo, "voc": write_voc, "table": write_table,
    "masks": write_masks,
}  # fmt: skip
# Forms that none of those above has.
REAL = ("labelme_dataset", "open_images_dataset/v6", "coco_dataset/coco_panoptic")


def files_below(root: Path) -> Files:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def stored(files: Files) -> str:
    """Put files into fsspec's memory; return the address."""
    memory = fsspec.filesystem("memory")
    for name, data in files.items():
        memory.pipe(f"/annotated/{name}", data)
    return "memory://annotated"


@pytest.fixture(autouse=True)
def empty_memory() -> Iterator[None]:
    yield
    fsspec.filesystem("memory").store.clear()


def tables_of(source: Source, files: Files) -> dict[str, list[Any]]:
    """Return what the annotations of a source are in the tables, without the keys of files."""
    with Store.memory() as store:
        fill(store, source, lambda sample: io.BytesIO(files[sample.id]))
        found = {
            name: list(map(repr, store.query(f"SELECT {columns} FROM {name} ORDER BY ALL").rows()))
            for name in ANNOTATION_TABLES
            for columns in ["* EXCLUDE (file_key)" if name == "annotation_files" else "*"]
        }
        order = "SELECT id, split, label FROM samples ORDER BY id"
        return {**found, "samples": store.query(order).rows()}


@pytest.mark.parametrize("kind", [*MADE, *REAL])
def test_a_folder_an_archive_and_a_store_give_the_same_tables(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    root = tmp_path / "set"
    if kind in MADE:
        MADE[kind](root)
    else:
        root = request.getfixturevalue("real_data") / "formats" / kind
    files, source = files_below(root), open_source([str(root)])
    expected, layout = tables_of(source, files), source.layout
    assert expected["annotation_files"]
    elsewhere = [str(write_zip(tmp_path / "a.zip", files))]
    if kind in MADE:  # one listing serves the three: published sets need one of them
        elsewhere += [str(write_tar(tmp_path / "a.tar", files)), stored(files)]
    for address in elsewhere:
        source = open_source([address])
        assert (source.layout.name, source.layout.annotations) == (layout.name, layout.annotations)
        assert tables_of(source, files) == expected, address
    assert not [name for name in os.listdir(tempfile.gettempdir()) if "audit-annotations-" in name]


def test_a_damaged_annotation_in_an_archive_is_what_it_is_in_a_folder(tmp_path: Path) -> None:
    coco_tree(tmp_path / "set", json.dumps(coco(2))[:-40], 2)
    files = files_below(tmp_path / "set")
    expected = tables_of(open_source([str(tmp_path / "set")]), files)
    assert expected["annotation_problems"]
    packed = open_source([str(write_zip(tmp_path / "a.zip", files))])
    assert tables_of(packed, files) == expected


def test_an_annotation_that_unpacks_to_too_much_is_not_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = coco(2) | {"info": " " * 300_000}
    coco_tree(tmp_path / "set", document, 2)
    files = files_below(tmp_path / "set")
    path = write_zip(tmp_path / "a.zip", files, zipfile.ZIP_DEFLATED)
    monkeypatch.setattr(staging_module, "MOST_BYTES", 100_000)
    problems = tables_of(open_source([str(path)]), files)["annotation_problems"]
    assert "cannot be read" in str(problems)


def test_annotations_that_did_not_change_are_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_yolo(tmp_path / "set")
    address = stored(files_below(tmp_path / "set"))
    asked: list[str] = []
    read = object_store.read_object

    def counted(url: str, *more: Any) -> bytes:
        asked.append(url.rpartition("/")[2])
        return read(url, *more)

    monkeypatch.setattr("audit.sources.listed_tree.read_object", counted)
    scan(open_source([address]), tmp_path / "run", executor=Serial(), checks=["BOX"])
    first, boxes = len(asked), audit.open(tmp_path / "run").sql("SELECT * FROM boxes").rows()
    asked.clear()
    scan(open_source([address]), tmp_path / "run", executor=Serial(), checks=["BOX"])
    assert len(asked) < first
    assert audit.open(tmp_path / "run").sql("SELECT * FROM boxes").rows() == boxes


def test_the_annotations_of_shards_lie_below_their_split(tmp_path: Path) -> None:
    write_yolo(tmp_path / "set")
    files = files_below(tmp_path / "set")
    for split in ("train", "val"):
        part = {
            name.replace(f"/{split}/", "/"): data
            for name, data in files.items()
            if f"/{split}/" in name
        }
        write_tar(tmp_path / "shards" / f"{split}-0000.tar", part)
    source = open_source([str(tmp_path / "shards")])
    samples = {s.id for batch in source.batches() for s in batch}
    by_id = {name: files[f"images/{name.split('/')[0]}/{name.split('/')[-1]}"] for name in samples}
    found = tables_of(source, by_id)
    assert [row[1] for row in found["samples"]] == ["train"] * 4 + ["val"] * 2
    assert len(found["boxes"]) == 6
