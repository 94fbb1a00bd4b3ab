"""What relates classes and boxes to the stored signatures: marks, and boxes that do not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from audit.checking.boxes import boxed
from audit.checking.cases import Case, case_store
from audit.embeddings.box_fits import EACH, named_parts, relate_box_fits
from audit.embeddings.class_marks import relate_marks
from audit.neighbors.pairs.signature_store import write_signatures
from audit.picture.measure import signature_table
from audit.picture.signatures import make_signature
from audit.statistics.box_parts import LEAST

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


def fits(
    tmp_path: Path, mirrored: list[bool], sources: str, crowd: int = 1
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return `box_fits` of all boxes and `box_parts`, the best first: one object a picture."""
    rng, pictures, boxes, listed, entries = np.random.default_rng(8), textures(), [], [], []
    for number, picture in enumerate(pictures):
        x, y = (int(v) for v in rng.integers(1, 20, 2))
        picture[y : y + 8, x : x + 9] = rng.choice([10, 245])
        place = {"x": 20.0 * (32 - x - 9 if mirrored[number] else x), "y": 15.0 * y}
        name = f"{number:04d}.jpg"
        boxes.append({"sample_id": name, "width": 180.0, "height": 120.0, **place})
        listed.append({"file": "boxes.json", "image_key": name, "sample_id": name, "entry": number})
        source = json.dumps({"source": sources[number % len(sources)]})
        entries.append({**listed[-1], "attributes": source})
        del entries[-1]["sample_id"]
    boxes += boxes[:1] * (crowd - 1)
    tables = boxed(*boxes, annotated_images=listed, annotations=entries)
    with case_store(Case("", write(tmp_path, pictures), tables=tables)) as store:
        relate_box_fits(store, tmp_path)
        found = "SELECT * FROM box_fits WHERE label IS NULL ORDER BY gain_z DESC"
        return store.query(found), store.query("SELECT * FROM box_parts ORDER BY apart_z DESC")


@pytest.mark.parametrize("mirrored", [False, True])
def test_boxes_on_mirrored_pictures_fit_better_mirrored(tmp_path: Path, mirrored: bool) -> None:
    best, parts = fits(tmp_path, [mirrored] * N, "ab")
    row = best.row(0, named=True)
    assert row["gain_z"] > 4 if mirrored else row["gain_z"] < -2
    assert not mirrored or row["elsewhere"] == "mirrored"
    assert row["boxes"] == row["units"] == N
    assert parts["part"].null_count() == len(parts)


def test_of_a_crowded_picture_some_boxes_are_looked_at(tmp_path: Path) -> None:
    best, _ = fits(tmp_path, [False] * N, "ab", crowd=30)
    assert best["boxes"][0] == N - 1 + EACH


def test_an_attribute_names_the_mirrored_ones(tmp_path: Path) -> None:
    _, parts = fits(tmp_path, [number % 3 == 1 for number in range(N)], "abc")
    row = parts.row(0, named=True)
    assert (row["part"], row["elsewhere"]) == ("whose boxes have source = b", "mirrored")
    assert row["units"] == len(range(1, N, 3))


def test_pictures_mirrored_from_some_entry_on_are_a_stretch(tmp_path: Path) -> None:
    _, parts = fits(tmp_path, [number >= 50 for number in range(N)], "abc")
    row = parts.row(0, named=True)
    assert row["part"].endswith(".jpg to 0079.jpg in the order of the file")
    assert abs(int(row["part"].removeprefix("from about ")[:4]) - 50) < 5


@pytest.mark.parametrize(
    ("column", "values", "said"),
    [
        ("sample_id", ["x/a/1.jpg", "x/b/1.jpg"], "in x/a/"),
        ("sample_id", ["x/cam1_1.jpg", "x/cam2_1.jpg"], "whose names begin with cam1"),
        ("sample_id", ["x/1_flip.jpg", "x/1.jpg"], "whose names end in _flip"),
        ("sample_id", ["IMG1.jpg", "DSC1.jpg"], "whose names begin with IMG"),
        ("sample_id", ["1.png", "1.jpg"], "whose names end in .png"),
        ("split", ["val", "train"], "of split val"),
        ("orientation", [6, 1], "that EXIF turns (6)"),
        ("width", [10, 900], "that are higher than wide"),
        ("width", [700, 900], "of 700 x 480 px"),
        ("of_picture", ['{"site": "{A}"}', "not JSON"], "with site = {A}"),
        ("attributes", ['{"s{}": true}', None], "whose boxes have s{} = True"),
    ],
)
def test_parts_have_names(column: str, values: list[Any], said: str) -> None:
    n = 2 * LEAST
    row = {"sample_id": "1.jpg", "label": "cat", "split": "train", "width": 640, "height": 480,
           "orientation": 1, "attributes": None, "of_picture": None, "rank": 0}  # fmt: skip
    rows = [{**row, "unit": str(k), column: values[k % 2]} for k in range(n)]
    types = {"attributes": pl.String, "of_picture": pl.String}
    named, columns = named_parts(pl.DataFrame(rows, schema_overrides=types))
    parts = {name.format(kinds[code]).strip(): columns[name] == code
             for name, kinds in named.items() for code in range(len(kinds))}  # fmt: skip
    assert parts[said].tolist() == [True, False] * LEAST
