"""open_source: what the command line may give, the names it makes of it, and what it refuses."""

import os
from pathlib import Path

import polars as pl
import pytest

from audit.errors import UsageError
from audit.sources import open_source
from tests.audit.sources.trees import grow, ids, kinds, metadata, read


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
            ([place], "LMDB and IDX files are not read: give a torch, Hugging Face or tf Dataset")
            for place in (
                "{tmp}/lmdb",
                "{tmp}/lmdb/data.mdb",
                "{tmp}/b.lmdb",
                "{tmp}/mnist",
                "{tmp}/mnist/t10k-images-idx3-ubyte",
                "{tmp}/c.idx3-ubyte.gz",
            )
        ),
        (["{tmp}/laion"], "write addresses or paths to a CSV with a column `path`"),
    ],
)
def test_errors_say_what_to_do(tmp_path: Path, specs: list[str], message: str) -> None:
    grow(tmp_path, "one/a.png", "two/a.png", "empty/", "text/a.txt", "text/b.txt", "packed/a.rar")
    grow(
        tmp_path, "lmdb/data.mdb", "lmdb/lock.mdb", "b.lmdb", "c.idx3-ubyte.gz", "mnist/", "laion/"
    )
    for name in ("images-idx3", "labels-idx1"):
        (tmp_path / f"mnist/t10k-{name}-ubyte").write_bytes(bytes(64))
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
    assert [row.count for row in source.skipped] == [1]


def test_a_changed_folder_between_opening_and_reading(tmp_path: Path) -> None:
    grow(tmp_path, "a.png", "b.png")
    source = open_source([str(tmp_path)])
    os.remove(tmp_path / "a.png")
    assert ids(read(source)) == ["b.png"]
