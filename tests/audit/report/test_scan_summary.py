"""What a scan prints last and its report show of a scanned folder: examples and notes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from PIL import Image

from audit.records import Severity
from audit.report import Report, collect_report, to_text
from audit.report.screen import to_screen
from audit.results import findings as browse
from audit.results.results import open_results
from audit.scanning import scanning
from audit.sources import open_source
from dataset_preflight.foundation.text import agreed
from tests.audit.report.test_screen import finding, report_of, rows
from tests.conftest import make_tree, picture


def scanned(root: Path, run: Path, codes: list[str]) -> Report:
    scanning.scan(open_source([str(root)]), run, jobs=1, checks=codes)
    return collect_report(run)


@pytest.mark.parametrize("other", ["dev", "val", "test"])
def test_the_example_of_a_leak_shows_an_image_of_each_split(tmp_path: Path, other: str) -> None:
    root = make_tree(tmp_path / "data")
    for split in {path.name for path in root.iterdir() if path.is_dir()} - {"train"}:
        shutil.move(root / split, root / other)
    for name in ("train/cat/a.jpg", "train/cat/b.jpg", f"{other}/cat/c.jpg"):
        shutil.copy(root / "train/cat/0.jpg", root / name)
    report = scanned(root, tmp_path / "run", ["SPLIT001"])
    (leaked,) = report.first
    both = {f"{other}/cat/c.jpg", "train/cat/0.jpg"}
    assert set(leaked.example) == both
    assert leaked.example_text in to_screen(report, width=200)
    (check,) = report.checks
    assert {member.id for member in check.worst[0].members[:2]} == both
    assert all(name in to_text(report, width=200) for name in both)
    results = open_results(tmp_path / "run")
    (cards,) = browse.members_of(results, [leaked.fingerprint], most=2).values()
    assert {card.id for card in cards} == both


def detection_set(root: Path) -> Path:
    """Write six images in train and val, one of them in both, each with two boxes of COCO."""
    (root / "annotations").mkdir(parents=True)
    for split, seeds in (("train", range(6)), ("val", (0, 10, 11, 12, 13, 14))):
        (root / "images" / split).mkdir(parents=True)
        images, boxes = [], []
        for number, seed in enumerate(seeds, 1):
            name = f"{split}{number}.jpg"
            Image.fromarray(picture(seed, 96, 72)).save(root / "images" / split / name, quality=90)
            images.append({"id": number, "file_name": name, "width": 96, "height": 72})
            boxes += [
                {"id": 2 * number + k, "image_id": number, "category_id": k + 1, "iscrowd": 0,
                 "bbox": [8 + 20 * k, 9, 30, 31], "area": 930}
                for k in (0, 1)
            ]  # fmt: skip
        document = {"images": images, "annotations": boxes,
                    "categories": [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}]}  # fmt: skip
        (root / f"annotations/instances_{split}.json").write_text(json.dumps(document))
    return root


def test_a_leak_of_a_detection_dataset_is_about_map(tmp_path: Path) -> None:
    root = detection_set(tmp_path / "data")
    shutil.copy(root / "images/val/val2.jpg", root / "images/val/val3.jpg")
    report = scanned(root, tmp_path / "run", ["SPLIT001", "DUP001"])
    (leaked, *_) = report.first
    assert leaked.message.startswith(
        "1 image of val is also in training data (1 duplicate group): mAP on val is up to about "
    )
    told = [cost.message for cost in report.costs]
    assert {cost.metric for cost in report.costs} == {"mAP"}
    assert "1 of 6 images of val" in told[0]
    assert "is also in train: an mAP on val" in told[0]
    assert "Every CI of an mAP is" in told[1]
    assert "accuracy" not in " ".join([leaked.message, *told])


def test_a_truncated_file_says_what_is_missing(tmp_path: Path) -> None:
    folder = tmp_path / "data/cat"
    folder.mkdir(parents=True)
    for name, cut in (("half.jpg", 0.5), ("end.jpg", 0.985)):
        Image.fromarray(picture(3, 256, 192)).save(folder / name, quality=90)
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(whole[: int(len(whole) * cut)])
    report = scanned(tmp_path / "data", tmp_path / "run", ["FILE002"])
    (check,) = report.checks
    said = {e.members[0].id: e.finding.message for e in check.worst}
    assert (
        "% of its rows were decoded before the error, the rest is missing" in said["cat/half.jpg"]
    )
    assert "its last bytes are missing, so its lowest rows may be wrong" in said["cat/end.jpg"]
    assert not any("100%" in message for message in said.values())


def test_a_count_of_1_agrees_with_its_noun(tmp_path: Path) -> None:
    root = tmp_path / "data/train/cat"
    root.mkdir(parents=True)
    Image.fromarray(picture(3)).save(root / "a.jpg")
    report = scanned(tmp_path / "data", tmp_path / "run", ["FILE", "DUP", "LABEL", "DIST", "IMG"])
    said = [check.completeness for check in report.checks]
    assert [agreed(sentence) for sentence in said] == said
    assert "The 1 labelled sample was counted, split by split." in said


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("1 files are here.", "1 file is here."),
        ("1 of 12 boxes have the flag.", "1 of 12 boxes has the flag."),
        ("The keypoints of 1 objects were checked.", "The keypoints of 1 object were checked."),
        ("2 files and 1 images are here.", "2 files and 1 image are here."),
        ("All 1 decodable images were compared.", "The 1 decodable image was compared."),
        ("21 files, 0.1 points, 1 classes", "21 files, 0.1 points, 1 class"),
        ("in part 1 images.json and 1 images/x.jpg", "in part 1 images.json and 1 images/x.jpg"),
    ],
)
def test_agreement(text: str, right: str) -> None:
    assert agreed(text) == right == agreed(right)


def test_findings_of_custom_checks_are_named_whatever_else_is_found(tmp_path: Path) -> None:
    codes = ("SPLIT002", "IMG001", "IMG003", "IMG005", "FILE004", "FILE006", "DUP003", "BOX001",
             "LABEL006", "DIST004", "FILE002")  # fmt: skip
    found = [finding(code, Severity.WARNING, f"train/{i}.jpg") for i, code in enumerate(codes)]
    found += [finding("ZZZ001", Severity.INFO, f"train/{i}.jpg") for i in range(3)]
    found += [finding("ACME002", Severity.INFO, "train/3.jpg")]
    screen = to_screen(report_of(tmp_path, rows("train", 100), found), width=200)
    (line,) = (line for line in screen.splitlines() if line.startswith("Custom checks: "))
    assert "ACME002 check ACME002 1, ZZZ001 check ZZZ001 3" in line
    others = next(line for line in screen.splitlines() if line.startswith("Other findings: "))
    assert "info" not in others
    plain = to_screen(report_of(tmp_path / "plain", rows("train", 100), found[:11]))
    assert "Custom checks" not in plain


@pytest.mark.parametrize(
    "lists",
    [
        ("data/train_labels.csv", "data/test_labels.csv"),
        ("ImageSets/Main/train.txt",),
        ("splits/train.tsv", "splits/val.tsv"),
    ],
)
def test_split_lists_that_no_reader_used_are_named(tmp_path: Path, lists: tuple[str, ...]) -> None:
    root = tmp_path / "data"
    for number, name in enumerate(("images/a.jpg", "images/b.jpg")):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture(number)).save(root / name)
    for name in lists:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("filename,xmin,ymin,xmax,ymax\nother.jpg,1,1,5,5\n")
    report = scanned(root, tmp_path / "run", ["FILE001"])
    (note,) = (note for note in report.dataset.notes if "Split lists not used" in note)
    assert all(name in note for name in lists)
    assert "columns path and split" in note
    for shown in (to_screen(report, width=300), to_text(report, width=300)):
        assert note in shown
    # what it advises works
    (root / "images/splits.csv").write_text("path,split\na.jpg,train\nb.jpg,test\n")
    report = scanned(root / "images/splits.csv", tmp_path / "again", ["FILE001"])
    assert set(report.dataset.by_split()) == {"train", "test"}
    assert "not used" not in to_text(report)


@pytest.mark.parametrize("told", ["folders", "lists", "no lists"])
def test_no_split_list_is_named_where_all_were_used(tmp_path: Path, told: str) -> None:
    root, texts = tmp_path / "data", {"lists": ("a\n", "b\n"), "folders": ("x", "x")}
    under = ("train", "test") if told == "folders" else ("images", "images")
    for number, folder in enumerate(under):
        (root / folder).mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture(number)).save(root / folder / f"{'ab'[number]}.jpg")
    for name, text in zip(("train.txt", "test.txt"), texts.get(told, ()), strict=False):
        (root / name).write_text(text)
    (root / "notes.txt").write_text("none")
    report = scanned(root, tmp_path / "run", ["FILE001"])
    assert (set(report.dataset.by_split()) == {"train", "test"}) is (told != "no lists")
    assert "not used" not in to_screen(report, width=300) + to_text(report, width=300)
