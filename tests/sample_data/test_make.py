"""The generator: deterministic, small, laid out as promised, and its key tells what is there."""

from __future__ import annotations

import csv
import hashlib
import itertools
from collections import Counter
from pathlib import Path

import pytest

from tests.sample_data.conftest import SAMPLE_DATA, make

pytestmark = pytest.mark.slow

SPLITS = ("train", "val", "test")
CLASSES = {"apple", "boat", "bridge", "fish", "flower", "house", "leaf", "tree"}
ALL_CODES = {
    "SPLIT001", "SPLIT002", "DUP001", "DUP002", "DUP003", *(f"FILE00{n}" for n in range(1, 8)),
    *(f"LABEL00{n}" for n in range(1, 7)), *(f"DIST00{n}" for n in range(1, 5)),
    *(f"IMG00{n}" for n in range(1, 9)), *(f"BOX00{n}" for n in range(1, 6)),
}  # fmt: skip


@pytest.fixture(scope="module")
def key(fresh):
    return table(fresh / "answer_key.csv")


def table(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def made(root):
    """Every generated file below root, by relative path, with a digest of its bytes."""
    folders = [p for name in (*SPLITS, "annotations") for p in (root / name).rglob("*")]
    tables = [root / name for name in ("manifest.csv", "answer_key.csv", "answer_key_manifest.csv")]
    return {
        p.relative_to(root).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in (*folders, *tables)
        if p.is_file()
    }


def test_the_dataset_in_the_repository_is_seed_7_and_a_second_run_restores_it(fresh):
    assert made(SAMPLE_DATA) == made(fresh)


def test_what_it_did_not_make_is_spared(fresh):
    assert (fresh / "sessions" / "kept.json").read_text() == "{}"


def test_folders_of_somebody_else_are_left_alone(tmp_path):
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "mine.jpg").write_bytes(b"mine")
    done = make("--seed", 7, "--out", tmp_path)
    assert done.returncode == 1
    assert "choose another" in done.stderr
    assert (tmp_path / "train" / "mine.jpg").read_bytes() == b"mine"


def test_size_and_layout(fresh):
    files = made(fresh)
    assert sum((fresh / name).stat().st_size for name in files) <= 4_000_000
    pictures = [p for p in files if p.split("/")[0] in SPLITS and not p.endswith(".gitkeep")]
    assert 280 <= len(pictures) <= 330
    for split in SPLITS:
        assert len({p.split("/")[1] for p in pictures if p.startswith(split)} & CLASSES) >= 6
    full = Counter(p.split("/")[1] for p in pictures)
    assert all(full[label] >= 20 for label in CLASSES)


def test_names_suggest_no_sequence_but_the_planted_ones(fresh):
    stems = Counter(Path(p).stem for p in made(fresh) if p.split("/")[0] in SPLITS)
    assert max(stems.values()) == 1
    numbers = sorted(int(stem) for stem in stems if stem.isdigit())
    assert all(b - a > 1 for a, b in itertools.pairwise(numbers))
    clips = {
        stem.split("_")[0] for stem in stems if not stem.isdigit() and not stem.startswith(".")
    }
    assert clips == {"clip03", "clip07"}


def test_the_key_names_existing_files_and_every_kind_of_defect(fresh, key):
    assert {row["code"] for row in key} == ALL_CODES
    assert len({(row["code"], row["members"]) for row in key}) == len(key)
    for row in key:
        members = row["members"].split("|")
        assert members == sorted(members)
        assert row["planted"].endswith(".")
        assert row["subject_kind"] in ("sample", "group", "class", "dataset")
        if row["subject_kind"] in ("sample", "group"):
            assert (len(members) == 1) == (row["subject_kind"] == "sample")
            assert all((fresh / member).is_file() for member in members)


def test_counts_are_far_from_the_limits_of_the_class_checks(fresh, key):
    pictures = [p for p in made(fresh) if p.count("/") == 2 and not p.endswith(".gitkeep")]
    totals = Counter(p.split("/")[1] for p in pictures)
    assert {label for label, n in totals.items() if 5 < n < 20} == set()
    for split in ("val", "test"):
        sizes = Counter(p.split("/")[1] for p in pictures if p.startswith(f"{split}/"))
        assert max(sizes.values()) <= 8 * min(sizes.values())
    rare = {row["members"] for row in key if row["code"] == "DIST002"}
    assert rare == {label for label, n in totals.items() if 1 < n <= 5}


def test_manifest_lists_every_picture_and_its_groups_leak_as_its_key_says(fresh):
    rows = table(fresh / "manifest.csv")
    pictures = {p for p in made(fresh) if p.split("/")[0] in SPLITS and ".gitkeep" not in p}
    assert {row["path"] for row in rows} == pictures
    splits = {}
    for row in rows:
        assert row["path"].startswith(f"{row['split']}/{row['label']}".rstrip("/") + "/")
        if row["group"]:
            splits.setdefault(row["group"], {}).setdefault(row["split"], []).append(row["path"])
    leaked = {"|".join(sorted(itertools.chain(*s.values()))) for s in splits.values() if len(s) > 1}
    extra = table(fresh / "answer_key_manifest.csv")
    assert leaked == {row["members"] for row in extra}
    assert len(leaked) == 2


def test_accepted_findings_are_few_and_explained():
    rows = table(SAMPLE_DATA / "accepted.csv")
    assert len(rows) <= 10
    assert all(row["reason"] and row["code"] and row["members"] for row in rows)


def test_an_unknown_option_is_refused_with_usage():
    done = make("--sede", 7)
    assert done.returncode == 2
    assert "usage:" in done.stderr
