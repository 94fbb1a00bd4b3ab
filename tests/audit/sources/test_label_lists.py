"""Cells with several labels: split where that is sure or told, and what is said of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from audit.sources.label_lists import read_lists
from audit.sources.packs.parquet_rows import list_members
from audit.sources.python_objects import store_dataset

CASES = {
    "parts that are labels": (["a", "b", "c", "a;b", "b; c"], None, {"a;b": "ab", "b; c": "bc"}),
    "a part that is none": (["a", "b", "a;d"], None, {}),
    "told": (["a", "b", "a;d", "d;;d"], ";", {"a;d": "ad", "d;;d": "d"}),
    "told another": (["a/b", "a;b"], "/", {"a/b": "ab"}),
    "commas of names": (["tench, Tinca", "goldfish, Carassius"], None, {}),
    "commas between labels": (["a", "b", "a,b"], None, {"a,b": "ab"}),
    "bars": (["a", "b", "a|b"], None, {"a|b": "ab"}),
    "JSON": (['["a", "b"]', '["a"]', "[]"], None, {'["a", "b"]': "ab", '["a"]': "a", "[]": ""}),
    "as Python prints": (["['a', 'b']"], None, {"['a', 'b']": "ab"}),
    "numbers": (["[1, 2, 1]"], None, {"[1, 2, 1]": "12"}),
    "names in brackets": (["[none]", "[a]"], None, {}),
    "deep": (["[[1], [2]]"], None, {}),
    "single labels": (["a", "b"], None, {}),
    "nothing": ([], None, {}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_cells(name: str) -> None:
    cells, told, wanted = CASES[name]
    found = read_lists(cells, told)
    assert {cell: "".join(labels) for cell, labels in found.lists.items()} == wanted
    assert bool(found.reading) == bool(wanted or name == "a part that is none")


def test_what_is_not_split_says_how_it_would_be() -> None:
    said = read_lists(["a", "b", "a;d"]).reading
    assert "'d' is not a label on its own" in said
    assert "--set scan.label_separator=';' splits" in said


@pytest.mark.parametrize("named", [lambda f: {"feature": f, "_type": "Sequence"}, lambda f: [f]])
def test_a_sequence_of_class_labels_in_parquet_has_its_names(tmp_path: Path, named: Any) -> None:
    import pyarrow.parquet as pq

    rows = pl.DataFrame({"image": [b"1", b"22"], "labels": [[0, 1], [1]]})
    feature = {"names": ["cat", "dog"], "_type": "ClassLabel"}
    notes = {"huggingface": json.dumps({"info": {"features": {"labels": named(feature)}}})}
    pq.write_table(rows.to_arrow().replace_schema_metadata(notes), tmp_path / "a.parquet")
    found = [member.label for member in list_members(str(tmp_path / "a.parquet"))]
    assert found == ['["cat", "dog"]', '["dog"]']


def test_lists_of_words_from_python_are_labels_and_lists_of_numbers_are_not(tmp_path: Path) -> None:
    pixels = np.zeros((8, 8, 3), np.uint8)
    labels: list[Any] = [["cat", "dog"], [1, 0], [], "cat"]
    items = [{"image": pixels + 9 * i, "label": x} for i, x in enumerate(labels)]
    manifest = store_dataset(items, tmp_path / "run")
    assert pl.read_parquet(manifest)["label"].to_list() == ['["cat", "dog"]', None, None, "cat"]
