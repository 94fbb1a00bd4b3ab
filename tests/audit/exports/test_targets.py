"""Targets: paths stay where they can, follow decisions, are different, and never lead out."""

from __future__ import annotations

import pytest

from audit.exports.planning import Placed, case_clash, choose_targets, safe_path


def place(path: str, before: str | None, kind: str | None, **now: str) -> Placed:
    return Placed(path, before, kind, now.get("split", before), now.get("label", kind))


def test_folders_follow_what_was_decided() -> None:
    samples = [
        place("data/training/Cat/a/1.jpg", "train", "Cat"),
        place("data/training/Cat/2.jpg", "train", "Cat", label="dog"),
        place("data/valid/Cat/3.jpg", "val", "Cat", split="train"),
        place("data/valid/Cat/4.jpg", "val", "Cat", split="test", label="owl"),
    ]
    assert choose_targets(samples, by_folders=True) == (
        ["data/training/Cat/a/1.jpg", "data/training/dog/2.jpg", "data/training/Cat/3.jpg",
         "data/test/owl/4.jpg"],
        "keep",
    )  # fmt: skip


def test_what_folders_cannot_say_is_filed() -> None:
    samples = [place("a/1.jpg", None, None, label="cat"), place("b/1.jpg", None, None, label="cat")]
    assert choose_targets(samples, by_folders=True) == (["cat/1.jpg", "cat/1~2.jpg"], "folders")
    assert choose_targets([place("x/1.jpg", "train", "a/b")], by_folders=False) == (
        ["train/a%2Fb/1.jpg"], "folders",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("files", "by_folders", "expected"),
    [
        ([("cat/1.jpg", None, "cat")], True, ["train/cat/1.jpg"]),
        ([("cat/a/1.jpg", None, "cat"), ("cat/b/1.jpg", None, "cat")], True,
         ["train/cat/a/1.jpg", "train/cat/b/1.jpg"]),
        ([("1.jpg", None, None)], True, ["train/1.jpg"]),
        ([("images/1.jpg", None, None)], True, ["train/images/1.jpg"]),
        ([("valid/cat/1.jpg", "val", "cat")], True, ["train/cat/1.jpg"]),
        ([("val/cat/1.jpg", "val", "cat"), ("more/cat/1.jpg", None, "cat")], True,
         ["train/cat/1.jpg", "train/cat/more/1.jpg"]),
        ([("cat/a/1.jpg", None, "cat"), ("cat/b/1.jpg", None, "cat")], False,
         ["train/cat/a/1.jpg", "train/cat/b/1.jpg"]),
        ([("a/1.jpg", None, "cat"), ("b/1.jpg", None, "cat")], False,
         ["train/cat/1.jpg", "train/cat/1~2.jpg"]),
        ([("a/1.jpg", None, None), ("b/1.jpg", None, None)], False,
         ["train/1.jpg", "train/1~2.jpg"]),
    ],
)  # fmt: skip
def test_a_new_split_keeps_the_other_folders(
    files: list[tuple[str, str | None, str | None]], by_folders: bool, expected: list[str]
) -> None:
    samples = [place(*file, split="train") for file in files]
    assert choose_targets(samples, by_folders=by_folders)[0] == expected


def test_a_repeat_takes_no_name_that_another_has() -> None:
    samples = [place(path, None, None) for path in ("a.jpg", "a.jpg", "a~2.jpg", "a.jpg/b")]
    targets, _ = choose_targets(samples, by_folders=True)
    assert targets[:3] == ["a.jpg", "a~3.jpg", "a~2.jpg"]
    assert len(set(targets)) == 4
    assert not any(t.startswith("a.jpg/") for t in targets)


@pytest.mark.parametrize(
    ("given", "safe"),
    [
        ("../../etc/passwd", "etc/passwd"),
        ("/abs//x.jpg", "abs/x.jpg"),
        ("a\nb\x1b[31m.jpg", "a%0Ab%1B[31m.jpg"),
        ("caf\udce9.jpg", "caf%E9.jpg"),
        (".preflight/plan.json", "_.preflight/plan.json"),
        ("..", "unnamed"),
    ],
)
def test_hostile_names(given: str, safe: str) -> None:
    assert safe_path(given) == safe


def test_long_names_keep_their_extension() -> None:
    name = safe_path("é" * 200 + ".jpg")
    assert len(name.encode()) <= 255
    assert name.endswith(".jpg")


def test_names_that_differ_by_case_or_composition() -> None:
    assert case_clash(["Cat/1.jpg", "dog/1.jpg"]) is None
    assert case_clash(["Cat/1.jpg", "cat/2.jpg"]) == ("Cat", "cat")
    assert case_clash(["caf\u00e9.jpg", "cafe\u0301.jpg"]) is not None
