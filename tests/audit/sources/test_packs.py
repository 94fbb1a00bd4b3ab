"""Packs: each kind gives the pictures that were put in, and says where it is damaged."""

import io
import pickle
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import audit
from audit.errors import UsageError
from audit.machine.executors import Serial
from audit.picture.decode import DecodeError
from audit.records import Sample
from audit.scanning.scanning import scan
from audit.sources import Source, open_source
from tests.audit.sources.packed_sets import (
    as_folder,
    content,
    pictures,
    pixels_of,
    places_of,
    spoil,
    write_cifar,
    write_folder,
    write_parquet,
    write_tar,
    write_tfrecord,
    write_zip,
)
from tests.audit.sources.trees import metadata, read

FILES = pictures()


def shown(sample: Sample) -> np.ndarray:
    return np.array(Image.open(io.BytesIO(content(sample))))


def damage(source: Source) -> list[str]:
    read(source)
    return [message for kind, _, message in source.notes if kind == "damaged-pack"]


def shards(folder: Path, each: int = 4) -> Path:
    """Tar files without splits inside, called after the split."""
    for split in ("train", "test"):
        mine = [(n.partition("/")[2], d) for n, d in FILES.items() if n.startswith(split)]
        for number in range(0, len(mine), each):
            write_tar(folder / f"{split}-{number:05}.tar", dict(mine[number : number + each]))
    return folder


@pytest.mark.parametrize(
    "make",
    [
        lambda path: write_tar(path / "set.tar", FILES),
        lambda path: write_zip(path / "set.zip", FILES),
        lambda path: write_zip(path / "set.zip", FILES, zipfile.ZIP_STORED),
        lambda path: shards(path / "shards"),
    ],
    ids=["tar", "zip", "zip-stored", "tar-shards"],
)
def test_an_archive_is_read_as_the_folder_that_it_unpacks_to(
    tmp_path: Path, make: Callable[[Path], Path]
) -> None:
    packed = read(open_source([str(make(tmp_path))]))
    assert places_of(packed) == as_folder(tmp_path / "folder", FILES)


def test_ids_stay_when_the_same_pictures_are_packed_into_other_shards(tmp_path: Path) -> None:
    one = read(open_source([str(shards(tmp_path / "one", 2))]))
    other = read(open_source([str(shards(tmp_path / "other", 5))]))
    assert [s.id for s in one] == [s.id for s in other]


def test_rows_keep_their_numbers_in_other_shards(tmp_path: Path) -> None:
    rows = list(FILES.items())
    for each in (3, 12):
        (tmp_path / str(each)).mkdir()
        for start in range(0, 12, each):
            part = dict(rows[start : start + each])
            write_tfrecord(tmp_path / str(each) / f"train-{start:05}.tfrecord", part)
    found = [read(open_source([str(tmp_path / n)])) for n in ("3", "12")]
    assert [s.id for s in found[0]] == [s.id for s in found[1]] == [f"train/{i}" for i in range(12)]
    assert [content(s) for s in found[0]] == [content(s) for s in found[1]]


def test_a_label_beside_a_picture_is_found_by_its_key(tmp_path: Path) -> None:
    data = next(iter(FILES.values()))
    labels = {"7.cls": b"3\n", "8.json": b'{"label": "owl"}'}
    path = write_tar(tmp_path / "a.tar", {f"{n}.png": data for n in (7, 8, 9)} | labels)
    assert [(s.id, s.label) for s in read(open_source([str(path)]))] == [
        ("7.png", "3"), ("8.png", "owl"), ("9.png", None),
    ]  # fmt: skip


def test_members_of_one_name_and_names_that_lead_outside_are_read_and_noted(tmp_path: Path) -> None:
    data = list(FILES.values())
    write_tar(tmp_path / "t" / "a.tar", {"x.png": data[0], "../../up.png": data[1]})
    write_tar(tmp_path / "t" / "b.tar", {"x.png": data[2], "/etc/at.png": data[3]})
    source = open_source([str(tmp_path / "t")])
    found = read(source)
    assert {s.id: content(s) for s in found} == {
        "x.png": data[0], "x#2.png": data[2], "up.png": data[1], "etc/at.png": data[3],
    }  # fmt: skip
    kinds = [kind for kind, _, _ in source.notes]
    assert kinds.count("outside-link") == 2
    assert "repeated-id" in kinds
    assert not (tmp_path / "up.png").exists()


@pytest.mark.parametrize(
    ("name", "write", "options", "split", "column"),
    [
        ("test-0000-of-0001.parquet", write_parquet, [], "test", "weight"),
        ("test-0000-of-0001.parquet", write_parquet, [["cat", "dog", "owl"]], "test", "weight"),
        ("a.tfrecord", write_tfrecord, [], None, "number"),
    ],
    ids=["words", "class-numbers", "tfrecord"],
)
def test_rows_of_tables_and_records(
    tmp_path: Path, name: str, write: Any, options: list[Any], split: str | None, column: str
) -> None:
    source = open_source([str(write(tmp_path / name, FILES, *options))])
    found = read(source)
    assert [content(s) for s in found] == list(FILES.values())
    assert [s.label for s in found] == [name.split("/")[1] for name in FILES]
    assert {s.split for s in found} == {split}
    assert metadata(source)[column].to_list() == list(range(12))


@pytest.mark.parametrize("keep", [slice(-100), slice(0), slice(9)], ids=["cut", "empty", "head"])
def test_a_table_among_tables_that_cannot_be_opened_is_said(tmp_path: Path, keep: slice) -> None:
    whole = write_parquet(tmp_path / "train-0001.parquet", FILES).read_bytes()
    (tmp_path / "train-0000.parquet").write_bytes(whole[keep])
    source = open_source([str(tmp_path)])
    assert len(read(source)) == len(FILES)
    (said,) = damage(source)
    assert said.startswith("train-0000.parquet: row group 0 cannot be read")


@pytest.mark.slow
def test_records_that_tensorflow_wrote(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    with tf.io.TFRecordWriter(str(tmp_path / "a.tfrecord")) as out:
        for name, data in FILES.items():
            entry = tf.train.Example()
            entry.features.feature["image"].bytes_list.value.append(data)
            entry.features.feature["label"].int64_list.value.append(7)
            entry.features.feature["sizes"].int64_list.value.extend([-len(name), 3])
            entry.features.feature["weight"].float_list.value.append(0.5)
            out.write(entry.SerializeToString())
    source = open_source([str(tmp_path / "a.tfrecord")])
    found = read(source)
    assert not damage(source)
    assert [content(s) for s in found] == list(FILES.values())
    assert {s.label for s in found} == {"7"}
    assert set(metadata(source)["weight"]) == {0.5}


def test_arrays_with_splits_and_labels(tmp_path: Path) -> None:
    pixels = pixels_of(FILES)
    np.savez(
        tmp_path / "a.npz",
        x_train=pixels[:8], y_train=np.arange(8) % 3, x_test=pixels[8:], y_test=np.arange(4),
    )  # fmt: skip
    found = read(open_source([str(tmp_path / "a.npz")]))
    assert [s.id for s in found[:5]] == ["test/0", "test/1", "test/2", "test/3", "train/0"]
    assert [s.label for s in found[:4]] == ["0", "1", "2", "3"]
    assert np.array_equal(np.stack([shown(s) for s in found]), np.r_[pixels[8:], pixels[:8]])


def test_one_array_and_hdf5(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    pixels = pixels_of(FILES)
    np.save(tmp_path / "a.npy", pixels)
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["images"], file["labels"] = pixels[..., 0], np.arange(12)
    found = read(open_source([str(tmp_path / "a.npy")]))
    assert np.array_equal(np.stack([shown(s) for s in found]), pixels)
    found = read(open_source([str(tmp_path / "b.h5")]))
    assert np.array_equal(np.stack([shown(s) for s in found]), pixels[..., 0])
    assert [s.label for s in found] == [str(i) for i in range(12)]


def test_cifar(tmp_path: Path) -> None:
    found = read(open_source([str(write_cifar(tmp_path / "c"))]))
    assert [(s.id, s.label) for s in found] == [
        ("train/0", "cat"), ("train/1", "dog"), ("train/2", "cat"),
    ]  # fmt: skip
    planes = np.random.default_rng(0).integers(0, 256, (3, 3072), dtype=np.uint8)
    assert np.array_equal(shown(found[1]), planes[1].reshape(3, 32, 32).transpose(1, 2, 0))


@pytest.mark.parametrize("kind", ["cifar", "arrays"])
def test_a_picture_of_an_array_above_the_limit_is_not_read(tmp_path: Path, kind: str) -> None:
    if kind == "arrays":
        np.save(tmp_path / "a.npy", pixels_of(FILES))
    place = write_cifar(tmp_path) if kind == "cifar" else tmp_path
    first = read(open_source([str(place)]))[0]
    assert content(first)
    with pytest.raises(DecodeError, match="max_bytes") as error:
        content(first, first.n_bytes - 1)
    assert error.value.kind == "bomb"


# ---- damage ----


def test_what_a_pickle_would_run_is_not_run(tmp_path: Path) -> None:
    class Runs:
        def __reduce__(self) -> tuple[object, ...]:
            return Path.touch, (tmp_path / "ran",)

    folder = write_cifar(tmp_path / "c")
    (folder / "data_batch_2").write_bytes(pickle.dumps({b"data": Runs(), b"labels": []}))
    source = open_source([str(folder)])
    assert len(read(source)) == 3
    assert "which is no array" in damage(source)[0]
    assert not (tmp_path / "ran").exists()


def test_a_damaged_header_in_a_tar_loses_that_member_alone(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", FILES)
    with tarfile.open(path) as archive:
        third = archive.getmembers()[2]
    spoil(path, third.offset + 20)
    source = open_source([str(path)])
    assert {s.id for s in read(source)} == set(FILES) - {third.name}
    (said,) = damage(source)
    assert f"from byte {third.offset:,} on hold no readable entry" in said


@pytest.mark.parametrize(
    ("inside", "n", "said"), [(50, 5, "within a member"), (-512, 4, "without the mark of an end")]
)
def test_a_tar_that_is_cut_keeps_what_is_whole(
    tmp_path: Path, inside: int, n: int, said: str
) -> None:
    path = write_tar(tmp_path / "a.tar", FILES)
    with tarfile.open(path) as archive:
        fifth = archive.getmembers()[4]
    path.write_bytes(path.read_bytes()[: fifth.offset_data + inside])
    source = open_source([str(path)])
    found = read(source)
    assert [s.id for s in found] == list(FILES)[:n]
    assert said in damage(source)[0]
    for cut in found[4:]:
        with pytest.raises(DecodeError, match="the pack ends"):
            content(cut)


def test_a_zip_without_its_directory_is_read_by_the_headers_of_its_members(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip", FILES)
    with zipfile.ZipFile(path) as archive:
        last = archive.infolist()[-1].header_offset
    path.write_bytes(path.read_bytes()[:last])
    source = open_source([str(path)])
    found = read(source)
    assert [content(s) for s in found] == list(FILES.values())[:-1]
    assert "11 members were found" in damage(source)[0]


def test_members_that_unpack_to_something_else_are_damaged_alone(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip", {"a.png": bytes(5000), **FILES})
    with zipfile.ZipFile(path) as archive:
        start = archive.infolist()[0].header_offset + 30 + len("a.png")
    spoil(path, start + 5)
    first, *others = read(open_source([str(path)]))
    assert [content(s) for s in others] == list(FILES.values())
    with pytest.raises(DecodeError) as error:
        content(first)
    assert error.value.kind == "corrupt"
    with pytest.raises(DecodeError) as error:
        content(first, 4000)
    assert error.value.kind == "bomb"


def test_a_tfrecord_ends_where_a_head_is_damaged(tmp_path: Path) -> None:
    path = write_tfrecord(tmp_path / "a.tfrecord", FILES)
    fifth = sum(len(record) for record in records(path)[:4])
    spoil(path, fifth + 7, 0x7F)  # a length of 2^62
    source = open_source([str(path)])
    assert len(read(source)) == 4
    assert f"the record at byte {fifth:,} of" in damage(source)[0]
    path.write_bytes(path.read_bytes()[: fifth - 1])
    source = open_source([str(path)])
    assert len(read(source)) == 3
    assert "within the record" in damage(source)[0]


def records(path: Path) -> list[bytes]:
    data, found = path.read_bytes(), []
    while data:
        size = 16 + int.from_bytes(data[:8], "little")
        found, data = [*found, data[:size]], data[size:]
    return found


KINDS = {"", "truncated", "corrupt", "empty", "bomb", "unsupported"}


def kind_of(sample: Sample) -> str:
    """Return the kind of error that reading a sample ends in, '' for none."""
    try:
        content(sample)
    except DecodeError as error:
        return error.kind
    return ""


MAKERS: dict[str, Callable[[Path], Path]] = {
    "tar": lambda path: write_tar(path / "a.tar", FILES),
    "zip": lambda path: write_zip(path / "a.zip", FILES),
    "parquet": lambda path: write_parquet(path / "a.parquet", FILES),
    "tfrecord": lambda path: write_tfrecord(path / "a.tfrecord", FILES),
    "cifar": lambda path: write_cifar(path) / "data_batch_1",
    "npy": lambda path: _saved(path / "a.npy"),
    "npz": lambda path: _saved(path / "a.npz"),
}


def _saved(path: Path) -> Path:
    (np.save if path.suffix == ".npy" else np.savez)(path, pixels_of(FILES))
    return path


@pytest.mark.parametrize("kind", sorted(MAKERS))
def test_cut_or_changed_anywhere_a_pack_is_a_note_or_a_sentence(tmp_path: Path, kind: str) -> None:
    path = MAKERS[kind](tmp_path)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for cut in rng.integers(0, len(whole), 40).tolist():
        changed = bytearray(whole)
        changed[cut : cut + 8] = rng.bytes(8)
        for data in (whole[:cut], bytes(changed)):
            path.write_bytes(data)
            try:
                source = open_source([str(path)])
                found = read(source)
            except UsageError:
                continue
            assert {kind_of(sample) for sample in found[-3:]} <= KINDS


def test_pictures_beside_a_pack_win(tmp_path: Path) -> None:
    write_folder(tmp_path, FILES)
    write_zip(tmp_path / "backup.zip", FILES)
    assert [s.id for s in read(open_source([str(tmp_path)]))] == list(FILES)


@pytest.mark.slow
def test_a_scan_finds_in_a_pack_what_the_folder_has_and_says_where_it_is_cut(
    tmp_path: Path,
) -> None:
    same = dict(FILES)
    same["test/cat/again.png"] = FILES["train/cat/00.png"]
    same["train/dog/cut.png"] = FILES["train/dog/01.png"][:150]
    packed, found = write_tar(tmp_path / "set.tar", same), []
    for source in (write_folder(tmp_path / "folder", same), packed):
        scan(open_source([str(source)]), tmp_path / f"run-{source.name}", executor=Serial())
        found.append(sorted(audit.open(tmp_path / f"run-{source.name}").findings["code"]))
    assert found[0] == found[1]
    assert {"SPLIT001", "FILE002"} <= set(found[0])
    packed.write_bytes(packed.read_bytes()[: packed.stat().st_size // 2])
    scan(open_source([str(packed)]), tmp_path / "run-set.tar", executor=Serial())
    run = audit.open(tmp_path / "run-set.tar")
    assert "FILE009" in run.findings["code"].to_list()
    assert run.report(tmp_path / "report.html").exists()


def test_a_manifest_of_members_is_read_as_the_pack(tmp_path: Path) -> None:
    packed = read(open_source([str(write_tar(tmp_path / "a.tar", FILES))]))
    rows = "".join(f"{s.id},{s.uri},{s.label}\n" for s in packed)
    (tmp_path / "kept.csv").write_text(f"id,path,label\n{rows}")
    source = open_source([str(tmp_path / "kept.csv")])
    listed = read(source)
    facts = [[(s.id, s.label, s.mtime_ns) for s in samples] for samples in (listed, packed)]
    assert facts[0] == facts[1]
    assert [content(s) for s in listed] == list(FILES.values())
    assert not [kind for kind, _, _ in source.notes if kind == "nothing-found"]
