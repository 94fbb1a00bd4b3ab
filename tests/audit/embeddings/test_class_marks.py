"""What relates classes and boxes to the stored signatures: marks, and boxes that do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from audit.embeddings.box_fits import EACH, relate_box_fits
from audit.embeddings.class_marks import relate_marks
from audit.neighbors.pairs.signature_store import write_signatures
from audit.picture.measure import signature_table
from audit.picture.signatures import make_signature
from audit.testing import Case, case_store
from tests.audit.checks.case_tables import boxed

N = 80


def write(run: Path, pictures: list[np.ndarray]) -> list[dict[str, Any]]:
    """Store the signatures of pictures; return their rows, every fourth of class b."""
    hashes = [f"{number:064x}" for number in range(len(pictures))]
    write_signatures(run, signature_table(hashes, [make_signature(p) for p in pictures]))
    return [{"content_hash": h, "label": "ab"[n % 4 == 0]} for n, h in enumerate(hashes)]


def textures(count: int = N) -> list[np.ndarray]:
    rng = np.random.default_rng(7)
    return [np.clip(rng.normal(120, 30, (32, 32, 3)), 0, 255).astype(np.uint8)
            for _ in range(count)]  # fmt: skip


def test_the_mark_of_a_class_is_kept_for_every_picture(tmp_path: Path) -> None:
    pictures = textures()
    for picture in pictures[::4]:
        picture[27:29, 20:27] = 250
    with case_store(Case("", write(tmp_path, pictures))) as store:
        relate_marks(store, tmp_path)
        found = store.query("SELECT * FROM class_marks")
    assert found["label"].unique().to_list() == ["b"]
    assert found["place"].unique().to_list() == ["bottom right"]
    assert found["sample_id"].n_unique() == N


@pytest.mark.parametrize("why", ["none", "few", "copies", "one class", "plain ground"])
def test_no_mark_is_found(tmp_path: Path, why: str) -> None:
    pictures = textures(36 if why == "few" else N)
    if why != "none":
        for picture in pictures[::4]:
            picture[27:29, 20:27] = 250
    if why == "plain ground":
        for picture in pictures:
            picture[:3], picture[-3:], picture[:, :3], picture[:, -3:] = 0, 0, 0, 0
    rows = write(tmp_path, pictures)
    for row in rows:
        if why == "one class":
            row["label"] = "a"
        if why == "copies" and row["label"] == "b":
            row["pixel_hash"] = "f" * 32
    with case_store(Case("", rows)) as store:
        relate_marks(store, tmp_path)
        assert store.scalar("SELECT count(*) FROM class_marks") == 0


def fits(tmp_path: Path, mirrored: bool, crowd: int = 1) -> pl.DataFrame:
    """Return `box_fits`, the best first: one object an image."""
    rng, pictures, boxes, listed = np.random.default_rng(8), textures(), [], []
    for number, picture in enumerate(pictures):
        x, y = (int(v) for v in rng.integers(1, 20, 2))
        picture[y : y + 8, x : x + 9] = rng.choice([10, 245])
        place = {"x": 20.0 * (32 - x - 9 if mirrored else x), "y": 15.0 * y}
        name = f"{number:04d}.jpg"
        boxes.append({"sample_id": name, "width": 180.0, "height": 120.0, **place})
        listed.append({"file": "boxes.json", "image_key": name, "sample_id": name, "entry": number})
    boxes += boxes[:1] * (crowd - 1)
    tables = boxed(*boxes, annotated_images=listed)
    with case_store(Case("", write(tmp_path, pictures), tables=tables)) as store:
        relate_box_fits(store, tmp_path)
        return store.query("SELECT * FROM box_fits ORDER BY gain_z DESC")


@pytest.mark.parametrize("mirrored", [False, True])
def test_boxes_on_mirrored_pictures_fit_better_mirrored(tmp_path: Path, mirrored: bool) -> None:
    row = fits(tmp_path, mirrored).row(0, named=True)
    assert row["gain_z"] > 4 if mirrored else row["gain_z"] < -2
    assert not mirrored or row["elsewhere"] == "mirrored"
    assert row["boxes"] == row["units"] == N


def test_of_a_crowded_picture_some_boxes_are_looked_at(tmp_path: Path) -> None:
    assert fits(tmp_path, False, crowd=30)["boxes"][0] == N - 1 + EACH
