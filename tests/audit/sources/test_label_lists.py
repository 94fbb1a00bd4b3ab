"""Cells with several labels: split where that is sure or told, and what is said of it."""

from __future__ import annotations

import pytest

from audit.sources.label_lists import read_lists

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
    assert "'d' is no label" in said
    assert "--label-separator ';'" in said
