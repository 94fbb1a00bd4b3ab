"""What can be opened, the layout that is inferred, and the names that samples get."""

import os
import tempfile
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.errors import UsageError
from audit.sources import names, open_source
from audit.sources.layout import ROLES, infer_layout
from tests.audit.sources.trees import grow, ids, kinds, metadata, places, read, skipped


def test_several_roots_prefix_ids_and_give_the_split(tmp_path: Path) -> None:
    grow(tmp_path, "one/cat/a.png", "one/dog/b.png", "two/cat/a.png", "two/dog/b.png")
    source = open_source([f"training={tmp_path}/one", f"test={tmp_path}/two"])
    samples = read(source)
    assert ids(samples) == [
        "training:cat/a.png", "training:dog/b.png", "test:cat/a.png", "test:dog/b.png",
    ]  # fmt: skip
    assert [s.split for s in samples] == ["train", "train", "test", "test"]
    assert [s.label for s in samples] == ["cat", "dog"] * 2
    assert {s.source for s in samples} == {"training", "test"}
    assert source.roots == {"training": f"{tmp_path}/one", "test": f"{tmp_path}/two"}
    assert source.layout.name == "class/file"


@pytest.mark.parametrize(
    ("files", "specs", "expected"),
    [
        (["one/train/a.png", "one/test/b.png", "two/c.png"], ["siteA=one", "siteB=two"],
         [("siteA:test/b.png", "test", None), ("siteA:train/a.png", "train", None),
          ("siteB:c.png", "siteB", None)]),
        (["one/train/cat/a.png", "one/val/cat/b.png", "two/c.png"], ["train=one", "test=two"],
         [("train:train/cat/a.png", "train", "cat"), ("train:val/cat/b.png", "train", "cat"),
          ("test:c.png", "test", None)]),
        (["one/a.png"], ["train=one"], [("train:a.png", "train", None)]),
        (["one/a.png"], ["holidays=one"], [("holidays:a.png", None, None)]),
    ],
    ids=["no split, splits inside", "split, splits inside", "one split", "one that is no split"],
)  # fmt: skip
def test_the_name_of_a_root_is_a_split_where_it_means_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: list[str], specs: list[str],
    expected: list[tuple[str, str | None, str | None]],
) -> None:  # fmt: skip
    monkeypatch.chdir(grow(tmp_path, *files))
    samples = read(open_source(specs))
    assert [(s.id, s.split, s.label) for s in samples] == expected


def test_manifests_and_folders_mix(tmp_path: Path) -> None:
    grow(tmp_path, "dir/a.png")
    (tmp_path / "m.csv").write_text("path,weight\ndir/a.png,2\n")
    (tmp_path / "n.csv").write_text("path,weight\ndir/a.png,x\n")
    source = open_source([f"a={tmp_path}/dir", f"b={tmp_path}/m.csv", f"c={tmp_path}/n.csv"])
    assert ids(read(source)) == ["a:a.png", "b:dir/a.png", "c:dir/a.png"]
    assert source.layout.name == "a: flat; b: manifest; c: manifest"
    assert metadata(source).rows() == [("b:dir/a.png", "2"), ("c:dir/a.png", "x")]


def test_an_equals_sign_in_a_folder_name(tmp_path: Path) -> None:
    grow(tmp_path, "lr=0.1/a.png")
    assert ids(read(open_source([f"{tmp_path}/lr=0.1"]))) == ["a.png"]


def test_overlapping_roots_are_noted(tmp_path: Path) -> None:
    grow(tmp_path, "sub/a.png")
    source = open_source([f"a={tmp_path}", f"b={tmp_path}/sub"])
    assert ids(read(source)) == ["a:sub/a.png", "b:a.png"]
    assert "overlapping-roots" in kinds(source)


IDX = "mnist/t10k-images-idx3-ubyte"


@pytest.mark.parametrize(
    ("specs", "message"),
    [
        ([], "No source given"),
        (["{tmp}/absent"], "does not exist: give a folder"),
        (["train={tmp}/absent"], "absent does not exist"),
        (["{tmp}/one", "{tmp}/two"], "need names: write `train=DIR test=DIR`"),
        (["a={tmp}/one", "a={tmp}/two"], "'a' is given twice"),
        (["{tmp}/empty"], "is an empty folder: give"),
        (["{tmp}/text"], r"contains no images among its 2 files: 2 \.txt"),
        (["{tmp}/packed"], r"packs of a kind that is not read"),
        *(
            ([f"{{tmp}}/{name}"], "LMDB and IDX files are not read: give a torch, Hugging Face or")
            for name in ("lmdb", "lmdb/data.mdb", "b.lmdb", "mnist", IDX, "c.idx3-ubyte.gz")
        ),
        (["{tmp}/laion"], "write addresses or paths to a CSV with a column `path`"),
        (["{tmp}/a.tar.gz"], r"gunzip -k .*a\.tar\.gz"),
        (["{tmp}/mixed"], r"several formats \(1 tar, 1 zip\)"),
    ],
)
def test_errors_say_what_to_do(tmp_path: Path, specs: list[str], message: str) -> None:
    grow(tmp_path, "one/a.png", "two/a.png", "empty/", "text/a.txt", "text/b.txt", "packed/a.rar")
    grow(tmp_path, "lmdb/data.mdb", "lmdb/lock.mdb", "b.lmdb", "c.idx3-ubyte.gz", "mnist/")
    grow(tmp_path, "laion/", "a.tar.gz", "mixed/a.tar", "mixed/b.zip")
    for name in (IDX, "mnist/t10k-labels-idx1-ubyte"):
        (tmp_path / name).write_bytes(bytes(64))
    table = pl.DataFrame({"url": ["https://x.org/a.jpg"], "caption": ["a cat"]})
    table.write_parquet(tmp_path / "laion/part-0.parquet")
    with pytest.raises(UsageError, match=message):
        open_source([spec.format(tmp=tmp_path) for spec in specs])


def test_layout_and_kind_of_source_must_agree(tmp_path: Path) -> None:
    grow(tmp_path, "a.png")
    (tmp_path / "m.csv").write_text("path\na.png\n")
    with pytest.raises(UsageError, match="can only be manifest"):
        open_source([f"{tmp_path}/m.csv"], layout="flat")
    with pytest.raises(UsageError, match="give the manifest file itself"):
        open_source([str(tmp_path)], layout="manifest")
    assert open_source([f"{tmp_path}/m.csv"], layout="manifest").layout.name == "manifest"


@pytest.mark.parametrize(
    ("make", "specs", "name"),
    [
        (["photos/a.png"], ["photos"], "photos"),
        (["photos/a.png"], ["photos/"], "photos"),
        (["my photos: 2024/a.png"], ["my photos: 2024"], "my_photos_2024"),
        ([".secret/a.png"], [".secret"], "secret"),
        (["cars/train/a.png", "cars/test/b.png"], ["train=cars/train", "test=cars/test"], "cars"),
    ],
)
def test_dataset_names_can_be_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: list[str], specs: list[str], name: str
) -> None:
    grow(tmp_path, *make)
    monkeypatch.chdir(tmp_path)
    assert open_source(specs).name == name


def test_a_manifest_of_a_general_name_is_called_after_its_folder(tmp_path: Path) -> None:
    for stem in ("manifest", "pets"):
        grow(tmp_path / "animals", "a.png")
        (tmp_path / "animals" / f"{stem}.csv").write_text("path\na.png\n")
    names = [open_source([f"{tmp_path}/animals/{s}.csv"]).name for s in ("manifest", "pets")]
    assert names == ["animals", "pets"]


def test_batches_stream_and_start_afresh(tmp_path: Path) -> None:
    grow(tmp_path, *(f"{i}.png" for i in range(7)), "x.txt")
    source = open_source([str(tmp_path)])
    assert [len(batch) for batch in source.batches(3)] == [3, 3, 1]
    assert ids(read(source)) == [f"{i}.png" for i in range(7)]
    assert [row.count for row in source.log.skipped] == [1]


def test_a_changed_folder_between_opening_and_reading(tmp_path: Path) -> None:
    grow(tmp_path, "a.png", "b.png")
    source = open_source([str(tmp_path)])
    os.remove(tmp_path / "a.png")
    assert ids(read(source)) == ["b.png"]


CASES: list[tuple[str, list[str], str, dict[str, tuple[str | None, str | None]]]] = [
    ("split, class", ["train/cat/a.png", "train/dog/b.png", "val/cat/c.png"], "split/class/file",
     {"train/cat/a.png": ("train", "cat"), "train/dog/b.png": ("train", "dog"),
      "val/cat/c.png": ("val", "cat")}),
    ("class", ["cat/a.png", "dog/b.png"], "class/file",
     {"cat/a.png": (None, "cat"), "dog/b.png": (None, "dog")}),
    ("split", ["train/a.png", "test/b.png"], "split/file",
     {"train/a.png": ("train", None), "test/b.png": ("test", None)}),
    ("flat", ["a.png", "b.png"], "flat", {"a.png": (None, None), "b.png": (None, None)}),
    ("unlabelled test", ["train/cat/a.png", "test/b.png"], "split/class/file",
     {"train/cat/a.png": ("train", "cat"), "test/b.png": ("test", None)}),
    ("a class of trains", ["bus/a.png", "car/b.png", "train/c.png", "ship/d.png"], "class/file",
     {"bus/a.png": (None, "bus"), "car/b.png": (None, "car"), "train/c.png": (None, "train"),
      "ship/d.png": (None, "ship")}),
    ("the class train in the split train",
     ["train/train/a.png", "train/bus/b.png", "test/bus/c.png"], "split/class/file",
     {"train/train/a.png": ("train", "train"), "train/bus/b.png": ("train", "bus"),
      "test/bus/c.png": ("test", "bus")}),
    ("containers", ["data/images/train/cat/a.png", "data/images/test/cat/b.png"],
     "split/class/file",
     {"data/images/train/cat/a.png": ("train", "cat"),
      "data/images/test/cat/b.png": ("test", "cat")}),
    ("container below the class", ["train/n01/images/a.png", "val/images/b.png"],
     "split/class/file",
     {"train/n01/images/a.png": ("train", "n01"), "val/images/b.png": ("val", None)}),
    ("archive in its own folder", ["birds/train/owl/a.png", "birds/test/owl/b.png"],
     "split/class/file",
     {"birds/train/owl/a.png": ("train", "owl"), "birds/test/owl/b.png": ("test", "owl")}),
    ("wrapper below a container", ["data/birds/train/owl/a.png", "data/birds/test/owl/b.png"],
     "split/class/file", {"data/birds/train/owl/a.png": ("train", "owl"),
                          "data/birds/test/owl/b.png": ("test", "owl")}),
    ("name repeated", ["seg_train/seg_train/sea/a.png", "seg_test/seg_test/sea/b.png"],
     "split/class/file",
     {"seg_train/seg_train/sea/a.png": ("train", "sea"),
      "seg_test/seg_test/sea/b.png": ("test", "sea")}),
    ("class above split", ["bottle/train/good/a.png", "bottle/test/broken/b.png",
                           "nut/train/good/c.png", "nut/test/bent/d.png"], "class/split/file",
     {"bottle/train/good/a.png": ("train", "bottle"),
      "bottle/test/broken/b.png": ("test", "bottle"),
      "nut/train/good/c.png": ("train", "nut"), "nut/test/bent/d.png": ("test", "nut")}),
    ("deeper than the class", ["cat/a.png", "dog/puppy/b.png"], "class/file",
     {"cat/a.png": (None, "cat"), "dog/puppy/b.png": (None, "dog")}),
    ("a third folder beside splits", ["train/a.png", "val/b.png", "extra/c.png"], "split/file",
     {"train/a.png": ("train", None), "val/b.png": ("val", None), "extra/c.png": ("extra", None)}),
    ("mostly at the root", ["a.png", "b.png", "c.png", "more/d.png"], "flat",
     {"a.png": (None, None), "b.png": (None, None), "c.png": (None, None),
      "more/d.png": (None, None)}),
    ("a container beside classes", ["cat/a.png", "dog/b.png", "images/c.png"], "class/file",
     {"cat/a.png": (None, "cat"), "dog/b.png": (None, "dog"), "images/c.png": (None, None)}),
    ("mask and no mask", ["mask/a.png", "no_mask/b.png"], "class/file",
     {"mask/a.png": (None, "mask"), "no_mask/b.png": (None, "no_mask")}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("files", "layout", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_inferred(
    tmp_path: Path,
    files: list[str],
    layout: str,
    expected: dict[str, tuple[str | None, str | None]],
) -> None:
    grow(tmp_path, *files)
    assert places(tmp_path) == expected
    assert open_source([str(tmp_path)]).layout.name == layout


def test_the_reason_counts_classes(tmp_path: Path) -> None:
    grow(tmp_path, *(f"{s}/{c}/a.png" for s in ("train", "val", "test") for c in "abcdefgh"))
    source = open_source([str(tmp_path)])
    assert source.layout.reason == "train, val, test contain 8 class folders each"
    assert source.layout.reason in source.describe()


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        ("split/class/file", ("a", "b")), ("class/file", (None, "a")), ("split/file", ("a", None)),
        ("flat", (None, None)), ("class/split/file", ("b", "a")),
    ],
)  # fmt: skip
def test_given_layout_wins(
    tmp_path: Path, layout: str, expected: tuple[str | None, str | None]
) -> None:
    grow(tmp_path, "a/b/c.png", "x/y/z.png")
    assert places(tmp_path, layout=layout)["a/b/c.png"] == expected
    assert open_source([str(tmp_path)], layout=layout).layout.reason == "given by --layout"


def test_unknown_layout_lists_the_known(tmp_path: Path) -> None:
    grow(tmp_path, "a.png")
    with pytest.raises(UsageError, match=r"Unknown layout 'nested'.*class/file.*coco.*voc"):
        open_source([str(tmp_path)], layout="nested")


COCO = b'{"info": {}, "images": [{"id": 1}], "annotations": [], "categories": []}'
ANNOTATED = [
    ("COCO", ["train2017/a.jpg", "val2017/b.jpg"], {"annotations/instances_train2017.json": COCO},
     {"train2017/a.jpg": ("train", None), "val2017/b.jpg": ("val", None)}),
    ("COCO", ["images/a.jpg", "masks/a.png"], {"labels.json": COCO},
     {"images/a.jpg": (None, None)}),
    ("YOLO", ["images/train/a.jpg", "images/val/b.jpg"],
     {"labels/train/a.txt": b"0 0.5 0.5 0.1 0.1\n", "labels/val/b.txt": b""},
     {"images/train/a.jpg": ("train", None), "images/val/b.jpg": ("val", None)}),
    ("YOLO", ["train/images/a.jpg", "valid/images/b.jpg"],
     {"data.yaml": b"train: ../train/images\nnc: 1\nnames: [cat]\n", "train/labels/a.txt": b""},
     {"train/images/a.jpg": ("train", None), "valid/images/b.jpg": ("val", None)}),
    ("YOLO", ["train/images/a.jpg"],
     {"data.yaml": b'"train": "../train/images"\r\n"names": ["cat"]\r\n'},
     {"train/images/a.jpg": ("train", None)}),
    ("VOC", ["JPEGImages/a.jpg", "SegmentationClass/a.png"],
     {"Annotations/a.xml": b"<annotation><object><bndbox/></object></annotation>"},
     {"JPEGImages/a.jpg": (None, None)}),
    ("LabelMe", ["Images/set1/a.jpg"],
     {"Annotations/set1/a.xml": b"<annotation><object><polygon></polygon></object></annotation>"},
     {"Images/set1/a.jpg": (None, None)}),
]  # fmt: skip


@pytest.mark.parametrize(("form", "images", "others", "expected"), ANNOTATED)
def test_annotated_trees_are_named_and_scanned_without_labels(
    tmp_path: Path, form: str, images: list[str], others: dict[str, bytes],
    expected: dict[str, tuple[str | None, str | None]],
) -> None:  # fmt: skip
    grow(tmp_path, *images)
    for path, content in others.items():
        grow(tmp_path, path, content=content)
    assert places(tmp_path) == expected
    source = open_source([str(tmp_path)])
    assert source.layout.annotations == form
    assert form in source.describe()


def test_a_json_or_yaml_of_another_kind_proves_nothing(tmp_path: Path) -> None:
    grow(tmp_path, "cat/a.png", "dog/b.png")
    grow(tmp_path, "info.json", content=b'{"images": 2, "author": "me"}')
    grow(tmp_path, "data.yaml", content=b"names: of the authors\n")
    grow(tmp_path, "notes.txt", content=b"3 cats and 4 dogs\n")
    source = open_source([str(tmp_path)])
    assert (source.layout.name, source.layout.annotations) == ("class/file", None)


def test_keys_at_the_far_end_of_a_large_coco_file_are_found(tmp_path: Path) -> None:
    grow(tmp_path, "train/a.jpg", "val/b.jpg")
    filler = b'{"annotations": [' + b'{"id": 1},' * 40_000 + b'{}], "images": [], "categories": []}'
    grow(tmp_path, "all.json", content=filler)
    assert open_source([str(tmp_path)]).layout.annotations == "COCO"


def test_masks_are_counted_and_are_samples_only_when_alone(tmp_path: Path) -> None:
    grow(tmp_path / "both", "images/a.jpg", "masks/a.png", "masks/deep/b.png")
    source = open_source([str(tmp_path / "both")])
    assert [s.id for s in read(source)] == ["images/a.jpg"]
    assert skipped(source) == {("annotation", "png"): 2}
    grow(tmp_path / "alone", "masks/a.png")
    assert places(tmp_path / "alone") == {"masks/a.png": (None, None)}


def test_labels_keep_their_spelling_and_undecodable_bytes(tmp_path: Path) -> None:
    odd = "caf\udce9"
    grow(tmp_path, f"{odd}/a.png", "Cafe\u0301 x/b.png", "x/c.png")
    labels = {label for _, label in places(tmp_path).values()}
    assert labels == {"caf%E9", "Cafe\u0301 x", "x"}


# Words with a meaning, words without, two spellings of one name, a hidden folder.
FOLDERS = st.sampled_from(
    [
        "train", "test", "val", "dev", "validation", "cars_train", "cars_test", "train2017", "eval",
        "images", "JPEGImages", "data", "labels", "masks", "Annotations", "cat", "dog", "100%",
        "raw", "set", ".hidden", "caf\u00e9", "cafe\u0301",
    ]
)  # fmt: skip
FILES = st.sampled_from(
    ["a.png", "b.jpg", "c.PNG", "\u00e9.png", "e\u0301.png", "notes.txt", ".hidden.png", "%.png"]
)
TREES = st.sets(
    st.builds(
        lambda folders, file: "/".join([*folders, file]), st.lists(FOLDERS, max_size=4), FILES
    ),
    min_size=1,
    max_size=12,
)


def meanings(parts: list[str]) -> set[str]:
    """Every split that the folders of a path could stand for."""
    words = [word for part in parts for word in names.words(part)]
    return {*parts, *(names.CANONICAL[word] for word in words if word in names.CANONICAL)}


@pytest.mark.slow
@settings(max_examples=80)
@given(TREES)
def test_every_picture_is_one_sample_or_is_counted(paths: set[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = grow(Path(folder), *paths)
        assert infer_layout(folder).layout.name in ROLES
        try:
            source = open_source([folder])
        except UsageError:
            # Nothing but text, hidden files and annotations: no picture lies at the root.
            assert not {"a.png", "b.jpg", "c.PNG", "%.png"} & paths
            return
        samples = read(source)
        files = {os.path.relpath(sample.uri, root) for sample in samples}
        assert len(files) == len(samples) == len(set(ids(samples)))
        assert files <= paths
        assert len(paths) - len(files) == sum(row.count for row in source.log.skipped)
        for sample in samples:
            parts = os.path.relpath(sample.uri, root).split(os.sep)[:-1]
            assert sample.label is None or sample.label in parts
            assert sample.split is None or sample.split in meanings(parts)


@settings(max_examples=40)
@given(TREES, st.sampled_from(sorted(ROLES)))
def test_a_layout_that_is_given_never_fails(paths: set[str], wanted: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        grow(Path(folder), *paths)
        inferred = infer_layout(folder, wanted)
        assert inferred.layout.name == wanted
        assert inferred.roles == ROLES[wanted]
