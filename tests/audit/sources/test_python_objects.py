"""Datasets as Python objects: every form gives the pictures, labels and splits that it holds."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl
import pytest
from PIL import Image

import audit
from audit.checking.config import Config
from audit.errors import UsageError
from audit.sources.python_objects import describe_epochs, is_dataset, remove_unlisted, store_dataset
from tests.conftest import make_tree, picture

PICTURES = [picture(seed, 40, 32) for seed in range(6)]
NAMES = ["cat", "dog", "owl"]
NUMBERS = [0, 1, 2, 0, 1, 2]


def stored(dataset: Any, run: Path, **options: Any) -> pl.DataFrame:
    return pl.read_parquet(store_dataset(dataset, run, **options))


def pixels(path: str) -> np.ndarray:
    return np.asarray(Image.open(path))


class MapStyle:
    """As a torch dataset is: length and item, classes by name."""

    classes = NAMES

    def __len__(self) -> int:
        return len(PICTURES)

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return PICTURES[index], NUMBERS[index]


@pytest.mark.parametrize(
    "dataset",
    [
        MapStyle(),
        list(zip(PICTURES, [NAMES[n] for n in NUMBERS], strict=True)),
        [{"image": p, "label": NAMES[n]} for p, n in zip(PICTURES, NUMBERS, strict=True)],
        [(Image.fromarray(p), NAMES[n]) for p, n in zip(PICTURES, NUMBERS, strict=True)],
        [(p.transpose(2, 0, 1), NAMES[n]) for p, n in zip(PICTURES, NUMBERS, strict=True)],
    ],
    ids=["map-style", "tuples", "tables", "pil", "channels-first"],
)
def test_pictures_and_labels_are_what_they_were(dataset: Any, tmp_path: Path) -> None:
    frame = stored(dataset, tmp_path / "run")
    assert frame["id"].to_list() == [str(n) for n in range(6)]
    assert frame["label"].to_list() == [NAMES[n] for n in NUMBERS]
    for path, given in zip(frame["path"], PICTURES, strict=True):
        np.testing.assert_array_equal(pixels(path), given)


def test_arrays_have_their_labels_beside_them(tmp_path: Path) -> None:
    array = np.stack(PICTURES)
    frame = stored(array, tmp_path / "run", label=np.array(NUMBERS))
    assert frame["label"].to_list() == [str(n) for n in NUMBERS]
    unlabelled = stored(array / 255.0, tmp_path / "other")
    assert unlabelled.columns == ["id", "path"]
    np.testing.assert_array_equal(pixels(unlabelled["path"][3]), PICTURES[3])


@pytest.mark.slow
def test_torch_loaders_are_taken_apart(tmp_path: Path) -> None:
    import torch

    tensors = torch.tensor(np.stack(PICTURES).transpose(0, 3, 1, 2)) / 255
    data = torch.utils.data.TensorDataset(tensors, torch.tensor(NUMBERS))
    loader = torch.utils.data.DataLoader(data, batch_size=4)
    for dataset in (data, loader):
        frame = stored(dataset, tmp_path / type(dataset).__name__)
        assert frame["label"].to_list() == [str(n) for n in NUMBERS]
        np.testing.assert_array_equal(pixels(frame["path"][5]), PICTURES[5])


@pytest.mark.slow
def test_tf_data_is_read_in_batches_or_not(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    words = [NAMES[n] for n in NUMBERS]
    data = tf.data.Dataset.from_tensor_slices((np.stack(PICTURES), words))
    for name, dataset in (("items", data), ("batches", data.batch(4))):
        frame = stored(dataset, tmp_path / name)
        assert frame["label"].to_list() == words
        np.testing.assert_array_equal(pixels(frame["path"][5]), PICTURES[5])


def test_hugging_face_pictures_stay_encoded(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    tree = make_tree(tmp_path / "images")
    files = sorted(tree.rglob("*.jpg"))[:4]
    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=NAMES)}
    )
    table = {"image": [f.read_bytes() for f in files], "label": [0, 1, 2, 0]}
    frame = stored(datasets.Dataset.from_dict(table, features=features), tmp_path / "run")
    assert frame["label"].to_list() == ["cat", "dog", "owl", "cat"]
    assert Path(frame["path"][0]).read_bytes() == files[0].read_bytes()


def test_folders_by_class_are_read_as_files(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "images")
    files = [str(f) for f in sorted(tree.rglob("*.jpg"))]

    class ByClass:
        classes = NAMES
        samples: ClassVar = [(f, n % 3) for n, f in enumerate(files)]

    frame = stored(ByClass(), tmp_path / "run")
    assert frame["path"].to_list() == files
    assert frame["label"].to_list()[:4] == ["cat", "dog", "owl", "cat"]


def test_several_datasets_are_splits(tmp_path: Path) -> None:
    frame = stored({"train": PICTURES[:4], "test": PICTURES[4:]}, tmp_path / "run")
    assert frame["split"].to_list() == ["train"] * 4 + ["test"] * 2
    assert frame["id"][4] == "test/0"


def test_an_item_that_raises_is_a_file_that_says_so(tmp_path: Path) -> None:
    class Broken(MapStyle):
        def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
            if index == 2:
                raise OSError("truncated")
            return super().__getitem__(index)

    frame = stored(Broken(), tmp_path / "run")
    assert frame.height == 6
    assert Path(frame["path"][2]).read_text() == "item 2 raised OSError: truncated\n"
    assert frame["label"][2] is None


def test_a_label_may_be_a_column_a_place_or_a_function(tmp_path: Path) -> None:
    items = [(p, 7, {"kind": "x"}) for p in PICTURES]
    frame = stored(items, tmp_path / "a", label=lambda item: item[2]["kind"])
    assert set(frame["label"]) == {"x"}
    tables = [{"img": p, "kind": "y"} for p in PICTURES]
    assert set(stored(tables, tmp_path / "b", label="kind")["label"]) == {"y"}
    assert "label" not in stored(items, tmp_path / "c", label=2).columns  # an object is no class


class NoLength(MapStyle):
    def __len__(self) -> int:
        raise RuntimeError("not counted yet")


class NoIterator:
    def __iter__(self) -> Iterator[Any]:
        raise KeyError("first")


def breaking_stream() -> Iterator[Any]:
    yield PICTURES[0]
    raise ValueError("worker 3\nran out of luck")


@pytest.mark.parametrize(
    ("dataset", "options", "words"),
    [
        ([np.zeros((5, 6, 7))], {}, "channels"),
        ([PICTURES[0] / 127.5 - 1], {}, "normalised"),
        ([np.full((8, 8), np.nan)], {}, "normalised"),
        ([{"id": 1}], {}, "no image"),
        ([object()], {}, "no image|shape"),
        (np.zeros((0, 8, 8)), {}, "no items"),
        ([PICTURES[0]], {"label": ["a", "b"]}, "2 values"),
        ([{"image": PICTURES[0]}], {"label": "kind"}, "no column 'kind'"),
        ([(PICTURES[0],)], {"label": 3}, "no label at 3"),
        (NoLength(), {}, "__len__"),
        (NoIterator(), {}, "KeyError"),
        (breaking_stream(), {}, r"ValueError after 1 batches or items .ran out of luck"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_stored_is_a_sentence(
    dataset: Any, options: Any, words: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=words):
        store_dataset(dataset, tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_paths_are_no_datasets() -> None:
    assert not any(map(is_dataset, ("a", Path("a"), ["a", "b"], {"train": "a"}, 7, [], {})))
    assert all(map(is_dataset, (MapStyle(), PICTURES, {"train": PICTURES}, iter(PICTURES))))


def test_a_stream_without_length_is_read_to_its_end(tmp_path: Path) -> None:
    assert stored((p for p in PICTURES), tmp_path / "run").height == 6


SAME: dict[str, Any] = {
    "config": Config(match={"synthetic_sources": 0}), "jobs": 1, "progress": False,
    "checks": ["DUP", "IMG001", "IMG005", "SPLIT001", "LABEL"],
}  # fmt: skip


def found_in(source: Any, run: Path) -> list[tuple[str, list[int]]]:
    """Codes with their pictures, counted in an order that every form has."""
    made = audit.scan(source, run, **SAME)
    order = {i: n for n, i in enumerate(made.images.sort("split", "label", "phash")["id"])}
    members = [sorted(order[i] for i in ids) for ids in made.findings["ids"]]
    return sorted(zip(made.findings["code"], members, strict=True))


@pytest.mark.slow
def test_one_dataset_has_the_same_findings_in_every_form(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "images")
    shutil.copy(root / "train/cat/0.jpg", root / "test/cat/1.jpg")  # a leak
    shutil.copy(root / "train/cat/1.jpg", root / "train/cat/2.jpg")
    for name, pixels_of in (("0", picture(91) // 25), ("1", picture(92, 32, 24))):
        (root / f"train/dog/{name}.jpg").unlink()
        Image.fromarray(pixels_of).save(root / f"train/dog/{name}.png")  # dark; of another size
    files = sorted(f for f in root.rglob("*") if f.is_file())
    rows = [(str(f), f.parent.name, f.parent.parent.name) for f in files]
    table = pl.DataFrame(rows, schema=["path", "label", "split"], orient="row")
    table.write_parquet(tmp_path / "manifest.parquet")
    objects = {
        split: [(pixels(path), label) for path, label, own in rows if own == split]
        for split in ("train", "test")
    }
    in_folder = found_in(root, tmp_path / "folder")
    assert {"DUP001", "SPLIT001", "IMG001", "IMG005"} <= {code for code, _ in in_folder}
    assert found_in(tmp_path / "manifest.parquet", tmp_path / "listed") == in_folder
    assert found_in(objects, tmp_path / "objects") == in_folder


@pytest.mark.slow
def test_a_loader_is_audited_as_it_comes_after_augmentation(tmp_path: Path) -> None:
    import torch

    class Augmented(torch.utils.data.Dataset):  # type: ignore[name-defined, misc]
        def __len__(self) -> int:
            return 6

        def __getitem__(self, index: int) -> Any:
            return torch.from_numpy(PICTURES[index][:, ::-1].copy()), NUMBERS[index]

    loader = torch.utils.data.DataLoader
    run = audit.scan(loader(Augmented(), batch_size=4), tmp_path / "a", **SAME)
    np.testing.assert_array_equal(pixels(run.images["path"][5]), PICTURES[5][:, ::-1])
    report = " ".join(str(run.report()).split())
    assert "one epoch of a loader, after its transforms: 6 of the 6 items" in report
    assert "the number of an image is its index in the dataset" in report
    named = stored(loader(Augmented(), batch_size=4), tmp_path / "n", label=list("abcdef"))
    assert named["label"].to_list() == list("abcdef")
    mixed = {
        "shuffled": loader(Augmented(), batch_size=4, shuffle=True, drop_last=True),
        "own": loader(Augmented(), batch_sampler=[[5, 0], [3]]),
    }
    store = store_dataset(mixed, tmp_path / "b")
    shuffled, own = describe_epochs(mixed, store)
    assert "of shuffled are one epoch" in shuffled
    assert "4 of the 6 items" in shuffled
    assert "3 of the 6 items" in own
    assert "not an index of the dataset" in shuffled
    assert "not an index of the dataset" in own


def test_a_second_scan_reads_what_is_new_and_forgets_what_is_gone(tmp_path: Path) -> None:
    options: dict[str, Any] = {"checks": ["FILE"], "jobs": 1, "progress": False}
    place = tmp_path / "run"
    audit.scan(PICTURES, place, **options)
    kept = {f: f.stat().st_mtime_ns for f in (place / "pictures").rglob("*.png")}
    run = audit.scan(PICTURES[1:], place, **options)
    assert run.images.height == 5
    left = {f: f.stat().st_mtime_ns for f in (place / "pictures").rglob("*.png")}
    assert len(left) == 5
    assert left.items() <= kept.items()
    assert "Python object" in str(run.report())


@pytest.mark.parametrize(
    "item",
    [np.zeros((5, 6, 7)), np.array([[{}]]), object(), None, PICTURES[0] / 127.5 - 1,
     np.zeros((0, 4, 3), np.uint8), "\udcff.jpg"],
    ids=["shape", "objects", "no array", "none", "normalised", "empty", "surrogate"],
)  # fmt: skip
def test_an_item_that_is_no_picture_is_one_file_and_the_rest_goes_on(
    item: Any, tmp_path: Path
) -> None:
    class Odd(MapStyle):
        def __getitem__(self, index: int) -> Any:
            return (item, 0) if index == 2 else super().__getitem__(index)

    run = audit.scan(Odd(), tmp_path / "run", checks=["FILE001"])
    found = run.images.sort("id")
    assert found["status"].to_list() == ["ok", "ok", "unreadable", "ok", "ok", "ok"]
    assert run.findings.filter(pl.col("code") == "FILE001").height == 1


def test_names_that_this_program_gave_are_not_accused(tmp_path: Path) -> None:
    files = sorted(make_tree(tmp_path / "images").rglob("*.jpg"))[:3]
    for dataset in ([f.read_bytes() for f in files], PICTURES[:3]):
        run = audit.scan(dataset, tmp_path / f"run{len(dataset[0])}", checks=["FILE004"])
        assert run.findings.filter(pl.col("code") == "FILE004").is_empty()


def test_what_lies_behind_a_link_is_not_removed(tmp_path: Path) -> None:
    manifest = store_dataset(PICTURES[:2], tmp_path / "run")
    (tmp_path / "others").mkdir()
    for folder in (tmp_path / "others", manifest.parent / "ab"):
        folder.mkdir(exist_ok=True)
        (folder / f"{'0' * 30}.png").write_bytes(b"x")
        (folder / "mine.png").write_bytes(b"x")
    (manifest.parent / "link").symlink_to(tmp_path / "others")
    remove_unlisted(manifest)
    assert (tmp_path / "others" / f"{'0' * 30}.png").exists()
    assert [path.name for path in (manifest.parent / "ab").iterdir()] == ["mine.png"]
