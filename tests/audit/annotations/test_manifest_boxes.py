"""Manifests with a row for each box: one sample a picture, its boxes as annotations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from audit.sources import open_source
from tests.audit.annotations.datasets import annotated, boxes_of, judge, picture

pytestmark = pytest.mark.slow

ROWS: list[dict[str, Any]] = [
    {"path": "a.jpg", "label": "cat", "xmin": 5.5, "ymin": 6, "xmax": 25, "ymax": 16, "split": "a"},
    {"path": "a.jpg", "label": "dog", "xmin": 30, "ymin": 6, "xmax": 45, "ymax": 16, "split": "a"},
    {"path": "b.jpg", "label": "cat", "xmin": 5, "ymin": 6, "xmax": 25, "ymax": 16, "split": "b"},
    {"path": "c.jpg", "label": None, "xmin": None, "ymin": None, "xmax": None, "ymax": None,
     "split": "b"},
]  # fmt: skip


def written(folder: Path, extension: str, rows: list[dict[str, Any]]) -> Path:
    for name in "abc":
        picture(folder / f"{name}.jpg")
    frame, path = pl.DataFrame(rows, infer_schema_length=None), folder / f"boxes.{extension}"
    if extension == "csv":
        frame.write_csv(path)
    elif extension == "parquet":
        frame.write_parquet(path)
    else:
        frame.write_ndjson(path)
    return path


EXPECTED = [
    ("a.jpg", "cat", 5.5, 6, 19.5, 10), ("a.jpg", "dog", 30, 6, 15, 10),
    ("b.jpg", "cat", 5, 6, 20, 10),
]  # fmt: skip


@pytest.mark.parametrize("extension", ["csv", "parquet", "jsonl"])
def test_a_row_a_box(extension: str, tmp_path: Path) -> None:
    path = written(tmp_path, extension, ROWS)
    source = open_source([str(path)])
    samples = [s for batch in source.batches() for s in batch]
    assert [(s.id, s.split, s.label) for s in samples] == [
        ("a.jpg", "a", None), ("b.jpg", "b", None), ("c.jpg", "b", None),
    ]  # fmt: skip
    assert source.notes == []
    assert source.metadata is None
    assert "boxes: xmin, ymin, xmax, ymax" in source.describe()
    with annotated(path) as store:
        assert boxes_of(store) == EXPECTED
        assert store.scalar("SELECT count(*) FROM annotated_images") == 3
        assert judge(store) == []


def test_sizes_sides_and_one_box_a_picture(tmp_path: Path) -> None:
    rows = [{"path": f"{n}.jpg", "class": "cat", "x": 5, "y": 6, "w": 20, "h": 10} for n in "abc"]
    path = written(tmp_path, "csv", rows)
    source = open_source([str(path)])
    assert {s.label for batch in source.batches() for s in batch} == {"cat"}
    with annotated(path) as store:
        assert boxes_of(store)[0] == ("a.jpg", "cat", 5, 6, 20, 10)
    sized = [{**row, "width": 48, "height": 64} for row in ROWS[:3]]
    path = written(tmp_path / "sized", "csv", sized)
    with annotated(path) as store:
        assert {f.code for f in judge(store)} == {"BOX005"}


def test_faults_are_found_with_their_line(tmp_path: Path) -> None:
    rows = [{k: None if v is None else str(v) for k, v in row.items()} for row in ROWS]
    rows[1] |= {"xmax": "90"}
    rows.append({**rows[2], "xmin": "left"})
    path = written(tmp_path, "csv", rows)
    with annotated(path) as store:
        found = {f.code: f for f in judge(store)}
    assert set(found) >= {"BOX001", "BOX007", "BOX013"}
    assert "line 3" in found["BOX001"].message
    assert "line 6" in str(found["BOX013"].evidence) + found["BOX013"].message


def test_published_boxes_as_a_manifest(real_data: Path, tmp_path: Path) -> None:
    """The raccoons' own CSV, given as the source, has the boxes of its VOC files."""
    table = pl.read_csv(real_data / "raccoon" / "data" / "raccoon_labels.csv")
    images = real_data / "raccoon" / "images"
    named = table.with_columns(filename=pl.lit(f"{images}/") + pl.col("filename"))
    named.write_csv(tmp_path / "boxes.csv")
    with annotated(tmp_path / "boxes.csv") as store:
        assert store.scalar("SELECT count(*) FROM samples") == 200
        assert store.scalar("SELECT count(*) FROM boxes WHERE sample_id IS NOT NULL") == 217
