"""SPLIT002 on numbered files: silent whatever they are called, unless neighbours look alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.audit.checks.case_tables import judge
from tests.audit.checks.cases.split_groups import _look

NAMES = ("{:04d}", "{}", "IMG_{:04d}", "DSC{:05d}", "cat_{}", "n01440764_{}", "image ({})",
         "2023-07-{}", "clip{0:03d}_0001", "v1.2_{:06d}")  # fmt: skip


def numbered(name: str, n: int = 300) -> list[dict[str, Any]]:
    """Pictures of two classes that have nothing to do with each other, numbered from 0 in each."""
    return [
        {
            "id": f"{split}/{label}/{name.format(i)}.jpg", "split": split, "label": label,
            **_look(1000 * k + i),
        }
        for k, label in enumerate(("airplane", "bird"))
        for i in range(n)
        for split in ["test" if i % 4 == 0 else "train"]
    ]  # fmt: skip


def film(name: str, splits: str, seed: int, start: int = 1) -> list[dict[str, Any]]:
    """Stills of one scene; `splits` has a letter for each."""
    return [
        {
            "id": f"{split}/bird/{name}{i:04d}.jpg", "split": split, "label": "bird",
            **_look(10**6 + seed),
        }
        for i, letter in enumerate(splits, start)
        for split in [{"t": "train", "e": "test"}[letter]]
    ]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_numbers_alone_prove_nothing(name: str) -> None:
    assert judge("SPLIT002", numbered(name)) == []


def test_a_film_among_numbered_files_is_found_alone() -> None:
    found = judge("SPLIT002", [*numbered("{:04d}"), *film("v7_", "ttttee", 1)])
    assert [f.subject for f in found] == ["group:sequence/v7"]
    assert len(found[0].sample_ids) == 6
    assert found[0].evidence["median_rank"] <= 0.01


def test_numbering_that_starts_again_in_each_split_is_two_films() -> None:
    apart = [*film("v7_", "t" * 12, 1), *film("v7_", "e" * 12, 2)]
    assert judge("SPLIT002", [*numbered("{:04d}"), *apart]) == []


def test_copies_across_splits_are_left_to_split001() -> None:
    hashes = [f"{i:032x}" for i in range(8)]
    rows = [
        {**row, "pixel_hash": h} for row, h in zip(film("v7_", "ttttteee", 1), hashes, strict=True)
    ]
    group = [
        {"representative": hashes[0], "pixel_hash": h, "position": i, "score": 9.0}
        for i, h in enumerate(hashes)
    ]
    assert judge("SPLIT002", [*numbered("{}"), *rows]) != []
    assert judge("SPLIT002", [*numbered("{}"), *rows], groups=group) == []


def test_pictures_of_one_subject_are_no_film() -> None:
    """A prefix may stand for a kind of bird: alike, but not so alike as neighbours in time."""
    rng = np.random.default_rng(0)
    kind = []
    for i in range(40):
        base, own = _look(7), _look(5000 + i)
        mixed = {k: (v + own[k]) / 2 for k, v in base.items() if k != "phash256"}
        split = ("train", "test")[int(rng.integers(2))]
        row = {"id": f"{split}/bird/wren7_{i}.jpg", "split": split, "label": "bird"}
        kind.append({**row, **mixed, "phash256": own["phash256"]})
    assert judge("SPLIT002", [*numbered("{:04d}"), *kind]) == []


def test_a_film_in_folders_is_found() -> None:
    rows = [{**row, "id": f"clips/{i // 8:02d}/{i % 8:04d}.jpg"} for i, row in enumerate(
        film("", "tttteeee", 1) + film("", "tttttttt", 2))]  # fmt: skip
    assert [f.subject for f in judge("SPLIT002", [*numbered("{:04d}"), *rows])] == [
        "group:sequence/clips/00/#"
    ]
