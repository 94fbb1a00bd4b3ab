"""Classes and splits that were turned, or are negatives, beside sets in which nothing is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest

from audit.checking.cases import Case, case_store
from audit.embeddings import turns
from audit.embeddings.turns import relate_turns
from audit.neighbors.pairs.signature_store import write_signatures
from audit.picture.measure import signature_table
from audit.picture.signatures import make_signature

Picture = npt.NDArray[np.uint8]
EACH = 40


def landscape(rng: np.random.Generator, way: int = 0) -> Picture:
    """A bright sky over something rough, turned by `way` quarters to the left."""
    light = np.linspace(200, 90, 32)[:, None] + rng.normal(0, 25, (32, 32))
    light[16:] += cv2.resize(rng.normal(0, 25, (4, 8)), (32, 16), interpolation=cv2.INTER_CUBIC)
    grey = np.rot90(np.clip(light, 0, 255), way)
    return np.ascontiguousarray(np.repeat(grey[:, :, None], 3, 2)).astype(np.uint8)


def found(run: Path, pictures: list[Picture], rows: list[dict[str, Any]]) -> dict[str, str]:
    """What is said of which class or split."""
    hashes = [f"{number:064x}" for number in range(len(pictures))]
    write_signatures(run, signature_table(hashes, [make_signature(p) for p in pictures]))
    named = [row | {"content_hash": h} for row, h in zip(rows, hashes, strict=True)]
    with case_store(Case("", named)) as store:
        relate_turns(store, run)
        parts = store.query(
            f"SELECT kind, name, version, count(*) AS n FROM {turns.TABLE} GROUP BY ALL"
        )
    assert set(parts["n"]) <= {turns.SHOWN}
    return {f"{kind} {name}": version for kind, name, version, _ in parts.iter_rows()}


def dealt(classes: str = "abcd", split: str = "") -> list[dict[str, Any]]:
    """Rows of `EACH` pictures of each class; every fourth is in the split."""
    return [{"label": label, **({"split": split if n % 4 == 0 else "train"} if split else {})}
            for label in classes for n in range(EACH)]  # fmt: skip


CHANGES = {
    "turned to the left": np.rot90, "turned to the right": lambda p: np.rot90(p, 3),
    "upside down": lambda p: np.rot90(p, 2), "negatives": lambda p: 255 - p,
}  # fmt: skip


@pytest.mark.parametrize("version", CHANGES)
def test_a_class_that_lies_otherwise_is_found(tmp_path: Path, version: str) -> None:
    rng, rows = np.random.default_rng(3), dealt()
    pictures = [landscape(rng) for _ in rows]
    pictures = [
        np.ascontiguousarray(CHANGES[version](p)) if row["label"] == "b" else p
        for p, row in zip(pictures, rows, strict=True)
    ]
    assert found(tmp_path, pictures, rows) == {"label b": version}


def test_a_split_is_found_and_the_smaller_one_was_turned(tmp_path: Path) -> None:
    rng, rows = np.random.default_rng(4), dealt(split="test")
    pictures = [landscape(rng, 2 * (row["split"] == "test")) for row in rows]
    assert found(tmp_path, pictures, rows) == {"split test": "upside down"}


@pytest.mark.parametrize("why", ["nothing", "two classes", "few", "no side is up", "each its own"])
def test_nothing_is_found(tmp_path: Path, why: str) -> None:
    rng, rows = np.random.default_rng(5), dealt("ab" if why == "two classes" else "abcd")
    if why == "few":
        rows = [row for n, row in enumerate(rows) if row["label"] != "b" or n % 4 == 0]
    pictures = []
    for n, row in enumerate(rows):
        place = "abcd".index(row["label"])
        way = {"no side is up": n % 4, "each its own": place}.get(why, place == 1)
        pictures.append(landscape(rng, int(way) if why != "nothing" else 0))
    assert found(tmp_path, pictures, rows) == {}


@pytest.mark.parametrize("snow", [False, True])
def test_dark_things_on_snow_are_no_negatives_of_light_ones(tmp_path: Path, snow: bool) -> None:
    rng, rows, pictures = np.random.default_rng(6), dealt(), []
    for row in rows:
        ground, thing = rng.normal(60, 10), rng.normal(140, 10)
        if row["label"] == "b":
            ground, thing = (235, 150) if snow else (255 - ground, 255 - thing)
        picture = np.full((32, 32, 3), ground) + rng.normal(0, 5, (32, 32, 1))
        for x, y in rng.integers(0, 28, (8, 2)):
            picture[y : y + 4, x : x + 4] = thing
        pictures.append(np.clip(picture, 0, 255).astype(np.uint8))
    assert found(tmp_path, pictures, rows) == ({} if snow else {"label b": "negatives"})
