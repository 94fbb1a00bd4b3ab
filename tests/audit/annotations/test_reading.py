"""Annotation files are found, read ahead in order, and kept whole or not at all."""

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from audit.annotations.discovery import list_tree
from audit.annotations.reading import find_annotations
from audit.annotations.sink import Sink, look_ahead
from audit.picture.features import FEATURE_ROW
from audit.run.store import Store
from audit.sources import Source, open_source
from audit.sources.folder_listing import FolderEntries, list_folder
from tests.audit.sources.trees import grow

LABELS = b"0 0.5 0.5 0.2 0.2\n"
COCO = b'{"images": [], "annotations": [{"image_id": 1}], "categories": []}'


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    grow(tmp_path, *(f"train/images/{n}.jpg" for n in range(5)), "train/cat/0.PNG", "a.jpg")
    grow(tmp_path, *(f"train/labels/{n}.txt" for n in range(5)), content=LABELS)
    grow(tmp_path, "beside/0.jpg", "beside/odd", "left/0.jpg", ".hidden/0.jpg", "JPEGImages/m.jpg")
    grow(tmp_path, "beside/0.txt", "left/0.txt", ".hidden/0.txt", content=LABELS)
    grow(tmp_path, "boxes.json", "train/images/more.json", "left/no.json", content=COCO)
    grow(tmp_path, "text/images/0.jpg", "alone/SegmentationClass/0.png")
    grow(tmp_path, "text/labelTxt/0.txt", content=LABELS)
    grow(tmp_path, "SegmentationClass/m.png", "train/cat/SegmentationClass/0.png")
    grow(tmp_path, "data.yaml", "beside/classes.txt", "left/obj.NAMES", content=b"names: [cat]\n")
    grow(tmp_path, "a.xml", "beside/b.CSV", "left/0.npy", "train/labels/c.xml", content=b"none")
    (tmp_path / "linked").symlink_to(tmp_path / "beside")
    return tmp_path


def source_of(tree: Path, exclude: list[str]) -> Source:
    return open_source([str(tree)], exclude=exclude)


@pytest.mark.parametrize("exclude", [[], ["left"], ["left", "text/images", "*.jpg"]])
def test_what_the_walk_listed_gives_the_same_annotations(tree: Path, exclude: list[str]) -> None:
    fresh, listed = source_of(tree, exclude), source_of(tree, exclude)
    assert sum(map(len, listed.rows()))
    assert list_tree(listed.trees[0]) == list_tree(fresh.trees[0])
    found, expected = find_annotations(listed), find_annotations(fresh)
    assert found == expected
    assert [group.key() for group in found] == [group.key() for group in expected]
    files = {(group.format, group.file) for group in found}
    assert {("COCO", "boxes.json"), ("COCO", "train/images/more.json")} <= files
    assert {("YOLO", "beside"), ("YOLO", "train/labels"), ("masks", "SegmentationClass")} <= files
    assert ("masks", "alone/SegmentationClass") in files
    assert (("YOLO", "left") in files) == (not exclude)
    assert (("YOLO", "text/labelTxt") in files) == ("text/images" not in exclude)
    assert found[0].tree.named == expected[0].tree.named != []


def test_folders_of_pictures_are_listed_once(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = source_of(tree, [])
    assert sum(map(len, source.rows()))
    again: list[str] = []

    def noted(path: str) -> FolderEntries:
        again.append(path)
        return list_folder(path)

    monkeypatch.setattr("audit.annotations.discovery.list_folder", noted)
    find_annotations(source)
    relisted = {str(Path(path).relative_to(tree)) for path in again}
    # pictures in them may be masks, or go with text files
    masks = {f"{above}SegmentationClass" for above in ("", "alone/", "train/cat/")}
    beside_text = {"beside", "left", "text", "train"}
    beside_text |= {f"{above}/images" for above in ("text", "train")}
    assert relisted == masks | beside_text | {"text/labelTxt", "train/labels"}
    assert not relisted & {".", "train/cat", "JPEGImages"}


def test_each_part_comes_with_its_result() -> None:
    assert list(look_ahead(range(5), lambda n: n * n)) == [(n, n * n) for n in range(5)]
    assert list(look_ahead([], abs)) == []


def test_what_the_work_raises_is_raised_at_its_part() -> None:
    done = look_ahead([2, 1, 0, 1], lambda n: 1 // n)
    assert [next(done), next(done)] == [(2, 0), (1, 1)]
    with pytest.raises(ZeroDivisionError):
        next(done)


def test_no_more_than_the_next_part_is_taken() -> None:
    taken = []

    def parts() -> Iterator[int]:
        for n in range(9):
            taken.append(n)
            yield n

    next(look_ahead(parts(), abs))
    assert taken == [0, 1]


def test_a_reader_that_fails_leaves_nothing_of_its_file() -> None:
    with Store.memory() as store:
        store.create_measurements(FEATURE_ROW)
        sink = Sink(store)
        sink.add("annotation_problems", {"kind": "truncated", "file": "before"})
        with pytest.raises(ValueError, match="broken"):
            _fail_to_read(sink)
        with sink.whole():
            sink.add("categories", {"file": "b", "label": "dog"})
        assert store.scalar("SELECT count(*) FROM annotations") == 0
        assert store.query("SELECT file FROM categories")["file"].to_list() == ["b"]
        assert store.scalar("SELECT count(*) FROM annotation_problems") == 1


def _fail_to_read(sink: Sink) -> None:
    with sink.whole():
        sink.add_frame("annotations", pl.DataFrame({"file": ["a"], "image_key": ["0"]}))
        sink.add("categories", {"file": "a", "label": "cat"})
        raise ValueError("broken")
