"""New splits: units are never torn, classes keep their shares, the seed decides."""

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image

import audit
from audit.errors import UsageError
from audit.exports.new_splits import (
    SplitRequest,
    assign_splits,
    assign_without_tearing,
    evenness,
    join_units,
    parse_shares,
)
from audit.exports.planning import plan_dataset
from audit.exports.stratified import as_matrix, stratify
from tests.audit.annotations.datasets import coco, coco_tree
from tests.audit.exports.test_planning import read_boxes, save, voc, voc_beside, yolo
from tests.audit.run.scanned import scan_tree
from tests.conftest import picture

SHARES = {"train": 0.8, "val": 0.1, "test": 0.1}


def samples(n: int = 400, splits: list[str | None] | None = None) -> pl.DataFrame:
    """Two classes, one of them rare; every tenth picture twice, patients of four pictures."""
    return pl.DataFrame(
        {
            "id": [f"{i}.jpg" for i in range(n)],
            "split": splits or [None] * n,
            "label": ["rare" if i % 10 == 3 else "common" for i in range(n)],
            "group": [f"patient {i // 4}" if i < n // 2 else None for i in range(n)],
            "unit": [f"image {i - i % 10 if i % 10 == 9 else i}" for i in range(n)],
            "content_hash": [f"hash {i}" for i in range(n)],
            "pixel_hash": [f"pixels {i}" for i in range(n)],
        },
        schema_overrides={"split": pl.String},
    )


PAIRS = [("pixels 300", "pixels 311"), ("pixels 311", "pixels 322"), ("pixels 0", "pixels 399")]


def test_units_stay_whole_and_classes_keep_their_shares() -> None:
    rows, facts = assign_splits(samples(), SplitRequest(SHARES, seed=1), PAIRS)
    units = rows.with_columns(pl.Series("one", join_units(rows, PAIRS)))
    assert units.group_by("one").agg(pl.col("split").n_unique())["split"].max() == 1
    by_id = dict(rows.select("id", "split").iter_rows())
    assert by_id["300.jpg"] == by_id["311.jpg"] == by_id["322.jpg"]
    assert by_id["0.jpg"] == by_id["399.jpg"] == by_id["1.jpg"] == by_id["390.jpg"]
    for label, n in (("rare", 40), ("common", 360)):
        counts = Counter(rows.filter(pl.col("label") == label)["split"])
        for split, share in SHARES.items():
            assert abs(counts[split] - share * n) <= 4, (label, split, counts)
    assert facts["torn"] == 0


def test_what_splits_would_tear_is_joined_until_nothing_is_torn() -> None:
    clips = [[f"{i + 7 * k}.jpg" for k in range(6)] for i in (200, 201, 250)]

    def torn(made: pl.DataFrame) -> list[list[str]]:
        by_id = dict(made.select("id", "split").iter_rows())
        return [clip for clip in clips if len({by_id[name] for name in clip}) > 1]

    assert torn(assign_splits(samples(), SplitRequest(SHARES, seed=1), PAIRS)[0])
    made, facts = assign_without_tearing(samples(), SplitRequest(SHARES, seed=1), PAIRS, torn)
    assert torn(made) == []
    assert 1 <= facts["sequences"] <= 3
    frame = samples(splits=["train", "test", *[None] * 398])  # what given splits tear ends it
    request = SplitRequest(SHARES)
    _, facts = assign_without_tearing(frame, request, PAIRS, lambda made: [["0.jpg", "1.jpg"]])
    assert (facts["sequences"], facts["torn"]) == (1, 1)


@pytest.mark.slow
def test_numbered_frames_of_a_scene_go_into_one_split(
    sample_data_run: Path, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(sample_data_run, tmp_path / "run"))
    for seed in range(3):
        plan = plan_dataset(run, splits=SplitRequest(SHARES, seed, resplit=True))
        assert len({file.split for file in plan.files if "clip07_" in file.id}) == 1


def test_the_seed_decides_and_nothing_else() -> None:
    def splits(seed: int, frame: pl.DataFrame) -> dict[str, str]:
        return dict(assign_splits(frame, SplitRequest(SHARES, seed))[0]["id", "split"].iter_rows())

    assert splits(1, samples()) == splits(1, samples())
    assert splits(1, samples()) != splits(2, samples())


def test_given_splits_stay_and_their_units_follow() -> None:
    given: list[str | None] = [None] * 400
    given[0], given[4], given[5] = "holdout", "train", "test"
    frame = samples(splits=given)
    rows, facts = assign_splits(frame, SplitRequest(SHARES), PAIRS)
    by_id = dict(rows.select("id", "split").iter_rows())
    assert by_id["0.jpg"] == by_id["1.jpg"] == by_id["399.jpg"] == "holdout"
    assert (by_id["4.jpg"], by_id["5.jpg"]) == ("train", "test")
    assert facts["torn"] == 1
    with pytest.raises(UsageError, match="--resplit"):
        assign_splits(samples(splits=["train"] * 400), SplitRequest(SHARES))
    again, facts = assign_splits(frame, SplitRequest(SHARES, resplit=True), PAIRS)
    assert set(again["split"]) == set(SHARES)
    assert facts["torn"] == 0


def test_classes_without_a_sample_in_a_split_are_named() -> None:
    frame = samples(12)  # two samples of the rare class, in one unit
    made, facts = assign_splits(frame, SplitRequest({"train": 0.5, "val": 0.5}))
    absent = {s for s in ("train", "val") if s not in set(made.filter(label="rare")["split"])}
    assert facts["missing"] == {split: ["rare"] for split in absent}
    assert absent
    held = {id_: {("objects", "car"): 2} for id_ in frame["id"][:1]}
    request = SplitRequest({"train": 0.5, "val": 0.5})
    missing = assign_splits(frame, request, held=held)[1]["missing"]
    assert list(missing.values()) == [["car"]]


@pytest.mark.parametrize("text", ["", "train", "train=2", "train=.5,val=.4", "a=.5,a=.5", "a=x"])
def test_shares_that_cannot_be(text: str) -> None:
    with pytest.raises(UsageError):
        parse_shares(text)
    assert parse_shares("train=.8, val=.1,test=0.1") == SHARES


def by_class(root: Path) -> None:
    for number, name in enumerate(["cat/1", "cat/2", "dog/1", "dog/2", "owl/1"]):
        save(root / f"{name}.png", number)


def flat(root: Path) -> None:
    for number in range(4):
        save(root / f"{number}.png", number)


def undivided(make: Callable[[Path], None]) -> Callable[[Path], None]:
    """The dataset of `make` in one folder of images, without a split."""

    def made(root: Path) -> None:
        make(root)
        for split in ("train", "val"):
            for path in sorted(root.rglob(f"{split}/*")):
                path.rename(path.parent.parent / f"{split}-{path.name}")
            for folder in root.rglob(split):
                folder.rmdir()
        for file in root.glob("data.yaml"):
            file.write_text("train: images\nnc: 2\nnames: [cat, dog]\n")

    return made


def coco_in_one_file(root: Path) -> None:
    coco_tree(root, coco(4, [(i + 1, 5, 6, 20, 10 + i) for i in range(4)]), 4)
    for number in range(4):
        Image.fromarray(picture(number, 64, 48)).save(root / f"images/{number}.jpg")


def listed(root: Path) -> None:
    by_class(root)
    rows = [f"{p.relative_to(root)},{p.parent.name}" for p in sorted(root.rglob("*.png"))]
    (root / "table.csv").write_text("\n".join(["path,label", *rows]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "make", [by_class, flat, undivided(yolo), voc_beside, voc, coco_in_one_file, listed]
)
def test_a_dataset_with_new_splits_has_its_labels_and_boxes(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    make(tmp_path / "data")
    table = tmp_path / "data/table.csv"
    scan_tree(table if table.exists() else tmp_path / "data", tmp_path / "run", checks=("FILE",))
    run = audit.open(tmp_path / "run")
    plan = run.plan(tmp_path / "plan.json", splits={"train": 0.5, "val": 0.5}, resplit=True)
    run.apply(plan, tmp_path / "new")
    scan_tree(tmp_path / "new", tmp_path / "again", checks=("FILE",))
    made = audit.open(tmp_path / "again").images
    expected = [(file.content_hash, file.split, file.label) for file in plan.samples]
    assert sorted(made.select("content_hash", "split", "label").iter_rows()) == sorted(expected)
    boxes = [
        {data: n for data, (_, n) in read_boxes(tmp_path / d).items()} for d in ("data", "new")
    ]
    assert boxes[0] == boxes[1]
    for file in plan.samples:
        folders = [name for name in (file.split, file.label) if name]
        assert file.target.split("/")[: len(folders)] == folders


# ---- units of many classes dealt out ----


def pictures(n: int, classes: int, seed: int) -> list[dict[tuple[str, str], int]]:
    rng = np.random.default_rng(seed)
    share = 0.6 / np.arange(1, classes + 1) ** 0.7
    return [
        {("", ""): 1}
        | {("objects", f"{k:02d}"): 1 + int(rng.poisson(2)) for k in np.flatnonzero(drawn < share)}
        for drawn in rng.random((n, classes))
    ]


@pytest.mark.parametrize(("n", "classes"), [(60, 3), (400, 12), (900, 30)])
def test_every_class_is_within_one_picture_of_its_share(n: int, classes: int) -> None:
    matrix, names = as_matrix(pictures(n, classes, n))
    shares = np.array([0.7, 0.2, 0.1])
    split, off = stratify(matrix, shares, np.full(n, -1), 0)
    assert names[0] == ("", "")
    for s, share in enumerate(shares):
        mine = np.asarray(matrix[np.flatnonzero(split == s)].sum(0)).ravel()
        lack = share * np.asarray(matrix.sum(0)).ravel() - mine
        most = np.asarray(matrix.max(0).todense()).ravel()
        assert off[s] == pytest.approx(lack / most)
        assert np.abs(off[s]).max() <= 1
        assert abs(off[s, 0]) <= 0.5
    assert (stratify(matrix, shares, np.full(n, -1), 0)[0] == split).all()
    assert (stratify(matrix, shares, np.full(n, -1), 1)[0] != split).any()


def test_units_that_have_a_split_keep_it_and_count() -> None:
    matrix, _ = as_matrix(pictures(200, 6, 5))
    fixed = np.full(200, -1)
    fixed[:40], fixed[40:50] = 1, -2
    split, off = stratify(matrix, np.array([0.5, 0.5]), fixed, 0)
    assert (split[:50] == fixed[:50]).all()
    assert set(split[50:].tolist()) == {0, 1}
    assert np.abs(off).max() <= 1


def test_samples_of_many_classes_stay_with_their_unit_and_the_facts_say_how_even() -> None:
    frame = samples()
    held = {
        name: row | {("pictures", label): 1}
        for name, label, row in zip(frame["id"], frame["label"], pictures(400, 8, 1), strict=True)
    }
    for row in held.values():
        row.pop(("", ""))
    made, facts = assign_splits(frame, SplitRequest(SHARES, seed=1), held=held)
    whole = made.group_by("group").agg(pl.col("split").n_unique()).drop_nulls("group")
    assert whole["split"].max() == 1
    assert facts["torn"] == 0
    assert {c["of"] for c in facts["classes"]} == {"pictures", "objects"}
    assert facts["classes"][0]["off_by_pictures"] <= 1
    assert evenness(facts).startswith("10 of 10 classes have their share")
    counts = Counter(made["split"])
    assert all(abs(counts[s] - 400 * share) <= 4 for s, share in SHARES.items())
    given = samples(splits=["holdout", "val", *[None] * 398])
    kept = assign_splits(given, SplitRequest(SHARES), held=held)[0]["split"].to_list()
    assert (kept[0], kept[1], kept[2]) == ("holdout", "val", kept[3])
    assert evenness({}) == ""
